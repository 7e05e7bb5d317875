"""``perftest report --serve`` as its user sees it: the command in a process of its own, and a real browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from aiohttp import ClientSession

from perftest.results.schema import MANIFEST, RESULT
from reports.charts import theme
from reports.html.render import render
from reports.pages.page import page
from tests.reports.browser.browsing import MARKS, Browser
from tests.reports.browser.devtools import PATIENCE_S, Tab

pytestmark = MARKS

FINISHED, RUNNING = "20261121-101502-in_flight-3fa1", "20261121-111502-in_flight-77aa"
FITS: Final = """(() => {
  const wide = [...document.querySelectorAll("main *")].filter((each) =>
    each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".scroll, pre, svg"));
  return [innerWidth, document.documentElement.scrollWidth, wide.map((each) => each.outerHTML.slice(0, 80))];
})()"""
GROUND: Final = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture
def folder(tmp_path: Path, make_run: Callable[..., Path]) -> Path:
    """A finished run, and one in progress."""
    for name in (FINISHED, RUNNING):
        make_run(tmp_path / "runs" / name, run_id=name, steps=(1, 64))
    change_state(tmp_path / "runs" / RUNNING, "running")
    return tmp_path / "runs"


def change_state(run: Path, state: str) -> None:
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    (run / MANIFEST).write_text(json.dumps(manifest | {"state": state}), encoding="utf-8")


def give_page(run: Path, sample_tables: ModuleType) -> None:
    """A page that is newer than the run, as a report leaves it."""
    text = render(page(sample_tables.tables(sample_tables.SWEEP), generated=""))
    (run / "report.html").write_text(text, encoding="utf-8")


def give_result(run: Path, **facts: object) -> None:
    """Figures and a trust list, as the end of a run leaves them."""
    rows = [{"delivered_per_s": 900.0, "loop": "closed", "latency": {"e2e": {"count": 9, "p99_ns": 7_000_000}}}]
    (run / RESULT).write_text(json.dumps({"steps": rows}), encoding="utf-8")
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    (run / MANIFEST).write_text(json.dumps(manifest | {"trust": []} | facts), encoding="utf-8")


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The address of the command, which ends by Ctrl-C, without an error."""
    command = [sys.executable, "-m", "perftest", "report", "--serve", str(folder), "--port", "0"]
    pipe = asyncio.subprocess.PIPE
    # A shell has background commands ignore Ctrl-C, and what they start inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env={**os.environ, "CI": "1"})
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        yield line.decode().split()[-1]
        process.send_signal(signal.SIGINT)
        _, told = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0 and b"Traceback" not in told
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def drawn(tab: Tab) -> None:
    """Wait for the page of a run, and for its first figure.

    Figures are drawn when they come into view. What is drawn before moves them, so the figure is looked for again.
    """
    figure = "document.querySelector('article.run figure.chart')"
    await tab.until(f"{figure}.scrollIntoView() || {figure}.querySelector('.main-svg')")


def with_tab(
    browser: Browser,
    folder: Path,
    scenario: Callable[[Tab, str], Awaitable[None]],
    *others: str,
    expected: str = "",
) -> None:
    """Run a scenario; no page of it may complain of anything but what is ``expected``, or ask anybody but the server
    and the others."""

    async def run(tab: Tab) -> None:
        tab.expected = expected
        async with served(folder) as address:
            await scenario(tab, address)
            assert all(each.startswith((address, "data:", "blob:", "about:", *others)) for each in tab.requests)
            await tab.open("about:blank")  # a page that is followed keeps its connection

    browser.run(run)


LISTED: Final = "[...document.querySelectorAll('#found [data-name]')].map((row) => row.dataset.name)"
CHARTS: Final = "document.querySelectorAll('#charts .main-svg').length"


@pytest.mark.slow
def test_the_list_is_led_by_keys(browser: Browser, folder: Path, sample_tables: ModuleType) -> None:
    """Runs are found, picked for a comparison, and opened without a mouse."""
    give_page(folder / FINISHED, sample_tables)
    give_result(folder / FINISHED)

    async def scenario(tab: Tab, address: str) -> None:
        await tab.open(address)
        await tab.until(f"{LISTED}.join() === '{FINISHED},{RUNNING}' && document.querySelector('#picked').textContent")
        await tab.press("?")
        assert await tab.ask("document.querySelector('dialog').open")
        await tab.press("Escape")
        for key in ("j", "x", "j", "x", "c"):
            await tab.press(key)
        await tab.until("document.querySelector('h1').textContent === 'This run is still in progress'")
        await tab.open(address)
        await tab.until("document.querySelectorAll('#found input:checked').length === 2")
        await tab.press("/")
        for key in "3fa1":
            await tab.press(key)
        await tab.until(f"location.search === '?q=3fa1' && {LISTED}.join() === '{FINISHED}'")
        await tab.press("Escape")
        await tab.until("document.activeElement.tagName === 'A'")
        await tab.press("Enter")
        await drawn(tab)
        assert await tab.ask("location.pathname") == f"/runs/{FINISHED}/"

    with_tab(browser, folder, scenario, expected="status of 400")


@pytest.mark.slow
def test_filters_act_at_once_and_charts_follow(browser: Browser, folder: Path) -> None:
    """The page stays, its address says the filters, and the same address gives the same list."""
    give_result(folder / FINISHED)

    async def scenario(tab: Tab, address: str) -> None:
        await tab.open(address)
        await tab.until(f"{CHARTS} >= 2")
        await tab.ask("document.documentElement.dataset.stays = 'yes'")
        choose = (
            "(name, value) => { const field = document.forms.filters.elements.namedItem(name); field.value = value;"
        )
        choose += " field.dispatchEvent(new Event('input', { bubbles: true })); }"
        await tab.ask(f"({choose})('verdict', 'running')")
        await tab.until(f"location.search === '?verdict=running' && {LISTED}.join() === '{RUNNING}' && {CHARTS} === 0")
        await tab.ask(f"({choose})('verdict', 'valid')")
        await tab.until(f"{LISTED}.join() === '{FINISHED}' && {CHARTS} >= 2")
        assert await tab.ask("document.documentElement.dataset.stays") == "yes"
        await tab.open(await tab.ask("location.href"))
        assert await tab.ask(LISTED) == [FINISHED]

    with_tab(browser, folder, scenario)


FITTED: Final = """[...document.querySelectorAll("#charts .plot")].every((plot) =>
  plot.clientWidth === plot.querySelector(".main-svg").clientWidth)"""
OVERLAP: Final = """(() => {
  const box = (plot, part) => plot.querySelector(part).getBoundingClientRect();
  const plots = [...document.querySelectorAll("#charts .plot")];
  return plots.map((plot) => box(plot, ".legend").bottom - box(plot, ".nsewdrag").top);
})()"""


@pytest.mark.slow
def test_a_legend_of_several_lines_stays_above_its_figure(
    browser: Browser, folder: Path, make_run: Callable[..., Path]
) -> None:
    """Also when the figure is drawn again, in another width or for a printer."""
    for number in range(4):
        run = make_run(folder / f"run{number}", run_id=f"run{number}", steps=(1,))
        give_result(run, broker={"product": f"a broker with a long name {number}", "version": "1.0"})

    async def scenario(tab: Tab, address: str) -> None:
        await tab.open(address)
        for width in (1280, 1000):
            await tab.resize(width)
            await tab.until(f"{CHARTS} >= 2 && {FITTED}")
            assert max(await tab.ask(OVERLAP)) <= 0
        await tab.call("Emulation.setEmulatedMedia", media="print")
        await tab.ask("dispatchEvent(new Event('beforeprint'))")
        await tab.until(FITTED)
        assert max(await tab.ask(OVERLAP)) <= 0

    with_tab(browser, folder, scenario)


@pytest.mark.slow
@pytest.mark.spark
def test_a_page_is_made_when_somebody_asks_for_it(browser: Browser, folder: Path) -> None:
    """The reader waits on a page that says so, and gets the report without a further click."""

    async def scenario(tab: Tab, address: str) -> None:
        await tab.open(f"{address}runs/{FINISHED}/")
        assert "is being made" in await tab.ask("document.querySelector('[role=status]').textContent")
        await drawn(tab)
        assert (folder / FINISHED / "report.html").is_file()

    with_tab(browser, folder, scenario)


async def a_pause_freezes_the_drawing(tab: Tab) -> None:
    """Space begins the pause and ends the pause, and the run is followed all the while."""
    events = "document.getElementById('events').childElementCount"
    asked = "performance.getEntriesByType('resource').filter((each) => each.name.includes('live.json')).length"
    await tab.press(" ")
    assert "paused" in await tab.ask("document.getElementById('state').textContent")
    await tab.ask("document.getElementById('events').replaceChildren()")
    before = await tab.ask(asked)
    await tab.until(f"{asked} >= {before + 3}")
    assert await tab.ask(events) == 0
    await tab.press(" ")
    await tab.until(f"{events} > 0")


@pytest.mark.slow
def test_a_run_in_progress_is_followed_to_its_end(browser: Browser, folder: Path) -> None:
    """Figures come by themselves, and at the end there is a link to the page."""

    async def scenario(tab: Tab, address: str) -> None:
        await tab.open(f"{address}runs/{RUNNING}/")
        assert await tab.ask("location.pathname") == f"/runs/{RUNNING}/live"
        await tab.until("document.querySelectorAll('.panel .main-svg').length > 1")
        cells = "[...document.querySelectorAll('#now tbody td')].map((each) => each.textContent)"
        assert len(await tab.ask(cells)) == 7
        assert await tab.ask("document.getElementById('state').textContent") == "In progress."
        await a_pause_freezes_the_drawing(tab)
        change_state(folder / RUNNING, "finished")
        await tab.until("document.querySelector('#state a')")
        assert "The run is over: finished." in await tab.ask("document.getElementById('state').textContent")

    with_tab(browser, folder, scenario)


@pytest.mark.slow
def test_list_and_live_page_are_readable_in_the_dark_and_at_360_pixels(browser: Browser, folder: Path) -> None:
    """Also when the theme changes while a run is followed."""

    async def scenario(tab: Tab, address: str) -> None:
        await tab.resize(360)
        for scheme in theme.THEMES:
            await tab.prefer(scheme)
            ground = theme.PALETTES[scheme]["page"]
            for path in ("", f"runs/{RUNNING}/live"):
                await tab.open(f"{address}{path}")
                if path:
                    await tab.until("document.querySelectorAll('.panel .main-svg').length > 1")
                inner, scrolled, wide = await tab.ask(FITS)
                assert inner == 360 and scrolled <= 360 and wide == []
                shown = await tab.ask(GROUND)
                assert shown == "rgb({}, {}, {})".format(*(int(ground[at : at + 2], 16) for at in (1, 3, 5)))

    with_tab(browser, folder, scenario)


@pytest.mark.slow
def test_a_name_of_another_site_gets_nothing(browser: Browser, folder: Path) -> None:
    """A site whose name leads to this machine must not read the runs (DNS rebinding)."""

    async def scenario(tab: Tab, address: str) -> None:
        async with ClientSession(trust_env=False) as session:
            for host in ("attacker.example", "127.0.0.1.attacker.example"):
                async with session.get(address, headers={"Host": host}) as answer:
                    assert answer.status == 403 and FINISHED not in await answer.text()
        foreign = address.replace("127.0.0.1", "attacker.example")
        await tab.open(foreign)
        assert "answers only to 127.0.0.1" in await tab.ask("document.body.textContent")

    with_tab(browser, folder, scenario, "http://attacker.example", expected="403")
