"""The web server of ``perftest report --serve``: for the browsers of this machine only.

It listens on the loopback interface, answers only requests that name the loopback interface (so no page of the internet
can reach it under another name), refuses requests that another site makes a browser send, and has no way to change
anything but to make a page.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import web
from markupsafe import Markup

from perftest.errors import HelpfulError
from perftest.results.schema import INTERVALS_CSV, MANIFEST
from reports.errors import UnlikeRunsError
from reports.html.render import environment, figures_island, plotly_script, report_script, style_sheet
from reports.pages.model import Column, Kind
from reports.pages.tables import latency_column
from reports.server.filters import Filters, filters_of
from reports.server.list_page import ListPage, list_page
from reports.server.listed_run import ListedRun
from reports.server.live import LiveRun
from reports.server.making import PagesInMaking
from reports.server.picks import PickError, Picks, picks_of
from reports.server.run_tags import RunTags
from reports.server.runs_folder import RunsFolder
from reports.store.locations import StoreLocation

MakePage = Callable[[Path], Path]
"""Makes the page of a run directory and returns its path; it may take a while. Raises HelpfulError."""
MakeComparison = Callable[[Path, Path, frozenset[str], Path], Path]
"""Makes the page of a comparison and returns its path: of a baseline and a candidate, although they differ in these
facets, in a directory of its own. It may take a while. Raises HelpfulError, and UnlikeRunsError if the runs differ in
other facets."""

LOOPBACK: Final = "127.0.0.1"
NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
"""Names under which a browser of this machine may ask."""
LIVE_MAX: Final = 16
"""Runs in progress that are followed at once."""
PATIENCE_S: Final = 0.5
"""Longest wait of the list for runs that have not been read yet. The list then has the runs read so far."""
COLUMNS: Final = {
    "latency": latency_column("p99_ns", "p99"),
    "rate": Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
}
"""The columns of the list with figures."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HERE: Final = Path(__file__).parent
_SCRIPTS: Final = ("live.js", "runs.js")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'self'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """All that a server needs: the directory of the runs, the store with their tags, and the makers of pages.
    ``patience_s`` as :data:`PATIENCE_S`; None: until the end."""

    folder: Path
    store: StoreLocation
    make_page: MakePage
    make_comparison: MakeComparison
    patience_s: float | None = PATIENCE_S


class ReportServer:
    """The handlers."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._runs = RunsFolder(served.folder)
        self._tags = RunTags(served.store)
        self._looking: asyncio.Task[None] | None = None
        self._making = PagesInMaking()
        self._compared: dict[Picks, Path] = {}
        self._live: dict[str, LiveRun] = {}
        self._templates = environment(_HERE)
        self._comparisons = TemporaryDirectory(prefix="perftest-comparisons-")

    def app(self) -> web.Application:
        """The application with its routes."""
        app = web.Application(middlewares=[_only_this_machine, self._in_sentences])
        app.add_routes(
            [
                web.get("/", self.list_runs),
                web.get("/compare", self.compare),
                web.get("/plotly.js", partial(_script, text=plotly_script(), kept="max-age=86400")),
                web.get("/report.js", partial(_script, text=report_script())),
                *(web.get(f"/{name}", partial(_script, text=_own(name))) for name in _SCRIPTS),
                web.get("/runs/{name}/", self.page),
                web.get("/runs/{name}/live", self.live),
                web.get("/runs/{name}/live.json", self.live_data),
            ]
        )
        app.on_startup.append(self._begin)
        app.on_cleanup.append(self._end)
        return app

    async def list_runs(self, request: web.Request) -> web.Response:
        """The list of runs that the filters of the address want."""
        await asyncio.wait({self._look()}, timeout=self._served.patience_s)
        filters, problems = filters_of(request.query.items())
        status = 400 if problems else 200
        problems += [each.problem for each in (self._runs, self._tags) if each.problem]
        page = await asyncio.to_thread(self._list_page, filters, problems)
        island = figures_island(page.daily.charts)
        return self._html("runs.html", status=status, page=page, island=island, columns=COLUMNS)

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page of a run. While it is made, a page that asks again."""
        run = self._run(request.match_info["name"])
        if run.running:
            raise web.HTTPFound(f"/runs/{run.name}/live")
        page = None if self._making.knows(run.name) else self._finished_page(run.name)
        if page is None:
            path = self._served.folder / run.name
            page = self._making.ask(run.name, lambda: self._served.make_page(path))
        if page is None:
            return self._html("making.html", title=run.title or run.name, subtitle=run.name)
        return web.FileResponse(page, headers={"Cache-Control": "no-cache"})

    async def compare(self, request: web.Request) -> web.StreamResponse:
        """The page that compares two runs, the older one as the baseline. While it is made, a page that asks again."""
        picks = picks_of(request.query.items(), self._run)
        page = self._compared.get(picks)
        if page is None:
            out = Path(self._comparisons.name) / f"{picks.base}--{picks.candidate}"
            base, candidate = (self._served.folder / name for name in (picks.base, picks.candidate))
            try:
                make = partial(self._served.make_comparison, base, candidate, picks.allow, out)
                page = self._making.ask(picks, make)
            except UnlikeRunsError as error:
                anyway = picks.allowing(error.facets).address
                return self._problem(request, error, 409, differences=error.differences, anyway=anyway)
        if page is None:
            return self._html("making.html", title="Comparison", subtitle=f"{picks.base} and {picks.candidate}")
        self._compared[picks] = page
        return web.FileResponse(page, headers={"Cache-Control": "no-cache"})

    async def live(self, request: web.Request) -> web.Response:
        """The page of a run in progress."""
        return self._html("live.html", run=self._run(request.match_info["name"]))

    async def live_data(self, request: web.Request) -> web.Response:
        """The points after the first ``told`` ones, the last events, and whether the run goes on."""
        run = self._run(request.match_info["name"])
        told = request.query.get("told", "0")
        if not re.fullmatch("[0-9]{1,12}", told):
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

    def _list_page(self, filters: Filters, problems: list[str]) -> ListPage:
        runs = self._runs.runs(self._tags.all())
        return list_page(runs, filters, unread=self._runs.unread, problems=problems)

    def _look(self) -> asyncio.Task[None]:
        """The look at the folder and the tags that goes on, or else a new one. One look serves all who ask."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._looked())
        return self._looking

    async def _looked(self) -> None:
        await asyncio.to_thread(self._runs.look)
        await asyncio.to_thread(self._tags.look)

    def _followed(self, name: str) -> LiveRun:
        live = self._live.pop(name, None)
        if live is None:
            live = LiveRun(self._served.folder / name, self._runs.manifest(name))
        self._live[name] = live
        while len(self._live) > LIVE_MAX:
            del self._live[next(iter(self._live))]
        return live

    def _run(self, name: str) -> ListedRun:
        if not _NAME.fullmatch(name):
            raise FileNotFoundError(name)
        return self._runs.run(name)

    def _finished_page(self, name: str) -> Path | None:
        """The page in the run directory, if it is newer than the run's records."""
        run = self._served.folder / name
        page = run / "report.html"
        recorded = max(file.stat().st_mtime for each in (MANIFEST, INTERVALS_CSV) if (file := run / each).exists())
        return page if page.is_file() and page.stat().st_mtime >= recorded else None

    async def _begin(self, _app: web.Application) -> None:
        self._look()

    async def _end(self, _app: web.Application) -> None:
        self._making.end()
        self._runs.stop()
        if self._looking is not None:
            await asyncio.wait({self._looking})
        self._comparisons.cleanup()

    @web.middleware
    async def _in_sentences(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """What cannot be shown, as a page that says so."""
        name = request.match_info.get("name", "")
        try:
            return await handler(request)
        except (FileNotFoundError, NotADirectoryError):
            gone = HelpfulError("There is no such run here any more", name, "See which runs there are.")
            return self._problem(request, gone, 404)
        except OSError as error:
            what = f"The run cannot be read: {error.strerror or error}"
            unreadable = HelpfulError(what, str(error.filename or name), "Make the file readable.")
            return self._problem(request, unreadable, 500)
        except PickError as error:
            return self._problem(request, error, 400)
        except HelpfulError as error:
            return self._problem(request, error, 500, again=request.path_qs)

    def _problem(self, request: web.Request, error: HelpfulError, status: int, **values: Any) -> web.Response:
        if request.path.endswith(".json"):
            return web.Response(text=f"{error.what}\n", status=status)
        known = {"differences": (), "anyway": "", "again": ""} | values
        return self._html("problem.html", status=status, problem=error, **known)

    def _html(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        style = Markup(style_sheet() + _own("served.css"))
        text = self._templates.get_template(template).render(style=style, **values)
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return web.Response(text=text, content_type="text/html", status=status, headers=headers)


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


async def _script(_request: web.Request, *, text: str, kept: str = "no-cache") -> web.Response:
    return web.Response(text=text, content_type="text/javascript", headers={"Cache-Control": kept})


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


async def serve(served: Served, port: int, ready: Callable[[str], None]) -> None:
    """Serve until cancelled. ``ready`` gets the address once the server listens. Raises OSError."""
    runner = web.AppRunner(ReportServer(served).app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        await site.start()
        ready(f"http://{LOOPBACK}:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
