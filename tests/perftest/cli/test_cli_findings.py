"""The findings of a workload at the command line: verdicts over rounds, on the screen, in files, and as exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from perftest.cli import measure as measuring
from perftest.measuring.session_options import Options
from perftest.results.writer import RunWriter
from perftest.spec.plan import Plan
from tests.perftest.results import records

Call = Callable[..., tuple[int, str, str]]

WORKLOAD = """\
schema: 1
name: limits
title: Limits
queues: [{name: q}]
sweep: {setting: in_flight, values: [1, 10, 100]}
findings:
  - {trend: rises, metric: rate, steps: [1, 100], factor: 2, says: The rate grows.}
  - {trend: FLAT, metric: rate, says: The rate stays.}
step: {duration: 4s, warmup: 1s}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Callable[[str], str]:
    """Writes the workload; the second finding is ``rises``, which is true of the records, or ``flat``, which is not."""

    def written(second: str) -> str:
        path = tmp_path / "limits.yaml"
        path.write_text(WORKLOAD.replace("FLAT", second))
        return str(path)

    return written


def measured(plan: Plan, options: Options) -> int:
    """A round: the rate of the records grows with the step, 200 messages an interval for each."""
    number = len(list(options.out.glob("*/manifest.json")))
    now_ns = records.STARTED_NS + number * records.SECOND
    writer = RunWriter(options.out, plan, ["perftest"], now_ns=now_ns)
    for record in records.intervals(plan, seed=number + 1):
        writer.interval(record)
    writer.ledger(records.ledger())
    writer.finish("finished", "")
    return 0


@pytest.mark.parametrize(("second", "code", "verdict"), [("rises", 0, "reproduced"), ("flat", 4, "partly reproduced")])
def test_rounds_are_judged_together(
    workload: Callable[[str], str],
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    second: str,
    code: int,
    verdict: str,
) -> None:
    """The lines, the file beside the rounds, and with --assert the exit code."""
    monkeypatch.setattr(measuring, "measure", measured)
    asked = ("sweep", workload(second), "--repeats", "4", "--no-report", "--out", str(tmp_path / "runs"))
    found, out, _ = call(*asked, "--assert", "--junit", str(tmp_path / "junit.xml"))
    assert found == code, out
    assert f"The source's findings: {verdict}, " in out and "over 4 rounds" in out
    (file,) = (tmp_path / "runs").glob("*/findings.json")
    assert json.loads(file.read_text())["verdict"] == verdict
    cases = ET.parse(tmp_path / "junit.xml").getroot().findall(".//testcase")
    assert [case.get("name") for case in cases] == ["The rate grows.", "The rate stays."]
    assert len([case for case in cases if case.find("failure") is not None]) == (code == 4)
    assert call(*asked)[0] == 0


def test_rounds_as_json_have_the_verdicts(
    workload: Callable[[str], str], call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring, "measure", measured)
    asked = ("--repeats", "3", "--no-report", "--json", "--out", str(tmp_path / "runs"))
    _, out, _ = call("sweep", workload("flat"), *asked)
    found = json.loads(out.splitlines()[-1])["findings"]
    assert [each["verdict"] for each in found["findings"]] == ["reproduced", "not reproduced"]


def test_nothing_to_assert_is_told_before_the_start(call: Call) -> None:
    code, _, err = call("sweep", "--vary", "in_flight=1,10", "--assert")
    assert code == 2
    assert "the workload sweep states no findings" in err and "--assert" in err


def test_a_run_keeps_the_verdicts_in_its_result(workload: Callable[[str], str], tmp_path: Path) -> None:
    """Judged before result.json is written, by the judge that the command sets."""
    from perftest.measuring.measured_run import _judge_of
    from perftest.spec import plan_for

    writer = RunWriter(tmp_path / "runs", plan_for(Path(workload("flat")), ()), ["perftest"])
    writer.judge_findings = _judge_of(writer)
    for record in records.intervals(writer.plan):
        writer.interval(record)
    writer.ledger(records.ledger())
    writer.finish("finished", "")
    assert writer.findings is not None and not writer.findings.reproduced
    kept = json.loads((writer.path / "result.json").read_text())["findings"]
    assert kept == json.loads(json.dumps(writer.findings.to_json()))
    assert kept["rounds"] == 1 and len(kept["findings"]) == 2
