"""The timeline of a run on real nodes: the broker is hurt and healed while it is measured, and is whole afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra import control, local_cluster
from infra.cluster import Directories
from infra.local_cluster import Cluster
from infra.node_process import is_alive, is_paused
from perftest.results.reader import Run, read_run

pytestmark = [pytest.mark.slow, pytest.mark.processes]

QUEUE = "acted"


@contextmanager
def kept(directory: Path, base_port: int, *drives: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster that outlives the command, as an operator has it; its nodes may have modelled drives."""
    modelled = Directories(drives=[*drives])
    cluster = local_cluster.start(directory, base_port=base_port, directories=modelled if drives else None)
    try:
        yield cluster
    finally:
        local_cluster.stop(local_cluster.load(directory))


def command(cluster: Cluster, out: Path, *arguments: str) -> list[str]:
    load = ("-u", QUEUE, "-r", "100", "-c", "500", "-q", "500", "-s", "200", "--drain", "60s")
    target = ("--cluster", cluster.directory, "--out", str(out), "--ui", "line")
    return [sys.executable, "-m", "perftest.cli", "run", *target, *load, *arguments]


def measured(out: Path) -> Run:
    (path,) = out.iterdir()
    return read_run(path)


def told(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for event in run.events if event["kind"] == kind]


def assert_whole(cluster: Cluster) -> None:
    """Every node runs, and none is paused."""
    nodes = local_cluster.load(Path(cluster.directory)).nodes
    assert len(nodes) == 3 and all(is_alive(node) and not is_paused(node) for node in nodes)
    assert all("queues" in answer for answer in local_cluster.status(local_cluster.load(Path(cluster.directory))))


def test_a_cluster_is_hurt_and_healed_under_load(tmp_path: Path, base_port: int) -> None:
    """Each kind of action; nothing confirmed is lost, and the recovery from each action is in the record."""
    actions = [
        ("3s", "kill", "leader"),
        ("6s", "restart", "killed"),
        ("12s", "transfer-leader", "node2"),
        ("15s", "remove-member", "node3"),
        ("18s", "add-member", "node3"),
        ("21s", "pause", "leader"),
        ("25s", "resume", "paused"),
    ]
    typed = [word for action in actions for word in ("--at", " ".join(action))]
    with kept(tmp_path / "cluster", base_port) as cluster:
        done = subprocess.run(
            command(cluster, tmp_path / "runs", "-z", "30", *typed), capture_output=True, text=True, timeout=240
        )
        assert_whole(cluster)
    run = measured(tmp_path / "runs")
    assert run.manifest["state"] == "finished", done.stderr
    assert run.ledger is not None and run.ledger["verdict"] == "ok" and run.ledger["lost"] == 0, run.ledger
    failed = told(run, "action_failed")
    # A transfer to the node that leads already is refused, and the run goes on.
    assert {event["action"] for event in failed} <= {"transfer-leader"}, failed
    assert [event["action"] for event in told(run, "action")] == [do for _, do, _ in actions]
    recoveries = {event["action"]: event for event in told(run, "recovery")}
    assert set(recoveries) == {do for _, do, _ in actions} - {event["action"] for event in failed}
    killed = recoveries["kill"]
    assert killed["rate_before"] > 0 and killed["outage_s"] is not None and killed["observed_s"] > 0
    assert killed["node"] == recoveries["restart"]["node"]
    assert f"after kill {killed['node']}: " in done.stdout


def test_what_was_hurt_is_healed_after_ctrl_c(tmp_path: Path, base_port: int) -> None:
    """Of three nodes one is paused and one is killed when the user gives up: both run again, though the rest was no
    majority."""
    typed = ("--at", "1s pause node2", "--at", "2s kill node3")
    with kept(tmp_path / "cluster", base_port) as cluster:
        words = command(cluster, tmp_path / "runs", "-z", "300", *typed)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            assert child.stdout is not None
            said = []
            # The first Ctrl-C ends the step; without a majority the drain waits, so the user presses again.
            awaited = iter(("event kill node3", "phase=drain"))
            wanted = next(awaited)
            for line in child.stdout:
                said.append(line)
                if wanted and wanted in line:
                    child.send_signal(signal.SIGINT)
                    wanted = next(awaited, "")
            child.wait(timeout=240)
        assert child.returncode == 130, "".join(said)
        assert_whole(cluster)
    events = told(measured(tmp_path / "runs"), "action")
    done = [(event["action"], event["node"]) for event in events]
    assert done == [("pause", "node2"), ("kill", "node3"), ("resume", "node2"), ("restart", "node3")]


def test_drives_change_under_load_and_are_what_they_were_afterwards(tmp_path: Path, base_port: int) -> None:
    """A full drive stops the publishers for a while, a failed drive stops its node, and nothing confirmed is lost."""
    actions = [
        "2s slow leader d1 20",
        "4s slow leader d1 1",
        "5s profile node2 d1 hdd7200",
        "7s fill node2 d1",
        "9s free node2 d1",
        "11s fail node3 d1",
        "14s heal killed d1",
    ]
    typed = [word for action in actions for word in ("--at", action)]
    drive = {"name": "d1", "profile": "nvme-plp", "roles": ["wal", "segment", "data"]}
    with kept(tmp_path / "cluster", base_port, drive) as cluster:
        done = subprocess.run(
            command(cluster, tmp_path / "runs", "-z", "20", *typed), capture_output=True, text=True, timeout=240
        )
        assert_whole(cluster)
        drives = [each for node in control.summary(local_cluster.load(tmp_path / "cluster")) for each in node["drives"]]
    assert [(each["profile"], each["full"], each["failing"]) for each in drives] == [("nvme-plp", False, False)] * 3
    run = measured(tmp_path / "runs")
    assert run.ledger is not None and run.ledger["verdict"] == "ok" and run.ledger["lost"] == 0, done.stderr
    assert not told(run, "action_failed")
    texts = [event["text"].split(",")[0] for event in told(run, "action")]
    assert [text.split()[0] for text in texts] == [action.split()[1] for action in actions] + ["restore", "restore"]
    assert any("was blocked for" in event.get("text", "") for event in run.events), done.stdout
