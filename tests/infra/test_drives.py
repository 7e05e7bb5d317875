"""FUSE drives with a real ext4. Without these a power cut in a test could lose nothing, or a crash could leave mounts.

They need root, FUSE and loop devices, and are skipped with the reason elsewhere.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import drives
from infra.cleaning import CleanupOutcome, clean
from infra.drives import BlockDrive, DriveError
from infra.node_process import wait

pytestmark = [
    pytest.mark.drives,
    pytest.mark.skipif(bool(drives.impossible()), reason=f"no FUSE drives here: {drives.impossible()}"),
]
SIZE_MB = 64


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[BlockDrive]:
    made = drives.make(tmp_path / "d1", SIZE_MB)
    yield made
    drives.remove(made)


def synced_write(path: Path, octets: bytes) -> None:
    with path.open("ab") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())


def nothing_is_left(directory: Path) -> bool:
    mounts = Path("/proc/self/mountinfo").read_text()
    backing = [each.read_text() for each in Path("/sys/block").glob("loop*/loop/backing_file")]
    return str(directory) not in mounts and not any(str(directory) in each for each in backing)


def test_drive_is_a_device_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    drive = drives.make(tmp_path / "with space", SIZE_MB)
    drives.check(drive)
    synced_write(drive.files / "a", b"x" * 10_000)
    status = drives.ask(drive, op="status")
    assert status["size_bytes"] == SIZE_MB << 20
    assert status["counts"]["flushes"] > 0
    drives.remove(drive)
    assert nothing_is_left(tmp_path)
    assert not drive.directory.exists()
    drives.remove(drive)  # nothing there: nothing to do


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_power_cut_keeps_what_was_synced(drive: BlockDrive, keep: float) -> None:
    log = drive.files / "log"
    synced_write(log, b"s" * 51_200)
    with log.open("ab") as file:
        file.write(b"u" * 51_200)
    cut = drives.cut_power(drive, keep=keep, seed=7)
    assert cut["lost_blocks"] <= cut["unflushed_blocks"]
    assert log.read_bytes()[:51_200] == b"s" * 51_200
    synced_write(log, b"after")
    assert log.read_bytes().endswith(b"after")


def test_power_cut_loses_a_rename_that_was_not_synced(drive: BlockDrive) -> None:
    synced_write(drive.files / "new", b"x")
    os.sync()
    (drive.files / "new").rename(drive.files / "renamed")
    drives.cut_power(drive, keep=0.0, seed=1)
    assert sorted(each.name for each in drive.files.iterdir()) == ["lost+found", "new"]


def test_failing_flush_fails_the_sync(drive: BlockDrive) -> None:
    drives.ask(drive, op="fault", fault="flush_errors", value=1)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        synced_write(drive.files / "a", b"x" * 4096)


def test_full_drive_says_so(drive: BlockDrive) -> None:
    """Most of the drive is reserved first: a busy kernel takes minutes to write 64 MiB through FUSE."""
    with (drive.files / "reserved").open("wb") as file:
        room = os.statvfs(drive.files)
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - (1 << 20))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        synced_write(drive.files / "a", bytes(2 << 20))


@pytest.mark.parametrize("request_", [{"op": "burn"}, {"op": "fault", "fault": "mice", "value": 1}, {}])
def test_bad_requests_are_refused_and_change_nothing(drive: BlockDrive, request_: dict[str, object]) -> None:
    with pytest.raises(DriveError):
        drives.ask(drive, **request_)
    synced_write(drive.files / "a", b"x")


@pytest.mark.parametrize("kill_program", [False, True])
def test_clean_takes_apart_what_a_killed_maker_left(tmp_path: Path, kill_program: bool) -> None:
    """The maker is killed with the drive mounted, and then perhaps the drive's own program, too."""
    code = (
        "import os,signal,sys; from pathlib import Path; from infra import drives\n"
        "drives.make(Path(sys.argv[1]), 64); os.kill(os.getpid(), signal.SIGKILL)"
    )
    maker = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d1")], check=False)
    assert maker.returncode == -signal.SIGKILL
    assert not nothing_is_left(tmp_path)
    if kill_program:
        os.kill(drives.ask(BlockDrive(tmp_path / "d1"), op="status")["pid"], signal.SIGKILL)
    assert drives.clean(tmp_path) == [tmp_path / "d1"]
    assert nothing_is_left(tmp_path)


def test_who_holds_a_drive_is_named_and_cleaning_takes_it_apart_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount namespace that was made meanwhile has the mount, too, and keeps the loop device."""
    monkeypatch.setattr(drives, "_UNMOUNT_S", 0.2)
    drive = drives.make(tmp_path / "d1", SIZE_MB)
    command = ["unshare", "--mount", "sh", "-c", "echo made; cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"made\n"
        with pytest.raises(DriveError, match="in use") as caught:
            drives.remove(drive)
        assert f"{holder.pid} (" in caught.value.fix
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait()
    assert wait(lambda: not drives._loops(drive), 30)
    assert [each.outcome for each in clean(tmp_path)] == [CleanupOutcome.UNDONE]  # also by the process that gave up
    assert nothing_is_left(tmp_path)


def test_a_file_system_that_saw_an_error_takes_no_writes_until_it_is_mounted_again(drive: BlockDrive) -> None:
    assert drives.takes_writes(drive)
    drives.ask(drive, op="fault", fault="flush_errors", value=1000)
    (drive.files / "a").write_bytes(b"x")
    subprocess.run(["sync", "-f", str(drive.files)], check=False, capture_output=True)
    drives.ask(drive, op="fault", fault="flush_errors", value=0)
    assert not drives.takes_writes(drive)
    drives.cut_power(drive, keep=1.0, seed=0)
    assert drives.takes_writes(drive)


def test_impossible_drives_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(DriveError, match="must be empty"):
        drives.make(tmp_path, SIZE_MB)
    with pytest.raises(DriveError, match="no possible size"):
        drives.make(tmp_path / "d1", 0)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_directory_is_no_drive(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with pytest.raises(DriveError, match="no mounted drive"):
        drives.cut_power(BlockDrive(tmp_path), keep=0.0, seed=0)


def test_drive_of_a_profile_answers_when_its_model_says(tmp_path: Path) -> None:
    """Else a figure would carry the name of a drive that had no part in it. A small write costs this drive 4 ms."""
    drive = drives.make(tmp_path / "d1", SIZE_MB, profile="st1-1t")
    try:
        began = time.monotonic_ns()
        for index in range(60):
            synced_write(drive.files / f"{index}", b"x")
        took_ns = time.monotonic_ns() - began
        status = drives.ask(drive, op="status")
        assert status["profile"] == "st1-1t"
        burst = 25  # tokens of 100 ms that may be used at once
        assert took_ns >= (60 - burst) * 4_000_000
        assert status["punctuality"]["operations"] > 0
        assert (60 - burst) * 4_000_000 <= status["busy_ns"] <= took_ns + 100_000_000
        with pytest.raises(DriveError, match="no profile 'floppy'"):
            drives.ask(drive, op="profile", profile="floppy")
    finally:
        drives.remove(drive)


def test_drives_with_one_bandwidth_are_no_faster_together_than_one_of_them(tmp_path: Path) -> None:
    """They have figures of their own, and a program each."""
    figures = {"latency_ns": 1_000_000, "octets_per_second": 500_000_000}
    with drives.bandwidth_of(20_000_000) as bandwidth:
        pair = [drives.make(tmp_path / name, SIZE_MB, figures, bandwidth) for name in ("d1", "d2")]
    try:
        assert [drives.ask(drive, op="status")["profile"] for drive in pair] == ["own", "own"]
        before = sum(drives.ask(drive, op="status")["counts"]["written_bytes"] for drive in pair)
        began = time.monotonic_ns()
        for index in range(8):
            synced_write(pair[index % 2].files / f"{index}", bytes(1 << 20))
        took_ns = time.monotonic_ns() - began
        written = sum(drives.ask(drive, op="status")["counts"]["written_bytes"] for drive in pair) - before
        assert written >= 8 << 20 and took_ns >= written * 50
        with pytest.raises(DriveError, match="latency_ns: is missing"):
            drives.ask(pair[0], op="profile", profile={"octets_per_second": 1})
    finally:
        for drive in pair:
            drives.remove(drive)


def test_the_program_of_a_drive_waits_for_no_core(drive: BlockDrive) -> None:
    """Brokers and load keep all cores busy; a drive that waited for them would be late, and the run INVALID."""
    pid = drives.ask(drive, op="status")["pid"]
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        pytest.skip("no real-time priority here")
    os.sched_setscheduler(0, *before)
    assert os.sched_getscheduler(pid) == os.SCHED_RR
