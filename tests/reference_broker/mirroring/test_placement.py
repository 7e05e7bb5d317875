"""Which nodes should have a copy, and who becomes the master."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.mirroring import placement
from reference_broker.mirroring.placement import (
    AddCopy,
    Drop,
    HaPolicy,
    MoveToCopy,
    first_mirrors,
    fits_in_ring,
    ha_policy,
    mirrors_wanted,
    next_step,
)
from reference_broker.node.hosting.promotion import promoted
from reference_broker.types import GroupId, NodeId

UP = {NodeId(1): "a", NodeId(2): "b", NodeId(3): "c", NodeId(4): "d"}


BOOTS = dict.fromkeys(UP, 1)


def copy(node: int, *, synced: bool = True, boot: int = 1) -> Mirror:
    return Mirror(NodeId(node), boot, node, synced)


def record(*mirrors: Mirror, master: int = 1, **values: Any) -> QueueRecord:
    node = NodeId(master)
    return QueueRecord(
        name="q", group=GroupId(1), members=(node,), leader=node, kind="classic", mirrors=mirrors, **values
    )


def policy(**definition: Any) -> HaPolicy | None:
    return ha_policy({f"ha-{key.replace('_', '-')}": value for key, value in definition.items()})


@pytest.mark.parametrize(
    ("definition", "present", "load", "wanted"),
    [
        ({}, [], {}, []),
        ({"mode": "all"}, [], {}, [2, 3, 4]),
        ({"mode": "all"}, [4], {}, [4, 2, 3]),
        ({"mode": "exactly", "params": 1}, [2], {}, []),
        ({"mode": "exactly", "params": 3}, [], {2: 5, 3: 1, 4: 2}, [3, 4]),
        ({"mode": "exactly", "params": 3}, [2], {2: 5, 3: 1, 4: 2}, [2, 3]),
        ({"mode": "exactly", "params": 9}, [], {}, [2, 3, 4]),
        ({"mode": "nodes", "params": ("c", "a", "gone")}, [], {}, [3]),
    ],
)
def test_the_nodes_that_should_have_a_copy(
    definition: dict[str, Any], present: list[int], load: dict[int, int], wanted: list[int]
) -> None:
    nodes = [NodeId(node) for node in present]
    loads = {NodeId(node): queues for node, queues in load.items()}
    assert mirrors_wanted(policy(**definition), NodeId(1), nodes, UP, loads) == wanted


def test_what_is_missing_comes_before_what_is_too_much() -> None:
    """A queue never has fewer copies on the way than at both ends."""
    some = policy(mode="nodes", params=("a", "c"))
    assert next_step(some, record(copy(2)), UP, {}) == AddCopy(NodeId(3))
    assert next_step(some, record(copy(2), copy(3, synced=False)), UP, {}) == Drop(copy(2))
    assert next_step(some, record(copy(3)), UP, {}) is None
    assert next_step(None, record(copy(2), copy(3)), UP, {}) == Drop(copy(3))


def test_a_master_outside_the_policy_moves_to_a_synchronised_copy() -> None:
    """As in RabbitMQ, it stays until there is one."""
    some = policy(mode="nodes", params=("b", "c"))
    assert next_step(some, record(), UP, {}) == AddCopy(NodeId(2))
    assert next_step(some, record(copy(2, synced=False), copy(3, synced=False)), UP, {}) is None
    assert next_step(some, record(copy(2, synced=False), copy(3)), UP, {}) == MoveToCopy(copy(3))


@pytest.mark.parametrize(
    ("mirrors", "definition", "was_stopped", "heir"),
    [
        ([copy(2), copy(3)], {}, False, 2),
        ([copy(2, boot=7), copy(3)], {}, False, 3),
        ([copy(2, boot=7), copy(3, boot=7)], {}, False, 2),
        ([copy(2, boot=7), copy(3, synced=False)], {}, False, 2),
        ([copy(2, synced=False), copy(3)], {}, False, 3),
        ([copy(2, synced=False)], {}, False, 2),
        ([copy(2, synced=False, boot=7), copy(3, synced=False)], {}, False, 3),
        ([copy(2, synced=False, boot=7)], {}, False, None),
        ([copy(2, synced=False)], {"promote_on_failure": "when-synced"}, False, None),
        ([copy(2, synced=False)], {}, True, None),
        ([copy(2, synced=False)], {"promote_on_shutdown": "always"}, True, 2),
        ([copy(9)], {}, False, None),
    ],
)
def test_the_eldest_synchronised_copy_is_promoted(
    mirrors: list[Mirror], definition: dict[str, Any], was_stopped: bool, heir: int | None
) -> None:
    """One whose process is gone has on its drive what must survive, and nothing else."""
    found = promoted(policy(mode="all", **definition), record(*mirrors, master=9), BOOTS, was_stopped=was_stopped)
    assert (found and found.node) == heir


def test_a_new_queue_has_its_copies_at_once_and_an_exclusive_one_has_none() -> None:
    boots = {node: 10 + node for node in UP}
    made = first_mirrors(policy(mode="exactly", params=2), record(), UP, boots, {NodeId(2): 3})
    assert made.mirrors == (Mirror(NodeId(3), 13, 0, is_synchronised=True),)
    assert made.owner_boot == 11
    own = record(exclusive=5)
    assert first_mirrors(policy(mode="all"), own, UP, boots, {}) is own


@pytest.mark.parametrize(
    ("cut", "decider", "goes", "fits"),
    [
        ((), 1, None, True),
        ((1, 4), 2, None, True),  # no neighbours
        ((2, 3), 1, 3, True),  # the younger of the two
        ((2, 3), 2, 3, True),
        ((2, 3), 3, 2, True),  # the elder does not hear what is decided
        ((2, 3), 0, 3, True),  # nobody decides
        ((3, 4), 1, None, False),  # a new mirror stands behind the youngest
        ((3, 4), 4, 3, False),
        ((2, 4), 2, None, False),
        ((2, 4), 4, 2, True),
    ],
)
def test_a_ring_goes_where_there_are_links(
    cut: tuple[int, int] | tuple[()], decider: int, goes: int | None, fits: bool
) -> None:
    """Node 1 has mirrors on 2 and 3; node 4 may get one."""

    def reaches(one: NodeId, other: NodeId) -> bool:
        return not cut or {one, other} != set(cut)

    queue = record(copy(2), copy(3))
    mirror = placement.out_of_ring(queue, reaches, NodeId(decider))
    assert (mirror.node if mirror is not None else None) == goes
    assert fits_in_ring(queue, NodeId(4), reaches, NodeId(decider)) == fits
