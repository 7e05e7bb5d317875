"""The load generator against a real RabbitMQ: the other end is somebody else's.

Our own broker could share a misunderstanding with our own generator; RabbitMQ does not. It also proves that the
generator needs nothing of the broker it comes with: every Python process of a run tells what it has loaded.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra import rabbitmq_cluster
from infra.rabbitmq_cluster import RabbitMQ
from perftest.results.reader import Run, read_run

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]

ROOT = Path(__file__).resolve().parents[2]
TELL_MODULES = """
import atexit, os, sys

def tell():
    with open(os.path.join({directory!r}, f"{{os.getpid()}}.modules"), "w") as file:
        file.write("\\n".join([" ".join(sys.orig_argv), *sys.modules]))

atexit.register(tell)
"""
"""Python imports a module of this name at its start, in every process of a run."""


@pytest.fixture(scope="module")
def one_node(rabbitmq_node: RabbitMQ) -> RabbitMQ:
    """A single node serves all tests that need no majority of others."""
    return rabbitmq_node


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A cluster, for replicated quorum queues."""
    with rabbitmq_cluster.running(tmp_path_factory.mktemp("rabbitmq-three"), nodes=3) as broker:
        yield broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a command printed (``--json``), what it recorded, and what its processes had loaded, by command line."""

    printed: dict[str, Any]
    run: Run
    modules: dict[str, set[str]]


def measure(directory: Path, *arguments: str) -> Measured:
    """Run the command as users do; the exit code is checked by what may limit a run on a machine as busy as this."""
    spies = directory / "site"
    spies.mkdir()
    (spies / "sitecustomize.py").write_text(TELL_MODULES.format(directory=str(spies)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(spies), str(ROOT)])}
    command = [sys.executable, "-m", "perftest.cli", *arguments, "--json", "--out", str(directory / "runs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 5), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    printed = json.loads(done.stdout)
    modules = {}
    for file in spies.glob("*.modules"):
        line, *names = file.read_text().splitlines()
        modules[line] = set(names)
    measured = Measured(printed=printed, run=read_run(Path(printed["path"])), modules=modules)
    # A worker that was the limit on an overloaded machine is the only excuse for anything but 0.
    failed = {check["check"] for row in printed["steps"] for check in row["trust"] if check["status"] == "fail"}
    assert failed <= {"generator_cpu", "generator_wait", "steal"} and (done.returncode == 5) == bool(failed)
    return measured


def assert_sound(measured: Measured, steps: int = 1) -> None:
    """Nothing lost, RabbitMQ measured, nothing of our own broker in any process of the generator."""
    run = measured.run
    assert run.manifest["state"] == "finished" and run.damaged == []
    assert run.manifest["broker"]["product"] == "RabbitMQ" and run.manifest["broker"]["version"]
    assert run.ledger is not None
    violations = {name: run.ledger[name] for name in ("lost", "duplicated", "reordered", "unexpected", "damaged")}
    assert violations == dict.fromkeys(violations, 0)
    assert len(measured.printed["steps"]) == steps
    for row in measured.printed["steps"]:
        assert row["confirmed"] > 0 and row["delivered"] > 0 and row["latency"]["e2e"]["count"] > 0, row["label"]
    lines = " ".join(measured.modules)
    assert "perftest.cli" in lines and "perftest.engine.workers.worker" in lines, "every process must have told"
    for line, names in measured.modules.items():
        assert not [name for name in names if name.split(".")[0] == "reference_broker"], line


def assert_drained(measured: Measured) -> None:
    """Every message the broker took was delivered."""
    ledger = measured.run.ledger
    assert ledger is not None and ledger["verdict"] == "ok" and ledger["drained"]
    assert ledger["unique"] == ledger["confirmed"] == ledger["published"] > 0


LOADS = {
    "classic": "-x 1 -y 1 -c 50 -q 100 -A 10 -s 256 -u perftest-classic",
    "classic, transient, automatic acks": "-c 20 -q 0 -a -s 100 -u perftest-auto",
    "classic, persistent": "-x 2 -y 2 -c 100 -q 50 -A 1 -f persistent -s 1KiB -u perftest-persistent",
    "quorum": "-qq -x 1 -y 1 -c 200 -q 500 -A 25 -s 1000 -u perftest-quorum",
    "quorum, several": "-qq -x 3 -y 4 -c 10 -q 20 -A 20 -s 1000 -qp perftest-%d -qpf 1 -qpt 2 -f mandatory",
}


def test_several_names_of_u_get_a_copy_each(one_node: RabbitMQ, tmp_path: Path) -> None:
    """As with PerfTest: one key for all queues, and each consumer takes from all of them."""
    flags = "-x 2 -y 2 -c 10 -q 20 -r 200 -s 100 -u perftest-c,perftest-d"
    measured = measure(tmp_path, "run", "-h", one_node.uris[0], "-z", "2", "-i", "0.5", *flags.split())
    assert_sound(measured)
    ledger = measured.run.ledger
    assert ledger is not None and ledger["verdict"] == "ok" and ledger["drained"]
    assert ledger["unique"] == 2 * ledger["confirmed"] == 2 * ledger["published"] > 0


@pytest.mark.parametrize("name", LOADS)
def test_perftests_flags_measure_rabbitmq(name: str, one_node: RabbitMQ, tmp_path: Path) -> None:
    """The command line that people know, against the broker that people have."""
    measured = measure(tmp_path, "run", "-h", one_node.uris[0], "-z", "2", "-i", "0.5", *LOADS[name].split())
    assert_sound(measured)
    assert_drained(measured)
    (row,) = measured.printed["steps"]
    settings = measured.run.manifest["plan"]["steps"][0]["settings"]
    unconfirmed = max(record.unconfirmed for record in measured.run.intervals)
    assert unconfirmed <= settings["in_flight"] * settings["publishers"]
    assert any(record.phase == "steady" for record in measured.run.intervals)
    if settings["ack_interval"] == 0:
        assert row["acked"] == 0
    else:  # what is delivered and not acknowledged is within the prefetch, at the beginning of the step and at its end
        assert abs(row["acked"] - row["delivered"]) <= settings["prefetch"] * settings["consumers"]


@pytest.mark.parametrize("kind", [(), ("-qq",)], ids=["classic", "quorum"])
def test_a_rate_is_an_open_loop_and_has_a_schedule(kind: tuple[str, ...], one_node: RabbitMQ, tmp_path: Path) -> None:
    """Latency from the intended time, or a stall of RabbitMQ would look like a pause in the load."""
    flags = ["-h", one_node.uris[0], "-r", "400", "-z", "2", "-c", "1000", "-u", "perftest-rate", "-prsd", "0", *kind]
    measured = measure(tmp_path, "run", *flags)
    assert_sound(measured)
    assert_drained(measured)
    (row,) = measured.printed["steps"]
    assert measured.run.manifest["loop"] == "open"
    assert {"e2e", "e2e_sched", "confirm", "confirm_sched", "lag"} <= set(row["latency"])
    assert row["latency"]["e2e_sched"]["max_ns"] >= row["latency"]["e2e"]["p50_ns"]
    assert row["intended_per_s"] == pytest.approx(400, rel=0.02)
    assert row["published"] <= row["intended"] + 2


def test_a_live_sweep_changes_settings_while_messages_flow(one_node: RabbitMQ, tmp_path: Path) -> None:
    """No message may be lost, doubled or out of order because a consumer changed its acknowledgements."""
    short = ["--set", "quick.duration=2s", "--set", "quick.warmup=500ms", "--set", "sweep.values=[1,50,500]"]
    measured = measure(
        tmp_path, "sweep", "flow_control/ack_interval", "--quick", "-h", one_node.uris[0], *short, "--no-report"
    )
    assert_sound(measured, steps=3)
    assert_drained(measured)
    kinds = [event["kind"] for event in measured.run.events]
    assert kinds.count("connected") == 1 and kinds.count("setting_changed") == 2 and "connection_lost" not in kinds


def test_an_isolated_sweep_has_fresh_queues_for_each_step(one_node: RabbitMQ, tmp_path: Path) -> None:
    """The backlog that a prefetch of 1 leaves must not be delivered to the next step, nor be called lost."""
    short = ["--set", "quick.duration=2s", "--set", "quick.warmup=500ms", "--set", "sweep.values=[1,1000]"]
    measured = measure(
        tmp_path, "sweep", "flow_control/prefetch", "--quick", "-h", one_node.uris[0], *short, "--no-report"
    )
    assert_sound(measured, steps=2)
    ledger = measured.run.ledger
    assert ledger is not None and ledger["foreign"] == 0
    assert ledger["unique"] + ledger["abandoned"] + ledger["undelivered"] >= ledger["confirmed"]
    prefetch = [step["settings"]["prefetch"] for step in measured.run.manifest["plan"]["steps"]]
    assert prefetch == [1, 1000] and all(row["delivered"] > 0 for row in measured.printed["steps"])


def test_a_replicated_queue_of_a_cluster(three_nodes: RabbitMQ, tmp_path: Path) -> None:
    """Publishers and consumers on different nodes of a cluster of three."""
    flags = ["-qq", "-x", "3", "-y", "3", "-c", "100", "-q", "200", "-A", "10", "-z", "3", "-u", "perftest-three"]
    measured = measure(tmp_path, "run", "-H", ",".join(three_nodes.uris), *flags)
    assert_sound(measured)
    assert_drained(measured)
    assert len(measured.run.manifest["broker"]["uris"]) == 3
    assert "majority" in measured.run.manifest["broker"]["durability"]


def typed(directory: Path, uri: str, line: str) -> list[str]:
    """The lines that a command line of PerfTest's documentation prints, with nothing added but where and how long."""
    command = [sys.executable, "-m", "perftest.cli", "run", "-h", uri, *shlex.split(line), "--out", str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 5) and done.stderr == "", f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


DOCUMENTED = {
    "a queue of each consumer's own": (
        "-x 1 -y 2 -c 50 --id 'test 1' -z 2",
        ["id: test 1, sending rate avg: ", "id: test 1, receiving rate avg: ", "test stopped (Reached time limit)"],
    ),
    "many queues, slow publishers": (
        "--queue-pattern 'perf-test-%d' --queue-pattern-from 1 --queue-pattern-to 10 --producers 10 --consumers 10"
        " --publishing-interval 0.2 --producer-random-start-delay 0 --id iot -z 2",
        ["id: iot, time ", "id: iot, consumer latency min/median/75th/95th/99th/max "],
    ),
    "both limits": (
        "-r 50 -x 1 -C 50 -y 1 -D 50 --id 'both'",
        ["test stopped (Consumer reached message limit, Producer reached message limit)"],
    ),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_lines_run_unchanged(name: str, one_node: RabbitMQ, tmp_path: Path) -> None:
    """What people copy from PerfTest's pages."""
    line, expected = DOCUMENTED[name]
    printed = typed(tmp_path, one_node.uris[0], line)
    assert all(any(each.startswith(start) for each in printed) for start in expected), "\n".join(printed)


def test_a_queue_is_filled_by_one_line_and_emptied_by_the_next(one_node: RabbitMQ, tmp_path: Path) -> None:
    """-p declares what is not there, and nothing is purged or deleted in between."""
    filling = "-y0 -p -u throughput-test-14 -s 1000 -C 20000 --id fill -f persistent"
    assert "test stopped (Producer reached message limit)" in typed(tmp_path, one_node.uris[0], filling)
    emptying = "-x0 -y2 -p -u throughput-test-14 -q 100 --id empty -ew idle"
    printed = typed(tmp_path, one_node.uris[0], emptying)
    assert "test stopped (Consumer is idle for more than 1 second [2])" in printed
    assert any(line.startswith("id: empty, time ") and ", received: 0 msg/s" not in line for line in printed)
