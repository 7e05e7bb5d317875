"""A modelled drive on a clock that the test turns: how long operations last, and what faults do to them."""

from __future__ import annotations

import errno
import random
from collections import Counter
from pathlib import Path

import pytest

from reference_broker.storage.drives.profiles import NVME, PROFILES, ST1_1T
from reference_broker.storage.drives.punctuality import Times
from reference_broker.storage.files import RealFiles, read_whole, write_whole
from reference_broker.storage.modelled_drive import ModelledDrive
from reference_broker.storage.modelled_files import ModelledFiles, PlacedFiles
from reference_broker.storage.precise_sleep import sleep_until

MS = 1_000_000


class Clock:
    """A clock on which nothing takes time but sleeping, and sleeping ``late_ns`` too long."""

    def __init__(self) -> None:
        self.now_ns = 1000 * MS
        self.late_ns = 0

    def read(self) -> int:
        return self.now_ns

    def sleep_until(self, time_ns: int) -> int:
        self.now_ns = max(self.now_ns, time_ns + self.late_ns)
        return self.now_ns


class Rig:
    """Files of a WAL on a modelled drive, in a directory of the test."""

    def __init__(self, directory: Path, profile: str = ST1_1T.name) -> None:
        self.clock = Clock()
        self.drive = ModelledDrive("d1", PROFILES[profile], now_ns=self.clock.read, sleep_until=self.clock.sleep_until)
        self.files = ModelledFiles(RealFiles(), self.drive, "wal")
        self.directory = directory

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def took_ms(self, work: object) -> float:
        began = self.clock.now_ns
        work()  # type: ignore[operator]
        return (self.clock.now_ns - began) / MS


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_drive_is_busy_while_any_operation_lasts(rig: Rig) -> None:
    """Also if nobody waits for an operation at once; idle time does not count."""
    file = rig.files.create(rig.path("f"))
    file.write([b"x" * 1000], 0)
    took_ms = rig.took_ms(file.datasync)
    rig.clock.now_ns += 1000 * MS
    assert rig.drive.status()["busy_ns"] == took_ms * MS > 0


def test_content_is_that_of_real_files(rig: Rig) -> None:
    write_whole(rig.files, rig.path("a"), b"content")
    assert read_whole(RealFiles(), rig.path("a")) == read_whole(rig.files, rig.path("a")) == b"content"
    rig.files.rename(rig.path("a"), rig.path("b"))
    assert rig.files.names(str(rig.directory)) == ["b"]
    rig.files.remove(rig.path("b"))
    assert rig.files.names(str(rig.directory)) == []


def test_syncs_last_as_the_model_says(rig: Rig) -> None:
    """A preallocated file: one token of 4 ms a sync once the burst is spent; at the end of a file three."""
    whole = rig.files.create(rig.path("whole"), 1 << 20)
    growing = rig.files.create(rig.path("growing"))

    def sync(file: object, index: int) -> None:
        file.write([b"x" * 4096], index * 4096)  # type: ignore[attr-defined]
        file.datasync()  # type: ignore[attr-defined]

    for index in range(100):
        sync(whole, index)
    assert 3.9 < rig.took_ms(lambda: [sync(whole, index) for index in range(100)]) / 100 < 4.1
    assert 11.9 < rig.took_ms(lambda: [sync(growing, index) for index in range(100)]) / 100 < 12.1


def test_lateness_does_not_add_up(rig: Rig) -> None:
    """The drive goes on without the late thread: 100 syncs that each wake 1 ms late take no 100 ms longer."""
    file = rig.files.create(rig.path("f"), 1 << 20)
    for _ in range(100):
        file.write([b"x"], 0)
        file.datasync()
    rig.clock.late_ns = MS
    took = rig.took_ms(lambda: [(file.write([b"x"], 0), file.datasync()) for _ in range(100)])
    assert took < 405
    assert rig.drive.status()["late_ns_max"] == MS


def chain_ms(rig: Rig, count: int, work_ns: int = 0) -> float:
    """How long a thread takes for syncs of a whole file, one after the other, with work of its own before each."""
    file = rig.files.create(rig.path("chain"), 1 << 20)
    file.datasync()

    def syncs() -> None:
        for index in range(count):
            rig.clock.now_ns += work_ns
            file.write([b"x"], index * 4096)
            file.datasync()

    return rig.took_ms(syncs)


@pytest.mark.parametrize("profile", ["io1-200g", "nvme", "hdd7200"])
def test_a_thread_that_wakes_up_late_asks_as_often_as_a_punctual_one(profile: str, tmp_path: Path) -> None:
    """A busy machine would pass for a slow drive: each operation waits for the end of the one before it."""
    took = []
    for late_ns in (0, 300_000):
        rig = Rig(tmp_path, profile)
        rig.clock.late_ns = late_ns
        took.append(chain_ms(rig, 200, work_ns=20_000))
    punctual, late = took
    assert punctual <= late < punctual + 1.0
    assert rig.drive.status()["late_ns_p50"] >= 250_000, "lateness is told all the same"


@pytest.mark.parametrize("seed", range(20))
def test_no_lateness_makes_a_drive_faster(seed: int, tmp_path: Path) -> None:
    """Whatever threads are late and do between: an operation begins when the one before it has ended on the drive, so
    the chain takes at least as long as on a punctual machine."""
    chance = random.Random(seed)
    punctual, late = Rig(tmp_path, "io1-200g"), Rig(tmp_path, "io1-200g")
    files = [rig.files.create(rig.path("f"), 1 << 20) for rig in (punctual, late)]
    for index in range(100):
        late.clock.late_ns = chance.choice((0, 50_000, 500_000, 20 * MS))
        work_ns = chance.choice((0, 10_000, 400_000, 5 * MS))
        for rig, file in zip((punctual, late), files, strict=True):
            rig.clock.now_ns += work_ns
            file.write([b"x"], index % 200 * 4096)
            file.datasync()
        assert late.clock.now_ns >= punctual.clock.now_ns, (seed, index)


def test_only_what_follows_at_once_catches_up_and_by_one_operation_at_most(tmp_path: Path) -> None:
    """An idle drive must not save up time, nor must a machine that stood still be made good for."""
    rig = Rig(tmp_path, "io1-200g")
    length = chain_ms(rig, 1)
    rig.clock.late_ns = 300_000
    chain_ms(rig, 1)
    rig.clock.late_ns = 0
    rig.clock.now_ns += 50 * MS
    assert chain_ms(rig, 1) == length
    rig.clock.late_ns = 1000 * MS
    chain_ms(rig, 1)
    rig.clock.late_ns = 0
    assert chain_ms(rig, 9) >= 8 * length


def test_late_operations_are_counted(rig: Rig) -> None:
    file = rig.files.create(rig.path("f"), 4096)
    for late_ns in (0, 2 * MS):
        rig.clock.late_ns = late_ns
        for _ in range(50):
            file.write([b"x"], 0)
            file.datasync()
    status = rig.drive.status()
    assert status["late"] == 50
    assert status["operations"] == 100
    assert status["purposes"]["wal"]["syncs"] == 100
    assert status["late_ns_p50"] == 0
    assert 1.8 * MS < status["late_ns_p99"] <= 2 * MS


def test_a_slow_drive_and_another_profile(rig: Rig) -> None:
    file = rig.files.create(rig.path("f"), 1 << 20)

    def syncs() -> None:
        for index in range(100):
            file.write([b"x"], index * 8192)
            file.datasync()

    syncs()
    usual = rig.took_ms(syncs)
    rig.drive.slow(4)
    syncs()
    assert rig.took_ms(syncs) == pytest.approx(4 * usual, rel=0.05)
    rig.drive.slow(1)
    syncs()
    assert rig.took_ms(syncs) == pytest.approx(usual, rel=0.05)
    rig.drive.use(NVME)
    assert rig.took_ms(syncs) == pytest.approx(102, rel=0.05)
    assert rig.drive.status()["profile"] == "nvme"


def test_a_full_drive_has_its_reserve_and_no_more(rig: Rig) -> None:
    """What is allocated can be overwritten; to grow beyond the reserve fails, and leaves the file as it was."""
    file = rig.files.create(rig.path("f"), 8192)
    rig.drive.fill(reserve=4096)
    assert rig.drive.full
    file.write([b"a" * 8192], 0)
    file.write([b"b" * 4096], 8192)
    with pytest.raises(OSError, match="No space left") as caught:
        file.write([b"c"], 12288)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, rig.path("f"))
    assert file.size() == 12288
    rig.drive.free()
    assert not rig.drive.full
    file.write([b"c"], 12288)


def test_room_of_removed_files_can_be_used_on_a_full_drive(rig: Rig) -> None:
    rig.files.create(rig.path("f"), 8192).close()
    rig.drive.fill(reserve=0)
    with pytest.raises(OSError, match="No space left"):
        rig.files.create(rig.path("g"), 4096)
    rig.files.remove(rig.path("f"))
    rig.files.create(rig.path("h"), 8192).close()


def test_a_failing_drive_fails_every_operation_until_it_is_healed(rig: Rig) -> None:
    file = rig.files.create(rig.path("f"), 8192)
    rig.drive.fail()
    for work in (
        file.datasync, lambda: file.write([b"x"], 0), lambda: file.read(0, 1), lambda: rig.files.sync_dir("."),
        lambda: rig.files.create(rig.path("g")), lambda: rig.files.rename(rig.path("f"), rig.path("g")),
        lambda: rig.files.remove(rig.path("f")),
    ):  # fmt: skip
        with pytest.raises(OSError, match="Input/output error") as caught:
            work()
        assert caught.value.errno == errno.EIO
    assert rig.files.names(str(rig.directory)) == ["f"], "what failed has not happened"
    rig.drive.heal()
    file.datasync()


def test_each_directory_has_the_files_of_its_drive(tmp_path: Path) -> None:
    """The nearest directory decides; what lies on no drive costs nothing."""
    rig = Rig(tmp_path)
    other = ModelledDrive("d2", NVME, now_ns=rig.clock.read, sleep_until=rig.clock.sleep_until)
    for directory in ("data/wal/deep", "else"):
        (tmp_path / directory).mkdir(parents=True)
    files = PlacedFiles(
        RealFiles(),
        {str(tmp_path / "data"): ModelledFiles(RealFiles(), other, "data"), str(tmp_path / "data/wal"): rig.files},
    )
    for directory, drive in (("data", other), ("data/wal", rig.drive), ("data/wal/deep", rig.drive), ("else", None)):
        before = {each: each.status()["operations"] for each in (rig.drive, other)}
        write_whole(files, f"{tmp_path}/{directory}/f", b"x")
        busy = [each for each in before if each.status()["operations"] > before[each]]
        assert busy == ([drive] if drive else []), directory
        assert files.names(f"{tmp_path}/{directory}")[0] in ("f", "deep", "wal")
        assert read_whole(files, f"{tmp_path}/{directory}/f") == b"x"


@pytest.mark.parametrize("seed", range(3))
def test_quantiles_are_right_within_their_buckets(seed: int) -> None:
    chance, times = random.Random(seed), Times()
    values = sorted(chance.randrange(1 << chance.randrange(1, 34)) for _ in range(1000))
    for value in values:
        times.add(value)
    for part in (0.01, 0.5, 0.99, 1.0):
        exact = values[max(0, round(part * len(values)) - 1)]
        assert exact <= times.quantile(part) <= exact * 1.13 + 1, f"seed {seed}, {part}"
    assert times.max_ns == values[-1]


def test_no_sleep_ends_too_soon() -> None:
    assert sleep_until(0) > 0
    times = Counter(sleep_until(target) >= target for target in (0, sleep_until(0) + 200_000, sleep_until(0) + 10_000))
    assert times[False] == 0
