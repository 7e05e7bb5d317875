"""TCP between machines at virtual time: links with a latency and a bandwidth, and back-pressure.

The octets of all connections from one machine to another pass one link, one after the other, in segments: a receiver
reads the first segment of a large write while the sender still copies the rest. A connection has a window:
octets beyond it wait with the sender until the receiver has read, and a protocol is told to pause when too many wait.

Links lose nothing and do not break. Only the end of a process (:meth:`VirtualNetwork.end`) breaks its connections, as
the kernel of its machine does: what was sent before arrives, and then the other side hears of the end.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.world import VirtualWorld

WINDOW_OCTETS: Final = 2 << 20
"""Octets of a connection that the kernels of both ends hold."""
READ_OCTETS: Final = 256 << 10
"""The most octets of one read: what asyncio and uvloop ask for."""
SEGMENT_OCTETS: Final = 64 << 10
"""The largest segment that a kernel hands on at once. A receiver reads the first one while the rest is being sent."""
_HIGH_WATER: Final = 64 << 10
_SECOND_NS: Final = 1_000_000_000

Factory = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWayLink:
    """One direction between two machines."""

    latency_ns: int
    octets_per_second: int


class VirtualServer:
    """A listening port."""

    def __init__(self, network: VirtualNetwork, loop: VirtualLoop, port: int, factory: Factory) -> None:
        self.loop = loop
        self.factory = factory
        self._network = network
        self._port = port

    def close(self) -> None:
        """Stop listening; connections stay."""
        self._network.unlisten(self.loop, self._port)

    async def wait_closed(self) -> None:
        """Return at once."""


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: VirtualNetwork, loop: VirtualLoop, remote: VirtualLoop) -> None:
        super().__init__()
        self.protocol: Any = None
        self.peer: VirtualTransport
        self._network = network
        self._world = network.world
        self._loop = loop
        self._remote = remote
        self._costs = loop.process.costs
        self._closing = False
        self._lost = False
        self._out: list[bytes] = []
        self._out_octets = 0
        self._high = _HIGH_WATER
        self._is_paused = False
        self._unread_octets = 0
        self._inbox: list[memoryview] = []
        self._has_ended = False
        self._is_reset = False
        self._is_reading = True
        self._read_asked = False
        network.ends.setdefault(loop, {})[self] = None

    # What protocols call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses are names of machines; there is no socket."""
        names = {"peername": self._remote, "sockname": self._loop}
        return (names[name].process.machine.name, 0) if name in names else default

    def is_closing(self) -> bool:
        """Whether it was closed or lost."""
        return self._closing or self._lost

    def get_write_buffer_size(self) -> int:
        """Octets that wait behind the window."""
        return self._out_octets

    def pause_reading(self) -> None:
        """Leave octets in the socket for now."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Take octets again."""
        self._is_reading = True
        self._ask_to_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many waiting octets pause the protocol."""
        self._high = high if high is not None else _HIGH_WATER

    def write(self, data: Any) -> None:
        """Send octets, in the order of the calls."""
        octets = bytes(data)
        if self.is_closing() or not octets:
            return
        cost_ns = self._costs.send(octets)
        for begin in range(0, len(octets), SEGMENT_OCTETS):
            segment = octets[begin : begin + SEGMENT_OCTETS]
            self._loop.spend(cost_ns * len(segment) // len(octets))
            self._out.append(segment)
            self._out_octets += len(segment)
            self._pump()
        if self._out_octets > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send all buffers in one call."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send the waiting octets, then end."""
        if not self.is_closing():
            self._closing = True
            self._end_if_empty()

    def abort(self) -> None:
        """End at once; waiting octets are lost."""
        if not self._lost:
            self._out.clear()
            self._out_octets = 0
            self._closing = True
            self._end_if_empty()

    # Octets under way

    def _pump(self) -> None:
        room = WINDOW_OCTETS - self.peer._unread_octets
        if self._out and room > 0:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out = [data[room:]] if len(data) > room else []
            data = data[:room]
            self._out_octets -= len(data)
            self.peer._unread_octets += len(data)
            self._ship(data)

    def _ship(self, data: bytes | None) -> None:
        arrival_ns = self._network.pass_link(self._loop, self._remote, len(data) if data else 0)
        self._world.at(arrival_ns, self.peer._arrive, data)

    def _arrive(self, data: bytes | None) -> None:
        if self._lost:
            return
        if data is None:
            self._has_ended = True
        else:
            self._inbox.append(memoryview(data))
        self._ask_to_read()

    def _ask_to_read(self) -> None:
        if self._is_reading and not self._read_asked and (self._inbox or self._has_ended) and self.protocol is not None:
            self._read_asked = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_asked = False
        if self._lost or not self._is_reading:
            return
        if self._inbox:
            self._hand_over()
        elif self._is_reset:
            self._break()
        elif self._has_ended and not self._closing and not self.protocol.eof_received():
            self.close()
        self._ask_to_read()

    # The end of a process

    def cut(self) -> None:
        """The process of this end is gone, and what it had not handed to the kernel with it."""
        if not self._lost:
            self._forget()
            arrival_ns = self._network.pass_link(self._loop, self._remote, 0)
            self._world.at(arrival_ns, self.peer._reset)

    def _reset(self) -> None:
        """The process of the other end is gone. What came before is read first, by a protocol that reads."""
        if not self._lost:
            self._has_ended = self._is_reset = True
            if self._is_reading or self.protocol is None:
                self._ask_to_read()
            else:
                self._break()

    def _break(self) -> None:
        self._forget()
        reason = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._loop.call_soon(self.protocol.connection_lost, reason)

    def _forget(self) -> None:
        self._lost = True
        self._out.clear()
        self._out_octets = 0
        self._network.ends.get(self._loop, {}).pop(self, None)

    def _hand_over(self) -> None:
        protocol = self.protocol
        buffer: Any = protocol.get_buffer(-1) if isinstance(protocol, asyncio.BufferedProtocol) else None
        data = self._take(READ_OCTETS if buffer is None else min(READ_OCTETS, len(buffer)))
        self._loop.spend(self._costs.read(data))
        self._unread_octets -= len(data)
        if self.peer._out or self.peer._closing:
            self._world.at(self._network.notice_ns(self._loop, self._remote), self.peer._window_opened)
        if self._closing:
            return
        if buffer is None:
            protocol.data_received(data)
        else:
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))

    def _take(self, limit: int) -> bytes:
        """The octets that came, at most ``limit``."""
        inbox, taken = self._inbox, []
        while inbox and limit:
            part = inbox[0][:limit]
            taken.append(part)
            limit -= len(part)
            if len(part) == len(inbox[0]):
                del inbox[0]
            else:
                inbox[0] = inbox[0][len(part) :]
        return b"".join(taken)

    def _window_opened(self) -> None:
        """The other end has read. The kernel sends what waited, and the protocol hears of it if it was paused."""
        if self._lost:
            return
        self._pump()
        if self._is_paused and self._out_octets <= self._high // 4:
            self._is_paused = False
            self._loop.call_soon(self._resume_writer)
        self._end_if_empty()

    def _resume_writer(self) -> None:
        if not self._lost:
            self.protocol.resume_writing()

    def _end_if_empty(self) -> None:
        if self._closing and not self._out and not self._lost:
            self._forget()
            self._ship(None)
            self._loop.call_soon(self.protocol.connection_lost, None)


class VirtualNetwork:
    """The ports and connections of all machines."""

    def __init__(self, world: VirtualWorld, within: OneWayLink, between: OneWayLink) -> None:
        """``within`` is the link of a machine to itself, ``between`` that of any machine to any other."""
        self.world = world
        self._within = within
        self._between = between
        self._free_ns: dict[tuple[str, str], int] = {}
        self._servers: dict[tuple[str, int], VirtualServer] = {}
        self.ends: dict[VirtualLoop, dict[VirtualTransport, None]] = {}
        """The open ends of connections, by process."""

    def link(self, source: VirtualLoop, target: VirtualLoop) -> OneWayLink:
        """The link that connects two processes."""
        return self._within if source.process.machine is target.process.machine else self._between

    def pass_link(self, source: VirtualLoop, target: VirtualLoop, octets: int) -> int:
        """Send octets; returns when the last octet arrives."""
        link = self.link(source, target)
        way = (source.process.machine.name, target.process.machine.name)
        begin_ns = max(self.world.clock(), self._free_ns.get(way, 0))
        end_ns = self._free_ns[way] = begin_ns + octets * _SECOND_NS // link.octets_per_second
        return end_ns + link.latency_ns

    def notice_ns(self, source: VirtualLoop, target: VirtualLoop) -> int:
        """When a packet without octets arrives that is sent now."""
        return self.world.clock() + self.link(source, target).latency_ns

    def listen(self, loop: VirtualLoop, port: int, factory: Factory) -> VirtualServer:
        """Serve a port of the loop's machine. A machine has one process for each port."""
        server = self._servers[loop.process.machine.name, port] = VirtualServer(self, loop, port, factory)
        return server

    def unlisten(self, loop: VirtualLoop, port: int) -> None:
        """Stop serving a port."""
        self._servers.pop((loop.process.machine.name, port), None)

    def end(self, loop: VirtualLoop) -> None:
        """The process of this loop is gone: nobody listens on its ports, and its connections break."""
        for place in [place for place, server in self._servers.items() if server.loop is loop]:
            del self._servers[place]
        for transport in list(self.ends.pop(loop, {})):
            transport.cut()

    async def dial(
        self, loop: VirtualLoop, host: str, port: int, factory: Factory
    ) -> tuple[VirtualTransport, asyncio.BaseProtocol]:
        """Connect. Raises ConnectionRefusedError if nobody listens."""
        server = self._servers.get((host, port))
        way_s = (self._between if server is None else self.link(loop, server.loop)).latency_ns / _SECOND_NS
        await asyncio.sleep(way_s)
        if server is None or self._servers.get((host, port)) is not server:
            await asyncio.sleep(way_s)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        here, there = VirtualTransport(self, loop, server.loop), VirtualTransport(self, server.loop, loop)
        here.peer, there.peer = there, here
        self.world.at(self.world.clock(), server.loop.call_soon, _accept, there, server)
        await asyncio.sleep(way_s)
        here.protocol = factory()
        here.protocol.connection_made(here)
        here._ask_to_read()
        return here, here.protocol


def _accept(transport: VirtualTransport, server: VirtualServer) -> None:
    transport.protocol = server.factory()
    transport.protocol.connection_made(transport)
    transport._ask_to_read()
