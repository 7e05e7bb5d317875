"""Octets that have come and are not read yet.

:class:`Inbox` keeps the beginning of a frame whose rest has not come. :class:`Unread` keeps what must wait so that the
methods of a channel are done in order. A channel that is *held* waits for an answer of the broker. The frames of a held
channel are kept whole, as they came, and are read once the channel is released. So a method never overtakes an earlier
method of its channel, and the frames behind a method that closes the channel are dropped. The frames of other channels
are read on.

Frames that were kept for a channel that is released come first; then comes the rest of the octets from the socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from reference_broker.amqp.channel import Channel
from reference_broker.amqp.frames import FRAME_HEAD, octets_needed

Stretch = tuple[bytes, int, int]
"""A buffer, the position of its first unread octet, and the channel that all of it belongs to (0: several channels)."""


class Inbox:
    """The octets of a frame that is not complete yet.

    The octets stay a list of chunks until the announced length is there. So nothing is allocated for a length that a
    client merely announces, and a message that arrives in many reads is not copied once per read.
    """

    __slots__ = ("_need", "_size", "chunks")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        """While there are none, the next octets stand for themselves, and need not be pushed."""
        self._size = 0
        self._need = 0

    def __len__(self) -> int:
        return self._size

    def push(self, data: bytes) -> bytes | None:
        """All octets at hand if there are as many as :meth:`keep` asked for, else ``None``."""
        if not self.chunks:
            return data
        self.chunks.append(data)
        self._size += len(data)
        if self._size < self._need:
            return None
        joined = b"".join(self.chunks)
        self.chunks.clear()
        self._size = 0
        return joined

    def relax(self) -> None:
        """Hand over the next octets, however few they are."""
        self._need = 0

    def keep(self, rest: bytes, need: int) -> None:
        """Keep the octets that could not be consumed. Reading goes on when ``need`` octets are there, counted from the
        start of ``rest``."""
        if rest:
            self.chunks.append(rest)
        self._size = len(rest)
        self._need = need


class Unread:
    """The octets that one connection has still to read."""

    __slots__ = ("_channels", "held_octets", "stretches")

    def __init__(self, channels: Mapping[int, Channel]) -> None:
        self._channels = channels
        self.stretches: deque[Stretch] = deque()
        """The stretches to be read next, in order."""
        self.held_octets = 0
        """Octets that are kept for held channels."""

    def put_back(self, buffer: bytes, at: int, number: int) -> None:
        """Read the rest of this buffer before anything else."""
        if at < len(buffer):
            self.stretches.appendleft((buffer, at, number))

    def next(self) -> Stretch | None:
        """The octets to read now; None if there are none. The octets of a held channel go to that channel."""
        while self.stretches:
            buffer, at, number = self.stretches.popleft()
            channel = self._channels.get(number)
            if channel is None or channel.held is None:
                return buffer, at, number
            channel.held.append((buffer, at))
            self.held_octets += len(buffer) - at
        return None

    def rest(self) -> bytes:
        """Forget everything. Returns the unread octets that belong to no particular channel."""
        rest = b"".join(buffer[at:] for buffer, at, number in self.stretches if not number)
        self.stretches.clear()
        self.held_octets = 0
        return rest

    def hold(self, channel: Channel) -> None:
        """Read nothing more of the channel for now."""
        if channel.held is None:
            channel.held = deque()

    def keep(self, buffer: bytes, at: int, channel: Channel, payload_max: int) -> int:
        """Keep the whole frames of a held channel that stand in a row from ``at`` on. Returns the position after them.
        Raises HardError for octets that are no frame."""
        assert channel.held is not None
        end, number = at, channel.number
        while len(buffer) - end >= FRAME_HEAD.size and FRAME_HEAD.unpack_from(buffer, end)[1] == number:
            size = octets_needed(buffer, end, payload_max)
            if size > len(buffer) - end:
                break
            end += size
        if end > at:
            channel.held.append((buffer[at:end], 0))
            self.held_octets += end - at
        return end

    def release(self, channel: Channel) -> None:
        """Read the frames of the channel that were kept, then go on."""
        held, channel.held = channel.held, None
        for buffer, at in reversed(held or ()):
            self.held_octets -= len(buffer) - at
            self.put_back(buffer, at, channel.number)
