"""Who executes an effect: the one rule that makes local delivery need no coordination.

Every member computes the same effects from the same log. An effect that is meant for a channel is executed by the
member on that channel's node. A node that hosts no member is served by the leader instead (the *proxy* case). So at any
log position each effect has exactly one executor, and no member asks another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reference_broker.machines.effects import (
    Confirm,
    DeadLetter,
    Deliver,
    Effect,
    MonitorNode,
    QueueExpired,
    Reject,
    Reply,
    SetTimer,
    SettingsChanged,
)
from reference_broker.types import NodeId


def local_effects(
    effects: Iterable[Effect], node: NodeId, is_leader: bool, member_nodes: Collection[NodeId]
) -> list[Effect]:
    """The effects that the member on ``node`` executes, in order. ``member_nodes`` are the nodes of the group."""
    return [effect for effect in effects if _executes(effect, node, is_leader, member_nodes)]


def _executes(effect: Effect, node: NodeId, is_leader: bool, member_nodes: Collection[NodeId]) -> bool:
    match effect:
        case Deliver():
            host = effect.consumer.channel.node
        case Confirm() | Reject() | Reply():
            host = effect.channel.node
        case MonitorNode() | DeadLetter() | SetTimer() | QueueExpired() | SettingsChanged():
            return is_leader
    return host == node or (is_leader and host not in member_nodes)
