"""Verdicts for a build pipeline: what GitHub, GitLab and readers of JUnit XML get."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from perftest.ci.annotations import github, gitlab
from perftest.ci.cases import (
    Case,
    CaseOutcome,
    Suite,
    cases_of_checks,
    cases_of_findings,
    cases_of_objectives,
    with_exit,
)
from perftest.ci.job_outputs import GITLAB_FILE, Annotations, JobOutputs, parse_annotations
from perftest.ci.junit import junit
from perftest.ci.publish import place_of, publish
from perftest.exits import Exit
from perftest.results.trust import Check, Status
from perftest.spec.expected.slo import judge, parse_objective
from perftest.spec.units import UnitError

CASES = (
    Case("loss==0", CaseOutcome.PASSED, "met loss==0: 0"),
    Case("e2e.p99<20ms at a,b", CaseOutcome.FAILED, "missed: 31 ms,\n100 % too late"),
    Case("trust", CaseOutcome.ERROR, "steal: \x1b[1m7 %"),
    Case("rate", CaseOutcome.SKIPPED, "inconclusive"),
)
SUITE = Suite(name="mine", place="runs/x/manifest.json", cases=CASES, started_ns=1_795_255_954 * 10**9, length_s=30)


def test_junit_has_a_case_for_each_verdict() -> None:
    """Counts that readers trust, and the sentence in every place in which some reader looks."""
    root = ET.fromstring(junit(SUITE).encode())
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    assert suite.get("timestamp") == "2026-11-21T10:12:34" and suite.get("time") == "30.000"
    passed, failed, error, skipped = suite
    assert [each.get("classname") for each in suite] == ["perftest.mine"] * 4
    assert [each.tag for each in (*passed, *failed, *error, *skipped)] == ["system-out", "failure", "error", "skipped"]
    assert failed[0].text == "missed: 31 ms,\n100 % too late"
    assert error[0].get("message") == "steal: ?[1m7 %", "a character that XML cannot have"


def test_githubs_lines_end_where_they_should() -> None:
    """A line feed, a percent sign or a comma in a sentence must not end the annotation."""
    assert github(SUITE) == [
        "::error title=mine%3A e2e.p99<20ms at a%2Cb::missed: 31 ms,%0A100 %25 too late",
        "::error title=mine%3A trust::steal: \x1b[1m7 %25",
        "::notice title=mine::1 without a verdict: rate; the first because: inconclusive",
    ]


def test_gitlabs_report_keeps_the_entries_of_other_commands() -> None:
    """A job makes a run and a comparison; the second must not hide the first."""
    first = json.loads(gitlab(SUITE))
    assert [each["severity"] for each in first] == ["major", "critical"]
    assert first[0]["location"] == {"path": "runs/x/manifest.json", "lines": {"begin": 1}}
    assert len({each["fingerprint"] for each in first}) == 2
    other = Suite(name="compare", place="gate", cases=CASES[1:2])
    both = json.loads(gitlab(other, gitlab(SUITE)))
    assert [each["check_name"] for each in both] == ["perftest mine", "perftest mine", "perftest compare"]
    assert json.loads(gitlab(other, json.dumps(both))) == both
    assert len(json.loads(gitlab(SUITE, "not JSON"))) == 2


def test_objectives_are_cases_in_each_step() -> None:
    row = {"label": "x=1", "latency": {"e2e": {"count": 1, "p99_ns": 31e6, "max_ns": 40e6}}}
    slow, safe = (parse_objective(text) for text in ("e2e.p99<20ms", "loss==0"))
    assert cases_of_objectives(judge([slow, safe], [row], {"lost": 0})) == [
        Case("e2e.p99<20ms at x=1", CaseOutcome.FAILED, "missed e2e.p99<20ms at x=1: 31 ms"),
        Case("loss==0", CaseOutcome.PASSED, "met loss==0: 0"),
    ]


@pytest.mark.parametrize("asserted", [True, False])
def test_a_finding_fails_only_where_it_is_asserted(asserted: bool) -> None:
    findings = [
        {"says": says, "verdict": verdict, "metric": "rate", "claims": [{"claim": "1 against 2"}]}
        for says, verdict in (("It grows.", "reproduced"), ("It stays.", "not reproduced"))
    ]
    grows, stays = cases_of_findings(findings, asserted=asserted)
    assert (grows.outcome, stays.text) == (CaseOutcome.PASSED, "not reproduced, rate: 1 against 2")
    assert stays.is_bad == asserted


def test_a_run_that_cannot_be_trusted_is_an_error() -> None:
    checks = [Check("ledger", Status.PASS, "ok"), Check("steal", Status.FAIL, "30 % stolen")]
    (bad,) = cases_of_checks(checks, valid=False)
    assert bad.outcome is CaseOutcome.ERROR and bad.text.endswith("30 % stolen")
    assert cases_of_checks(checks[:1], valid=True)[0].outcome is CaseOutcome.PASSED


def test_an_exit_code_that_no_case_explains_is_a_case() -> None:
    """A green report beside a red job sends people to look in the wrong place."""
    assert with_exit(CASES[:1], Exit.OK) == CASES[:1]
    assert with_exit(CASES, Exit.MISSED) == CASES
    assert with_exit(CASES[:1], Exit.INTERRUPTED)[1].name == "exit code 130"


@pytest.mark.parametrize("text", ["gitlab=", "github=x", "jenkins", ""])
def test_an_unknown_service_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="is no service"):
        parse_annotations(text)


def test_files_are_written_where_the_job_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    publish(JobOutputs(junit=Path("new/junit.xml"), annotations=parse_annotations("gitlab")), SUITE)
    assert ET.parse("new/junit.xml").getroot().get("tests") == "4"
    assert len(json.loads(GITLAB_FILE.read_text())) == 2
    publish(JobOutputs(annotations=parse_annotations("gitlab=q.json")), SUITE)
    publish(JobOutputs(annotations=Annotations("github")), SUITE)
    assert Path("q.json").read_text() == GITLAB_FILE.read_text()
    assert capsys.readouterr().err.splitlines() == github(SUITE)
    assert place_of(tmp_path / "runs" / "x") == "runs/x" and place_of(Path("/etc")) == "/etc"
