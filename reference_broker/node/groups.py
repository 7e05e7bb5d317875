"""The Raft groups and queues that a node knows: members here, and proxies for queues whose members are elsewhere.

:mod:`reference_broker.node.hosting` starts and stops them; everybody else looks them up here.
"""

from __future__ import annotations

from reference_broker.node.group import GroupRunner
from reference_broker.node.proxy import Proxy
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId


class Groups:
    """All of them, by name and by group."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.by_group: dict[GroupId, Queue] = {}
        self.runners: dict[GroupId, GroupRunner] = {}
        """The groups that have a member here, the metadata group among them."""
        self.log_uids: dict[GroupId, int] = {}
        """Which replica of each of them is here, as the log counts: it may tell of an earlier one."""
        self.proxies: dict[GroupId, Proxy] = {}
        """The other queues."""
        self.is_current = False
        """Whether all that was committed before this start has been heard."""

    def proposer(self, group: GroupId) -> GroupRunner | Proxy | None:
        """What takes proposals to a group here: its member, or the proxy of a queue; None for a queue that is gone."""
        return self.runners.get(group) or self.proxies.get(group)
