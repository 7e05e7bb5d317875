"""Connections between processes at virtual time, as asyncio's protocols see them: octets in order, and back-pressure.

A connection has two ends. An end keeps what its protocol writes until the window has room, and what came until the
protocol reads. Between the ends is the network of the world: each end has a :class:`Wire`, which carries octets to the
other end, and says how many of them fit, how many a read takes, and when the writer hears of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from reference_broker.worlds.loop import EventLoop

_HIGH_WATER: Final = 64 << 10

Factory = Callable[[], asyncio.BaseProtocol]


class Wire(Protocol):
    """The network at one end of a connection."""

    def write(self, data: bytes) -> None:
        """Hand octets that the protocol writes to :meth:`ConnectionEnd.push`, in one or more parts."""

    def room(self, unread: int) -> int:
        """How many octets may leave now, if the other end has not read ``unread`` octets yet."""

    def send(self, data: bytes | None) -> None:
        """Carry octets to :meth:`ConnectionEnd.arrive` of the other end; None: nothing more comes."""

    def read_octets(self, waiting: int) -> int:
        """How many of the ``waiting`` octets the next read takes at most."""

    def was_read(self, data: bytes) -> None:
        """This end has read: have the other end hear of it (:meth:`ConnectionEnd.window_opened`)."""

    def abort(self) -> None:
        """This end ends without sending what waits: have the other end hear of it."""

    def forget(self) -> None:
        """This end is gone."""


class ConnectionEnd(asyncio.Transport):
    """One end of a connection. ``wire`` and ``peer`` are set before the first call."""

    wire: Wire
    peer: ConnectionEnd

    def __init__(self, loop: EventLoop, remote: str) -> None:
        """``remote`` is the name of the other end's host."""
        super().__init__()
        self.loop = loop
        self.remote = remote
        self.protocol: Any = None
        self.lost = False
        self._closing = False
        self._out: list[bytes] = []
        self._out_octets = 0
        self._high = _HIGH_WATER
        self._is_paused = False
        self._unread_octets = 0
        """Octets from here that the other end has not read."""
        self._inbox: deque[bytes | memoryview] = deque()
        self._waiting_octets = 0
        self._has_ended = False
        self._failure: OSError | None = None
        self._is_reading = True
        self._read_asked = False

    # What protocols call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses are names of hosts; there is no socket."""
        return {"peername": (self.remote, 0), "sockname": (self.loop.host, 0)}.get(name, default)

    def is_closing(self) -> bool:
        """Whether it was closed or lost."""
        return self._closing or self.lost

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
        if self.is_closing():
            return
        self.wire.write(bytes(data))
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
        if not self.lost:
            self._closing = True
            self.drop()
            self.wire.abort()
            self.loop.call_soon(self.lose, None)

    # Octets under way

    def push(self, data: bytes) -> None:
        """Send octets as soon as the window has room for them."""
        self._out.append(data)
        self._out_octets += len(data)
        self._pump()

    def _pump(self) -> None:
        room = self.wire.room(self._unread_octets)
        if self._out and room > 0:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out = [data[room:]] if len(data) > room else []
            data = data[:room]
            self._out_octets -= len(data)
            self._unread_octets += len(data)
            self.wire.send(data)

    def drop(self) -> None:
        """Let go of the octets that wait to be sent."""
        self._out.clear()
        self._out_octets = 0

    def arrive(self, data: bytes | None) -> None:
        """Octets, or the end (None), come in from the network."""
        if self.lost:
            return
        if data is None:
            self._has_ended = True
        else:
            self._inbox.append(data)
            self._waiting_octets += len(data)
        self._ask_to_read()

    def _ask_to_read(self) -> None:
        if self._is_reading and not self._read_asked and (self._inbox or self._has_ended):
            self._read_asked = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_asked = False
        if self.lost or not self._is_reading:
            return
        if self._inbox:
            self._hand_over()
            self._ask_to_read()
        elif self._failure is not None:
            self.loop.call_soon(self.lose, self._failure)
        elif self._has_ended and not self._closing and not self.protocol.eof_received():
            self.close()

    def _hand_over(self) -> None:
        protocol = self.protocol
        buffer: Any = protocol.get_buffer(-1) if isinstance(protocol, asyncio.BufferedProtocol) else None
        limit = self.wire.read_octets(self._waiting_octets)
        data = self._take(limit if buffer is None else min(limit, len(buffer)))
        self.peer._unread_octets -= len(data)
        self.wire.was_read(data)
        if self._closing:
            return
        if buffer is None:
            protocol.data_received(data)
        else:
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))

    def _take(self, limit: int) -> bytes:
        """The octets that came, at most ``limit``."""
        inbox = self._inbox
        taken: list[bytes | memoryview] = []
        while inbox:
            part = inbox.popleft()
            if len(part) > limit:
                view = memoryview(part)
                taken.append(view[:limit])
                inbox.appendleft(view[limit:])
                break
            taken.append(part)
            limit -= len(part)
        data = b"".join(taken)
        self._waiting_octets -= len(data)
        return data

    def window_opened(self) -> None:
        """The other end has read: what waits is sent, and the protocol hears of it if it was paused."""
        if self.lost or self.loop.dead:
            return
        self._pump()
        if self._is_paused and self._out_octets <= self._high // 4:
            self.loop.call_soon(self._resume_writer)
        self._end_if_empty()

    def _resume_writer(self) -> None:
        if self._is_paused and not self.lost:
            self._is_paused = False
            self.protocol.resume_writing()

    # The end

    @property
    def has_more(self) -> bool:
        """Whether octets, or the end, wait until the other end has read."""
        return bool(self._out) or self._closing

    def _end_if_empty(self) -> None:
        if self._closing and not self._out and not self.lost:
            self.wire.send(None)
            self.loop.call_soon(self.lose, None)

    def fail(self, error: OSError) -> None:
        """The connection is broken. What came before is read first, by a protocol that reads."""
        if self.lost:
            return
        self._has_ended, self._failure = True, error
        if self._is_reading or self.protocol is None:
            self._ask_to_read()
        else:
            self.loop.call_soon(self.lose, error)

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol, once, that the connection is gone."""
        if not self.lost:
            self.lost = True
            self.wire.forget()
            self.protocol.connection_lost(error)

    def begin(self, factory: Factory) -> None:
        """Make the protocol, and tell it of the connection."""
        self.protocol = factory()
        self._is_reading = True
        self.protocol.connection_made(self)
        self._ask_to_read()


class ListeningPort:
    """A port that a process serves."""

    def __init__(self, ports: Ports, loop: EventLoop, port: int, factory: Factory) -> None:
        self.loop = loop
        self.port = port
        self._factory = factory
        self._ports = ports

    def close(self) -> None:
        """Stop listening; connections stay."""
        self._ports.remove(self)

    async def wait_closed(self) -> None:
        """Return at once."""

    def accept(self, here: ConnectionEnd, there: ConnectionEnd) -> None:
        """Join the two ends of a connection, and have the process of the port begin with ``there``."""
        here.peer, there.peer = there, here
        self.loop.call_soon(self._accept, there)

    def _accept(self, end: ConnectionEnd) -> None:
        end.begin(self._factory)


class Ports:
    """Who serves which port of which host."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, int], ListeningPort] = {}

    def listen(self, loop: EventLoop, port: int, factory: Factory) -> ListeningPort:
        """Serve a port of the loop's host. A host has one process for each port."""
        served = self._ports[loop.host, port] = ListeningPort(self, loop, port, factory)
        return served

    def find(self, host: str, port: int) -> ListeningPort | None:
        """Who serves a port, if anybody does."""
        return self._ports.get((host, port))

    def remove(self, served: ListeningPort) -> None:
        """Stop serving a port."""
        if self.find(served.loop.host, served.port) is served:
            del self._ports[served.loop.host, served.port]

    def remove_all(self, is_gone: Callable[[EventLoop], bool]) -> None:
        """Processes are gone, and nobody serves their ports any more."""
        for served in [served for served in self._ports.values() if is_gone(served.loop)]:
            self.remove(served)
