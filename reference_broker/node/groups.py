"""The Raft groups and queues that a node knows: members here, and proxies for queues whose members are elsewhere.

:mod:`reference_broker.node.hosting` starts and stops them; everybody else looks them up here.
"""

from __future__ import annotations

from reference_broker.node.group import GroupRunner
from reference_broker.node.proxy import Proxy
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId


class Groups:
    """All queues and groups of one node."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.by_group: dict[GroupId, Queue] = {}
        self.runners: dict[GroupId, GroupRunner] = {}
        """The groups that have a member here, the metadata group among them."""
        self.log_uids: dict[GroupId, int] = {}
        """The log uid of each group's replica here: notices of the log may be about an earlier replica."""
        self.proxies: dict[GroupId, Proxy] = {}
        """The queues that have no member here."""
        self.is_current = False
        """Whether this node has heard everything that was committed before its start."""

    def proposer(self, group: GroupId) -> GroupRunner | Proxy | None:
        """What takes proposals to a group here: its member, or the proxy of a queue; None for a queue that is gone."""
        return self.runners.get(group) or self.proxies.get(group)
