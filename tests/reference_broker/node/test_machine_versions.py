"""A member whose program is older than the leader's: it keeps the log for the others, applies nothing that it may not
understand, says so, and catches up once the newer program runs on it."""

from __future__ import annotations

from typing import Any

import pytest

from reference_broker.node.endpoints import status
from reference_broker.queues import quorum_member

from .test_group_storm import FOUNDERS, GROUP, Publisher, World, member_of

OLD, NEW = quorum_member.MACHINE_VERSION, quorum_member.MACHINE_VERSION + 1
STALE = FOUNDERS[2]
UPGRADED = FOUNDERS[:2]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Three nodes at work; then the newer program is started on two of them, while nobody can reach the third."""
    world = World(1)
    world.settle_down()
    publish(world)
    part(world)
    monkeypatch.setattr(quorum_member, "MACHINE_VERSION", NEW)
    for node in UPGRADED:
        world.crash(node)
    for node in UPGRADED:
        world.restart(node)
        world.cut(node, STALE)
    world.settle_down_without(STALE)
    world.settle_down_without(STALE)
    assert member_of(world, UPGRADED[0]).core.machine_version_in_effect == NEW
    return world


def part(world: World) -> None:
    for node in UPGRADED:
        world.cut(node, STALE)


def publish(world: World) -> Publisher:
    """From node 1, and wait for it."""
    publisher = Publisher(world.nodes[FOUNDERS[0]], world)
    publisher.publish()
    world.settle_down()
    return publisher


def ready(world: World, node: int) -> int:
    return world.nodes[FOUNDERS[node - 1]].host.machine.counts().ready


def upgrade(world: World) -> None:
    world.crash(STALE)
    world.restart(STALE)
    world.settle_down()


def assert_all_agree(world: World) -> None:
    assert not member_of(world, STALE).newer_machine
    assert len({node.host.machine.snapshot() for node in world.nodes.values()}) == 1
    assert len({member_of(world, node).applied for node in FOUNDERS}) == 1


def test_an_older_member_keeps_the_log_and_applies_nothing_more(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What it cannot understand it must not guess at: two members would then disagree for ever."""
    before = ready(world, STALE)
    publish(world)
    publish(world)
    stale, newer = member_of(world, STALE), member_of(world, UPGRADED[0])
    assert stale.newer_machine == NEW
    assert ready(world, STALE) == before < ready(world, 1)
    assert stale.applied < stale.core.commit_index == newer.applied
    assert stale.core.log.synced_index == newer.core.log.last_index
    said = [record.message for record in caplog.records if "machine version" in record.message]
    assert len(said) == 1, "once, not with each entry"
    assert f"machine version {NEW}, this node has {OLD}" in said[0]
    upgrade(world)
    assert_all_agree(world)


def test_its_disk_still_counts_for_the_majority(world: World) -> None:
    """A rolling upgrade has to survive the loss of one more node."""
    world.settle_down()
    world.crash(UPGRADED[1])
    publisher = Publisher(world.nodes[FOUNDERS[0]], world)
    publisher.publish()
    for _ in range(30):
        world.settle_down_without(UPGRADED[1])
    assert member_of(world, FOUNDERS[0]).leader == FOUNDERS[0]
    assert not publisher.session.unconfirmed_bytes
    assert member_of(world, STALE).newer_machine == NEW


def test_it_says_in_its_status_that_it_is_behind(world: World) -> None:
    """Operators read there why a node serves nobody."""

    def rows() -> list[dict[str, Any]]:
        hostings = [world.nodes[node].hosting for node in FOUNDERS]
        return [status.queue_row(each.by_group[GROUP], each.runners[GROUP]) for each in hostings]

    world.settle_down()
    assert [row.get("behind") for row in rows()] == [
        None,
        None,
        f"machine version {NEW} is in effect, this node has {OLD}",
    ]
    upgrade(world)
    assert not any("behind" in row for row in rows())


def test_it_takes_no_snapshot(world: World) -> None:
    """The state stands still at an entry of long ago, and the log from there on is what the newer program needs."""
    world.settle_down()
    stale = member_of(world, STALE)
    floor = stale.core.log.snapshot_index
    stale.take_snapshot()
    world.settle_down()
    assert stale.core.log.snapshot_index == floor
    upgrade(world)
    assert_all_agree(world)


def test_a_snapshot_of_a_newer_machine_is_kept_and_not_read(world: World) -> None:
    """The leader's log may begin behind the older member's end: it must store what it cannot read, also over a restart
    of its own program, and go on from there with the newer one."""
    behind = member_of(world, STALE).applied
    before = ready(world, STALE)
    publisher = Publisher(world.nodes[FOUNDERS[0]], world)
    for _ in range(5):
        publisher.publish()
        world.settle_down_without(STALE)
    for node in UPGRADED:
        member_of(world, node).take_snapshot()
    world.settle_down_without(STALE)
    world.settle_down()
    stale = member_of(world, STALE)
    assert stale.core.log.snapshot_index == member_of(world, UPGRADED[0]).core.log.snapshot_index > behind
    assert (stale.newer_machine, stale.applied) == (NEW, behind)
    assert ready(world, STALE) == before
    restart_with(world, OLD)
    assert member_of(world, STALE).newer_machine == NEW
    assert ready(world, STALE) == 0, "a state was read that is not for this program"
    restart_with(world, NEW)
    assert_all_agree(world)


def restart_with(world: World, version: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quorum_member, "MACHINE_VERSION", version)
        upgrade(world)
