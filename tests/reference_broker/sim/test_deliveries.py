"""Which deliveries a node may execute, as the simulator knows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reference_broker.queues.doubt import Doubt
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.sim.checks.fifo_checks import DeliveryChecks
from reference_broker.sim.checks.invariants import ViolationError
from reference_broker.sim.watch import NodeWatch
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId

NODE, LIFE, GROUP = NodeId(5), 1, GroupId(7)
CONSUMER = ConsumerId(ChannelId(NODE, LIFE, 9, 3), "tag")

Delivery = tuple[int, int, bool, int]
"""First id, how many, whether the node jumped over entries, how often its links broke if it was told."""


def execute(*deliveries: Delivery) -> None:
    known = DeliveryChecks()
    for first, count, gap, breaks in deliveries:
        known.executed(NODE, LIFE, CONSUMER, first, count, gap, breaks)


@pytest.mark.parametrize(
    "deliveries",
    [
        [(0, 8, False, 0), (8, 3, False, 0)],
        [(4, 2, False, 0), (6, 1, False, 0)],
        [(0, 8, True, 0), (10, 1, True, 0)],
        [(0, 11, False, 8), (0, 8, False, 10), (9, 2, False, 10), (11, 1, False, 10)],
    ],
    ids=["in order", "a later subscription of a tag", "a member that jumped", "a new leader tells what is held: not 8"],
)
def test_what_may_be(deliveries: list[Delivery]) -> None:
    execute(*deliveries)


@pytest.mark.parametrize(
    ("deliveries", "number"),
    [
        ([(0, 8, False, 0), (9, 1, False, 0)], "I20"),
        ([(0, 8, False, 0), (0, 8, False, 0)], "I26"),
        ([(0, 8, False, 4), (9, 1, False, 4)], "I20"),
    ],
    ids=["one is missing", "once more", "one is missing of what was told"],
)
def test_what_may_not_be(deliveries: list[Delivery], number: str) -> None:
    with pytest.raises(ViolationError, match=number):
        execute(*deliveries)


def tell_what_is_left(breaks: int) -> None:
    """The link had no room for the ids 8 and 9. When the node asks for them, the queue has taken them back."""
    known = DeliveryChecks()
    known.executed(NODE, LIFE, CONSUMER, 0, 8, False, breaks)
    known.missed(CONSUMER, 9)
    known.executed(NODE, LIFE, CONSUMER, 10, 1, False, breaks)


def test_after_a_break_what_was_left_out_may_be_taken_back() -> None:
    tell_what_is_left(1)


def test_without_a_break_what_was_left_out_must_come() -> None:
    with pytest.raises(ViolationError, match="I20"):
        tell_what_is_left(0)


def test_in_another_queue_of_the_name_ids_begin_anew() -> None:
    known = DeliveryChecks()
    for _ in range(2):
        known.executed(NODE, LIFE, CONSUMER, 0, 8, False, 0)
        known.queue_gone({CONSUMER.channel})


def test_the_end_of_another_queue_changes_nothing() -> None:
    known = DeliveryChecks()
    known.executed(NODE, LIFE, CONSUMER, 0, 8, False, 0)
    known.queue_gone({CONSUMER.channel}, {CONSUMER})
    with pytest.raises(ViolationError, match="I20"):
        known.executed(NODE, LIFE, CONSUMER, 9, 1, False, 0)


def test_a_channel_that_is_closed_begins_nothing_anew() -> None:
    """The next leader tells a node without a member what is held there, and that node has yet to say who is gone."""
    known = DeliveryChecks()
    known.executed(NODE, LIFE, CONSUMER, 0, 8, False, 1)
    known.queue_gone(set())
    known.executed(NODE, LIFE, CONSUMER, 5, 1, False, 2)
    known.executed(NODE, LIFE, CONSUMER, 7, 1, False, 2)


def test_a_member_that_leaves_delivers_what_it_kept_in_its_doubt() -> None:
    """It has no runner any more, and its doubts still say that messages may have been taken back. In the simulator's
    world 5200443, two of three messages were."""
    member = object.__new__(QuorumMember)
    member._doubt = Doubt()
    member._doubt.begin()
    queue = SimpleNamespace(member=member)
    watch = NodeWatch(NODE, *cast("Any", (None, SimpleNamespace(raft=None, story=None), None)))
    owned, hosting = SimpleNamespace(runners={}), SimpleNamespace(by_group={GROUP: queue})
    watch.shard = cast("Any", SimpleNamespace(owned=owned, hosting=hosting, runners={}))
    assert watch._doubts_before(GROUP, CONSUMER, 10, 1, is_group=True) == 1
    assert watch._doubts_before(GROUP, CONSUMER, 10, 1, is_group=False) == 0
