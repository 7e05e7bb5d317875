"""A classic queue on its owner: who is told what and when, what is read from the drive, and what a restart finds."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from reference_broker.machines.commands import (
    Checkout,
    Command,
    Discard,
    Enqueue,
    Get,
    Purge,
    Return,
    Settle,
    Tick,
)
from reference_broker.types import ChannelId, ConsumerId, NodeId
from tests.reference_broker.queues.classic_world import HERE, START_MS, Classic, Told, body_of, content, run_of

A, B = ChannelId(HERE, 1, 1, 1), ChannelId(HERE, 1, 1, 2)
CONSUMER = ConsumerId(ChannelId(HERE, 1, 1, 3), "c")
OTHER = ConsumerId(ChannelId(HERE, 1, 1, 4), "d")


def publish(
    channel: ChannelId, seq: int, *bodies: bytes, persistent: bool = True, priority: int | None = None, ttl_ms: int = -1
) -> Enqueue:
    messages = [content(body, persistent=persistent, priority=priority) for body in bodies]
    return Enqueue(channel, seq, run_of(*messages), ttl_ms)


def consume(consumer: ConsumerId = CONSUMER, credit: int = 100) -> Checkout:
    return Checkout(consumer, credit, False, 0, 1)


def delivered(calls: list[tuple[object, ...]]) -> list[tuple[bytes, bool]]:
    """The bodies delivered, in order, and whether each is flagged as redelivered."""
    found: list[tuple[bytes, bool]] = []
    for kind, *details in calls:
        if kind == "deliver":
            _consumer, _first, bodies, redelivered = details
            found += [(body, bool(redelivered)) for body in bodies]  # type: ignore[attr-defined]
    return found


def firsts(*bodies: bytes) -> list[tuple[bytes, bool]]:
    return [(body, False) for body in bodies]


def again(*bodies: bytes) -> list[tuple[bytes, bool]]:
    return [(body, True) for body in bodies]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("durable", "persistent"), [(True, True), (True, False), (False, True), (False, False)])
def test_only_what_must_survive_is_confirmed_late(durable: bool, persistent: bool, lazy: bool) -> None:
    """A publisher that was confirmed too early loses messages; one that waits without need is slow. A lazy queue keeps
    no message in memory, so its publishers wait for the drive in any case."""
    queue = Classic(durable=durable, lazy=lazy)
    at_once = queue.apply(publish(A, 1, b"a", b"b", persistent=persistent))
    late = queue.written()
    told = [("confirm", A, 2)]
    assert (at_once, late) == (([], told) if lazy or (durable and persistent) else (told, []))


def test_answers_to_a_channel_keep_their_order_and_others_do_not_wait() -> None:
    """A confirm is for all publishes before it, so it must not overtake the confirm of an earlier message."""
    queue = Classic()
    assert queue.apply(publish(A, 1, b"a"), publish(B, 1, b"b", persistent=False)) == [("confirm", B, 1)]
    assert queue.apply(publish(A, 2, b"c", persistent=False)) == []
    assert queue.written() == [("confirm", A, 2)]
    assert queue.apply(publish(A, 3, b"d", persistent=False)) == [("confirm", A, 3)]


def test_refusals_wait_behind_the_confirms_before_them() -> None:
    queue = Classic(max_length=2, overflow="reject-publish")
    assert queue.apply(publish(A, 1, b"a", b"b", b"c")) == []
    assert queue.apply(publish(A, 4, b"d", persistent=False)) == []
    assert queue.written() == [("confirm", A, 2), ("rejected", A, 3, 3), ("rejected", A, 4, 4)]


def test_a_confirm_waits_for_its_own_messages() -> None:
    """The store tells how far it has come; a later message is not there yet."""
    queue = Classic()
    queue.apply(publish(A, 1, b"a"))
    queue.store.run_pending()
    queue.apply(publish(A, 2, b"b"))
    (seq_end,) = queue.stored
    queue.stored.clear()
    queue.member.stored(seq_end)
    queue.turns()
    assert queue.told.take() == [("confirm", A, 1)]
    assert queue.written() == [("confirm", A, 2)]


def test_a_node_that_catches_up_is_not_told_of_confirms_that_wait() -> None:
    """Its channels would take for safe what is in memory only."""
    queue = Classic()
    queue.apply(publish(A, 1, b"a", persistent=False))
    queue.apply(publish(A, 2, b"b"))
    queue.member.catch_up(queue.told, [])
    queue.turns()
    assert queue.told.take() == []
    assert queue.written() == [("confirm", A, 2)]


@pytest.mark.parametrize("ttl_ms", [0, 1])
def test_a_message_without_any_time_is_for_a_consumer_that_waits_and_for_no_get(ttl_ms: int) -> None:
    """As in RabbitMQ. A client publishes, has its confirm and gets, all within a millisecond."""
    queue = Classic()
    queue.apply(publish(A, 1, b"a", persistent=False, ttl_ms=ttl_ms))
    assert delivered(queue.apply(Get(CONSUMER, True, 1))) == ([] if ttl_ms == 0 else firsts(b"a"))
    queue.apply(consume(OTHER))
    assert delivered(queue.apply(publish(A, 2, b"b", persistent=False, ttl_ms=ttl_ms))) == firsts(b"b")


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_channel_behind_a_link_that_broke_gets_no_answer_of_before(is_stored: bool) -> None:
    """It counts its publishes from 1 again. With a confirm of before it would take for safe what never came here."""
    there = Told(NodeId(2), 9)
    queue = Classic(others=(there,))
    channel = ChannelId(NodeId(2), 9, 1, 1)
    queue.apply(publish(channel, 1, b"a", b"b", b"c"), publish(A, 1, b"d"))
    if is_stored:
        queue.store.run_pending()
        queue.member.stored(queue.stored.pop())
    queue.apply(*queue.member.ends_of(NodeId(2)))
    queue.written()
    queue.member.catch_up(there, [])
    queue.turns()
    assert there.take() == []
    queue.apply(publish(channel, 1, b"e"))
    queue.written()
    assert there.take() == [("confirm", channel, 1)]


def test_who_catches_up_gets_what_its_consumers_hold_and_the_replies_it_missed() -> None:
    there = Told(NodeId(2), 9)
    queue = Classic(others=(there,))
    consumer = ConsumerId(ChannelId(NodeId(2), 9, 1, 1), "c")
    queue.apply(publish(A, 1, b"a"), consume(consumer))
    first = there.take()
    queue.member.catch_up(there, [consume(consumer)])
    queue.turns()
    assert first == [("reply", consumer.channel, 1, 0), ("deliver", consumer, 0, [b"a"], False)]
    assert there.take() == first


def test_effects_go_to_the_node_of_their_channel_and_start() -> None:
    """Channel numbers begin anew at each start of a node: a client would get what is not its own."""
    there = Told(NodeId(2), 9)
    queue = Classic(others=(there,))
    for life in (8, 9):
        queue.apply(publish(ChannelId(NodeId(2), life, 1, 1), 1, b"a", persistent=False))
    assert there.take() == [("confirm", ChannelId(NodeId(2), 9, 1, 1), 1)]
    ends = {each.channel for each in queue.member.ends_of(NodeId(2))}
    assert ends == {ChannelId(NodeId(2), life, 1, 1) for life in (8, 9)}
    assert not queue.member.ends_of(NodeId(3))


@pytest.mark.parametrize("order", [(3, 1, 0, 2), (0, 1, 2, 3), (2, 3, 0, 1)])
def test_requeued_messages_come_back_in_their_old_order(order: tuple[int, ...]) -> None:
    """In whatever order they come back, and before what was never delivered."""
    queue = Classic()
    queue.apply(publish(A, 1, b"1", b"2"), publish(A, 3, b"3", b"4", b"5"))
    getter = ConsumerId(CONSUMER.channel, "")
    queue.apply(*[Get(getter, False, each) for each in range(4)])
    for message_id in order:
        queue.apply(Return(getter, ((message_id, message_id),)))
    assert delivered(queue.apply(consume())) == again(b"1", b"2", b"3", b"4") + firsts(b"5")


@pytest.mark.parametrize("lazy", [False, True])
def test_after_a_clean_stop_only_what_was_delivered_is_flagged(lazy: bool) -> None:
    queue = Classic(lazy=lazy)
    queue.apply(publish(A, 1, b"1", b"2", b"3", b"4"), consume(credit=3))
    queue.apply(Settle(CONSUMER, ((1, 1),)))
    queue.apply(Return(CONSUMER, ((0, 0),)))
    queue.restart(clean=True)
    assert delivered(queue.apply(consume())) == again(b"1", b"3", b"4")


def test_what_was_never_delivered_is_not_flagged_after_a_clean_stop() -> None:
    queue = Classic()
    queue.apply(publish(A, 1, b"1", b"2", b"3"), consume(credit=1))
    queue.restart(clean=True)
    assert delivered(queue.apply(consume())) == again(b"1") + firsts(b"2", b"3")


@pytest.mark.parametrize("lost_power", [False, True])
def test_after_a_kill_the_confirmed_messages_are_there_in_order(lost_power: bool) -> None:
    queue = Classic()
    queue.apply(publish(A, 1, b"1", b"2"), publish(A, 3, b"t", persistent=False), publish(A, 4, b"3"))
    queue.written()
    queue.apply(publish(A, 5, b"4"))
    queue.restart(lost_power=lost_power)
    assert delivered(queue.apply(consume())) == again(b"1", b"2", b"3")


def test_messages_keep_their_time_to_live_over_a_restart() -> None:
    """And the node is told when the first of them expires."""
    queue = Classic()
    queue.apply(publish(A, 1, b"short", ttl_ms=50), publish(A, 2, b"long"))
    queue.written()
    queue.restart()
    queue.turns()
    assert queue.told.take() == [("timer", START_MS + 50)]
    queue.now_ms += 50
    assert delivered(queue.apply(Tick(), consume())) == again(b"long")


def test_a_part_that_is_read_back_is_one_read_in_a_turn() -> None:
    """The event loop serves everybody else between two reads. Nothing overtakes the messages that wait."""
    queue = Classic(lazy=True)
    for turn in range(4):
        queue.apply(publish(A, 2 * turn + 1, b"%d" % turn, b"%d." % turn))
    queue.written()
    counters, reads = queue.store.counters, [queue.store.counters.classic_reads]
    queue.member.apply([consume(), Get(ConsumerId(B, ""), False, 5)])
    calls, left = [], True
    while left:
        left = queue.member.run_effects()
        reads.append(counters.classic_reads)
        calls.append(queue.told.take())
    assert [after - before for before, after in pairwise(reads)] == [1, 1, 1, 1]
    assert [delivered(each) for each in calls] == [firsts(b"%d" % turn, b"%d." % turn) for turn in range(4)]
    assert calls[-1][-1] == ("reply", B, 5, 0)


def test_confirms_do_not_wait_for_reads() -> None:
    queue = Classic(lazy=True)
    queue.apply(publish(A, 1, b"1"))
    queue.apply(publish(A, 2, b"2"))
    queue.written()
    queue.member.apply([consume(), publish(B, 1, b"t", persistent=False)])
    queue.write()
    assert queue.member.run_effects(), "more than one part is to be read"
    assert [call for call in queue.told.take() if call[0] == "confirm"] == [("confirm", B, 1)]


def test_a_message_that_goes_at_once_is_delivered_with_its_body() -> None:
    """It leaves the store with the command that deals it: by automatic settling, or as a dead letter."""
    queue = Classic(dead_letter_exchange="", max_length=1)
    getter = ConsumerId(CONSUMER.channel, "")
    assert delivered(queue.apply(publish(A, 1, b"a"), Get(getter, True, 7))) == firsts(b"a")
    calls = queue.apply(publish(A, 2, b"b", b"c"))
    assert [call for call in calls if call[0] == "dead letter"] == [("dead letter", 0, "maxlen", [b"b"])]
    calls = queue.apply(consume(), Discard(CONSUMER, ((0, 9),)))
    assert calls[-1] == ("dead letter", 0, "rejected", [b"c"])
    queue.written()
    assert queue.store.memory_bytes == 0


def test_priorities_are_served_highest_first_and_survive() -> None:
    """Messages without a priority have the lowest, and a priority above the queue's counts as the queue's."""
    queue = Classic(max_priority=4)
    queue.apply(publish(A, 1, b"none"), publish(A, 2, b"2", priority=2), publish(A, 3, b"9", priority=9))
    mixed = run_of(content(b"4", persistent=True, priority=4), content(b"0", persistent=True, priority=0))
    queue.apply(Enqueue(A, 4, mixed))
    queue.written()
    queue.restart()
    assert delivered(queue.apply(consume(credit=3))) == again(b"9", b"4", b"2")
    calls = queue.apply(publish(A, 1, b"new", priority=2), Return(CONSUMER, ((2, 2),)))
    assert delivered(calls) == again(b"2")
    assert delivered(queue.apply(Settle(CONSUMER, ((0, 9),)))) == firsts(b"new") + again(b"none", b"0")


def test_a_get_works_beside_a_single_active_consumer() -> None:
    queue = Classic(single_active_consumer=True)
    queue.apply(publish(A, 1, b"a", b"b"), consume(credit=1))
    getter = ConsumerId(A, "")
    assert delivered(queue.apply(Get(getter, True, 7))) == firsts(b"b")


def directories(queue: Classic) -> list[str]:
    return [name for sort in ("durable", "transient") for name in queue.files.names(f"/classic/{sort}")]


@pytest.mark.parametrize("durable", [True, False])
def test_a_deleted_queue_leaves_nothing(durable: bool) -> None:
    queue = Classic(durable=durable, lazy=True)
    queue.apply(publish(A, 1, b"a", b"x" * 5000), consume())
    queue.written()
    assert directories(queue)
    queue.member.delete()
    queue.written()
    assert directories(queue) == []
    assert queue.store.memory_bytes == 0


def test_a_purge_empties_the_store() -> None:
    queue = Classic()
    queue.apply(publish(A, 1, b"a", b"b"), publish(B, 1, b"c"), Purge(A, 3))
    queue.written()
    assert queue.store.memory_bytes == 0
    queue.restart(lost_power=True, power=Random(1))
    assert queue.member.counts().ready == 0


def test_a_confirm_for_a_run_that_came_again_does_not_hide_a_later_one() -> None:
    queue = Classic()
    queue.apply(publish(A, 1, b"1", b"2"))
    again_first: list[Command] = [publish(A, 3, b"3", b"4"), publish(A, 1, b"1", b"2")]
    queue.apply(*again_first)
    assert queue.written()[-1] == ("confirm", A, 4)


def test_bodies_are_taken_out_of_contents() -> None:
    """The tests above compare bodies."""
    assert body_of(content(b"body", persistent=True, priority=3)) == b"body"
