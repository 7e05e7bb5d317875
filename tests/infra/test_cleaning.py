"""Cleaning after a crash: all that a register names is undone, and nothing else is touched.

Without these a crashed command would leave mounts and processes for good, or cleaning would remove what is not ours.
Mounts are real ones where root and the kernel allow them, and the tests are skipped with the reason elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from infra import cleaning, drives, filling, local_cluster, node_process
from infra.cleaning import CleanupOutcome
from infra.drives import BlockDrive, DriveError
from infra.mounts import mounts, mounts_below
from infra.register import FOLDER, Register, UndoEntry, UndoKind, registers_below
from perftest.cli.main import cli

NO_DRIVES = drives.impossible()
on_drives = pytest.mark.skipif(bool(NO_DRIVES), reason=f"no FUSE drives here: {NO_DRIVES}")
SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def crashed(code: str, *arguments: object) -> None:
    """Run Python code that ends with SIGKILL, as the kernel ends a process without memory."""
    lines = f"import os, signal, sys\nfrom pathlib import Path\n{code}\nos.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", lines, *map(str, arguments)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def abandoned(register: Register, kind: UndoKind, name: str, token: str = "") -> UndoEntry:
    """An entry whose owner has ended: the pid is ours, the start time is not."""
    entry = register.note(kind, name, token)
    register._write(replace(entry, owner_start_time=entry.owner_start_time - 1))
    return entry


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the mark ``mine:node1``."""
    child = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE, env=os.environ | {node_process.MARK: "mine:node1"})
    yield child
    child.kill()
    child.communicate()


def outcomes(root: Path, *, kept: bool = False) -> dict[str, CleanupOutcome]:
    return {done.name: done.outcome for done in cleaning.clean(root, kept=kept)}


def test_an_entry_is_on_disk_until_it_is_forgotten(tmp_path: Path) -> None:
    register = Register(tmp_path)
    first = register.note(UndoKind.DIRECTORY, "/a")
    register.note(UndoKind.DIRECTORY, "/a")  # one thing, one entry
    second = register.note(UndoKind.PROCESSES, "/a")
    assert sorted(Register(tmp_path).entries()[0], key=str) == sorted([first, second], key=str)
    assert first.is_owned and not replace(first, owner_start_time=1).is_owned
    register.forget(first.kind, first.name)
    register.forget(second.kind, second.name)
    register.forget(second.kind, second.name)
    assert list(tmp_path.iterdir()) == []


def test_what_a_running_command_uses_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    Register(tmp_path).note(UndoKind.DIRECTORY, str(mine))
    assert outcomes(tmp_path, kept=True) == {str(mine): CleanupOutcome.IN_USE}
    assert mine.exists()


def test_what_a_running_command_gave_up_is_undone(tmp_path: Path) -> None:
    """A sweep goes on for hours after a drive that was busy. What it still uses, and what stays on purpose,
    is not given up."""
    register = Register(tmp_path)
    for name in ("busy", "used", "kept"):
        (tmp_path / name).mkdir()
        entry = register.note(UndoKind.DIRECTORY, str(tmp_path / name))
    register.keep(entry)
    for name in ("busy", "kept", "unknown"):
        register.release(UndoKind.DIRECTORY, str(tmp_path / name))
    assert {Path(name).name: outcome for name, outcome in outcomes(tmp_path).items()} == {
        "busy": CleanupOutcome.UNDONE,
        "used": CleanupOutcome.IN_USE,
        "kept": CleanupOutcome.KEPT,
    }


def test_what_is_kept_goes_only_when_asked_for(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    register = Register(tmp_path)
    register.keep(register.note(UndoKind.DIRECTORY, str(mine)))
    assert outcomes(tmp_path) == {str(mine): CleanupOutcome.KEPT} and mine.exists()
    assert outcomes(tmp_path, kept=True) == {str(mine): CleanupOutcome.UNDONE} and not mine.exists()
    assert outcomes(tmp_path, kept=True) == {}


def test_registers_are_found_below_and_the_rest_is_not_touched(tmp_path: Path) -> None:
    """A sweep over layouts makes drives below a series, a layout and a round."""
    places = ["", "a", "a/b", "a/b/c", "a/b/c/.d"]
    for place in places:
        (tmp_path / place / "gone").mkdir(parents=True)
        (tmp_path / place / "stays").mkdir()
        abandoned(Register(tmp_path / place), UndoKind.DIRECTORY, str(tmp_path / place / "gone"))
    assert [register.root for register in registers_below(tmp_path)] == [tmp_path / place for place in reversed(places)]
    assert set(outcomes(tmp_path).values()) == {CleanupOutcome.UNDONE}
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".d", "a", "b", "c", *["stays"] * 5]


def test_only_processes_with_the_mark_are_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """A longer mark is another mark, and a paused process ends, too."""
    for mark in ("mi", "mine:node", "mine:node1:x", "other"):
        assert cleaning.end_marked(mark) == 0
    assert sleeper.poll() is None
    sleeper.send_signal(signal.SIGSTOP)
    abandoned(Register(tmp_path), UndoKind.PROCESSES, "mine")
    assert outcomes(tmp_path) == {"mine": CleanupOutcome.UNDONE}
    assert not psutil.pid_exists(sleeper.pid)
    assert outcomes(tmp_path) == {}


def test_a_file_with_other_content_is_not_removed(tmp_path: Path) -> None:
    """Somebody may have put a file of the same name there."""
    fills = {"ours": "token and more", "empty": "", "theirs": "precious"}
    for name, content in fills.items():
        (tmp_path / name).write_text(content)
        abandoned(Register(tmp_path), UndoKind.FILL, str(tmp_path / name), "token")
    assert {Path(name).name: outcome for name, outcome in outcomes(tmp_path).items()} == {
        "ours": CleanupOutcome.UNDONE,
        "empty": CleanupOutcome.UNDONE,
        "theirs": CleanupOutcome.FAILED,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == [FOLDER, "theirs"]


def test_an_entry_that_cannot_be_read_is_told_and_stays(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    damaged = tmp_path / FOLDER / "drive-1.json"
    damaged.write_text('{"kind": "moon"}')
    done = CliRunner().invoke(cli, ["broker", "clean", str(tmp_path), "--json"])
    assert done.exit_code == 1
    (line,) = json.loads(done.stdout)
    assert line["outcome"] == "failed" and line["name"] == str(damaged) and line["fix"]
    assert damaged.exists()


def test_the_directory_of_the_machine_is_never_filled(tmp_path: Path) -> None:
    with pytest.raises(filling.FillError, match="no drive of its own"):
        filling.fill(tmp_path, Register(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_drive_that_something_else_uses_is_never_filled(tmp_path: Path) -> None:
    """A bind mount looks like a drive of its own, and is the drive of the machine. ``/dev/shm`` is a drive apart from
    the test's directory, so that only the second mount shows what it is."""
    place = tmp_path / "bound"
    place.mkdir()
    subprocess.run(["mount", "--bind", "/dev/shm", place], check=True)
    try:
        with pytest.raises(filling.FillError, match="is also mounted at /dev/shm"):
            filling.fill(place, Register(tmp_path))
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_undid(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    abandoned(Register(tmp_path), UndoKind.DIRECTORY, str(tmp_path / "mine"))
    said = CliRunner().invoke(cli, ["broker", "clean", str(tmp_path)])
    assert said.stdout == f"undone: directory {tmp_path / 'mine'}: removed with what was in it\n"
    again = CliRunner().invoke(cli, ["broker", "clean", str(tmp_path)])
    assert again.exit_code == 0 and again.stdout == f"nothing to undo below {tmp_path}\n"


@pytest.mark.processes
def test_nodes_of_a_start_that_was_killed_are_ended(tmp_path: Path, base_port: int) -> None:
    """Nobody asked for nodes that no command tells of. Their data stays, because clients may have used them."""
    crashed(
        "from infra import local_cluster\n"
        "local_cluster._kept = lambda launched: os.kill(os.getpid(), signal.SIGKILL)\n"
        "local_cluster.start(Path(sys.argv[1]), nodes=1, base_port=int(sys.argv[2]))",
        tmp_path / "c",
        base_port,
    )
    done = {each.kind: (each.outcome, each.text) for each in cleaning.clean(tmp_path)}
    assert done == {"processes": (CleanupOutcome.UNDONE, "ended 1 of them")}
    cluster = local_cluster.start(tmp_path / "c", nodes=1, base_port=base_port)  # its ports are free
    assert local_cluster.stop(cluster) == ["node1"]
    assert cleaning.clean(tmp_path) == []


@pytest.mark.processes
def test_a_paused_node_of_a_killed_command_is_ended(tmp_path: Path) -> None:
    """A paused node does not notice that its command is gone."""
    crashed(
        "from infra import local_cluster\n"
        "context = local_cluster.temporary(Path(sys.argv[1]), nodes=1)\n"
        "cluster = context.__enter__()\n"
        "local_cluster.pause(cluster, 'node1')",
        tmp_path,
    )
    assert {done.kind: done.outcome for done in cleaning.clean(tmp_path)} == {
        "processes": CleanupOutcome.UNDONE,
        "directory": CleanupOutcome.UNDONE,
    }
    assert list(tmp_path.iterdir()) == []


def mounted_below(directory: Path) -> bool:
    backing = [each.read_text() for each in Path("/sys/block").glob("loop*/loop/backing_file")]
    return bool(mounts_below(directory)) or any(str(directory) in each for each in backing)


@pytest.mark.drives
@on_drives
def test_a_filled_drive_with_a_process_on_it_is_taken_apart(tmp_path: Path) -> None:
    """Everything at once, in the order that works: the process holds the drive, the drive holds the directory."""
    crashed(
        "import subprocess\n"
        "from infra import drives, filling, node_process\n"
        "from infra.register import Register, UndoKind\n"
        "root = Path(sys.argv[1]); register = Register(root)\n"
        "register.note(UndoKind.DIRECTORY, str(root / 'run')); (root / 'run').mkdir()\n"
        "drive = drives.make(root / 'run' / 'd1', 64)\n"
        "filling.fill(drive.files, register)\n"
        "register.note(UndoKind.PROCESSES, 'holder')\n"
        "subprocess.Popen(['sleep', '600'], cwd=drive.files, env=os.environ | {node_process.MARK: 'holder'},\n"
        "                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)",
        tmp_path,
    )
    assert mounted_below(tmp_path)
    assert [(done.kind, done.outcome, done.text) for done in cleaning.clean(tmp_path)] == [
        ("processes", CleanupOutcome.UNDONE, "ended 1 of them"),
        ("fill", CleanupOutcome.UNDONE, "freed"),
        ("drive", CleanupOutcome.UNDONE, "unmounted and removed"),
        ("directory", CleanupOutcome.UNDONE, "removed with what was in it"),
    ]
    assert not mounted_below(tmp_path) and list(tmp_path.iterdir()) == []
    assert cleaning.clean(tmp_path) == []


@pytest.mark.drives
@on_drives
def test_a_mount_that_is_not_the_drives_own_stays(tmp_path: Path) -> None:
    """An operator may have mounted something else over the place meanwhile."""
    crashed("from infra import drives\ndrives.make(Path(sys.argv[1]) / 'd1', 64)", tmp_path)
    drive = BlockDrive(tmp_path / "d1")
    subprocess.run(["mount", "-t", "tmpfs", "other", str(drive.files)], check=True)
    try:
        (done,) = cleaning.clean(tmp_path)
        assert done.outcome is CleanupOutcome.FAILED and "other is mounted here" in done.text
        assert mounts()[-1][:3] == (str(drive.files), "tmpfs", "other")
    finally:
        subprocess.run(["umount", str(drive.files)], check=True)
        assert outcomes(tmp_path) == {str(drive.directory): CleanupOutcome.UNDONE}
    assert not mounted_below(tmp_path)


@pytest.mark.drives
@on_drives
def test_a_directory_with_a_mount_in_it_is_not_removed(tmp_path: Path) -> None:
    """Removing it would remove what is on the drive."""
    inside = tmp_path / "run" / "mount"
    inside.mkdir(parents=True)
    abandoned(Register(tmp_path), UndoKind.DIRECTORY, str(tmp_path / "run"))
    subprocess.run(["mount", "-t", "tmpfs", "other", str(inside)], check=True)
    try:
        (inside / "precious").touch()
        assert outcomes(tmp_path) == {str(tmp_path / "run"): CleanupOutcome.FAILED}
        assert (inside / "precious").exists()
    finally:
        subprocess.run(["umount", str(inside)], check=True)
    assert outcomes(tmp_path) == {str(tmp_path / "run"): CleanupOutcome.UNDONE}


@pytest.mark.drives
@on_drives
def test_a_kept_drive_outlives_its_command(tmp_path: Path) -> None:
    crashed(
        "from infra import drives\ndrive = drives.make(Path(sys.argv[1]) / 'd1', 64)\ndrives.keep(drive)",
        tmp_path,
    )
    drive = BlockDrive(tmp_path / "d1")
    assert outcomes(tmp_path) == {str(drive.directory): CleanupOutcome.KEPT}
    drives.check(drive)
    assert outcomes(tmp_path, kept=True) == {str(drive.directory): CleanupOutcome.UNDONE}
    assert not mounted_below(tmp_path)


@pytest.mark.drives
@on_drives
@pytest.mark.parametrize("step", ["_start_device", "_attach", "_mount"])
def test_ctrl_c_while_a_drive_is_made_leaves_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of the drive goes to the background; a step that is cut short would still mount a moment later."""
    real = getattr(drives, step)

    def interrupted(*arguments: object) -> object:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(drives, step, interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell has SIGINT ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            drives.make(tmp_path / "d1", 64)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not mounted_below(tmp_path) and list(tmp_path.iterdir()) == []


@pytest.mark.drives
@on_drives
@pytest.mark.parametrize("step", ["_start_device", "_attach", "_mount"])
def test_a_step_that_fails_leaves_nothing(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_arguments: object) -> object:
        raise DriveError("it failed", "here", "there is none")

    monkeypatch.setattr(drives, step, failing)
    with pytest.raises(DriveError, match="it failed"):
        drives.make(tmp_path / "d1", 64)
    assert not mounted_below(tmp_path) and list(tmp_path.iterdir()) == []


@pytest.mark.drives
@on_drives
def test_a_filled_drive_has_no_room_until_it_is_freed(tmp_path: Path) -> None:
    drive, register = drives.make(tmp_path / "d1", 64), Register(tmp_path)
    try:
        taken = filling.fill(drive.files, register)
        assert taken > 40 << 20
        with pytest.raises(OSError, match="No space left"):
            (drive.files / "a").write_bytes(b"x" * 65_536)
        with pytest.raises(filling.FillError, match="filled already"):
            filling.fill(drive.files, register)
        assert filling.free(drive.files, register) and not filling.free(drive.files, register)
        (drive.files / "a").write_bytes(b"x" * 65_536)
    finally:
        drives.remove(drive)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("os.geteuid", 1000, "mounting needs root"),
        ("os.access", False, "no /dev/fuse"),
        ("shutil.which", None, "losetup, mkfs.ext4, mount, umount not found"),
    ],
)
def test_what_a_machine_lacks_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, said: str
) -> None:
    answers = {"os.geteuid": 0, "os.access": True, "shutil.which": "/bin/true"} | {name: value}
    monkeypatch.setattr(drives, "Path", lambda path: Path("/" if path == "/dev/loop-control" else path))
    for function, answer in answers.items():
        monkeypatch.setattr(f"infra.drives.{function}", lambda *_, answer=answer: answer)
    with pytest.raises(DriveError, match=said) as caught:
        drives.make(tmp_path / "d1", 64)
    assert caught.value.code == 3
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
