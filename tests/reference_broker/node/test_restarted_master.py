"""A master that has started again: its copies followed the former process, and what they say is about its batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.mirroring.master import Deliveries
from reference_broker.node.owned.master_ring import MasterRing
from reference_broker.node.owned.mirror_frames import RingNote
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
