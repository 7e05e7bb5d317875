"""The Raft groups and queues that a node knows: what runs here, and proxies for queues that run elsewhere.

:mod:`reference_broker.node.hosting.hosted_queues` starts and stops them; everybody else looks them up here.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference_broker.access.names import short, vhost_of
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.proxy import Proxy
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId


class Groups:
    """All queues and groups of one node."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        """By their names in the cluster."""
        self._of_vhosts: dict[str, dict[str, Queue]] = {}
        self.by_group: dict[GroupId, Queue] = {}
        self.runners: dict[GroupId, GroupRunner] = {}
        """The Raft groups that have a member here, with the metadata group: for questions about Raft."""
        self.hosted: dict[GroupId, QueueRunner] = {}
        """Everything that runs here, with these members: for questions about a queue's leader or state."""
        self.log_uids: dict[GroupId, int] = {}
        """The log uid of each group's replica here: notices of the log may be about an earlier replica."""
        self.proxies: dict[GroupId, Proxy] = {}
        """The queues that run elsewhere."""
        self.ending: set[GroupId] = set()
        """The unused queues whose deletion this node has asked for, and that are still there."""
        self.is_current = False
        """Whether this node has heard everything that was committed before its start."""

    def of_vhost(self, vhost: str) -> Mapping[str, Queue]:
        """The queues of a virtual host by their short names, now and later."""
        return self._of_vhosts.setdefault(vhost, {})

    def name(self, record: QueueRecord, queue: Queue) -> None:
        """Give a queue its name."""
        self.queues[record.name] = queue
        self._of_vhosts.setdefault(vhost_of(record.name), {})[short(record.name)] = queue

    def free_name(self, queue: Queue) -> None:
        """Take a queue's name away, unless another queue has it by now."""
        name = queue.record.name
        if self.queues.get(name) is queue:
            del self.queues[name]
            del self._of_vhosts[vhost_of(name)][short(name)]

    def proposer(self, group: GroupId) -> QueueRunner | Proxy | None:
        """The receiver of proposals to a group here: its runner, or the proxy of a queue; None for a queue that is
        gone."""
        return self.hosted.get(group) or self.proxies.get(group)

    def led_here(self, group: GroupId) -> QueueRunner | None:
        """The runner of a group that this node leads."""
        runner = self.hosted.get(group)
        return runner if runner is not None and runner.leads else None
