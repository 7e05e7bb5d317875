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
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase
from perftest.results.reader import Run, read_run

pytestmark = [pytest.mark.slow, pytest.mark.processes]

QUEUE = "survivor"
RUN_S = 10
RATE = 2000
PUBLISHERS = 3
SECOND_NS = 10**9
TURN_NS = 3 * PUBLISHERS * SECOND_NS // RATE
"""From a moment to the next message that is due at a publisher in the open loop, with room for its offset."""


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


def outage_ns(run: Run) -> int:
    """How long the first publisher that lost its connection was without one, as the events say."""
    lost = next(
        event for event in run.events if event["kind"] == "connection_lost" and event["text"].startswith("publisher")
    )
    who = lost["text"].split(" at ")[0]
    back = next(
        event
        for event in run.events
        if event["kind"] == "reconnected" and event["t_ns"] > lost["t_ns"] and event["text"].startswith(f"{who} at ")
    )
    return int(back["t_ns"] - lost["t_ns"])


def waits(run: Run, series: str) -> tuple[int, int]:
    """How many waits the histograms of the run hold, and the longest."""
    merged = Histogram()
    for line in run.histograms:
        if line.series == series:
            merged.add_payload(line.payload, line.max_ns)
    return merged.total, max(line.max_ns for line in run.histograms if line.series == series)


@pytest.mark.parametrize("rate", [None, RATE], ids=["closed loop", "open loop"])
def test_a_run_survives_the_death_of_the_leader(rate: int | None, tmp_path: Path) -> None:
    """Zero confirmed messages lost, the loss of connections in the record, and a gap that can be seen."""
    with local_cluster.temporary(tmp_path / "nodes") as cluster:
        command = [sys.executable, "-m", "perftest.cli", "run", "-H", ",".join(cluster.uris), "-qq", "-u", QUEUE]
        command += ["-e", "amq.default", "-cri", "0.1-1", "-prsd", "0", "-s", "1000", "-cal", "round-robin"]
        # A client of each kind on every node, so that some are on the node that dies and some on another.
        command += ["-x", str(PUBLISHERS), "-y", "3", "-c", "100", "-q", "200", "-z", str(RUN_S), "-i", "0.1"]
        command += ["--drain", "30s"]
        command += ["--ui", "line", "--out", str(tmp_path / "runs"), *(["-r", str(rate)] if rate else [])]
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
    # What the dead node's consumers held came again, and nothing else did but what a publisher sent twice.
    again = ledger["delivered"] - ledger["unique"]
    assert ledger["redelivered"] > 0 and again <= ledger["redelivered"] + ledger["republished"]
    # The election may be over within an interval, so no interval need be empty. What cannot be missing: the messages
    # that were in flight are sent again; and in the open loop those that were due while their publisher had no
    # connection have waited since then.
    count, longest_ns = waits(run, "confirm_sched" if rate else "confirm")
    assert count == ledger["confirmed"], "each confirmed message has its wait in the histograms, once"
    if rate:
        assert longest_ns >= outage_ns(run) - TURN_NS
    else:
        assert ledger["republished"] > 0
