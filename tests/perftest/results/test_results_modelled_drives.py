"""Modelled drives in a run: what is of the run, and when lateness spoils it."""

from __future__ import annotations

from typing import Any

import pytest

from perftest.results.modelled_drives import DriveRecords, drives_check, in_words
from perftest.results.trust import Status


def record(operations: int, late: int, syncs: int, profile: str = "st1-1t", node: str = "node1") -> dict[str, Any]:
    drive = {
        "name": "d1", "profile": profile, "operations": operations, "late": late, "service_ns_p50": 4_000_000,
        "late_ns_p50": 50_000, "late_ns_p99": 900_000, "late_ns_max": 2_000_000,
        "purposes": {"wal": {"syncs": syncs, "write_octets": 100 * syncs}},
    }  # fmt: skip
    return {"node": node, "t_ns": 1, "drives": [drive]}


def facts(*records: dict[str, Any]) -> list[dict[str, Any]]:
    drives = DriveRecords()
    for each in records:
        drives.add(each)
    return drives.facts()


def test_what_was_before_the_run_is_not_of_the_run() -> None:
    """A cluster that was kept running has a past: only the growth counts."""
    (drive,) = facts(record(100, 50, 90), record(150, 51, 130), record(300, 52, 250))
    assert (drive["operations"], drive["late"]) == (200, 2)
    assert drive["purposes"] == {"wal": {"syncs": 160, "write_octets": 16_000}}


def test_a_node_that_starts_again_counts_from_zero() -> None:
    (drive,) = facts(record(100, 0, 90), record(150, 1, 130), record(20, 1, 10))
    assert (drive["operations"], drive["late"], drive["purposes"]["wal"]["syncs"]) == (70, 2, 50)


def test_a_drive_that_changes_has_both_profiles() -> None:
    drives = facts(record(1, 0, 1), record(9, 0, 9, "hdd7200"), record(1, 0, 1, "nvme", "node2"))
    assert drives[0]["profiles"] == ["st1-1t", "hdd7200"]
    assert in_words(drives) == "st1-1t, hdd7200, nvme"


def test_a_broker_without_modelled_drives_has_no_check() -> None:
    assert facts({"node": "node1", "t_ns": 1}) == []
    assert drives_check([]) is None


@pytest.mark.parametrize(("late", "status"), [(0, Status.NOTE), (10, Status.NOTE), (11, Status.FAIL)])
def test_the_worst_drive_decides(late: int, status: Status) -> None:
    """One operation of a hundred late by a fifth of the median: p99 of the lateness is a fifth of the median."""
    good = record(0, 0, 0, node="node2"), record(1000, 0, 1000, node="node2")
    check = drives_check(facts(*good, record(0, 0, 0), record(1000, late, 1000)))
    assert check is not None
    assert check.status is status
    assert "st1-1t" in check.text and "modelled" in check.text
    assert ("of d1 on node1" in check.text) == (late > 0)


@pytest.mark.parametrize(("late", "status"), [(2, Status.NOTE), (3, Status.NOTE), (4, Status.FAIL)])
def test_a_drive_that_was_hardly_used_spoils_no_run(late: int, status: Status) -> None:
    """The segments of a queue that keeps up are written twice a minute; the wait of two requests decides nothing."""
    busy = record(0, 0, 0, node="node2"), record(1000, 3, 1000, node="node2")
    check = drives_check(facts(*busy, record(0, 0, 0), record(50, late, 50)))
    assert check is not None and check.status is status
    assert (
        check.text.startswith("drives are modelled (st1-1t): ") and f"{late / 50:.1%} of the operations" in check.text
    )


def test_a_fuse_drive_is_judged_by_its_usual_request() -> None:
    """A sync is a chain of requests, most of them short: the median would make a drive late that nobody waited for."""
    before, after = record(0, 0, 0), record(1000, 20, 1000)
    for each in (before, after):
        each["drives"][0] |= {"kind": "fuse", "usual_ns": 8_000_000}
    check = drives_check(facts(before, after))
    assert check is not None and check.status is Status.FAIL
    assert "2.0% of the requests of d1 on node1" in check.text and "usual request 8.00 ms" in check.text


def test_a_run_without_operations_is_not_spoiled() -> None:
    check = drives_check(facts(record(5, 5, 5)))
    assert check is not None and check.status is Status.NOTE
