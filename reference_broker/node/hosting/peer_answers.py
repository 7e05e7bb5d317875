"""A node's answers to other nodes: the standing of its members, the counts of its queues, and small steps that only it
can take.

The answers that other nodes expect are checked by :mod:`reference_broker.node.links.peer_requests`.
"""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.node.hosting.replacement import ReplacementSteps
from reference_broker.node.links.peer_requests import Answer, Answered, Method, RequestError, answer_by, failure
from reference_broker.node.owned.owner import OwnerRunner
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.types import GroupId, LogIndex, NodeId


class PeerAnswers:
    """Answers the requests of other nodes; ``methods`` has each by its ``op``."""

    def __init__(
        self,
        groups: Groups,
        wake: Callable[[GroupRunner], None],
        replacement: ReplacementSteps,
    ) -> None:
        self._groups = groups
        self._runners = groups.runners
        self._wake = wake
        self.methods: dict[str, Method] = {
            "member": lambda request, answered: answered(self._member(request)),
            "counts": self._counts,
            "read-index": self._read_index,
            "applied": self._applied,
            "sync-mirrors": lambda request, answered: answered(self._sync_mirrors(request)),
            "leading": lambda _request, answered: answered(self._leading()),
            "hand-over": lambda request, answered: answered(self._hand_over(request)),
            "known-life": lambda request, answered: answered(replacement.known_boot_id(request)),
            "outlive": lambda request, answered: answered(replacement.outlive(request)),
            "replace-replica": lambda request, answered: answered(replacement.replace_replica(request)),
        }

    def answer(self, _node: NodeId, request: Answer, answered: Answered) -> None:
        """Answer another node, or this one; ``answered`` is called once, now or later."""
        answer_by(self.methods, request, answered)

    def _member(self, request: Answer) -> Answer:
        runner = self._runner(request)
        core = runner.core
        return {
            "raft_state": str(core.role) if not runner.newer_machine else "machine_too_old",
            "membership": "voter" if core.is_voter else "promotable" if core.node in core.configuration.members
            else "unknown",
            "last_log_index": core.log.last_index,
            "last_written": core.log.synced_index,
            "last_applied": runner.applied,
            "commit_index": core.commit_index,
            "snapshot_index": core.log.snapshot_index,
            "term": core.term,
            "machine_version": runner.host.version,
            "voters": list(core.configuration.voters),
        }  # fmt: skip

    def _counts(self, request: Answer, answered: Answered) -> None:
        queue = self._groups.by_group.get(self._hosted(request).group)
        member = queue.member if queue is not None else None
        if member is None:
            raise RequestError("this group is no queue", "ask for a queue")

        def read(_answer: Answer) -> None:
            if queue is None or queue.record.group in self._groups.ending:
                answered(failure("the queue is being deleted, because nobody uses it", "ask again in a moment"))
                return
            counts = member.counts()
            answered({name: getattr(counts, name) for name in ("ready", "consumers", "dead_letters")})

        self._read(request, read, answered)

    def _read_index(self, request: Answer, answered: Answered) -> None:
        """The index up to which a member must apply the group's log to know every entry committed by now."""
        self._read(request, answered, answered)

    def _read(self, request: Answer, read: Answered, refused: Answered) -> None:
        def applied(index: LogIndex | None) -> None:
            if index is None:
                refused(failure("its leader was lost before it could answer", "ask again in a moment"))
            else:
                read({"index": index})

        runner = self._hosted(request)
        if not runner.leads:
            raise RequestError("this node does not lead it any more", "ask again in a moment")
        runner.read(applied)

    def _applied(self, request: Answer, answered: Answered) -> None:
        """Answer once this node has applied the group's log up to an index."""
        runner, index = self._runner(request), request.get("index")
        if type(index) is not int:
            raise RequestError(f"index {index!r} is no whole number", "run the same release on all nodes")
        runner.when_applied(LogIndex(index), lambda: answered({"ok": True}))

    def _leading(self) -> Answer:
        return {"groups": [runner.group for runner in self._runners.values() if runner.leads]}

    def _hand_over(self, request: Answer) -> Answer:
        runner = self._runner(request)
        to = request.get("to")
        if not runner.leads:
            raise RequestError("this node does not lead the queue any more", "try again in a moment")
        try:
            runner.core.transfer(NodeId(int(str(to))))
        except ValueError as error:
            raise RequestError(str(error), "wait until the member is a voter: see quorum-status") from error
        self._wake(runner)
        return {"ok": True}

    def _sync_mirrors(self, request: Answer) -> Answer:
        runner = self._hosted(request)
        if not isinstance(runner, OwnerRunner) or runner.ring is None:
            raise RequestError("this node is not the master of the queue any more", "ask again in a moment")
        began_anew = runner.sync_mirrors(cancels=bool(request.get("cancels")))
        return {"ok": True, "mirrors": began_anew}

    def _hosted(self, request: Answer) -> QueueRunner:
        """The runner of the queue here."""
        group = request.get("group")
        runner = self._groups.hosted.get(GroupId(group)) if isinstance(group, int) else None
        if runner is None:
            raise RequestError("the queue does not run here", "it may be starting; try again in a moment")
        return runner

    def _runner(self, request: Answer) -> GroupRunner:
        """The member of the queue's Raft group."""
        group = request.get("group")
        runner = self._runners.get(GroupId(group)) if isinstance(group, int) else None
        if runner is None:
            raise RequestError("no member of the queue here", "it may be starting; try again in a moment")
        return runner
