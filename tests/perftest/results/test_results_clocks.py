"""What a run directory has about the clocks of its load hosts."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perftest.metrics.host_clock import ClockExchange, HostClock
from perftest.metrics.interval import Phase
from perftest.results import schema
from perftest.results.reader import read_run, summarise

SECOND_NS = 1_000_000_000
AHEAD_NS = 5 * SECOND_NS
STARTED_NS = 1_700_000_000 * SECOND_NS


def lines(host: str, gain_ppm: int = 100) -> list[dict[str, Any]]:
    """A host that is 5 s ahead: three exchanges before, one in each of ten seconds with a model, three after."""
    made: list[dict[str, Any]] = []
    clock, at = HostClock(), count()
    for phase, length_ns in [*[("before", 10**6)] * 3, *[("during", SECOND_NS)] * 10, *[("after", 10**6)] * 3]:
        sent_ns = STARTED_NS if not made else made[-1]["t_ns"] + length_ns
        there = 30_000 + 7_000 * (next(at) % 4)
        host_ns = sent_ns + there + AHEAD_NS + (sent_ns + there - STARTED_NS) * gain_ppm // 10**6
        exchange = ClockExchange(sent_ns, host_ns, host_ns + 1000, sent_ns + there + 1000 + 40_000)
        clock.add(exchange)
        made.append({"t_ns": sent_ns, "host": host, "phase": phase, **exchange._asdict()})
        if phase == "during":
            model = clock.model(host_ns - SECOND_NS, host_ns)
            made.append({"t_ns": sent_ns, "host": host, "model": model.to_json()})
    return made


def test_the_manifest_has_the_clock_of_each_host_and_the_directory_every_exchange(
    tmp_path: Path, records: ModuleType
) -> None:
    writer = records.write_run(tmp_path, finish=False, close=False)
    told = [*lines("left"), *lines("right", gain_ppm=-40)]
    for record in told:
        writer.clock(record)
    writer.finish("finished", "finished")
    run = read_run(writer.path)
    assert run.clocks == told and not run.damaged
    local, left, right = run.manifest["hosts"]
    assert (local["name"], local["clock_bound_ns"]) == ("local", 0)
    assert (left["name"], right["name"]) == ("left", "right")
    for row, gain_ppm in ((left, 100), (right, -40)):
        assert row["clock_drift_ppm"] == pytest.approx(gain_ppm, abs=8)
        assert abs(row["clock_offset_ns"] - AHEAD_NS - 10 * gain_ppm * 1000) <= row["clock_bound_ns"]
        assert row["round_trip_ns"] == 70_000
        assert {phase: found["count"] for phase, found in row["clock_exchanges"].items()} == {
            "before": 3, "during": 10, "after": 3,
        }  # fmt: skip
        assert all(35_000 <= found["bound_ns"] < 200_000 for found in row["clock_exchanges"].values())


def test_a_host_that_is_known_already_keeps_what_is_known_of_it(tmp_path: Path, records: ModuleType) -> None:
    writer = records.write_run(tmp_path, finish=False, close=False)
    writer.manifest["hosts"].append({"name": "left", "cores": 8})
    for record in lines("left"):
        writer.clock(record)
    writer.finish("finished", "finished")
    _, left = read_run(writer.path).manifest["hosts"]
    assert left["cores"] == 8 and left["clock_bound_ns"] > 0


def test_a_run_on_one_host_has_no_clocks(tmp_path: Path, records: ModuleType) -> None:
    writer = records.write_run(tmp_path)
    assert not (writer.path / schema.CLOCKS).exists()
    assert all("clock_bound_ns" not in row for row in writer.rows)


def test_rows_say_what_the_clocks_leave_open(tmp_path: Path, records: ModuleType) -> None:
    """The greatest bound of any interval, and the counts of all; the same from the directory alone."""
    writer = records.write_run(tmp_path, finish=False, close=False)
    open_ns = iter((40_000, 90_000, 60_000))
    steady = [record for record in records.intervals(writer.plan) if record.phase is Phase.STEADY][:3]
    for record in steady:
        more = {"clock_bound_ns": next(open_ns), "below_bound": 7, "below_zero": 2, "beyond_bound": 1}
        writer.interval(replace(record, start_ns=record.start_ns + 100 * SECOND_NS, **more))
    writer.finish("finished", "finished")
    found = {name: sum(row.get(name, 0) for row in writer.rows) for name in schema.LEFT_OPEN}
    assert found == {"below_bound": 21, "below_zero": 6, "beyond_bound": 3}
    assert max(row.get("clock_bound_ns", 0) for row in writer.rows) == 90_000
    again = summarise(read_run(writer.path))["steps"]
    for name in ("clock_bound_ns", *schema.LEFT_OPEN):
        assert [row.get(name) for row in again] == [row.get(name) for row in writer.rows]
