"""The port for metrics and management over HTTP: its limits of clients and times, and its rules for browsers.

Everybody who reaches the port may connect, so a connection must cost little, and not for long. A client that stands
still for ``http_idle_ms`` is dropped, and earlier if the port is full: a new client gets the place of the oldest client
for which no answer is being made. So nobody keeps operators out with requests that stop. aiohttp drops clients that
send no request, or half the headers. The reader of a request's body drops clients whose body does not come. A
:class:`Visit` drops clients that do not read their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from reference_broker.node.links.open_files import Door, why_no_visitor
from reference_broker.node.links.strangers import Complaints
from reference_broker.node.start_problems import listening

if TYPE_CHECKING:
    from reference_broker.node.shard import Shard

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POLICY: Final = "Content-Security-Policy"
_HEADERS: Final = {
    POLICY: "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer, for browsers: run nothing, show the answer in no frame, and do not guess its type."""
_UNREAD_MEMORY_PART: Final = 8
"""The divisor of the node's memory limit that gives the octets which HTTP clients may leave unread: an answer may have
megabytes, and a client need not read it."""
_LINGER_S: Final = 10.0
"""Time for the rest of an unwanted body to arrive, so that its client reads the answer."""
_STOP_S: Final = 1.0
"""Time that a stopping node gives to answers under way."""
_COMPLAINT_MAX: Final = 300
"""The most characters of a log line about a stranger's octets."""


class Visit(web.RequestHandler):
    """One connection, as aiohttp serves it, with a limit of the time until an answer is read."""

    def __init__(self, port: HttpPort, server: web.Server, idle_s: float) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=idle_s,
            lingering_time=min(_LINGER_S, idle_s),
            access_log=None,  # type: ignore[arg-type]  # aiohttp's way to have none
        )
        self._port = port
        self._connection: asyncio.Transport | None = None
        """aiohttp forgets the transport when it begins to close it, and that ends only when all is read."""
        self._unread = 0
        """Octets that waited at the last look."""
        self.answering = 0
        """The requests to which an answer is being made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._connection = cast(asyncio.Transport, transport)  # uvloop's transports are not its subclasses
        self._port.visits[self] = None
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        self._port.visits.pop(self, None)
        super().connection_lost(exc)

    @property
    def unread(self) -> int:
        """Octets that wait for the client."""
        return self._connection.get_write_buffer_size() if self._connection is not None else 0

    @property
    def waits(self) -> bool:
        """Whether the client has to say something next."""
        return not self.answering and not self.unread

    def give_way(self) -> None:
        """Drop the client: its place is wanted."""
        self._port.visits.pop(self, None)
        if self._connection is not None:
            self._connection.abort()

    def look(self) -> None:
        """Drop the client if it has read nothing since the last look, although there was something to read."""
        before, self._unread = self._unread, self.unread
        if self._connection is not None and 0 < before <= self._unread:
            self._connection.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP. The log has a line now and then, and no traceback for each."""
        if status == 500:
            answer = super().handle_error(request, status, exc, message)
        else:
            self._port.complain(f"a client of the metrics port sent no HTTP: {exc!r}"[:_COMPLAINT_MAX])
            answer = web.Response(status=status, text=message)
            answer.force_close()
        answer.headers.update(_HEADERS)
        return answer


class HttpPort:
    """The connections to the port."""

    def __init__(self, shard: Shard, runner: web.AppRunner) -> None:
        self.visits: dict[Visit, None] = {}
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._idle_s = shard.limits.http_idle_ms / 1000
        self._complaints = Complaints(self._loop.time)

        def why_not() -> str:
            return why_no_visitor(len(self.visits), shard.limits, lacks_memory=shard.alarms.is_critical)

        self._why_not = why_not
        self._door = Door("a client of the metrics port", why_not, self._complaints)
        self._unread_max = shard.limits.memory_bytes_max // _UNREAD_MEMORY_PART
        self._listener: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        await self._runner.setup()
        self._listener = await self._loop.create_server(self._accepted, host, port)
        self._look()

    async def close(self) -> None:
        """Listen no more, and drop all connections."""
        if self._looking is not None:
            self._looking.cancel()
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Make an answer, unless clients leave their earlier answers unread."""
        if sum(visit.unread for visit in self.visits) > self._unread_max:
            raise web.HTTPServiceUnavailable(reason="too many answers wait for clients that do not read them")
        visit = cast(Visit, request.protocol)
        visit.answering += 1
        try:
            return await handler(request)
        finally:
            visit.answering -= 1

    def complain(self, text: str) -> None:
        """Log a client's fault, once in a while."""
        self._complaints.say("HTTP", text)

    def _accepted(self) -> asyncio.Protocol:
        if (why := self._why_not()) and (
            eldest := next((each for each in self.visits if each.waits), None)
        ) is not None:
            text = f"a client of the metrics port is turned away, because it has waited longest: {why}"
            self._complaints.say("HTTP places", text)
            eldest.give_way()
        if (turned_away := self._door.turns_away()) is not None:
            return turned_away
        assert self._runner.server is not None
        return Visit(self, self._runner.server, self._idle_s)

    def _look(self) -> None:
        for visit in list(self.visits):
            visit.look()
        self._looking = self._loop.call_later(self._idle_s, self._look)


async def serve(
    shard: Shard, metrics: CollectorRegistry, add_more: Callable[[web.Application], None], body_max: int
) -> HttpPort:
    """Answer GET /metrics on the metrics port of this node, and what ``add_more`` adds, with bodies of ``body_max``
    octets at most. Raises StartError if the port is taken."""

    async def scrape(_request: web.Request) -> web.Response:
        body = generate_latest(metrics)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application(client_max_size=body_max)
    port = HttpPort(shard, web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_S))
    app.on_response_prepare.append(_add_headers)
    app.router.add_get("/metrics", scrape)
    add_more(app)
    app.middlewares.append(port.answer)
    with listening(shard.config.me, "metrics_port") as (host, number):
        await port.open(host, number)
    return port


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
