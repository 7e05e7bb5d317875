"""Who has a mirrored queue and who has a copy of it: the changes of a queue's record. Pure.

The owner of a classic queue is the *master* of its copies, the *mirrors* (:mod:`reference_broker.mirroring`). The
replicated metadata alone says who they are. So two nodes can never both be the master for long: a replaced master
learns so from the next entry, and until then it confirms no message, because its former mirrors do not answer it.

``epoch`` counts the masters: it rises whenever the mirrors are to follow another node, or another process of the same
node. A change that was asked for in an earlier epoch does nothing. A mirror is known by its node and by ``since``, the
number of the change that made it, so a change about a former copy does nothing either.

A mirror is *synchronised* if it has every message of the queue. A confirm waits for all mirrors of the record,
synchronised or not, so a synchronised mirror has every confirmed message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

from reference_broker.types import GroupId, NodeId

_STORE_BITS: Final = 2**64
_SPREAD: Final = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: it spreads small numbers over all bits."""


class Mirror(NamedTuple):
    """A copy of a queue, in the process ``boot_id`` of a node."""

    node: NodeId
    boot_id: int
    since: int
    """The number of the copy among all copies of the queue; 0 for the copies that the declaration made."""
    is_synchronised: bool

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> Self:
        """The value from its JSON."""
        node, boot_id, since, is_synchronised = raw
        return cls(NodeId(node), int(boot_id), int(since), bool(is_synchronised))


class MirroredRecord(Protocol):
    """The part of a queue's record, a dataclass, that these changes use."""

    @property
    def group(self) -> GroupId:
        """The number of the queue."""

    @property
    def leader(self) -> NodeId:
        """The master's node."""

    @property
    def boot_id(self) -> int:
        """The process with which the queue ends; 0 if it does not."""

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """The copies, eldest first."""

    @property
    def epoch(self) -> int:
        """The number of masters so far."""

    @property
    def changes(self) -> int:
        """The number of changes so far."""

    @property
    def owner_since(self) -> int:
        """The number of the copy that became the master's."""


R = TypeVar("R", bound=MirroredRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMirror:
    """The master, whose process is ``owner_boot``, wants a copy in a process of the node ``member``."""

    name: str
    group: GroupId
    epoch: int
    member: NodeId
    member_boot: int
    owner_boot: int
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMirror:
    """The copy is lost, or not wanted any more."""

    name: str
    group: GroupId
    member: NodeId
    since: int
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSynchronised:
    """The copy has every message."""

    name: str
    group: GroupId
    member: NodeId
    since: int
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMaster:
    """The copy becomes the master. ``member_boot`` is the present process of its node."""

    name: str
    group: GroupId
    epoch: int
    member: NodeId
    since: int
    member_boot: int
    node: NodeId
    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMaster:
    """The master's node has started again. Its mirrors followed a process that is gone."""

    name: str
    group: GroupId
    epoch: int
    owner_boot: int
    node: NodeId
    correlation: int


MirrorChange = AddMirror | DropMirror | MirrorSynchronised | MoveMaster | StartMaster
OPERATIONS: Final[dict[str, type[Any]]] = {
    "add-mirror": AddMirror,
    "drop-mirror": DropMirror,
    "mirror-synchronised": MirrorSynchronised,
    "move-master": MoveMaster,
    "start-master": StartMaster,
}


def changed(record: R, command: MirrorChange) -> R:
    """The record after the change; the same record if the change is outdated or already made."""
    match command:
        case AddMirror():
            return _added(record, command)
        case DropMirror(member=member, since=since):
            if (mirror := mirror_of(record, member, since)) is None:
                return record
            return _with(record, mirrors=tuple(each for each in record.mirrors if each is not mirror))
        case MirrorSynchronised(member=member, since=since):
            mirror = mirror_of(record, member, since)
            if mirror is None or mirror.is_synchronised:
                return record
            now = mirror._replace(is_synchronised=True)
            return _with(record, mirrors=tuple(now if each is mirror else each for each in record.mirrors))
        case MoveMaster():
            return _moved(record, command)
        case StartMaster(epoch=epoch, owner_boot=boot):
            if epoch != record.epoch:
                return record
            return _with(record, mirrors=(), epoch=epoch + 1, owner_boot=boot)


def mirror_of(record: MirroredRecord, node: NodeId, since: int) -> Mirror | None:
    """That copy, if it is one of the record."""
    return next((each for each in record.mirrors if (each.node, each.since) == (node, since)), None)


def mirror_on(record: MirroredRecord, node: NodeId) -> Mirror | None:
    """The copy on a node."""
    return next((each for each in record.mirrors if each.node == node), None)


def store_of(group: GroupId, since: int) -> GroupId:
    """The name in the store of the copy ``since`` of a queue. A copy that begins anew has another name, so nothing of
    an earlier copy on the same node is ever taken for its own."""
    return GroupId((group ^ (since * _SPREAD)) % _STORE_BITS)


def _added(record: R, command: AddMirror) -> R:
    if command.epoch != record.epoch or command.member == record.leader or mirror_on(record, command.member):
        return record
    mirror = Mirror(command.member, command.member_boot, record.changes + 1, is_synchronised=False)
    return _with(record, mirrors=(*record.mirrors, mirror), owner_boot=command.owner_boot)


def _moved(record: R, command: MoveMaster) -> R:
    """The younger copies go on: they got all their messages through the new master's node. The elder copies do not:
    they may have more messages than the new master."""
    mirror = mirror_of(record, command.member, command.since)
    if mirror is None or command.epoch != record.epoch:
        return record
    younger = record.mirrors[record.mirrors.index(mirror) + 1 :]
    if command.member_boot != mirror.boot_id:
        younger = ()  # that process is gone, with the messages that the younger copies need
    return _with(
        record,
        leader=mirror.node,
        members=(mirror.node,),
        mirrors=younger,
        epoch=record.epoch + 1,
        owner_boot=command.member_boot,
        owner_since=mirror.since,
        boot_id=command.member_boot if record.boot_id else 0,
    )


def _with(record: R, **values: Any) -> R:
    changed: R = replace(record, changes=record.changes + 1, **values)  # type: ignore[type-var]
    return changed
