"""Transactions of a publisher: gathering messages, and the commit.

The messages of a transaction are a window of its size. They are confirmed together when ``tx.commit-ok`` comes, and no
message leaves meanwhile. When the publisher stops, an unfinished transaction is committed, too. If the connection is
lost during a commit, all messages of the transaction are published again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pamqp import commands

from perftest.amqp.errors import AmqpError, ChannelClosedError
from perftest.amqp.transport import Connection
from perftest.engine.schedule.intended_times import NEVER_NS, SECOND_NS

COMMIT_PATIENCE_S: Final = 30.0
"""Time after the confirm timeout at which a connection without an answer to tx.commit is given up."""


class Transaction:
    """The transactions of a publisher, of ``size`` messages each; 0 for a publisher without transactions.

    ``on_committed`` is called when all sent messages are committed, ``on_closed`` when the broker closes the channel.
    """

    def __init__(
        self,
        size: int,
        *,
        confirm_timeout_s: float,
        on_committed: Callable[[], None],
        on_closed: Callable[[AmqpError], None],
    ) -> None:
        self._size = size
        self._patience_s = min(2 * confirm_timeout_s + COMMIT_PATIENCE_S, NEVER_NS / SECOND_NS)
        self._on_committed = on_committed
        self._on_closed = on_closed
        self._commit: asyncio.Task[None] | None = None

    @property
    def gathering(self) -> bool:
        """Whether unconfirmed messages only wait for the rest of their transaction."""
        return bool(self._size) and self._commit is None

    def begin_anew(self) -> None:
        """The channel is new: answers on the old channel do not count."""
        self._commit = None

    def commit(self, connection: Connection, channel: int) -> None:
        """Send ``tx.commit``."""
        self._commit = asyncio.create_task(self._await_answer(connection, channel))

    async def _await_answer(self, connection: Connection, channel: int) -> None:
        try:
            await connection.call(channel, commands.Tx.Commit(), commands.Tx.CommitOk, timeout_s=self._patience_s)
        except ChannelClosedError as error:
            self._on_closed(error)
            return
        except AmqpError:
            return
        if self._commit is asyncio.current_task():
            self._commit = None
            self._on_committed()
