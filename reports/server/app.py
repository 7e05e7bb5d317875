"""The web server of ``perftest report --serve``: for the browsers of this machine only.

It listens on the loopback interface, answers only requests that name the loopback interface (so no page of the internet
can reach it under another name), refuses requests that another site makes a browser send, and has no way to change
anything but to make a page. One page is made at a time, because Spark takes all cores.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from perftest.errors import HelpfulError
from perftest.results.schema import INTERVALS_CSV, MANIFEST
from reports.html.render import plotly_script, style_sheet
from reports.server.listing import ListedRun, Listing
from reports.server.live import LiveRun

MakePage = Callable[[Path], Path]
"""Makes the page of a run directory and returns its path; it may take a while. Raises HelpfulError."""

LOOPBACK: Final = "127.0.0.1"
NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
"""Names under which a browser of this machine may ask."""
SHOWN: Final = 200
"""Runs in a list; older ones are found by a filter."""
LIVE_MAX: Final = 16
"""Runs in progress that are followed at once."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HERE: Final = Path(__file__).parent
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'self'"
)


class ReportServer:
    """The handlers. ``folder`` holds the run directories."""

    def __init__(self, folder: Path, make_page: MakePage) -> None:
        self._listing = Listing(folder)
        self._make_page = make_page
        self._making: dict[str, asyncio.Task[Path]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._live: dict[str, LiveRun] = {}
        loader = FileSystemLoader(_HERE)
        self._templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)

    def app(self) -> web.Application:
        """The application with its routes."""
        app = web.Application(middlewares=[_only_this_machine])
        app.add_routes(
            [
                web.get("/", self.list_runs),
                web.get("/plotly.js", _plotly),
                web.get("/live.js", _live_script),
                web.get("/runs/{name}/", self.page),
                web.get("/runs/{name}/live", self.live),
                web.get("/runs/{name}/live.json", self.live_data),
            ]
        )
        app.on_cleanup.append(self._end)
        return app

    async def list_runs(self, request: web.Request) -> web.Response:
        """The list of runs, filtered by the words of ``q``."""
        words = request.query.get("q", "").lower().split()
        runs = await asyncio.to_thread(self._listing.runs)
        found = [run for run in runs if all(word in _text_of(run) for word in words)]
        return self._html("runs.html", runs=found[:SHOWN], found=len(found), total=len(runs), q=" ".join(words))

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page of a run. While it is made, a page that asks again."""
        run = self._run(request)
        if run.running:
            raise web.HTTPFound(f"/runs/{run.name}/live")
        task = self._making.get(run.name)
        if task is None:
            page = self._finished_page(run.name)
            if page is not None:
                return web.FileResponse(page, headers={"Cache-Control": "no-cache"})
            task = self._making[run.name] = asyncio.create_task(self._made(run.name))
        if not task.done():
            return self._html("making.html", run=run, problem=None)
        del self._making[run.name]
        problem = task.exception()
        if problem is None:
            return web.FileResponse(task.result(), headers={"Cache-Control": "no-cache"})
        if not isinstance(problem, HelpfulError):
            raise problem
        return self._html("making.html", run=run, problem=problem, status=500)

    async def live(self, request: web.Request) -> web.Response:
        """The page of a run in progress."""
        return self._html("live.html", run=self._run(request))

    async def live_data(self, request: web.Request) -> web.Response:
        """The points after the first ``told`` ones, the last events, and whether the run goes on."""
        run = self._run(request)
        told = request.query.get("told", "0")
        if not told.isdecimal() or len(told) > 12:
            raise web.HTTPBadRequest(text="told is a number of points\n")
        live = self._followed(run.name)
        await asyncio.to_thread(live.look, ended=not run.running)
        return web.json_response(
            {
                "state": run.state,
                "told": live.told,
                "points": live.since(int(told)),
                "events": list(live.events),
                "damaged": live.damaged,
            }
        )

    def _followed(self, name: str) -> LiveRun:
        live = self._live.pop(name, None)
        if live is None:
            manifest = self._listing.manifest(name)
            if isinstance(manifest, str):
                raise web.HTTPNotFound(text=f"{manifest}\n")
            live = LiveRun(self._listing.folder / name, manifest)
        self._live[name] = live
        while len(self._live) > LIVE_MAX:
            del self._live[next(iter(self._live))]
        return live

    def _run(self, request: web.Request) -> ListedRun:
        name = request.match_info["name"]
        if not _NAME.fullmatch(name) or not (self._listing.folder / name / MANIFEST).is_file():
            raise web.HTTPNotFound(text="there is no such run\n")
        return self._listing.run(name)

    def _finished_page(self, name: str) -> Path | None:
        """The page in the run directory, if it is newer than the run's records."""
        run = self._listing.folder / name
        page = run / "report.html"
        recorded = max(file.stat().st_mtime for each in (MANIFEST, INTERVALS_CSV) if (file := run / each).exists())
        return page if page.is_file() and page.stat().st_mtime >= recorded else None

    async def _made(self, name: str) -> Path:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._make_page, self._listing.folder / name)

    async def _end(self, _app: web.Application) -> None:
        for task in self._making.values():
            task.cancel()

    def _html(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        text = self._templates.get_template(template).render(style=Markup(style_sheet()), **values)
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return web.Response(text=text, content_type="text/html", status=status, headers=headers)


def _text_of(run: ListedRun) -> str:
    return f"{run.name} {run.workload} {run.title} {run.broker} {run.state} {run.started}".lower()


async def _plotly(_request: web.Request) -> web.Response:
    headers = {"Cache-Control": "max-age=86400"}
    return web.Response(text=plotly_script(), content_type="text/javascript", headers=headers)


async def _live_script(_request: web.Request) -> web.FileResponse:
    return web.FileResponse(_HERE / "live.js", headers={"Cache-Control": "no-cache"})


@web.middleware
async def _only_this_machine(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    name = re.sub(r":\d+$", "", request.headers.get("Host", ""))
    if name not in NAMES:
        raise web.HTTPForbidden(text="this server answers only to 127.0.0.1 and localhost\n")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise web.HTTPForbidden(text="another site asked for this page\n")
    return await handler(request)


async def serve(folder: Path, make_page: MakePage, port: int, ready: Callable[[str], None]) -> None:
    """Serve until cancelled. ``ready`` gets the address once the server listens. Raises OSError."""
    runner = web.AppRunner(ReportServer(folder, make_page).app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        await site.start()
        ready(f"http://{LOOPBACK}:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
