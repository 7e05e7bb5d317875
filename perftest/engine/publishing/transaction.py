"""Transactions of a publisher: what is gathered, and its commit.

A transaction is a window of its size whose messages are confirmed together, when ``tx.commit-ok`` comes: nothing leaves
meanwhile. What is left of one when the publisher stops is committed, too. If the connection goes during a commit, all
of it is published again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pamqp import commands

from perftest.amqp.errors import AmqpError, ChannelClosedError
from perftest.amqp.transport import Connection
from perftest.engine.schedule.line import NEVER_NS, SECOND_NS

COMMIT_PATIENCE_S: Final = 30.0
"""How long after the confirm timeout, which ends the run, a connection is given up for an answer to tx.commit."""


class Transaction:
    """The transactions of one channel after the other, of ``size`` messages; 0 for a publisher that has none.

    ``on_committed`` is told when all that was sent is committed, ``on_closed`` why the broker closed the channel.
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
        """Whether what is unconfirmed only waits for the rest of its transaction to be published."""
        return bool(self._size) and self._commit is None

    def begin_anew(self) -> None:
        """The channel is a fresh one: whatever is answered on an old one does not count."""
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
