"""Runs from several hosts over SSH, as their user sees them: a real sshd, real workers, a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra import local_cluster
from infra.ports import free_ports
from perftest.cli.main import call
from tests.infra.remote.conftest import SSHD, Sshd
from tests.infra.remote.test_supply_commands import Recorder, is_shown

pytestmark = [pytest.mark.remote, pytest.mark.processes, pytest.mark.skipif(not SSHD, reason="there is no sshd here")]

CALM = ("--vary", "in_flight=50", "--set", "load.rate=20")
"""A load that leaves the processors to other tests."""

HOSTS = """
defaults:
  address: 127.0.0.1
  port: {port}
  key: keys/user
  known_hosts: known_hosts
  python: {python}
  directory: "{top}/host-{{name}}"
  workers: 1
hosts:
  left: {{consumes: false}}
  right: {{publishes: false}}
"""


@dataclass
class Lab:
    """Two hosts behind one sshd, and the broker that they reach."""

    top: Path
    hosts: Path
    uris: str

    def start(self, *words: str, together: bool = False) -> subprocess.Popen[str]:
        environment = os.environ | {"XDG_CACHE_HOME": str(self.top / "cache")}
        command = [sys.executable, "-m", "perftest", "remote", *words]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if together else subprocess.PIPE, text=True,
            env=environment, cwd=self.top,
        )  # fmt: skip

    def call(self, *words: str) -> tuple[int, str, str]:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def run(self, *words: str) -> tuple[int, str, str]:
        return self.call(
            "run", str(self.hosts), "-H", self.uris, "--out", "runs", "--no-report", "--ui", "none", *words
        )

    def processes(self) -> list[psutil.Process]:
        """Every process of ours on the hosts."""
        found = []
        for process in psutil.process_iter(["environ"]):
            path = (process.info["environ"] or {}).get("PYTHONPATH", "")
            if path.startswith(f"{self.top}/host-"):
                found.append(process)
        return found

    def wait_for_no_process(self) -> None:
        _gone, alive = psutil.wait_procs(self.processes(), timeout=60)
        assert not alive, alive

    def runs(self) -> list[Path]:
        return sorted((self.top / "runs").iterdir())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    top = tmp_path_factory.mktemp("remote")
    server = Sshd(top, free_ports(1)[0])
    hosts = top / "hosts.yaml"
    hosts.write_text(HOSTS.format(port=server.port, python=sys.executable, top=top))
    server.start()
    try:
        with local_cluster.temporary(top, nodes=3) as cluster:
            yield Lab(top, hosts, ",".join(cluster.uris))
    finally:
        server.stop()


def _works(process: psutil.Process) -> bool:
    return "perftest.engine.workers.worker" in process.cmdline()


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


def test_one_run_from_two_hosts(lab: Lab) -> None:
    code, _out, err = lab.run("--vary", "in_flight=50,200", "--set", "step.duration=2s", "--set", "step.warmup=500ms")
    assert code in (0, 5), err  # a busy machine may make the figures untrustworthy
    assert "2 hosts ready" in err
    run = lab.runs()[-1]
    told = manifest(run)
    assert [host["name"] for host in told["hosts"]] == ["left", "right"]
    for host in told["hosts"]:
        assert host["roles"] == ["load"] and host["cores"] >= 1 and host["tool"]["version"]
        assert host["clock_bound_ns"] > 0, "the clocks were compared"
        assert host["start_skew_ns"] >= 0 and host["stop_skew_ns"] >= 0
        places = [uri.rpartition("@")[2].partition("/")[0] for uri in lab.uris.split(",")]
        assert [row["node"] for row in host["round_trips"]] == [row["address"] for row in host["round_trips"]] == places
        assert all(row["round_trip_ns"] > 0 for row in host["round_trips"])
    assert told["coordinator"]["name"] == "local"
    ledger = json.loads((run / "ledger.json").read_text())
    assert ledger["verdict"] == "ok" and ledger["published"] == ledger["delivered"] > 0
    lines = (run / "intervals.csv").read_text().splitlines()
    columns = lines[0].split(",")
    by_host: dict[str, int] = {}
    for line in lines[1:]:
        row = dict(zip(columns, line.split(","), strict=True))
        by_host[row["host"]] = by_host.get(row["host"], 0) + int(row["published"])
    assert by_host["left"] == ledger["published"] and by_host["right"] == 0
    assert {json.loads(line)["host"] for line in (run / "host.jsonl").read_text().splitlines()} == {"left", "right"}
    lab.wait_for_no_process()


CLUSTER = """
  node{n}:
    roles: [broker]
    ports: {{amqp: {amqp}, peer: {peer}, control: {control}}}
    storage: {{wal: "{top}/wal"}}
"""


def test_a_cluster_over_hosts_is_started_for_the_run_and_leaves_nothing(lab: Lab) -> None:
    ports = iter(free_ports(9))
    hosts = lab.top / "cluster.yaml"
    nodes = (
        CLUSTER.format(n=n, amqp=next(ports), peer=next(ports), control=next(ports), top=lab.top) for n in (1, 2, 3)
    )
    hosts.write_text(lab.hosts.read_text() + "".join(nodes))
    short = ("--set", "step.duration=2s", "--set", "step.warmup=0s")
    command = ("run", str(hosts), "--vary", "in_flight=50", *short, "--out", "runs", "--no-report", "--ui", "none")
    code, _out, err = lab.call(*command)
    assert code in (0, 5), err
    assert "3 broker nodes ready" in err and "5 hosts ready" in err
    run = lab.runs()[-1]
    told = manifest(run)
    assert {host["name"]: host["roles"] for host in told["hosts"]} == {
        "left": ["load"], "right": ["load"], "node1": ["broker"], "node2": ["broker"], "node3": ["broker"],
    }  # fmt: skip
    assert [node["name"] for node in told["broker"]["nodes"]] == ["node1", "node2", "node3"]
    assert all(node["host"] == node["name"] for node in told["broker"]["nodes"])
    measured = {host["name"]: [row["node"] for row in host.get("round_trips", ())] for host in told["hosts"]}
    assert measured == {"left": (three := ["node1", "node2", "node3"]), "right": three} | {name: [] for name in three}
    assert json.loads((run / "ledger.json").read_text())["verdict"] == "ok"
    sampled = {json.loads(line)["node"] for line in (run / "broker.jsonl").read_text().splitlines()}
    assert sampled == {"node1", "node2", "node3"}
    lab.wait_for_no_process()
    assert not list((lab.top / "wal").glob("*")), "what the nodes wrote is gone"
    assert not list(lab.top.glob("host-node*/perftest-*"))
    assert {each.name for each in (lab.top / "runs").glob(".*")} <= {".store"}, "only what reports keep"


def test_a_dry_run_shows_every_command_that_a_run_would_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = iter(free_ports(3))
    hosts = lab.top / "one_node.yaml"
    node = CLUSTER.format(n=1, amqp=next(ports), peer=next(ports), control=next(ports), top=lab.top)
    hosts.write_text(lab.hosts.read_text() + node)
    monkeypatch.setenv("XDG_CACHE_HOME", str(lab.top / "cache"))
    recorder = Recorder(monkeypatch)
    words = ["remote", "run", str(hosts), *CALM, "--set", "step.duration=2s",
             "--set", "step.warmup=0s", "--at", "1s pause-host left", "--at", "1.3s resume-host left",
             "--out", str(lab.top / "runs"), "--no-report", "--ui", "none"]  # fmt: skip
    assert call([*words, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert not recorder.commands and "left  publishes, at 127.0.0.1" in shown
    assert call(words) in (0, 5), capsys.readouterr().err
    assert len(recorder.commands) > 3 * 4
    named = [re.sub(r" signal (\S+) SIG\w+", r" signal \1 SIGNAL", line) for line in recorder.commands]
    assert [line for line in named if not is_shown(line, shown)] == []
    lab.wait_for_no_process()


def holders(process: subprocess.Popen[str], secret: str) -> set[str]:
    """The processes that show a secret in their arguments or environment while a command runs: looked at whenever it
    says something. What the user typed is the command's own, and that of a child until the child begins its program."""
    found = set()
    assert process.stdout is not None and isinstance(process.args, list)
    for _line in process.stdout:
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                arguments = each.cmdline()
                shown = "\n".join([*arguments, *each.environ().values()])
                if secret in shown and arguments != process.args and each.pid != os.getpid():
                    found.add(each.name())
    return found


def files_with(top: Path, secret: str) -> list[Path]:
    files = [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_no_password_of_a_broker_is_shown_or_left_anywhere(lab: Lab, tmp_path: Path) -> None:
    password = "Pw-0d15ea5e-not-to-be-found"
    with local_cluster.temporary(tmp_path, nodes=1) as cluster:
        (config,) = Path(cluster.directory).rglob("node.json")
        plain = json.loads(config.read_text())
        config.write_text(json.dumps(plain | {"users": {"guest": "guest", "bench": password}}))
        local_cluster.kill(cluster, "node1")
        cluster = local_cluster.start_node(cluster, "node1", until_ready=True)
        uri = cluster.uris[0].replace("guest:guest", f"bench:{password}")
        words = (*CALM, "--set", "step.duration=3s", "--set", "step.warmup=0s", "--ui", "line")
        process = lab.start("run", str(lab.hosts), "-h", uri, "--out", "runs", *words, together=True)
        with process:
            shown = holders(process, password)
        assert process.returncode in (0, 5)
    assert shown == set()
    assert len(list(lab.runs()[-1].glob("report.html"))) == 1
    assert files_with(lab.top, password) == []


def test_no_secret_of_a_cluster_is_shown_or_left_anywhere(lab: Lab) -> None:
    ports = iter(free_ports(9))
    hosts = lab.top / "secret.yaml"
    nodes = (
        CLUSTER.format(n=n, amqp=next(ports), peer=next(ports), control=next(ports), top=lab.top) for n in (1, 2, 3)
    )
    hosts.write_text(lab.hosts.read_text() + "".join(nodes))
    words = (*CALM, "--set", "step.duration=3s", "--set", "step.warmup=0s", "--ui", "line")
    process = lab.start("run", str(hosts), "--out", "runs", "--no-report", *words, together=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "phase=" in line:
            break
    kept = [*lab.top.glob("host-node*/perftest-*/secret"), *(lab.top / "runs").glob(".hosts-*/secret")]
    assert len(kept) == 4 and all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    (secret,) = {path.read_text().strip() for path in kept}
    with process:
        shown = holders(process, secret)
    assert process.returncode in (0, 5)
    assert shown == set()
    assert files_with(lab.top, secret) == []


def test_a_second_start_sends_nothing(lab: Lab) -> None:
    for _ in range(2):
        _code, _out, err = lab.run(*CALM, "--set", "step.duration=1s", "--set", "step.warmup=0s")
    assert "nothing to send" in err


def test_a_coordinator_that_is_killed_leaves_no_process_on_any_host(lab: Lab) -> None:
    words = (*CALM, "--set", "step.duration=100s", "--ui", "line")
    process = lab.start("run", str(lab.hosts), "-H", lab.uris, "--out", "runs", "--no-report", *words, together=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "phase=" in line:
            break
    assert len(lab.processes()) == 6, "a worker, an observer and a timekeeper on each host"
    process.kill()
    process.communicate(timeout=60)
    lab.wait_for_no_process()
    assert manifest(lab.runs()[-1])["state"] == "running", "as of any run that was killed"


def test_ctrl_c_ends_the_run_in_order_and_keeps_what_was_measured(lab: Lab) -> None:
    words = (*CALM, "--set", "step.duration=100s", "--set", "step.warmup=0s", "--ui", "line")
    process = lab.start("run", str(lab.hosts), "-H", lab.uris, "--out", "runs", "--no-report", *words, together=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "phase=steady" in line:
            break
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    ledger = json.loads((lab.runs()[-1] / "ledger.json").read_text())
    assert ledger["verdict"] == "ok" and ledger["published"] > 0
    lab.wait_for_no_process()


def begin(lab: Lab, hosts: Path) -> subprocess.Popen[str]:
    """A run that is in its steady state."""
    words = (*CALM, "--set", "step.duration=6s", "--set", "step.warmup=0s", "--ui", "line")
    more = ("--set", "load.consumers=2")
    command = ("run", str(hosts), "-H", lab.uris, "--out", "runs", "--no-report", *words, *more)
    process = lab.start(*command, together=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "phase=steady" in line:
            break
    return process


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_killed_or_stopped_costs_its_share_and_not_the_run(lab: Lab, blow: signal.Signals) -> None:
    """A stopped worker is found by its silence, and ended by its process id."""
    hosts = lab.top / "three.yaml"
    hosts.write_text(lab.hosts.read_text() + "  third: {publishes: false}\n")
    process = begin(lab, hosts)
    (victim,) = [each for each in lab.processes() if f"{lab.top}/host-third" in str(each.environ()) and _works(each)]
    victim.send_signal(blow)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 5, said
    run = lab.runs()[-1]
    told = manifest(run)
    assert told["state"] == "finished"
    assert [host["name"] for host in told["hosts"] if host.get("lost")] == ["third"]
    ledger = json.loads((run / "ledger.json").read_text())
    assert ledger["missing"] == [{"host": "third", "worker": "0"}] and ledger["lost"] == 0
    assert "load host lost" in said
    lab.wait_for_no_process()


def test_all_hosts_that_cannot_be_reached_are_told_together(lab: Lab) -> None:
    broken = lab.top / "broken.yaml"
    broken.write_text(lab.hosts.read_text().replace("keys/user", "keys/other"))
    code, _out, err = lab.call("run", str(broken), "-h", lab.uris.split(",")[0], "--vary", "in_flight=50")
    assert code == 1
    assert err.count("the host refuses the login") == 2 and "host left" in err and "host right" in err
    assert "Traceback" not in err


def test_a_command_runs_on_every_host(lab: Lab) -> None:
    code, out, err = lab.call("exec", str(lab.hosts), "--", "echo", "a b", "$HOME")
    assert (code, sorted(out.splitlines()), err) == (0, ["left  a b $HOME", "right  a b $HOME"], "")
    code, out, _err = lab.call("exec", str(lab.hosts), "--host", "right", "--json", "--", "sh", "-c", "exit 3")
    assert code == 1 and json.loads(out) == [{"host": "right", "status": 3, "output": []}]
    hostile = "import sys; print('a\\x1b[31mb'); print('c', file=sys.stderr); sys.exit(2)"
    code, out, _err = lab.call("exec", str(lab.hosts), "--host", "left", "--", sys.executable, "-c", hostile)
    assert code == 1 and "left  a\ufffd[31mb\n" in out and "left  c\n" in out
    assert out.endswith("left  ended with status 2\n")
    gone = lab.top / "gone.yaml"
    gone.write_text(lab.hosts.read_text() + "  gone: {port: 1}\n")
    code, out, err = lab.call("exec", str(gone), "--", "echo", "here")
    assert code == 1 and sorted(out.splitlines()) == ["left  here", "right  here"] and "host gone" in err
    code, _out, err = lab.call("exec", str(lab.hosts), "--host", "left", "--timeout", "200ms", "--", "sleep", "60")
    assert code == 1 and "`sleep` did not end within 0.2 s" in err
    code, out, _err = lab.call("exec", str(lab.hosts), "--dry-run", "--", "rm", "-rf", "/")
    assert (code, out) == (0, "left  rm -rf /\nright  rm -rf /\n")
    code, _out, err = lab.call("exec", str(lab.hosts), "--host", "middle", "--", "true")
    assert code == 2 and "there is no host 'middle'" in err


def test_what_does_not_fit_is_told_before_any_host_is_asked(lab: Lab) -> None:
    code, _out, err = lab.call("run", str(lab.hosts), "--vary", "in_flight=50")
    assert code == 2 and "no broker is named" in err
    fuse = lab.top / "fuse.yaml"
    fuse.write_text(
        "title: f\ndrives: {d: {fuse: {profile: hdd7200, size: 1GiB}}}\nroles: {data: d, logs: d, segment: d, wal: d}\n"
    )
    nodes = lab.top / "nodes.yaml"
    nodes.write_text(lab.hosts.read_text() + "  node1: {roles: [broker]}\n")
    code, _out, err = lab.call("run", str(nodes), "--vary", "in_flight=50", "--layout", str(fuse))
    assert code == 2 and "drive d is a FUSE drive" in err
    for changed, said in (
        ("cluster.broker=rabbitmq", "nodes of the reference broker only"),
        ("cluster.nodes=5", "asks for 5 nodes, and 1 hosts have the role"),
        ("cluster.settings={wal_fil: 1}", "wal_fil"),
    ):
        code, _out, err = lab.call("run", str(nodes), "--vary", "in_flight=50", "--set", changed, "--dry-run")
        assert code == 2 and said in err, err
    code, _out, err = lab.call("run", str(nodes), "-h", "amqp://x", "--vary", "in_flight=50", "--layout", str(fuse))
    assert code == 2 and "a layout is for a cluster that this command starts" in err
    other = lab.top / "other.yaml"
    other.write_text(lab.hosts.read_text().replace("publishes: false", "publishes: [lazy]"))
    code, _out, err = lab.call("run", str(other), "-h", "amqp://x", "--vary", "in_flight=50")
    assert code == 2 and "right publishes for 'lazy'" in err
    code, out, _err = lab.call("run", str(lab.hosts), "-h", "amqp://x", "--vary", "in_flight=50", "--dry-run")
    assert code == 0 and out.startswith("left  publishes, at 127.0.0.1") and "right  consumes" in out


def test_what_is_missing_on_each_host_is_told_side_by_side(lab: Lab) -> None:
    code, out, err = lab.call("check", str(lab.hosts), "-H", lab.uris)
    assert code == 0, out + err
    assert "left" in out and "right" in out and "2 of 2 hosts can take part" in out
    assert not list(lab.top.glob("host-checked*"))
    (unused,) = free_ports(1)
    uri = lab.uris.split(",")[0]
    port = int(uri.rpartition(":")[2].partition("/")[0])
    inventory = lab.hosts.read_text() + (
        f"  taken: {{roles: [broker], ports: {{amqp: {port}}}}}\n"
        f"  away: {{port: {unused}}}\n"
        "  snake: {python: echo}\n"
        "  stone: {directory: /proc/nothing}\n"
    )
    mixed = lab.top / "mixed.yaml"
    mixed.write_text(inventory)
    code, out, err = lab.call("check", str(mixed), "-h", f"amqp://127.0.0.1:{unused}", "--json")
    assert code == 1 and "Traceback" not in err
    told = json.loads(out)
    assert sorted(told["hosts"]) == ["left", "right", "stone", "taken"]
    found = {(each["host"], each["check"]) for each in told["findings"] if each["severity"] == "error"}
    assert {("taken", "ports"), ("left", "broker"), ("right", "broker"), ("stone", "room")} <= found
    assert {error["where"] for error in told["errors"]} == {"host away", "host snake"}
