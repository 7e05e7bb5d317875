"""A suite of cases: the verdicts of one command, in the words in which the terminal shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perftest.exits import MEANING, Exit
from perftest.results.trust import Check, Status, title
from perftest.spec.expected.slo import Verdict


class CaseOutcome(StrEnum):
    """The outcome of a case. FAILED: a verdict on the broker; ERROR: no verdict can be trusted; SKIPPED: no verdict."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Case:
    """A verdict with its sentence."""

    name: str
    outcome: CaseOutcome
    text: str

    @property
    def is_bad(self) -> bool:
        """Whether the case fails a build."""
        return self.outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The cases of one command. ``place`` is the file with the result, as a path below the working directory where that
    is possible; ``started_ns`` is Unix time."""

    name: str
    place: str
    cases: tuple[Case, ...]
    started_ns: int = 0
    length_s: float = 0.0


def cases_of_objectives(verdicts: Iterable[Verdict]) -> list[Case]:
    """A case for each objective in each step."""
    return [
        Case(
            f"{each.objective.text}{f' at {each.label}' if each.label else ''}",
            CaseOutcome.PASSED if each.met else CaseOutcome.FAILED,
            " ".join(each.sentence().split()),
        )
        for each in verdicts
    ]


def cases_of_findings(findings: Iterable[Mapping[str, Any]], *, asserted: bool) -> list[Case]:
    """A case for each finding, as ``result.json`` has them. A finding that is not reproduced fails the build only if
    that was ``asserted``."""
    return [_finding(each, CaseOutcome.FAILED if asserted else CaseOutcome.SKIPPED) for each in findings]


def cases_of_checks(trust: Sequence[Check], *, valid: bool) -> list[Case]:
    """One case: whether the figures can be trusted. Its sentence names the checks that failed."""
    failed = [f"{title(check.check)}: {check.text}" for check in trust if check.status is Status.FAIL]
    text = "; ".join(failed) or ("no check failed" if valid else "there is nothing to trust")
    return [Case("the figures can be trusted", CaseOutcome.PASSED if valid else CaseOutcome.ERROR, text)]


def with_exit(cases: Sequence[Case], code: Exit) -> tuple[Case, ...]:
    """The cases, and one more if the exit code tells of a failure that no case tells."""
    if code is Exit.OK or any(each.is_bad for each in cases):
        return tuple(cases)
    return (*cases, Case(f"exit code {int(code)}", CaseOutcome.ERROR, MEANING[code]))


def _finding(finding: Mapping[str, Any], otherwise: CaseOutcome) -> Case:
    verdict = str(finding["verdict"])
    outcome = CaseOutcome.PASSED if verdict == "reproduced" else otherwise
    claims = "; ".join(str(claim["claim"]) for claim in finding["claims"][:3])
    return Case(str(finding["says"]), outcome, f"{verdict}, {finding['metric']}: {claims}")
