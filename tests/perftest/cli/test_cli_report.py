"""From run directories to pages: a JVM in a process of its own, its errors in three lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import reports
from perftest.cli.report import _followed
from reports.pipeline.job import SparkNeeded

Call = Callable[..., tuple[int, str, str]]


class Pipeline:
    """Takes the place of the pipeline's process."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.returncode = 0
        self.stderr = ""
        self.left_out: dict[str, str] = {}
        self.note = ""
        self.damaged: dict[str, list[str]] = {}
        self.findings: list[dict[str, Any]] = []

    def __call__(self, command: list[str], say: Callable[[str], None]) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        say("reading runs")
        beside = command[command.index("--beside") + 1]
        told = {"left_out": self.left_out, "note": self.note, "runs": ["r1"], "pages": beside}
        told |= {"damaged": self.damaged}
        stdout = json.dumps(told) if self.returncode == 0 else ""
        return subprocess.CompletedProcess(command, self.returncode, stdout, self.stderr)


def needs_spark(*_: object, **__: object) -> None:
    raise SparkNeeded


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """The pipeline's process and the pages replaced: what is asked of them is noted."""
    fake = Pipeline()
    monkeypatch.setattr("perftest.cli.report._followed", fake)
    monkeypatch.setattr("reports.pipeline.job.run", needs_spark)

    def build(store: str, out: Path, *, page: Path | None, command: list[str], **asked: Any) -> Path:
        assert asked == {"separate": False, "runs": ["r1"], "left_out": fake.left_out}
        page = page or out / "report.html"
        out.mkdir(parents=True, exist_ok=True)
        runs = [{"damaged": damaged} for damaged in fake.damaged.values()]
        (out / "summary.json").write_text(
            json.dumps({"findings": fake.findings, "runs": runs, "left_out": fake.left_out})
        )
        fake.commands.append(["build", store, str(out), str(page), *command])
        return page

    monkeypatch.setattr(reports, "build", build)
    return fake


def test_the_page_of_a_run_stands_in_its_directory(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    """One file to open, to copy and to send; the store is beside it, and the page knows how to make it again."""
    run = records.write_run(tmp_path).path
    pipeline.commands.clear()
    code, out, _ = call("report", str(run))
    beside, page = run / "report", run / "report.html"
    assert (code, out) == (0, f"{page}\n")
    assert pipeline.commands == [
        [sys.executable, "-m", "reports.pipeline", str(run), "--beside", str(beside / "store")],
        ["build", str(beside / "store"), str(beside), str(page), "perftest", "report", str(run)],
    ]


def test_damaged_files_are_named_beside_the_page(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    """The page is made of what is left, and a script learns that something is missing."""
    run = records.write_run(tmp_path).path
    pipeline.damaged = {str(run): ["ledger.json is missing", "host.jsonl has 2 damaged records"]}
    code, out, err = call("report", str(run))
    assert (code, out) == (9, f"{run / 'report.html'}\n")
    assert [line for line in err.splitlines() if line.startswith("damaged")] == [
        f"damaged: {run}: ledger.json is missing",
        f"damaged: {run}: host.jsonl has 2 damaged records",
    ]


@pytest.mark.parametrize(("verdict", "code"), [("reproduced", 0), ("partly reproduced", 4)])
def test_verdicts_on_findings_are_printed_before_the_path(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path, verdict: str, code: int
) -> None:
    """The judge of the page has the word; --assert makes it an exit code."""
    run = records.write_run(tmp_path).path
    pipeline.findings = [{"verdict": verdict, "lines": [f"The source's findings: {verdict}.", "  more"]}]
    found, out, _ = call("report", str(run), "--assert")
    assert (found, out) == (code, f"The source's findings: {verdict}.\n  more\n{run / 'report.html'}\n")
    assert call("report", str(run))[0] == 0
    assert json.loads(call("report", str(run), "--json")[1])["findings"] == pipeline.findings


def test_verdicts_of_several_workloads_say_whose_they_are(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    run = records.write_run(tmp_path).path
    pipeline.findings = [
        {"workload": name, "verdict": "reproduced", "lines": ["The source's findings: reproduced."]}
        for name in ("disks/one", "disks/four")
    ]
    out = call("report", str(run))[1].splitlines()
    assert out[:4] == ["disks/one", "The source's findings: reproduced.", "disks/four", out[1]]
    assert out[4:] == [str(run / "report.html")]


def test_a_series_of_layouts_is_reported_as_a_whole(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    """All rounds on all layouts, in the order of the layouts; without rounds that were cut short."""
    place = tmp_path / "series"
    sides = [place / f"{number}-drive" for number in (2, 10)]
    runs = [str(run) for side in sides for run in sorted(records.write_run(side).path for _ in range(2))]
    records.write_run(sides[0] / "unfinished")
    (place / "report").mkdir()
    (place / "layouts.json").write_text("{}")
    pipeline.commands.clear()
    assert call("report", str(place))[1] == f"{place / 'report.html'}\n"
    assert pipeline.commands[0][3:7] == runs and pipeline.commands[0][7] == "--beside"


def test_a_series_without_a_run_is_no_report(call: Call, pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "layouts.json").write_text("{}")
    code, _out, err = call("report", str(tmp_path))
    assert code != 0 and "no layout of this sweep has a run" in err and f"--resume {tmp_path}" in err


def test_no_findings_cannot_be_asserted(call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path) -> None:
    """A gate that waits for verdicts must not pass because there are none."""
    assert call("report", str(records.write_run(tmp_path).path), "--assert")[0] == 4


def test_a_page_elsewhere_is_all_there(call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path) -> None:
    """A run on a read-only drive can be reported, too."""
    run, out = records.write_run(tmp_path).path, tmp_path / "elsewhere"
    pipeline.commands.clear()
    assert call("report", str(run), "--out", str(out))[1] == f"{out / 'report.html'}\n"
    assert pipeline.commands == [
        [sys.executable, "-m", "reports.pipeline", str(run), "--beside", str(out / "store")],
        [
            "build",
            str(out / "store"),
            str(out),
            str(out / "report.html"),
            *("perftest", "report", str(run), "--out", str(out)),
        ],
    ]


def test_rounds_of_a_sweep_are_reported_beside_them(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    """Their directory stands for them, as it does for compare."""
    place = tmp_path / "rounds"
    runs = sorted(str(records.write_run(place).path) for _ in range(2))
    pipeline.commands.clear()
    assert call("report", str(place))[1] == f"{place / 'report.html'}\n"
    assert pipeline.commands[0][3:5] == runs and pipeline.commands[1][-2:] == runs


def test_the_tables_of_an_earlier_version_are_made_again(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    """They are nobody's data: the runs are. What else lies there stays."""
    run = records.write_run(tmp_path).path
    store = run / "report" / "store"
    (store / "attempts" / "one").mkdir(parents=True)
    for name in ("manifest.json", ".lock", "attempts/one/part.parquet", "of-somebody-else"):
        (store / name).write_text("{}", encoding="utf-8")
    assert call("report", str(run))[0] == 0
    assert [path.name for path in store.iterdir()] == ["of-somebody-else"]


def test_another_spark_is_the_pipelines_business(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = records.write_run(tmp_path).path
    monkeypatch.setenv("PERFTEST_SPARK_MASTER", "spark://h:7077")
    assert call("report", str(run), "--spark-conf", "spark.executor.memory=4g")[0] == 0
    asked = next(command for command in pipeline.commands if "reports.pipeline" in command)
    assert asked[-4:] == ["--master", "spark://h:7077", "--conf", "spark.executor.memory=4g"]


def test_runs_and_stores_have_uris(
    call: Call, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline lists what lies there; the page is a file of this machine, and a path with a URI is a path."""
    monkeypatch.chdir(tmp_path)
    pipeline.note = "why not"
    code, out, err = call("report", "s3a://b/runs/x", "--store", "hdfs://n/store")
    assert code == 0 and out.startswith("runs/report-") and "why not\n" in err
    place = Path(out).parent
    assert pipeline.commands[0][3:] == ["s3a://b/runs/x", "--store", "hdfs://n/store", "--beside", f"{place}/store"]
    assert pipeline.commands[1][-5:] == ["s3a://b/runs/x", "--out", str(place), "--store", "hdfs://n/store"]
    assert "this is not a run" in call("report", f"file://{tmp_path}/no%20run")[2]


def test_the_environment_names_the_store_of_all_commands(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = records.write_run(tmp_path).path
    monkeypatch.setenv("PERFTEST_STORE", "s3a://b/store")
    pipeline.commands.clear()
    assert call("report", str(run))[0] == 0
    assert pipeline.commands[0][4:6] == ["--store", "s3a://b/store"]


def test_several_runs_go_into_one_report(call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path) -> None:
    """And JSON tells a script where it is."""
    runs = [str(records.write_run(tmp_path).path) for _ in range(2)]
    code, out, _ = call("report", *runs, "--out", str(tmp_path / "both"), "--json")
    assert (code, json.loads(out)) == (0, {"report": str(tmp_path / "both" / "report.html"), "findings": []})


def test_a_damaged_run_of_several_is_named_and_left_out(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path
) -> None:
    """The report of the others is made; alone, or where there is no run at all, it is an error."""
    good, damaged = (records.write_run(tmp_path).path for _ in range(2))
    (damaged / "manifest.json").write_text("{")
    pipeline.left_out = {str(damaged): "not JSON"}
    code, out, err = call("report", str(good), str(damaged), "--out", str(tmp_path / "both"))
    assert (code, out) == (9, f"{tmp_path / 'both' / 'report.html'}\n")
    assert f"left out: {damaged}: not JSON\n" in err
    assert call("report", str(damaged))[0] == 1
    code, _, err = call("report", str(good), str(tmp_path / "nowhere"))
    assert code == 1 and "this is not a run" in err


@pytest.mark.parametrize(
    ("stderr", "lines"),
    [
        (
            "WARN spark\nerror: Java 17 is missing\n  at   JAVA_HOME\n  fix  install one\n",
            "error: no report: Java 17 is missing\n  at   JAVA_HOME\n  fix  install one\n",
        ),
        ("java.lang.OutOfMemoryError\n", "error: no report: java.lang.OutOfMemoryError\n  at   "),
        (
            "py4j.protocol.Py4JJavaError: An error occurred\njava.io.IOException: x\n\tat org.Class\n"
            "Caused by: java.io.IOException: No space left on device\n\t... 41 more\n",
            "error: no report: Caused by: java.io.IOException: No space left on device\n",
        ),
        (
            "error: the store cannot be written\n  at   x\n  fix  choose another --store\n",
            "error: no report: the store cannot be written\n  at   x\n  fix  choose another --store\n",
        ),
        ("", "error: no report: it said nothing\n"),
    ],
)
def test_what_the_pipeline_says_is_passed_on(
    call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path, stderr: str, lines: str
) -> None:
    """Its own words, not a stack of the JVM."""
    run = records.write_run(tmp_path).path
    pipeline.returncode, pipeline.stderr = 1, stderr
    code, out, err = call("report", str(run))
    assert (code, out) == (1, "") and lines in err and "  fix  " in err


def test_the_progress_of_the_pipeline_is_said_as_it_goes() -> None:
    """A person who waits for a minute wants to know for what; a long answer must not block the process."""
    script = "import sys; print('reading 2 runs …\\nerror: none', file=sys.stderr, flush=True); print('x' * 200_000)"
    said: list[str] = []
    done = _followed([sys.executable, "-X", "utf8", "-c", script], said.append)
    assert said == ["reading 2 runs"] and done.stderr == "error: none\n" and len(done.stdout) == 200_001


def test_a_report_that_fails_does_not_spoil_the_measurement(
    call: Call, engine: Any, pipeline: Pipeline, tmp_path: Path
) -> None:
    """The numbers are there; the page can be made later."""
    pipeline.returncode, pipeline.stderr = 1, "error: Java 17 is missing\n  at   JAVA_HOME\n  fix  install one\n"
    code, out, err = call("run", "-h", "amqp://rabbit1", "-z", "5", "--report", "--out", str(tmp_path))
    assert code == 0 and "delivered/s" in out and "next    perftest report" in out
    assert "error: no report: Java 17 is missing" in err
