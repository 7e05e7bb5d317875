"""``--layout``: what is wrong is told before anything starts, and what is right is started and recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workloads
from infra import cluster_file, drives, local_cluster
from infra.cluster import Cluster, Directories, plan
from infra.layout import ROLES, TWIN_SIZES_MB, PlacedDrive, PlacedLayout, directories, memory_mb
from infra.rabbitmq_cluster import misplaced
from perftest.measuring.measured_broker import broker_facts
from perftest.measuring.placement import layout_of
from perftest.spec.cluster import Product
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.problem import SpecError
from reference_broker.node.drive_config import drive_problems

Call = Callable[..., tuple[int, str, str]]
GOOD = """\
title: two directories
drives:
  disk: {directory: DISK}
  fast: {directory: FAST}
roles: {data: disk, logs: disk, segment: disk, wal: fast}
io: {pool: 4}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD.replace("DISK", str(tmp_path / "disk")).replace("FAST", f'"{tmp_path}/{{node}}-fast"'))
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A FUSE drive, a profile that is none, and a mount that is none."""
    file = tmp_path / "bad.yaml"
    text = GOOD.replace("{directory: DISK}", "{fuse: {profile: hdd7200, size: 9GB}}").replace(
        "{directory: FAST}", f"{{mount: {tmp_path}}}"
    )
    text = text.replace("roles:", "  odd: {profile: floppy}\nroles:").replace("segment: disk", "segment: odd")
    file.write_text(text)
    return file


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[PlacedLayout | None]:
    """The layouts of the clusters that would have been started."""
    found: list[PlacedLayout | None] = []

    def start(*_paths: object, layout: PlacedLayout | None = None, **_more: Any) -> None:
        found.append(layout)
        raise local_cluster.ClusterError("stop here", "the test", "none")

    monkeypatch.setattr(local_cluster, "temporary", start)
    monkeypatch.setattr(local_cluster, "start", start)
    return found


COMMANDS = [
    ("run", "-z", "1", "--layout"),
    ("sweep", "--vary", "in_flight=1,2", "--layout"),
    ("broker", "start", "--layout"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_all_problems_are_told_before_anything_starts(
    call: Call, bad: Path, asked: list[PlacedLayout | None], command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drives, "impossible", lambda: "mounting needs root")
    monkeypatch.setattr(drives, "memory_octets", lambda: 2 << 30)
    code, _out, err = call(*command, str(bad))
    assert code == 2 and asked == []
    assert err.count("error: ") == 5
    assert "drive disk is a FUSE drive, which this machine cannot have: mounting needs root" in err
    assert "drive disk of 8583 MiB is no possible FUSE drive" in err
    assert "take up to 25749 MiB of memory, of 2048 MiB free" in err
    assert "bad.yaml:3: drives.disk.fuse.size" in err
    assert "there is no profile 'floppy'" in err and "use one of: st1-1t, " in err
    assert "is no mount point" in err and "bad.yaml:4: drives.fast.mount" in err


def test_the_drives_of_a_cluster_that_is_there_take_no_more_memory(
    call: Call, tmp_path: Path, asked: list[PlacedLayout | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have their memory already, so little may be free."""
    monkeypatch.setattr(drives, "impossible", lambda: "")
    monkeypatch.setattr(drives, "memory_octets", lambda: 0)
    file = tmp_path / "fuse.yaml"
    roles = "roles: {data: disk, logs: disk, segment: disk, wal: disk}"
    file.write_text(f"drives: {{disk: {{fuse: {{profile: hdd7200, size: 64 MiB}}}}}}\n{roles}\n")
    start = ("broker", "start", "--dir", str(tmp_path / "c"), "--layout", str(file))
    code, _out, err = call(*start)
    assert code == 2 and asked == [] and "of 0 MiB free" in err
    (tmp_path / "c").mkdir()
    cluster_file.save(plan(tmp_path / "c", "local-1", [[1, 2, 3, 4]] * 3, Directories()))
    code, _out, err = call(*start)
    assert len(asked) == 1, err


def test_a_fuse_drive_of_no_known_profile_is_told_with_its_line(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(GOOD.replace("{directory: DISK}", "{fuse: {profile: floppy, size: 64MB}}").replace("FAST", "/tmp"))
    code, _out, err = call("run", "-z", "1", "--layout", str(file))
    assert code == 2 and "there is no profile 'floppy'" in err and "odd.yaml:3: drives.disk.fuse.profile" in err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_cluster_is_asked_for_with_the_layout(
    call: Call, good: Path, asked: list[PlacedLayout | None], command: tuple[str, ...], tmp_path: Path
) -> None:
    out = ("--dir", str(tmp_path / "c")) if command[0] == "broker" else ("--out", str(tmp_path / "runs"))
    code, _out, err = call(*command, str(good), *out)
    assert code == 1 and "stop here" in err
    (layout,) = asked
    assert layout is not None and layout.io == "pool:4"
    assert layout.roles == {"data": "disk", "logs": "disk", "segment": "disk", "wal": "fast"}
    if command[0] != "broker":
        assert f"layout two directories: disk ({tmp_path / 'disk'}) data, logs, segment; fast" in err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_classic_queues_have_a_directory_on_the_drive_that_is_theirs(
    call: Call, good: Path, asked: list[PlacedLayout | None], command: tuple[str, ...], tmp_path: Path
) -> None:
    """Beside the data they stay where they always were, so a cluster from before finds them."""
    out = ("--dir", str(tmp_path / "c")) if command[0] == "broker" else ("--out", str(tmp_path / "runs"))
    for drive in ("fast", "disk"):
        good.write_text(re.sub(r"wal: fast.*}", f"wal: fast, classic: {drive}}}", good.read_text()))
        assert call(*command, str(good), *out)[0] == 1
    apart, together = (layout and directories(layout, "c1").classic_dir for layout in asked)
    assert (apart, together) == (f"{tmp_path}/{{node}}-fast/c1/classic", "")


@pytest.mark.parametrize("name", [name for name in workloads.layout_names() if name.startswith("disks/")])
def test_a_bundled_layout_is_modelled_by_every_node(call: Call, name: str, asked: list[PlacedLayout | None]) -> None:
    """The published comparison needs one, two and three drives of two kinds, and every kind of file on one of them."""
    assert call("run", "-z", "1", "--layout", name)[0] == 1
    (layout,) = asked
    assert layout is not None and not layout.with_paths
    placed = directories(layout, "c")
    profile = "st1-1t" if name.endswith("hdd") else "io1-200g"
    assert len(placed.drives) == ("one", "two", "three").index(name.split("/")[1].split("_")[0]) + 1
    assert drive_problems(placed.drives) == [] and {drive["profile"] for drive in placed.drives} == {profile}
    assert sorted(role for drive in placed.drives for role in drive["roles"]) == ["classic", "data", "segment", "wal"]
    assert placed.instance_octets_per_second == 250_000_000 and placed.data_dir == placed.wal_dir == ""


@pytest.mark.parametrize(
    ("drive", "words"),
    [
        (
            PlacedDrive(name="d", profile="nvme"),
            "their drive is modelled, so its syncs last as long as on that drive, and sync nothing",
        ),
        (PlacedDrive(name="d", path="/d"), "persistent messages are synced there before each confirm"),
    ],
    ids=["modelled", "real"],
)
def test_the_manifest_promises_no_syncs_that_a_modelled_drive_does_not_do(
    drive: PlacedDrive, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A modelled sync lasts as long as a real one, and keeps nothing."""
    monkeypatch.setattr(local_cluster, "summary", lambda _cluster: [])
    text = "schema: 1\nname: w\ntitle: t\nqueues: [{name: q, type: classic}]\nstep: {duration: 2s}\n"
    plan = expand(parse_workload(text, "w.yaml")[0], ())
    layout = PlacedLayout(name="one", drives=(drive,), roles=dict.fromkeys((*ROLES, "classic"), "d"))
    cluster = Cluster(cluster="c", directory="/c", nodes=(), directories=directories(layout, "c"))
    assert broker_facts(plan, cluster)["durability"].endswith(f"; {words}")


def test_there_are_six_published_layouts() -> None:
    assert len([name for name in workloads.layout_names() if name.startswith("disks/")]) == 6


@pytest.mark.parametrize("broker", ["reference", "rabbitmq"])
def test_the_bundled_layout_with_fuse_drives_is_for_every_broker(monkeypatch: pytest.MonkeyPatch, broker: str) -> None:
    """Whoever copies the example must not have to mend it first."""
    monkeypatch.setattr(drives, "impossible", lambda: "")
    monkeypatch.setattr(drives, "memory_octets", lambda: 3 * 1_536_000_000)
    layout = layout_of(Path("flow_control/own_log_fuse"), 3, Product(broker))
    assert {drive.name: drive.profile for drive in layout.fuse} == {"disk": "hdd7200", "log": "hdd7200"}
    assert layout.roles["wal"] == "log" and layout.roles["data"] == "disk"


@pytest.mark.parametrize("name", [name for name in workloads.layout_names() if name.startswith("disks/")])
@pytest.mark.parametrize(("broker", "is_fuse"), [("rabbitmq", False), ("reference", True)], ids=["rabbitmq", "asked"])
def test_a_bundled_layout_has_a_fuse_twin(
    monkeypatch: pytest.MonkeyPatch, name: str, broker: str, is_fuse: bool
) -> None:
    """RabbitMQ models no drives, so it gets block devices of the same profiles, with the same limit."""
    monkeypatch.setattr(drives, "impossible", lambda: "")
    monkeypatch.setattr(drives, "memory_octets", lambda: 8 << 30)
    layout = layout_of(Path(name), 3, Product(broker), is_fuse=is_fuse)
    modelled = layout_of(Path(name), 3)
    assert [(drive.name, drive.profile) for drive in layout.fuse] == [
        (drive.name, drive.profile) for drive in modelled.drives
    ]
    assert layout.octets_per_second == 250_000_000 and layout.io == "pool:10" and layout.name == modelled.name
    assert memory_mb(layout, 3) == 3 * sum(TWIN_SIZES_MB.values())
    assert not misplaced({role: Path(drive) for role, drive in layout.roles.items()})
    placed = directories(layout, "c")
    assert placed.drives == [] or is_fuse is False or placed.instance_octets_per_second == 0


def test_a_fuse_twin_that_this_machine_cannot_have_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drives, "impossible", lambda: "mounting needs root")
    monkeypatch.setattr(drives, "memory_octets", lambda: 1 << 30)
    with pytest.raises(SpecError) as caught:
        layout_of(Path("disks/two_hdd"), 3, Product.RABBITMQ)
    said = "\n".join(f"{each.rule} {each.file}:{each.line}: {each.path}" for each in caught.value.problems)
    assert "drive drive_1 is a FUSE drive, which this machine cannot have: mounting needs root" in said
    assert (
        "take up to 6720 MiB of memory, of 1024 MiB free" in said and "two_hdd.yaml:5: drives.drive_1.profile" in said
    )


def test_a_bundled_layout_is_found_without_its_folder(call: Call, asked: list[PlacedLayout | None]) -> None:
    assert call("run", "-z", "1", "--layout", "one_hdd")[0] == 1
    (layout,) = asked
    assert layout is not None and layout.name == "one_hdd"


def test_figures_of_ones_own_are_those_of_a_node(call: Call, tmp_path: Path, asked: list[PlacedLayout | None]) -> None:
    file = tmp_path / "own.yaml"
    figures = "latency: 1ms, octets_per_second: 100MB, flush: 0.5ms, operations_per_second: 200, operation_size: 1MiB"
    file.write_text(
        f"drives: {{own: {{figures: {{{figures}}}}}}}\nroles: {{data: own, logs: own, segment: own, wal: own}}\n"
    )
    assert call("run", "-z", "1", "--layout", str(file))[0] == 1
    (layout,) = asked
    assert layout is not None
    (drive,) = directories(layout, "c").drives
    assert drive_problems([drive]) == [] and drive["profile"] == {
        "latency_ns": 1_000_000, "octets_per_second": 100_000_000, "channels": 1, "flush_ns": 500_000,
        "tokens_per_second": 200, "token_octets": 1 << 20,
    }  # fmt: skip


def test_impossible_figures_are_told_before_a_node_starts(
    call: Call, tmp_path: Path, asked: list[PlacedLayout | None]
) -> None:
    file = tmp_path / "own.yaml"
    figures = "{latency: 1ms, octets_per_second: 1MB, seek_full: 9ms}"
    file.write_text(
        f"drives: {{own: {{figures: {figures}}}}}\nroles: {{data: own, logs: own, segment: own, wal: own}}\n"
    )
    code, _out, err = call("run", "-z", "1", "--layout", str(file))
    assert code == 2 and asked == [] and "impossible figures: seek_full_ns: 9000000: needs revolution_ns, too" in err


@pytest.mark.parametrize("target", [("-h", "amqp://127.0.0.1"), ("--cluster", "here")], ids=["uri", "cluster"])
def test_a_sweep_places_no_broker_that_runs_already(call: Call, good: Path, target: tuple[str, str]) -> None:
    code, _out, err = call("sweep", "--vary", "in_flight=1,2", "--layout", str(good), *target)
    assert code == 2 and "a layout is for a cluster that this command starts" in err


def test_a_layout_places_everything(call: Call, good: Path, asked: list[PlacedLayout | None], tmp_path: Path) -> None:
    code, _out, err = call("broker", "start", "--layout", str(good), "--wal-dir", str(tmp_path / "wal"))
    assert code == 2 and asked == [] and "--layout places all files" in err


def test_one_node_is_started_as_it_was(call: Call, good: Path, asked: list[PlacedLayout | None]) -> None:
    code, _out, err = call("broker", "start", "--node", "node1", "--layout", str(good))
    assert code == 2 and asked == [] and "--layout is for a whole cluster" in err
