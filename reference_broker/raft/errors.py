"""The errors of Raft: misuse by the shell, and the contradiction that must never happen."""

from __future__ import annotations

from reference_broker.types import NOBODY, NodeId


class NotLeaderError(Exception):
    """Only the leader takes proposals. ``leader`` is the node to ask instead, or NOBODY while no leader is known."""

    def __init__(self, leader: NodeId) -> None:
        hint = f"ask node {leader}" if leader != NOBODY else "no leader is known, try again after the election"
        super().__init__(f"this member is not the leader: {hint}")
        self.leader = leader


class SafetyViolationError(Exception):
    """Two members disagree although Raft proves that they cannot.

    To go on would spread the damage, so the group must stop on this node. Causes outside this code are two nodes with
    one id, and a data directory that was copied from another node or restored from a backup.
    """


class ChangeUnderWayError(Exception):
    """The leader takes one change of membership at a time, and no change before its first entry is committed.

    Try again once :attr:`RaftCore.change_under_way` is false.
    """


class TransferUnderWayError(Exception):
    """The leader is handing over to ``to`` and takes no proposals. It takes them again if it stays the leader.

    Look at :attr:`RaftCore.accepting` first, and keep the commands until then.
    """

    def __init__(self, to: NodeId) -> None:
        super().__init__(f"this leader is handing over to node {to}: propose there, or here again if it stays leader")
        self.to = to
