"""Doubt: the deliveries that a member keeps back while other members may have dealt the messages to other consumers.

Theory of operation
-------------------
A member delivers the messages of the entries that it applies, and may apply an entry late. While a node is suspended or
cut off, the other members take the messages of its consumers back and deliver them elsewhere. Then the node's sockets
may still hold, unread, the entries that dealt it these messages, in front of the entries that took them back. If it
delivered from these entries, consumers would get messages that others have had, without the redelivered flag.

So a member *doubts* after each event that may mean such a pause: a new leader, a new link to the leader, a suspension
of its process. While it doubts, it keeps back its deliveries and the replies behind them. The first kept delivery makes
the node ask for the commit index (:mod:`reference_broker.node.hosting.reads`: a majority vouches for the answer). When
the member has applied everything up to that index, it delivers the messages that its consumers still hold, and the
doubt is over. A queue without deliveries asks nothing. Confirms are not kept back: they stay true.

The message of a ``basic.get`` is delivered in any case, because its client waits: as redelivered, if it was taken back.

Invariant (X8): after a doubt has begun, no client here gets a message as a first delivery until this member has applied
everything that any member had applied when the doubt began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_broker.idle import NONE
from reference_broker.machines.effects import Deliver, Reply
from reference_broker.types import ChannelId

Kept = Deliver | Reply | tuple[Deliver, Any]
"""An effect for later. The delivery to a get comes with its body, because the log may drop the body."""


class Doubt:
    """Whether a member doubts, and the effects that it keeps back. Each doubt has a number."""

    __slots__ = ("_asked", "_channels", "_kept", "_waiting", "is_on", "number")

    def __init__(self) -> None:
        self.is_on = False
        self.number = 0
        self._asked = 0
        self._kept: list[Kept] = []
        self._channels: frozenset[ChannelId] = NONE
        """Channels with kept deliveries: their replies wait behind the deliveries."""
        self._waiting: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Begin a new doubt. Answers to earlier questions no longer count."""
        self.is_on = True
        self.number += 1

    def has_to_ask(self) -> bool:
        """Whether the end of this doubt is awaited and not asked for yet. True once per doubt."""
        must = self._asked != self.number and bool(self._kept or self._waiting)
        if must:
            self._asked = self.number
        return must

    def wait(self, call: Callable[[], None]) -> None:
        """Call when the doubt is over."""
        self._waiting.append(call)

    def keep_delivery(self, delivery: Deliver, body: Any = None) -> None:
        """Keep a delivery. ``body`` is given if the consumer does not hold the message."""
        self._channels |= {delivery.consumer.channel}
        self._kept.append(delivery if body is None else (delivery, body))

    def keeps(self, reply: Reply) -> bool:
        """Keep a reply if a delivery of its channel is kept. Returns whether it was kept."""
        if reply.channel not in self._channels:
            return False
        self._kept.append(reply)
        return True

    def end(self) -> tuple[list[Kept], list[Callable[[], None]]]:
        """End the doubt. Returns the kept effects, in order, and the waiting calls."""
        kept, self._kept, waiting, self._waiting = self._kept, [], self._waiting, []
        self._channels = NONE
        self.is_on = False
        return kept, waiting
