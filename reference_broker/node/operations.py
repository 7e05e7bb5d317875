"""What operators ask of the cluster, of any of its nodes: status of a queue's members, changes of membership,
leadership, policies.

A node answers for the cluster: it asks the other nodes what only they know (:mod:`reference_broker.node.requests`) and
waits until what was asked for has come true, or says why it has not. Every failure is an answer with ``error`` (what
and where) and ``fix`` (what to do); nothing that is asked can take a node down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from reference_broker.machines.metadata import AddMember, QueueRecord, RemoveMember
from reference_broker.node import rebalancing, replacing
from reference_broker.node.answer_shapes import checked
from reference_broker.node.group import GroupRunner
from reference_broker.node.policies import read_policy
from reference_broker.node.requests import Answer, Answered, RequestError, failure
from reference_broker.queues.quorum import QuorumQueue
from reference_broker.raft.roles import Role
from reference_broker.types import METADATA_GROUP, NOBODY, GroupId, LogIndex, NodeId

if TYPE_CHECKING:
    from reference_broker.node.shard import Shard

Method = Callable[[Answer, Answered], None]

_LOOK_AGAIN_S: Final = 0.05
_NAMES_MAX: Final = 10
_NO_QUEUES: Final = "none is declared: declare one; perftest deletes the queues of a run at its end"


class Operations:
    """The requests of operators and of other nodes."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._methods: dict[str, Method] = {
            "quorum-status": self._quorum_status,
            "add-member": self._add_member,
            "remove-member": self._remove_member,
            "transfer-leader": self._transfer_leader,
            "rebalance": self._rebalance,
            "replace-node": self._replace_node,
            "set-policy": self._set_policy,
            "clear-policy": self._clear_policy,
            "policies": self._policies,
        }
        self._of_peers: dict[str, Method] = {
            "member": lambda request, answered: answered(self._member(request)),
            "counts": self._counts,
            "read-index": self._read_index,
            "leading": lambda _request, answered: answered(self._leading()),
            "hand-over": lambda request, answered: answered(self._hand_over(request)),
            "known-life": lambda request, answered: answered(replacing.known_boot_id(shard, request)),
            "outlive": lambda request, answered: answered(replacing.outlive(shard, request)),
            "replace-replica": lambda request, answered: answered(replacing.replace_replica(shard, request)),
        }

    @property
    def names(self) -> list[str]:
        """The operations there are."""
        return sorted(self._methods)

    def answer(self, request: Answer, answered: Answered) -> None:
        """Carry out a request of an operator; ``answered`` is called once, now or later."""
        self._run(self._methods, request, answered)

    def answer_peer(self, _node: NodeId, request: Answer, answered: Answered) -> None:
        """Answer another node."""
        self._run(self._of_peers, request, answered)

    def _run(self, methods: dict[str, Method], request: Answer, answered: Answered) -> None:
        method = methods.get(str(request.get("op")))
        try:
            if method is None:
                raise RequestError(
                    f"unknown operation {request.get('op')!r}", f"use one of {', '.join(sorted(methods))}"
                )
            method(request, answered)
        except RequestError as refused:
            answered(failure(str(refused), refused.fix))

    # Members of a queue

    def _quorum_status(self, request: Answer, answered: Answered) -> None:
        record = self._queue(request)
        nodes = [*record.members, *record.leaving]

        def gathered(answers: dict[NodeId, Answer]) -> None:
            rows = [_row(self._name(node), answers[node]) for node in nodes]
            answered({"ok": True, "queue": record.name, "members": rows})

        self._gather(nodes, {"op": "member", "group": record.group}, gathered)

    def _add_member(self, request: Answer, answered: Answered) -> None:
        record, node = self._queue(request), self._node(request)
        what = f"queue {record.name!r}, node {self._name(node)!r}"
        if node in record.leaving:
            raise RequestError(f"{what}: its member is being removed", "wait until it has left, then add it")
        if node in record.members:
            raise RequestError(f"{what}: there is a member already", "quorum-status shows where the members are")
        if self._shard.boot_id_of(node) is None:
            raise RequestError(f"{what}: the node is down", "start it; a new member needs a node that runs")

        def is_voter(answers: dict[NodeId, Answer]) -> bool:
            return any(row.get("raft_state") == "leader" and node in row["voters"] for row in answers.values())

        def committed(changed: QueueRecord | None) -> None:
            if changed is None or node not in changed.members:
                answered(failure(f"{what}: the queue was deleted, or the node is leaving it", "see quorum-status"))
                return
            late = f"{what}: it has not caught up yet"
            self._await(changed, is_voter, answered, late, {"members": self._names(changed)})

        shard = self._shard
        self._through_metadata(shard.metadata.change(AddMember, record, node, self._once(committed, answered, what)))

    def _remove_member(self, request: Answer, answered: Answered) -> None:
        record, node = self._queue(request), self._node(request)
        what = f"queue {record.name!r}, node {self._name(node)!r}"
        if not record.has_replica(node):
            raise RequestError(f"{what}: there is no member", "quorum-status shows where the members are")
        if record.members == (node,):
            raise RequestError(f"{what}: the last member cannot be removed", "add another first, or delete the queue")

        def has_left(_answers: dict[NodeId, Answer]) -> bool:
            now = self._shard.metadata.machine.queues.get(record.name)
            return now is None or now.group != record.group or not now.has_replica(node)

        def committed(changed: QueueRecord | None) -> None:
            if changed is None or node in changed.members:
                answered(failure(f"{what}: the queue was deleted, or this is its last member", "see quorum-status"))
                return
            late = f"{what}: it has not left yet, which it does once a majority of the members that stay runs"
            self._await(changed, has_left, answered, late, {"members": self._names(changed)})

        shard = self._shard
        self._through_metadata(shard.metadata.change(RemoveMember, record, node, self._once(committed, answered, what)))

    def _replace_node(self, request: Answer, answered: Answered) -> None:
        node = self._node(request)
        replacing.Replacement(self._shard, self.ask, node, self._name(node), answered).begin()

    # Leaders

    def _transfer_leader(self, request: Answer, answered: Answered) -> None:
        record, node = self._queue(request), self._node(request)
        if node not in record.members:
            what = f"queue {record.name!r} has no member on node {self._name(node)!r}"
            raise RequestError(what, f"choose one of {', '.join(self._names(record))}")
        self._move(record, node, answered)

    def _move(self, record: QueueRecord, node: NodeId, answered: Answered) -> None:
        """Have the queue led from ``node``."""
        what = f"queue {record.name!r}"

        def leads(answers: dict[NodeId, Answer]) -> bool:
            return answers.get(node, {}).get("raft_state") == "leader"

        def asked(answer: Answer) -> None:
            if "error" in answer:
                answered(answer)
            else:
                late = f"{what}: node {self._name(node)!r} does not lead yet"
                self._await(record, leads, answered, late, {"leader": self._name(node)})

        def gathered(answers: dict[NodeId, Answer]) -> None:
            leader = next((each for each, row in answers.items() if row.get("raft_state") == "leader"), None)
            if leader is None:
                answered(failure(f"{what}: no leader answers", "start its members, or wait for the election"))
            elif leader == node:
                answered({"ok": True, "leader": self._name(node)})
            else:
                self.ask(leader, {"op": "hand-over", "group": record.group, "to": node}, asked)

        self._gather(record.members, {"op": "member", "group": record.group}, gathered)

    def _rebalance(self, _request: Answer, answered: Answered) -> None:
        nodes = [
            member.node for member in self._shard.config.members if self._shard.boot_id_of(member.node) is not None
        ]

        def gathered(answers: dict[NodeId, Answer]) -> None:
            records = {record.group: record for record in self._shard.metadata.machine.queues.values()}
            led = {records[group].name: node for node, answer in answers.items()
                   for group in answer.get("groups", ()) if group in records}  # fmt: skip
            voters = {
                record.name: [node for node in record.members if "groups" in answers.get(node, {})]
                for record in records.values()
            }
            self._move_all(rebalancing.moves(led, voters), [], answered)

        self._gather(nodes, {"op": "leading"}, gathered)

    def _move_all(self, todo: list[rebalancing.Move], moved: list[Answer], answered: Answered) -> None:
        """One after the other: an election at a time."""
        if not todo:
            answered({"ok": True, "moved": moved})
            return
        move, rest = todo[0], todo[1:]
        record = self._shard.metadata.machine.queues.get(move.queue)

        def done(answer: Answer) -> None:
            if "error" in answer:
                answered({**answer, "moved": moved})
                return
            row = {"queue": move.queue, "from": self._name(move.source), "to": self._name(move.target)}
            self._move_all(rest, [*moved, row], answered)

        if record is None:
            self._move_all(rest, moved, answered)
        else:
            self._move(record, move.target, done)

    # Policies

    def _set_policy(self, request: Answer, answered: Answered) -> None:
        policy = read_policy(request)
        done = self._once(lambda _none: answered({"ok": True}), answered, f"policy {policy.name!r}")
        self._through_metadata(self._shard.metadata.set_policy(policy, done))

    def _clear_policy(self, request: Answer, answered: Answered) -> None:
        name, policies = request.get("name"), self._shard.metadata.machine.policies
        if name not in policies:
            raise RequestError(
                f"there is no policy {name!r}", _choice(policies, "none is set: nothing is to be cleared")
            )
        done = self._once(lambda _none: answered({"ok": True}), answered, f"policy {name!r}")
        self._through_metadata(self._shard.metadata.clear_policy(str(name), done))

    def _policies(self, _request: Answer, answered: Answered) -> None:
        policies = self._shard.metadata.machine.policies
        rows = [
            {"name": policy.name, "pattern": policy.pattern, "definition": dict(policy.definition),
             "priority": policy.priority}
            for _, policy in sorted(policies.items())
        ]  # fmt: skip
        answered({"ok": True, "policies": rows})

    # What nodes tell each other

    def _member(self, request: Answer) -> Answer:
        runner = self._runner(request)
        core = runner.core
        return {
            "raft_state": str(core.role) if not runner.newer_machine else "machine_too_old",
            "membership": "voter" if core.is_voter else "promotable" if self._shard.node in core.configuration.members
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
        host = self._runner(request).host
        if not isinstance(host, QuorumQueue):
            raise RequestError("this group is no queue", "ask for a queue")

        def read(_answer: Answer) -> None:
            counts = host.machine.counts()
            answered({name: getattr(counts, name) for name in ("ready", "consumers", "dead_letters")})

        self._read(request, read, answered)

    def _read_index(self, request: Answer, answered: Answered) -> None:
        """Up to where a member must have applied the group's log to know all that is committed now."""
        self._read(request, answered, answered)

    def _read(self, request: Answer, read: Answered, refused: Answered) -> None:
        def applied(index: LogIndex | None) -> None:
            if index is None:
                refused(failure("its leader was lost before it could answer", "ask again in a moment"))
            else:
                read({"index": index})

        runner = self._runner(request)
        if runner.core.role is not Role.LEADER:
            raise RequestError("this node does not lead it any more", "ask again in a moment")
        runner.read(applied)

    def _leading(self) -> Answer:
        runners = self._shard.runners.values()
        return {"groups": [runner.group for runner in runners if runner.core.role is Role.LEADER]}

    def _hand_over(self, request: Answer) -> Answer:
        runner = self._runner(request)
        to = request.get("to")
        if runner.core.role is not Role.LEADER:
            raise RequestError("this node does not lead the queue any more", "try again in a moment")
        try:
            runner.core.transfer(NodeId(int(str(to))))
        except ValueError as error:
            raise RequestError(str(error), "wait until the member is a voter: see quorum-status") from error
        self._shard.wake(runner)
        return {"ok": True}

    def _runner(self, request: Answer) -> GroupRunner:
        group = request.get("group")
        runner = self._shard.runners.get(GroupId(group)) if isinstance(group, int) else None
        if runner is None:
            raise RequestError("no member of the queue here", "it may be starting; try again in a moment")
        return runner

    # Helpers

    def _queue(self, request: Answer) -> QueueRecord:
        name = request.get("queue")
        record = self._shard.metadata.machine.queues.get(name) if isinstance(name, str) else None
        if record is None:
            raise RequestError(f"no queue {name!r}", _choice(self._shard.metadata.machine.queues, _NO_QUEUES))
        return record

    def _node(self, request: Answer) -> NodeId:
        name = request.get("node")
        for member in self._shard.config.members:
            if member.name == name:
                return member.node
        names = ", ".join(member.name for member in self._shard.config.members)
        raise RequestError(f"no node {name!r} in this cluster", f"name one of {names}")

    def _name(self, node: NodeId) -> str:
        return next((member.name for member in self._shard.config.members if member.node == node), str(node))

    def _names(self, record: QueueRecord) -> list[str]:
        return [self._name(node) for node in record.members]

    def ask(self, node: NodeId, request: Answer, answered: Answered) -> None:
        """Ask any node, this one too. What another one answers is sound, or an error."""
        if node == self._shard.node:
            self.answer_peer(node, request, answered)
        else:
            self._shard.requests.ask(node, request, lambda answer: answered(checked(request["op"], answer)))

    def _gather(
        self, nodes: Sequence[NodeId], request: Answer, gathered: Callable[[dict[NodeId, Answer]], None]
    ) -> None:
        """Ask several nodes, and go on with all answers."""
        answers: dict[NodeId, Answer] = {}

        def note(node: NodeId, answer: Answer) -> None:
            answers[node] = answer
            if len(answers) == len(nodes):
                gathered(answers)

        for node in nodes:
            self.ask(node, request, functools.partial(note, node))

    def _through_metadata(self, proposal: tuple[Any, int]) -> None:
        self._shard.runners[METADATA_GROUP].propose(*proposal)

    def _once(
        self, done: Callable[[QueueRecord | None], None], answered: Answered, what: str
    ) -> Callable[[QueueRecord | None], None]:
        """``done``, unless the metadata group takes too long: then ``answered`` gets a failure."""
        open_ = [True]

        def finish(call: Callable[[], None]) -> None:
            if open_.pop() if open_ else False:
                call()

        limits = self._shard.limits
        leader = self._shard.runners[METADATA_GROUP].leader
        known = f"its leader is node {leader}" if leader != NOBODY else "it has no leader"
        late = failure(
            f"{what}: the metadata group did not commit it within {limits.change_timeout_ms} ms; {known}",
            "start a majority of the nodes; the change is still under way and may be done later",
        )
        self._shard.later(limits.change_timeout_ms / 1000, lambda: finish(lambda: answered(late)))
        return lambda record: finish(lambda: done(record))

    def _await(
        self,
        record: QueueRecord,
        done: Callable[[dict[NodeId, Answer]], bool],
        answered: Answered,
        late: str,
        result: Answer,
    ) -> None:
        """Look at the queue's members until ``done``, then answer with ``result``."""
        rounds = max(1, int(self._shard.limits.change_timeout_ms / 1000 / _LOOK_AGAIN_S))
        nodes = sorted({*record.members, *record.leaving})

        def look(left: int) -> None:
            self._gather(nodes, {"op": "member", "group": record.group}, lambda answers: judge(left, answers))

        def judge(left: int, answers: dict[NodeId, Answer]) -> None:
            if done(answers):
                answered({"ok": True, **result})
            elif left:
                self._shard.later(_LOOK_AGAIN_S, lambda: look(left - 1))
            else:
                answered(failure(late, "see quorum-status; the change is still under way if a majority runs"))

        look(rounds)


def _choice(known: Iterable[str], none: str) -> str:
    """What to do about a name that is not there: the names that are, or ``none``."""
    names = sorted(known)
    if not names:
        return none
    rest = f" or {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"name one of {', '.join(names[:_NAMES_MAX])}{rest}"


def _row(name: str, answer: Answer) -> Answer:
    """A member as ``quorum-status`` shows it; one that does not answer is down."""
    if "error" in answer:
        return {"node_name": name, "raft_state": "noproc", "membership": "unknown", "error": answer["error"]}
    return {"node_name": name, **{key: value for key, value in answer.items() if key != "voters"}}
