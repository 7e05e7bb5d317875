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
from dataclasses import dataclass
from typing import Final

from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.world import VirtualWorld
from reference_broker.worlds.connections import ConnectionEnd, Factory, Ports
from reference_broker.worlds.loop import EventLoop

WINDOW_OCTETS: Final = 2 << 20
"""Octets of a connection that the kernels of both ends hold."""
READ_OCTETS: Final = 256 << 10
"""The most octets of one read: what asyncio and uvloop ask for."""
SEGMENT_OCTETS: Final = 64 << 10
"""The largest segment that a kernel hands on at once. A receiver reads the first one while the rest is being sent."""
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWayLink:
    """One direction between two machines."""

    latency_ns: int
    octets_per_second: int


class VirtualWire:
    """The network at one end of a connection (:class:`reference_broker.worlds.connections.Wire`)."""

    def __init__(self, network: VirtualNetwork, end: ConnectionEnd) -> None:
        loop = end.loop
        assert isinstance(loop, VirtualLoop)
        self._network = network
        self._world = network.world
        self._end = end
        self._loop = loop
        self._costs = loop.process.costs
        self._way = (loop.host, end.remote)
        network.wires.setdefault(loop, {})[self] = None

    def write(self, data: bytes) -> None:
        """Work for the octets, segment by segment."""
        cost_ns, end = self._costs.send(data), self._end
        for begin in range(0, len(data), SEGMENT_OCTETS):
            segment = data[begin : begin + SEGMENT_OCTETS]
            self._loop.spend(cost_ns * len(segment) // len(data))
            end.push(segment)

    def room(self, unread: int) -> int:
        """What the window has left."""
        return WINDOW_OCTETS - unread

    def send(self, data: bytes | None) -> None:
        """Pass the link to the other end."""
        arrival_ns = self._network.pass_link(self._way, len(data) if data else 0)
        self._world.at(arrival_ns, self._end.peer.arrive, data)

    def read_octets(self, _waiting: int) -> int:
        """As many as a real event loop asks for."""
        return READ_OCTETS

    def was_read(self, data: bytes) -> None:
        """Work for the octets, and tell the other end if it waits for room."""
        self._loop.spend(self._costs.read(data))
        peer = self._end.peer
        if peer.has_more:
            self._world.at(self._network.notice_ns(self._way), peer.window_opened)

    def abort(self) -> None:
        """The other end hears of an end, as of any other."""
        self.send(None)

    def forget(self) -> None:
        """The connection is none of the process's any more."""
        self._end.drop()
        self._network.wires.get(self._loop, {}).pop(self, None)

    def cut(self) -> None:
        """The process of this end is gone, and what it had not handed to the kernel with it."""
        self._end.lost = True
        self.forget()
        reset = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._world.at(self._network.pass_link(self._way, 0), self._end.peer.fail, reset)


class VirtualNetwork:
    """The ports and connections of all machines."""

    def __init__(self, world: VirtualWorld, within: OneWayLink, between: OneWayLink) -> None:
        """``within`` is the link of a machine to itself, ``between`` that of any machine to any other."""
        self.world = world
        self._within = within
        self._between = between
        self._free_ns: dict[tuple[str, str], int] = {}
        self._ports = Ports()
        self.listen = self._ports.listen
        self.wires: dict[EventLoop, dict[VirtualWire, None]] = {}
        """The network at the open ends of connections, by process."""

    def link(self, way: tuple[str, str]) -> OneWayLink:
        """The link from one machine to another, by their names."""
        return self._within if way[0] == way[1] else self._between

    def pass_link(self, way: tuple[str, str], octets: int) -> int:
        """Send octets; returns when the last octet arrives."""
        link = self.link(way)
        begin_ns = max(self.world.clock(), self._free_ns.get(way, 0))
        end_ns = self._free_ns[way] = begin_ns + octets * _SECOND_NS // link.octets_per_second
        return end_ns + link.latency_ns

    def notice_ns(self, way: tuple[str, str]) -> int:
        """When a packet without octets arrives that is sent now."""
        return self.world.clock() + self.link(way).latency_ns

    def end(self, loop: VirtualLoop) -> None:
        """The process of this loop is gone: nobody listens on its ports, and its connections break."""
        self._ports.remove_all(lambda each: each is loop)
        for wire in self.wires.pop(loop, {}):
            wire.cut()

    async def dial(
        self, loop: VirtualLoop, host: str, port: int, factory: Factory
    ) -> tuple[ConnectionEnd, asyncio.BaseProtocol]:
        """Connect. Raises ConnectionRefusedError if nobody listens."""
        served = self._ports.find(host, port)
        link = self._between if served is None else self.link((loop.host, host))
        way_s = link.latency_ns / _SECOND_NS
        await asyncio.sleep(way_s)
        if served is None or self._ports.find(host, port) is not served:
            await asyncio.sleep(way_s)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        here = self._end(loop, host)
        served.accept(here, self._end(served.loop, loop.host))
        await asyncio.sleep(way_s)
        here.begin(factory)
        return here, here.protocol

    def _end(self, loop: EventLoop, remote: str) -> ConnectionEnd:
        end = ConnectionEnd(loop, remote)
        end.wire = VirtualWire(self, end)
        end.pause_reading()  # until it begins: a kernel keeps what comes before the process has accepted
        return end
