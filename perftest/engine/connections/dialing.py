"""Opening the connections of a plan: options, TLS, and waiting for servers that are still starting."""

from __future__ import annotations

import asyncio
import functools
import ssl
from typing import Final

from perftest.amqp.errors import AmqpError
from perftest.amqp.listener import ConnectionListener
from perftest.amqp.options import ConnectionOptions, tls_context
from perftest.amqp.transport import Connection
from perftest.engine.context import Context
from perftest.spec.behaviour import Tls

ASK_AGAIN_S: Final = 0.5
"""Time between two tries to reach a server that is still starting."""


class StartupTimeoutError(AmqpError):
    """Too few of the servers answered in the time allowed."""


async def dial(
    context: Context, index: int, *, name: str, watcher: ConnectionListener | None = None, timeout_s: float = 10.0
) -> Connection:
    """Open a connection to URI ``index`` of the context, as its plan says. Raises :class:`AmqpError`."""
    uri, connecting = context.uris[index], context.plan.connecting
    names = connecting.tls.server_names
    options = ConnectionOptions(
        heartbeat_s=uri.heartbeat_s if connecting.heartbeat_s is None else connecting.heartbeat_s,
        frame_max=connecting.frame_max,
        external=connecting.external,
        send_buffer=connecting.send_buffer,
        receive_buffer=connecting.receive_buffer,
        no_delay=connecting.no_delay,
        tls=_tls(connecting.tls) if uri.tls else None,
        server_name=names[index % len(names)] if names else "",
    )
    return await Connection.open(
        uri,
        name=f"perftest {name}",
        clock=context.clock,
        watcher=watcher,
        options=options,
        timeout_s=uri.timeout_s or timeout_s,
    )


@functools.lru_cache(maxsize=4)
def _tls(tls: Tls) -> ssl.SSLContext:
    return tls_context(
        ca_file=tls.ca_file,
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        system_authorities=tls.system_authorities,
    )


def warn_of_unchecked_certificates(context: Context) -> None:
    """Write an event if TLS encrypts connections but does not check who the broker is."""
    tls = context.plan.connecting.tls
    if any(uri.tls for uri in context.uris) and not tls.ca_file and not tls.system_authorities:
        text = "TLS: certificates of the broker are not checked; name their authorities (--tls-ca FILE, or -udsc)"
        context.emit("warning", text)


async def await_servers(context: Context) -> None:
    """Wait until as many URIs accept a login as the plan wants, for at most as long as the plan says.

    Each change is an event (``waiting``). Raises :class:`StartupTimeoutError`, or at once an error that cannot pass by
    itself.
    """
    connecting, count = context.plan.connecting, len(context.uris)
    if connecting.startup_timeout_s <= 0:
        return
    wanted = min(connecting.servers_up or count, count)
    waiting = _Waiting(context, wanted)
    probes = [asyncio.ensure_future(waiting.probe(index)) for index in range(count)]
    try:
        async with asyncio.timeout(connecting.startup_timeout_s):
            await waiting.enough
    except TimeoutError:
        raise StartupTimeoutError(waiting.complaint()) from None
    finally:
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)


class _Waiting:
    """Which servers have answered so far, and why the others have not."""

    def __init__(self, context: Context, wanted: int) -> None:
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context = context
        self._wanted = wanted
        self._up = 0
        self._down: dict[int, AmqpError] = {}

    async def probe(self, index: int) -> None:
        """Try to connect until the server answers."""
        while True:
            try:
                connection = await dial(self._context, index, name="start-up", timeout_s=5.0)
            except AmqpError as error:
                self._on_failure(index, error)
            else:
                self._down.pop(index, None)
                self._on_answer(index)
                await connection.close(1.0)
                return
            await asyncio.sleep(ASK_AGAIN_S)

    def complaint(self) -> str:
        """The number of missing servers, and the reasons."""
        seconds = self._context.plan.connecting.startup_timeout_s
        reasons = "; ".join(f"{self._context.uris[index].redacted}: {error}" for index, error in self._down.items())
        return f"{self._up} of {self._wanted} servers answered within {seconds:g} s ({reasons or 'no answer'})"

    def _on_failure(self, index: int, error: AmqpError) -> None:
        if self.enough.done():
            return
        if not error.temporary:
            error.add_note(self._context.uris[index].redacted)
            self.enough.set_exception(error)
        elif index not in self._down:
            self._down[index] = error
            self._context.emit("waiting", f"waiting for {self._context.uris[index].redacted}: {error}")

    def _on_answer(self, index: int) -> None:
        self._up += 1
        text = f"{self._context.uris[index].redacted} answers: {self._up} of {self._wanted}"
        self._context.emit("waiting", text)
        if self._up >= self._wanted and not self.enough.done():
            self.enough.set_result(None)
