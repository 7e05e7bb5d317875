"""Who watches a node from within: what is told, and at which moment.

What happens seldom is told by a call. What happens with every message is watched by wrapping: the observer gets the
call that a part is about to make again and again, once, when the node is built, and gives back the call to be made. So
a node that nobody watches makes no call more for a message than it would without an observer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reference_broker.classic.store import ClassicStore
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.replication.group_runner import GroupRunner, MachineCalls
from reference_broker.types import NodeId

Call = TypeVar("Call", bound=Callable[..., Any])


class NodeObserver:
    """An observer that looks away. Who watches overrides what is of interest."""

    # Wrapped once, while the node is built

    def log(self, log: LogSystem) -> LogSystem:
        """The log that the node uses."""
        return log

    def log_notices(self, notify: Call) -> Call:
        """How the log tells what is on disk."""
        return notify

    def store_notices(self, notify: Call) -> Call:
        """How the store of classic queues tells what is on disk."""
        return notify

    def sending(self, send: Call) -> Call:
        """How frames go to other nodes."""
        return send

    def frames(self, take: Call) -> Call:
        """How frames of other nodes are taken."""
        return take

    def deliveries(self, deliver: Call) -> Call:
        """How queues hand messages to channels of this node."""
        return deliver

    def dead_letters(self, route: Call) -> Call:
        """How dead letters of a queue go on their way."""
        return route

    def look_ups(self, when_queues_current: Call) -> Call:
        """How clients ask whether this node knows of every queue."""
        return when_queues_current

    def machine_calls(self, runner: GroupRunner) -> MachineCalls:
        """How a member applies entries to its machine, and installs snapshots."""
        return runner.host.apply, runner.host.install

    # Told

    def store_opened(self, store: ClassicStore) -> None:
        """The store of classic queues is open."""

    def member_begins(self, runner: GroupRunner, state: RecoveredGroup | None) -> None:
        """A member begins, with what recovery found of it."""

    def leader_changed(self, runner: GroupRunner) -> None:
        """A member's role, leader or term has changed; nobody else has heard of it yet."""

    def queue_gone(self, record: QueueRecord) -> None:
        """The deletion of a queue is committed; nobody else has heard of it yet."""

    def queue_lost(self, record: QueueRecord) -> None:
        """The link to the owner of a classic queue broke, and so did all subscriptions over the link."""

    def peer_up(self, node: NodeId) -> None:
        """A link with another node stands; nobody else has heard of it yet."""

    def peer_down(self, node: NodeId) -> None:
        """The link with another node is gone; nobody else has heard of it yet."""


NO_OBSERVER = NodeObserver()
