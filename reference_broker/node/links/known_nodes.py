"""The nodes of the cluster as one of them sees them: their names, which are up, and which reach each other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from reference_broker.node.config import Member
from reference_broker.types import NodeId

_NOBODY: Final = frozenset[NodeId]()


class Nodes:
    """All nodes, this one included. ``up`` has the boot id of each node that can be reached, ``left`` the nodes that
    were stopped in order."""

    def __init__(self, members: tuple[Member, ...], here: NodeId, boot_id: int) -> None:
        self.here = here
        self.all = [member.node for member in members]
        self.up: dict[NodeId, int] = {here: boot_id}
        self.left: set[NodeId] = set()
        self._reached: dict[NodeId, frozenset[NodeId]] = {}
        """The nodes that each peer reaches, as its last heartbeat said."""
        self._names = {member.node: member.name for member in members}

    @property
    def running(self) -> list[NodeId]:
        """The nodes that are up, in the order of the configuration."""
        return [node for node in self.all if node in self.up]

    def boot_id_of(self, node: NodeId) -> int | None:
        """The boot id of a node that is up, None while the node is down."""
        return self.up.get(node)

    def came(self, node: NodeId, boot_id: int) -> None:
        """A node can be reached."""
        self.up[node] = boot_id
        self.left.discard(node)

    def went(self, node: NodeId) -> None:
        """A node cannot be reached. Its last news is out of date."""
        self.up.pop(node, None)
        self._reached.pop(node, None)

    def says_it_reaches(self, node: NodeId, reached: frozenset[NodeId]) -> None:
        """A peer tells to which nodes it has a link."""
        self._reached[node] = reached

    def reach_each_other(self, one: NodeId, other: NodeId) -> bool:
        """Whether two nodes have a link, as far as this node knows: neither of them says that it has none."""
        return one == other or (self._reaches(one, other) and self._reaches(other, one))

    def _reaches(self, one: NodeId, other: NodeId) -> bool:
        return other in (self.up if one == self.here else self._reached.get(one, self.all))

    def better_placed(self) -> list[NodeId]:
        """The peers that reach every node that this node reaches, and more; the peer that reaches most comes first."""
        if len(self.up) == len(self.all):
            return []
        reach = {node: {node, *self._reached.get(node, ())} for node in self.up if node != self.here}
        better = [node for node, nodes in reach.items() if self.up.keys() < nodes]
        return sorted(better, key=lambda node: (-len(reach[node]), node))

    def who_reaches(self, wanted: Collection[NodeId]) -> str | None:
        """The name of a peer that says it has a link to one of these nodes, if this node has a link to none of them."""
        if any(node in self.up for node in wanted):
            return None
        return next(
            (self.name(peer) for peer in self.running if not self._reached.get(peer, _NOBODY).isdisjoint(wanted)), None
        )

    @property
    def up_names(self) -> dict[NodeId, str]:
        """The names of the nodes that are up."""
        return {node: self.name(node) for node in self.up}

    def name(self, node: NodeId) -> str:
        """The name of a node; its number, if the configuration does not name it."""
        return self._names.get(node, str(node))

    def named(self, name: object) -> NodeId | None:
        """The node of that name."""
        return next((node for node, known in self._names.items() if known == name), None)

    @property
    def names(self) -> list[str]:
        """The names of all nodes."""
        return list(self._names.values())
