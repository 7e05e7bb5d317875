"""The drive model against cases worked out by hand, and against bounds that every drive must keep."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from reference_broker.storage.drives.model import DriveModel, InstanceCap
from reference_broker.storage.drives.profiles import (
    HDD7200,
    IO1_200G,
    NVME,
    PROFILES,
    ST1_1T,
    DriveProfile,
    profile_problems,
)

MS = 1_000_000
SECOND = 1000 * MS
FAR = 10**7


def test_small_writes_on_a_network_drive_cost_a_token_each() -> None:
    """Without it a slow sync would look as cheap as a fast one: 250 tokens a second are 4 ms a write."""
    drive, now = DriveModel(ST1_1T), SECOND
    times = [drive.submit(now, index * FAR, 4096, True) for index in range(200)]
    assert {later - sooner for sooner, later in pairwise(times[50:])} == {4 * MS}


def test_merged_writes_pay_for_their_octets_only() -> None:
    """32 KiB that continue the last write are a 32nd of a token; a jump costs a whole token."""
    drive = DriveModel(replace(ST1_1T, burst_ns=0, octets_per_second=10**12, latency_ns=0))
    first = drive.submit(0, 0, 32 << 10, True)
    second = drive.submit(0, 32 << 10, 32 << 10, True)
    third = drive.submit(0, FAR, 32 << 10, True)
    assert (second - first) // 1000 == 4 * MS // 32 // 1000
    assert third - second == 4 * MS


def test_savedrun_out_and_come_back() -> None:
    """The burst of a small network drive ends: after its credits it has 40 operations a second."""
    drive = DriveModel(replace(ST1_1T, credit_tokens=1000, burst_ns=0))
    assert drive.credits(SECOND) == 1000
    times = [drive.submit(SECOND, index * FAR, 4096, True) for index in range(1500)]
    assert times[500] - times[499] == 4 * MS
    assert times[1400] - times[1399] == 25 * MS
    assert drive.credits(times[-1]) == 0
    later = times[-1] + 10 * SECOND
    assert 395 <= drive.credits(later) <= 405
    assert drive.submit(later + 1, 0, 4096, True) - later < 8 * MS


def test_full_savedof_a_terabyte_last_83_minutes() -> None:
    """AWS gives a throughput optimised volume of 1 TiB credits for 1 TiB: at 250 MiB/s of which 40 come back."""
    saved = ST1_1T.credit_tokens // 16
    drive, over = DriveModel(replace(ST1_1T, credit_tokens=saved)), 0
    for index in range(saved * 250 // 210 + 2000):
        last, over = over, drive.submit(0, index * FAR, 4096, True)
        if over - last > 5 * MS and index > 1000:
            break
    assert 82 * 60 < 16 * over / SECOND < 84 * 60


def test_a_sync_after_the_head_stopped_waits_one_revolution() -> None:
    drive, now, times = DriveModel(HDD7200), SECOND, []
    for index in range(20):
        now = drive.flush(drive.submit(now, index * 4096, 4096, True))
        times.append(now)
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert all(abs(gap - HDD7200.revolution_ns) < 50_000 for gap in gaps), gaps


def test_a_write_is_over_in_the_cache_and_durable_on_the_plate() -> None:
    drive = DriveModel(HDD7200)
    over = drive.submit(0, 1 << 38, 4096, True)
    assert over < MS < drive.flush(over)


def test_a_full_cache_makes_writes_wait_for_the_plate() -> None:
    """Without a bound a drive would take any load at the speed of its cache."""
    drive = DriveModel(HDD7200)
    overs = [drive.submit(0, index << 20, 1 << 20, True) for index in range(256)]
    assert overs[10] < 30 * MS
    on_plate = drive.flush(0)
    assert overs[-1] > on_plate * 2 // 3


def test_random_reads_gain_from_a_queue() -> None:
    """The drive chooses the nearest of many: more operations a second than one by one."""
    chance = random.Random(1)
    lbas = [chance.randrange(1 << 39) for _ in range(200)]
    alone, queued, now = DriveModel(HDD7200), DriveModel(HDD7200), 0
    for lba in lbas:
        now = alone.submit(now, lba, 4096, False)
    together = max(queued.submit(0, lba, 4096, False) for lba in lbas)
    assert now / 4 < together < now * 2 / 3


def test_a_flush_of_nvme_takes_its_time_after_the_write() -> None:
    drive = DriveModel(NVME)
    assert drive.flush(drive.submit(0, 0, 4096, True)) == 20_000 + 2_048 + 1_000_000


def test_a_large_operation_goes_in_parts() -> None:
    """1 MiB on a drive with parts of 256 KiB is four operations of its budget."""
    drive = DriveModel(replace(IO1_200G, burst_ns=0, octets_per_second=10**12))
    assert drive.submit(0, 0, 1 << 20, True) // 1000 == (4 * 100_000 + 700_000 + 262) // 1000


def test_drives_of_one_machine_share_its_bandwidth() -> None:
    cap = InstanceCap(250_000_000)
    drives = [DriveModel(replace(NVME, octets_per_second=250_000_000), cap) for _ in range(2)]
    overs = [drive.submit(0, index * 250_000, 250_000, True) for index in range(100) for drive in drives]
    assert abs(max(overs) - 200 * MS) < MS


def test_an_operation_for_later_leaves_the_bandwidth_free_until_then() -> None:
    """A commit of a slow drive is submitted for a later time, and holds up no other drive of the machine."""
    cap = InstanceCap(250_000_000)
    slow, quick = (DriveModel(replace(NVME, octets_per_second=250_000_000), cap) for _ in range(2))
    alone = DriveModel(replace(NVME, octets_per_second=250_000_000)).submit(0, 0, 4096, True)
    for turn in range(1, 40):
        slow.submit(turn * 100 * MS, turn * FAR, 8192, True)
        for at in range(3):
            begin = (turn - 1) * 100 * MS + (5 + at * 10) * MS
            assert quick.submit(begin, turn * FAR, 4096, True) - begin == alone


@pytest.mark.parametrize("seed", range(20))
def test_a_shared_bandwidth_is_never_given_twice(seed: int) -> None:
    """Against an oracle that keeps every operation: none overlaps another, whatever their order."""
    chance, cap, taken = random.Random(seed), InstanceCap(1_000_000_000), list[tuple[int, int]]()
    for _ in range(300):
        octets = chance.randint(1, 1000)
        over = cap.over(chance.randint(0, 100_000), octets)
        taken.append((over - octets, over))
    taken.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(taken))


def test_a_slowed_drive_takes_longer_by_its_factor() -> None:
    for profile in PROFILES.values():
        times = []
        for each in (profile, profile.slowed(4)):
            drive, now = DriveModel(each), 0
            for index in range(200):
                now = drive.flush(drive.submit(now, index * FAR, 4096, True))
            times.append(now)
        assert 3.5 < times[1] / times[0] < 4.6, profile.name  # a revolution more or less on a drive with a head


def test_other_figures_hold_from_now_on() -> None:
    drive = DriveModel(NVME)
    first = drive.submit(0, 0, 1 << 20, True)
    drive.change(ST1_1T)
    assert drive.submit(first, FAR, 4096, True) >= first + ST1_1T.latency_ns


@pytest.mark.parametrize("name", sorted(PROFILES))
@pytest.mark.parametrize("seed", range(5))
def test_no_drive_is_faster_than_its_figures(name: str, seed: int) -> None:
    """In no window is more written than the figures allow, and nothing is over before its time."""
    profile, chance, now = replace(PROFILES[name], cache_octets=0), random.Random(seed), SECOND
    drive, done = DriveModel(profile), []
    for _ in range(400):
        now += chance.choice((0, 1000, 100_000, 20 * MS))
        octets = chance.randrange(1, 1 << 18)
        over = drive.submit(now, chance.randrange(1 << 39), octets, bool(chance.randrange(2)))
        assert over >= now + profile.latency_ns, f"seed {seed}"
        assert drive.flush(now) >= over + profile.flush_ns
        done.append((over, octets))
    assert done == sorted(done, key=lambda each: each[0]), f"seed {seed}: an operation overtook an earlier one"
    ends, sums = [over for over, _ in done], [0, *accumulate(octets for _, octets in done)]
    for window_ns in (MS, 30 * MS, 300 * MS):
        for first, end in enumerate(ends):
            last = bisect_right(ends, end + window_ns)
            octets_most = profile.octets_per_second * window_ns // SECOND + (1 << 18)
            assert sums[last] - sums[first] <= octets_most + (1 << 18), f"seed {seed}, {window_ns} ns"
            if profile.tokens_per_second:
                burst = profile.burst_ns + window_ns
                assert last - first <= profile.tokens_per_second * burst // SECOND + 2, f"seed {seed}, {window_ns} ns"


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_one_sequence_has_one_answer(name: str) -> None:
    def overs() -> list[int]:
        chance, drive, now = random.Random(3), DriveModel(PROFILES[name]), 0
        found = []
        for _ in range(300):
            now += chance.randrange(MS)
            found.append(drive.submit(now, chance.randrange(1 << 39), chance.randrange(1, 1 << 21), True))
        return found

    assert overs() == overs()


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, ["latency_ns: is missing", "octets_per_second: is missing"]),
        ({"latency_ns": -1, "octets_per_second": 0}, ["latency_ns: -1: must", "octets_per_second: 0: must"]),
        ({"latency_ns": 1.5, "octets_per_second": 10, "latenzy": 1}, ["latenzy: unknown", "latency_ns: 1.5: must"]),
        ({"latency_ns": 1, "octets_per_second": 10, "token_octets": 5}, ["token_octets: 5: needs tokens_per_second"]),
        (
            {"latency_ns": 1, "octets_per_second": 1, "tokens_per_second": 2, "baseline_tokens_per_second": 3,
             "credit_tokens": 1},
            ["baseline_tokens_per_second: 3: must not be above tokens_per_second (2)"],
        ),
        ({"latency_ns": 1, "octets_per_second": 9, "revolution_ns": 7, "channels": 2}, ["channels: 2: must be 1"]),
    ],
)  # fmt: skip
def test_impossible_figures_are_told_all_at_once(figures: dict[str, object], said: list[str]) -> None:
    found = profile_problems(figures)
    assert len(found) == len(said)
    assert all(problem.startswith(start) for problem, start in zip(found, said, strict=True)), found


def test_the_shipped_profiles_are_possible() -> None:
    for profile in PROFILES.values():
        assert profile_problems(profile.figures()) == []
        assert DriveProfile(**profile.figures()) == profile
