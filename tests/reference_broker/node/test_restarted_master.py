"""A master that has started again: its copies followed the former process, and what they say is about its batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.mirroring.master import Deliveries
from reference_broker.mirroring.operations import AppliedPublishes, decode
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.owned.master_ring import MasterRing
from reference_broker.node.owned.mirror_frames import RingNote, unpack_fill, unpack_note
from reference_broker.types import GroupId, NodeId

ME, MIRROR = NodeId(1), NodeId(2)
PRESENT = 2
"""The boot id of this process."""


@pytest.mark.parametrize(("owner_boot", "confirmed"), [(PRESENT, [11]), (PRESENT - 1, [])])
def test_a_copy_of_the_former_process_confirms_nothing(owner_boot: int, confirmed: list[int]) -> None:
    """The copy has had 29 batches of that process. In the simulator's world 2200633 this passed for a confirm of the
    first batch of the next process, and the message was lost with it."""
    told: list[int] = []
    log = SimpleNamespace(
        next_seq=11, take_batch=lambda: b"an operation", oldest=lambda: 0, stored_end=SimpleNamespace(end=11),
        deliveries=Deliveries(0),
    )  # fmt: skip
    host: Any = SimpleNamespace(record_changes=lambda: log, stored=told.append)
    node: Any = SimpleNamespace(node=ME, boot_id=PRESENT, send=lambda *_: 0)
    record = QueueRecord(
        name="q", group=GroupId(7), members=(ME,), leader=ME, mirrors=(Mirror(MIRROR, 1, 3, True),),
        owner_boot=owner_boot,
    )  # fmt: skip
    ring = MasterRing(record, host, node)
    ring.turn(are_effects_left=False)
    ring.noted(MIRROR, RingNote.CONFIRM, (3, 29, 0))
    ring.turn(are_effects_left=False)
    assert told == confirmed


@pytest.mark.parametrize(("fills", "told"), [(True, [(3, 3, 27), (1, 2, 5)]), (False, [])])
def test_a_copy_that_has_everything_hears_whose_publishes_it_has(fills: bool, told: list[tuple[int, int, int]]) -> None:
    """Before its welcome. A copy that is not filled lacks these messages, and keeps what publishers sent to it."""
    sent: list[tuple[FrameKind, bytes]] = []
    log = SimpleNamespace(
        next_seq=11, take_batch=lambda: b"", oldest=lambda: 0, stored_end=SimpleNamespace(end=11), parts=list,
        deliveries=Deliveries(0), applied=lambda *_: None,
    )  # fmt: skip
    host: Any = SimpleNamespace(record_changes=lambda: log, stored=lambda _end: None)
    node: Any = SimpleNamespace(
        node=ME, boot_id=PRESENT, send=lambda _to, kind, buffers: sent.append((kind, b"".join(buffers))),
        mirror_synchronised=lambda *_: None,
    )  # fmt: skip
    mirror = Mirror(MIRROR, 1, 3, False)
    record = QueueRecord(
        name="q", group=GroupId(7), members=(ME,), leader=ME, mirrors=(mirror,), owner_boot=PRESENT
    )  # fmt: skip
    known = [AppliedPublishes(NodeId(3), 3, 20)]
    ring = MasterRing(record, host, node, None, known)
    ring.fills_automatically = fills
    ring.applied(NodeId(3), 3, 27)
    ring.applied(ME, PRESENT, 5)
    ring.noted(MIRROR, RingNote.JOIN, (3, 0, 0))
    ring.turn(are_effects_left=False)
    filling = [body for kind, body in sent if kind is FrameKind.FILL]
    found = [each for body in filling for each in decode(unpack_fill(memoryview(body))[2])]
    assert [(each.node, each.boot_id, each.number) for each in found if isinstance(each, AppliedPublishes)] == told
    notes = [unpack_note(memoryview(body))[1] for kind, body in sent if kind is FrameKind.NOTE]
    assert RingNote.WELCOME in notes
