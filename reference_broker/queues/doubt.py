"""What a member keeps from its node's clients while others may have been given what it would deliver.

Theory of operation
-------------------
A member delivers what it applies, and it may apply late. While a node stands still or is cut off, the others take its
consumers' messages back and deliver them elsewhere. The entries that dealt these messages to the node may still lie
unread in its sockets, in front of those that took them back. Delivered from there, they would be copies of messages
that somebody has had, and without the redelivered flag.

So a member *doubts* after whatever may have gone with that: another leader, a new link to the leader, a while in which
its process stood still. While it doubts, it keeps back what it would deliver here, with the answers that follow. The
first delivery makes the node ask how far the log is committed (:mod:`reference_broker.node.reads`: a majority vouches
for the answer). When everything up to there is applied here, the member delivers what its consumers still hold, and the
doubt is over. A queue that delivers nothing asks nothing, and confirms are not kept back: they are true however late.

What a ``basic.get`` was dealt is delivered in any case, for its client waits: as redelivered if it was taken back.

Invariant (X8): once a doubt has begun, no client here gets a message as if for the first time before everything is
applied here that anybody had applied when it began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_broker.machines.effects import Deliver, Reply
from reference_broker.types import ChannelId

Kept = Deliver | Reply | tuple[Deliver, Any]
"""What is to be told later; what a get was dealt comes with its body, which the log may lose."""


class Doubt:
    """Whether a member doubts, and what it has kept back since. Numbers tell one doubt from the next."""

    __slots__ = ("_asked", "_channels", "_kept", "_waiting", "is_on", "number")

    def __init__(self) -> None:
        self.is_on = False
        self.number = 0
        self._asked = 0
        self._kept: list[Kept] = []
        self._channels: set[ChannelId] = set()
        """Those of whom something is kept: their answers wait behind it."""
        self._waiting: list[Callable[[], None]] = []

    def begin(self) -> None:
        """From here on nothing is sure, whatever was asked before."""
        self.is_on = True
        self.number += 1

    def has_to_ask(self) -> bool:
        """Whether somebody waits for the end of this doubt, and nobody has asked for it. True once."""
        must = self._asked != self.number and bool(self._kept or self._waiting)
        if must:
            self._asked = self.number
        return must

    def wait(self, call: Callable[[], None]) -> None:
        """Call when the doubt is over."""
        self._waiting.append(call)

    def keep_delivery(self, delivery: Deliver, body: Any = None) -> None:
        """Keep it; with its body if its consumer holds nothing that could be looked at later."""
        self._channels.add(delivery.consumer.channel)
        self._kept.append(delivery if body is None else (delivery, body))

    def keeps(self, reply: Reply) -> bool:
        """Keep an answer, if it belongs behind what is kept of its channel. Whether that is so."""
        if reply.channel not in self._channels:
            return False
        self._kept.append(reply)
        return True

    def end(self) -> tuple[list[Kept], list[Callable[[], None]]]:
        """The doubt is over: what was kept, in order, and who waits."""
        kept, self._kept, waiting, self._waiting = self._kept, [], self._waiting, []
        self._channels.clear()
        self.is_on = False
        return kept, waiting
