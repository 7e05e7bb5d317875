"""Block drives over FUSE with a real ext4 on each: made, checked, cut from power, unmounted, and cleaned after a crash.

A drive is a stack of three: the program ``reference_broker.storage.block_device`` mounts a file, a loop device makes a
block device of the file, and ext4 is mounted from there. Everything of a drive lies in one directory::

    <directory>/drive.json    the record: this directory is ours to take apart
    <directory>/control       the control socket of the program
    <directory>/device/disk   the file (a FUSE mount)
    <directory>/files         the file system (an ext4 mount)

The record is written before anything is mounted, and so is an entry in the register of the directory above
(:mod:`infra.register`), by which a later command finds the remains of a crash. The mounts and the drive's loop device
are read from the kernel and never from the record, so :func:`remove` also takes a half made drive apart.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from infra.mounts import mounts, other_namespaces
from infra.node_process import wait
from infra.register import Register, UndoKind
from perftest.errors import HelpfulError

DEVICE_COMMAND: Final = (sys.executable, "-m", "reference_broker.storage.block_device")
DEVICE_SOURCE: Final = "modelled-drive"
"""Name of the file that is the disk, as the kernel's table of mounts has it."""
SIZE_MB_MIN: Final = 16
SIZE_MB_MAX: Final = 4096
"""Largest size of a drive, which is held in memory."""
_RECORD: Final = "drive.json"
_PROBE: Final = ".takes-writes"
_MKFS: Final = ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")
_TOOLS: Final = ("losetup", "mkfs.ext4", "mount", "umount")
_ANSWER_BYTES_MAX: Final = 1 << 16
_TIMEOUT_S: Final = 30.0
_UNMOUNT_S: Final = 5.0
_FASTEST: Final = 0.01
"""Factor of a drive's times while the drive is taken apart."""


class DriveError(HelpfulError):
    """A drive that cannot be made, reached or undone. Exit code 3."""

    code = 3


class Bandwidth(NamedTuple):
    """The bandwidth of several drives together. The programs of the drives share the file ``fd``."""

    octets_per_second: int
    fd: int


@dataclass(frozen=True, slots=True)
class BlockDrive:
    """A drive by its directory."""

    directory: Path

    @property
    def files(self) -> Path:
        """The mount point of the file system, for a broker's files."""
        return self.directory / "files"

    @property
    def device(self) -> Path:
        """The mount point of the file that is the disk."""
        return self.directory / "device"

    @property
    def control(self) -> Path:
        """The control socket of the program."""
        return self.directory / "control"


def impossible() -> str:
    """Why this machine cannot have such drives; empty if it can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "this system has no /dev/fuse"
    if not Path("/dev/loop-control").exists():
        return "this system has no loop devices"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"{', '.join(missing)} not found (packages util-linux, e2fsprogs)" if missing else ""


def memory_octets() -> int:
    """The memory that drives can have on this machine now."""
    return int(psutil.virtual_memory().available)


@contextlib.contextmanager
def bandwidth_of(octets_per_second: int) -> Iterator[Bandwidth | None]:
    """A bandwidth for the drives that are made within this block; None for 0, which is no limit."""
    if not octets_per_second:
        yield None
        return
    fd = os.memfd_create("bandwidth")
    try:
        yield Bandwidth(octets_per_second, fd)
    finally:
        os.close(fd)


def make(
    directory: Path, size_mb: int, profile: str | Mapping[str, int] = "", bandwidth: Bandwidth | None = None
) -> BlockDrive:
    """A new drive with an empty ext4, mounted and checked. What was made is undone if a step fails, or on Ctrl-C.

    The drive is as slow as one of its ``profile``, or with these figures, once the file system is there; without a
    profile, as fast as it can be. ``bandwidth`` is that of the machine for which the drive is made. Raises
    :class:`DriveError`.
    """
    where = str(directory)
    if reason := impossible():
        raise DriveError(f"no FUSE drive here: {reason}", where, "run as root on Linux, or place roles on directories")
    if not SIZE_MB_MIN <= size_mb <= SIZE_MB_MAX:
        fix = f"give {SIZE_MB_MIN} to {SIZE_MB_MAX}; the drive is held in memory"
        raise DriveError(f"size_mb: {size_mb} is no possible size of a FUSE drive", where, fix)
    drive = BlockDrive(directory.resolve())
    if drive.directory.exists() and any(drive.directory.iterdir()):
        raise DriveError("the directory of a new drive must be empty", where, "remove the drive there, or name another")
    try:
        with _uninterrupted():
            _register(drive).note(UndoKind.DRIVE, str(drive.directory))
            _build(drive, size_mb, bandwidth)
        if profile:
            ask(drive, op="profile", profile=profile)
    except BaseException as error:
        remove(drive)
        if isinstance(error, OSError):
            raise DriveError(f"the drive cannot be made: {error.strerror}", where, "name another directory") from error
        raise
    return drive


def check(drive: BlockDrive) -> None:
    """Raise :class:`DriveError` unless the file system is mounted and is a device of its own.

    Every command that fills or damages a drive asks this first.
    """
    files = str(drive.files)
    if not os.path.ismount(files) or drive.files.stat().st_dev == drive.directory.stat().st_dev:
        raise DriveError("this is no mounted drive", files, "make the drive first")


def ask(drive: BlockDrive, **request: object) -> dict[str, Any]:
    """The answer of the drive's program to ``op=status|fault|profile|slow|restore|cut_power|revive``.

    Raises :class:`DriveError`.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, _near(drive) as control:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(control)
            connection.send(json.dumps(request).encode())
            if not (line := connection.recv(_ANSWER_BYTES_MAX)):
                raise ConnectionResetError("its program ended before it had answered")
            answer = json.loads(line)
    except (OSError, ValueError) as error:
        fix = "remove the drive and make it again"
        raise DriveError(f"the drive does not answer: {error}", str(drive.control), fix) from error
    if "error" in answer:
        raise DriveError(str(answer["error"]), str(drive.control), "correct the request")
    assert isinstance(answer, dict)
    return answer


def takes_writes(drive: BlockDrive) -> bool:
    """Whether the file system of the drive takes writes. After a write or a flush that failed, ext4 takes none until it
    is mounted again, though the drive was mended meanwhile. A full drive counts as one that takes writes."""
    probe = drive.files / _PROBE
    try:
        with probe.open("wb") as file:
            os.fsync(file.fileno())
        probe.unlink()
    except OSError as error:
        return error.errno == errno.ENOSPC
    return True


def cut_power(drive: BlockDrive, *, keep: float, seed: int) -> dict[str, Any]:
    """Lose what was not flushed, each block surviving with probability ``keep``, and mount the drive again.

    Nobody may use the drive: end its processes first. The loop device has a page cache with blocks of its own, which
    must go before the disk comes back, else the file system would read octets that the power cut took. Gives
    ``unflushed_blocks`` and ``lost_blocks``. Raises :class:`DriveError`.
    """
    check(drive)
    answer = ask(drive, op="cut_power", keep=keep, seed=seed)
    _unmount(drive.files)
    _detach(drive)
    ask(drive, op="revive")
    _attach(drive)
    _mount(drive)
    return answer


def keep(drive: BlockDrive) -> None:
    """The drive stays after this command, until :func:`remove` or `perftest broker clean --kept`."""
    register = _register(drive)
    for entry in register.entries()[0]:
        if entry.kind is UndoKind.DRIVE and entry.name == str(drive.directory):
            register.keep(entry)


def is_drive(drive: BlockDrive) -> bool:
    """Whether the directory holds a drive of ours, whole or half made."""
    return (drive.directory / _RECORD).exists()


def remove(drive: BlockDrive) -> None:
    """Take a drive apart, also a half made one, and remove its directory. Raises :class:`DriveError` if something
    stays.

    Works on a drive that is whole, half made, or left by a crash, and does nothing where there is no drive. A mount
    there that is not the drive's own is an error, and nothing is unmounted. Of a drive that stays, the entry is
    released, so that every later cleaning tries again.
    """
    try:
        if is_drive(drive):
            _require_ours(drive)
            with _uninterrupted():
                _take_apart(drive)
    except (DriveError, OSError):
        _register(drive).release(UndoKind.DRIVE, str(drive.directory))
        raise
    _register(drive).forget(UndoKind.DRIVE, str(drive.directory))


def _take_apart(drive: BlockDrive) -> None:
    with contextlib.suppress(DriveError):  # without a profile, or gone: unwritten pages need not wait for a slow drive
        ask(drive, op="slow", factor=_FASTEST)
    _unmount(drive.files)
    _detach(drive)
    _unmount(drive.device)
    wait(lambda: not _is_served(drive), _TIMEOUT_S)
    shutil.rmtree(drive.directory)


def clean(root: Path) -> list[Path]:
    """Remove every drive in the directories right below ``root``; gives the directories. Raises :class:`DriveError`."""
    drives = [BlockDrive(record.parent.resolve()) for record in sorted(root.glob(f"*/{_RECORD}"))]
    for drive in drives:
        remove(drive)
    return [drive.directory for drive in drives]


def _build(drive: BlockDrive, size_mb: int, bandwidth: Bandwidth | None) -> None:
    """The steps of a new drive; the record comes first."""
    drive.directory.mkdir(parents=True, exist_ok=True)
    (drive.directory / _RECORD).write_text(json.dumps({"size_mb": size_mb}), encoding="utf-8")
    drive.device.mkdir()
    drive.files.mkdir()
    _start_device(drive, size_mb, bandwidth)
    _run(*_MKFS, _attach(drive))
    _mount(drive)


def _start_device(drive: BlockDrive, size_mb: int, bandwidth: Bandwidth | None) -> None:
    """Start the program, which goes to the background once its file is there, and ends when its mount does."""
    command = [*DEVICE_COMMAND, str(drive.device), "--size-mb", str(size_mb), "--control", str(drive.control)]
    if bandwidth is not None:
        command += ["--shared-octets-per-second", str(bandwidth.octets_per_second), "--shared-fd", str(bandwidth.fd)]
    inherited = (bandwidth.fd,) if bandwidth is not None else ()
    log = drive.directory / "device.log"
    with log.open("wb") as output:  # no pipe: the process in the background would hold it open
        started = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, start_new_session=True,
            pass_fds=inherited,
        )  # fmt: skip
    if started.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0]
        raise DriveError(f"the drive did not start: {said}", str(drive.device), "run as root on Linux with FUSE")


def _is_served(drive: BlockDrive) -> bool:
    """Whether the drive's program still runs. It ends a moment after its mount."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, _near(drive) as control:
        return connection.connect_ex(control) == 0


@contextlib.contextmanager
def _near(drive: BlockDrive) -> Iterator[str]:
    """A short path to the control socket: an address has room for 107 octets, and a directory may have more."""
    directory = os.open(drive.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{drive.control.name}"
    finally:
        os.close(directory)


def _attach(drive: BlockDrive) -> str:
    """The loop device of the drive's file, attached past the page cache of the file."""
    return _run("losetup", "--find", "--show", "--direct-io=on", str(drive.device / "disk")).strip()


def _mount(drive: BlockDrive) -> None:
    (loop,) = _loops(drive)
    _run("mount", "-t", "ext4", loop, str(drive.files))
    check(drive)


def _loops(drive: BlockDrive) -> list[str]:
    """The loop devices of the drive's file, from the kernel."""
    ours = str(drive.device / "disk")
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # detached meanwhile
            if backing.read_text(encoding="utf-8").strip().removesuffix(" (deleted)") == ours:
                found.append(f"/dev/{backing.parent.parent.name}")
    return found


def _detach(drive: BlockDrive) -> None:
    for loop in _loops(drive):
        _run("losetup", "--detach", loop)
    if not wait(lambda: not _loops(drive), _UNMOUNT_S):
        raise DriveError("the loop device is in use", str(drive.device), _how_to_free(_loops(drive)))


def _how_to_free(loops: list[str]) -> str:
    """The fix for loop devices in use: a mount namespace that was made meanwhile has a mount of its own."""
    pids = [pid for loop in loops for pid in other_namespaces(loop)]
    if not pids:
        return "end the processes that use the drive, then clean again"
    named = ", ".join(f"{pid} ({_name_of(pid)})" for pid in pids)
    return f"end the processes whose mount namespace has the drive, too: {named}; then clean again"


def _name_of(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "ended"


def _unmount(mount: Path) -> None:
    """Unmount what is mounted there. A process may hold the mount for a moment after it was killed."""
    wait(lambda: not _is_mounted(mount) or _unmounts(mount), _UNMOUNT_S)
    if _is_mounted(mount):
        fix = "end the processes that have files or directories open there, then clean again"
        raise DriveError("the mount is in use", str(mount), fix)


def _is_mounted(mount: Path) -> bool:
    return any(where == str(mount) for where, _kind, _source, _device in mounts())


def _require_ours(drive: BlockDrive) -> None:
    """Raise :class:`DriveError` if anything is mounted on the drive's mount points that is not the drive's."""
    ours = {str(drive.files): _loops(drive), str(drive.device): [DEVICE_SOURCE]}
    for where, _kind, source, _device in mounts():
        if where in ours and source not in ours[where]:
            fix = "unmount it by hand if nobody needs it, then clean again"
            raise DriveError(f"{source} is mounted here, which is not the drive", where, fix)


def _register(drive: BlockDrive) -> Register:
    return Register(drive.directory.parent)


def _unmounts(mount: Path) -> bool:
    return subprocess.run(["umount", str(mount)], capture_output=True, check=False).returncode == 0


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise DriveError(f"{command[0]} failed: {said}", command[-1], "see what the kernel says (dmesg)")
    return done.stdout


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the drive is whole or taken apart: a step that is cut short would still end a moment later."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
