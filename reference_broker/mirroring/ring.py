"""One member of the ring along which a master sends its batches. Pure.

Theory of operation
-------------------
The members of a mirrored queue stand in a ring by age: the master, its eldest mirror, ..., its youngest mirror, and the
master again. Each member sends to its *right* neighbour only. A batch goes once round the ring, from the master through
every mirror back to the master: for n members its octets cross n links. When it is back, everybody has it, and the
master sends an *ack* once round: a few octets after a whole lap of content. RabbitMQ's ``gm`` does the same.

A member *keeps* the batches that it has sent on until the ack comes by. When a member is lost, the ring closes around
the gap: its left neighbour sends the kept batches to its new right neighbour. So nothing is lost with a member in the
middle, and every mirror has a prefix of its elders' batches.

The queue's record says who the members are (:mod:`reference_broker.machines.cluster.mirror_records`). Changes of the
record are asked for in :mod:`reference_broker.node.hosting.mirror_steps` and
:mod:`reference_broker.node.hosting.promotion`. Members hear of it at different times. So each member *subscribes* to
its left neighbour in each new *view* of the ring, and says how far it has come. The left neighbour sends nothing
before, and frames of an outdated view are dropped. When a link comes up, the right neighbour subscribes anew, so a link
that breaks for a moment loses nothing. If a link stays broken, one of its ends is dropped, and the view changes.

Invariants
    the numbers that a member takes go up by 1
    everything above ``acked`` that a member took is kept
    with the same view, a member never has a batch that its left neighbour has not had

Back of the envelope: a few dictionary operations a batch and member, whatever the number of messages in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from reference_broker.records import record
from reference_broker.types import NodeId


@record
class View:
    """Who is in the ring: the master first, then its mirrors by age. A later view has a higher number."""

    number: int
    members: tuple[NodeId, ...]


@record
class Content:
    """Send a batch to the right neighbour."""

    to: NodeId
    view: int
    number: int
    payload: bytes


@record
class Subscribe:
    """Tell the left neighbour how far this member has come."""

    to: NodeId
    view: int
    last: int


@record
class Ack:
    """Tell the right neighbour that everybody has the batches up to ``number``."""

    to: NodeId
    view: int
    number: int


Output = Content | Subscribe | Ack


class RingMember:
    """One member's state. Each method returns the outputs to send."""

    def __init__(self, here: NodeId, last: int = 0) -> None:
        """``last``: the number of the last batch that this member has."""
        self.here = here
        self.view = View(-1, ())
        self.last = last
        self.acked = last
        """Everybody has the batches up to this number."""
        self.is_ready = True
        """Whether this member can take batches: a new mirror first hears from the master where it begins."""
        self._kept: deque[tuple[int, bytes]] = deque()
        self._feeds = False
        """Whether the right neighbour has subscribed in this view."""
        self._early: dict[int, tuple[NodeId, int]] = {}
        """Subscriptions in later views: who, and how far it has come."""

    @property
    def kept(self) -> int:
        """Number of kept batches."""
        return len(self._kept)

    def enter(self, view: View) -> list[Output]:
        """A new view of the ring, with this member in it."""
        if view.number <= self.view.number:
            return []
        self.view, self._feeds = view, False
        outputs = self._subscription()
        self._early = {number: each for number, each in self._early.items() if number >= view.number}
        if (early := self._early.pop(view.number, None)) is not None:
            outputs += self.subscribed(early[0], view.number, early[1])
        return outputs

    def begin(self, last: int) -> list[Output]:
        """This new mirror has everything up to the batch ``last``."""
        self.is_ready, self.last, self.acked = True, last, last
        return self._subscription()

    def link_up(self, node: NodeId) -> list[Output]:
        """The link to a node is there again, or for the first time: what was sent to it before may be lost."""
        return self._subscription() if len(self.view.members) > 1 and node == self._beside(-1) else []

    def link_down(self, node: NodeId) -> None:
        """The link to a node broke. If the node is the right neighbour, it will subscribe anew."""
        if len(self.view.members) > 1 and node == self._right():
            self._feeds = False

    def subscribed(self, node: NodeId, view: int, last: int) -> list[Output]:
        """The right neighbour has everything up to ``last``, and wants the rest. The last ack may have been lost with
        the link, too."""
        if view > self.view.number:
            self._early[view] = node, last
        if view != self.view.number or node != self._right():
            return []
        self._feeds = True
        missing = [Content(node, view, number, payload) for number, payload in self._kept if number > last]
        return [Ack(node, view, self.acked), *missing]

    def broadcast(self, payload: bytes) -> list[Output]:
        """The master has a new batch."""
        self.last += 1
        self._kept.append((self.last, payload))
        return self._onward(self.last, payload)

    def take(self, view: int, number: int, payload: bytes) -> tuple[bool, list[Output]]:
        """A batch from the left neighbour. Returns whether it is new here."""
        if view != self.view.number or not self.is_ready:
            return False, []
        if self.here == self.view.members[0]:
            return False, self._returned(number)
        if number != self.last + 1:
            return False, []
        self.last = number
        self._kept.append((number, payload))
        return True, self._onward(number, payload)

    def ack(self, view: int, number: int) -> list[Output]:
        """Everybody has the batches up to ``number``. The master hears its own ack in the end."""
        if view != self.view.number or self.here == self.view.members[0] or number <= self.acked:
            return []
        self._forget(number)
        return [Ack(self._right(), view, number)] if self._feeds else []

    def all_have(self, number: int) -> None:
        """The master knows by other means that everybody has the batches up to ``number``."""
        self._forget(number)

    def _returned(self, number: int) -> list[Output]:
        if number <= self.acked:
            return []
        self._forget(number)
        return [Ack(self._right(), self.view.number, number)] if self._feeds else []

    def _forget(self, number: int) -> None:
        self.acked = max(self.acked, number)
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()

    def _onward(self, number: int, payload: bytes) -> list[Output]:
        return [Content(self._right(), self.view.number, number, payload)] if self._feeds else []

    def _subscription(self) -> list[Output]:
        """Subscribe to the left neighbour. The master has everything; it needs only the acks."""
        if not self.is_ready or len(self.view.members) < 2:
            return []
        last = self.acked if self.here == self.view.members[0] else self.last
        return [Subscribe(self._beside(-1), self.view.number, last)]

    def _right(self) -> NodeId:
        return self._beside(1)

    def _beside(self, step: int) -> NodeId:
        members: Sequence[NodeId] = self.view.members
        return members[(members.index(self.here) + step) % len(members)]
