"""The Raft groups and queues that a node knows: what runs here, and proxies for queues that run elsewhere.

:mod:`reference_broker.node.hosting` starts and stops them; everybody else looks them up here.
"""

from __future__ import annotations

from reference_broker.node.group import GroupRunner
from reference_broker.node.proxy import Proxy
from reference_broker.node.queue_runner import QueueRunner
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId


class Groups:
    """All queues and groups of one node."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.by_group: dict[GroupId, Queue] = {}
        self.runners: dict[GroupId, GroupRunner] = {}
        """The Raft groups that have a member here, the metadata group among them: whoever asks what Raft says."""
        self.hosted: dict[GroupId, QueueRunner] = {}
        """Everything that runs here, these members among it: whoever asks who leads a queue, or how the queue is."""
        self.log_uids: dict[GroupId, int] = {}
        """The log uid of each group's replica here: notices of the log may be about an earlier replica."""
        self.proxies: dict[GroupId, Proxy] = {}
        """The queues that run elsewhere."""
        self.is_current = False
        """Whether this node has heard everything that was committed before its start."""

    def proposer(self, group: GroupId) -> QueueRunner | Proxy | None:
        """What takes proposals to a group here: its runner, or the proxy of a queue; None for a queue that is gone."""
        return self.hosted.get(group) or self.proxies.get(group)

    def led_here(self, group: GroupId) -> QueueRunner | None:
        """The runner of a group that this node leads."""
        runner = self.hosted.get(group)
        return runner if runner is not None and runner.leads else None
