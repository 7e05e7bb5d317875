"""The whole command against the nodes it starts: engine, broker, run directory."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import psutil
import pytest

from perftest.results.hlog import parse_line
from perftest.results.reader import read_run, summarise

pytestmark = pytest.mark.processes

PERFTEST = (sys.executable, "-m", "perftest.cli")


def perftest(*arguments: str) -> tuple[int, str, str]:
    """A command line in a process of its own."""
    done = subprocess.run([*PERFTEST, *arguments], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_first_run_needs_nothing(tmp_path: Path) -> None:
    """Start, measure, check the ledger, stop: every confirmed message was delivered, and no process stays."""
    script = (
        "import sys; from perftest.cli.main import call; code = call(sys.argv[1:]); "
        "print([name for name in sys.modules if name.startswith('reference_broker')], file=sys.stderr); sys.exit(code)"
    )
    arguments = ["run", "-z", "2", "--warmup", "500ms", "-c", "50", "--json", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in (0, 5), done.stderr  # 5: a busy machine may well limit the generator
    assert done.stderr.endswith("[]\n"), "the load generator must not import the broker it measures"
    result = json.loads(done.stdout)
    run = read_run(Path(result["path"]))
    assert run.ledger is not None and run.ledger["verdict"] == "ok" and run.ledger["lost"] == 0
    assert run.ledger["unique"] == run.ledger["confirmed"] > 0
    assert result["steps"] == json.loads(json.dumps(summarise(run)["steps"])) and run.damaged == []
    assert run.manifest["broker"]["product"] == "reference_broker" and len(run.manifest["broker"]["nodes"]) == 3
    assert {record["node"] for record in run.broker} == {"node1", "node2", "node3"}
    assert [path.name for path in tmp_path.iterdir()] == [run.path.name]
    assert not any(psutil.pid_exists(node["pid"]) for node in run.manifest["broker"]["nodes"])


def operate(directory: str) -> None:
    """What an operator asks of real nodes: kill and bring back, policies, metrics, a queue that is not there."""
    at = ("--dir", directory, "--json")
    assert json.loads(perftest("broker", "kill", "node2", *at)[1])["killed"] == "node2"
    assert perftest("broker", "status", *at)[0] == 1
    assert perftest("broker", "start", "--node", "node2", *at)[0] == 0
    assert perftest("broker", "set-policy", "p", "^o", '{"max-length": 5}', *at)[0] == 0
    (policy,) = json.loads(perftest("broker", "policies", *at)[1])
    assert (policy["name"], policy["pattern"], policy["definition"]) == ("p", "^o", {"max-length": 5})
    rows = json.loads(perftest("broker", "metrics", *at)[1])
    assert [row["node"] for row in rows] == ["node1", "node2", "node3"] and rows[0]["metrics"][0]["samples"]
    code, _, err = perftest("broker", "quorum-status", "nope", *at)
    assert code == 1 and "nope" in err and "\n  fix  " in err


def measure_with_workers(directory: str, out: Path) -> None:
    """Three worker processes on three nodes, one of which only consumes what the others published: every message is
    accounted for all the same."""
    load = "-x 2 -y 3 -c 20 -r 50 -z 1500ms --warmup 500ms --workers 3 --json"
    code, text, err = perftest("run", "--cluster", directory, *load.split(), "--out", str(out))
    assert code in (0, 5), err
    run = read_run(Path(json.loads(text)["path"]))
    workers = {record.worker for record in run.intervals}
    assert len(workers) == 3 and {r.worker for r in run.intervals if r.published} < workers
    assert run.ledger is not None and (run.ledger["verdict"], run.ledger["complete"]) == ("ok", True)
    assert run.ledger["unique"] == run.ledger["confirmed"] == sum(record.published for record in run.intervals) > 0
    assert run.ledger["delivered"] == sum(record.delivered for record in run.intervals)


@pytest.mark.slow
def test_a_kept_cluster_is_measured_and_stopped(tmp_path: Path, base_port: int) -> None:
    """broker start, status, run --cluster, stop."""
    directory = str(tmp_path / "broker")
    code, out, err = perftest("broker", "start", "--dir", directory, "--port", str(base_port), "--json")
    assert code == 0, err
    try:
        rows: list[dict[str, Any]] = json.loads(out)
        assert [row["uri"] for row in rows] == [f"amqp://guest:guest@127.0.0.1:{base_port + n}/%2f" for n in range(3)]
        code, out, err = perftest("run", "--cluster", directory, "-z", "1", "-c", "5", "--out", str(tmp_path / "runs"))
        assert code in (0, 5) and "delivered/s" in out, err
        measure_with_workers(directory, tmp_path / "runs")
        code, out, _ = perftest("broker", "status", "--dir", directory, "--json")
        assert code == 0 and [row["role"] for row in json.loads(out)].count("leader") >= 1
        operate(directory)
    finally:
        code, out, _ = perftest("broker", "stop", "--dir", directory, "--json")
    assert (code, json.loads(out)) == (0, {"stopped": ["node1", "node2", "node3"]})
    assert perftest("broker", "status", "--dir", directory)[0] == 1


@pytest.mark.slow
def test_a_cluster_that_is_started_again_is_where_its_clients_look_for_it(tmp_path: Path, base_port: int) -> None:
    """The same command without --port: the default ports would be those of nobody, or of somebody else."""
    directory = str(tmp_path / "broker")
    uris: list[list[str]] = []
    for options in (["--nodes", "1", "--port", str(base_port)], []):
        code, out, err = perftest("broker", "start", "--dir", directory, *options, "--json")
        try:
            assert code == 0, err
            uris.append([row["uri"] for row in json.loads(out)])
            with pika.BlockingConnection(pika.URLParameters(uris[0][0])) as connection:
                channel = connection.channel()
                channel.queue_declare("kept", durable=True, arguments={"x-queue-type": "quorum"}, passive=not options)
        finally:
            perftest("broker", "stop", "--dir", directory)
    assert uris[0] == uris[1] == [f"amqp://guest:guest@127.0.0.1:{base_port}/%2f"]


@pytest.mark.slow
def test_ctrl_c_in_the_terminal_ends_the_step_in_good_order(tmp_path: Path) -> None:
    """The signal goes to the whole process group; workers and nodes must outlive it until the ledger is closed."""
    command = [*PERFTEST, "run", "--ui", "line", "--out", str(tmp_path), "-c", "5", "--warmup", "0.2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if "phase=steady" in line:
                os.killpg(child.pid, signal.SIGINT)
                break
        out, err = child.communicate(timeout=60)
    assert child.returncode in (0, 5), err
    (run,) = (read_run(path) for path in tmp_path.iterdir())
    assert run.manifest["state"] == "finished" and run.manifest["ended"]["reason"] == "stopped by Ctrl-C"
    assert run.ledger is not None and run.ledger["verdict"] == "ok" and "delivered/s" in out


def running(out: Path) -> list[psutil.Process]:
    """Every process that has the directory of results on its command line: nodes, and the command itself."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(out) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def started(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command in a session of its own, once it measures."""
    child = subprocess.Popen(
        [*PERFTEST, *arguments, "--ui", "line", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "phase=" in line:
            return child
    pytest.fail(f"it never measured: {child.communicate()}")


SWEEP = ("sweep", "flow_control/in_flight", "--quick", "--no-report")


@pytest.mark.slow
@pytest.mark.parametrize("signals", [["SIGINT"], ["SIGINT", "SIGINT"], ["SIGTERM"], ["SIGHUP"]], ids="-".join)
def test_an_interrupted_sweep_leaves_data_and_nothing_else(signals: list[str], tmp_path: Path) -> None:
    """Once, twice, at a shutdown, or with the terminal closed: 130, a run that can be read, and a clean machine."""
    out = tmp_path / "results"
    with started(out, *SWEEP) as child:
        for name in signals:
            os.kill(child.pid, getattr(signal, name))
        stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130, stderr
    assert "Traceback" not in stderr and "interrupted" in stdout
    (run,) = (read_run(path) for path in out.iterdir())
    assert run.manifest["state"] == "interrupted" and run.manifest["ended"]["exit_code"] == 130
    assert run.ledger is not None and run.ledger["lost"] == 0 and run.result is not None and run.intervals
    assert running(out) == []


@pytest.mark.slow
def test_a_killed_command_takes_its_nodes_along_and_the_next_one_clears_up(tmp_path: Path) -> None:
    """kill -9 can be answered by nobody; the nodes see their pipe close, and the files are found by the next run."""
    out = tmp_path / "results"
    with started(out, *SWEEP) as child:
        nodes = [process for process in running(out) if process.pid != child.pid]
        workers = psutil.Process(child.pid).children()
        assert len(nodes) == 3
        child.kill()
        child.communicate(timeout=30)
    _gone, alive = psutil.wait_procs([*nodes, *workers], timeout=30)
    assert alive == []
    (killed,) = (path for path in out.iterdir() if not path.name.startswith("."))
    run = read_run(killed)
    assert run.killed and run.intervals
    code, _, err = perftest("run", "-z", "1", "-c", "5", "--ui", "none", "--out", str(out))
    assert code in (0, 5), err  # 5: it ran, on a machine too busy for its figures to be trusted
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_three_lines(tmp_path: Path) -> None:
    """Host and port, and what to do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"amqp://guest:s3cret@127.0.0.1:{probe.getsockname()[1]}"
        code, _, err = perftest("run", "-h", uri, "-z", "2", "--ui", "none", "--out", str(tmp_path))
    lines = err.splitlines()[-3:]
    assert code == 1 and [line[:7] for line in lines] == ["error: ", "  at   ", "  fix  "]
    assert "s3cret" not in err


LAZY = """\
schema: 1
name: lazy
title: One lazy queue
queues: [{name: lazy, type: classic, arguments: {x-queue-mode: lazy}}]
load: {in_flight: 20, size: 28 B}
step: {duration: 2s, warmup: 500ms}
"""
OF_A_MACHINE = {"rss_bytes", "metrics.rss_max_bytes"}
"""What a simulated node cannot tell: there is no memory at virtual time."""


@pytest.mark.slow
def test_a_simulated_run_has_the_files_and_columns_of_a_measured_run(tmp_path: Path) -> None:
    """A reader, a page and a comparison find the same names in both, or a figure is silently missing in one."""
    workload, found = tmp_path / "lazy.yaml", []
    workload.write_text(LAZY)
    for command in ("sweep", "simulate"):
        options = ("--no-report",) if command == "sweep" else ("--drive", "nvme", "--settle", "0")
        code, _, err = perftest(command, str(workload), *options, "--out", str(tmp_path / command))
        assert code in (0, 5), err
        (path,) = (tmp_path / command).iterdir()
        found.append({file.name: columns(file) for file in path.iterdir() if file.name not in NO_COLUMNS})
    real, simulated = found
    assert simulated.pop("host.jsonl") == set() and real.pop("host.jsonl"), "a simulated machine has no samples"
    real["broker.jsonl"] -= OF_A_MACHINE
    assert simulated == real


NO_COLUMNS = ("manifest.json", "result.json", "events.jsonl")
"""What stands in these depends on what happened."""


def columns(file: Path) -> set[str]:
    """The columns of a table, or the keys of a file of records and of the objects in these, or the series of
    histograms."""
    if file.suffix == ".csv":
        return set(file.read_text().splitlines()[0].split(","))
    if file.suffix == ".json":
        return set(json.loads(file.read_text()))
    if file.suffix == ".hlog":
        lines = [parse_line(text, 0) for text in file.read_text().splitlines()]
        return {line.series for line in lines if line is not None}
    if file.suffix != ".jsonl":
        return set()
    records = [json.loads(line) for line in file.read_text().splitlines()]
    inner = {f"{key}.{each}" for record in records for key, value in record.items() if isinstance(value, dict)
             for each in value}  # fmt: skip
    return {key for record in records for key in record} | inner
