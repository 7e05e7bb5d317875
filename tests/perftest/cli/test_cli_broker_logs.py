"""What is removed of a node on a host, and what is kept: the commands are run as a host would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from infra.remote.shipping import InstalledProject
from perftest.remote.brokers import remove_command
from perftest.spec.hosts import HostSpec

IDENTITY = "perftest-0123abcd"


def removed(host: Path, identity: str = IDENTITY, storage: dict[str, str] | None = None) -> None:
    """Run what removes a node's files."""
    spec = HostSpec(
        name="host1", address="host1", traffic_address="host1", roles=("broker",), directory=str(host),
        storage=storage or {},
    )  # fmt: skip
    words = remove_command(InstalledProject(sys.executable, PurePosixPath(host), "site"), identity, spec)
    subprocess.run(words, check=True, cwd=host)


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def write(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("line\n")


def test_the_log_of_a_node_stays_and_all_else_goes(tmp_path: Path) -> None:
    write(tmp_path / "logs" / IDENTITY / "host1" / "node.log")
    write(tmp_path / IDENTITY / "host1" / "data" / "wal")
    write(tmp_path / "runs" / "a")
    removed(tmp_path)
    assert (tmp_path / "logs" / IDENTITY / "host1" / "node.log").read_text() == "line\n"
    assert names(tmp_path) == ["logs", "runs"]


@pytest.mark.parametrize("role", ["wal", "logs"])
def test_directories_of_a_node_elsewhere_go_and_its_log_comes_to_the_others(tmp_path: Path, role: str) -> None:
    host, drive = tmp_path / "host", tmp_path / "drive"
    host.mkdir()
    write(drive / IDENTITY / role / "host1" / "node.log")
    write(drive / "perftest-of-another" / "wal")
    removed(host, storage={role: str(drive)})
    assert names(drive) == ["perftest-of-another"]
    assert (host / "logs" / IDENTITY / "host1" / "node.log").exists() == (role == "logs")


def test_a_node_that_never_started_leaves_nothing(tmp_path: Path) -> None:
    removed(tmp_path, storage={"logs": str(tmp_path / "nowhere")})
    assert not names(tmp_path)


def test_logs_of_the_last_twenty_clusters_are_kept(tmp_path: Path) -> None:
    for number in range(23):
        log = tmp_path / "logs" / f"perftest-{number:08x}" / "host1" / "node.log"
        write(log)
        os.utime(log.parent.parent, (number, number))
    write(tmp_path / "logs" / "own" / "agent.log")
    (tmp_path / "logs" / "observer.log").write_text("line\n")
    removed(tmp_path, "perftest-00000016")
    kept = names(tmp_path / "logs")
    assert kept == ["observer.log", "own", *(f"perftest-{number:08x}" for number in range(3, 23))]
