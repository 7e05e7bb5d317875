"""Reads that are no older than their question: what a queue holds, and which queues there are.

A read puts nothing into the log. The node asks the leader of the group. The leader answers as soon as a majority has
said that it still leads (ReadIndex: :mod:`reference_broker.raft.reads`) and it has applied everything that was
committed by then. Without a leader, or while the leader changes, the question waits, for ``read_timeout_ms`` at most.

One question per group and kind is under way at a time. A client that asks meanwhile waits for the next question: an
answer that was already on its way proves nothing for this client. So any number of clients cost one round of heartbeats
at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

from reference_broker.node.links.peer_requests import Answer, Answered, Ask, Later, failure
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.proxy import Proxy
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, LogIndex

_AGAIN_S: Final = 0.05
"""Pause after a refusal, in which the new leader may become known."""

_Key = tuple[GroupId, str]


class _Question:
    """One question under way, and the calls that wait for its answer."""

    __slots__ = ("answered", "group", "is_over", "operation", "why_not")

    def __init__(self, key: _Key, answered: list[Answered]) -> None:
        self.group, self.operation = key
        self.answered = answered
        self.is_over = False
        self.why_not = "it has no leader that can be reached"


class NodeReads:
    """The reads of one node."""

    def __init__(
        self,
        runners: Mapping[GroupId, GroupRunner],
        proposer: Callable[[GroupId], QueueRunner | Proxy | None],
        ask: Ask,
        later: Later,
        timeout_ms: int,
    ) -> None:
        """``runners`` are the Raft members here; ``proposer`` gives the runner or the proxy of a group, which know the
        leader."""
        self._runners = runners
        self._proposer = proposer
        self._ask_node = ask
        self._later = later
        self._timeout_ms = timeout_ms
        self._next: dict[_Key, list[Answered]] = {}
        self._under_way: dict[_Key, _Question] = {}
        self._leaderless: set[_Question] = set()

    def counts(self, group: GroupId, answered: Answered) -> None:
        """Have ``answered`` called with ``ready`` messages and ``consumers`` of a queue, or with an ``error``."""
        self._ask((group, "counts"), answered)

    def catch_up(self, call: Callable[[], None], group: GroupId = METADATA_GROUP) -> None:
        """Call once this node has applied everything that was committed to a group before now, however long that takes.
        For the metadata group: once this node knows of every queue that was declared or deleted. If the group has no
        member here any more, the call never comes."""

        def answered(answer: Answer) -> None:
            if (runner := self._runners.get(group)) is None:
                return
            if "error" in answer:
                self.catch_up(call, group)
            else:
                runner.when_applied(LogIndex(answer["index"]), call)

        self._ask((group, "read-index"), answered)

    def when_queues_current(self, call: Callable[[bool], None]) -> None:
        """Call with True once this node knows of every queue that was declared or deleted before now, or with False if
        the node has not found out within ``read_timeout_ms``."""
        calls = [call]

        def once(found: bool) -> None:
            if calls:
                calls.pop()(found)

        def answered(answer: Answer) -> None:
            if "error" in answer:
                once(False)
            else:
                index = LogIndex(answer["index"])
                self._runners[METADATA_GROUP].when_applied(index, functools.partial(once, True))

        self._later(self._timeout_ms / 1000, functools.partial(once, False))
        self._ask((METADATA_GROUP, "read-index"), answered)

    def leader_found(self) -> None:
        """Some group has a leader again: ask the questions that waited for one."""
        if self._leaderless:
            waiting, self._leaderless = self._leaderless, set()
            for question in sorted(waiting, key=lambda each: (each.group, each.operation)):
                self._later(0, functools.partial(self._try, question))

    def queue_gone(self, group: GroupId) -> None:
        """The queue was deleted: answer the question of its counts. Its members have gone, maybe before this node
        learned of the deletion, so the question may wait for a leader that will never come."""
        if (question := self._under_way.get((group, "counts"))) is not None:
            self._try(question)

    def _ask(self, key: _Key, answered: Answered) -> None:
        self._next.setdefault(key, []).append(answered)
        if key not in self._under_way:
            self._begin(key)

    def _begin(self, key: _Key) -> None:
        question = self._under_way[key] = _Question(key, self._next.pop(key))
        self._later(self._timeout_ms / 1000, lambda: self._give_up(question))
        self._try(question)

    def _try(self, question: _Question) -> None:
        member = self._proposer(question.group)
        if question.is_over:
            return
        if member is None:
            self._finish(question, failure("the queue was deleted meanwhile", "declare it again"))
            return
        if isinstance(member, Proxy):
            member.attach()
        if member.leader == NOBODY:
            self._leaderless.add(question)
            return
        request = {"op": question.operation, "group": question.group}
        self._ask_node(member.leader, request, functools.partial(self._heard, question))

    def _heard(self, question: _Question, answer: Answer) -> None:
        if "error" in answer:
            question.why_not = answer["error"]
            self._later(_AGAIN_S, lambda: self._try(question))
        else:
            self._finish(question, answer)

    def _give_up(self, question: _Question) -> None:
        if not question.is_over:
            what = f"nobody could say within {self._timeout_ms} ms: {question.why_not}"
            self._finish(question, failure(what, "start a majority of the nodes that have a member of it"))

    def _finish(self, question: _Question, answer: Answer) -> None:
        if question.is_over:
            return
        question.is_over = True
        self._leaderless.discard(question)
        key = (question.group, question.operation)
        del self._under_way[key]
        if key in self._next:
            self._begin(key)
        for answered in question.answered:
            answered(answer)
