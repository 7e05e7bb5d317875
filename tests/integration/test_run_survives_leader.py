"""kill -9 of a leader in the middle of a run: the run goes on, and its account says that nothing was lost.

This is what a quorum queue is for, and what a load generator must be able to watch without falling over itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra import local_cluster
from infra.local_cluster import Cluster, Node
from perftest.metrics.interval import Interval, Phase
from perftest.results.histograms import Merged
from perftest.results.hlog import HlogLine
from perftest.results.reader import Run, read_run

pytestmark = pytest.mark.processes

QUEUE = "survivor"
RUN_S = 10
SECOND_NS = 10**9


def leader_of_the_queue(cluster: Cluster) -> Node:
    """The node that leads the group of the queue, as the nodes say."""
    for node, answer in zip(cluster.nodes, local_cluster.status(cluster), strict=True):
        if any((queue["name"], queue["role"]) == (QUEUE, "leader") for queue in answer["queues"]):
            return node
    pytest.fail(f"nobody leads {QUEUE}: {local_cluster.status(cluster)}")


def kill_once_steady(child: subprocess.Popen[str], cluster: Cluster) -> Node:
    """Wait for two steady intervals, then kill the leader of the queue without warning."""
    assert child.stderr is not None
    steady = 0
    for line in child.stderr:
        steady += "phase=steady" in line
        if steady == 2:
            victim = leader_of_the_queue(cluster)
            os.kill(victim.pid, signal.SIGKILL)
            return victim
    pytest.fail("the run ended before it was steady")


def lines_of(run: Run, intervals: list[Interval], series: str) -> list[HlogLine]:
    """The histograms of these intervals; the log rounds times to milliseconds."""
    starts = [record.start_ns for record in intervals]
    near = 10**6
    return [
        line
        for line in run.histograms
        if line.series == series and any(abs(line.start_ns - start_ns) <= near for start_ns in starts)
    ]


def median_ns(run: Run, intervals: list[Interval], series: str) -> int:
    """The median over these intervals, from their merged histograms."""
    merged = Merged()
    for line in lines_of(run, intervals, series):
        merged.add(line.payload, line.max_ns)
    assert merged.count > 0
    return merged.percentile_ns(50.0)


def max_ns(run: Run, intervals: list[Interval], series: str) -> int:
    """The largest value of these intervals."""
    return max(line.max_ns for line in lines_of(run, intervals, series))


@pytest.mark.parametrize("rate", [None, "2k"], ids=["closed loop", "open loop"])
def test_a_run_survives_the_death_of_the_leader(rate: str | None, tmp_path: Path) -> None:
    """Zero confirmed messages lost, the loss of connections in the record, and a gap that can be seen."""
    with local_cluster.temporary(tmp_path / "nodes") as cluster:
        command = [sys.executable, "-m", "perftest.cli", "run", "-H", ",".join(cluster.uris), "-qq", "-u", QUEUE]
        command += ["-e", "amq.default", "-cri", "0.1-1", "-prsd", "0", "-s", "1000", "-cal", "round-robin"]
        # A client of each kind on every node, so that some are on the node that dies and some on another.
        command += ["-x", "3", "-y", "3", "-c", "100", "-q", "200", "-z", str(RUN_S), "-i", "0.1", "--drain", "30s"]
        command += ["--ui", "line", "--out", str(tmp_path / "runs"), *(["-r", rate] if rate else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            victim = kill_once_steady(child, cluster)
            stdout, stderr = child.communicate(timeout=120)
        assert child.returncode == 0, f"{stdout}\n{stderr}"
    (path,) = (tmp_path / "runs").iterdir()
    run = read_run(path)
    assert run.manifest["state"] == "finished"
    ledger = run.ledger
    assert ledger is not None
    assert {
        name: ledger[name] for name in ("lost", "duplicated", "reordered", "damaged", "unexpected")
    } == dict.fromkeys(("lost", "duplicated", "reordered", "damaged", "unexpected"), 0)
    assert ledger["verdict"] == "ok" and ledger["drained"] and ledger["unconfirmed"] == 0
    # A message may be delivered although its confirm died with the leader, but no confirmed one may be missing.
    assert ledger["unique"] >= ledger["confirmed"] > 1000

    lost = [event for event in run.events if event["kind"] == "connection_lost"]
    back = [event for event in run.events if event["kind"] == "reconnected"]
    assert lost and len(back) >= len(lost)
    assert all(str(victim.amqp_port) in event["text"] for event in lost[:1])

    steady = [record for record in run.intervals if record.phase is Phase.STEADY]
    died_ns = int(lost[0]["t_ns"])
    after = [record for record in steady if record.start_ns > died_ns + SECOND_NS]
    assert sum(record.confirmed for record in after) > 0, "the survivors must have gone on"
    # The nodes see a killed peer at once, so the election may be over within an interval: what cannot be missing is the
    # wait of the messages that were in flight, and the deliveries made again of what the dead node's consumers held.
    before = [record for record in steady if record.start_ns + record.length_ns < died_ns]
    around = [record for record in steady if abs(record.start_ns - died_ns) < 2 * SECOND_NS]
    series = "confirm_sched" if rate else "confirm"
    usual_ns, worst_ns = median_ns(run, before, series), max_ns(run, around, series)
    assert worst_ns > 5 * usual_ns, f"usual p50 {usual_ns} ns, worst at the death {worst_ns} ns"
    assert sum(record.redelivered for record in run.intervals) > 0
