"""A node is replaced: everything is checked first, and its files are set aside until it runs without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from infra import local_cluster, replacement
from infra.cluster import Cluster, ClusterError, Directories, make_secret, plan
from infra.cluster_file import kept, save
from infra.mounts import Mount
from infra.replacement import replace_node


@dataclass
class Others:
    """The other nodes, and the start of the node that is replaced."""

    asked: list[object] = field(default_factory=list)
    lost: Sequence[str] = ()
    refusal: str = ""
    ends: str = ""

    def change(self, _cluster: Cluster, request: Mapping[str, object]) -> dict[str, Any]:
        self.asked.append(request["op"])
        if request["op"] == self.refusal:
            raise ClusterError("refused", "node1", "see why")
        return {"lost_queues": self.lost, "life": 1000 + len(self.asked)}

    def start(self, cluster: Cluster, name: str) -> Cluster:
        self.asked.append("start")
        if self.ends:
            raise ClusterError(self.ends, name, "mend the drive")
        return cluster


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    fake = Others()
    monkeypatch.setattr(replacement, "change", fake.change)
    monkeypatch.setattr(replacement, "start_node", fake.start)
    return fake


FILES = (
    "data/identity",
    "data/00ab/state",
    "data/segments/00ab/1.segment",
    "data/classic/durable/q",
    "wal/00000001.wal",
)
STAY = ("node.json", "node.log")


@pytest.fixture
def down(tmp_path: Path, base_port: int) -> Cluster:
    """A cluster whose nodes are down; node2 has files."""
    rows = [[base_port + node, base_port + 100 + node, base_port + 200 + node, 0] for node in range(3)]
    cluster = plan(tmp_path, "local-1", rows, Directories())
    make_secret(cluster)
    save(cluster)
    for name in FILES:
        (tmp_path / "node2" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "node2" / name).write_text(name)
    (tmp_path / "node2" / "node.json").write_text('{"limits": {"wal_files_waiting": 2}}')
    (tmp_path / "node2" / "node.log").touch()
    return cluster


def files_of(cluster: Cluster) -> set[str]:
    home = Path(cluster.node("node2").data_dir)
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_the_files_are_gone_when_the_node_runs_without_them(down: Cluster, others: Others) -> None:
    """Limits that somebody set by hand, and the log, stay."""
    after = replace_node(down, "2")
    assert others.asked == ["lost-with-node", "replace-node", "start"]
    assert files_of(down) == set(STAY) and kept(Path(down.directory)) == after
    assert after.node("node2").first_life == 1002


@pytest.mark.parametrize("spoil", ["node.json", "port", "secret", "drive"])
def test_nothing_is_asked_before_the_node_can_be_started(
    down: Cluster, others: Others, spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the other nodes have agreed, its classic queues are deleted."""
    if spoil == "node.json":
        (Path(down.directory) / "node2" / "node.json").write_text('{"limits": {,}}')
    elif spoil == "secret":
        down.secret_file.unlink()
        monkeypatch.setattr(local_cluster, "is_alive", lambda node: node.name == "node1")
    elif spoil == "drive":
        monkeypatch.setattr(replacement.os, "access", lambda path, _mode: "wal" not in str(path))
    else:
        monkeypatch.setattr(local_cluster, "_sockets", lambda _nodes: [("127.0.0.1", 1 << 20)])
    before = files_of(down)
    with pytest.raises(ClusterError):
        replace_node(down, "node2")
    assert not others.asked and files_of(down) == before


def test_whoever_is_asked_hears_of_the_queues_first(down: Cluster, others: Others) -> None:
    """And may say no."""
    others.lost = ["orders"]

    def disagree(queues: Sequence[str]) -> None:
        raise ClusterError(f"not {', '.join(queues)}", "here", "keep them")

    with pytest.raises(ClusterError, match="not orders"):
        replace_node(down, "node2", disagree)
    assert others.asked == ["lost-with-node"] and files_of(down) == {*FILES, *STAY}


def test_a_refusal_of_the_others_keeps_everything(down: Cluster, others: Others) -> None:
    others.refusal = "replace-node"
    with pytest.raises(ClusterError, match="refused"):
        replace_node(down, "node2")
    assert files_of(down) == {*FILES, *STAY} and kept(Path(down.directory)) == down


def test_a_start_that_fails_keeps_the_files_aside_and_can_be_repeated(down: Cluster, others: Others) -> None:
    others.ends = "node2 ended while it started"
    with pytest.raises(ClusterError, match="ended while it started") as caught:
        replace_node(down, "node2")
    home, aside = Path(down.directory) / "node2", ".replaced-1002"
    assert caught.value.fix.startswith("mend the drive; the former files of node2 are set aside: ")
    assert all(str(home / role / aside) in caught.value.fix for role in ("data", "wal"))
    assert files_of(down) == {
        *STAY, *(f"{role}/{aside}/{rest}" for role, _, rest in (name.partition("/") for name in FILES))
    }  # fmt: skip
    others.ends = ""
    replace_node(kept(home.parent), "node2")
    assert files_of(down) == set(STAY)


@pytest.mark.parametrize("renamed", range(5))
def test_a_crash_while_the_files_are_set_aside_loses_none(
    down: Cluster, others: Others, monkeypatch: pytest.MonkeyPatch, renamed: int
) -> None:
    """And the same command goes on."""
    rename, done = Path.rename, list[Path]()

    def crash(path: Path, target: Path) -> Path:
        if len(done) == renamed:
            raise KeyboardInterrupt
        done.append(path)
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", crash)
        replace_node(down, "node2")
    assert sorted(map(last_part, files_of(down))) == sorted(map(last_part, (*FILES, *STAY)))
    replace_node(down, "node2")
    assert files_of(down) == set(STAY)


def last_part(path: str) -> str:
    return path.rpartition("/")[2]


def test_a_mount_point_stays_and_what_is_in_it_is_set_aside(
    down: Cluster, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be renamed, and the node must not write below it."""
    others.ends, point = "ended", Path(down.directory) / "node2" / "data" / "segments"
    monkeypatch.setattr(replacement, "mounts", lambda: [Mount(str(point), "ext4", "/dev/sdb", 1)])
    with pytest.raises(ClusterError):
        replace_node(down, "node2")
    assert (point / ".replaced-1002" / "00ab" / "1.segment").exists() and not (point / "00ab").exists()
    assert (point.parent / ".replaced-1002" / "00ab" / "state").exists()
    others.ends = ""
    replace_node(replace(down), "node2")
    assert files_of(down) == set(STAY) and point.exists()
