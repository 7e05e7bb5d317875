"""Layouts on this machine: what would spoil a measurement is told before a node starts, and files lie where it says."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from infra import local_cluster
from infra.cluster import ClusterError, Node, plan
from infra.layout import PlacedDrive, PlacedLayout, directories, faults, roots

ROLES = {"data": "disk", "logs": "disk", "segment": "disk", "wal": "fast"}
NODES = ["node1", "node2"]
PORTS = (5691, 5791, 5891, 5991)


def layout(disk: Path | str, fast: Path | str, *, mounts: bool = False, io: str = "dedicated") -> PlacedLayout:
    drives = (
        PlacedDrive(name="disk", path=str(disk), is_mount=mounts),
        PlacedDrive(name="fast", path=str(fast), is_mount=mounts),
    )
    return PlacedLayout(name="two", drives=drives, roles=ROLES, io=io)


def rules(found: PlacedLayout) -> list[str]:
    return [fault.rule for fault in faults(found, NODES)]


def test_directories_may_share_a_device_and_need_not_exist(tmp_path: Path) -> None:
    assert rules(layout(tmp_path / "a", tmp_path / "b")) == []
    assert list(tmp_path.iterdir()) == [], "to look makes nothing"


def test_what_is_no_mount_is_told_for_every_drive(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = rules(layout(tmp_path / "a", tmp_path / "b", mounts=True))
    assert f"drive disk: {tmp_path / 'a'} is no mount point" in found and f"there is no {tmp_path / 'b'}" in found


def test_two_drives_are_two_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A WAL that was to have a drive of its own and shares one gives figures of another layout."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).parent == tmp_path)
    assert rules(layout(tmp_path / "a", tmp_path / "b", mounts=True)) == [
        "drives disk and fast are one device, and the layout says two"
    ]


def test_a_mounted_drive_shares_its_device_with_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "a")
    mixed = layout(tmp_path / "a", tmp_path / "b")
    drives = (PlacedDrive(name="disk", path=str(tmp_path / "a"), is_mount=True), mixed.drives[1])
    mixed = PlacedLayout(name="two", drives=drives, roles=ROLES)
    assert rules(mixed) == ["drives disk and fast are one device, and the layout says two"]


def test_the_drives_of_every_node_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "node2").write_text("a file")
    found = rules(layout(tmp_path / "a", tmp_path / "{node}"))
    assert found == [f"drive fast: {tmp_path / 'node2'} is no directory"]


def test_each_role_of_each_node_has_a_directory_of_its_own() -> None:
    placed = directories(layout("/slow", "/{node}/fast", io="pool:10"), "c1")
    assert (placed.data_dir, placed.wal_dir, placed.io) == ("/slow/c1/data", "/{node}/fast/c1/wal", "pool:10")
    assert placed.layout == "two: disk (/slow) data, logs, segment; fast (/{node}/fast) wal; io pool:10"
    assert roots(layout("/slow", "/{node}/fast"), NODES) == [Path("/slow"), Path("/node1/fast"), Path("/node2/fast")]


def test_a_modelled_drive_is_left_to_the_node() -> None:
    """Its files lie in the cluster's own directory, and the log file is on no modelled drive."""
    drives = (PlacedDrive(name="disk", path="/slow"), PlacedDrive(name="fast", profile="nvme"))
    mixed = PlacedLayout(name="two", drives=drives, roles={**ROLES, "logs": "fast"}, octets_per_second=1000)
    placed = directories(mixed, "c1")
    assert (placed.data_dir, placed.wal_dir, placed.logs_dir) == ("/slow/c1/data", "", "")
    assert placed.drives == [{"name": "fast", "profile": "nvme", "roles": ["wal"]}]
    assert placed.instance_octets_per_second == 1000 and roots(mixed, NODES) == [Path("/slow")]
    assert placed.layout == "two: disk (/slow) data, segment; fast (modelled nvme) logs, wal; io dedicated"


def test_classic_queues_have_a_directory_where_the_layout_places_them() -> None:
    """On a modelled drive beside real data, they do not lie on the drive of the data, which would write them back."""
    place = layout("/slow", "/{node}/fast")
    assert directories(place, "c1").classic_dir == ""
    own = replace(place, roles={**ROLES, "classic": "fast"})
    assert directories(own, "c1").classic_dir == "/{node}/fast/c1/classic"
    (node,) = plan(Path("/c"), "c1", [PORTS], directories(own, "c1")).nodes
    assert node.paths()["classic_dir"] == "/node1/fast/c1/classic/node1"

    def modelled(data: PlacedDrive) -> str:
        drives = (data, PlacedDrive(name="fast", profile="nvme"))
        placed = directories(replace(own, drives=drives, roles={**own.roles, "wal": "disk"}), "c1")
        assert placed.drives[-1] == {"name": "fast", "profile": "nvme", "roles": ["classic"]}
        return plan(Path("/c"), "c1", [PORTS], placed).nodes[0].paths()["classic_dir"]

    assert modelled(PlacedDrive(name="disk", path="/slow")) == "/c/node1/classic"
    assert modelled(PlacedDrive(name="disk", profile="hdd7200")) == "/c/node1/data/classic"


def test_every_node_models_the_drives_of_its_layout(tmp_path: Path) -> None:
    modelled = PlacedLayout(
        name="modelled",
        drives=(PlacedDrive(name="fast", profile="nvme"),),
        roles=dict.fromkeys(ROLES, "fast"),
        io="pool:4",
    )
    with local_cluster.temporary(tmp_path, nodes=1, layout=modelled) as cluster:
        config = json.loads((Path(cluster.nodes[0].data_dir) / "node.json").read_text())
        assert config["io"] == "pool:4"
        assert config["drives"] == [{"name": "fast", "profile": "nvme", "roles": ["data", "segment", "wal"]}]


def files_below(path: Path) -> set[str]:
    return {found.name for found in path.rglob("*") if found.is_file()}


def test_a_temporary_cluster_keeps_its_files_on_its_drives_and_takes_them_away(tmp_path: Path) -> None:
    wanted = layout(tmp_path / "disk", tmp_path / "{node}-fast", io="pool:2")
    with local_cluster.temporary(tmp_path / "runs", nodes=1, layout=wanted) as cluster:
        (node,) = cluster.nodes
        config = json.loads((Path(node.data_dir) / "node.json").read_text())
        assert config["io"] == "pool:2" and "node.log" in files_below(tmp_path / "disk")
        assert Path(config["wal_dir"]).is_relative_to(tmp_path / "node1-fast") and files_below(tmp_path / "node1-fast")
        assert Path(config["data_dir"]).is_relative_to(tmp_path / "disk") and any(Path(config["data_dir"]).iterdir())
    assert not files_below(tmp_path / "disk") and not files_below(tmp_path / "node1-fast")
    assert not [*(tmp_path / "disk").iterdir(), *(tmp_path / "node1-fast").iterdir()]


def test_a_cluster_keeps_its_layout(tmp_path: Path, base_port: int) -> None:
    """A start with another layout would find none of the data, and so would lose it."""
    first, other = layout(tmp_path / "disk", tmp_path / "fast"), layout(tmp_path / "disk", tmp_path / "elsewhere")
    cluster = local_cluster.start(tmp_path / "c", nodes=1, base_port=base_port, layout=first)
    local_cluster.stop(cluster)
    with pytest.raises(ClusterError, match="this cluster was started with another layout"):
        local_cluster.start(tmp_path / "c", layout=other)
    for again in (first, None):
        kept = local_cluster.start(tmp_path / "c", layout=again)
        local_cluster.stop(kept)
        assert paths(kept.nodes[0]) == paths(cluster.nodes[0])


def paths(node: Node) -> dict[str, str]:
    return node.paths()
