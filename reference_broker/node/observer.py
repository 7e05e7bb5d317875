"""The observer of a node from within: the events that it gets, and their moments.

Rare events are told by a call. Steps of every message are told by a call that :func:`before` puts in front of another
call when the node is built. If the observer looks away, nothing is put in front, so a node that nobody watches makes no
additional call per message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from reference_broker.classic.store import ClassicStore
from reference_broker.classic.writer import Notice as StoreNotice
from reference_broker.log.notices import Notice
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import RunSlice
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.replication.group_runner import GroupRunner, MachineCalls
from reference_broker.queues.port import DeadMessage, Queue
from reference_broker.types import ConsumerId, GroupId, NodeId

Call = TypeVar("Call", bound=Callable[..., Any])


class NodeObserver:
    """An observer that ignores everything. A subclass overrides the methods that it needs."""

    # Wrapped, while the node is built

    def log(self, log: LogSystem) -> LogSystem:
        """The log that the node is to use in place of ``log``."""
        return log

    def machine_calls(self, runner: GroupRunner) -> MachineCalls:
        """How a member is to apply entries to its machine, and to install snapshots."""
        return runner.host.apply, runner.host.install

    def frames(self, take: Call) -> Call:
        """How frames of other nodes are to be taken."""
        return take

    # Told before it happens, through :func:`before`

    def log_tells(self, notices: list[Notice]) -> None:
        """The log tells what is on disk."""

    def store_tells(self, notices: Sequence[StoreNotice]) -> None:
        """The store of classic queues tells what is on disk."""

    def sends(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> None:
        """A frame goes to another node."""

    def delivers(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """A queue hands messages to a channel of this node."""

    def buries(self, queue: Queue, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Dead letters of a queue go on their way."""

    # Told as soon as it happened, and before anybody else hears of it

    def misses(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """A consumer gets no messages up to id ``last`` until its channel asks for them."""

    def looked_up(self, found: bool) -> None:
        """A client has asked whether this node knows of every queue. ``found``: whether anybody could tell."""

    def store_opened(self, store: ClassicStore) -> None:
        """The store of classic queues is open."""

    def member_begins(self, runner: GroupRunner, state: RecoveredGroup | None) -> None:
        """A member begins, with what recovery found of it."""

    def leader_changed(self, runner: GroupRunner) -> None:
        """A member's role, leader or term has changed."""

    def queue_gone(self, record: QueueRecord) -> None:
        """The deletion of a queue is committed."""

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the owner of a classic queue broke, and so did all subscriptions over the link."""

    def peer_up(self, node: NodeId) -> None:
        """A link with another node stands."""

    def peer_down(self, node: NodeId) -> None:
        """The link with another node is gone."""


NO_OBSERVER = NodeObserver()


def before(told: Callable[..., None], call: Call) -> Call:
    """``call``, with a method of an observer told first; or ``call`` itself, if the observer looks away."""
    if getattr(told, "__func__", None) is getattr(NodeObserver, told.__name__, told):
        return call

    def both(*arguments: Any) -> Any:
        told(*arguments)
        return call(*arguments)

    return cast(Call, both)
