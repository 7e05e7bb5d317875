"""A suite as JUnit XML, in the form that GitHub, GitLab and Jenkins read; pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from perftest.ci.cases import Case, CaseOutcome, Suite

_ELEMENTS: Final = {CaseOutcome.FAILED: "failure", CaseOutcome.ERROR: "error", CaseOutcome.SKIPPED: "skipped"}
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot have."""


def junit(suite: Suite) -> str:
    """The content of the file."""
    counts = {
        "tests": len(suite.cases),
        **{f"{name}s": _count(suite, outcome) for outcome, name in _ELEMENTS.items() if name != "skipped"},
        "skipped": _count(suite, CaseOutcome.SKIPPED),
    }
    numbers = {name: str(count) for name, count in counts.items()} | {"time": f"{suite.length_s:.3f}"}
    root = Element("testsuites", numbers)
    started = datetime.fromtimestamp(suite.started_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    element = SubElement(root, "testsuite", {"name": _clean(suite.name), "timestamp": started, **numbers})
    for case in suite.cases:
        _add(element, suite, case)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _add(element: Element, suite: Suite, case: Case) -> None:
    named = {"classname": f"perftest.{_clean(suite.name)}", "name": _clean(case.name), "file": _clean(suite.place)}
    found = SubElement(element, "testcase", named | {"time": "0"})
    if case.outcome in _ELEMENTS:
        said = SubElement(found, _ELEMENTS[case.outcome], {"message": _clean(case.text)})
        said.text = _clean(case.text)
    else:
        SubElement(found, "system-out").text = _clean(case.text)


def _count(suite: Suite, outcome: CaseOutcome) -> int:
    return sum(case.outcome is outcome for case in suite.cases)


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
