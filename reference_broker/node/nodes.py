"""The nodes of the cluster as one of them sees them: their names, and which are up."""

from __future__ import annotations

from reference_broker.node.config import Member
from reference_broker.types import NodeId


class Nodes:
    """All nodes, this one included. ``up`` has the boot id of each node that can be reached, ``left`` the nodes that
    were stopped in order."""

    def __init__(self, members: tuple[Member, ...], here: NodeId, boot_id: int) -> None:
        self.here = here
        self.all = [member.node for member in members]
        self.up: dict[NodeId, int] = {here: boot_id}
        self.left: set[NodeId] = set()
        self._names = {member.node: member.name for member in members}

    @property
    def running(self) -> list[NodeId]:
        """The nodes that are up, in the order of the configuration."""
        return [node for node in self.all if node in self.up]

    def boot_id_of(self, node: NodeId) -> int | None:
        """The boot id of a node that is up, None while the node is down."""
        return self.up.get(node)

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
