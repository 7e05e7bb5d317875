"""The bad cases of a suite as annotations of a build: lines for GitHub, and a code quality report for GitLab; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from perftest.ci.cases import CaseOutcome, Suite

_GITHUB: Final = {CaseOutcome.FAILED: "error", CaseOutcome.ERROR: "error", CaseOutcome.SKIPPED: "notice"}
_SEVERITY: Final = {CaseOutcome.FAILED: "major", CaseOutcome.ERROR: "critical"}


def github(suite: Suite) -> list[str]:
    """The lines that GitHub turns into annotations: an error for each bad case, and one notice for all cases without a
    verdict, because GitHub shows ten of a kind only."""
    lines = [
        f"::{_GITHUB[case.outcome]} title={_property(f'{suite.name}: {case.name}')}::{_data(case.text)}"
        for case in suite.cases
        if case.is_bad
    ]
    skipped = [case for case in suite.cases if case.outcome is CaseOutcome.SKIPPED]
    if skipped:
        named = ", ".join(case.name for case in skipped[:10])
        text = f"{len(skipped)} without a verdict: {named}; the first because: {skipped[0].text}"
        lines.append(f"::notice title={_property(suite.name)}::{_data(text)}")
    return lines


def gitlab(suite: Suite, earlier: str = "") -> str:
    """GitLab's code quality report (JSON). The entries of an ``earlier`` report stay, except those of this suite."""
    own = list(_entries(suite))
    others = [each for each in _read(earlier) if each.get("check_name") != _check_name(suite)]
    return json.dumps([*others, *own], ensure_ascii=False, indent=1) + "\n"


def _entries(suite: Suite) -> Iterator[dict[str, Any]]:
    for case in suite.cases:
        if case.is_bad:
            yield {
                "description": f"{case.name}: {case.text}",
                "check_name": _check_name(suite),
                "fingerprint": hashlib.sha256(f"{suite.name}\n{case.name}".encode()).hexdigest(),
                "severity": _SEVERITY[case.outcome],
                "location": {"path": suite.place, "lines": {"begin": 1}},
            }


def _check_name(suite: Suite) -> str:
    return f"perftest {suite.name}"


def _read(text: str) -> list[dict[str, Any]]:
    """The entries of a report; none if it cannot be read."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
