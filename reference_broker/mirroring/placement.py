"""Which nodes should have a copy of a queue, by the policy that holds for it. Pure.

The keys are RabbitMQ's (https://www.rabbitmq.com/docs/3.13/ha): ``ha-mode`` is ``all``, ``exactly`` with a number of
nodes in ``ha-params``, or ``nodes`` with their names. A change is one step; the master takes the next step when the
record has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from reference_broker.machines.cluster.metadata import ArgumentValue, QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.types import NOBODY, NodeId

SYNC_BATCH_MESSAGES: Final = 4096
"""RabbitMQ's ``ha-sync-batch-size``."""


class HaMode(StrEnum):
    """The policy's rule for the number of copies."""

    ALL = "all"
    EXACTLY = "exactly"
    NODES = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class HaPolicy:
    """The part of a policy that is about copies."""

    mode: HaMode
    count: int = 0
    """With ``exactly``: the nodes that have the queue, the master's among them."""
    nodes: tuple[str, ...] = ()
    """With ``nodes``: their names."""
    sync_automatically: bool = False
    sync_batch: int = SYNC_BATCH_MESSAGES
    promotes_on_failure: bool = True
    """Whether a copy that is not synchronised may become the master when the master's node is lost."""
    promotes_on_shutdown: bool = False
    """The same, when the master's node was stopped in order."""


def ha_policy(definition: Mapping[str, ArgumentValue]) -> HaPolicy | None:
    """A checked policy's rule for copies; None if it has none."""
    if "ha-mode" not in definition:
        return None
    params, batch = definition.get("ha-params", 0), definition.get("ha-sync-batch-size", SYNC_BATCH_MESSAGES)
    return HaPolicy(
        mode=HaMode(str(definition["ha-mode"])),
        count=params if isinstance(params, int) else 0,
        nodes=params if isinstance(params, tuple) else (),
        sync_automatically=definition.get("ha-sync-mode", "manual") == "automatic",
        sync_batch=batch if isinstance(batch, int) else SYNC_BATCH_MESSAGES,
        promotes_on_failure=definition.get("ha-promote-on-failure", "always") == "always",
        promotes_on_shutdown=definition.get("ha-promote-on-shutdown", "when-synced") == "always",
    )


@dataclass(frozen=True, slots=True)
class AddCopy:
    """A copy is wanted on a node."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Drop:
    """A copy is not wanted any more."""

    mirror: Mirror


@dataclass(frozen=True, slots=True)
class MoveToCopy:
    """The master is not on a node of the policy, and this copy is."""

    mirror: Mirror


def mirrors_wanted(
    policy: HaPolicy | None,
    master: NodeId,
    present: Sequence[NodeId],
    up: Mapping[NodeId, str],
    load: Mapping[NodeId, int],
) -> list[NodeId]:
    """The nodes that should have a copy. ``present``: the nodes that have one, eldest first; ``up``: the names of the
    nodes in reach; ``load``: how many queues each node has."""
    if policy is None:
        return []
    others = [node for node in up if node != master]
    kept = [node for node in present if node in up]
    match policy.mode:
        case HaMode.ALL:
            return [*kept, *[node for node in sorted(others) if node not in kept]]
        case HaMode.NODES:
            return [node for node in sorted(others) if up[node] in policy.nodes]
        case HaMode.EXACTLY:
            spare = sorted((node for node in others if node not in kept), key=lambda node: (load.get(node, 0), node))
            return [*kept, *spare][: max(policy.count - 1, 0)]


def next_step(
    policy: HaPolicy | None, record: QueueRecord, up: Mapping[NodeId, str], load: Mapping[NodeId, int]
) -> AddCopy | Drop | MoveToCopy | None:
    """The next step towards what the policy wants; None if nothing is to be done now. Missing copies come first, and
    the master moves before a copy is given up."""
    present = [mirror.node for mirror in record.mirrors]
    wanted = mirrors_wanted(policy, record.leader, present, up, load)
    for node in wanted:
        if node not in present:
            return AddCopy(node)
    if (heir := _heir(policy, record, up)) is not None:
        return MoveToCopy(heir)
    for mirror in reversed(record.mirrors):
        if mirror.node not in wanted and mirror.node in up:
            return Drop(mirror)
    return None


def _heir(policy: HaPolicy | None, record: QueueRecord, up: Mapping[NodeId, str]) -> Mirror | None:
    """The copy that should be the master, because the present master's node is not one of the policy's."""
    if policy is None or policy.mode is not HaMode.NODES or up.get(record.leader) in policy.nodes:
        return None
    return next((each for each in record.mirrors if each.is_synchronised and up.get(each.node) in policy.nodes), None)


Reaches = Callable[[NodeId, NodeId], bool]
"""Whether two nodes reach each other."""


def out_of_ring(record: QueueRecord, reaches: Reaches, decider: NodeId) -> Mirror | None:
    """A mirror that has to go, because the ring has a gap there; None if it has none. A mirror must reach ``decider``,
    which leads the metadata: else it does not hear who the members of the ring are. And neighbours in the ring must
    reach each other; if two mirrors do not, the younger one goes. The master sees its own links by itself."""
    for mirror in record.mirrors:
        if decider != NOBODY and not reaches(mirror.node, decider):
            return mirror
    for elder, younger in pairwise(record.mirrors):
        if not reaches(elder.node, younger.node):
            return younger
    return None


def fits_in_ring(record: QueueRecord, node: NodeId, reaches: Reaches, decider: NodeId) -> bool:
    """Whether a new mirror on a node would have a link to its elder neighbour, and hear who the members are."""
    elder = record.mirrors[-1].node if record.mirrors else record.leader
    return reaches(elder, node) and (decider == NOBODY or reaches(node, decider))


def first_mirrors(
    policy: HaPolicy | None, record: QueueRecord, up: Mapping[NodeId, str], boots: Mapping[NodeId, int],
    load: Mapping[NodeId, int],
) -> QueueRecord:  # fmt: skip
    """The record of a queue that is to be declared, with its copies. They are synchronised, because the queue is
    empty."""
    nodes = mirrors_wanted(policy, record.leader, (), up, load)
    if not nodes or record.exclusive:
        return record
    copies = tuple(Mirror(node, boots[node], 0, is_synchronised=True) for node in nodes)
    return replace(record, mirrors=copies, owner_boot=boots[record.leader])
