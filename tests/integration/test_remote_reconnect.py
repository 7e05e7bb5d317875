"""A connection to a load host that is lost is had again: nothing that was measured meanwhile is missing."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.infra.remote.conftest import SSHD
from tests.integration.test_remote_run import Lab, _works, begin, lab, manifest

__all__ = ["lab"]
pytestmark = [pytest.mark.remote, pytest.mark.processes, pytest.mark.skipif(not SSHD, reason="there is no sshd here")]


def worker_of(lab: Lab, host: str, run: subprocess.Popen[str]) -> psutil.Process:
    found = [each for each in lab.processes() if f"{lab.top}/host-{host}" in str(each.environ()) and _works(each)]
    assert len(found) == 1, run.communicate(timeout=200)[0]
    return found[0]


def session_of(process: psutil.Process) -> psutil.Process:
    """The process of sshd that serves the connection."""
    return next(parent for parent in process.parents() if parent.name().startswith("sshd"))


def intervals(run: Path, host: str) -> list[dict[str, str]]:
    lines = (run / "intervals.csv").read_text().splitlines()
    rows = (dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:])
    return [row for row in rows if row["host"] == host]


def test_a_lost_connection_is_had_again_and_nothing_is_missing(lab: Lab) -> None:
    process = begin(lab, lab.hosts)
    worker = worker_of(lab, "left", process)
    session = session_of(worker)
    session.kill()
    psutil.wait_procs([session], timeout=30)
    said, _ = process.communicate(timeout=200)
    assert process.returncode in (0, 5), said
    run = lab.runs()[-1]
    told = manifest(run)
    assert told["state"] == "finished" and not [host for host in told["hosts"] if host.get("lost")], said
    ledger = json.loads((run / "ledger.json").read_text())
    assert ledger["verdict"] == "ok" and ledger["published"] == ledger["delivered"] > 0
    assert sum(int(row["published"]) for row in intervals(run, "left")) == ledger["published"]
    lab.wait_for_no_process()
    assert not list((lab.top / "host-left" / "doors").iterdir())
    assert (lab.top / "host-left" / "doors").stat().st_mode & 0o777 == 0o700


def test_a_worker_that_ends_while_the_connection_is_lost_is_told(lab: Lab) -> None:
    hosts = lab.top / "three.yaml"
    hosts.write_text(lab.hosts.read_text() + "  third: {publishes: false}\n")
    process = begin(lab, hosts)
    worker = worker_of(lab, "third", process)
    session = session_of(worker)
    worker.send_signal(signal.SIGSTOP)
    session.kill()
    worker.kill()
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 5 and "load host lost" in said, said
    events = [json.loads(line) for line in (lab.runs()[-1] / "events.jsonl").read_text().splitlines()]
    (event,) = [event for event in events if event["kind"] == "host_lost"]
    assert "ended while the connection to its host was lost" in event["text"]
    lab.wait_for_no_process()
