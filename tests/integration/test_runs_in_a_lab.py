"""Runs over five hosts with networks, process trees and clocks of their own: three broker nodes, two hosts of load.

The clock of ``host5`` is 5 s ahead where the kernel can do that. Every test ends with nothing of the run on any host.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.lab.lab import clocks_impossible
from infra.node_process import MARK
from tests.infra.conftest import NO_LAB

pytestmark = [
    pytest.mark.lab,
    pytest.mark.processes,
    pytest.mark.skipif(bool(NO_LAB), reason=f"no lab of hosts here: {NO_LAB}"),
]

OFFSET_S = 0 if NO_LAB or clocks_impossible() else 5


@dataclass
class Runs:
    """Commands on the hosts of a lab."""

    top: Path
    said: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> Path:
        return self.top / "lab" / "hosts.yaml"

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = os.environ | {"XDG_CACHE_HOME": str(self.top / "cache")}
        return subprocess.Popen(
            [sys.executable, "-m", "perftest", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment, cwd=self.top,
        )  # fmt: skip

    def call(self, *words: str) -> tuple[int, str]:
        return self.end(self.start(*words))

    def begin(self, *words: str, seconds: int = 6) -> subprocess.Popen[str]:
        """Start a run with two consumers and one publisher on each load host, and wait for its first interval."""
        load = (
            "load.publishers=2",
            "load.consumers=2",
            "load.rate=200",
            "step.warmup=0s",
            "step.drain=3s",
            f"step.duration={seconds}s",
        )
        sets = (word for each in load for word in ("--set", each))
        process = self.start(
            "remote", "run", str(self.hosts), "flow_control/in_flight", "--vary", "in_flight=100", *sets,
            "--out", "runs", "--no-report", "--ui", "line", *words,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if "phase=steady" in line:
                break
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        with process:
            said, _ = process.communicate(timeout=300)
        self.said.append(f"{process.args}: {process.returncode}\n{said}")
        return process.returncode, said

    def processes(self) -> list[psutil.Process]:
        """Every process of ours on the hosts: what belongs to the home of one."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if "/home" in process.environ().get(MARK, "").removeprefix(str(self.top)):
                    found.append(process)
        return found

    def wait_for_no_process(self) -> None:
        _gone, alive = psutil.wait_procs(self.processes(), timeout=60)
        assert not alive, [each.cmdline() for each in alive]

    def assert_nothing_left(self) -> None:
        """No process on any host, and nothing of what nodes wrote but their logs."""
        self.wait_for_no_process()
        left = [path for each in self.top.glob("lab/lab-*/host*/home/perftest-*") for path in (each, *each.rglob("*"))]
        assert not left, "\n".join([*map(str, left), *self.said])

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / "events.jsonl").read_text().splitlines()]

    @property
    def run(self) -> Path:
        """The last run."""
        return max((self.top / "runs").iterdir())

    def told(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / f"{name}.json").read_text())
        return found

    def links(self) -> list[dict[str, Any]]:
        code, said = self.call("lab", "show", "--json")
        assert code == 0, said
        found: list[dict[str, Any]] = json.loads(said)
        return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    runs = Runs(tmp_path_factory.mktemp("lab"))
    clock = ("--clock", f"host5={OFFSET_S}") if OFFSET_S else ()
    code, said = runs.call("lab", "up", "--hosts", "5", "--brokers", "3", "--delay", "250us", *clock)
    try:
        assert code == 0, said
        yield runs
    finally:
        code, said = runs.call("lab", "down")
    assert code == 0, said
    assert list((runs.top / "lab").iterdir()) == [], "nothing is left of the lab"


def test_links_are_made_worse_and_mended_and_a_clock_that_is_off_is_no_matter(lab: Runs) -> None:
    before = {(each["source"], each["target"]): each["lost"] for each in lab.links()}
    timeline = ("1s partition leader", "2s reconnect", "3s latency host4 host1 5ms", "4s loss host5 1% one-way")
    code, said = lab.end(lab.begin(*(word for each in timeline for word in ("--at", each))))
    assert code in (0, 5), said  # a busy machine may make the figures untrustworthy
    assert lab.told("manifest")["state"] == "finished"
    assert lab.told("ledger")["lost"] == 0
    assert not [event for event in lab.events() if event["kind"] in ("host_lost", "worker_lost")]
    acted = [event["text"] for event in lab.events() if event["kind"] == "action"]
    (leader,) = {event["node"] for event in lab.events() if event.get("action") == "partition"}
    assert acted[0].startswith(f"partition {leader} all") and acted[1:] == [
        "reconnect", "latency host4 host1 5ms", "loss host5 all 1% one-way", "reconnect: all links are as they were"
    ]  # fmt: skip
    links = lab.links()
    assert {(each["delay_ms"], each["loss"], each["cut"]) for each in links} == {(0.25, 0.0, False)}
    cut = {pair for each in links if each["lost"] > before[pair := (each["source"], each["target"])]}
    assert cut >= {(leader, "host4"), ("host4", leader)} and not any("local" in pair for pair in cut)
    clocks = {host["name"]: host["clock_offset_ns"] for host in lab.told("manifest")["hosts"]}
    assert abs((clocks["host5"] - clocks["host4"]) / 1e9 - OFFSET_S) < 0.1
    trips = {host["name"]: host.get("round_trips", []) for host in lab.told("manifest")["hosts"]}
    assert [row["node"] for name in ("host4", "host5") for row in trips[name]] == ["host1", "host2", "host3"] * 2
    there_and_back_ns = 2 * 250_000
    assert all(row["round_trip_ns"] >= there_and_back_ns for rows in trips.values() for row in rows), trips
    lab.assert_nothing_left()


def test_a_layout_of_modelled_drives_and_directories_lies_on_every_host(lab: Runs) -> None:
    layout = lab.top / "layout.yaml"
    layout.write_text(
        "title: mixed\n"
        "drives:\n"
        "  slow: {profile: hdd7200}\n"
        f'  own: {{directory: "{lab.top}/drive-{{node}}"}}\n'
        "roles: {data: own, logs: own, segment: own, wal: slow}\n"
    )
    actions = ("--at", "2s slow leader slow 4", "--at", "4s slow leader slow 1")
    code, said = lab.end(lab.begin("--layout", str(layout), *actions))
    assert code in (0, 5), said
    assert [event["text"] for event in lab.events() if event["kind"] == "action_failed"] == []
    manifest = lab.told("manifest")
    assert "hdd7200" in manifest["broker"]["layout"] and lab.told("ledger")["lost"] == 0
    assert sorted(path.name for path in lab.top.glob("drive-*")) == ["drive-host1", "drive-host2", "drive-host3"]
    assert [path for each in lab.top.glob("drive-*") for path in each.iterdir()] == [], "what the nodes wrote is gone"
    sampled = [json.loads(line) for line in (lab.run / "broker.jsonl").read_text().splitlines()]
    assert any(each.get("drives") for each in sampled), "the modelled drives tell what they did"
    lab.assert_nothing_left()


def test_layouts_are_a_series_that_goes_on_after_ctrl_c_and_leaves_nothing(lab: Runs) -> None:
    for name, profile in (("slow", "hdd7200"), ("fast", "nvme")):
        drives = f"drives: {{own: {{profile: {profile}}}}}\n"
        roles = "roles: {data: own, logs: own, segment: own, wal: own}\n"
        (lab.top / f"{name}.yaml").write_text(f"title: {name}\n{drives}{roles}")
    vary = ("--vary", f"layout={lab.top}/slow.yaml,{lab.top}/fast.yaml")
    process = lab.begin(*vary, seconds=4)
    process.send_signal(signal.SIGINT)
    code, said = lab.end(process)
    series = lab.run
    assert code == 130 and f"perftest remote run {lab.hosts} --resume {series.relative_to(lab.top)}" in said, said
    lab.assert_nothing_left()
    code, said = lab.call("remote", "run", str(lab.hosts), "--resume", str(series), "--no-report", "--ui", "none")
    assert code in (0, 5) and f"perftest compare {series}/1-slow {series}/2-fast" in said, said
    told = [json.loads(path.read_text()) for path in sorted(series.glob("[12]-*/*/manifest.json"))]
    assert [each["state"] for each in told] == ["finished", "finished"]
    assert [each["broker"]["layout"].partition(":")[0] for each in told] == ["slow", "fast"]
    assert all([host["name"] for host in each["hosts"]] == [f"host{n}" for n in range(1, 6)] for each in told)
    lab.assert_nothing_left()


def node_pids(lab: Runs) -> set[int]:
    return {process.pid for process in lab.processes() if "reference_broker.node" in " ".join(process.cmdline())}


def one_is_left(pids: set[int]) -> bool:
    """Whether one of these processes stays, once those that started it have ended."""
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    for _ in range(30):
        if len(alive) <= 1:
            break
        _gone, alive = psutil.wait_procs(alive, timeout=1)
    return len(alive) == 1


def test_nodes_that_stay_are_measured_by_every_run_until_down(lab: Runs) -> None:
    try:
        code, said = lab.call("remote", "up", str(lab.hosts), "--brokers")
        assert code == 0 and "3 broker nodes ready" in said and "stay until" in said, said
        nodes = node_pids(lab)
        assert len(nodes) == 3
        for _ in range(2):
            code, said = lab.end(lab.begin(seconds=3))
            assert code in (0, 5) and "broker nodes ready" not in said, said
            assert lab.told("ledger")["verdict"] == "ok"
            told = {node["name"]: node["host"] for node in lab.told("manifest")["broker"]["nodes"]}
            assert told == {name: name for name in ("host1", "host2", "host3")}
        assert node_pids(lab) == nodes, "the same processes"
        code, said = lab.call("remote", "logs", str(lab.hosts))
        assert code == 0 and all(f"{host} perftest-" in said for host in ("host1", "host2", "host3")), said
        os.kill(min(nodes), signal.SIGKILL)
        code, said = lab.call("remote", "up", str(lab.hosts), "--brokers")
        assert code == 0 and "3 broker nodes ready" in said, said
        assert one_is_left(node_pids(lab) - nodes), "in place of the one that was killed"
    finally:
        code, said = lab.call("remote", "down", str(lab.hosts))
    assert code == 0, said
    assert not lab.hosts.with_suffix(".cluster").exists()
    lab.assert_nothing_left()
    logs = lab.top.glob("lab/lab-*/host*/home/logs/perftest-*/host*/node.log")
    assert {"host1", "host2", "host3"} <= {log.parent.name for log in logs if log.stat().st_size}, "but for their logs"
    lab.assert_nothing_left()


def test_a_node_that_a_host_does_not_reach_is_said_before_the_load(lab: Runs) -> None:
    assert lab.call("lab", "link", "host5", "host3", "--cut") == (0, "")
    process = lab.begin("--ui", "line", seconds=3)
    assert lab.call("lab", "heal") == (0, "")
    lab.end(process)
    trips = {host["name"]: host.get("round_trips", []) for host in lab.told("manifest")["hosts"]}
    assert [row["round_trip_ns"] is None for row in trips["host5"]] == [False, False, True]
    assert trips["host5"][2]["reason"] == "timed out"
    assert all(row["round_trip_ns"] for row in trips["host4"])
    lab.assert_nothing_left()


def test_nodes_on_hosts_are_killed_paused_and_started_again(lab: Runs) -> None:
    timeline = ("1s kill leader", "2s restart killed", "4s pause host2", "5s resume paused", "6s kill-host host3")
    code, said = lab.end(lab.begin(*(word for each in timeline for word in ("--at", each)), seconds=8))
    assert code in (0, 5), said
    events = lab.events()
    assert [event["text"] for event in events if event["kind"] == "action_failed"] == []
    acted = [event["action"] for event in events if event["kind"] == "action"]
    assert acted == ["kill", "restart", "pause", "resume", "kill-host", "restart"]
    assert lab.told("manifest")["state"] == "finished" and lab.told("ledger")["lost"] == 0
    lab.assert_nothing_left()


def test_check_tells_which_hosts_do_not_reach_each_other_and_what_runs_there(lab: Runs) -> None:
    process = lab.begin(seconds=30)
    code, said = lab.call("lab", "link", "host1", "host2", "--cut")
    assert code == 0, said
    try:
        code, said = lab.call("remote", "check", str(lab.hosts), "--json")
        told = json.loads(said)
    finally:
        lab.call("lab", "heal")
        process.send_signal(signal.SIGINT)
        lab.end(process)
    found = {(each["host"], each["check"]): each["what"] for each in told["findings"]}
    assert code == 1
    for host, other in (("host1", "host2"), ("host2", "host1")):
        assert f"it does not reach {told['hosts'][other]['address']}:5772" in found[host, "links"]
    assert ("host3", "links") not in found and ("host4", "links") not in found
    assert "of ours run there: infra.remote.observer" in found["host4", "running"]
    assert "port cannot be used: Address already in use" in found["host3", "ports"]
    assert not [check for _, check in found if check == "project"], "the run has sent this very version"
    lab.assert_nothing_left()


def test_a_host_that_is_killed_costs_its_share_and_not_the_run(lab: Runs) -> None:
    code, said = lab.end(lab.begin("--at", "2s kill-host host5"))
    assert code == 5, said
    manifest = lab.told("manifest")
    assert manifest["state"] == "finished"
    assert [host["name"] for host in manifest["hosts"] if host.get("lost")] == ["host5"]
    assert lab.told("ledger")["missing"] == [{"host": "host5", "worker": "0"}] and lab.told("ledger")["lost"] == 0
    assert "load host lost" in said
    lab.assert_nothing_left()


def test_a_host_that_nobody_reaches_any_more_ends_its_load_by_itself(lab: Runs) -> None:
    process = lab.begin(seconds=8)
    for other in ("local", "host1", "host2", "host3", "host4"):
        assert lab.call("lab", "link", "host5", other, "--cut") == (0, "")
    code, said = lab.end(process)
    assert code == 5, said
    assert [host["name"] for host in lab.told("manifest")["hosts"] if host.get("lost")] == ["host5"]
    assert lab.told("ledger")["missing"] == [{"host": "host5", "worker": "0"}]
    lab.assert_nothing_left()
    assert lab.call("lab", "heal") == (0, "")


def test_what_a_killed_coordinator_leaves_is_ended_by_down(lab: Runs) -> None:
    process = lab.begin("--at", "1s partition leader", seconds=100)
    assert process.stdout is not None
    for line in process.stdout:
        if "partition" in line:
            break
    process.kill()
    lab.end(process)
    assert lab.call("lab", "heal") == (0, "")
    code, said = lab.call("remote", "down", str(lab.hosts))
    assert code == 0, said
    lab.assert_nothing_left()
    assert lab.told("manifest")["state"] == "running", "as of any run that was killed"
