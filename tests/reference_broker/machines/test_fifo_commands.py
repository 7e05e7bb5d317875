"""What each command does, one claim a test."""

from __future__ import annotations

import pytest

from reference_broker.machines.batch import DamagedBatchError
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    Discard,
    Enqueue,
    Label,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
)
from reference_broker.machines.config import FifoConfig, KeyedConfig
from reference_broker.machines.effects import Confirm, Deliver, Effect, MonitorNode, Reply, SetTimer, Span
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.types import ConsumerId, LogIndex, NodeId

from .logs import TERM, apply, batch, channel, consumer, drained, held, machine, run_of, run_with, told

P = channel(1, number=9)
A, B, C = consumer(1), consumer(2), consumer(3)


def enqueue(first_seq: int, count: int) -> Enqueue:
    return Enqueue(P, first_seq, run_of(count))


def checkout(who: ConsumerId, credit: int = 1000, priority: int = 0) -> Checkout:
    return Checkout(who, credit, False, priority, 1)


def positions(effects: list[Effect], who: ConsumerId) -> list[int]:
    """Positions in their run of what this consumer was delivered."""
    return [place[2] for _id, place, _count in told(effects).delivered.get(who, [])]


def ids(effects: list[Effect], who: ConsumerId) -> list[int]:
    return [number for number, _place, _count in told(effects).delivered.get(who, [])]


def confirms(effects: list[Effect]) -> list[tuple[int, int]]:
    return [(effect.first, effect.last) for effect in effects if isinstance(effect, Confirm)]


def same_state(left: FifoMachine, right: FifoMachine) -> bool:
    return left.snapshot() == right.snapshot()


# Enqueueing


def test_a_run_is_confirmed_and_waits() -> None:
    """Without consumers, messages are kept and their publisher hears so."""
    queue = machine()
    assert apply(queue, enqueue(1, 5)) == [MonitorNode(NodeId(1)), Confirm(P, 1, 5)]
    assert queue.counts().ready == 5


def test_a_repeated_run_is_confirmed_but_not_enqueued() -> None:
    """A publisher whose confirm was lost sends again; its messages must not be there twice."""
    queue = machine()
    apply(queue, enqueue(1, 5))
    assert confirms(apply(queue, enqueue(1, 5), enqueue(2, 2))) == [(1, 5), (2, 3)]
    assert queue.counts().ready == 5


def test_only_the_new_end_of_a_run_is_enqueued() -> None:
    """After a leader change a channel may cut its runs anew: 4-5 are known, 6-8 are new."""
    queue = machine()
    apply(queue, enqueue(1, 5), checkout(A))
    effects = apply(queue, enqueue(4, 5))
    assert confirms(effects) == [(4, 8)]
    assert positions(effects, A) == [2, 3, 4]
    assert queue.counts().enqueued == 8


def test_a_gap_is_neither_enqueued_nor_confirmed() -> None:
    """Messages 6-7 are on their way again: to accept 8 now would put it before them."""
    queue = machine()
    apply(queue, enqueue(1, 5))
    assert apply(queue, enqueue(8, 2)) == []
    assert confirms(apply(queue, enqueue(6, 2))) == [(6, 7)]
    assert queue.counts().enqueued == 7


def test_an_unknown_channel_must_begin_at_one() -> None:
    """A run of a channel that is gone already must not bring it back."""
    queue = machine()
    assert apply(queue, enqueue(3, 2)) == []
    assert queue.channels() == []


def test_an_untracked_enqueue_is_kept_without_confirm() -> None:
    """Publishers without confirms, and the broker itself, have no sequence numbers."""
    queue = machine()
    assert apply(queue, enqueue(0, 2), enqueue(0, 2)) == []
    assert queue.counts().ready == 4
    assert queue.channels() == []


def test_confirms_of_one_entry_are_joined() -> None:
    """Ten small runs in one entry make one basic.ack."""
    assert confirms(apply(machine(), *[enqueue(1 + 3 * turn, 3) for turn in range(10)])) == [(1, 30)]


# Dealing


def test_one_consumer_gets_a_run_as_one_span() -> None:
    """500 messages are one effect with one span: that is what makes an entry cheap."""
    queue = machine()
    apply(queue, checkout(A))
    [_confirm, delivery] = [effect for effect in apply(queue, enqueue(1, 500)) if not isinstance(effect, MonitorNode)]
    assert isinstance(delivery, Deliver)
    assert (delivery.first_message_id, delivery.delivery_count) == (0, 0)
    [span] = delivery.spans
    assert (span.index, span.start, span.count, span.step) == (2, 0, 500, 1)


def test_three_consumers_get_every_third_message() -> None:
    """Round robin per message, in strides: nobody waits for the others' share."""
    queue = machine()
    apply(queue, checkout(A), checkout(B), checkout(C))
    effects = apply(queue, enqueue(1, 8))
    assert [positions(effects, who) for who in (A, B, C)] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert queue.service_order() == [C, A, B]
    assert all(len(effect.spans) == 1 for effect in effects if isinstance(effect, Deliver))


def test_credit_stops_and_settling_restarts() -> None:
    """Prefetch is a promise: never more unacked messages than the consumer asked for."""
    queue = machine()
    apply(queue, checkout(A, 2), enqueue(1, 5))
    assert queue.counts().unacked == 2
    assert ids(apply(queue, Settle(A, ((0, 0),))), A) == [2]
    assert ids(apply(queue, Settle(A, ((1, 2),))), A) == [3, 4]


def test_a_higher_priority_is_served_until_its_credit_is_used() -> None:
    """x-priority: lower priorities get what higher ones cannot take."""
    queue = machine()
    apply(queue, checkout(A), checkout(B, 3, priority=5))
    effects = apply(queue, enqueue(1, 5))
    assert positions(effects, B) == [0, 1, 2]
    assert positions(effects, A) == [3, 4]


def test_a_no_ack_consumer_never_runs_out_of_credit() -> None:
    """With no-ack a message is settled once dealt; nothing is kept for it."""
    queue = machine()
    apply(queue, Checkout(A, 1, True, 0, 1))
    assert positions(apply(queue, enqueue(1, 50)), A) == list(range(50))
    counts = queue.counts()
    assert (counts.settled, counts.unacked, counts.ready) == (50, 0, 0)
    assert queue.redeliver_local(NodeId(1), 1) == []
    assert queue.live_entries() == []


# Settling, returning, discarding


@pytest.mark.parametrize("kind", [Settle, Return, Discard])
@pytest.mark.parametrize("ranges", [((3, 9),), ((0, 0), (0, 0)), ((1, 0),), ()])
def test_ids_that_are_not_held_change_nothing(
    kind: type[Settle] | type[Return] | type[Discard], ranges: tuple[tuple[int, int], ...]
) -> None:
    """I27. A late ack, for what was already returned, must not touch anybody's message."""
    late, idle = machine(), machine()
    for queue in (late, idle):
        apply(queue, enqueue(1, 3), checkout(A), Settle(A, ((0, 0),)))
    assert apply(late, kind(A, ranges), kind(B, ranges)) == apply(idle) == []
    assert same_state(late, idle)


def test_a_returned_message_comes_before_all_that_are_ready() -> None:
    """Requeue keeps the queue's order, whatever was returned first."""
    queue = machine()
    apply(queue, checkout(A, 3), enqueue(1, 6))
    apply(queue, Cancel(A, 1), Return(A, ((2, 2),)), Return(A, ((0, 0),)))
    assert [(place[2], count) for place, count in drained(queue)] == [(0, 1), (2, 1), (3, 0), (4, 0), (5, 0)]
    assert positions(apply(queue, checkout(C)), C) == [0, 2, 3, 4, 5]


def test_a_redelivery_counts_and_gets_a_new_id() -> None:
    """*redelivered* must be set, and the old id must be dead."""
    queue = machine()
    apply(queue, checkout(A), enqueue(1, 2))
    effects = apply(queue, Return(A, ((0, 1),)))
    assert told(effects).delivered[A] == [(2, (1, held_offset(effects), 0), 1), (3, (1, held_offset(effects), 1), 1)]
    apply(queue, Settle(A, ((0, 1),)))
    assert queue.counts().unacked == 2


def held_offset(effects: list[Effect]) -> int:
    [delivery] = [effect for effect in effects if isinstance(effect, Deliver)]
    return delivery.spans[0].offset


def test_interleaved_returns_are_dealt_in_message_order() -> None:
    """Two consumers that took turns die together: their messages must be shuffled back into place."""
    queue = machine()
    apply(queue, checkout(A), checkout(consumer(1, "b")), enqueue(1, 6))
    apply(queue, ChannelDown(A.channel))
    effects = apply(queue, checkout(C))
    assert positions(effects, C) == [0, 1, 2, 3, 4, 5]
    [delivery] = [effect for effect in effects if isinstance(effect, Deliver)]
    assert len(delivery.spans) == 1


def test_the_delivery_limit_drops_what_comes_back_too_often() -> None:
    """A message that kills its consumers must not do so for ever: limit 2 allows three deliveries."""
    queue = machine(delivery_limit=2)
    apply(queue, checkout(A), enqueue(1, 1))
    counts = [told(apply(queue, Return(A, ((turn, turn),)))).delivered.get(A, []) for turn in range(3)]
    assert [[delivery[2] for delivery in one] for one in counts] == [[1], [2], []]
    assert (queue.counts().delivery_limited, queue.counts().ready, queue.counts().unacked) == (1, 0, 0)


def test_a_discarded_message_is_gone() -> None:
    """basic.reject without requeue."""
    queue = machine()
    apply(queue, checkout(A, 1), enqueue(1, 2))
    assert ids(apply(queue, Discard(A, ((0, 0),))), A) == [1]
    assert queue.counts().discarded == 1


# Consumers that come and go


def test_the_reply_to_a_checkout_comes_before_its_deliveries() -> None:
    """basic.consume-ok must be on the wire before the first basic.deliver."""
    queue = machine()
    apply(queue, enqueue(1, 2))
    effects = apply(queue, checkout(A))
    assert [type(effect) for effect in effects] == [MonitorNode, Reply, Deliver]


def test_the_reply_to_a_cancel_comes_after_what_was_dealt_before() -> None:
    """After basic.cancel-ok a client expects nothing more."""
    queue = machine()
    apply(queue, checkout(A))
    effects = apply(queue, enqueue(1, 2), Cancel(A, 7), enqueue(3, 1))
    assert [type(effect) for effect in effects] == [MonitorNode, Confirm, Deliver, Reply]
    assert ids(effects, A) == [0, 1]
    assert queue.counts().ready == 1


def test_cancel_leaves_unacked_messages_where_they_are() -> None:
    """A client may cancel first and settle afterwards."""
    queue = machine()
    apply(queue, checkout(A), enqueue(1, 3), Cancel(A, 1))
    assert queue.counts().unacked == 3
    assert queue.counts().consumers == 0
    apply(queue, Settle(A, ((0, 2),)))
    assert queue.counts().settled == 3
    apply(queue, ChannelDown(A.channel))
    assert A.channel not in queue.channels()


def test_ids_of_a_consumer_that_is_gone_are_not_used_again() -> None:
    """A member that catches up deals late to the former consumer: it must not pass for the one of the same tag now."""
    queue = machine()
    apply(queue, checkout(A, 4), enqueue(1, 3), Settle(A, ((0, 2),)), Cancel(A, 1))
    restored = FifoMachine.restore(queue.snapshot())
    for each in (queue, restored):
        effects = apply(each, checkout(A, 4), enqueue(4, 2))
        assert [effect.value for effect in effects if isinstance(effect, Reply)] == [3]
        assert ids(effects, A) == [3, 4]


def test_subscribing_again_goes_on_with_ids_and_reduced_credit() -> None:
    """Re-subscription with messages in hand: these count against the new prefetch, and ids are not used twice."""
    queue = machine()
    apply(queue, checkout(A, 4), enqueue(1, 10), Cancel(A, 1))
    effects = apply(queue, checkout(A, 5))
    assert [effect.value for effect in effects if isinstance(effect, Reply)] == [4]
    assert ids(effects, A) == [4]


def test_a_smaller_prefetch_waits_until_enough_is_settled() -> None:
    """I17: the new prefetch holds from the moment the old messages are worked off."""
    queue = machine()
    apply(queue, checkout(A, 4), enqueue(1, 10))
    assert ids(apply(queue, checkout(A, 2)), A) == []
    assert ids(apply(queue, Settle(A, ((0, 1),))), A) == []
    assert ids(apply(queue, Settle(A, ((2, 2),))), A) == [4]


def test_a_dead_channels_messages_go_to_the_next_consumer_in_order() -> None:
    """The alternate scenario of local delivery: nothing of a dead consumer is lost."""
    queue = machine()
    apply(queue, checkout(A), enqueue(1, 3), checkout(B))
    effects = apply(queue, ChannelDown(A.channel))
    assert positions(effects, B) == [0, 1, 2]
    assert {count for _id, _place, count in told(effects).delivered[B]} == {1}


def test_a_dead_enqueuer_is_forgotten() -> None:
    """Deduplication lasts as long as the channel: its state must not grow with every connection ever made."""
    queue = machine()
    apply(queue, enqueue(1, 2), ChannelDown(P))
    assert queue.channels() == []


def test_a_node_out_of_sight_loses_its_messages_but_not_its_consumers() -> None:
    """A partition is not death: its consumer goes on with the next ids when the node is back."""
    queue = machine()
    apply(queue, checkout(A), enqueue(1, 2), NodeDown(NodeId(1)))
    assert (queue.counts().ready, queue.counts().unacked, queue.counts().consumers) == (2, 0, 1)
    assert queue.service_order() == []
    effects = apply(queue, NodeUp(NodeId(1), 1))
    assert ids(effects, A) == [2, 3]


def test_a_consumer_that_is_cancelled_while_its_node_is_out_of_sight_is_no_concern_of_the_nodes_return() -> None:
    """Its channel goes with it, as it has published nothing. The news of the node then stopped every member."""
    queue = machine()
    apply(queue, checkout(A), NodeDown(NodeId(1)), Cancel(A, 2))
    assert queue.channels() == []
    assert apply(queue, NodeUp(NodeId(1), 1)) == []
    apply(queue, checkout(A), NodeDown(NodeId(1)), NodeUp(NodeId(1), 1), enqueue(1, 1))
    assert queue.counts().unacked == 1


def test_a_node_that_was_restarted_comes_without_its_old_channels() -> None:
    """A new life knows nothing of the old one's consumers: messages dealt to them would never be settled."""
    queue = machine()
    apply(queue, checkout(A), enqueue(1, 2), checkout(B))
    effects = apply(queue, NodeUp(NodeId(1), 2))
    assert positions(effects, B) == [0, 1]
    assert queue.channels() == [B.channel]


@pytest.mark.parametrize("late", [checkout(A), enqueue(1, 2)])
def test_a_late_command_of_a_former_life_is_ignored(late: Command) -> None:
    """It was on its way when its node died; nobody would ever report that channel gone."""
    queue = machine()
    apply(queue, NodeUp(NodeId(1), 2))
    assert apply(queue, late) == []
    assert queue.channels() == []


def test_ids_lost_to_a_partition_are_never_given_again() -> None:
    """The client may still settle id 0 after the partition; a new id 0 would make it settle another message."""
    queue = machine()
    apply(queue, checkout(A), enqueue(1, 1), Cancel(A, 1), NodeDown(NodeId(1)), NodeUp(NodeId(1), 1))
    apply(queue, Settle(A, ((0, 0),)))
    effects = apply(queue, checkout(A))
    assert ids(effects, A) == [1]
    apply(queue, Settle(A, ((0, 0),)))
    assert queue.counts().unacked == 1


def test_purge_takes_ready_messages_only() -> None:
    """queue.purge: what consumers hold stays theirs."""
    queue = machine()
    apply(queue, checkout(A, 2), enqueue(1, 6))
    apply(queue, Cancel(A, 1), Return(A, ((1, 1),)))
    assert apply(queue, Purge(P, 3)) == [Reply(P, 3, 5)]
    counts = queue.counts()
    assert (counts.ready, counts.unacked, counts.purged) == (0, 1, 5)
    assert queue.live_entries() == [(1, 1)]


# What the shell asks


def test_a_new_leader_watches_every_node_with_channels() -> None:
    """Monitors die with the old leader; a node missed here would keep its dead consumers for ever."""
    queue = machine()
    apply(queue, enqueue(1, 1), checkout(C), checkout(B))
    assert queue.become_leader(0) == [MonitorNode(NodeId(1)), MonitorNode(NodeId(2)), MonitorNode(NodeId(3))]


def test_a_subscription_asks_for_its_node_to_be_watched_each_time() -> None:
    """If the node is away already, only asking again makes the leader say so."""
    queue = machine()
    apply(queue, checkout(A), NodeDown(NodeId(1)))
    assert MonitorNode(NodeId(1)) in apply(queue, checkout(A))


def test_news_of_a_node_that_changes_anything_is_asked_for_again() -> None:
    """It may be a deposed leader's, which the node proposed again when it found the new one: without a second look the
    consumers of a node that is up would be suspected for ever."""
    queue = machine()
    apply(queue, checkout(A))
    for news in (NodeDown(NodeId(1)), NodeUp(NodeId(1), 1)):
        assert MonitorNode(NodeId(1)) in apply(queue, news)
        assert MonitorNode(NodeId(1)) not in apply(queue, news), "the leader's own answer must not ask again"


def test_redelivery_after_a_gap_covers_just_this_life_of_this_node() -> None:
    """A member that jumped over entries by a snapshot owes its consumers what they hold, under the same ids."""
    queue = machine()
    apply(queue, checkout(A), checkout(B), enqueue(1, 6))
    apply(queue, Settle(A, ((1, 1),)), Return(B, ((0, 0),)))
    delivered = told(queue.redeliver_local(NodeId(1), 1)).delivered
    assert delivered == {A: held(queue)[A]}
    assert [number for number, _place, _count in delivered[A]] == [0, 2, 3]
    assert [count for _id, _place, count in delivered[A]] == [0, 0, 1]
    assert queue.redeliver_local(NodeId(1), 2) == []


def test_live_entries_are_those_that_messages_still_lie_in() -> None:
    """The log is cut by this: one entry too few and a message is lost, one too many and disks fill up."""
    queue = machine()
    for turn in range(10):
        apply(queue, enqueue(1 + turn, 1))
    apply(queue, checkout(A, 6), Settle(A, ((1, 2), (4, 4))))
    assert queue.live_entries() == [(1, 1), (4, 4), (6, 10)]


def test_a_damaged_entry_changes_nothing() -> None:
    """The shell stops at it; until then the member must be able to answer from its state."""
    queue = machine()
    apply(queue, enqueue(1, 3))
    before = queue.snapshot()
    with pytest.raises(DamagedBatchError):
        queue.apply(Meta(LogIndex(2), TERM), batch(enqueue(4, 3))[:-1])
    assert queue.snapshot() == before


def test_spans_point_at_the_entry_and_the_run() -> None:
    """Two runs in one entry: each span names its own offset."""
    queue = machine()
    apply(queue, checkout(A))
    payload = batch(enqueue(1, 2), enqueue(3, 2))
    [_monitor, _confirm, delivery] = queue.apply(Meta(LogIndex(40), TERM), payload)
    assert isinstance(delivery, Deliver)
    first, second = delivery.spans
    assert first == Span(LogIndex(40), first.offset, 0, 2)
    assert second == Span(LogIndex(40), second.offset, 0, 2)
    assert first.offset < second.offset < len(payload)


def test_a_keyed_queue_does_not_sleep_over_an_entry_that_was_all_applied_before() -> None:
    """The entry lets time pass: a delay is over, and no command follows by which the queue deals. The member asks for
    the leader's timer, and so does a member that leads later. In the simulator's world 5300455, messages waited though
    a consumer had credit."""
    queue = FifoMachine(FifoConfig(name="q", keyed=KeyedConfig()))
    one, message = consumer(1), Enqueue(channel(1), 1, run_with(10), labels=((1, Label(b"a", 50, -1)),))
    apply(queue, Checkout(one, 10, auto_settle=False, priority=0, correlation=1), message, time_ms=100)
    late = batch(message, time_ms=1000)
    effects = queue.apply(Meta(LogIndex(queue.applied + 1), TERM), late, None, frozenset({0}))
    assert effects == [SetTimer(1000)]
    assert SetTimer(2000) in queue.become_leader(2000)
    (delivery,) = [each for each in apply(queue, Tick(), time_ms=1001) if isinstance(each, Deliver)]
    assert delivery.consumer == one
