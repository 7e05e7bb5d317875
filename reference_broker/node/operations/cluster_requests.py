"""Operators' requests to the cluster, through any of its nodes: the status of a queue's members, changes of members,
leaders and policies.

A node answers for the cluster. It asks the other nodes what only they know
(:mod:`reference_broker.node.links.peer_requests`), and waits until the change has come true, or says why it has not.
Every failure is an answer with ``error`` (what and where) and ``fix`` (what to do). No request can take a node down.

A client without an answer asks again. So a change whose work is done already succeeds, however it was done; then
``told`` says what was found, because a name may be mistyped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference_broker.access.names import short, shown, vhost_of
from reference_broker.access.records import DEFAULT_VHOST
from reference_broker.machines.cluster.metadata import AddMember, QueueRecord, RemoveMember
from reference_broker.node.hosting.replacement import ClusterPorts, Replacement
from reference_broker.node.links.peer_requests import (
    Answer,
    Answered,
    Method,
    RequestError,
    answer_by,
    choice,
    failure,
    not_there,
)
from reference_broker.node.operations.access_requests import vhost_in
from reference_broker.node.operations.policy_check import read_policy, without_effect
from reference_broker.types import NOBODY, NodeId

_LOOK_AGAIN_S: Final = 0.05
_NO_QUEUES: Final = "none is declared: declare one; perftest deletes the queues of a run at its end"


class Operations:
    """The requests of operators."""

    def __init__(self, cluster: ClusterPorts, more: Mapping[str, Method]) -> None:
        """``more``: operations that need nothing of the queues."""
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._metadata = cluster.metadata
        self._ask = cluster.ask
        self._methods: dict[str, Method] = {
            "quorum-status": self._quorum_status,
            "leader": self._leader,
            "add-member": self._add_member,
            "remove-member": self._remove_member,
            "transfer-leader": self._transfer_leader,
            "rebalance": self._rebalance,
            "replace-node": self._replace_node,
            "lost-with-node": functools.partial(self._replace_node, only_told=True),
            "sync-queue": functools.partial(self._sync_queue, cancels=False),
            "cancel-sync-queue": functools.partial(self._sync_queue, cancels=True),
            "set-policy": self._set_policy,
            "clear-policy": self._clear_policy,
            "policies": self._policies,
            "set-operator-policy": functools.partial(self._set_policy, operator=True),
            "clear-operator-policy": functools.partial(self._clear_policy, operator=True),
            "operator-policies": functools.partial(self._policies, operator=True),
            **more,
        }

    @property
    def names(self) -> list[str]:
        """The operations there are."""
        return sorted(self._methods)

    def answer(self, request: Answer, answered: Answered) -> None:
        """Carry out a request of an operator; ``answered`` is called once, now or later."""
        answer_by(self._methods, request, answered)

    # Members of a queue

    def _quorum_status(self, request: Answer, answered: Answered) -> None:
        record = self._queue(request)
        nodes = [*record.members, *record.leaving]

        def gathered(answers: dict[NodeId, Answer]) -> None:
            rows = [_row(self._nodes.name(node), answers[node]) for node in nodes]
            answered({"ok": True, "queue": record.short_name, "vhost": record.vhost, "members": rows})

        self._gather(nodes, {"op": "member", "group": record.group}, gathered)

    def _add_member(self, request: Answer, answered: Answered) -> None:
        record, node = self._queue(request), self._node(request)
        what = f"queue {shown(record.name)}, node {self._nodes.name(node)!r}"
        if node in record.leaving:
            raise RequestError(f"{what}: its member is being removed", "wait until it has left, then add it")
        if node not in record.members and self._nodes.boot_id_of(node) is None:
            raise RequestError(f"{what}: the node is down", "start it; a new member needs a node that runs")

        def is_voter(answers: dict[NodeId, Answer]) -> bool:
            return any(row.get("raft_state") == "leader" and node in row["voters"] for row in answers.values())

        def committed(changed: QueueRecord | None) -> None:
            if changed is None or node not in changed.members:
                answered(failure(f"{what}: the queue was deleted, or the node is leaving it", "see quorum-status"))
                return
            late = f"{what}: it has not caught up yet"
            self._await(changed, is_voter, answered, late, {"members": self._names(changed)})

        self._metadata.change(AddMember, record, node, self._once(committed, answered, what))

    def _remove_member(self, request: Answer, answered: Answered) -> None:
        record, node = self._queue(request), self._node(request)
        what = f"queue {shown(record.name)}, node {self._nodes.name(node)!r}"
        told = {} if record.has_replica(node) else {"told": f"{what}: there was no member"}
        if record.members == (node,):
            raise RequestError(f"{what}: the last member cannot be removed", "add another first, or delete the queue")

        def has_left(_answers: dict[NodeId, Answer]) -> bool:
            now = self._metadata.machine.queues.get(record.name)
            return now is None or now.group != record.group or not now.has_replica(node)

        def committed(changed: QueueRecord | None) -> None:
            if changed is None or node in changed.members:
                answered(failure(f"{what}: the queue was deleted, or this is its last member", "see quorum-status"))
                return
            late = f"{what}: it has not left yet, which it does once a majority of the members that stay runs"
            self._await(changed, has_left, answered, late, {"members": self._names(changed)} | told)

        self._metadata.change(RemoveMember, record, node, self._once(committed, answered, what))

    def _replace_node(self, request: Answer, answered: Answered, *, only_told: bool = False) -> None:
        Replacement(self._node(request), answered, self._cluster, only_told=only_told).begin()

    # Leaders

    def _leader(self, request: Answer, answered: Answered) -> None:
        """The node that leads a queue; of a queue that lives on one node, that node."""
        record = self._any_queue(request)
        if not self._cluster.is_replicated(record):
            answered({"ok": True, "leader": self._nodes.name(record.leader)})
            return

        def gathered(answers: dict[NodeId, Answer]) -> None:
            terms = {node: row["term"] for node, row in answers.items() if row.get("raft_state") == "leader"}
            if not terms:
                what = f"queue {shown(record.name)} has no leader at this moment"
                answered(failure(what, "wait for the election, or start a majority of its members"))
                return
            newest = max(terms, key=terms.__getitem__)  # one that was deposed may not know yet
            answered({"ok": True, "leader": self._nodes.name(newest)})

        self._gather(record.members, {"op": "member", "group": record.group}, gathered)

    def _transfer_leader(self, request: Answer, answered: Answered) -> None:
        record, node = self._queue(request), self._node(request)
        if node not in record.members:
            what = f"queue {shown(record.name)} has no member on node {self._nodes.name(node)!r}"
            raise RequestError(what, f"choose one of {', '.join(self._names(record))}")
        self._move(record, node, answered)

    def _move(self, record: QueueRecord, node: NodeId, answered: Answered) -> None:
        """Have the queue led from ``node``."""
        what = f"queue {shown(record.name)}"

        def leads(answers: dict[NodeId, Answer]) -> bool:
            return answers.get(node, {}).get("raft_state") == "leader"

        def asked(answer: Answer) -> None:
            if "error" in answer:
                answered(answer)
            else:
                late = f"{what}: node {self._nodes.name(node)!r} does not lead yet"
                self._await(record, leads, answered, late, {"leader": self._nodes.name(node)})

        def gathered(answers: dict[NodeId, Answer]) -> None:
            leader = next((each for each, row in answers.items() if row.get("raft_state") == "leader"), None)
            if leader is None:
                answered(failure(f"{what}: no leader answers", "start its members, or wait for the election"))
            elif leader == node:
                answered({"ok": True, "leader": self._nodes.name(node)})
            else:
                self._ask(leader, {"op": "hand-over", "group": record.group, "to": node}, asked)

        self._gather(record.members, {"op": "member", "group": record.group}, gathered)

    def _rebalance(self, _request: Answer, answered: Answered) -> None:
        def gathered(answers: dict[NodeId, Answer]) -> None:
            records = {record.group: record for record in self._metadata.machine.queues.values()}
            led = {records[group].name: node for node, answer in answers.items()
                   for group in answer.get("groups", ()) if group in records}  # fmt: skip
            voters = {
                record.name: [node for node in record.members if "groups" in answers.get(node, {})]
                for record in records.values()
            }
            self._move_all(moves(led, voters), [], answered)

        self._gather(self._nodes.running, {"op": "leading"}, gathered)

    def _move_all(self, todo: list[Move], moved: list[Answer], answered: Answered) -> None:
        """One after the other: an election at a time."""
        if not todo:
            answered({"ok": True, "moved": moved})
            return
        move, rest = todo[0], todo[1:]
        record = self._metadata.machine.queues.get(move.queue)

        def done(answer: Answer) -> None:
            if "error" in answer:
                answered({**answer, "moved": moved})
                return
            place = {"queue": short(move.queue), "vhost": vhost_of(move.queue)}
            row = place | {"from": self._nodes.name(move.source), "to": self._nodes.name(move.target)}
            self._move_all(rest, [*moved, row], answered)

        if record is None:
            self._move_all(rest, moved, answered)
        else:
            self._move(record, move.target, done)

    # Mirrors

    def _sync_queue(self, request: Answer, answered: Answered, *, cancels: bool) -> None:
        """Have the master fill the mirrors that are not synchronised, or stop that."""
        record = self._any_queue(request)
        if not record.mirrors:
            what = f"queue {shown(record.name)} has no mirrors"
            raise RequestError(what, "set a policy with ha-mode for it, or name a queue that has one")
        self._ask(record.leader, {"op": "sync-mirrors", "group": record.group, "cancels": cancels}, answered)

    # Policies

    def _set_policy(self, request: Answer, answered: Answered, *, operator: bool = False) -> None:
        policy = read_policy(request, operator=operator, vhost=self._vhost(request))
        idle = [f"{key} ({why})" for key, why in without_effect(dict(policy.definition)).items()]
        told = {"told": f"policy {policy.name!r} is set, but has no full effect: {', '.join(idle)}"} if idle else {}
        done = self._once(lambda _none: answered({"ok": True} | told), answered, f"policy {policy.name!r}")
        self._metadata.set_policy(policy, done)

    def _clear_policy(self, request: Answer, answered: Answered, *, operator: bool = False) -> None:
        name, vhost = request.get("name"), self._vhost(request)
        if not isinstance(name, str) or not name:
            raise RequestError(f"there can be no policy {name!r}", "give the name of a policy")
        policies = self._metadata.machine.policies.values()
        there = {policy.name for policy in policies if policy.operator is operator and policy.vhost == vhost}
        found = {} if name in there else {"told": not_there("policy", name, there)}
        done = self._once(lambda _none: answered({"ok": True} | found), answered, f"policy {name!r}")
        self._metadata.clear_policy(name, vhost, done, operator=operator)

    def _policies(self, _request: Answer, answered: Answered, *, operator: bool = False) -> None:
        policies = self._metadata.machine.policies
        rows = [
            {"name": policy.name, "pattern": policy.pattern, "definition": dict(policy.definition),
             "priority": policy.priority, "vhost": policy.vhost, "apply_to": policy.apply_to,
             "without_effect": without_effect(dict(policy.definition))}
            for _, policy in sorted(policies.items())
            if policy.operator is operator
        ]  # fmt: skip
        answered({"ok": True, "policies": rows})

    # Helpers

    def _any_queue(self, request: Answer) -> QueueRecord:
        name, vhost = request.get("queue"), self._vhost(request)
        machine = self._metadata.machine
        record = machine.queue(vhost, name) if isinstance(name, str) else None
        if record is None:
            there = [each.short_name for each in machine.queues_in(vhost)]
            where = "" if vhost == DEFAULT_VHOST else f" in virtual host {vhost!r}"
            raise RequestError(f"no queue {name!r}{where}", choice(there, _NO_QUEUES))
        return record

    def _vhost(self, request: Answer) -> str:
        return vhost_in(self._metadata.machine.access, request)

    def _queue(self, request: Answer) -> QueueRecord:
        record = self._any_queue(request)
        if not self._cluster.is_replicated(record):
            home = self._nodes.name(record.leader)
            what = f"queue {shown(record.name)} is a {record.kind} queue: it lives on node {home!r}"
            raise RequestError(f"{what} alone, without members", "name a quorum queue")
        return record

    def _node(self, request: Answer) -> NodeId:
        name = request.get("node")
        if (node := self._nodes.named(name)) is None:
            raise RequestError(f"no node {name!r} in this cluster", f"name one of {', '.join(self._nodes.names)}")
        return node

    def _names(self, record: QueueRecord) -> list[str]:
        return [self._nodes.name(node) for node in record.members]

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
            self._ask(node, request, functools.partial(note, node))

    def _once(
        self, done: Callable[[QueueRecord | None], None], answered: Answered, what: str
    ) -> Callable[[QueueRecord | None], None]:
        """``done``, unless the metadata group takes too long: then ``answered`` gets a failure."""
        open_ = [True]

        def finish(call: Callable[[], None]) -> None:
            if open_.pop() if open_ else False:
                call()

        limits, leader = self._cluster.limits, self._metadata.member.leader
        known = f"its leader is node {leader}" if leader != NOBODY else "it has no leader"
        late = failure(
            f"{what}: the metadata group did not commit it within {limits.change_timeout_ms} ms; {known}",
            "start a majority of the nodes; the change is still under way and may be done later",
        )
        self._cluster.later(limits.change_timeout_ms / 1000, lambda: finish(lambda: answered(late)))
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
        nodes = sorted({*record.members, *record.leaving})
        has_time = [True]

        def look() -> None:
            self._gather(nodes, {"op": "member", "group": record.group}, judge)

        def judge(answers: dict[NodeId, Answer]) -> None:
            if done(answers):
                answered({"ok": True, **result})
            elif has_time:
                self._cluster.later(_LOOK_AGAIN_S, look)
            else:
                silent = [self._nodes.name(node) for node in nodes if "error" in answers[node]]
                answered(failure(late, f"{_start(silent)}the change goes on once a majority of the members runs; "
                                       "see quorum-status, or give the command again"))  # fmt: skip

        self._cluster.later(self._cluster.limits.change_timeout_ms / 1000, has_time.clear)
        look()


@dataclass(frozen=True, slots=True)
class Move:
    """Hand the leadership of ``queue`` over."""

    queue: str
    source: NodeId
    target: NodeId


def moves(leaders: Mapping[str, NodeId], voters: Mapping[str, Sequence[NodeId]]) -> list[Move]:
    """The transfers that even the leaders out. ``voters``: the nodes that could lead each queue now.

    A queue is moved only from a node that leads at least two queues more than the node that the queue goes to, and each
    move narrows that difference. So there are few transfers, the moves end, and the same state gives the same moves on
    every node that is asked.
    """
    now = dict(leaders)
    nodes = sorted({node for members in voters.values() for node in members} | set(now.values()))
    found: list[Move] = []
    while (move := _best(now, voters, nodes)) is not None:
        found.append(move)
        now[move.queue] = move.target
    return _joined(found, leaders)


def _best(
    leaders: Mapping[str, NodeId], voters: Mapping[str, Sequence[NodeId]], nodes: Sequence[NodeId]
) -> Move | None:
    """The move from the busiest node to the idlest that can take over one of its queues."""
    load = dict.fromkeys(nodes, 0)
    for leader in leaders.values():
        load[leader] += 1
    candidates = [
        (load[target] - load[source], queue, source, target)
        for queue, source in leaders.items()
        for target in voters.get(queue, ())
        if load[source] - load[target] >= 2
    ]
    if not candidates:
        return None
    _, queue, source, target = min(candidates)
    return Move(queue, source, target)


def _joined(found: Sequence[Move], leaders: Mapping[str, NodeId]) -> list[Move]:
    """One move a queue: from where it is led to where it ends up."""
    last = {move.queue: move.target for move in found}
    return [Move(queue, leaders[queue], target) for queue, target in sorted(last.items()) if leaders[queue] != target]


def _start(silent: Sequence[str]) -> str:
    """The fix for members that do not answer."""
    return f"{', '.join(silent)} does not answer: start that node; " if silent else ""


def _row(name: str, answer: Answer) -> Answer:
    """A member as ``quorum-status`` shows it; one that does not answer is down."""
    if "error" in answer:
        return {"node_name": name, "raft_state": "noproc", "membership": "unknown", "error": answer["error"]}
    return {"node_name": name, **{key: value for key, value in answer.items() if key != "voters"}}
