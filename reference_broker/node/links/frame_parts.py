"""Messages larger than a frame: they go over a link in parts, and small frames of others pass between the parts.

Theory of operation
-------------------
A *frame* is as large as its receiver allows, so that no frame holds up the next ones for long. A *message* is as large
as a client's message makes it. A message that does not fit into a frame waits in the sender's :class:`LinkBacklog` and
leaves it part by part, as fast as the connection takes octets. The receiver's :class:`Assembly` puts the parts
together.

One message at a time is under way in parts on a link. So a receiver keeps at most one unfinished message, of at most
``MESSAGE_MAX`` octets, whatever the sender claims.

The frames of one *stream* keep their order: while one of them waits here, later ones wait behind it. A Raft group is a
stream. Frames of other streams pass what waits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

LENGTH: Final = Struct(">I")
"""The head of each frame: the octets of its body."""
MESSAGE_MAX: Final = 256 * 1024 * 1024
"""The largest message between nodes. An entry of the log is a batch of at most ``batch_bytes_max`` octets of each
priority, or one command; and a command is one message of a client (128 MiB at most) or a run of small ones."""

Octets = bytes | memoryview


class _Message:
    """The rest of one message that is still to be sent."""

    __slots__ = ("buffers", "left", "stream")

    def __init__(self, stream: int, size: int, buffers: Sequence[Octets]) -> None:
        self.stream = stream
        self.left = size
        self.buffers = deque(memoryview(buffer) for buffer in buffers)

    def take(self, octets_max: int) -> list[Octets]:
        """Take the next octets, without copying them."""
        taken: list[Octets] = []
        room = octets_max
        while room and self.buffers:
            buffer = self.buffers.popleft()
            if len(buffer) > room:
                self.buffers.appendleft(buffer[room:])
                buffer = buffer[:room]
            taken.append(buffer)
            room -= len(buffer)
        self.left -= octets_max - room
        return taken


class LinkBacklog:
    """The messages that wait on one link, oldest first: large ones, and small ones behind them."""

    __slots__ = ("_is_parted", "_last_part", "_part", "_streams", "waiting")

    def __init__(self, part: int, last_part: int) -> None:
        """``part`` and ``last_part`` are the kinds of frames that carry parts."""
        self._part, self._last_part = bytes((part,)), bytes((last_part,))
        self.waiting: deque[_Message] = deque()
        """Each link looks here for each frame, so it is no method."""
        self._streams: Counter[int] = Counter()
        self._is_parted = False
        """Whether the oldest message is on its way in parts."""

    def holds(self, stream: int) -> bool:
        """Whether a message of the stream waits."""
        return stream in self._streams

    def add(self, stream: int, size: int, buffers: Sequence[Octets]) -> None:
        """Add a message of ``size`` octets; the first octet is its kind."""
        self.waiting.append(_Message(stream, size, buffers))
        self._streams[stream] += 1

    def cut(self, frame_max: int) -> list[Octets]:
        """The next frame: a message that fits, or a part of one that does not."""
        message = self.waiting[0]
        if message.left <= frame_max and not self._is_parted:
            self._done(message)
            return [LENGTH.pack(message.left), *message.buffers]
        size = min(message.left, frame_max - 1)
        octets = message.take(size)
        self._is_parted = message.left > 0
        if not self._is_parted:
            self._done(message)
        return [LENGTH.pack(1 + size) + (self._part if self._is_parted else self._last_part), *octets]

    def _done(self, message: _Message) -> None:
        self.waiting.popleft()
        self._streams[message.stream] -= 1
        if not self._streams[message.stream]:
            del self._streams[message.stream]


class Assembly:
    """A partly received message, on the receiving side of a link."""

    __slots__ = ("_octets", "_octets_max")

    def __init__(self, octets_max: int = MESSAGE_MAX) -> None:
        self._octets_max = octets_max
        self._octets = bytearray()

    def add(self, part: memoryview, *, last: bool) -> memoryview | None:
        """Keep a part. After the last part returns the whole message. Raises ValueError if the message is too large."""
        if len(self._octets) + len(part) > self._octets_max:
            raise ValueError(f"a message of more than {self._octets_max} octets in parts")
        self._octets += part
        if not last:
            return None
        whole, self._octets = self._octets, bytearray()
        return memoryview(whole)
