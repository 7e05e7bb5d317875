"""Synchronous methods that wait for their answers; a channel answers in the order in which it was asked."""

from __future__ import annotations

import asyncio
from collections import deque

from pamqp.base import Frame as Method

from perftest.amqp.errors import AmqpError


class Calls:
    """The calls of one connection, by channel."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[asyncio.Future[Method]]] = {}

    def begin(self, channel: int) -> asyncio.Future[Method]:
        """A call is about to be sent: what its answer, or the reason why there is none, will be told to."""
        future: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(channel, deque()).append(future)
        return future

    def answer(self, channel: int, method: Method) -> bool:
        """An answer came. Whether anybody had asked."""
        waiting = self._waiting.get(channel)
        if not waiting:
            return False
        future = waiting.popleft()
        if not future.done():
            future.set_result(method)
        return True

    def fail(self, channel: int, error: AmqpError) -> bool:
        """No more answers come on a channel. Whether anybody waited."""
        waiting = self._waiting.pop(channel, None) or ()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        return bool(waiting)

    def fail_all(self, error: AmqpError) -> None:
        """No more answers come at all."""
        for channel in tuple(self._waiting):
            self.fail(channel, error)
