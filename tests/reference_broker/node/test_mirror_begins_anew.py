"""A mirror that is not what its master takes it for asks to begin anew; its node goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reference_broker.machines.metadata import QueueRecord
from reference_broker.machines.mirrors import Mirror
from reference_broker.node.mirror import MirrorRunner
from reference_broker.node.mirror_frames import Note
from reference_broker.types import GroupId, NodeId

MASTER, ME, GROUP = NodeId(1), NodeId(2), GroupId(7)


class Node:
    """The node of the mirror."""

    node, boot_id = ME, 1

    def __init__(self) -> None:
        self.lost: list[Mirror] = []

    def send(self, *_: Any) -> int:
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
    runner.noted(MASTER, Note.WELCOME, (5, 9, 4096))
    assert (node.lost, runner.ring.is_ready) == ([mirror], False)
    store.next_seq = 4000
    runner.noted(MASTER, Note.WELCOME, (5, 9, 4096))
    assert (len(node.lost), runner.ring.is_ready, store.next_seq) == (1, True, 4096)
