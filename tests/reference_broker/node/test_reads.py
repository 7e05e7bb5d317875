"""Counts and the list of queues, as fresh as the question: what waits for a leader, is asked again, or is given up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from reference_broker.node.config import Limits
from reference_broker.node.hosting.reads import NodeReads
from reference_broker.node.links.peer_requests import Answer, Answered, failure
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, LogIndex, NodeId

QUEUE = GroupId(7)


class Node:
    """What reads need of a shard: one queue, and somebody who answers when the test wants it."""

    def __init__(self) -> None:
        self.limits = Limits(read_timeout_ms=3000)
        self.member = SimpleNamespace(leader=NodeId(2), when_applied=self.when_applied)
        self.members: dict[GroupId, Any] = {QUEUE: self.member, METADATA_GROUP: self.member}
        self.runners = self.members
        self.asked: list[tuple[NodeId, Answer, Answered]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.awaited: list[tuple[LogIndex, Callable[[], None]]] = []
        self.answers: list[Answer] = []
        self.reads = NodeReads(self.runners, self.members.get, self.ask, self.later, self.limits.read_timeout_ms)

    def ask(self, node: NodeId, request: Answer, answered: Answered) -> None:
        self.asked.append((node, request, answered))

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append((delay_s, call))

    def when_applied(self, index: LogIndex, call: Callable[[], None]) -> None:
        self.awaited.append((index, call))

    def count(self) -> None:
        self.reads.counts(QUEUE, self.answers.append)

    def fire(self, *, below_s: float) -> None:
        """Let all timers come that are due before that."""
        due = [call for delay_s, call in self.timers if delay_s < below_s]
        self.timers = [timer for timer in self.timers if timer[0] >= below_s]
        for call in due:
            call()


def test_the_leader_is_asked() -> None:
    """Not the member here, which may be behind."""
    node = Node()
    node.count()
    [(to, request, answered)] = node.asked
    answered({"ready": 5, "consumers": 1})
    assert (to, request) == (2, {"op": "counts", "group": QUEUE})
    assert node.answers == [{"ready": 5, "consumers": 1}]


def test_who_asks_while_a_question_is_under_way_waits_for_the_next_one() -> None:
    """An answer under way may be older than the question; and a thousand clients are still one question."""
    node = Node()
    node.count()
    for _ in range(1000):
        node.count()
    node.asked[0][2]({"ready": 1})
    assert node.answers == [{"ready": 1}]
    assert len(node.asked) == 2
    node.asked[1][2]({"ready": 2})
    assert node.answers[1:] == [{"ready": 2}] * 1000
    assert len(node.asked) == 2


def test_a_question_that_waits_for_the_leader_of_a_deleted_queue_is_answered_at_once() -> None:
    """The members go as soon as they hear of the deletion, which may be before this node does."""
    node = Node()
    node.member.leader = NOBODY
    node.count()
    assert (node.asked, node.answers) == ([], [])
    del node.members[QUEUE]
    node.reads.queue_gone(QUEUE)
    (answer,) = node.answers
    assert answer["error"] == "the queue was deleted meanwhile"


def test_without_a_leader_the_question_waits_for_one() -> None:
    """A client that declares while an election runs sees a slow answer, no error."""
    node = Node()
    node.member.leader = NOBODY
    node.count()
    assert not node.asked
    node.member.leader = NodeId(3)
    node.reads.leader_found()
    node.fire(below_s=1)
    assert [to for to, _, _ in node.asked] == [3]


def test_a_refusal_is_no_answer() -> None:
    """The leadership was lost meanwhile: whoever leads now is asked."""
    node = Node()
    node.count()
    node.asked[0][2](failure("its leader was lost", "ask again"))
    node.member.leader = NodeId(3)
    node.fire(below_s=1)
    node.asked[1][2]({"ready": 4})
    assert [to for to, _, _ in node.asked] == [2, 3]
    assert node.answers == [{"ready": 4}]


def test_a_queue_that_nobody_leads_is_given_up() -> None:
    """The client hears a sentence instead of waiting for ever; a leader that comes too late is not asked."""
    node = Node()
    node.member.leader = NOBODY
    node.count()
    node.fire(below_s=4)
    assert [answer["error"] for answer in node.answers] == [
        "nobody could say within 3000 ms: it has no leader that can be reached"
    ]
    node.member.leader = NodeId(3)
    node.reads.leader_found()
    node.fire(below_s=1)
    assert not node.asked
    node.count()
    assert len(node.asked) == 1, "the next question is asked all the same"


def test_a_late_answer_is_ignored() -> None:
    """Nobody hears twice."""
    node = Node()
    node.count()
    node.fire(below_s=4)
    node.asked[0][2]({"ready": 4})
    assert len(node.answers) == 1 and "error" in node.answers[0]


def test_a_queue_that_was_deleted_meanwhile_is_said_to_be() -> None:
    """Its group is gone, so nobody ever answers."""
    node = Node()
    node.count()
    del node.members[QUEUE]
    node.asked[0][2](failure("no member of the queue here", ""))
    node.fire(below_s=1)
    assert [answer["error"] for answer in node.answers] == ["the queue was deleted meanwhile"]


def test_a_queue_that_is_not_known_here_is_looked_for_once() -> None:
    """It may have been declared on another node a moment ago; a metadata group that cannot say is not waited for."""
    node, looked = Node(), []
    node.reads.when_queues_current(looked.append)
    node.asked[0][2]({"index": 9})
    [(index, call)] = node.awaited
    assert index == 9 and not looked
    call()
    node.fire(below_s=4)
    assert looked == [True]
    node.member.leader = NOBODY
    node.reads.when_queues_current(looked.append)
    node.fire(below_s=2)
    assert looked == [True]
    node.fire(below_s=4)
    assert looked == [True, False]


def test_a_node_opens_when_it_has_applied_what_was_committed() -> None:
    """Otherwise a client that connects right after a restart finds no queues; there is no giving up."""
    node = Node()
    opened: list[bool] = []
    node.member.leader = NOBODY
    node.reads.catch_up(lambda: opened.append(True))
    node.fire(below_s=4)
    node.member.leader = NodeId(1)
    node.reads.leader_found()
    node.fire(below_s=1)
    [(to, request, answered)] = node.asked
    assert (to, request) == (1, {"op": "read-index", "group": METADATA_GROUP})
    answered({"index": 9})
    [(index, call)] = node.awaited
    assert index == 9 and not opened
    call()
    assert opened == [True]
