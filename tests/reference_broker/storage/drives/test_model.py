"""The drive model against cases worked out by hand, and against bounds that every drive must keep."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import HDD7200, NVME, PROFILES, ST1_1T


def test_small_writes_on_a_network_drive_cost_a_token_each() -> None:
    """Without it a slow sync would look as cheap as a fast one: 250 tokens a second are 4 ms a write."""
    drive, now = DriveModel(ST1_1T), 10**9
    times = [drive.submit(now, index * 10**7, 4096, True) for index in range(200)]
    assert {later - sooner for sooner, later in pairwise(times[50:])} == {4_000_000}


def test_a_sync_after_the_head_stopped_waits_one_revolution() -> None:
    drive, now, times = DriveModel(HDD7200), 10**9, []
    for index in range(20):
        now = drive.flush(drive.submit(now, index * 4096, 4096, True))
        times.append(now)
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert all(abs(gap - HDD7200.revolution_ns) < 50_000 for gap in gaps), gaps


def test_a_flush_of_nvme_takes_its_time_after_the_write() -> None:
    drive = DriveModel(NVME)
    assert drive.flush(drive.submit(0, 0, 4096, True)) == 20_000 + 2_048 + 1_000_000


@pytest.mark.parametrize("name", sorted(PROFILES))
@pytest.mark.parametrize("seed", range(5))
def test_no_drive_is_faster_than_its_figures(name: str, seed: int) -> None:
    profile, chance, now, total, last = PROFILES[name], random.Random(seed), 10**9, 0, 0
    drive = DriveModel(profile)
    for _ in range(500):
        now += chance.randrange(100_000)
        octets = chance.randrange(1, 1 << 18)
        over = drive.submit(now, chance.randrange(1 << 39), octets, bool(chance.randrange(2)))
        assert over >= now + profile.latency_ns, f"seed {seed}"
        total, last = total + octets, max(last, over)
    assert total <= profile.octets_per_second * (last - 10**9) // 10**9 + 500, f"seed {seed}"
