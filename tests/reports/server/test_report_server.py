"""The server of reports: for the browsers of this machine only, and nothing but runs."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession, web

from perftest.errors import HelpfulError
from perftest.results.schema import LEDGER, MANIFEST, RESULT
from reports.catalogue.annotations import AnnotationChange, annotate
from reports.errors import UnlikeRunsError
from reports.server.app import LOOPBACK, ReportServer, Served
from reports.store.locations import location_of

RUN, OTHER = "20261121-101502-in_flight-3fa1", "20261122-101502-in_flight-77aa"
Ask = Callable[..., Awaitable[tuple[int, str]]]
Scenario = Callable[[Ask], Awaitable[None]]


def no_page(*asked: object) -> Path:
    raise AssertionError(f"nobody asked for the page of {asked}")


def with_server(folder: Path, scenario: Scenario, **parts: Any) -> None:
    """Run a scenario against a server on a port of its own. ``parts`` are fields of :class:`Served`. The list waits
    until all runs have been read."""
    known = {"store": location_of(folder / ".store"), "make_page": no_page, "make_comparison": no_page}
    served = Served(**{"folder": folder, "patience_s": None, **known, **parts})

    async def run() -> None:
        runner = web.AppRunner(ReportServer(served).app(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, LOOPBACK, 0).start()
            address = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
            async with ClientSession(trust_env=False) as session:

                async def ask(path: str, **headers: str) -> tuple[int, str]:
                    named = {name.replace("_", "-"): value for name, value in headers.items()}
                    async with session.get(address + path, headers=named, allow_redirects=False) as answer:
                        return answer.status, await answer.text()

                await scenario(ask)
        finally:
            await runner.cleanup()

    asyncio.run(run())


@pytest.fixture
def folder(tmp_path: Path, make_run: Callable[..., Path]) -> Path:
    make_run(tmp_path / "runs" / RUN, run_id=RUN)
    return tmp_path / "runs"


def change_manifest(run: Path, **changes: Any) -> None:
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    (run / MANIFEST).write_text(json.dumps(manifest | changes), encoding="utf-8")


def test_the_list_has_every_run_and_can_be_searched(folder: Path, make_run: Callable[..., Path]) -> None:
    make_run(folder / "other", run_id="other")
    (folder / "no-run").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / MANIFEST).write_text("{", encoding="utf-8")

    async def scenario(ask: Ask) -> None:
        status, text = await ask("/")
        assert status == 200
        assert all(name in text for name in (RUN, "other", "damaged", "3 of 3 runs"))
        assert "no-run" not in text
        _, found = await ask("/?q=OTHER+finished")
        assert "1 of 3 runs" in found
        _, none = await ask("/?q=%3Cscript%3Ealert(1)%3C/script%3E")
        assert "<script>alert" not in none and "No run has words" in none

    with_server(folder, scenario)


def test_a_page_is_made_once_for_all_who_ask(folder: Path) -> None:
    made: list[Path] = []
    go_on = threading.Event()

    def make_page(run: Path) -> Path:
        assert go_on.wait(60)
        made.append(run)
        (run / "report.html").write_text("the page", encoding="utf-8")
        return run / "report.html"

    async def scenario(ask: Ask) -> None:
        for _ in range(3):
            _, text = await ask(f"/runs/{RUN}/")
            assert "is being made" in text and 'http-equiv="refresh"' in text
        go_on.set()
        while (answer := (await ask(f"/runs/{RUN}/"))[1]) != "the page":
            assert "is being made" in answer
        assert (await ask(f"/runs/{RUN}/"))[1] == "the page"
        assert made == [folder / RUN]

    with_server(folder, scenario, make_page=make_page)


def test_why_a_page_cannot_be_made_is_told_and_it_can_be_tried_again(folder: Path) -> None:
    def make_page(_run: Path) -> Path:
        raise HelpfulError("there is <no> Java", "the machine", "install one")

    async def scenario(ask: Ask) -> None:
        await ask(f"/runs/{RUN}/")
        while (answer := await ask(f"/runs/{RUN}/"))[0] == 200:
            assert "is being made" in answer[1]
        assert "there is &lt;no&gt; Java" in answer[1] and "Try again" in answer[1]
        assert "is being made" in (await ask(f"/runs/{RUN}/"))[1]

    with_server(folder, scenario, make_page=make_page)


def test_a_run_in_progress_is_shown_live(folder: Path) -> None:
    change_manifest(folder / RUN, state="running")

    async def scenario(ask: Ask) -> None:
        assert (await ask(f"/runs/{RUN}/"))[0] == 302
        status, text = await ask(f"/runs/{RUN}/live")
        assert status == 200 and f'data-run="{RUN}"' in text
        first = json.loads((await ask(f"/runs/{RUN}/live.json"))[1])
        assert first["state"] == "running" and len(first["points"]) == first["told"] > 0
        change_manifest(folder / RUN, state="finished")
        after = json.loads((await ask(f"/runs/{RUN}/live.json?told={first['told']}"))[1])
        assert after["state"] == "finished" and len(after["points"]) == after["told"] - first["told"] > 0
        assert (await ask(f"/runs/{RUN}/live.json?told=-1"))[0] == 400

    with_server(folder, scenario)


@pytest.mark.parametrize(
    "path",
    ["/runs/nothing/", "/runs/..%2F..%2Fetc/", "/runs/.store/", f"/runs/{RUN}%2F..%2F{RUN}/", "/runs//", "/etc/passwd"],
)
def test_there_is_nothing_but_runs(folder: Path, path: str) -> None:
    async def scenario(ask: Ask) -> None:
        assert (await ask(path))[0] == 404

    with_server(folder, scenario)


@pytest.mark.parametrize(
    "headers",
    [{"Host": "attacker.example"}, {"Host": "127.0.0.1.attacker.example:80"}, {"Sec_Fetch_Site": "cross-site"}],
)
def test_pages_of_other_sites_get_nothing(folder: Path, headers: dict[str, str]) -> None:
    async def scenario(ask: Ask) -> None:
        for path in ("/", f"/runs/{RUN}/", f"/runs/{RUN}/live.json"):
            assert (await ask(path, **headers))[0] == 403
        assert (await ask("/", Host="localhost:8080"))[0] == 200

    with_server(folder, scenario)


HOSTILE = "<script>alert(1)</script>\"'&"


def test_everything_of_a_run_is_escaped(folder: Path) -> None:
    plan = {"name": HOSTILE, "title": HOSTILE, "queues": [{"type": HOSTILE}], "steps": []}
    broker = {"product": HOSTILE, "version": "1", "layout": f"{HOSTILE}; x"}
    trust = [{"check": "steal", "status": "fail", "text": HOSTILE}]
    change_manifest(folder / RUN, plan=plan, broker=broker, trust=trust, state=HOSTILE)
    annotate(location_of(folder / ".store"), RUN, AnnotationChange(add=("a",), note=HOSTILE), 1)
    rows = [{"delivered_per_s": 10.0, "latency": {"e2e": {"count": 1, "p99_ns": 7}}}]
    (folder / RUN / RESULT).write_text(json.dumps({"steps": rows}), encoding="utf-8")

    async def scenario(ask: Ask) -> None:
        for path in ("/", f"/?q={quote(HOSTILE)}", f"/?name={quote(HOSTILE)}", f"/?tag={quote(HOSTILE)}"):
            status, text = await ask(path)
            assert status == 200 and "<script>alert" not in text and "&lt;script&gt;alert" in text
        _, text = await ask(f"/compare?run={quote(HOSTILE)}&run={RUN}")
        assert "<script>alert" not in text

    with_server(folder, scenario)


def test_filters_stand_in_the_address_and_in_the_form(folder: Path, make_run: Callable[..., Path]) -> None:
    make_run(folder / OTHER, run_id=OTHER)
    store = location_of(folder / ".store")

    async def scenario(ask: Ask) -> None:
        assert "0 of 2 runs" in (await ask("/?tag=nightly"))[1]
        annotate(store, OTHER, AnnotationChange(add=("nightly",), note="new drive"), 1)
        _, text = await ask("/?tag=nightly&queue=quorum&since=2026-11-21")
        assert "1 of 2 runs" in text and f'data-name="{OTHER}"' in text and "new drive" in text
        assert '<input type="hidden" name="tag" value="nightly">' in text
        assert '<option value="quorum" selected>' in text and 'value="2026-11-21"' in text
        annotate(store, OTHER, AnnotationChange(remove=("nightly",)), 2)
        assert "0 of 2 runs" in (await ask("/?tag=nightly"))[1]

    with_server(folder, scenario)


def test_a_filter_that_means_nothing_gets_a_sentence(folder: Path) -> None:
    async def scenario(ask: Ask) -> None:
        status, text = await ask("/?since=yesterday&page=two")
        assert status == 400
        assert "“yesterday” is no day" in text and "“two” is no number of a page" in text

    with_server(folder, scenario)


def test_verdicts_are_words(folder: Path, make_run: Callable[..., Path]) -> None:
    """Of a run that is judged, unsafe, damaged, killed or in progress."""
    failing = [{"check": "ledger", "status": "fail", "text": "messages were not safe: 3 lost"}]
    changes: dict[str, dict[str, Any]] = {
        "valid": {"trust": []},
        "invalid": {"trust": failing},
        "unsafe": {"trust": failing},
        "running": {"state": "running"},
        "damaged": {"trust": [], "files": {RESULT: {"octets": 7, "crc32": "00000000"}}},
    }
    for name, changed in changes.items():
        change_manifest(make_run(folder / name, run_id=name), **changed)
    (folder / "unsafe" / LEDGER).write_text('{"verdict": "violated"}', encoding="utf-8")

    async def scenario(ask: Ask) -> None:
        for name in changes:
            _, text = await ask(f"/?verdict={name}")
            assert f'data-name="{name}"' in text and "1 of 6 runs" in text
        _, text = await ask("/")
        for said in ("INVALID", "ledger violated", "3 lost", "in progress", "result.json is missing", "not judged"):
            assert said in text

    with_server(folder, scenario)


def test_a_run_that_went_away_gets_a_sentence(folder: Path, make_run: Callable[..., Path]) -> None:
    make_run(folder / OTHER, run_id=OTHER)

    async def scenario(ask: Ask) -> None:
        assert OTHER in (await ask("/"))[1]
        shutil.rmtree(folder / OTHER)
        for path in (f"/runs/{OTHER}/", f"/runs/{OTHER}/live", f"/compare?run={RUN}&run={OTHER}"):
            status, text = await ask(path)
            assert status == 404 and "There is no such run here any more" in text
        assert await ask(f"/runs/{OTHER}/live.json") == (404, "There is no such run here any more\n")
        assert "1 of 1 run" in (await ask("/"))[1]
        shutil.rmtree(folder)
        status, text = await ask("/")
        assert status == 200 and "The directory of the runs cannot be read: No such file" in text

    with_server(folder, scenario)


def test_a_list_without_patience_has_what_was_read_so_far(folder: Path) -> None:
    async def scenario(ask: Ask) -> None:
        _, first = await ask("/")
        assert "still to be read" in first or RUN in first
        while RUN not in (text := (await ask("/"))[1]):
            assert "data-again-ms" in text or "0 of 0 runs" in text

    with_server(folder, scenario, patience_s=0)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 400, "A comparison takes two runs, and none were picked"),
        (f"run={RUN}", 400, "A comparison takes two runs, and 1 was picked"),
        (f"run={RUN}&run={RUN}", 400, "Nothing can differ from itself"),
        (f"run={RUN}&run={OTHER}&run=damaged", 400, "A comparison takes two runs, and 3 were picked"),
        (f"run={RUN}&run=damaged", 400, "This run cannot be read"),
        (f"run={RUN}&run=running", 400, "This run is still in progress"),
        (f"run={RUN}&run=nothing", 404, "There is no such run here any more"),
        (f"run={RUN}&run=..%2F{RUN}", 404, "There is no such run here any more"),
    ],
)
def test_picks_that_cannot_be_compared_get_a_sentence(
    folder: Path, make_run: Callable[..., Path], query: str, status: int, said: str
) -> None:
    make_run(folder / OTHER, run_id=OTHER)
    change_manifest(make_run(folder / "running", run_id="running"), state="running")
    (folder / "damaged").mkdir()
    (folder / "damaged" / MANIFEST).write_text("{", encoding="utf-8")

    async def scenario(ask: Ask) -> None:
        found, text = await ask(f"/compare?{query}")
        assert (found, said in text) == (status, True)

    with_server(folder, scenario)


def test_two_runs_are_compared_once_for_all_who_ask(folder: Path, make_run: Callable[..., Path]) -> None:
    change_manifest(make_run(folder / OTHER, run_id=OTHER), started_ns=1)
    made: list[tuple[str, str, frozenset[str]]] = []

    def make_comparison(base: Path, candidate: Path, allow: frozenset[str], out: Path) -> Path:
        made.append((base.name, candidate.name, allow))
        if not allow:
            raise UnlikeRunsError("too unlike", "here", "measure again", ["plan", "host"], ["plan.x: <1> against 2"])
        out.mkdir(parents=True)
        (out / "comparison.html").write_text("the comparison", encoding="utf-8")
        return out / "comparison.html"

    async def scenario(ask: Ask) -> None:
        address = f"/compare?run={RUN}&run={OTHER}"
        while (answer := await ask(address))[0] == 200:
            assert "is being made" in answer[1]
        assert answer[0] == 409 and "plan.x: &lt;1&gt; against 2" in answer[1]
        anyway = f"/compare?run={OTHER}&run={RUN}&allow=host&allow=plan"
        assert anyway.replace("&", "&amp;") in answer[1]
        while (answer := await ask(anyway))[1] != "the comparison":
            assert answer[0] == 200 and "is being made" in answer[1]
        assert (await ask(anyway))[1] == "the comparison"
        assert made == [(OTHER, RUN, frozenset()), (OTHER, RUN, frozenset({"host", "plan"}))]

    with_server(folder, scenario, make_comparison=make_comparison)


def test_a_page_that_fails_in_an_unknown_way_gets_a_sentence(folder: Path) -> None:
    def make_page(_run: Path) -> Path:
        raise KeyError("surprise")

    async def scenario(ask: Ask) -> None:
        while (answer := await ask(f"/runs/{RUN}/"))[0] == 200:
            assert "is being made" in answer[1]
        assert "the page could not be made: KeyError: &#39;surprise&#39;" in answer[1]

    with_server(folder, scenario, make_page=make_page)
