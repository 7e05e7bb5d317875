"""The trust list on the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from perftest.results import trust
from perftest.results.trust import Check, Status, worst_first
from reports.pages.page import page
from reports.pages.trust_words import WARNINGS, remarks, trust_chip


def _check(name: str, status: Status, *steps: int) -> Check:
    return Check(check=name, status=status, text=f"{name} says so.", steps=steps)


def test_failures_come_first_and_passes_last() -> None:
    """Of twenty checks a reader reads the first three."""
    found = [_check("a", Status.PASS), _check("b", Status.WARN), _check("c", Status.NOTE), _check("d", Status.FAIL)]
    assert [check.check for check in worst_first(found)] == ["d", "b", "c", "a"]


@pytest.mark.parametrize(
    ("found", "value", "status"),
    [
        ([_check("a", Status.PASS), _check("b", Status.NOTE)], "all checks passed", Status.PASS),
        ([_check("a", Status.WARN)], "1 warning: a", Status.WARN),
        (
            [_check("samples", Status.WARN), _check("backlog", Status.WARN)],
            "2 warnings, the gravest: the queue grew",
            Status.WARN,
        ),
        (
            [_check("a", Status.WARN), _check("b", Status.FAIL), _check("c", Status.FAIL)],
            "2 checks failed",
            Status.FAIL,
        ),
    ],
)
def test_the_chip_tells_the_worst(found: list[Check], value: str, status: Status) -> None:
    """A page with a failed check must not look like one without."""
    chip = trust_chip(found)
    assert (chip.value, chip.status) == (value, status)


def test_remarks_name_only_what_speaks_against_a_step() -> None:
    """A pass is no remark, and another step's warning is none of this one's."""
    found = [_check("lag", Status.WARN, 2, 3), _check("cpu", Status.FAIL, 3), _check("clock", Status.PASS, 3)]
    assert [remarks(found, step) for step in (1, 2, 3)] == ["", "lag", "lag, CPU"]


def test_a_busy_generator_marks_its_steps_and_the_figures(sample_tables: ModuleType) -> None:
    """The generator's limit must not be read as the broker's."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    tables.steps.loc[tables.steps["step"] == 6, "worker_cpu_share"] = 0.97
    run = page(tables, generated="").runs[0]
    assert run.checks[0].check == "generator_cpu"
    assert run.checks[0].status is Status.FAIL
    assert "generator CPU" in run.notes[0].text
    assert run.notes[0].anchor == "trust"
    assert run.steps.columns[-1].name == "remarks"
    assert "generator CPU" in str(run.steps.rows[5][-1])
    assert "generator CPU" not in str(run.steps.rows[0][-1])


def test_steps_nobody_objects_to_have_no_column_of_remarks(sample_tables: ModuleType) -> None:
    """An empty column is noise."""
    sample = replace(sample_tables.SWEEP, step_s=60, events=())
    tables = sample_tables.tables(sample)
    tables.steps["worker_cpu_share"] = 0.3
    tables.steps["loop_lag_ns"] = 1000
    run = page(tables, generated="").runs[0]
    assert [check.check for check in run.checks if check.status in (Status.WARN, Status.FAIL)] == []
    assert "remarks" not in [column.name for column in run.steps.columns]


def test_every_check_that_may_warn_has_a_meaning() -> None:
    """The chip of a page says the meaning of the gravest warning, so each warning needs one."""
    sources = (path.read_text() for path in Path(trust.__file__).parent.glob("*.py"))
    named = {name for source in sources for name in _CHECK.findall(source)}
    assert "lost_hosts" in named
    assert named - {*WARNINGS} == _NEVER_WARN


_CHECK = re.compile(r'\b(?:Check|judged)\(\s*"(\w+)"')
_NEVER_WARN = {"modelled_drives", "measured_by", "unknown", "loopback", "broker_cpu", "repetitions", "background"}
