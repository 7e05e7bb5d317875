"""A run from its flags to its exit code, with an engine that replays synthetic records."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from infra import local_cluster
from infra.drives import DriveError
from perftest.engine.api import BrokerProperties, RunError
from perftest.installation import command_for
from perftest.measuring.exit_code import exit_code
from perftest.results.errors import RunNotWritableError
from perftest.results.reader import read_run
from perftest.results.trust import Check, Status
from perftest.results.writer import RunWriter
from perftest.spec import QueueType

Call = Callable[..., tuple[int, str, str]]
URI = "amqp://guest:s3cret@rabbit1:5672/%2f"


@pytest.fixture
def run(call: Call, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """`perftest run` against a URI, into a temporary directory."""

    def command(*flags: str, target: tuple[str, ...] = ("-h", URI)) -> tuple[int, str, str]:
        return call("run", *target, "--out", str(tmp_path / "runs"), *flags)

    return command


def directory(tmp_path: Path) -> Path:
    """The only run directory."""
    (only,) = (tmp_path / "runs").iterdir()
    return only


Run = Callable[..., tuple[int, str, str]]


def test_perftests_flags_reach_the_plan(run: Run, engine: Any) -> None:
    """A command line written for PerfTest measures the same load."""
    flags = "-qq -x 2 -y 3 -c 20 -q 50 -A 5 -s 1KiB -r 1k -z 30 -i 2 -u a,b -f persistent -f mandatory"
    assert run(*flags.split(), "-H", "amqp://two")[0] == 0
    (plan,) = engine.plans
    settings = plan.steps[0].settings
    assert plan.uris == (URI, "amqp://two")
    assert [(queue.name, queue.type) for queue in plan.queues] == [("a", QueueType.QUORUM), ("b", QueueType.QUORUM)]
    assert (settings.publishers, settings.consumers, settings.in_flight, settings.prefetch) == (2, 3, 20, 50)
    assert (settings.ack_interval, settings.size_bytes, settings.rate) == (5, 1024, 1000.0)
    assert (settings.persistent, settings.mandatory) == (True, True)
    assert (plan.steps[0].duration_s, plan.steps[0].warmup_s, plan.interval_s) == (30, 3, 2)


def test_without_qq_the_queue_is_classic_and_transient_as_in_perftest(run: Run, engine: Any) -> None:
    """The default load on others' brokers is the one PerfTest makes."""
    run("-z", "5")
    (plan,) = engine.plans
    assert plan.queues[0].type is QueueType.CLASSIC and not plan.queues[0].durable
    assert not plan.steps[0].settings.persistent


@pytest.mark.parametrize(("flags", "interval"), [(["-a"], 0), (["-A", "0"], 1), ([], 1), (["--ack-interval", "7"], 7)])
def test_ack_flags(run: Run, engine: Any, flags: list[str], interval: int) -> None:
    """PerfTest's -A 0 acknowledges each message; only -a is automatic."""
    run("-z", "5", *flags)
    assert engine.plans[0].steps[0].settings.ack_interval == interval


def test_without_a_time_it_runs_until_ctrl_c_and_that_is_no_failure(run: Run, engine: Any, tmp_path: Path) -> None:
    """The ordinary way to end a run without -z."""
    engine.interrupts = 1
    code, out, _ = run()
    assert math.isinf(engine.plans[0].steps[0].duration_s)
    assert (code, engine.stops) == (0, [(True, False)])
    assert read_run(directory(tmp_path)).manifest["state"] == "finished" and "delivered/s" in out


def test_ctrl_c_finishes_the_step_and_twice_stops(run: Run, engine: Any, tmp_path: Path) -> None:
    """The first asks, the second insists; both keep the data."""
    engine.interrupts = 2
    code, out, _ = run("-z", "60")
    assert engine.stops == [(True, False), (True, True)]
    assert code == 130 and "delivered/s" in out
    kept = read_run(directory(tmp_path))
    assert kept.manifest["state"] == "interrupted" and kept.manifest["ended"]["exit_code"] == 130
    assert kept.result is not None and kept.result["steps"]


def test_a_run_that_is_stopped_within_its_warm_up_says_why_there_is_no_table(run: Run, engine: Any) -> None:
    """Whoever ends an endless run after three seconds looks for figures; a run that failed has its own words."""
    engine.silent, engine.interrupts = True, 1
    code, out, err = run()
    assert code == 5 and "delivered/s" not in out
    assert "nothing was measured: the run ended within its warm-up of 5 s" in err
    engine.interrupts, engine.state = 0, "failed"
    engine.error = RunError(what="refused", where="there", fix="ask")
    code, _, err = run("-z", "5")
    assert code == 1 and "nothing was measured" not in err and "error: refused" in err


def test_lost_messages_exit_3(run: Run, engine: Any) -> None:
    """No rate makes up for a lost message."""
    engine.verdict, engine.lost = "violated", 3
    code, out, _ = run("-z", "5")
    assert code == 3 and "fail  ledger: messages were not safe: 3 lost" in out


def test_a_client_limited_run_exits_5(run: Run, engine: Any, tmp_path: Path) -> None:
    """A gate must not pass on the generator's rate."""
    engine.worker_cpu_ns = 950_000_000
    code, out, _ = run("-z", "5")
    assert code == 5 and "INVALID" in out and "fail  generator CPU: the busiest load worker used 95% of a core" in out
    result = read_run(directory(tmp_path)).result
    assert result is not None and result["valid"] is False


def test_a_busy_generator_is_a_warning(run: Run, engine: Any, tmp_path: Path) -> None:
    """A demonstration on two cores is no failure."""
    engine.worker_cpu_ns = 940_000_000
    code, out, _ = run("-z", "5")
    assert code == 0 and "INVALID" not in out and "warn  generator CPU: the busiest load worker used 94%" in out
    result = read_run(directory(tmp_path)).result
    assert result is not None and result["valid"] is True


def test_a_failed_run_exits_1_and_keeps_its_data(run: Run, engine: Any, tmp_path: Path) -> None:
    """What happened, where, what to do; without the password."""
    engine.state = "failed"
    engine.error = RunError(what="login was refused", where=URI, fix="check user and password")
    engine.silent = True
    code, out, err = run("-z", "5", "--ui", "none")
    assert code == 1
    assert "INVALID" not in out and "next" not in out, "what was not measured is not judged, and not reported"
    assert err == "error: login was refused\n  at   amqp://guest:***@rabbit1:5672/%2f\n  fix  check user and password\n"
    assert read_run(directory(tmp_path)).manifest["ended"] == {"reason": "login was refused", "exit_code": 1}


def test_a_run_that_never_connected_leaves_no_directory(run: Run, engine: Any, tmp_path: Path) -> None:
    """A list of runs has the runs that measured a broker, and not every slip in an address."""
    engine.state, engine.silent, engine.broker = "failed", True, BrokerProperties()
    engine.error = RunError(what="cannot connect", where=URI, fix="start the broker")
    code, out, err = run("-z", "5", "--json", "--ui", "none")
    assert code == 1 and err.startswith("error: cannot connect\n")
    assert json.loads(out)["path"] is None and not [*tmp_path.glob("**/manifest.json")]


def test_a_defect_in_the_engine_still_closes_the_run(run: Run, engine: Any, tmp_path: Path) -> None:
    """The directory says that it failed, not that it is still running."""
    engine.raises = RuntimeError("boom")
    code, _, err = run("-z", "5")
    assert code == 1 and "RuntimeError: boom" in err
    assert read_run(directory(tmp_path)).manifest["state"] == "failed"


def test_a_full_drive_ends_the_run_with_its_cause(
    run: Run, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the engine's view of it."""
    written = RunWriter.interval
    calls = iter(range(100))

    def interval(self: RunWriter, record: Any) -> None:
        if next(calls) == 2:
            raise RunNotWritableError("the run cannot be recorded: No space left on device", "runs/x", "free space")
        written(self, record)

    monkeypatch.setattr(RunWriter, "interval", interval)
    code, _, err = run("-z", "5")
    assert code == 1 and "error: the run cannot be recorded: No space left on device" in err
    kept = read_run(directory(tmp_path))
    assert kept.manifest["state"] == "failed" and len(kept.intervals) == 2


def test_a_drive_that_is_full_for_samples_ends_a_run_that_would_go_on(
    run: Run, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to wait for the end of an hour to be told."""
    engine.silent = engine.endless = True

    def full(self: RunWriter, record: Any) -> None:
        raise RunNotWritableError("the run cannot be recorded: No space left on device", "runs/x", "free space")

    monkeypatch.setattr(RunWriter, "host", full)
    code, _, err = run("-z", "3600")
    assert code == 1 and "error: the run cannot be recorded: No space left on device" in err


def test_json_is_the_result_and_nothing_else(run: Run, engine: Any, tmp_path: Path) -> None:
    """stdout can be piped into a program."""
    code, out, _ = run("-z", "5", "--json")
    result = json.loads(out)
    assert (result["exit_code"], result["path"]) == (code, str(directory(tmp_path)))
    assert result["steps"] == read_run(directory(tmp_path)).result["steps"]  # type: ignore[index]


def test_json_lines_hold_every_interval_and_end_with_the_result(run: Run, engine: Any) -> None:
    """Another screen can be built on them."""
    _, out, err = run("-z", "5", "--ui", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["record"] for line in lines].count("interval") == 4
    assert lines[-1]["record"] == "result" and err == ""
    assert "payload" not in lines[1]["latencies"]["e2e"]


def test_lines_go_to_stderr_and_results_to_stdout(run: Run, engine: Any) -> None:
    """`perftest run > result.txt` leaves progress on the screen."""
    _, out, err = run("-z", "5", "--ui", "line")
    assert err.count("phase=steady") == 3 and "phase=" not in out
    assert "intended=500 published=500 confirmed=500 delivered=500 confirm_ms p50=" in err
    assert "next    perftest report" in out


def test_the_next_commands_can_be_typed_as_they_are(run: Run, engine: Any) -> None:
    """Compared with the last run of the same plan, if there is one; a run of another plan is none."""
    first = run("-z", "5")[1].splitlines()[-3:]
    path = first[0].split()[1]
    assert first[1:] == [f"next    perftest report {path}", f"        perftest compare BASE {path}"]
    run("-z", "6")
    run("-z", "5", "-c", "0")
    *_, data, _, compare = run("-z", "5")[1].splitlines()
    assert compare.split() == ["perftest", "compare", path, data.split()[1]]


def test_the_manifest_knows_the_broker_and_its_durability(run: Run, engine: Any, tmp_path: Path) -> None:
    """A result without these cannot be compared with anything."""
    run("-z", "5", "-qq", "-u", "q")
    broker = read_run(directory(tmp_path)).manifest["broker"]
    assert (broker["product"], broker["version"]) == ("RabbitMQ", "3.10.8")
    assert broker["uris"] == ["amqp://guest:***@rabbit1:5672/%2f"] and "majority" in broker["durability"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A local cluster that only notes when it is started and stopped."""
    log: list[str] = []
    nodes = tuple(
        local_cluster.Node(
            node=n, name=f"node{n}", amqp_port=1000 + n, peer_port=1, control_port=1, data_dir="d", log_file="l", pid=n
        )
        for n in (1, 2, 3)
    )
    made = local_cluster.Cluster(cluster="c", directory="d", nodes=nodes)

    @contextlib.contextmanager
    def temporary(parent: Path, *, nodes: int, layout: object, limits: object) -> Iterator[local_cluster.Cluster]:
        log.append("start")
        try:
            yield made
        finally:
            log.append("stop")

    answer = {"state": "running", "role": "leader", "data_dir": "d", "pid": 1}
    answer["durability"] = "fdatasync on a majority of 3 before each confirm"
    monkeypatch.setattr(local_cluster, "temporary", temporary)
    monkeypatch.setattr(local_cluster, "summary", lambda c: [{"name": n.name, "uri": n.uri, **answer} for n in c.nodes])
    monkeypatch.setattr(
        local_cluster,
        "sample",
        lambda c, t_ns: [{"t_ns": t_ns, "node": n.name, "pid": n.pid, "role": "leader", "cpu_ns": 1} for n in c.nodes],
    )
    yield log


def test_without_a_uri_a_cluster_is_started_said_and_stopped(
    run: Run, engine: Any, cluster: list[str], tmp_path: Path
) -> None:
    """The first thing anybody tries must work, and leave nothing behind."""
    code, _, err = run("-z", "5", target=())
    assert (code, cluster) == (0, ["start", "stop"])
    assert "starting 3 reference nodes on this machine" in err
    (plan,) = engine.plans
    assert len(plan.uris) == 3 and plan.queues[0].type is QueueType.QUORUM and plan.steps[0].settings.persistent
    manifest = read_run(directory(tmp_path)).manifest
    assert manifest["broker"]["durability"] == "fdatasync on a majority of 3 before each confirm"
    assert [node["name"] for node in manifest["broker"]["nodes"]] == ["node1", "node2", "node3"]
    assert "guest:guest" not in json.dumps(manifest)


def test_an_interruption_before_the_load_begins_leaves_no_directory(run: Run, engine: Any, tmp_path: Path) -> None:
    """What could be read there is nothing, and every report of all runs would have to say so."""
    engine.silent, engine.interrupts = True, 1
    code, out, err = run("-z", "5")
    assert code == 130 and "data " not in out
    assert "nothing was measured: the run was interrupted before its load began" in err
    assert list((tmp_path / "runs").iterdir()) == []
    assert json.loads(run("-z", "5", "--json")[1])["path"] is None


@pytest.mark.parametrize(
    "left", [DriveError("the loop device is in use", "/d/device", "end the processes"), OSError(16, "busy", "/d/files")]
)
def test_a_broker_that_cannot_be_taken_apart_costs_no_result(
    run: Run, engine: Any, cluster: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Exception
) -> None:
    """An hour was measured, and something holds a mount: the result is there before, and the command goes on."""
    whole = local_cluster.temporary

    @contextlib.contextmanager
    def temporary(parent: Path, **asked: Any) -> Iterator[local_cluster.Cluster]:
        with whole(parent, **asked) as made:
            yield made
        assert (directory(tmp_path) / "result.json").exists()
        raise left

    monkeypatch.setattr(local_cluster, "temporary", temporary)
    code, out, err = run("-z", "5", target=())
    assert (code, cluster) == (0, ["start", "stop"])
    assert "not everything that was started for the run could be taken apart: " in err
    assert f"perftest broker clean {tmp_path / 'runs'}" in err and "/d/" in err
    assert read_run(directory(tmp_path)).manifest["state"] == "finished"
    assert f"data    {directory(tmp_path)}" in out


@pytest.mark.parametrize("how", ["raises", "interrupts", "failed"])
def test_the_cluster_is_stopped_however_the_run_ends(run: Run, engine: Any, cluster: list[str], how: str) -> None:
    """Three forgotten processes spoil the next measurement."""
    if how == "raises":
        engine.raises = RuntimeError("boom")
    elif how == "interrupts":
        engine.interrupts = 2
    else:
        engine.state, engine.error = "failed", RunError(what="w", where="x", fix="f")
    assert run("-z", "5", target=())[0] != 0
    assert cluster == ["start", "stop"]


def test_sweep_shows_the_knee_and_warns(call: Call, engine: Any, tmp_path: Path) -> None:
    """What the numbers mean, what to doubt, what to do next."""
    engine.messages = 100
    out_dir = str(tmp_path / "runs")
    code, out, _ = call("sweep", "flow_control/in_flight", "--quick", "-h", URI, "--out", out_dir, "--no-report")
    assert code == 0 and "Knee at in_flight=" in out and "with 95% of it" in out
    assert out.count("in_flight=") > 6 and "warn  " in out and "next    perftest report" in out
    assert [step.settings.in_flight for step in engine.plans[0].steps] == [1, 5, 20, 200, 1000, 10_000]


def test_an_interrupted_sweep_says_how_to_go_on(call: Call, engine: Any, tmp_path: Path) -> None:
    """Going on comes first, at the same broker; what was left is then one report with what was there before."""
    where = ("-h", "amqp://guest:guest@rabbit1", "--out", str(tmp_path / "runs"), "--no-report", "--ui", "line")
    engine.interrupts = 1
    _, out, _ = call("sweep", "flow_control/in_flight", "--quick", *where)
    first = directory(tmp_path)
    assert f"next    perftest sweep --resume {first} -h amqp://rabbit1\n" in out and "perftest compare" not in out
    engine.interrupts = 0
    with (first / "events.jsonl").open("a") as events:
        events.writelines(f'{{"t_ns": 1, "kind": "step_ended", "step": {step}}}\n' for step in (1, 2, 3, 4))
    code, out, err = call("sweep", "--resume", str(first), *where)
    (second,) = set((tmp_path / "runs").iterdir()) - {first}
    assert code == 0 and out.endswith(f"next    perftest report {first} {second}\n")
    assert "step=5/6" in err and "step=6/6" in err


def test_sweep_makes_its_report(call: Call, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command from a workload to a page."""
    import perftest.cli.report

    made: list[list[Path]] = []

    def build_report(runs: list[Path], out: Path | None, beside: Path) -> Path:
        assert out is None
        made.append(list(runs))
        return beside / "report.html"

    monkeypatch.setattr(perftest.cli.report, "build_report", build_report)
    out_dir = str(tmp_path / "runs")
    _, out, _ = call("sweep", "flow_control/in_flight", "--quick", "-h", URI, "--out", out_dir)
    assert made == [[directory(tmp_path)]] and f"report  {directory(tmp_path) / 'report.html'}" in out


def test_the_job_of_a_run_gets_its_verdicts(run: Run, engine: Any, tmp_path: Path) -> None:
    """A case for each objective, and one for the trust in all figures."""
    junit = tmp_path / "junit.xml"
    asked = ("--slo", "e2e.p99<1us", "--slo", "loss==0", "--junit", str(junit), "--annotations", "github")
    code, _, err = run("-z", "4", *asked)
    cases = ET.parse(junit).getroot().findall(".//testcase")
    assert [case.get("name") for case in cases] == ["e2e.p99<1us", "loss==0", "the figures can be trusted"]
    assert code == 4 and [case.find("failure") is not None for case in cases] == [True, False, False]
    assert "::error title=" in err and "missed e2e.p99<1us" in err


def test_the_metrics_of_a_run_reach_a_collector(run: Run, engine: Any) -> None:
    """The totals of the whole run, at its end."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from tests.perftest.testing.otlp_collector import collecting

    with collecting() as collector:
        assert run("-z", "4", "--id", "mine", "--otlp", collector.url)[0] == 0
    (point,) = collector.metrics()["messaging.client.sent.messages"].sum.data_points
    assert point.as_int == 4 * engine.messages


@pytest.mark.parametrize("command", [("sweep", "flow_control/in_flight", "--quick"), ("run", "-z", "1", "--report")])
def test_a_run_without_the_packages_of_reports_says_how_to_get_its_report(
    call: Call, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The figures are there, and the page can follow: no error, and nothing is refused at the start."""
    monkeypatch.setattr("perftest.cli.measure.is_installed", lambda extra: False)
    code, _, err = call(*command, "-h", URI, "--out", str(tmp_path / "runs"))
    again = f"no report: {command_for('report')} && perftest report {directory(tmp_path)}\n"
    assert code == 0 and err.endswith(again) and "error" not in err


@pytest.mark.parametrize(
    ("state", "verdict", "statuses", "code"),
    [
        ("finished", "ok", ["pass"], 0),
        ("finished", "ok", ["warn"], 0),
        ("finished", "ok", ["fail"], 5),
        ("finished", "violated", ["fail"], 3),
        ("failed", "violated", [], 3),
        ("failed", "ok", ["pass"], 1),
        ("interrupted", "unknown", ["fail"], 130),
        ("finished", "ok", None, 5),
    ],
)
def test_exit_codes_by_gravity(state: str, verdict: str, statuses: list[str] | None, code: int) -> None:
    """Unsafe before failed before interrupted before doubtful; a run without results is not ok."""
    trust = [Check("samples", Status(status), "t") for status in statuses or ()]
    assert exit_code(state, {"verdict": verdict}, trust) == code


def test_an_unsafe_background_load_is_an_unsafe_run() -> None:
    ledger = {"verdict": "ok", "background": [{"verdict": "ok"}, {"verdict": "violated"}]}
    assert exit_code("finished", ledger, []) == 3
