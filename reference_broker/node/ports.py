"""The node as its parts use it; :class:`reference_broker.node.shard.Shard` is one, tests make others.

A member of a group needs more, and says so by extending these (:mod:`~reference_broker.node.replication.group_runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.node.config import Limits
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.types import NodeId


class NodePorts(Protocol):
    """The identity of the node, its links to the peers, and time."""

    node: NodeId
    limits: Limits

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        """Queue a message for a peer; returns its octets, 0 while the peer is down."""

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a while, together with others."""

    def in_step(self, period_s: float, call: Callable[[], None]) -> None:
        """Call half of a period from now, or up to a period later: at the same moment as others with this period."""

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after exactly ``delay_s``."""


class Runner(Protocol):
    """An object that gets turns."""

    scheduled: bool

    def turn(self) -> None:
        """Do everything that the inputs since the last turn made necessary."""


class RoundsPorts(Protocol):
    """The rounds of replication that all groups of a node share
    (:class:`~reference_broker.node.replication.batcher.Rounds`)."""

    octets_under_way: int

    def join(self, runner: Runner) -> bool:
        """Whether a group may make an entry of few commands now, which is then part of the round. If it may not, it
        gets a turn when it may."""

    def done(self, runner: Runner) -> None:
        """The group's entries are committed, or it leads no more."""


class ProposingPorts(NodePorts, Protocol):
    """And the means to propose commands in the node's name."""

    boot_id: int
    anatomy: Anatomy
    rounds: RoundsPorts

    @property
    def congested(self) -> Set[NodeId]:
        """The peers that should not be sent much now. It is the same set for as long as the node runs."""

    def when_writable(self, node: NodeId, runner: Runner) -> None:
        """Give ``runner`` a turn when the link to a congested peer takes octets again; never, if the link breaks."""

    def now_ns(self) -> int:
        """The host's monotonic clock."""

    def wake(self, runner: Runner) -> None:
        """Have ``runner.turn()`` called at the end of this turn of the event loop."""

    def wake_late(self, runner: Runner) -> None:
        """The same, but the log writes first."""
