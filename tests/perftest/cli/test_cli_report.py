"""From run directories to pages: the JVM in a process of its own, its errors in three lines."""

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

Call = Callable[..., tuple[int, str, str]]


class Pipeline:
    """Takes the place of the pipeline's process."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.returncode = 0
        self.stderr = ""

    def __call__(self, command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        return subprocess.CompletedProcess(command, self.returncode, "", self.stderr)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """The pipeline's process and the pages replaced: what is asked of them is noted."""
    fake = Pipeline()
    monkeypatch.setattr(subprocess, "run", fake)

    def build(store: Path, out: Path, *, command: list[str]) -> Path:
        fake.commands.append(["build", str(store), str(out), *command])
        return out / "report.html"

    monkeypatch.setattr(reports, "build", build)
    return fake


def test_a_report_is_made_from_runs(call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path) -> None:
    """The pipeline fills the store beside the page, the page knows the command that makes it again."""
    run = records.write_run(tmp_path).path
    pipeline.commands.clear()
    code, out, _ = call("report", str(run))
    page = run / "report"
    assert (code, out) == (0, f"{page / 'report.html'}\n")
    assert pipeline.commands == [
        [sys.executable, "-m", "reports.pipeline", str(run), "--store", str(page / "store")],
        ["build", str(page / "store"), str(page), "perftest", "report", str(run), "--out", str(page)],
    ]


def test_several_runs_go_into_one_report(call: Call, pipeline: Pipeline, records: ModuleType, tmp_path: Path) -> None:
    """And JSON tells a script where it is."""
    runs = [str(records.write_run(tmp_path).path) for _ in range(2)]
    code, out, _ = call("report", *runs, "--out", str(tmp_path / "both"), "--json")
    assert (code, json.loads(out)) == (0, {"report": str(tmp_path / "both" / "report.html")})


@pytest.mark.parametrize(
    ("stderr", "lines"),
    [
        (
            "WARN spark\nerror: Java 17 is missing\n  at   JAVA_HOME\n  fix  install one\n",
            "error: no report: Java 17 is missing\n  at   JAVA_HOME\n  fix  install one\n",
        ),
        ("java.lang.OutOfMemoryError\n", "error: no report: java.lang.OutOfMemoryError\n  at   "),
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


def test_a_report_that_fails_does_not_spoil_the_measurement(
    call: Call, engine: Any, pipeline: Pipeline, tmp_path: Path
) -> None:
    """The numbers are there; the page can be made later."""
    pipeline.returncode, pipeline.stderr = 1, "error: Java 17 is missing\n  at   JAVA_HOME\n  fix  install one\n"
    code, out, err = call("run", "-h", "amqp://rabbit1", "-z", "5", "--report", "--out", str(tmp_path))
    assert code == 0 and "delivered/s" in out and "next    perftest report" in out
    assert "error: no report: Java 17 is missing" in err
