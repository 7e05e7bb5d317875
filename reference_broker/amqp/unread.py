"""Octets that have come and may not be read yet, so that what a client sends on a channel is done in order.

A channel that is *held* waits for an answer of the broker: its frames are kept as they came, whole, and read once the
channel is released. So a method never overtakes an earlier one of its channel, whoever answers it, and what follows a
method that closes the channel is dropped. The frames of other channels are read on.

The order of reading: first what was kept for a channel that was released, then what came after it on the socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from reference_broker.amqp.channel import Channel
from reference_broker.amqp.frames import FRAME_HEAD, octets_needed

Stretch = tuple[bytes, int, int]
"""A buffer, where its unread part begins, and the channel that all of that belongs to; 0 for any."""


class Unread:
    """What one connection is still to read."""

    __slots__ = ("_channels", "_next", "held_octets")

    def __init__(self, channels: Mapping[int, Channel]) -> None:
        self._channels = channels
        self._next: deque[Stretch] = deque()
        self.held_octets = 0
        """How much is kept for held channels."""

    def __bool__(self) -> bool:
        return bool(self._next)

    def put_back(self, buffer: bytes, at: int, number: int) -> None:
        """This is to be read before anything else."""
        if at < len(buffer):
            self._next.appendleft((buffer, at, number))

    def next(self) -> Stretch | None:
        """What is to be read now, None if there is nothing. What belongs to a channel that is held stays with it."""
        while self._next:
            buffer, at, number = self._next.popleft()
            channel = self._channels.get(number)
            if channel is None or channel.held is None:
                return buffer, at, number
            channel.held.append((buffer, at))
            self.held_octets += len(buffer) - at
        return None

    def rest(self) -> bytes:
        """Forget everything; returns what came last on the socket."""
        rest = b"".join(buffer[at:] for buffer, at, number in self._next if not number)
        self._next.clear()
        self.held_octets = 0
        return rest

    def hold(self, channel: Channel) -> None:
        """Read nothing more of the channel."""
        if channel.held is None:
            channel.held = deque()

    def keep(self, buffer: bytes, at: int, channel: Channel, payload_max: int) -> int:
        """Keep the frames of a held channel that stand at ``at`` in a row, whole ones only; returns the position after
        them. Raises HardError for what is no frame."""
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
        """Read on."""
        held, channel.held = channel.held, None
        for buffer, at in reversed(held or ()):
            self.held_octets -= len(buffer) - at
            self.put_back(buffer, at, channel.number)
