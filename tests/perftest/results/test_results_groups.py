"""Groups of load and load hosts: kept apart where a reader asks for one, merged exactly where he asks for all."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results import schema
from perftest.results.legacy import LegacyLatency
from perftest.results.reader import read_run, summarise
from perftest.results.writer import RunWriter
from perftest.screen.interval_merger import IntervalMerger, MergedInterval
from perftest.spec.plan import Group, QueueSpec, Settings

HOSTS, GROUPS = ("east", "west"), ("small", "large")


@pytest.fixture
def intervals(records: ModuleType) -> list[Interval]:
    """Two hosts with a worker "0" each, which runs both groups: what a sink is told of one step."""
    told = [
        replace(record, host=host, group=group)
        for at, host in enumerate(HOSTS)
        for number, group in enumerate(GROUPS)
        for record in records.intervals(records.plan(steps=1), seed=10 * at + number, messages=100 * (number + 1))
    ]
    return sorted(told, key=lambda record: record.start_ns)


@pytest.fixture
def writer(tmp_path: Path, records: ModuleType, intervals: list[Interval]) -> RunWriter:
    """The run directory of those intervals."""
    made = RunWriter(tmp_path, records.plan(steps=1), ["perftest"], now_ns=records.STARTED_NS)
    made.manifest["hosts"] = [{"name": host, "cores": cores} for host, cores in zip(HOSTS, (2, 8), strict=True)]
    steps = made.manifest["plan"]["steps"]
    other = [step | {"settings": step["settings"] | {"rate": 50.0}} for step in steps]
    made.manifest["plan"]["groups"] = [{"name": "small", "steps": steps}, {"name": "large", "steps": other}]
    for record in intervals:
        made.interval(record)
    made.ledger(records.ledger())
    made.finish("finished", "finished")
    return made


def union(intervals: list[Interval], group: str, series: Series) -> Histogram:
    whole = Histogram()
    for record in intervals:
        if record.group == group and record.phase is Phase.STEADY:
            whole.add_sparse(record.latencies[series])
    return whole


def test_each_group_has_a_row_of_its_own_over_both_hosts(writer: RunWriter, intervals: list[Interval]) -> None:
    """A percentile over two loads would be of neither; a percentile of one host would be of half the load."""
    assert [(row["step"], row["group"]) for row in writer.rows] == [(1, "small"), (1, "large")]
    assert [row["label"] for row in writer.rows] == ["small: in_flight=1", "large: in_flight=1"]
    assert [(row["loop"], row["settings"]["rate"]) for row in writer.rows] == [("closed", None), ("open", 50.0)]
    for row in writer.rows:
        mine = [each for each in intervals if each.group == row["group"] and each.phase is Phase.STEADY]
        assert row["delivered"] == sum(each.delivered for each in mine)
        assert row["length_ns"] == 3 * 10**9, "two hosts measure side by side"
        for series in (Series.E2E, Series.CONFIRM):
            whole = union(intervals, row["group"], series)
            figures = row["latency"][series]
            assert [figures["count"], figures["max_ns"]] == [whole.total, whole.max_ns]
            assert [figures["p50_ns"], figures["p99_ns"]] == whole.capped_percentiles_ns((50.0, 99.0))


def test_the_directory_keeps_hosts_and_groups_apart_and_reads_back(
    writer: RunWriter, intervals: list[Interval]
) -> None:
    """What was written is what is read: the same intervals, the same histograms, the same rows."""
    run = read_run(writer.path)
    assert run.intervals == [replace(record, latencies={}) for record in intervals] and not run.damaged
    asked = [(r.host, r.group, s, Histogram.of(c).encode()) for r in intervals for s, c in r.latencies.items()]
    assert [(line.host, line.group, line.series, line.payload) for line in run.histograms] == asked
    read = [{name: value for name, value in row.items() if name != "noise"} for row in summarise(run)["steps"]]
    assert read == writer.rows, "but for the noise: these groups were unknown when the writer began"


def test_a_run_of_one_group_has_the_tags_of_before(tmp_path: Path, records: ModuleType) -> None:
    """Tools that cut the tags of yesterday's logs must read today's."""
    log = (records.write_run(tmp_path).path / schema.LATENCY_HLOG).read_text(encoding="utf-8")
    assert "Tag=e2e;step=1;phase=steady;host=local;worker=0,1.000,1.000," in log and "group=" not in log


def test_the_lines_of_a_run_gather_hosts_and_keep_groups_apart(intervals: list[Interval]) -> None:
    """Each line is one group over all workers, whatever order the parts come in."""
    seen: dict[str, list[MergedInterval]] = defaultdict(list)
    merger = IntervalMerger(lambda merged: seen[merged.record.group].append(merged))
    merger.event({"kind": "workers", "workers": 2})
    for record in intervals:
        merger.add(record)
    assert {group: len(lines) for group, lines in seen.items()} == {"small": 4, "large": 4}
    for group, lines in seen.items():
        steady = [line for line in lines if line.record.phase is Phase.STEADY]
        merged = Histogram()
        for line in steady:
            merged.add(line.latencies[Series.E2E])
        assert merged.encode() == union(intervals, group, Series.E2E).encode()


def test_the_cores_of_a_host_count_for_its_own_workers(writer: RunWriter, intervals: list[Interval]) -> None:
    """A hypervisor that takes a core from a host of two took half of it; from a host of eight, an eighth."""
    for record in intervals:
        writer.tally.totals(record).add(replace(record, steal_ns=10**8))
    totals = writer.tally.steady[1, "small"]
    assert totals.steal_share({"east": 2, "west": 8}) == pytest.approx(0.025)
    assert totals.steal_share({}) <= 1.0


def test_background_load_has_rows_of_its_own_and_is_in_no_other(tmp_path: Path, records: ModuleType) -> None:
    """Beside each step of the measured load, or by its own steps; PerfTest's figures leave it out."""
    plan = records.plan(steps=2)
    own = tuple(replace(step, number=number) for number, step in enumerate(plan.steps, start=1))
    beside = Group.background("beside", (QueueSpec(name="b"),), Settings(rate=7.0))
    by_itself = Group(name="by_itself", measured=False, queues=(QueueSpec(name="i"),), steps=own)
    plan = replace(plan, groups=(plan.load, beside, by_itself))
    made = RunWriter(tmp_path, plan, ["perftest"], now_ns=records.STARTED_NS)
    made.legacy = LegacyLatency(records.STARTED_NS)
    for record in records.intervals(plan):
        for group in plan.groups:
            made.interval(replace(record, group=group.name, measured=group.measured))
    made.ledger(records.ledger())
    made.finish("finished", "finished")
    assert [(row["step"], row["group"]) for row in made.rows] == [(1, ""), (2, "")]
    assert [(row["step"], row["label"]) for row in made.background_rows] == [
        *((step.number, f"beside: {step.label}") for step in plan.steps),
        *((step.number, f"by_itself: {step.label}") for step in own),
    ]
    assert [row["settings"]["rate"] for row in made.background_rows[:2]] == [7.0, 7.0]
    assert [row["delivered"] for row in made.background_rows[:2]] == [row["delivered"] for row in made.rows]
    run = read_run(made.path)
    assert run.result is not None and run.result["background"] == made.background_rows
    assert summarise(run)["background"] == made.background_rows
    assert {(each.group, each.measured) for each in run.intervals} == {
        ("", True),
        ("beside", False),
        ("by_itself", False),
    }
    alone = LegacyLatency(records.STARTED_NS)
    for record in records.intervals(plan):
        alone.interval(record)
    assert made.legacy.to_json() == alone.to_json()
