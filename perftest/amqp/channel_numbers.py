"""The numbers of a connection's channels."""

from __future__ import annotations

from collections import deque

from perftest.amqp.errors import NoChannelLeftError


class ChannelNumbers:
    """Those in use, and those that may be used again."""

    def __init__(self) -> None:
        self._used = 0
        self._free: deque[int] = deque()

    def take(self, channel_max: int) -> int:
        """One that was never used, as long as there are any: who had a channel that has just ended may not know yet.
        Raises :class:`NoChannelLeftError` when the broker allows no more on one connection."""
        if self._used < channel_max:
            self._used += 1
            return self._used
        if self._free:
            return self._free.popleft()
        raise NoChannelLeftError(f"the broker allows {channel_max} channels on a connection")

    def give_back(self, channel: int) -> None:
        """Both sides have closed it."""
        self._free.append(channel)
