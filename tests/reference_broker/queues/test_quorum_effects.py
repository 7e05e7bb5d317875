"""A queue's effects on one node: who is told what, in which order, and who is told nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reference_broker.machines.batch import encode_batch
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import (
    Cancel,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    NodeDown,
    NodeUp,
    Return,
    Settle,
)
from reference_broker.machines.effects import DeadLetter, DeadLetterReason
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.queues.port import DeadMessage
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.types import ChannelId, ConsumerId, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

HERE, THERE = NodeId(1), NodeId(2)
LIFE = 5
GROUP = GroupId(7)
ROUTE = b"\x00\x01q"
NOW_MS = 1000
TERM = Term(1)


def content(body: bytes) -> bytes:
    """The frames of a message without properties."""
    header = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x00\x00\xce"
    return header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"


def run(*bodies: bytes) -> MessageRun:
    return MessageRun.of(ROUTE, [content(body) for body in bodies])


def channel(node: NodeId = HERE, life: int = LIFE, number: int = 1) -> ChannelId:
    return ChannelId(node, life, 1, number)


class Told:
    """The channels of this node, and what they and the node were told, in order."""

    def __init__(self, node: NodeId = HERE, boot_id: int = LIFE) -> None:
        self.node, self.boot_id = node, boot_id
        self.calls: list[tuple[object, ...]] = []
        self.questions: list[Callable[[], None]] = []

    def take(self) -> list[tuple[object, ...]]:
        calls, self.calls = self.calls, []
        return calls

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, pieces: list[RunSlice], delivery_count: int
    ) -> None:
        contents = [run.content(start + step * each) for run, start, count, step in pieces for each in range(count)]
        self.calls.append(("deliver", consumer, first_message_id, contents, delivery_count))

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        return True

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        self.calls.append(("confirm", channel, last))

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        self.calls.append(("rejected", channel, first, last))

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        self.calls.append(("reply", channel, correlation))

    def flush(self) -> None: ...

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        self.calls.append(("watch", node))

    def dead_letter(self, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        self.calls.append(("dead letter", letters.reason, contents, "again" if letters.is_repeat else "new"))

    def set_timer(self, group: GroupId, at_ms: int) -> None:
        self.calls.append(("timer", at_ms))

    def queue_expired(self, group: GroupId, unused_ms: int) -> None:
        self.calls.append(("expired", unused_ms))

    def when_current(self, group: GroupId, call: Callable[[], None]) -> None:
        self.questions.append(call)

    def settings_changed(self, group: GroupId) -> None:
        self.calls.append(("settings",))


class Member:
    """A queue on one node, and the log it reads from."""

    def __init__(self, leading: bool, **arguments: int | str) -> None:
        self.told = Told()
        named = tuple((f"x-{key.replace('_', '-')}", value) for key, value in arguments.items())
        members = (HERE, THERE)
        record = QueueRecord(name="q", group=GROUP, members=members, founders=members, arguments=named)
        self.queue = QuorumMember(record, self.told, self.told, lambda: NOW_MS)
        self.log: dict[int, bytes] = {}
        self.queue.payload = self.log.__getitem__
        if leading:
            self.queue.became_leader(TERM)
        self.told.take()

    def append(self, *commands: Command, time_ms: int = NOW_MS) -> None:
        """One entry, applied; its effects wait."""
        index = LogIndex(len(self.log) + 1)
        self.log[index] = payload = b"".join(encode_batch(time_ms, commands))
        entry = Entry(index, TERM, EntryKind.COMMAND, 0, payload)
        self.queue.apply(entry, len(payload), frozenset())

    def apply(self, *commands: Command, time_ms: int = NOW_MS) -> list[tuple[object, ...]]:
        """One entry, and what was told of it."""
        self.append(*commands, time_ms=time_ms)
        self.queue.run_effects()
        return self.told.take()


def test_confirms_and_rejects_of_an_entry_ascend() -> None:
    """A confirm covers all before it: told before the reject below it, it would confirm what was refused."""
    member = Member(True, max_length=2, overflow="reject-publish")
    a, consumer = channel(), ConsumerId(channel(number=2), "c")
    calls = member.apply(
        Enqueue(a, 1, run(b"1", b"2", b"3")),
        Enqueue(a, 4, run(b"4")),
        Checkout(consumer, 10, True, 0, 1),
        Enqueue(a, 5, run(b"5")),
    )
    answers = [call for call in calls if call[0] in ("confirm", "rejected")]
    assert answers == [("confirm", a, 2), ("rejected", a, 3, 4), ("confirm", a, 5)]


def test_confirms_of_several_entries_become_one() -> None:
    member = Member(False)
    a, b = channel(number=1), channel(number=2)
    member.append(Enqueue(a, 1, run(b"1")), Enqueue(b, 1, run(b"1")))
    member.append(Enqueue(a, 2, run(b"2", b"3")))
    member.queue.run_effects()
    assert member.told.take() == [("confirm", a, 3), ("confirm", b, 1)]
    member.queue.run_effects()
    assert member.told.take() == []


@pytest.mark.parametrize("leading", [True, False])
def test_dead_letters_go_with_their_contents_and_from_the_leader_only(leading: bool) -> None:
    """In the order in which they died, out of runs of several entries."""
    member = Member(leading, dead_letter_exchange="")
    consumer = ConsumerId(channel(), "c")
    member.apply(Checkout(consumer, 10, False, 0, 1), Enqueue(channel(), 1, run(b"a", b"b", b"c")))
    member.apply(Enqueue(channel(), 4, run(b"d")))
    calls = member.apply(Settle(consumer, ((1, 1),)), Discard(consumer, ((0, 0), (2, 3))))
    letters = [(ROUTE, content(body)) for body in (b"a", b"c", b"d")]
    sent = [letter for call in calls if call[0] == "dead letter" for letter in call[2]]  # type: ignore[attr-defined]
    assert sent == (letters if leading else [])
    assert {call[1] for call in calls if call[0] == "dead letter"} <= {DeadLetterReason.REJECTED}


@pytest.mark.parametrize(
    ("strategy", "again"), [("at-most-once", False), ("at-least-once", True)], ids=["at most once", "at least once"]
)
def test_letters_of_an_earlier_term_go_again_only_where_that_is_promised(strategy: str, again: bool) -> None:
    """After a restart a leader applies all behind its snapshot once more: what died there was sent when it died. What
    has arrived since does not go again, and what goes again says so."""
    kept = {"dead_letter_strategy": strategy, "overflow": "reject-publish"}
    member = Member(False, dead_letter_exchange="", **kept)
    consumer = ConsumerId(channel(), "c")
    member.apply(Checkout(consumer, 10, False, 0, 1), Enqueue(channel(), 1, run(b"a", b"b", b"c")))
    earlier = member.apply(Discard(consumer, ((0, 1),)), DeadLetterSettled(((1, 1),)))
    member.queue.became_leader(TERM)
    letters = [call for call in [*earlier, *member.told.take()] if call[0] == "dead letter"]
    assert letters == [("dead letter", DeadLetterReason.REJECTED, [(ROUTE, content(b"b"))], "again")] * again
    now = member.apply(Discard(consumer, ((2, 2),)))
    assert [call[3] for call in now if call[0] == "dead letter"] == ["new"]


def test_only_a_leader_keeps_the_timer() -> None:
    """Ticks of a member that does not lead would be proposals that nobody asked for."""
    member = Member(False, message_ttl=50)
    assert ("timer", NOW_MS + 50) not in member.apply(Enqueue(channel(), 1, run(b"a")))
    member.queue.became_leader(TERM)
    assert member.told.take() == [("watch", HERE), ("timer", NOW_MS + 50)]
    assert ("timer", NOW_MS + 200) in Member(True, message_ttl=200).apply(Enqueue(channel(), 1, run(b"a")))
    member.queue.lost_leadership()
    member.append(Enqueue(channel(), 2, run(b"b")), time_ms=NOW_MS + 60)
    member.queue.run_effects()
    assert [call for call in member.told.take() if call[0] in ("timer", "watch")] == []


@pytest.mark.parametrize(
    "other",
    [channel(life=LIFE - 1), channel(node=THERE), channel(node=NodeId(3))],
    ids=["former life", "other member", "no member"],
)
@pytest.mark.parametrize("leading", [True, False])
def test_nothing_is_told_for_channels_of_another_life_or_node(other: ChannelId, leading: bool) -> None:
    """Channel numbers start anew in each life: a client would get confirms and messages that are not its own."""
    member = Member(leading)
    consumer = ConsumerId(other, "c")
    calls = member.apply(Checkout(consumer, 10, False, 0, 1), Enqueue(other, 1, run(b"a")))
    assert [call for call in calls if call[0] != "watch"] == []
    mine = ConsumerId(channel(), "c")
    calls = Member(leading).apply(Checkout(mine, 10, False, 0, 1), Enqueue(channel(), 1, run(b"a")))
    assert [call[0] for call in calls if call[0] != "watch"] == ["confirm", "reply", "deliver"]


def test_a_non_member_is_told_by_the_leader() -> None:
    """A node without a member has nobody else to hear from; what it hears is for its present life alone."""
    non_member = Told(NodeId(3), 2)
    member = Member(True)
    now, before = ChannelId(NodeId(3), 2, 1, 1), ChannelId(NodeId(3), 1, 1, 1)
    member.append(Enqueue(now, 1, run(b"a")), Enqueue(before, 1, run(b"b")), Enqueue(channel(), 1, run(b"c")))
    member.queue.run_effects([non_member])
    assert non_member.take() == [("confirm", now, 1)]
    assert ("confirm", channel(), 1) in member.told.take()


def test_after_a_jump_refused_publishes_are_rejected_never_confirmed() -> None:
    """A member that installs a snapshot has not seen the entries between: what it says comes from the state alone, and
    a confirm there of what was refused is a lost message that nobody looks for."""
    leader, late = (Member(each, max_length=2, overflow="reject-publish") for each in (True, False))
    a, b, consumer = channel(number=1), channel(number=2), ConsumerId(channel(THERE), "c")
    leader.apply(Enqueue(a, 1, run(b"1", b"2")))
    leader.apply(Enqueue(a, 3, run(b"3", b"4")), Enqueue(b, 1, run(b"1")))
    leader.apply(Checkout(consumer, 1, False, 0, 1), Enqueue(a, 5, run(b"5")))
    leader.apply(Enqueue(a, 6, run(b"6")), Enqueue(channel(life=LIFE - 1), 1, run(b"x")))
    late.queue.install(leader.queue.snapshot(), [])
    answers = late.told.take()
    assert [call for call in answers if call[1] == a] == [
        ("confirm", a, 2), ("rejected", a, 3, 4), ("confirm", a, 5), ("rejected", a, 6, 6),
    ]  # fmt: skip
    assert [call for call in answers if call[1] == b] == [("rejected", b, 1, 1)]
    assert {call[1] for call in answers} == {a, b}
    assert {answer.channel for answer in leader.queue.machine.reconfirm_local(HERE, LIFE)} == {a, b}


def test_after_a_snapshot_local_consumers_get_what_they_hold() -> None:
    """The entries between had deliveries among their effects, and nobody else sends those: the consumer would hold
    credit for messages that never come, and wait for ever."""
    here, there = ConsumerId(channel(), "here"), ConsumerId(channel(THERE), "there")
    leader, late = Member(True), Member(False)
    leader.apply(Checkout(there, 1, False, 0, 1), Checkout(here, 10, False, 0, 2))
    leader.apply(Enqueue(channel(THERE, number=2), 1, run(b"1", b"2", b"3")))
    leader.apply(Settle(here, ((0, 0),)))
    late.log = leader.log
    late.queue.payload = late.log.__getitem__
    late.queue.install(leader.queue.snapshot(), [])
    assert late.told.take() == [("deliver", here, 1, [content(b"3")], 0)]


PUBLISHER, CONSUMER = channel(number=2), ConsumerId(channel(), "c")


def doubting(*before: Command) -> Member:
    """A member with a consumer of this node, which has got what it was dealt ``before``, and is in doubt since."""
    member = Member(False)
    member.apply(Checkout(CONSUMER, 10, False, 0, 1), *before)
    member.queue.doubt()
    return member


def sure(member: Member) -> list[tuple[object, ...]]:
    """What is told when the newest question is answered."""
    member.told.questions[-1]()
    return member.told.take()


def test_in_doubt_deliveries_wait_and_confirms_do_not() -> None:
    """What is committed stays so; whose a message is may have changed."""
    member = doubting(Enqueue(PUBLISHER, 1, run(b"a")))
    assert member.told.questions == []
    assert member.apply(Enqueue(PUBLISHER, 2, run(b"b"))) == [("confirm", PUBLISHER, 2)]
    assert member.apply(Enqueue(PUBLISHER, 3, run(b"c"))) == [("confirm", PUBLISHER, 3)]
    assert len(member.told.questions) == 1
    told = [("deliver", CONSUMER, 1, [content(b"b")], 0), ("deliver", CONSUMER, 2, [content(b"c")], 0)]
    assert sure(member) == told
    assert ("deliver", CONSUMER, 3, [content(b"d")], 0) in member.apply(Enqueue(PUBLISHER, 4, run(b"d")))


def test_what_was_taken_back_meanwhile_is_not_delivered() -> None:
    """It went to somebody else. Nor is what the consumer holds no more of a delivery; the rest of it is."""
    member = doubting()
    member.apply(Enqueue(PUBLISHER, 1, run(b"a", b"b")))
    member.apply(NodeDown(HERE))
    member.apply(Checkout(ConsumerId(channel(THERE), "there"), 2, False, 0, 1), NodeUp(HERE, LIFE))
    member.apply(Enqueue(PUBLISHER, 3, run(b"c", b"d", b"e", b"f")))
    member.apply(Return(CONSUMER, ((3, 3),)))
    calls = [call[2:] for call in sure(member) if call[1] == CONSUMER]
    assert calls == [(2, [content(b"c")], 0), (4, [content(b"e"), content(b"f")], 0), (6, [content(b"d")], 1)]


def test_an_answer_from_before_the_last_doubt_does_not_end_it() -> None:
    """It says how things stood then."""
    member = doubting()
    member.apply(Enqueue(PUBLISHER, 1, run(b"a")))
    (early,) = member.told.questions
    member.queue.doubt()
    early()
    assert member.told.take() == [], "told on an old answer"
    assert sure(member) == [("deliver", CONSUMER, 0, [content(b"a")], 0)]


def test_answers_stay_behind_the_deliveries_before_them() -> None:
    """A consumer that is told that it is cancelled takes no more of what it was dealt before that."""
    member, other = doubting(), channel(number=3)
    member.apply(Enqueue(PUBLISHER, 1, run(b"a")))
    assert member.apply(Cancel(CONSUMER, 7)) == []
    assert member.apply(Cancel(ConsumerId(other, "x"), 8)) == [("reply", other, 8)]
    assert [call[0] for call in sure(member)] == ["deliver", "reply"]


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_get_is_answered_after_the_doubt_with_what_it_was_dealt(no_ack: bool) -> None:
    """As redelivered if it does not hold it any more: taken back or settled, nobody can tell."""
    getter = ConsumerId(channel(number=5), "")
    member = Member(False)
    member.apply(Enqueue(PUBLISHER, 1, run(b"a")))
    member.queue.doubt()
    assert member.apply(Get(getter, no_ack, 9)) == []
    told = [("deliver", getter, 0, [content(b"a")], int(no_ack)), ("reply", channel(number=5), 9)]
    assert sure(member) == told


def test_a_member_that_goes_in_doubt_tells_what_it_kept_as_redelivered() -> None:
    """Whoever waits for it hears of it from nobody else."""
    member = doubting()
    member.apply(Enqueue(PUBLISHER, 1, run(b"a")), Cancel(CONSUMER, 7))
    member.queue.stop()
    assert member.told.take() == [("deliver", CONSUMER, 0, [content(b"a")], 1), ("reply", channel(), 7)]
    assert sure(member) == []


def test_a_snapshot_in_doubt_is_kept_back_like_the_entries_it_stands_for() -> None:
    """What it says of deliveries may be as old."""
    leader, late = Member(True), doubting()
    leader.apply(Checkout(CONSUMER, 10, False, 0, 1), Enqueue(PUBLISHER, 1, run(b"a")))
    late.log = leader.log
    late.queue.payload = late.log.__getitem__
    late.queue.install(leader.queue.snapshot(), [])
    assert late.told.take() == [("confirm", PUBLISHER, 1)]
    assert sure(late) == [("deliver", CONSUMER, 0, [content(b"a")], 0)]


def test_who_waits_for_the_end_of_a_doubt_goes_on_then() -> None:
    member, done = doubting(), list[int]()
    member.queue.after_doubt(lambda: done.append(1))
    assert not done
    sure(member)
    member.queue.after_doubt(lambda: done.append(2))
    assert done == [1, 2]
