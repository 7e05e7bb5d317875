"""A node as a process: start, serve, stop.

Order of start: the node recovers its log, raises and syncs its boot id, and joins its peers. It opens the AMQP port
only when the metadata group has a leader and the node has applied everything that was committed by then. So a client
that can connect can declare, and finds every queue that was declared before.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib
import logging
import secrets
import signal
import ssl
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.log.opening import IDENTITY
from reference_broker.node.clients.authorization import ClientGate
from reference_broker.node.clients.client_connection import TICK_S, ClientConnection
from reference_broker.node.config import ConfigError, NodeConfig
from reference_broker.node.endpoints import control
from reference_broker.node.links import open_files
from reference_broker.node.links.strangers import Complaints, Strangers
from reference_broker.node.links.tls import TlsDoor, clients_context
from reference_broker.node.shard import Shard
from reference_broker.node.start_problems import StartError, listening
from reference_broker.storage.errors import MORE_FILES, START_BLANK, lacks_files
from reference_broker.storage.files import RealFiles, write_whole

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from reference_broker.node.endpoints.http_port import HttpPort

log = logging.getLogger(__name__)

_START_S: Final = 60.0
"""Time after which the garbage collector works again, although the start still waits for other nodes."""
_SWITCH_INTERVAL_S: Final = 0.0005
_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_KEEP_BELOW_BYTES: Final = 64 * 1024 * 1024
_BACKLOG: Final = 1024
IN_TLS_MAX: Final = 1024
"""The most clients in a TLS handshake at once. Each takes 0.3 MB of the event loop's buffers. Beyond that the oldest is
dropped, so silent clients keep no other out."""
_MANAGEMENT: Final = "reference_broker.management"
_BOOT_ID: Final = "incarnation"


class RunningNode:
    """One running node."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.listening = False
        self.failure: str | None = None
        self._stop = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._web: HttpPort | None = None
        open_files.raise_limit()
        gc.disable()  # while queues are made by the thousand, and nothing goes: see _collect_again
        boot_id, is_new = next_boot_id(config.data_dir, config.first_life), not (config.data_dir / IDENTITY).exists()
        if is_new:
            keep_boot_id(config.data_dir, boot_id)  # before the log marks the directory as used
        self.shard = Shard(config, boot_id, self._failed)
        if not is_new:
            self._keep_boot_id()
        complaints = Complaints(time.monotonic)
        self._complain = lambda text: complaints.say("TLS of clients", f"a client over TLS: {text}")
        self._in_tls = Strangers(min(IN_TLS_MAX, config.limits.logins_waiting_max), self._complain)
        """Clients in the TLS handshake, which no other part knows yet."""
        self._door = open_files.Door(
            "a client", lambda: open_files.why_no_client(self._crowd(), config.limits), complaints
        )

    def _crowd(self) -> open_files.ClientCrowd:
        clients, in_tls = self.shard.clients, len(self._in_tls)
        return open_files.ClientCrowd(
            len(clients.connections) + in_tls, clients.logging_in + in_tls, self.shard.alarms.is_critical
        )

    def _keep_boot_id(self) -> None:
        """Only now, because a log that is refused stays as it was."""
        try:
            keep_boot_id(self.config.data_dir, self.shard.boot_id)
        except ConfigError:
            self.shard.close()  # the log's threads must not outlive the interpreter
            raise

    async def run(self) -> None:
        """Serve until told to stop, or until the log fails."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if self.config.exit_with_stdin:
            await _watch_stdin(self._stop)
        try:
            await self.shard.start()
            self._servers.append(await control.serve(self))
        except StartError:
            self.shard.close()  # the log's threads must not outlive the interpreter
            raise
        led = asyncio.Event()
        findings, metadata = self.shard.findings, self.shard.metadata
        findings.tell()
        self.shard.when_ready(lambda: findings.name_queues(metadata.machine.queues.values()))
        self.shard.when_ready(led.set)
        self.shard.when_ready(_collect_again)
        loop.call_later(_START_S, _collect_again)
        ticking = loop.create_task(self._tick())
        watching = loop.create_task(self._watch_alarms())
        listening = loop.create_task(self._listen(led))
        keep_memory()
        # The writer thread needs the interpreter for microseconds after each sync; by default a busy loop may keep it
        # waiting for 5 ms.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        await self._stop.wait()
        ticking.cancel()
        watching.cancel()
        listening.cancel()
        await self._close()

    @functools.cached_property
    def metrics(self) -> CollectorRegistry:
        """The figures of this node, made when first asked for."""
        from reference_broker.node.endpoints import metrics

        return metrics.registry(self.shard)

    @property
    def serves_http(self) -> bool:
        """Whether the metrics port answers, if the node has one."""
        return self._web is not None or not self.config.me.metrics_port

    async def manage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request about definitions, with modules that are loaded only for such requests."""
        operator = importlib.import_module(f"{_MANAGEMENT}.operator")
        answer: dict[str, Any] = await operator.answer(self.shard, request)
        return answer

    def stop(self) -> None:
        """Have :meth:`run` return."""
        self._stop.set()

    async def _listen(self, led: asyncio.Event) -> None:
        """Open the ports for clients and figures. If that fails, the start has failed and the node stops."""
        await led.wait()
        try:
            await self._open_ports()
        except StartError as error:
            self._failed(str(error))

    async def _open_ports(self) -> None:
        me, loop = self.config.me, asyncio.get_running_loop()
        await self._serve_clients()
        if (tls := self.config.client_tls) is not None:
            await self._serve_clients(("client_tls.port", tls.port), clients_context(tls))
        self.listening = True
        if me.metrics_port:
            # Loading a web server takes longer than starting all the rest: first things first, and then in a thread.
            http = await loop.run_in_executor(
                None, importlib.import_module, "reference_broker.node.endpoints.http_port"
            )
            management = await loop.run_in_executor(None, importlib.import_module, f"{_MANAGEMENT}.server")
            self._web = await http.serve(
                self.shard, self.metrics, lambda app: management.add_to(app, self.shard), management.BODY_MAX
            )

    async def _serve_clients(self, other: tuple[str, int] | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Listen for clients on the port for AMQP, or with TLS on an ``other`` port (its key and number)."""
        accepted = partial(self._accepted, tls)
        with listening(self.config.me, "amqp_port", other) as (host, port):
            server = await asyncio.get_running_loop().create_server(accepted, host, port, backlog=_BACKLOG)
        self._servers.append(server)
        log.info("%s serves AMQP%s on %s:%d", self.config.name, " over TLS" if tls else "", host, port)

    def _accepted(self, tls: ssl.SSLContext | None) -> asyncio.Protocol:
        """The handler of the next client. An event loop would tell a protocol of its own TLS only after the handshake,
        and a client too many could not be turned away before."""
        if (turned_away := self._door.turns_away()) is not None:
            return turned_away
        if tls is None:
            return self._client()
        timeout_s = ConnectionConfig().handshake_timeout_s
        return TlsDoor(tls, timeout_s, self._client, self._in_tls, self._complain, self._door.has_room)

    def _client(self) -> ClientConnection:
        gate = ClientGate(self.shard.access)
        return ClientConnection(self.shard, self._connection_config(gate), gate)

    def _connection_config(self, gate: ClientGate) -> ConnectionConfig:
        return ConnectionConfig(
            gate=gate,
            product=self.config.product,
            cluster_name=self.config.cluster,
            tag_nonce=secrets.token_urlsafe(12),
            node_properties={"node": self.config.name},
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.shard.tick_clients()

    async def _watch_alarms(self) -> None:
        while True:
            self.shard.check_alarms()
            await asyncio.sleep(self.config.limits.alarm_check_ms / 1000)

    def _failed(self, error: str) -> None:
        """Stop the node: the log could not keep its promise, so nothing more may be confirmed, or a port is not to be
        had."""
        if self.failure is None:
            self.failure = error
            log.critical("the node stops: %s", error)
            self._stop.set()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        if self._web is not None:
            await self._web.close()
        if self.failure is None:
            for connection in list(self.shard.clients.connections):
                connection.close("node is shutting down")
            await asyncio.sleep(0)
        self.shard.close()


def _collect_again() -> None:
    """Let the garbage collector work, except on the objects made so far, which live as long as the process. To walk
    them again and again as they grew took a quarter of a start with ten thousand queues.

    The middle generation is walked often, so it is small: with the objects of twenty young generations, all alive while
    clients open thousands of channels, one walk took a quarter of a second."""
    if not gc.isenabled():
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, 1, 5_000)
        gc.enable()


def keep_memory() -> None:
    """Have the C library keep freed buffers instead of giving them back to the kernel.

    Reads, entries and deliveries are buffers of 64 KiB to 1 MiB. By default each would be mapped and unmapped, and
    touching fresh pages costs more than all parsing: measured, 20 % of the CPU per message of all three nodes.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library: slower, nothing else
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BELOW_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 4 * _KEEP_BELOW_BYTES)


def next_boot_id(data_dir: Path, first: int = 0) -> int:
    """The boot id of this start. A new directory begins with 1, or with ``first``. Raises :class:`ConfigError` for a
    directory that was used and has lost its boot id: a node that counts anew repeats the numbers of its commands."""
    path = data_dir / _BOOT_ID
    try:
        if path.exists():
            return int(path.read_text()) + 1
    except (OSError, ValueError) as error:
        fix = (
            MORE_FILES
            if lacks_files(error)
            else f"write a number there that is larger than any boot id before, or give the directory up: {START_BLANK}"
        )
        raise ConfigError(f"the boot id cannot be read: {error}", str(path), fix) from error
    if (data_dir / IDENTITY).exists():
        fix = f"put the file back, or give the directory up: {START_BLANK}"
        raise ConfigError("the file with the boot id is missing, yet the directory was used", str(path), fix)
    return max(first, 1)


def keep_boot_id(data_dir: Path, boot_id: int) -> None:
    """Write the boot id down, durably, before it is told."""
    path = data_dir / _BOOT_ID
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        write_whole(RealFiles(), str(path), b"%d\n" % boot_id)
    except OSError as error:
        fix = MORE_FILES if lacks_files(error) else "name a writable directory of this node's own"
        raise ConfigError(f"cannot use the data directory: {error}", str(path), fix) from error


async def _watch_stdin(stop: asyncio.Event) -> None:
    """Stop when standard input closes: the process that started this one is gone."""

    class Watcher(asyncio.Protocol):
        def eof_received(self) -> None:
            stop.set()

        def connection_lost(self, exc: Exception | None) -> None:
            stop.set()

    await asyncio.get_running_loop().connect_read_pipe(Watcher, sys.stdin)
