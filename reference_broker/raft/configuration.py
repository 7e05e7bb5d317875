"""Who belongs to a group, and since which entry: membership as part of the log.

Theory of operation
-------------------
A configuration travels in an entry of kind CONFIG, whole, so that one entry is enough to know it. It is in effect from
the moment the entry is *appended* (section 6: "a server always uses the latest configuration in its log, regardless of
whether the entry is committed"), and no longer when that entry is overwritten. So each member keeps the configurations
by index, from the one that its snapshot ends with, and looks up the latest. The machine version of the no-ops follows
the same rule and uses the same :class:`History`.

One voter is added or removed at a time (thesis 4.1): then any majority of the old configuration shares a member with
any majority of the new one, and it does not matter which of the two a member counts by.

Back of the envelope: a configuration of three members is 41 octets; appended once in the life of most groups.
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
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group. Voters decide; learners receive the log and decide nothing yet (thesis 4.2.1).

    Both are kept sorted, so equal configurations are equal octets. Raises ValueError if a node is named twice.

    ``replica_ids`` tells apart the replicas that one node had in this group, one after the other: (node, replica id)
    where the id is not 0. A replica that begins anew receives the old log, which names the node as the voter that the
    former replica was. The new replica must not take that voter for itself, because it has forgotten what the voter
    promised. Alone in that configuration it would elect itself.
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

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Voters, then learners."""
        return self.voters + self.learners

    def replica_id_of(self, node: NodeId) -> int:
        """Which of the node's replicas is meant."""
        return next((replica_id for other, replica_id in self.replica_ids if other == node), 0)

    def with_learner(self, node: NodeId, replica_id: int = 0) -> Configuration:
        """``node`` begins to receive the log."""
        return replace(self, learners=(*self.learners, node), replica_ids=(*self.replica_ids, (node, replica_id)))

    def promoted(self, node: NodeId) -> Configuration:
        """The learner ``node`` becomes a voter."""
        learners = tuple(other for other in self.learners if other != node)
        return replace(self, voters=(*self.voters, node), learners=learners)

    def without(self, node: NodeId) -> Configuration:
        """``node``, voter or learner, is gone."""
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


class History(Generic[T]):
    """A value that entries of the log change: which one holds at which index, until the entry is overwritten.

    ``latest`` is what holds at the end of the log, ``latest_index`` the entry that brought it (0: the snapshot, or
    what the member was started with).
    """

    __slots__ = ("_base", "_indexes", "_values", "latest", "latest_index")

    def __init__(self, base: T) -> None:
        self.reset(base)

    def reset(self, base: T) -> None:
        """The log starts anew with ``base``."""
        self._base = base
        self._indexes: list[LogIndex] = []
        self._values: list[T] = []
        self._look()

    def append(self, index: LogIndex, value: T) -> None:
        """The entry at ``index``, above all known, brings ``value``."""
        assert index > self.latest_index, "entries change the value in their order"
        self._indexes.append(index)
        self._values.append(value)
        self._look()

    def truncate(self, index: LogIndex) -> None:
        """Entries at or above ``index`` are overwritten: what they brought is void."""
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
        """What holds right after the entry at ``index``, which must not be below the snapshot."""
        known = bisect_right(self._indexes, index)
        return self._values[known - 1] if known else self._base

    def all(self) -> list[T]:
        """Every value that the log, snapshot included, may still bring back into effect; the oldest first."""
        return [self._base, *self._values]

    def _look(self) -> None:
        self.latest = self._values[-1] if self._values else self._base
        self.latest_index = self._indexes[-1] if self._indexes else LogIndex(0)
