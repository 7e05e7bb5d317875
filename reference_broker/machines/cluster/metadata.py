"""The metadata machine: the queues of the cluster, the nodes of their members, the policies, exchanges and bindings.

One Raft group of all nodes (group 0) replicates this machine, as Khepri does for RabbitMQ 4. Commands are rare and
small, so they are JSON. A queue's *record* names its Raft group and its members. Declaring an existing name returns the
existing record, so two channels that declare the same queue at the same time agree on one group.

Members
    The record holds the wanted members; the configuration in the queue's own log holds the present members. The queue's
    leader adapts the configuration to the record, one change at a time. When a node is out of the configuration for
    good, the leader reports that with :class:`MemberLeft`; only then does the node delete its replica. Each membership
    of a node has a number that is never reused, its *membership epoch*. A node that left and came back must not confuse
    its two replicas, or it would forget votes and acknowledged entries.

Mirrors
    A classic queue may have copies on other nodes. This machine alone decides which node has the queue and which nodes
    have copies (:mod:`reference_broker.machines.cluster.mirror_records`).

Routing
    Each virtual host has a routing table of its own with its exchanges and bindings
    (:mod:`reference_broker.machines.cluster.exchanges`). The deletion of a queue removes its bindings in the same
    entry.

Access
    Users, virtual hosts and permissions are in a table of their own (:mod:`reference_broker.machines.cluster.access`).
    A virtual host goes with everything in it, in the same entry.

Pure: the group id of a new queue is drawn by the declaring node and travels in the command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from reference_broker.access.names import can_be_name, qualified, short, vhost_of
from reference_broker.access.records import DEFAULT_VHOST, Permission, TopicPermission, User, Vhost
from reference_broker.access.table import AccessTable
from reference_broker.machines.cluster import access, exchanges
from reference_broker.machines.cluster import mirror_records as mirrors
from reference_broker.machines.cluster.access import (
    AccessAnswer,
    AccessCommand,
    DeleteVhost,
    PutPermission,
    PutTopicPermission,
    PutVhost,
)
from reference_broker.machines.cluster.exchanges import (
    Bind,
    DeclareExchange,
    DeleteExchange,
    ExchangeAnswer,
    ExchangeCommand,
    Unbind,
)
from reference_broker.machines.cluster.mirror_records import (
    AddMirror,
    DropMirror,
    Mirror,
    MirrorChange,
    MirrorSynchronised,
    MoveMaster,
    StartMaster,
)
from reference_broker.machines.cluster.policies import (
    Policy,
    PolicyKey,
    SettingValue,
    alternates,
    in_effect,
    policy_from_json,
    policy_key,
)
from reference_broker.machines.cluster.stored_patterns import UnusablePattern, unusable, unusable_among, unusable_in
from reference_broker.routing.records import Binding, Exchange
from reference_broker.routing.table import RoutingTable
from reference_broker.types import NOBODY, GroupId, NodeId

VERSION: Final = 11
"""Version of the snapshot and of the meaning of commands. Older versions can be read: version 1 had no changes of
membership and no policies, 2 no returning members, 3 no leaders elected by the declaration, 4 only durable queues that
are replicated, 5 no exchanges, 8 no mirrors, 10 no policies for exchanges. A node of an older version applies no
entries of a newer leader, so the members of a queue agree whether its first leader is already elected, and all nodes
agree on the bindings."""

ArgumentValue = SettingValue

DEFAULT_KIND: Final = "quorum"
"""The kind of a queue whose record names no kind: older records have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue that exists. ``name`` is its name in the cluster (:mod:`reference_broker.access.names`), ``kind`` its
    ``x-queue-type``, ``arguments`` are the other arguments of its declaration.

    ``members`` are the nodes on which a member is wanted, ``leaving`` the nodes whose member is being removed. The
    nodes in ``returning`` are leaving too, and get a new member afterwards. ``founders`` are the nodes of the first
    members. ``membership_epochs`` has (node, epoch) for each member that was added later; ``changes`` is the highest
    epoch given. ``leader`` is the node that leads first, if it can. With ``elected``, the declaration has elected this
    leader for the first term of the queue's group.

    A queue that is not ``durable`` ends with the process of its node, whose boot id is ``boot_id``. An ``exclusive``
    queue belongs to the connection of that number there, and ends with it. An ``auto_delete`` queue ends with its last
    consumer. A queue of a kind that is not replicated has one member, the node that owns it.
    """

    name: str
    group: GroupId
    members: tuple[NodeId, ...]
    arguments: tuple[tuple[str, ArgumentValue], ...] = ()
    founders: tuple[NodeId, ...] = ()
    leaving: tuple[NodeId, ...] = ()
    returning: tuple[NodeId, ...] = ()
    membership_epochs: tuple[tuple[NodeId, int], ...] = ()
    changes: int = 0
    leader: NodeId = NOBODY
    elected: bool = False
    kind: str = DEFAULT_KIND
    durable: bool = True
    auto_delete: bool = False
    exclusive: int = 0
    boot_id: int = 0
    mirrors: tuple[Mirror, ...] = ()
    epoch: int = 0
    owner_boot: int = 0
    owner_since: int = 0

    @property
    def vhost(self) -> str:
        """The virtual host of the queue."""
        return vhost_of(self.name)

    @property
    def short_name(self) -> str:
        """The name within the virtual host, which clients know."""
        return short(self.name)

    def is_of(self, node: NodeId, boot_id: int, connection: int) -> bool:
        """Whether the exclusive queue belongs to this connection."""
        return (self.leader, self.boot_id, self.exclusive) == (node, boot_id, connection)

    @property
    def ends_with_its_node(self) -> bool:
        """Whether the queue ends with the process of its node: it is exclusive or not durable."""
        return self.boot_id != 0

    def ended_with(self, node: NodeId, boot_id: int) -> bool:
        """Whether the queue ended with an earlier process of the node, which now has this boot id."""
        return self.leader == node and self.boot_id not in (0, boot_id)

    def membership_epoch(self, node: NodeId) -> int:
        """The epoch of the node's membership: 0 for a founder that was never removed."""
        return dict(self.membership_epochs).get(node, 0)

    def has_replica(self, node: NodeId) -> bool:
        """Whether a replica belongs on the node: it is wanted there, or is being removed. Until a replica has left, the
        others may need its vote: if two replicas leave at once, the third cannot win an election alone."""
        return node in self.members or node in self.leaving

    def first_configuration(self, node: NodeId) -> tuple[NodeId, ...]:
        """The group's members, as a new replica on ``node`` knows them. A replica that joins an existing group knows
        none: it learns the members from the group's log."""
        return () if self.membership_epoch(node) else self.founders or self.members

    def elected_by(self, node: NodeId) -> NodeId:
        """The node that the replica on ``node`` has voted for in the first term, by the declaration. Nobody, if the
        replica joined later or the declaration elected no leader."""
        return self.leader if self.elected and not self.membership_epoch(node) else NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareQueue:
    """Create ``record`` unless its name exists. ``node`` and ``correlation`` name the waiting call."""

    record: QueueRecord
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteQueue:
    """Remove the queue if its group still is ``group``."""

    name: str
    group: GroupId
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMember:
    """Add a member on the node ``member``. Nothing happens if the node has a member, or is losing it."""

    name: str
    group: GroupId
    member: NodeId
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMember:
    """Remove the member on the node ``member``, without replacement. Nothing happens if it is the last member."""

    name: str
    group: GroupId
    member: NodeId
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceMember:
    """Replace the lost member on the node ``member`` by a new member with a new membership epoch.

    This is one command, so the replacement goes on even if the asking client stops. Nothing happens if the member is
    the last, or is already leaving.
    """

    name: str
    group: GroupId
    member: NodeId
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft:
    """The queue's leader reports: the member of this epoch is out of the configuration, and that is committed."""

    name: str
    group: GroupId
    member: NodeId
    membership_epoch: int
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Change nothing. The answer is the present record, no older than the question."""

    name: str
    group: GroupId
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """Set or replace a policy."""

    policy: Policy
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearPolicy:
    """Remove a policy, an ``operator``'s or a user's."""

    name: str
    node: NodeId
    correlation: int
    operator: bool = False
    vhost_name: str = DEFAULT_VHOST


MemberChange = AddMember | RemoveMember | ReplaceMember
QueueCommand = DeclareQueue | DeleteQueue | MemberChange | MemberLeft | MirrorChange | LookUp
MetadataCommand = QueueCommand | SetPolicy | ClearPolicy | ExchangeCommand | AccessCommand
_OPERATIONS: Final[dict[str, type[Any]]] = {
    "declare": DeclareQueue,
    "delete": DeleteQueue,
    "add-member": AddMember,
    "remove-member": RemoveMember,
    "replace-member": ReplaceMember,
    "member-left": MemberLeft,
    "look-up": LookUp,
    **mirrors.OPERATIONS,
    "set-policy": SetPolicy,
    "clear-policy": ClearPolicy,
    **exchanges.OPERATIONS,
    **access.OPERATIONS,
}
_NAMES: Final = {command: name for name, command in _OPERATIONS.items()}


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """Every member: start the group if this node is one of its members."""

    record: QueueRecord


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """Every member: stop the group and remove its data."""

    record: QueueRecord


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Every node: the record has changed. A new member's node starts a replica; the queue's leader reconciles."""

    record: QueueRecord


@dataclass(frozen=True, slots=True)
class ReplicaGone:
    """The node ``member``: delete the replica if it has this membership epoch. ``record`` is the present record."""

    record: QueueRecord
    member: NodeId
    membership_epoch: int


@dataclass(frozen=True, slots=True)
class PoliciesChanged:
    """Every leader: find the policy that holds for the queue now."""


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """Every node: users may do other things than before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The node ``node`` only: the command with this correlation is done. ``record`` is the present record, None if the
    queue does not exist."""

    node: NodeId
    correlation: int
    record: QueueRecord | None


MetadataEffect = (
    QueueAdded
    | QueueRemoved
    | MembersChanged
    | ReplicaGone
    | PoliciesChanged
    | AccessChanged
    | UnusablePattern
    | Answer
    | ExchangeAnswer
    | AccessAnswer
)


class MetadataMachine:
    """The queues by their names in the cluster, the policies, and in ``access`` the users, virtual hosts and
    permissions. ``apply`` is deterministic; the type of an effect says who executes it."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueRecord] = {}
        self.policies: dict[PolicyKey, Policy] = {}
        self.access = AccessTable.of_a_new_cluster()
        self._routing = {name: RoutingTable() for name in self.access.vhosts}

    def routing(self, vhost: str = DEFAULT_VHOST) -> RoutingTable:
        """The exchanges and bindings of a virtual host. One that does not exist has those of a new one."""
        found = self._routing.get(vhost)
        return RoutingTable() if found is None else found

    def queue(self, vhost: str, short_name: str) -> QueueRecord | None:
        """The queue of this name in a virtual host."""
        return self.queues.get(qualified(vhost, short_name)) if can_be_name(short_name) else None

    def queues_in(self, vhost: str) -> list[QueueRecord]:
        """The queues of a virtual host, in the order of their names."""
        return [self.queues[name] for name in sorted(self.queues) if vhost_of(name) == vhost]

    def apply(self, payload: bytes | memoryview, skip: frozenset[int] = frozenset()) -> list[MetadataEffect]:
        """Apply one log entry of :func:`encode`, without the commands at the positions ``skip``."""
        effects: list[MetadataEffect] = []
        for position, command in enumerate(decode(payload)):
            if position not in skip:
                effects.extend(self._apply_command(command))
        return effects

    def _apply_command(self, command: MetadataCommand) -> list[MetadataEffect]:
        match command:
            case DeclareQueue():
                return self._declare(command)
            case DeleteQueue():
                return self._delete(command)
            case LookUp():
                existing = self.queues.get(command.name)
                found = existing if existing is not None and existing.group == command.group else None
                return [Answer(command.node, command.correlation, found)]
            case SetPolicy(policy=policy):
                self.policies[policy.key] = policy
                self._follow_policies(policy.vhost)
                changed = PoliciesChanged(), Answer(command.node, command.correlation, None)
                return [*_unusable_in(policy), *changed]
            case ClearPolicy(name=name, operator=operator, vhost_name=vhost):
                self.policies.pop(policy_key(vhost, name, operator=operator), None)
                self._follow_policies(vhost)
            case DeclareExchange() | DeleteExchange() | Bind() | Unbind():
                outcome = exchanges.apply(self.routing(command.vhost_name), self.queues, command)
                return [ExchangeAnswer(command.node, command.correlation, outcome)]
            case AddMember() | RemoveMember() | ReplaceMember() | MemberLeft():
                return self._change_members(command)
            case AddMirror() | DropMirror() | MirrorSynchronised() | MoveMaster() | StartMaster():
                return self._change_mirrors(command)
            case _:
                return self._change_access(command)
        return [PoliciesChanged(), Answer(command.node, command.correlation, None)]

    def snapshot(self) -> bytes:
        """The state, canonical: equal states give equal octets."""
        state = {
            "version": VERSION,
            "queues": [_plain(self.queues[name]) for name in sorted(self.queues)],
            "policies": [_plain(self.policies[name]) for name in sorted(self.policies)],
            "routing": {name: exchanges.table_to_json(table) for name, table in self._routing.items()},
            "access": access.to_json(self.access),
        }
        return json.dumps(state, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def restore(cls, state: bytes) -> MetadataMachine:
        """The machine of a snapshot of this version or an older version. Raises ValueError for a newer version."""
        content = json.loads(state)
        if content["version"] > VERSION:
            raise ValueError(
                f"the metadata snapshot has version {content['version']}, this program knows {VERSION}: "
                "start the version of the program that wrote it"
            )
        machine = cls()
        for raw in content["queues"]:
            record = record_from_json(raw)
            machine.queues[record.name] = record
        for raw in content.get("policies", ()):
            policy = policy_from_json(raw)
            machine.policies[policy.key] = policy
        machine.access = access.from_json(content.get("access"))
        tables = content.get("routing", {DEFAULT_VHOST: content})  # up to version 9, those of the virtual host /
        machine._routing = {name: exchanges.table_from_json(tables.get(name, {})) for name in machine.access.vhosts}
        for name in machine.access.vhosts:
            machine._follow_policies(name)
        return machine

    def _follow_policies(self, vhost: str) -> None:
        """Have the exchanges of a virtual host go by its policies."""
        if (table := self._routing.get(vhost)) is not None:
            table.follow(alternates(self.policies.values(), vhost))

    def unusable_patterns(self) -> list[UnusablePattern]:
        """The patterns of policies and permissions that find nothing, because they cannot be used."""
        return [
            *(each for policy in self.policies.values() for each in _unusable_in(policy)),
            *unusable_among(self.access),
        ]

    def _declare(self, command: DeclareQueue) -> list[MetadataEffect]:
        record = command.record
        existing = self.queues.get(record.name)
        has_vhost = record.vhost in self.access.vhosts
        answer = Answer(command.node, command.correlation, existing or (record if has_vhost else None))
        if existing is not None or not has_vhost:
            return [answer]
        self.queues[record.name] = record
        return [QueueAdded(record), answer]

    def _delete(self, command: DeleteQueue) -> list[MetadataEffect]:
        answer = Answer(command.node, command.correlation, None)
        existing = self.queues.get(command.name)
        if existing is None or existing.group != command.group:
            return [answer]
        del self.queues[command.name]
        self.routing(existing.vhost).remove_queue(existing.short_name)
        return [QueueRemoved(existing), answer]

    def _change_access(self, command: AccessCommand) -> list[MetadataEffect]:
        missing = access.apply(self.access, command)
        effects: list[MetadataEffect] = []
        match command:
            case PutVhost(vhost=vhost):
                if vhost.name not in self._routing:
                    self._routing[vhost.name] = RoutingTable()
                    self._follow_policies(vhost.name)
            case DeleteVhost(name=name):
                effects = self._empty_vhost(name)
            case PutPermission(permission=permission) if not missing:
                effects.extend(unusable_in(permission))
            case PutTopicPermission(topic_permission=permission) if not missing:
                effects.extend(unusable_in(permission))
        return [*effects, AccessChanged(), AccessAnswer(command.node, command.correlation, missing)]

    def _empty_vhost(self, vhost: str) -> list[MetadataEffect]:
        """Remove everything that a virtual host had. Its policies find no queue any more, so they need no news."""
        self._routing.pop(vhost, None)
        self.policies = {key: policy for key, policy in self.policies.items() if policy.vhost != vhost}
        records = self.queues_in(vhost)
        for record in records:
            del self.queues[record.name]
        return [QueueRemoved(record) for record in records]

    def _change_members(self, command: MemberChange | MemberLeft) -> list[MetadataEffect]:
        existing = self.queues.get(command.name)
        if existing is None or existing.group != command.group:
            return [Answer(command.node, command.correlation, None)]
        match command:
            case AddMember():
                changed = _added(existing, command.member)
            case RemoveMember():
                changed = _removed(existing, command.member)
            case ReplaceMember():
                changed = _replaced(existing, command.member)
            case MemberLeft():
                changed = _left(existing, command.member, command.membership_epoch)
        answer = Answer(command.node, command.correlation, changed)
        if changed == existing:
            return [answer]
        self.queues[command.name] = changed
        gone: list[MetadataEffect] = []
        if isinstance(command, MemberLeft):
            gone = [ReplicaGone(changed, command.member, command.membership_epoch)]
        return [*gone, MembersChanged(changed), answer]

    def _change_mirrors(self, command: MirrorChange) -> list[MetadataEffect]:
        existing = self.queues.get(command.name)
        if existing is None or existing.group != command.group:
            return [Answer(command.node, command.correlation, None)]
        changed = mirrors.changed(existing, command)
        answer = Answer(command.node, command.correlation, changed)
        if changed == existing:
            return [answer]
        self.queues[command.name] = changed
        return [MembersChanged(changed), answer]


def _added(record: QueueRecord, member: NodeId) -> QueueRecord:
    if member in record.members or member in record.leaving:
        return record
    number = record.changes + 1
    members = tuple(sorted((*record.members, member)))
    return replace(
        record,
        members=members,
        membership_epochs=tuple(sorted((*record.membership_epochs, (member, number)))),
        changes=number,
    )


def _removed(record: QueueRecord, member: NodeId) -> QueueRecord:
    record = replace(record, returning=_without(record.returning, member))
    if member not in record.members or len(record.members) == 1:
        return record
    leaving = tuple(sorted((*record.leaving, member)))
    return replace(record, members=_without(record.members, member), leaving=leaving)


def _replaced(record: QueueRecord, member: NodeId) -> QueueRecord:
    removed = _removed(record, member)
    if member in record.members and member in removed.leaving:
        return replace(removed, returning=tuple(sorted((*removed.returning, member))))
    return record


def _left(record: QueueRecord, member: NodeId, membership_epoch: int) -> QueueRecord:
    if member not in record.leaving or record.membership_epoch(member) != membership_epoch:
        return record
    others = tuple(pair for pair in record.membership_epochs if pair[0] != member)
    left = replace(record, leaving=_without(record.leaving, member), membership_epochs=others)
    if member not in record.returning:
        return left
    return _added(replace(left, returning=_without(record.returning, member)), member)


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(each for each in nodes if each != node)


def encode(commands: Sequence[MetadataCommand]) -> bytes:
    """The commands as a log entry."""
    rows = [{"op": _NAMES[type(command)], **_plain(command)} for command in commands]
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(payload: bytes | memoryview) -> list[MetadataCommand]:
    """Read back what :func:`encode` wrote. Raises ValueError, KeyError or TypeError for anything else."""
    commands: list[MetadataCommand] = []
    for raw in json.loads(bytes(payload)):
        values = dict(raw)
        command = _OPERATIONS[values.pop("op")]
        for name, from_json in _FROM_JSON.items():
            if name in values:
                values[name] = from_json(values[name])
        if "stay" in values:
            values["membership_epoch"] = values.pop("stay")
        commands.append(command(**values))
    return commands


def record_to_json(record: QueueRecord) -> bytes:
    """A record as each member keeps it beside the queue's data."""
    return json.dumps(_plain(record), separators=(",", ":"), sort_keys=True).encode()


def _nodes(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return _shared(tuple(NodeId(number) for number in numbers))


@lru_cache(4096)
def _shared(nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """One tuple for the records of all queues on these nodes: there are few combinations, and many queues."""
    return nodes


def record_from_json(raw: dict[str, Any]) -> QueueRecord:
    """A record from parsed JSON. The oldest records have only a name, a group, members and arguments."""
    members = _nodes(raw["members"])
    return QueueRecord(
        name=raw["name"],
        group=GroupId(raw["group"]),
        members=members,
        arguments=tuple((key, value) for key, value in raw["arguments"]),
        founders=_nodes(raw.get("founders") or members),
        leaving=_nodes(raw.get("leaving", ())),
        returning=_nodes(raw.get("returning", ())),
        membership_epochs=tuple((NodeId(node), int(number)) for node, number in raw.get("stays", ())),
        changes=int(raw.get("changes", 0)),
        leader=NodeId(raw.get("leader", NOBODY)),
        elected=bool(raw.get("elected", False)),
        kind=raw.get("kind", DEFAULT_KIND),
        durable=bool(raw.get("durable", True)),
        auto_delete=bool(raw.get("auto_delete", False)),
        exclusive=int(raw.get("exclusive", 0)),
        boot_id=int(raw.get("boot_id", 0)),
        mirrors=tuple(Mirror.from_json(each) for each in raw.get("mirrors", ())),
        epoch=int(raw.get("epoch", 0)),
        owner_boot=int(raw.get("owner_boot", 0)),
        owner_since=int(raw.get("owner_since", 0)),
    )


_KEYS: Final = {"membership_epochs": "stays", "membership_epoch": "stay"}
"""Fields that have another name in JSON."""

_OF_MIRRORS: Final = ("mirrors", "epoch", "owner_boot", "owner_since")
"""Fields that the record of a queue without mirrors does not need."""
_BESIDE_THE_KIND: Final = ("kind", "durable", "auto_delete", "exclusive", "boot_id", *_OF_MIRRORS)
"""Fields that a record of the default kind does not need."""


def _plain(value: Any) -> dict[str, Any]:
    """The fields as a dictionary, nested for a record or policy: like ``asdict``, without copies of the tuples."""
    fields = {_KEYS.get(name, name): getattr(value, name) for name in type(value).__slots__}
    if fields.get("kind") == DEFAULT_KIND:
        for name in _BESIDE_THE_KIND:  # a replicated queue's record stays as older programs wrote it
            del fields[name]
    elif isinstance(value, QueueRecord) and not any(fields[name] for name in _OF_MIRRORS):
        for name in _OF_MIRRORS:
            del fields[name]
    return {name: _nested(each) for name, each in fields.items()}


def _nested(value: Any) -> Any:
    match value:
        case QueueRecord() | Policy() | User() | Vhost() | Permission() | TopicPermission():
            return _plain(value)
        case Exchange():
            return exchanges.exchange_to_json(value)
        case Binding():
            return exchanges.binding_to_json(value)
        case _:
            return value


_FROM_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "record": record_from_json,
    "policy": policy_from_json,
    "exchange": exchanges.exchange_from_json,
    "binding": exchanges.binding_from_json,
    **access.FROM_JSON,
}
"""The reader of each field of a command that is more than a name or a number."""


def _unusable_in(policy: Policy) -> list[UnusablePattern]:
    whose = "operator policy" if policy.operator else "policy"
    return unusable(f"{whose} {policy.name!r} of virtual host {policy.vhost!r}", (policy.pattern,))


def with_policy(record: QueueRecord, policies: Iterable[Policy]) -> QueueRecord:
    """The record with the arguments in effect."""
    arguments = in_effect(record.name, record.kind, record.arguments, policies)
    return record if arguments == record.arguments else replace(record, arguments=arguments)
