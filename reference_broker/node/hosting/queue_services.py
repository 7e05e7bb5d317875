"""A node's services for the members of its queues: timers, dead letters, and news of other nodes.

Most of these services are for the leader of a queue. They end when the node does not lead the queue any more, and the
new leader asks its own node for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.effects import DeadLetter
from reference_broker.node.hosting.dead_letters import DeadLetterRouter
from reference_broker.node.hosting.endings import Endings
from reference_broker.node.hosting.reads import NodeReads
from reference_broker.node.hosting.reconciliation import Reconciliation
from reference_broker.node.links.known_nodes import Nodes
from reference_broker.node.observer import NodeObserver, before
from reference_broker.node.replication.known_groups import Groups
from reference_broker.queues.port import DeadMessage, Queue
from reference_broker.types import GroupId, NodeId


class QueueServices:
    """The services of one node (:class:`reference_broker.queues.port.MemberPorts`)."""

    def __init__(
        self,
        groups: Groups,
        nodes: Nodes,
        endings: Endings,
        dead_letters: DeadLetterRouter,
        reads: NodeReads,
        reconciliation: Reconciliation,
        now_ms: Callable[[], int],
        check_suspension: Callable[[], int],
        observer: NodeObserver,
    ) -> None:
        """``check_suspension`` begins doubts if the process was suspended."""
        self._groups = groups
        self._nodes = nodes
        self._endings = endings
        self._dead_letters = dead_letters
        self._route = before(observer.buries, dead_letters.route)
        self._reads = reads
        self._reconciliation = reconciliation
        self._now_ms = now_ms
        self._check_suspension = check_suspension
        self._loop = asyncio.get_running_loop()
        self._watchers: dict[NodeId, set[GroupId]] = {}
        self._timers: dict[GroupId, asyncio.TimerHandle] = {}

    def watch_node(self, group: GroupId, node: NodeId) -> None:
        """Tell the leader of the group how a node stands, now and whenever that changes."""
        self._watchers.setdefault(node, set()).add(group)
        self._tell(group, node)

    def node_changed(self, node: NodeId) -> None:
        """A node came up or went down: tell the leaders that watch it."""
        for group in self._watchers.get(node, ()):
            self._tell(group, node)

    def dead_letter(self, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """Route dead letters of a queue."""
        if (queue := self._groups.by_group.get(group)) is not None:
            self._route(queue, letters, contents)

    def set_timer(self, group: GroupId, at_ms: int) -> None:
        """Tell the queue when the wall clock shows ``at_ms``; an earlier timer of the queue ends."""
        self._drop_timer(group)
        delay_s = max(0, at_ms - self._now_ms()) / 1000
        self._timers[group] = self._loop.call_later(delay_s, self._timer_due, group)

    def queue_expired(self, group: GroupId, unused_ms: int) -> None:
        """Nobody has used the queue for its ``x-expires``."""
        self._endings.expired(group, unused_ms)

    def when_current(self, group: GroupId, call: Callable[[], None]) -> None:
        """Call once this node has applied everything that was committed to the group before now. An answer of the
        leader that came in while this process was suspended is too old, so look at the clock before the call."""

        def caught_up() -> None:
            self._check_suspension()
            call()

        self._reads.catch_up(caught_up, group)

    def settings_changed(self, group: GroupId) -> None:
        """See whether the queue's new settings are the settings that the policies make."""
        if (runner := self._groups.hosted.get(group)) is not None:
            self._reconciliation.settings_changed(runner)

    def lead_lost(self, group: GroupId) -> None:
        """This node does not lead the queue any more."""
        self._drop_timer(group)
        self._dead_letters.lead_lost(group)

    def queue_gone(self, record: QueueRecord) -> None:
        """The queue was deleted."""
        self._drop_timer(record.group)
        self._dead_letters.queue_removed(record)

    def _tell(self, group: GroupId, node: NodeId) -> None:
        if (queue := self._led_queue(group)) is None:
            return
        if (boot_id := self._nodes.boot_id_of(node)) is None:
            queue.node_down(node)
        else:
            queue.node_up(node, boot_id)

    def _timer_due(self, group: GroupId) -> None:
        del self._timers[group]
        if (queue := self._led_queue(group)) is not None:
            queue.timer_due()

    def _led_queue(self, group: GroupId) -> Queue | None:
        """The group's queue, if this node leads it."""
        return self._groups.by_group.get(group) if self._groups.led_here(group) is not None else None

    def _drop_timer(self, group: GroupId) -> None:
        if (timer := self._timers.pop(group, None)) is not None:
            timer.cancel()
