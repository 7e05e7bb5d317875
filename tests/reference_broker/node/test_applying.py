"""How much of the log a member reads at a time to apply it."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.node import group
from reference_broker.types import Entry

from .test_group_storm import FOUNDERS, Publisher, World, member_of

APPLY_BYTES = 1500


def test_a_member_that_is_far_behind_reads_a_little_at_a_time() -> None:
    """It learns the commit index of a backlog of gigabytes in one message, and must not read all of it for that."""
    world = World(1)
    world.settle_down()
    behind = FOUNDERS[2]
    world.crash(behind)
    publisher = Publisher(world.nodes[FOUNDERS[0]], world)
    for _ in range(16):
        publisher.publish()
        world.settle_down_without(behind)
    world.restart(behind)
    log, read = world.nodes[behind].log, []
    entries = log.entries

    def noted(*arguments: Any) -> list[Entry]:
        found = entries(*arguments)
        read.append([len(entry.payload) for entry in found])
        return found

    log.entries = noted  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group, "_APPLY_BYTES", APPLY_BYTES)
        world.settle_down()
    assert member_of(world, behind).applied == member_of(world, FOUNDERS[0]).applied
    assert max(map(len, read)) > 1, "several small ones come at once"
    assert len(read) > 2
    assert all(len(sizes) == 1 or sum(sizes) <= APPLY_BYTES for sizes in read)
    assert len({node.host.machine.snapshot() for node in world.nodes.values()}) == 1
