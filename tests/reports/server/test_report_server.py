"""The server of reports: for the browsers of this machine only, and nothing but runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from perftest.errors import HelpfulError
from perftest.results.schema import MANIFEST
from reports.server.app import LOOPBACK, ReportServer

RUN = "20261121-101502-in_flight-3fa1"
Ask = Callable[..., Awaitable[tuple[int, str]]]


def with_server(
    folder: Path, scenario: Callable[[Ask], Awaitable[None]], make_page: Callable[[Path], Path] | None = None
) -> None:
    """Run a scenario against a server on a port of its own."""

    async def run() -> None:
        runner = web.AppRunner(ReportServer(folder, make_page or no_page).app(), access_log=None)
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


def no_page(run: Path) -> Path:
    raise AssertionError(f"nobody asked for the page of {run}")


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
        assert "<script>alert" not in none and "No run has these words" in none

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

    with_server(folder, scenario, make_page)


def test_why_a_page_cannot_be_made_is_told_and_it_can_be_tried_again(folder: Path) -> None:
    def make_page(_run: Path) -> Path:
        raise HelpfulError("there is <no> Java", "the machine", "install one")

    async def scenario(ask: Ask) -> None:
        await ask(f"/runs/{RUN}/")
        while (answer := await ask(f"/runs/{RUN}/"))[0] == 200:
            assert "is being made" in answer[1]
        assert "there is &lt;no&gt; Java" in answer[1] and "Try again" in answer[1]
        assert "is being made" in (await ask(f"/runs/{RUN}/"))[1]

    with_server(folder, scenario, make_page)


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
