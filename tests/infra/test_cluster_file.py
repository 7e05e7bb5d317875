"""cluster.json: damaged, it is read from its copy; and one command changes the file at a time."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infra import cluster_file
from infra.cluster import Cluster, ClusterError, Directories, plan
from infra.cluster_file import COPY_FILE, STATE_FILE, alone, load, save, update

DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:700]),
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "no text": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()),
    "another port": lambda path: path.write_text(path.read_text().replace("6001", "6011")),
    "gone": lambda path: path.unlink(),
}


def saved(directory: Path) -> Cluster:
    rows = [[6000 + node, 6100 + node, 6200 + node, 6300 + node] for node in range(3)]
    drives = [{"name": "fast", "roles": ["wal"], "rate": 0.1}]
    cluster = plan(directory, "local-1", rows, Directories(wal_dir="/mnt/w", drives=drives))
    save(cluster)
    return cluster


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_read_from_its_copy(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is a register: three whole nodes must not be out of reach for its sake. The next change mends the file."""
    cluster = saved(tmp_path)
    DAMAGES[damage](tmp_path / STATE_FILE)
    with caplog.at_level(logging.WARNING):
        assert load(tmp_path) == cluster
    assert f"its copy {COPY_FILE} is used" in caplog.text
    with alone(tmp_path):
        update(replace(cluster, nodes=(replace(cluster.nodes[0], first_life=1001), *cluster.nodes[1:])), {"node1"})
    caplog.clear()
    assert [node.first_life for node in load(tmp_path).nodes] == [1001, 0, 0] and not caplog.text


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_copy_the_error_names_the_command_that_makes_the_file_anew(damage: str, tmp_path: Path) -> None:
    """Never the removal of the directory."""
    saved(tmp_path)
    for node in ("node1", "node2", "node3"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "node.json").touch()
    for file in (STATE_FILE, COPY_FILE):
        DAMAGES[damage](tmp_path / file)
    with pytest.raises(ClusterError) as caught:
        load(tmp_path)
    assert f"`perftest broker rebuild --dir {tmp_path}`" in caught.value.fix and "remove" not in caught.value.fix


def test_no_turned_octet_makes_another_cluster(tmp_path: Path) -> None:
    """A port or a path that is off by one bit would be believed."""
    cluster, rng = saved(tmp_path), random.Random(7)
    octets = (tmp_path / STATE_FILE).read_bytes()
    (tmp_path / COPY_FILE).unlink()
    for at in rng.sample(range(len(octets)), 300):
        turned = octets[:at] + bytes([octets[at] ^ 1 << rng.randrange(8)]) + octets[at + 1 :]
        (tmp_path / STATE_FILE).write_bytes(turned)
        try:
            found = load(tmp_path)
        except ClusterError:
            continue
        assert found == cluster, f"octet {at}"


def test_a_file_of_an_earlier_version_has_no_checksum_and_is_read(tmp_path: Path) -> None:
    cluster = saved(tmp_path)
    lines = [line for line in (tmp_path / STATE_FILE).read_text().splitlines() if '"sha256"' not in line]
    lines[-2] = lines[-2].rstrip(",")
    (tmp_path / STATE_FILE).write_text("\n".join(lines))
    assert load(tmp_path) == cluster


def test_what_others_wrote_meanwhile_stays(tmp_path: Path) -> None:
    """Each command knows the others' nodes only as they were when it began."""
    cluster = saved(tmp_path)
    for number, node in enumerate(cluster.nodes):
        mine = tuple(replace(each, first_life=1000) if each == node else each for each in cluster.nodes)
        with alone(tmp_path):
            merged = update(replace(cluster, nodes=mine), {node.name})
        assert [each.first_life for each in merged.nodes] == [1000] * (number + 1) + [0] * (2 - number)


def test_one_command_changes_a_directory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody waits for ever."""
    inside, others, most = threading.Lock(), [], []

    def change() -> None:
        with alone(tmp_path / "c"):
            most.append(inside.acquire(blocking=False))
            (tmp_path / "c" / "file").touch()
            inside.release()

    for _ in range(8):
        others.append(threading.Thread(target=change))
        others[-1].start()
    for each in others:
        each.join()
    assert most == [True] * 8
    monkeypatch.setattr(cluster_file, "_TURN_S", 0.0)
    with alone(tmp_path / "c"), pytest.raises(ClusterError, match="another command"), alone(tmp_path / "c"):
        pass


def test_a_directory_that_nothing_was_put_into_is_not_left(tmp_path: Path) -> None:
    with alone(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
