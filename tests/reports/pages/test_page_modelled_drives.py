"""A page whose figures come from modelled drives says so where a reader looks first."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from perftest.results.trust import Status
from reports.pages.page import page

DRIVE = {
    "node": "node1", "name": "d1", "profiles": ["st1-1t", "hdd7200"], "operations": 1000, "service_ns_p50": 4_000_000,
    "late_ns_p50": 50_000, "late_ns_p99": 900_000, "late_ns_max": 2_000_000,
    "purposes": {"wal": {"syncs": 990, "write_octets": 4_055_040}},
}  # fmt: skip


@pytest.mark.parametrize(("late", "status"), [(5, Status.NOTE), (50, Status.FAIL)])
def test_chip_check_and_facts_name_the_modelled_drives(sample_tables: ModuleType, late: int, status: Status) -> None:
    """A figure of a modelled drive must not be read as that of a real one, nor as one of the drive if the machine was
    too busy."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    manifest = json.loads(tables.runs.loc[0, "manifest"])
    manifest["broker"]["drives"] = [{**DRIVE, "late": late}]
    tables.runs.loc[0, "manifest"] = json.dumps(manifest)
    run = page(tables, generated="").runs[0]
    assert "modelled: st1-1t, hdd7200" in [chip.value for chip in run.chips if chip.name == "Drives"]
    (check,) = [check for check in run.checks if check.check == "modelled_drives"]
    assert check.status is status
    text = str(run.provenance)
    assert "drive d1 of node1" in text and "modelled: st1-1t then hdd7200" in text and "wal 990 syncs" in text


def test_a_page_of_real_drives_does_not_speak_of_models(sample_tables: ModuleType) -> None:
    run = page(sample_tables.tables(sample_tables.SWEEP), generated="").runs[0]
    assert not [chip for chip in run.chips if chip.name == "Drives"]
    assert not [check for check in run.checks if check.check == "modelled_drives"]
