"""When a mirror becomes the owner, clients hear of it at once, even if the link to the former owner has not broken."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.machines.commands import Settle
from reference_broker.node.config import Limits
from reference_broker.node.replication.proxy import Proxy
from reference_broker.queues.classic import CLASSIC
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId, Priority, Term

OWNER, ME, OTHER = NodeId(1), NodeId(2), NodeId(3)
RECORD = QueueRecord(name="q", group=GroupId(7), members=(OWNER,), leader=OWNER, mirrors=(Mirror(ME, 1, 5, True),))
OLD = Settle(ConsumerId(ChannelId(ME, 1, 1, 1), ""), ((0, 0),))
ANEW = Settle(ConsumerId(ChannelId(ME, 1, 1, 1), "c"), ((0, 0),))


class Node:
    """The node of the clients."""

    node, boot_id, limits, congested = ME, 1, Limits(), frozenset[NodeId]()
    anatomy = Anatomy(clock=1)

    def __init__(self) -> None:
        self.lost: list[QueueRecord] = []
        self.proxy = Proxy(RECORD, CLASSIC, self, lambda: 0, None, self._lost)  # type: ignore[arg-type]
        self.proxy.leading(OWNER, Term(1), 0, 0)
        self.proxy.propose(OLD, 1, Priority.NORMAL)

    def _lost(self, record: QueueRecord) -> None:
        """A channel subscribes its consumers anew."""
        self.lost.append(record)
        self.proxy.propose(ANEW, 1, Priority.NORMAL)

    def send(self, *_: Any) -> int:
        return 0

    def now_ns(self) -> int:
        return 1

    def wake(self, *_: Any) -> None: ...

    @property
    def handed_over(self) -> list[Any]:
        """The commands that the next owner gets."""
        return [command for each in self.proxy.unapplied for _number, command, _octets in each.all()]


@pytest.mark.parametrize("link_broke_first", [True, False])
def test_the_next_owner_is_here(link_broke_first: bool) -> None:
    """What was said to the former owner is void, and consumers subscribe anew, once. In the simulator's world 2000680,
    a node heard of its new queue before it heard that the former owner had died."""
    node = Node()
    if link_broke_first:
        node.proxy.peer_down(OWNER)
    node.proxy.owned_here()
    assert node.lost == [RECORD]
    assert node.handed_over == [ANEW]


def test_the_next_owner_is_elsewhere() -> None:
    """Clients hear of it as users of a queue that had mirrors, even if the next owner has none yet."""
    node = Node()
    node.proxy.members_changed(QueueRecord(name="q", group=GroupId(7), members=(OTHER,), leader=OTHER))
    assert node.lost == [RECORD]
    assert node.handed_over == [ANEW]
