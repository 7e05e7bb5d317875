"""The bandwidth that FUSE drives of one node share. Alone, each would write as fast as if there were no others."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from reference_broker.storage.block_device.shared_bandwidth import SharedBandwidth
from reference_broker.storage.drives.model import DriveModel, InstanceCap
from reference_broker.storage.drives.profiles import NVME

RATE = 250_000_000


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.memfd_create("bandwidth")
    yield fd
    os.close(fd)


@pytest.mark.seeds(20)
def test_drives_of_several_programs_wait_for_each_other_as_those_of_one(seed: int, file: int) -> None:
    chance = random.Random(seed)
    shared, one = [SharedBandwidth(RATE, file) for _ in range(3)], InstanceCap(RATE)
    now_ns = 0
    for _ in range(200):
        now_ns += chance.randrange(2_000_000)
        octets = chance.choice((4096, 1 << 20))
        assert chance.choice(shared).over(now_ns, octets) == one.over(now_ns, octets)


def test_a_drive_is_slower_beside_a_busy_one(file: int) -> None:
    busy, other = (DriveModel(NVME, SharedBandwidth(RATE, file)) for _ in range(2))
    assert busy.submit(0, 0, RATE, True) >= 1_000_000_000
    assert other.submit(0, 0, 4096, True) >= 1_000_000_000
