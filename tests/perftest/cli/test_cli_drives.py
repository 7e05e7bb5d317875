"""Drives that are full or read-only: the run ends, says so in three lines, and what was recorded is kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra import local_cluster
from infra.local_cluster import Cluster
from perftest.results.reader import read_run, summarise

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="limits on the size of files are POSIX's"),
]

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({octets}, {octets}))
from perftest.cli.main import call
sys.exit(call(sys.argv[1:]))
"""
"""The operating system refuses every file of this process, and of its worker, that grows beyond the limit."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes that are not under the limit: it is the results' drive that is full, not the broker's."""
    with local_cluster.temporary(tmp_path_factory.mktemp("nodes")) as running:
        yield running


def run_limited(octets: int, cluster: Cluster, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`perftest run` with files that may have so many octets."""
    command = [sys.executable, "-c", LIMITED.format(octets=octets), "run", "-H", ",".join(cluster.uris), "-qq"]
    command += ["-u", "perftest", "-e", "amq.default", "-q", "1000", "-s", "1000"]
    command += ["-c", "20", "-z", "20", "--warmup", "200ms", "-i", "0.1", "--ui", "none", "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)


def assert_three_lines(stderr: str, place: str) -> None:
    """What, where, what to do; nothing else, least of all a traceback."""
    what, where, fix = stderr.splitlines()
    assert what.startswith("error: the run cannot be recorded: ")
    assert where.startswith("  at   ") and place in where and fix.startswith("  fix  free space or choose another")


def test_a_drive_that_fills_up_costs_nothing_that_was_recorded(cluster: Cluster, tmp_path: Path) -> None:
    """An hour of results is not lost because the hour after it had no room."""
    before = set(psutil.Process().children())
    done = run_limited(15_000, cluster, tmp_path / "runs")
    assert done.returncode == 1
    assert_three_lines(done.stderr, "latency.hlog")
    assert "delivered/s" in done.stdout, "what was measured is shown all the same"
    (path,) = (tmp_path / "runs").iterdir()
    run = read_run(path)
    assert run.manifest["state"] == "failed" and "cannot be recorded" in run.manifest["ended"]["reason"]
    assert len(run.intervals) > 5 and run.ledger is not None
    # The line that had no room was cut short, and is left out; all others are believed.
    assert {item.file for item in run.damaged} <= {"latency.hlog"}
    (row,) = summarise(run)["steps"]
    assert row["latency"]["e2e"]["count"] > 0
    assert not [file.name for file in path.iterdir() if file.name.startswith(".")]
    assert not set(psutil.Process().children()) - before, "a process of the run was left behind"


def test_a_drive_without_any_room_ends_the_run_before_a_message(cluster: Cluster, tmp_path: Path) -> None:
    """Not even the manifest fits: nothing is sent."""
    done = run_limited(100, cluster, tmp_path / "runs")
    assert done.returncode == 1 and done.stdout == ""
    assert_three_lines(done.stderr, "runs")


def test_a_place_that_cannot_be_written_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """As on a read-only drive; a file in the way is refused even for root, who may write anywhere."""
    (tmp_path / "file").write_text("")
    done = run_limited(10**9, cluster, tmp_path / "file" / "runs")
    assert done.returncode == 1 and done.stdout == ""
    assert_three_lines(done.stderr, "file")
