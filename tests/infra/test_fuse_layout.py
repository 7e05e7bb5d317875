"""FUSE drives of a layout: made for the nodes, kept with a cluster that stays, and gone afterwards.

They need root, FUSE and loop devices, and are skipped with the reason elsewhere.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import control, drives, fuse_layout, local_cluster
from infra.cleaning import CleanupOutcome, clean
from infra.drives import DriveError
from infra.fuse_drives import segments_written
from infra.layout import PlacedDrive, PlacedLayout
from infra.mounts import mounts_below
from infra.node_process import wait

needs_fuse = pytest.mark.skipif(bool(drives.impossible()), reason=f"no FUSE drives here: {drives.impossible()}")
PLAIN = PlacedLayout(
    name="plain", drives=(PlacedDrive(name="d", path="/nowhere"),), roles=dict.fromkeys(("data", "wal"), "d")
)
TWO = PlacedLayout(
    name="two",
    drives=(
        PlacedDrive(name="disk", profile="nvme", size_mb=512),
        PlacedDrive(name="fast", profile="nvme", size_mb=512),
    ),
    roles={"data": "disk", "logs": "disk", "segment": "disk", "wal": "fast"},
    io="pool:4",
)
FORGOTTEN = """
import sys
from pathlib import Path
from infra import fuse_layout
from tests.infra.test_fuse_layout import TWO
with fuse_layout.made(TWO, Path(sys.argv[1]), ["node1"]):
    print("made", flush=True)
    sys.stdin.read()
"""


def mounts(place: Path) -> int:
    return len(mounts_below(place))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    clean(tmp_path, kept=True)
    assert not mounts(tmp_path)


def test_segments_are_counted_by_the_numbers_of_each_queue(tmp_path: Path) -> None:
    """Old segments of a queue go, so the files that are left would tell less."""
    for queue, names in (("q1", ("00000003.segment", "00000004.segment")), ("q2", ("00000001.segment", "config"))):
        (tmp_path / queue).mkdir()
        for name in names:
            (tmp_path / queue / name).touch()
    assert segments_written(tmp_path) == 5


def test_a_layout_without_fuse_drives_stays_as_it_is(tmp_path: Path) -> None:
    with fuse_layout.made(PLAIN, tmp_path, ["node1"]) as layout:
        assert layout is PLAIN
    assert fuse_layout.keep(PLAIN, tmp_path, ["node1"], is_new=True) == PLAIN
    assert list(tmp_path.iterdir()) == []


def test_the_line_of_a_layout_says_that_the_drive_is_modelled_and_not_where_it_is() -> None:
    """Two runs on such a layout have one line, so that the report puts them together."""
    assert TWO.text == "two: disk (FUSE, modelled nvme, 512 MiB) data, logs, segment; " \
        "fast (FUSE, modelled nvme, 512 MiB) wal; io pool:4"  # fmt: skip


@pytest.mark.drives
@needs_fuse
def test_nodes_have_drives_of_their_own_which_go_with_the_cluster(place: Path) -> None:
    """Files in the wrong place would measure the drive of this machine."""
    with local_cluster.temporary(place, layout=TWO) as cluster:
        assert mounts(place) == 12
        for node in cluster.nodes:
            paths = node.paths()
            devices = {role: Path(paths[role]).stat().st_dev for role in ("data_dir", "wal_dir", "segment_dir")}
            assert devices["data_dir"] == devices["segment_dir"] != devices["wal_dir"]
            assert place.stat().st_dev not in devices.values()
        for record in control.sample(cluster, 1):
            told = {drive["name"]: drive for drive in record["drives"]}
            assert set(told) == {"disk", "fast"}
            assert told["fast"]["operations"] > 0 and told["fast"]["purposes"]["device"]["write_octets"] > 0
        assert len({Path(node.paths()["wal_dir"]).stat().st_dev for node in cluster.nodes}) == 3
    assert [each.name for each in place.iterdir()] == []


@pytest.mark.drives
@needs_fuse
def test_what_a_killed_command_leaves_is_cleaned(place: Path) -> None:
    """A mount that stays keeps memory and a loop device until the machine is started again."""
    command = [sys.executable, "-c", FORGOTTEN, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        process.send_signal(signal.SIGKILL)
    assert mounts(place) == 4
    assert {line.outcome for line in clean(place)} == {CleanupOutcome.UNDONE}
    assert list(place.iterdir()) == []


@pytest.mark.drives
@needs_fuse
def test_a_cluster_that_stays_finds_its_drives_again(place: Path, base_port: int) -> None:
    directory = place / "cluster"
    cluster = local_cluster.start(directory, nodes=1, base_port=base_port, layout=TWO)
    node = cluster.nodes[0]
    local_cluster.stop(cluster)
    assert mounts(directory) == 4
    again = local_cluster.start(directory, layout=TWO)
    assert again.nodes[0].paths() == node.paths()
    local_cluster.stop(again)
    subprocess.run(["umount", str(directory / "drives" / "node1-fast" / "files")], check=True)
    with pytest.raises(DriveError, match="a FUSE drive of this cluster is gone"):
        local_cluster.start(directory)
    assert {line.outcome for line in clean(directory)} == {CleanupOutcome.KEPT}
    assert wait(lambda: {line.outcome for line in clean(directory, kept=True)} <= {CleanupOutcome.UNDONE}, 30)
    with pytest.raises(DriveError, match="a FUSE drive of this cluster is gone"):
        local_cluster.start(directory)  # else the nodes would begin anew, on the drive of this machine
    assert not (directory / "drives" / "node1-disk").exists()


@pytest.mark.drives
@needs_fuse
def test_a_cluster_that_does_not_start_leaves_no_drives(
    place: Path, base_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise local_cluster.ClusterError("no", "the test", "none")

    monkeypatch.setattr(local_cluster, "_require_free", fails)
    with pytest.raises(local_cluster.ClusterError):
        local_cluster.start(place / "cluster", nodes=1, base_port=base_port, layout=TWO)
    assert not mounts(place)
    with pytest.raises(local_cluster.ClusterError), local_cluster.temporary(place, nodes=1, layout=broken()):
        pytest.fail("started")
    assert not mounts(place)


def broken() -> PlacedLayout:
    """A drive too small for a log: the node ends while it starts."""
    small = PlacedDrive(name="fast", profile="nvme", size_mb=drives.SIZE_MB_MIN)
    return PlacedLayout(name="small", drives=(TWO.drives[0], small), roles=TWO.roles, io=TWO.io)
