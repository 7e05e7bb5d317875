"""A mirror that begins: it says that it has everything only when that is true, and begins anew when its master takes it
for what it is not."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.message_run import MessageRun
from reference_broker.mirroring.operations import Add
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.owned.mirror_frames import RingNote, unpack_note
from reference_broker.node.owned.mirror_runner import MirrorRunner
from reference_broker.types import GroupId, NodeId
from tests.reference_broker.node.test_suspension import content

MASTER, ME, GROUP = NodeId(1), NodeId(2), GroupId(7)


class Node:
    """The node of the mirror."""

    node, boot_id = ME, 1

    def __init__(self) -> None:
        self.lost: list[Mirror] = []
        self.notes: list[RingNote] = []

    def send(self, _to: NodeId, _kind: FrameKind, buffers: Sequence[bytes]) -> int:
        self.notes.append(unpack_note(memoryview(buffers[0]))[1])
        return 0

    def wake(self, *_: Any) -> None: ...

    def mirror_lost(self, _record: QueueRecord, mirror: Mirror) -> None:
        self.lost.append(mirror)


def test_a_former_master_had_filled_it_with_more_than_the_next_master_has() -> None:
    """The next master was behind when the former one died, and welcomes a mirror that is ahead of it."""
    node, mirror = Node(), Mirror(ME, 1, 5, False)
    record = QueueRecord(name="q", group=GROUP, members=(MASTER,), mirrors=(mirror,))
    store: Any = SimpleNamespace(next_seq=4223)
    runner = MirrorRunner(record, mirror, store, node)  # type: ignore[arg-type]
    runner.noted(MASTER, RingNote.WELCOME, (5, 9, 4096))
    assert (node.lost, runner.ring.is_ready) == ([mirror], False)
    store.next_seq = 4000
    runner.noted(MASTER, RingNote.WELCOME, (5, 9, 4096))
    assert (len(node.lost), runner.ring.is_ready, store.next_seq) == (1, True, 4096)


@pytest.mark.parametrize("is_persistent", [True, False])
def test_a_mirror_is_filled_when_its_drive_has_what_must_survive(is_persistent: bool) -> None:
    """After that it counts as synchronised, and is promoted with what is on its drive if all other copies are lost."""
    node, mirror = Node(), Mirror(ME, 1, 5, False)
    record = QueueRecord(name="q", group=GROUP, members=(MASTER,), mirrors=(mirror,))
    store: Any = SimpleNamespace(next_seq=0, is_written=lambda _part: is_persistent)
    runner = MirrorRunner(record, mirror, store, node)  # type: ignore[arg-type]

    def add(run: MessageRun, *_: object) -> list[SimpleNamespace]:
        store.next_seq += run.count
        return [SimpleNamespace(seq=store.next_seq - run.count, count=run.count)]

    store.add = add
    run = MessageRun.of(b"\x00\x01q", [content(number) for number in range(10)])
    runner.fill(5, b"".join(Add(100, run, is_persistent, 0).buffers()))
    runner.turn()
    assert (RingNote.FILLED in node.notes) is not is_persistent
    runner.stored(109)
    runner.turn()
    assert (RingNote.FILLED in node.notes) is not is_persistent
    runner.stored(110)
    runner.turn()
    runner.turn()
    assert node.notes.count(RingNote.FILLED) == 1
