"""The replacement of a node that lost its directories: the node comes back blank, under its old name, as another
member.

The blank node has forgotten the votes that it gave and the entries that it acknowledged. If it spoke for its former
members, it could help to elect a leader without entries that are committed. While the node is down, the other nodes
take four steps:

1. Every node that runs takes note of a later boot id of the lost node than any that was. So the old directory is found
   out as an older copy if it ever turns up again (:mod:`reference_broker.node.links.boot_ids`).
2. Each queue that has a member on the lost node replaces it by a member in a new *membership epoch*. The new member
   begins blank and counts for nothing before it has the whole log. If the lost member was leaving anyway, the queue
   only sees it gone.
3. Each classic queue that lived on the lost node is deleted: no other node has its messages, and its name is free.
4. The metadata group replaces its member, too. Its new member's replica id is the node's first new boot id, which the
   node finds as ``first_life`` in its configuration.

A request that is repeated after a failure does everything again, under later numbers: nothing that was begun is in the
way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reference_broker.access.names import listed
from reference_broker.machines.cluster.metadata import QueueRecord, ReplaceMember
from reference_broker.node.config import Limits
from reference_broker.node.links.boot_ids import BootIds
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.links.peer_requests import Answer, Answered, Ask, Later, RequestError, failure
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.raft.roles import Role
from reference_broker.types import GroupId, NodeId

STRIDE: Final = 1000
"""Distance from the highest known boot id to the first one of a new directory. No peer that is down has seen such a
boot id, and the old directory, if it is started beside the cluster, does not reach it."""
_LOOK_AGAIN_S: Final = 0.05
_NAMES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """The means to change the cluster: its nodes, its metadata, questions to nodes, and time."""

    nodes: Nodes
    metadata: MetadataHost
    ask: Ask
    later: Later
    limits: Limits
    is_replicated: Callable[[QueueRecord], bool] = lambda _record: True
    """Whether the queue is of a kind with members on several nodes."""


class Replacement:
    """One replacement of one node. ``answered`` is called once.

    With ``only_told`` nothing is changed: the answer names what a replacement would change and delete.
    """

    def __init__(self, node: NodeId, answered: Answered, cluster: ClusterPorts, *, only_told: bool = False) -> None:
        self._only_told = only_told
        self._node = node
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._metadata = cluster.metadata
        self._what = f"node {cluster.nodes.name(node)!r}"
        self._answered: Answered | None = answered
        self._boot_id = 0
        self._queues: list[str] = []
        self._lost_epochs: dict[GroupId, int] = {}
        """The membership epoch of the lost replica of each queue that has no new replica yet."""
        self._proposed: set[GroupId] = set()
        self._lost_queues: list[str] = []
        """The names of the queues that lived on the lost node alone."""
        self._to_delete: dict[GroupId, QueueRecord] = {}
        """Their records, until each is deleted."""
        self._metadata_done = False
        self._asking = False
        self._trouble = "the metadata group has no leader: most of the nodes do not run"

    def begin(self) -> None:
        """Begin once this node has applied everything that is committed. Raises RequestError if the lost node runs."""
        if self._nodes.boot_id_of(self._node) is not None:
            raise RequestError(f"{self._what} runs", "only a node that is down can be replaced: stop it first")
        self._cluster.later(
            self._cluster.limits.read_timeout_ms / 1000, lambda: None if self._boot_id else self._give_up()
        )
        self._cluster.later(self._cluster.limits.change_timeout_ms / 1000, self._give_up)
        self._metadata.when_current(self._look_for_queues)

    def _look_for_queues(self) -> None:
        records = [record for record in self._records() if record.has_replica(self._node)]
        alone = [record for record in records if set(record.members) <= {self._node}]
        owned = [record for record in alone if not self._cluster.is_replicated(record)]
        if last := sorted(listed(record.name) for record in alone if record not in owned):
            what = f"{self._what} has the only member of {_listed(last)}: nobody else has their messages"
            self._finish(failure(what, "bring its directories back, or delete these queues first"))
            return
        self._lost_queues = sorted(listed(record.name) for record in owned)
        self._to_delete = {record.group: record for record in owned}
        replicated = [record for record in records if record not in owned]
        wanted = [record for record in replicated if self._node in (*record.members, *record.returning)]
        self._queues = sorted(listed(record.name) for record in wanted)
        self._lost_epochs = {record.group: record.membership_epoch(self._node) for record in replicated}
        if self._only_told:
            self._finish({"ok": True, "queues": self._queues, "lost_queues": self._lost_queues})
            return
        self._ask_all({"op": "known-life", "node": self._node}, self._choose_boot_id)

    def _choose_boot_id(self, answers: list[Answer]) -> None:
        configuration = self._metadata.member.core.configuration
        known = [int(answer["life"]) for answer in answers]
        self._boot_id = max(*known, configuration.replica_id_of(self._node)) + STRIDE
        self._ask_all({"op": "outlive", "node": self._node, "life": self._boot_id - 1}, lambda _answers: self._look())

    def _look(self) -> None:
        """Take the next steps of everything that is not done, again and again until all is done."""
        if self._answered is None:
            return
        self._step_queues()
        self._step_lost_queues()
        self._step_metadata()
        if self._metadata_done and not self._lost_epochs and not self._to_delete:
            answer = {"ok": True, "life": self._boot_id, "queues": self._queues, "lost_queues": self._lost_queues}
            self._finish(answer)
        else:
            self._cluster.later(_LOOK_AGAIN_S, self._look)

    def _step_queues(self) -> None:
        records = {record.group: record for record in self._records()}
        for group, lost in list(self._lost_epochs.items()):
            record = records.get(group)
            if record is None or not record.has_replica(self._node) or record.membership_epoch(self._node) != lost:
                del self._lost_epochs[group]
            elif self._node in record.members and group not in self._proposed:
                self._proposed.add(group)
                self._metadata.change(ReplaceMember, record, self._node, lambda _record: None)

    def _step_lost_queues(self) -> None:
        """Delete them. By now the old directory counts as an older copy, so no queue of it can come back."""
        there = {record.group for record in self._records()}
        for group, record in list(self._to_delete.items()):
            if group not in there:
                del self._to_delete[group]
            elif group not in self._proposed:
                self._proposed.add(group)
                self._metadata.delete(record, lambda _gone: None)

    def _step_metadata(self) -> None:
        def answered(answer: Answer) -> None:
            self._asking = False
            self._metadata_done = bool(answer.get("done"))
            self._trouble = str(answer.get("error", "the change of the metadata group's members is not committed"))

        leader = self._metadata.member.leader
        if leader and not self._asking and not self._metadata_done:
            self._asking = True
            self._cluster.ask(leader, {"op": "replace-replica", "node": self._node, "life": self._boot_id}, answered)

    def _ask_all(self, request: Answer, go_on: Callable[[list[Answer]], None]) -> None:
        """Ask every node that runs, and go on with all answers. A node that gives no answer ends the replacement."""
        nodes = self._nodes.running
        answers: list[Answer] = []

        def note(answer: Answer) -> None:
            answers.append(answer)
            if "error" in answer:
                self._finish(failure(f"{self._what}: {answer['error']}", str(answer["fix"])))
            elif len(answers) == len(nodes) and self._answered is not None:
                go_on(answers)

        for node in nodes:
            self._cluster.ask(node, request, note)

    def _give_up(self) -> None:
        waiting = sorted(listed(record.name) for record in self._records() if record.group in self._lost_epochs)
        left = sorted(listed(record.name) for record in self._to_delete.values())
        why = f"{_listed(left)} cannot be deleted" if left else self._trouble
        why = f"the members of {_listed(waiting)} have not changed" if waiting else why
        fix = "start a majority of the other nodes, or delete a queue that lost the majority of its members; then again"
        self._finish(failure(f"{self._what} is not replaced yet; {why}", fix))

    def _finish(self, answer: Answer) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)

    def _records(self) -> list[QueueRecord]:
        return list(self._metadata.machine.queues.values())


class ReplacementSteps:
    """The steps of each running node for the replacement of another node."""

    def __init__(
        self,
        boots: BootIds,
        nodes: Nodes,
        metadata: MetadataHost,
        now_ms: Callable[[], int],
        wake: Callable[[GroupRunner], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """``failed`` stops this node when it cannot write its files."""
        self._boots = boots
        self._nodes = nodes
        self._metadata = metadata
        self._now_ms = now_ms
        self._wake = wake
        self._failed = failed

    def known_boot_id(self, request: Answer) -> Answer:
        """The newest boot id that this node has seen of another node, 0 for none."""
        known = self._boots.known(_node(request))
        return {"life": known[0] if known else 0}

    def outlive(self, request: Answer) -> Answer:
        """Take note of a boot id of another node, so that every directory with an earlier one counts as an older
        copy."""
        node = _node(request)
        if node not in self._nodes.all or node == self._nodes.here:
            raise RequestError(f"it has no peer {node}", "compare `nodes` in all node.json")
        if self._nodes.boot_id_of(node) is not None:
            raise RequestError(f"it has a link to node {node}, which runs", "stop it first")
        try:
            self._boots.outlive(node, (_number(request, "life"), self._now_ms()))
        except ValueError as error:
            raise RequestError(str(error), "let a node of the same version ask") from error
        except OSError as error:
            self._failed(error)
            raise RequestError(f"a node cannot write what it must remember: {error}", "see its log") from error
        return {"ok": True}

    def replace_replica(self, request: Answer) -> Answer:
        """The leader of the metadata group takes the next step from the lost replica to the replica ``life``."""
        runner, node, replica_id = self._metadata.member, _node(request), _number(request, "life")
        core = runner.core
        if core.role is not Role.LEADER:
            raise RequestError("the leader of the metadata group has changed", "ask again in a moment")
        configuration = core.configuration
        if configuration.replica_id_of(node) > replica_id:
            raise RequestError(f"node {node} was replaced once more meanwhile", "look at the other replacement")
        if core.change_under_way or not core.accepting:
            return {"done": False}
        if node not in configuration.members:
            core.add(node, replica_id)
        elif configuration.replica_id_of(node) != replica_id:
            core.remove(node)
        else:
            return {"done": True}
        self._wake(runner)
        return {"done": False}


def _node(request: Answer) -> NodeId:
    return NodeId(_number(request, "node"))


def _number(request: Answer, key: str) -> int:
    value = request.get(key)
    if not isinstance(value, int):
        raise RequestError(f"{key} is no number: {value!r}", "let a node of the same version ask")
    return value


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(map(repr, names[:_NAMES_MAX])) + rest
