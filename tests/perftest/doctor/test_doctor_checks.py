"""The checks of a machine: figures that make sense, words that fit them, nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perftest.doctor import ceiling, drive, host, network
from perftest.doctor.check import DoctorCheck, percentile, worst
from perftest.engine.api import RunError, RunOutcome


def number(check: DoctorCheck, name: str) -> float:
    value = check.figures[name]
    assert not isinstance(value, str)
    return value


@pytest.mark.parametrize("values, percent, expected", [([7], 99, 7), ([1, 2, 3, 4], 50, 3), (list(range(100)), 99, 99)])
def test_percentiles(values: list[int], percent: float, expected: int) -> None:
    """The last one at most, however few there are."""
    assert percentile(values, percent) == expected


def test_the_gravest_finding_decides() -> None:
    """A failure among a hundred passes is a failure."""
    found = [DoctorCheck(name="a", status=status, text="") for status in ("pass", "fail", "warn")]
    assert worst(found) == "fail"
    assert worst(found[:1]) == "pass"
    assert worst([]) == "pass"


def test_clock_and_timers_are_measured() -> None:
    """Whatever the machine, a clock that stands still cannot be measured with."""
    clock, timers = host.clock(), host.timers()
    assert number(clock, "read_ns") > 0
    assert number(clock, "step_ns") > 0
    assert number(timers, "late_p50_us") <= number(timers, "late_p99_us") <= number(timers, "late_max_us")


@pytest.mark.parametrize(
    "usage, says",
    [
        ({}, []),
        ({"steal": 3.0}, ["hypervisor takes 3.0 %"]),
        ({"used": 55.0}, ["something else uses 55 %"]),
        ({"quota": 1.5}, ["may use 1.5 of 4 cores"]),
        ({"quota": 8.0}, []),
        ({"governor": "powersave"}, ["'powersave'"]),
        ({"steal": 3.0, "used": 55.0}, ["hypervisor", "something else"]),
    ],
)
def test_what_speaks_against_the_processors(usage: dict[str, Any], says: list[str]) -> None:
    """Each by itself, and all that apply."""
    settings: dict[str, Any] = {"cores": 4, "used": 1.0, "steal": 0.0, "quota": None, "governor": "performance"}
    doubts = host.usage_doubts(**settings | usage)
    assert len(doubts) == len(says)
    assert all(part in doubt for part, doubt in zip(says, doubts, strict=True))


def test_descriptors_name_the_clients_that_fit() -> None:
    """The limit less what the process needs itself."""
    check = host.descriptors()
    assert 0 <= number(check, "connections") < max(number(check, "hard"), 1 << 20)


def test_a_drive_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    """The file is 128 MiB: one that stays would be noticed late."""
    check = drive.drive(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert 0 < number(check, "fdatasync_p50_us") <= number(check, "fdatasync_p99_us")
    assert number(check, "fdatasync_p99_us") <= number(check, "fdatasync_max_us")
    assert check.figures["filesystem"] in check.text


def test_memory_is_not_taken_for_a_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker on it keeps nothing, however fast it is."""
    monkeypatch.setattr(drive, "filesystem", lambda _directory: "tmpfs")
    check = drive.drive(tmp_path)
    assert check.status == "warn"
    assert "memory, not a drive" in check.text


def test_a_drive_that_cannot_be_written_raises(tmp_path: Path) -> None:
    """The command makes three lines of it."""
    with pytest.raises(OSError, match="No such file"):
        drive.drive(tmp_path / "missing")


def test_loopback_is_measured() -> None:
    """A round trip takes some time, and the slowest more."""
    check = network.loopback()
    assert 0 < number(check, "p50_us") <= number(check, "p99_us")


def test_the_ceiling_is_a_core_divided_by_the_cost() -> None:
    """Two seconds of CPU for a million messages: 2 µs, half a million a second."""
    check = ceiling.finding("in bulk", RunOutcome(state="finished"), 1_000_000, 2_000_000_000)
    assert check.status == "pass"
    assert check.figures == {"us_per_message": 2.0, "per_s_and_core": 500_000}
    assert "500,000 messages a second and core" in check.text


@pytest.mark.parametrize(
    "outcome, messages, says",
    [
        (RunOutcome(state="failed", error=RunError(what="refused", where="", fix="")), 5, "refused"),
        (RunOutcome(state="finished"), 0, "no message was delivered"),
    ],
)
def test_a_generator_that_cannot_run_is_a_failure(outcome: RunOutcome, messages: int, says: str) -> None:
    """Nothing that it measured could be trusted."""
    check = ceiling.finding("in bulk", outcome, messages, 1)
    assert check.status == "fail"
    assert says in check.text
