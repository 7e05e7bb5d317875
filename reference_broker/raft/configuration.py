"""The entries of the log for Raft itself: who is a member, and which machine the leader runs.

Theory of operation
-------------------
An entry of kind CONFIG carries a whole configuration, so one entry is enough to know the members. A configuration is in
effect from the moment its entry is *appended* (section 6: "a server always uses the latest configuration in its log,
regardless of whether the entry is committed"), and no longer when that entry is overwritten. So each member keeps the
configurations by index, from the configuration at the end of its snapshot, and looks up the latest.

The machine version follows the same rule. The first entry of each term is a no-op, which says which machine its leader
runs. A newer machine comes into effect at the same entry on every member. A member with an older machine keeps the log,
and must neither lead nor apply the entries that follow (as in Ra).

One voter is added or removed at a time (thesis 4.1): then any majority of the old configuration shares a member with
any majority of the new one, so a member may count by either configuration.

Back of the envelope: a configuration of three members is 41 octets; most groups append one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception, and named like one here
from typing import Final, Generic, TypeVar

from reference_broker.types import LogIndex, NodeId

_HEAD: Final = Struct(">BHH")
_MEMBER: Final = Struct(">IQ")
_FORMAT: Final = 1
_VERSION: Final = Struct(">I")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group. Voters decide; learners receive the log and decide nothing yet (thesis 4.2.1).

    Voters and learners are kept sorted, so equal configurations are equal octets. Raises ValueError if a node is named
    twice.

    A node may have several replicas in a group, one after the other. ``replica_ids`` tells them apart: pairs of node
    and replica id where the id is not 0. A replica that begins again receives the old log, which names the node's
    former replica as a voter. The new replica must not take that voter for itself, because it has forgotten the voter's
    promises. Alone in that configuration it would elect itself.
    """

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    replica_ids: tuple[tuple[NodeId, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "voters", tuple(sorted(self.voters)))
        object.__setattr__(self, "learners", tuple(sorted(self.learners)))
        object.__setattr__(
            self,
            "replica_ids",
            tuple(sorted((node, replica_id) for node, replica_id in self.replica_ids if replica_id)),
        )
        if len(set(self.members)) != len(self.members):
            raise ValueError(f"raft.members: {self} names a node twice; name each once")

    def __str__(self) -> str:
        learners = f" learning {','.join(map(str, self.learners))}" if self.learners else ""
        return f"{','.join(map(str, self.voters)) or '-'}{learners}"

    def has_voter(self, node: NodeId, replica_id: int) -> bool:
        """Whether this replica of ``node`` is a voter."""
        return node in self.voters and self.replica_id_of(node) == replica_id

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Voters, then learners."""
        return self.voters + self.learners

    def replica_id_of(self, node: NodeId) -> int:
        """The id of the replica that this configuration means by ``node``."""
        return next((replica_id for other, replica_id in self.replica_ids if other == node), 0)

    def with_learner(self, node: NodeId, replica_id: int = 0) -> Configuration:
        """The configuration in which ``node`` begins to receive the log."""
        return replace(self, learners=(*self.learners, node), replica_ids=(*self.replica_ids, (node, replica_id)))

    def promoted(self, node: NodeId) -> Configuration:
        """The configuration in which the learner ``node`` is a voter."""
        learners = tuple(other for other in self.learners if other != node)
        return replace(self, voters=(*self.voters, node), learners=learners)

    def without(self, node: NodeId) -> Configuration:
        """The configuration without ``node``, voter or learner."""
        return Configuration(
            tuple(other for other in self.voters if other != node),
            tuple(other for other in self.learners if other != node),
            tuple((other, replica_id) for other, replica_id in self.replica_ids if other != node),
        )

    def encode(self) -> bytes:
        """The payload of a CONFIG entry: format u8, voters u16, learners u16; a member: node u32, replica id u64."""
        nodes = b"".join(_MEMBER.pack(node, self.replica_id_of(node)) for node in self.members)
        return _HEAD.pack(_FORMAT, len(self.voters), len(self.learners)) + nodes

    @classmethod
    def decode(cls, octets: bytes | memoryview) -> Configuration:
        """Read back what :meth:`encode` wrote. Raises ValueError for anything else."""
        try:
            kind, voters, learners = _HEAD.unpack_from(octets)
        except StructError as error:
            raise ValueError(f"a Raft configuration of {len(octets)} octets is too short") from error
        if kind != _FORMAT or len(octets) != _HEAD.size + _MEMBER.size * (voters + learners):
            raise ValueError(f"{len(octets)} octets of format {kind} are no Raft configuration that this version knows")
        replica_ids = [(NodeId(node), replica_id) for node, replica_id in _MEMBER.iter_unpack(octets[_HEAD.size :])]
        nodes = tuple(node for node, _ in replica_ids)
        return cls(nodes[:voters], nodes[voters:], tuple(replica_ids))


def noop_payload(version: int) -> bytes:
    """The payload of a NOOP entry: the machine version, 4 octets."""
    return _VERSION.pack(version)


def noop_version(payload: bytes | memoryview) -> int:
    """Read back what :func:`noop_payload` wrote. Raises ValueError for anything else."""
    if len(payload) != _VERSION.size:
        raise ValueError(f"the no-op of a term has {_VERSION.size} octets, not {len(payload)}")
    version: int = _VERSION.unpack(payload)[0]
    return version


class History(Generic[T]):
    """A value that entries of the log change, by the index of the entry that brought it.

    ``latest`` is the value at the end of the log. ``latest_index`` is the entry that brought it, or 0 if the snapshot
    or the start of the member did.
    """

    __slots__ = ("_base", "_indexes", "_values", "latest", "latest_index")

    def __init__(self, base: T) -> None:
        self.reset(base)

    def reset(self, base: T) -> None:
        """The log starts again with the value ``base``."""
        self._base = base
        self._indexes: list[LogIndex] = []
        self._values: list[T] = []
        self._look()

    def append(self, index: LogIndex, value: T) -> None:
        """The entry at ``index``, which is above all known entries, brings ``value``."""
        assert index > self.latest_index, "entries change the value in their order"
        self._indexes.append(index)
        self._values.append(value)
        self._look()

    def truncate(self, index: LogIndex) -> None:
        """Entries at or above ``index`` are overwritten, so the values that they brought are void."""
        kept = bisect_left(self._indexes, index)
        del self._indexes[kept:], self._values[kept:]
        self._look()

    def compact(self, index: LogIndex) -> None:
        """A snapshot covers entries up to ``index``."""
        self._base = self.at(index)
        covered = bisect_right(self._indexes, index)
        del self._indexes[:covered], self._values[:covered]
        self._look()

    def at(self, index: LogIndex) -> T:
        """The value right after the entry at ``index``, which must not be below the snapshot."""
        known = bisect_right(self._indexes, index)
        return self._values[known - 1] if known else self._base

    def all(self) -> list[T]:
        """Every value that the log or its snapshot may still bring back into effect, the oldest first."""
        return [self._base, *self._values]

    def _look(self) -> None:
        self.latest = self._values[-1] if self._values else self._base
        self.latest_index = self._indexes[-1] if self._indexes else LogIndex(0)
