"""The metadata machine: which queues the cluster has.

One Raft group of all nodes (group 0) replicates it, as Khepri does for RabbitMQ 4. Commands are rare and small, so
they are JSON.
A queue's *record* names its incarnation (the Raft group) and its members; declaring a name that exists returns the
existing
record, so that two channels which declare the same queue at the same time agree on one incarnation.

Pure: the group id of a new queue is drawn by the declaring node and travels in the command.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from reference_broker.types import GroupId, NodeId

VERSION: Final = 1
ArgumentValue = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue that exists. ``arguments`` are those of its declaration, without ``x-queue-type``."""

    name: str
    group: GroupId
    members: tuple[NodeId, ...]
    arguments: tuple[tuple[str, ArgumentValue], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareQueue:
    """Create ``record`` unless its name exists. ``node`` and ``correlation`` find the one who waits for the answer."""

    record: QueueRecord
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteQueue:
    """Remove the queue if it still is the incarnation ``group``."""

    name: str
    group: GroupId
    node: NodeId
    correlation: int


MetadataCommand = DeclareQueue | DeleteQueue


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """Every member: start the group if this node is one of its members."""

    record: QueueRecord


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """Every member: stop the group and remove its data."""

    record: QueueRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """The node ``node`` only: the command with this correlation is done. ``record`` is the queue as it is now, None
    if there is none."""

    node: NodeId
    correlation: int
    record: QueueRecord | None


MetadataEffect = QueueAdded | QueueRemoved | Answer


class MetadataMachine:
    """The queues by name. ``apply`` is deterministic; effects are to be executed as their types say."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueRecord] = {}

    def apply(self, payload: bytes | memoryview, skip: frozenset[int] = frozenset()) -> list[MetadataEffect]:
        """Apply one log entry, as :func:`encode` wrote it, but for the commands at the positions ``skip``."""
        effects: list[MetadataEffect] = []
        for position, command in enumerate(decode(payload)):
            if position in skip:
                continue
            effects.extend(self._declare(command) if isinstance(command, DeclareQueue) else self._delete(command))
        return effects

    def snapshot(self) -> bytes:
        """The state, canonical: equal states give equal octets."""
        queues = [asdict(self.queues[name]) for name in sorted(self.queues)]
        return json.dumps({"version": VERSION, "queues": queues}, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def restore(cls, state: bytes) -> MetadataMachine:
        """Read back what :meth:`snapshot` wrote."""
        machine = cls()
        for raw in json.loads(state)["queues"]:
            record = record_from_json(raw)
            machine.queues[record.name] = record
        return machine

    def _declare(self, command: DeclareQueue) -> list[MetadataEffect]:
        record = command.record
        existing = self.queues.get(record.name)
        answer = Answer(command.node, command.correlation, existing or record)
        if existing is not None:
            return [answer]
        self.queues[record.name] = record
        return [QueueAdded(record), answer]

    def _delete(self, command: DeleteQueue) -> list[MetadataEffect]:
        answer = Answer(command.node, command.correlation, None)
        existing = self.queues.get(command.name)
        if existing is None or existing.group != command.group:
            return [answer]
        del self.queues[command.name]
        return [QueueRemoved(existing), answer]


def encode(commands: Sequence[MetadataCommand]) -> bytes:
    """The commands as a log entry."""
    rows = [{"op": "declare" if isinstance(c, DeclareQueue) else "delete", **asdict(c)} for c in commands]
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(payload: bytes | memoryview) -> list[MetadataCommand]:
    """Read back what :func:`encode` wrote."""
    commands: list[MetadataCommand] = []
    for raw in json.loads(bytes(payload)):
        node, correlation = NodeId(raw["node"]), int(raw["correlation"])
        if raw["op"] == "declare":
            record = record_from_json(raw["record"])
            commands.append(DeclareQueue(record=record, node=node, correlation=correlation))
        else:
            group = GroupId(raw["group"])
            commands.append(DeleteQueue(name=raw["name"], group=group, node=node, correlation=correlation))
    return commands


def record_to_json(record: QueueRecord) -> bytes:
    """A record as each member keeps it beside the queue's data."""
    return json.dumps(asdict(record), separators=(",", ":"), sort_keys=True).encode()


def record_from_json(raw: dict[str, Any]) -> QueueRecord:
    """A record out of parsed JSON."""
    return QueueRecord(
        name=raw["name"],
        group=GroupId(raw["group"]),
        members=tuple(NodeId(node) for node in raw["members"]),
        arguments=tuple((key, value) for key, value in raw["arguments"]),
    )
