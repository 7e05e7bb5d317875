"""What is wrong with a workload file: a file that is accepted measures exactly what it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from perftest.spec.check import check
from perftest.spec.load import parse_workload
from perftest.spec.problem import SpecError

TRANSCRIPT = Path(__file__).parent / "data" / "problems.txt"

BASE = """\
schema: 1
name: base
title: base of the cases
queues:
  - name: q
load:
  prefetch: 1000
sweep:
  setting: in_flight
  values: [1, 10]
step: {duration: 5m, warmup: 10s}
"""


@dataclass(frozen=True)
class Case:
    """One case of the transcript: its comment, its input, what is expected."""

    comment: str
    command: tuple[str, ...]
    expected: str


def cases() -> Iterator[Case]:
    for block in TRANSCRIPT.read_text().split("\n\n"):
        head, found, expected = block.partition("\n----\n")
        if found:
            lines = head.split("\n")
            comment = "\n".join(line for line in lines if line.startswith("#"))
            yield Case(comment, tuple(line for line in lines if not line.startswith("#")), expected.rstrip("\n"))


def outcome(case: Case) -> str:
    """What the loader and the checks say to a case."""
    overrides = [line.removeprefix("set ") for line in case.command if line.startswith("set ")]
    text = "\n".join(case.command[1:]) + "\n" if case.command[0] == "file" else BASE
    try:
        workload, document = parse_workload(text, "w.yaml", overrides)
        problems = check(workload, document)
    except SpecError as error:
        problems = error.problems
    return "\n".join(problem.lines() for problem in problems) or "ok"


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.comment.removeprefix("# ")[:60])
def test_problems_are_named_with_place_and_fix(case: Case) -> None:
    """Each problem has its place and its fix; all of them are told at once."""
    assert outcome(case) == case.expected


def test_rewrite_of_the_transcript() -> None:
    """With REWRITE=1 the transcript is what the code says now; without, it must parse into its cases."""
    head = TRANSCRIPT.read_text().split("\n\n")[0]
    found = list(cases())
    if os.environ.get("REWRITE"):
        blocks = ["\n".join([case.comment, *case.command, "----", outcome(case)]) for case in found]
        TRANSCRIPT.write_text("\n\n".join([head, *blocks]) + "\n")
    assert len(found) == TRANSCRIPT.read_text().count("\n----\n")
    assert all(case.command for case in found)
