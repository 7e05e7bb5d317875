"""Who has a mirrored queue: changes of the record, in the order of the log, outdated ones among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reference_broker.machines.cluster.metadata import MetadataMachine, QueueRecord, record_from_json, record_to_json
from reference_broker.machines.cluster.mirror_records import (
    AddMirror,
    DropMirror,
    Mirror,
    MirrorSynchronised,
    MoveMaster,
    StartMaster,
    changed,
    store_of,
)
from reference_broker.types import GroupId, NodeId

GROUP = GroupId(77)
ASKER: dict[str, Any] = {"name": "q", "group": GROUP, "node": NodeId(1), "correlation": 0}
MIRRORS = tuple(Mirror(NodeId(node), 5, 0, is_synchronised=True) for node in (2, 3, 4))
RECORD = QueueRecord(
    name="q", group=GROUP, members=(NodeId(1),), founders=(NodeId(1),), leader=NodeId(1), kind="classic",
    mirrors=MIRRORS, owner_boot=9,
)  # fmt: skip


def test_the_younger_mirrors_follow_a_promoted_one() -> None:
    """What they have came through it. An elder one may have more, so it begins anew."""
    now = changed(RECORD, MoveMaster(**ASKER, epoch=0, member=NodeId(3), since=0, member_boot=5))
    assert (now.leader, now.members, now.mirrors) == (NodeId(3), (NodeId(3),), MIRRORS[2:])
    assert (now.epoch, now.owner_boot, now.owner_since) == (1, 5, 0)


def test_nobody_follows_a_mirror_whose_process_is_gone() -> None:
    """Its messages are on its drive; what it kept for the younger ones is not."""
    now = changed(RECORD, MoveMaster(**ASKER, epoch=0, member=NodeId(2), since=0, member_boot=6))
    assert (now.leader, now.mirrors, now.owner_boot) == (NodeId(2), (), 6)


def test_a_change_of_an_earlier_epoch_does_nothing() -> None:
    """Two nodes may see a lost master; and a master that starts again may be late."""
    moved = changed(RECORD, MoveMaster(**ASKER, epoch=0, member=NodeId(2), since=0, member_boot=5))
    for late in (
        MoveMaster(**ASKER, epoch=0, member=NodeId(3), since=0, member_boot=5),
        StartMaster(**ASKER, epoch=0, owner_boot=10),
        AddMirror(**ASKER, epoch=0, member=NodeId(1), member_boot=10, owner_boot=9),
    ):
        assert changed(moved, late) is moved


def test_a_copy_that_begins_anew_is_another_copy() -> None:
    """News of the former one says nothing about it."""
    dropped = changed(RECORD, DropMirror(**ASKER, member=NodeId(3), since=0))
    added = changed(dropped, AddMirror(**ASKER, epoch=0, member=NodeId(3), member_boot=6, owner_boot=9))
    assert added.mirrors[-1] == Mirror(NodeId(3), 6, 2, is_synchronised=False)
    for late in (
        DropMirror(**ASKER, member=NodeId(3), since=0),
        MirrorSynchronised(**ASKER, member=NodeId(3), since=0),
    ):
        assert changed(added, late) is added
    now = changed(added, MirrorSynchronised(**ASKER, member=NodeId(3), since=2))
    assert now.mirrors[-1].is_synchronised
    assert changed(now, MirrorSynchronised(**ASKER, member=NodeId(3), since=2)) is now
    assert len({store_of(GROUP, since) for since in range(1000)}) == 1000
    assert store_of(GROUP, 0) == GROUP


def test_a_master_that_starts_again_has_no_mirrors() -> None:
    """They followed a process that is gone."""
    now = changed(RECORD, StartMaster(**ASKER, epoch=0, owner_boot=10))
    assert (now.mirrors, now.epoch, now.owner_boot) == ((), 1, 10)


def test_a_queue_that_ends_with_its_node_moves_with_its_master() -> None:
    """A mirror keeps a queue alive that is not durable."""
    passing = replace(RECORD, durable=False, boot_id=9)
    now = changed(passing, MoveMaster(**ASKER, epoch=0, member=NodeId(2), since=0, member_boot=5))
    assert now.boot_id == 5


def test_records_read_back_with_and_without_mirrors() -> None:
    """A queue without mirrors is written as older programs wrote it."""
    import json

    plain = replace(RECORD, mirrors=(), owner_boot=0)
    assert not {"mirrors", "epoch", "owner_boot", "owner_since"} & json.loads(record_to_json(plain)).keys()
    for each in (RECORD, plain, replace(plain, epoch=3, owner_since=2)):
        assert record_from_json(json.loads(record_to_json(each))) == each
    machine = MetadataMachine()
    machine.queues["q"] = RECORD
    assert MetadataMachine.restore(machine.snapshot()).queues == {"q": RECORD}
