"""TCP between hosts, as bad as TCP may be.

A connection keeps the order of its octets and loses none as long as it lives; TCP promises nothing more. Here the
octets are cut into reads at any place. They may be slow, or held up while a direction between two hosts is blocked
(then everything comes at once). A connection may break: octets under way are lost, and the two ends learn of it at
different times, sometimes seconds apart. A host that loses power says nothing; its peers learn of it when the host is
back and gets octets of connections that it does not know. A dialled connection may be made on one side only, or with
another host than the intended host, as when addresses are mixed up.

Back-pressure is real: octets beyond the window wait with the sender, and the sender is told to pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from reference_broker.sim.loop import Scheduler, SimLoop

WINDOWS: Final = (8 * 1024, 256 * 1024)
"""Octets that may be under way on a connection: few, as with a slow kernel, or the usual number."""
_HIGH_WATER: Final = 64 * 1024
_SPLIT: Final = 0.05
_SYN_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Times between the tries of a kernel to connect; whoever dials hears nothing before the last one."""
_LATE_S: Final = 3.0

Factory = Callable[[], asyncio.BaseProtocol]


@dataclass(slots=True)
class Weather:
    """The state of the network, in seconds and in octets per second."""

    latency_s: float = 0.0002
    jitter_s: float = 0.0005
    bandwidth: float = 1e8


class SimServer:
    """A listening port."""

    def __init__(self, network: Network, loop: SimLoop, port: int, factory: Factory) -> None:
        self.network = network
        self.loop = loop
        self.port = port
        self.factory = factory

    def close(self) -> None:
        """Stop listening; connections stay."""
        self.network.unlisten(self)

    async def wait_closed(self) -> None:
        """Return at once."""


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, loop: SimLoop, protocol: Any, remote: str) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.protocol = protocol
        self.local = loop.host
        self.remote = remote
        self.peer: SimTransport | None = None
        self.lost = False
        self.broken = False
        self._closing = False
        self._out: list[bytes] = []
        self._out_size = 0
        self._high = _HIGH_WATER
        self._paused_writer = False
        self._in_flight = 0
        self._last_arrival = 0.0
        self._parked: list[bytes | None] = []
        self._inbox: list[bytes] = []
        self._ended = False
        self._reading = True
        self._read_asked = False

    # What protocols call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses are names of hosts."""
        return {"peername": (self.remote, 0), "sockname": (self.local, 0)}.get(name, default)

    def is_closing(self) -> bool:
        """Whether it was closed or lost."""
        return self._closing or self.lost

    def pause_reading(self) -> None:
        """Leave octets in the socket for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take octets again."""
        self._reading = True
        self._ask_to_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many waiting octets pause the protocol."""
        self._high = high if high is not None else _HIGH_WATER

    def get_write_buffer_size(self) -> int:
        """Octets that wait for the network."""
        return self._out_size

    def write(self, data: Any) -> None:
        """Send octets, in the order of the calls."""
        if not self.is_closing():
            self._out.append(bytes(data))
            self._out_size += len(data)
            self._pump()
            if self._out_size > self._high and not self._paused_writer:
                self._paused_writer = True
                self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send all buffers."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send the waiting octets, then end."""
        if not self.is_closing():
            self._closing = True
            self._end_if_empty()

    def abort(self) -> None:
        """End at once; waiting octets are lost."""
        if not self.lost:
            self._closing = True
            self._out.clear()
            self._out_size = 0
            self.network.reset(self.peer, self.network.delay(self.local, self.remote))
            self.loop.call_soon(self.lose, None)

    # Octets under way

    def _pump(self) -> None:
        window = self.network.window
        if self._out and self._in_flight < window and not self.lost:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            if len(data) > window:
                self._out.append(data[window:])
                self._out_size = len(data) - window
                data = data[:window]
            self._in_flight += len(data)
            self._ship(data)

    def _ship(self, data: bytes | None) -> None:
        scheduler, network = self.network.scheduler, self.network
        size = len(data) if data else 0
        arrival = scheduler.now + network.delay(self.local, self.remote) + size / network.weather.bandwidth
        self._last_arrival = arrival = max(arrival, self._last_arrival)
        if self.peer is not None:
            scheduler.at(arrival, self.peer.arrive, data)

    def arrive(self, data: bytes | None) -> None:
        """Octets, or the end (None), come in from the network."""
        if self.lost or self.broken or self.loop.dead:
            return
        if self._parked or (self.remote, self.local) in self.network.blocked:
            self._parked.append(data)
            return
        self.network.scheduler.trace.note(
            self.network.scheduler.now, self.local, "arrive", len(data) if data is not None else "end"
        )
        self._take(data)

    def unpark(self) -> None:
        """The direction is free again: everything that was held up comes at once."""
        if not self._parked or (self.remote, self.local) in self.network.blocked:
            return
        parked, self._parked = self._parked, []
        for data in parked:
            self.arrive(data)

    def _take(self, data: bytes | None) -> None:
        if data is None:
            self._ended = True
        else:
            self._inbox.append(data)
        self._ask_to_read()

    def _ask_to_read(self) -> None:
        if self._reading and not self._read_asked and (self._inbox or self._ended):
            self._read_asked = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_asked = False
        if self.lost or not self._reading:
            return
        if not self._inbox:
            if self._ended and not self._closing and not self.protocol.eof_received():
                self.close()
            return
        data, chance = b"".join(self._inbox), self.network.scheduler.chance
        self._inbox.clear()
        if len(data) > 1 and chance.random() < _SPLIT:
            cut = chance.randrange(1, len(data))
            self._inbox.append(data[cut:])
            data = data[:cut]
        if self.peer is not None:
            self.peer.acknowledged(len(data))
        if not self._closing:
            self.protocol.data_received(data)
        self._ask_to_read()

    def acknowledged(self, size: int) -> None:
        """The other end has read ``size`` octets."""
        self._in_flight -= size
        if self.lost or self.loop.dead:
            return
        self._pump()
        if self._paused_writer and self._out_size <= self._high // 4:
            self.loop.call_soon(self._resume_writer)
        self._end_if_empty()

    def _resume_writer(self) -> None:
        if self._paused_writer and not self.lost:
            self._paused_writer = False
            self.protocol.resume_writing()

    def _end_if_empty(self) -> None:
        if self._closing and not self._out and not self.lost:
            self._ship(None)
            self.loop.call_soon(self.lose, None)

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol, once, that the connection is gone."""
        if not self.lost:
            self.lost = True
            self.network.transports.pop(self, None)
            self.protocol.connection_lost(error)


class Network:
    """The ports and connections of all hosts."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.weather = Weather()
        self.window = WINDOWS[-1]
        self.blocked: set[tuple[str, str]] = set()
        """(from, to): octets in this direction are held up."""
        self.crossed: dict[tuple[str, str], str] = {}
        """(from, to): a host that dials ``to`` gets this host instead."""
        self.transports: dict[SimTransport, None] = {}
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._silent: dict[str, list[SimTransport]] = {}

    def delay(self, source: str, target: str) -> float:
        """The time of one packet in one direction."""
        chance = self.scheduler.chance.random()
        return 20e-6 * chance if source == target else self.weather.latency_s + self.weather.jitter_s * chance**4

    # Ports

    def listen(self, loop: SimLoop, port: int, factory: Factory) -> SimServer:
        """Serve a port."""
        server = self._servers[loop.host, port] = SimServer(self, loop, port, factory)
        return server

    def unlisten(self, server: SimServer) -> None:
        """Stop listening."""
        if self._servers.get((server.loop.host, server.port)) is server:
            del self._servers[server.loop.host, server.port]

    async def dial(self, loop: SimLoop, host: str, port: int, factory: Factory) -> tuple[SimTransport, Any]:
        """Connect. Raises ConnectionRefusedError, and TimeoutError if a direction is blocked."""
        host = self.crossed.get((loop.host, host), host)
        await self._travel(loop, host)
        server = self._servers.get((host, port))
        if server is None or server.loop.dead:
            raise ConnectionRefusedError(f"{host}:{port}")
        there = SimTransport(self, server.loop, None, loop.host)
        here = SimTransport(self, loop, None, host)
        here.peer, there.peer = there, here
        self.transports[there] = None
        server.loop.call_soon(_accept, there, server)
        try:
            await self._travel(loop, host, back=True)
        except (OSError, asyncio.CancelledError):
            self.reset(there, self.scheduler.chance.random() * _LATE_S)  # the connection is made on one side only
            raise
        if there.lost or server.loop.dead:
            raise ConnectionResetError(f"{host}:{port}")
        here.protocol = factory()
        self.transports[here] = None
        here.protocol.connection_made(here)
        return here, here.protocol

    async def _travel(self, loop: SimLoop, host: str, *, back: bool = False) -> None:
        """Wait while a packet of the TCP handshake travels."""
        source, target = (host, loop.host) if back else (loop.host, host)
        await asyncio.sleep(self.delay(source, target))
        for pause in _SYN_PAUSES_S:
            if (source, target) not in self.blocked:
                return
            await asyncio.sleep(pause)
        raise TimeoutError(f"{host} does not answer")

    # Trouble

    def reset(self, transport: SimTransport | None, delay: float) -> None:
        """Have one end learn, after a while, that its connection is broken."""
        if transport is not None and not transport.lost:
            self.scheduler.after(delay, self._reset, transport)

    def _reset(self, transport: SimTransport) -> None:
        if transport.lost or transport.loop.dead or transport.protocol is None:
            return
        if (transport.remote, transport.local) in self.blocked:
            self.scheduler.after(0.1, self._reset, transport)
            return
        transport.broken = True
        transport.loop.call_soon(transport.lose, ConnectionResetError("reset by peer"))

    def break_connection(self, transport: SimTransport) -> None:
        """Break a connection. Octets under way are lost, and each end learns of it in its own time."""
        chance = self.scheduler.chance
        for end in (transport, transport.peer):
            if end is not None:
                end.broken = True
                self.reset(end, chance.random() ** 3 * _LATE_S)

    def block(self, source: str, target: str) -> None:
        """Hold up everything from one host to another."""
        self.blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Let everything from one host to another through again."""
        self.blocked.discard((source, target))
        for transport in list(self.transports):
            if (transport.remote, transport.local) == (source, target):
                self.scheduler.after(self.delay(source, target), transport.unpark)

    def host_down(self, host: str, *, silent: bool) -> None:
        """The process of a host has ended. The kernel tells its peers, but after a loss of power nobody does for
        now."""
        orphans = []
        for transport in list(self.transports):
            if transport.local == host:
                transport.lost = True
                del self.transports[transport]
                if transport.peer is not None:
                    orphans.append(transport.peer)
        for key in [key for key in self._servers if key[0] == host]:
            del self._servers[key]
        if silent:
            self._silent.setdefault(host, []).extend(orphans)
        else:
            for orphan in orphans:
                self.reset(orphan, self.delay(host, orphan.local))

    def host_up(self, host: str) -> None:
        """A host is back. It resets connections that it does not know."""
        for orphan in self._silent.pop(host, []):
            self.reset(orphan, self.scheduler.chance.random() * 0.5)


def _accept(transport: SimTransport, server: SimServer) -> None:
    transport.protocol = server.factory()
    transport.protocol.connection_made(transport)
