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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reference_broker.sim.loop import Scheduler, SimLoop
from reference_broker.worlds.connections import ConnectionEnd, Factory, Ports

WINDOWS: Final = (8 * 1024, 256 * 1024)
"""Octets that may be under way on a connection: few, as with a slow kernel, or the usual number."""
_SPLIT: Final = 0.05
_SYN_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Times between the tries of a kernel to connect; whoever dials hears nothing before the last one."""
_LATE_S: Final = 3.0


@dataclass(slots=True)
class Weather:
    """The state of the network, in seconds and in octets per second."""

    latency_s: float = 0.0002
    jitter_s: float = 0.0005
    bandwidth: float = 1e8


class SimWire:
    """The network at one end of a connection (:class:`reference_broker.worlds.connections.Wire`). ``peer`` is the one
    at the other end."""

    peer: SimWire

    def __init__(self, network: Network, end: ConnectionEnd) -> None:
        self.end = end
        self.local = end.loop.host
        self.remote = end.remote
        self.broken = False
        """Octets no longer come in, and the process of this end will hear of it."""
        self.write = end.push
        self._network = network
        self._last_arrival = 0.0
        self._parked: list[bytes | None] = []

    def room(self, unread: int) -> int:
        """A whole window as long as the former one has begun to be read."""
        window = self._network.window
        return window if unread < window else 0

    def send(self, data: bytes | None) -> None:
        """Carry octets, later than those before."""
        network = self._network
        size = len(data) if data else 0
        arrival = network.scheduler.now + network.delay(self.local, self.remote) + size / network.weather.bandwidth
        self._last_arrival = arrival = max(arrival, self._last_arrival)
        network.scheduler.at(arrival, self.peer.arrive, data)

    def arrive(self, data: bytes | None) -> None:
        """Octets, or the end (None), come in, unless the direction is blocked."""
        end, scheduler = self.end, self._network.scheduler
        if end.lost or self.broken or end.loop.dead:
            return
        if self._parked or self.is_blocked():
            self._parked.append(data)
            return
        scheduler.trace.note(scheduler.now, self.local, "arrive", len(data) if data is not None else "end")
        end.arrive(data)

    def is_blocked(self) -> bool:
        """Whether everything for this end is held up."""
        return (self.remote, self.local) in self._network.blocked

    def unpark(self) -> None:
        """The direction is free again: everything that was held up comes at once."""
        if self._parked and not self.is_blocked():
            parked, self._parked = self._parked, []
            for data in parked:
                self.arrive(data)

    def read_octets(self, waiting: int) -> int:
        """Mostly all; now and then a part, cut at any place."""
        chance = self._network.scheduler.chance
        return chance.randrange(1, waiting) if waiting > 1 and chance.random() < _SPLIT else waiting

    def was_read(self, _data: bytes) -> None:
        """The other end hears of it at once."""
        self.end.peer.window_opened()

    def abort(self) -> None:
        """The other end hears of a reset."""
        self._network.reset(self.peer, self._network.delay(self.local, self.remote))

    def forget(self) -> None:
        """The connection is none of the network's any more."""
        self._network.wires.pop(self, None)


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
        self.wires: dict[SimWire, None] = {}
        """The ends of connections that stand."""
        self._ports = Ports()
        self.listen = self._ports.listen
        self._silent: dict[str, list[SimWire]] = {}
        self.told: Callable[[str, str, bool], None] = lambda _source, _target, _is_blocked: None
        """Hears of each direction that is blocked, or free again."""

    def delay(self, source: str, target: str) -> float:
        """The time of one packet in one direction."""
        chance = self.scheduler.chance.random()
        return 20e-6 * chance if source == target else self.weather.latency_s + self.weather.jitter_s * chance**4

    async def dial(self, loop: SimLoop, host: str, port: int, factory: Factory) -> tuple[ConnectionEnd, Any]:
        """Connect. Raises ConnectionRefusedError, and TimeoutError if a direction is blocked."""
        host = self.crossed.get((loop.host, host), host)
        await self._travel(loop, host)
        served = self._ports.find(host, port)
        if served is None or served.loop.dead:
            raise ConnectionRefusedError(f"{host}:{port}")
        here, there = ConnectionEnd(loop, host), ConnectionEnd(served.loop, loop.host)
        here.wire, there.wire = near, far = SimWire(self, here), SimWire(self, there)
        near.peer, far.peer = far, near
        served.accept(here, there)
        self.wires[far] = None
        try:
            await self._travel(loop, host, back=True)
        except (OSError, asyncio.CancelledError):
            self.reset(far, self.scheduler.chance.random() * _LATE_S)  # the connection is made on one side only
            raise
        if there.lost or served.loop.dead:
            raise ConnectionResetError(f"{host}:{port}")
        self.wires[near] = None
        here.begin(factory)
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

    def reset(self, wire: SimWire, delay: float) -> None:
        """Have one end learn, after a while, that its connection is broken."""
        if not wire.end.lost:
            self.scheduler.after(delay, self._reset, wire)

    def _reset(self, wire: SimWire) -> None:
        end = wire.end
        if end.lost or end.loop.dead or end.protocol is None:
            return
        if wire.is_blocked():
            self.scheduler.after(0.1, self._reset, wire)
            return
        wire.broken = True
        end.loop.call_soon(end.lose, ConnectionResetError("reset by peer"))

    def break_connection(self, wire: SimWire) -> None:
        """Break a connection. Octets under way are lost, and each end learns of it in its own time."""
        for each in (wire, wire.peer):
            each.broken = True
            self.reset(each, self.scheduler.chance.random() ** 3 * _LATE_S)

    def block(self, source: str, target: str) -> None:
        """Hold up everything from one host to another."""
        self.told(source, target, True)
        self.blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Let everything from one host to another through again."""
        self.told(source, target, False)
        self.blocked.discard((source, target))
        for wire in list(self.wires):
            if (wire.remote, wire.local) == (source, target):
                self.scheduler.after(self.delay(source, target), wire.unpark)

    def host_down(self, host: str, *, silent: bool) -> None:
        """The process of a host has ended. The kernel tells its peers, but after a loss of power nobody does for
        now."""
        orphans = []
        for wire in list(self.wires):
            if wire.local == host:
                wire.end.lost = True
                wire.forget()
                orphans.append(wire.peer)
        self._ports.remove_all(lambda loop: loop.host == host)
        if silent:
            self._silent.setdefault(host, []).extend(orphans)
        else:
            for orphan in orphans:
                self.reset(orphan, self.delay(host, orphan.local))

    def host_up(self, host: str) -> None:
        """A host is back. It resets connections that it does not know."""
        for orphan in self._silent.pop(host, []):
            self.reset(orphan, self.scheduler.chance.random() * 0.5)
