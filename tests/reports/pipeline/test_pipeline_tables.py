"""The published tables against slow, obvious readings of the same files: plain Python and hdrhistogram."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hdrh.histogram import HdrHistogram
from pyspark.sql import SparkSession

from hdr_buckets import HIGHEST_NS, LOWEST_NS, SIGNIFICANT_FIGURES
from perftest.results import schema as files
from perftest.results.reader import judged_run, read_run, trust_of
from perftest.results.writer import RunWriter
from reports.errors import EmptyRunError
from reports.pipeline.run import PipelineResult
from reports.pipeline.spark_jobs import run
from reports.stats.validity import checks, sentence
from reports.store import schema, store
from reports.store.tables import Tables
from tests.perftest.results import records

pytestmark = pytest.mark.spark

SWEEP, OPEN, KILLED, BARE, MIXED, LATE = "run-sweep", "run-open", "run-killed", "run-bare", "run-mixed", "run-late"
SPOILED, GROUPS = "run-spoiled", "run-groups"
NAMES = ("small", "large")
WRITTEN, BESIDE = "run-written", "run-beside"
NOISE = "noise"
OFFSET_NS = 300_000_000
STAGES = ("stage.delivery.fsync", "stage.delivery.total", "stage.confirm.fsync")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> dict[str, Path]:
    """A sweep; an open loop over two hosts whose clocks differ; a killed run, damaged; one with intervals only; one in
    whose first steady interval nothing arrived; one without a usable interval."""
    base = tmp_path_factory.mktemp("runs")
    sweep = make_run(base / SWEEP, run_id=SWEEP, steps=(1, 16, 256), stages=STAGES)
    opened = make_run(
        base / OPEN, run_id=OPEN, steps=(16, 64), workers=3, hosts=2, open_loop=True, clock_offset_ns=OFFSET_NS
    )
    killed = make_run(base / KILLED, run_id=KILLED, steps=(4, 8), killed=True, steady=2, workers=1)
    _damage(killed)
    bare = make_run(base / BARE, run_id=BARE, steps=(4,), workers=1)
    for file in (files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER, files.LEDGER):
        (bare / file).unlink()
    mixed = make_run(base / MIXED, run_id=MIXED, steps=(16, 64), steady=2, open_loop=True, without_rate=(64,))
    late = make_run(base / LATE, run_id=LATE, steps=(4, 16))
    _delay(late)
    spoiled = make_run(base / SPOILED, run_id=SPOILED, steps=(1,), workers=1)
    _spoil(spoiled)
    accounts = {"groups": [{"name": name, "confirmed": len(name), "verdict": "ok"} for name in NAMES]}
    groups = make_run(
        base / GROUPS, run_id=GROUPS, steps=(4, 16), hosts=2, clock_offset_ns=OFFSET_NS, groups=NAMES, ledger=accounts
    )
    write_groups(base / "written").rename(base / WRITTEN)
    found = {SWEEP: sweep, OPEN: opened, KILLED: killed, BARE: bare, MIXED: mixed, LATE: late, SPOILED: spoiled}
    write_beside(base / "beside").rename(base / BESIDE)
    return found | {GROUPS: groups, WRITTEN: base / WRITTEN, BESIDE: base / BESIDE}


def write_groups(base: Path) -> Path:
    """The run directory that the generator's own writer makes of two groups of load on two hosts."""
    writer = RunWriter(base, records.plan(), ["perftest"], now_ns=records.STARTED_NS)
    writer.manifest["id"] = WRITTEN
    writer.manifest["hosts"] = [{"name": host, "cores": 2} for host in ("east", "west")]
    writer.manifest["plan"]["groups"] = [{"name": name, "steps": writer.manifest["plan"]["steps"]} for name in NAMES]
    for at, (host, group) in enumerate((host, group) for host in ("east", "west") for group in NAMES):
        for record in records.intervals(writer.plan, seed=at, messages=100 * (at + 1)):
            writer.interval(replace(record, host=host, group=group))
    writer.ledger(records.ledger())
    writer.finish("finished", "finished")
    return writer.path


def write_beside(base: Path) -> Path:
    """The same of a measured load with a background load that changes its settings once."""
    writer = RunWriter(base, records.plan(), ["perftest"], now_ns=records.STARTED_NS)
    writer.manifest["id"] = BESIDE
    steps = writer.manifest["plan"]["steps"]
    own = [{**step, "label": f"rate={100 * step['number']}"} for step in steps[:2]]
    writer.manifest["plan"]["background"] = [{"name": NOISE, "steps": own}]
    for record in records.intervals(writer.plan, messages=100):
        writer.interval(record)
    for record in records.intervals(writer.plan, seed=2, messages=300):
        writer.interval(replace(record, group=NOISE, worker=f"{NOISE} 0", measured=False, step=min(record.step, 2)))
    writer.ledger(records.ledger() | {"background": [{"name": NOISE, "published": 7, "verdict": "ok"}]})
    writer.finish("finished", "finished")
    return writer.path


def _spoil(run: Path) -> None:
    path = run / files.INTERVALS_CSV
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(line.replace(",1000000000,", ",?,") for line in rest))


def _delay(late: Path) -> None:
    """The histograms of the second that begins 1.5 s after the start, the first steady one, are not there."""
    log = late / files.LATENCY_HLOG
    lines = log.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not re.match(r"Tag=[^,]*phase=steady[^,]*,1\.50", line)]
    assert len(kept) < len(lines)
    log.write_text("".join(kept))


def _damage(killed: Path) -> None:
    """As a kill leaves it: the last lines cut; and one payload spoiled in the middle."""
    for file in (files.INTERVALS_CSV, files.EVENTS, files.HOST, files.BROKER):
        path = killed / file
        path.write_bytes(path.read_bytes()[:-3])
    log = killed / files.LATENCY_HLOG
    lines = log.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "e2e;step=1;phase=steady" in line)
    lines[at] = lines[at][:-40] + "\n"
    log.write_text("".join(lines))


@pytest.fixture(scope="session")
def published(
    spark: SparkSession, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[PipelineResult, Tables]:
    """All runs through the pipeline at once."""
    target = tmp_path_factory.mktemp("store")
    result = run(spark, list(runs.values()), target)
    return result, store.read_tables(target)


Log = list[tuple[dict[str, str], str, str]]


def log_of(path: Path, part: int = 1) -> Log:
    """(tag, start, payload) of every line, read the slow way; ``part`` 3 is the maximum instead of the start."""
    found = []
    for line in (path / files.LATENCY_HLOG).read_text().splitlines():
        cells = line.split(",")
        if cells[0].startswith("Tag="):
            series, *pairs = cells[0].removeprefix("Tag=").split(";")
            found.append((dict(pair.split("=") for pair in pairs) | {"series": series}, cells[part], cells[4]))
    return found


def union(payloads: list[str]) -> HdrHistogram:
    whole = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for payload in payloads:
        whole.decode_and_add(payload)
    return whole


@pytest.mark.parametrize("run_id", [SWEEP, OPEN])
def test_merged_histograms_are_those_of_hdrhistogram(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path], run_id: str
) -> None:
    """Everything a report says of latency rests on this: the same octets as decode_and_add over the union."""
    expected: dict[tuple[int, str], list[str]] = defaultdict(list)
    largest: dict[tuple[int, str], int] = defaultdict(int)
    for tag, maximum, payload in log_of(runs[run_id], part=3):
        if tag["phase"] == "steady" and tag["series"] not in STAGES:
            for step in (int(tag["step"]), schema.WHOLE_RUN):
                expected[step, tag["series"]].append(payload)
                largest[step, tag["series"]] = max(largest[step, tag["series"]], round(float(maximum) * 1e6))
    latency = published[1].of(run_id).latency
    assert {(row.step, row.series) for row in latency.itertuples()} == set(expected)
    for _, row in latency.iterrows():
        whole = union(expected[row["step"], row["series"]])
        assert row["payload"] == whole.encode().decode()
        assert row["count"] == whole.get_total_count()
        assert row["max_ns"] == largest[row["step"], row["series"]] <= whole.get_max_value()
        for name, percentile in schema.PERCENTILES.items():
            assert row[f"{name}_ns"] == min(whole.get_value_at_percentile(percentile), row["max_ns"])


def interval_rows(path: Path) -> list[dict[str, str]]:
    with (path / files.INTERVALS_CSV).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("run_id", [SWEEP, OPEN])
def test_step_rates_are_counts_over_measured_time(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path], run_id: str
) -> None:
    """Warm-up and drain must not dilute a rate, and workers must add up."""
    rows = [row for row in interval_rows(runs[run_id]) if row["phase"] == "steady"]
    for _, step in published[1].of(run_id).steps.iterrows():
        mine = [row for row in rows if int(row["step"]) == step["step"]]
        time_s = len(mine) / len({row["worker"] for row in mine})
        assert step["length_s"] == time_s and step["intervals"] == len(mine)
        for name in ("intended", "published", "confirmed", "delivered"):
            count = sum(int(row[name]) for row in mine)
            assert step[name] == count and step[f"{name}_per_s"] == pytest.approx(count / time_s)
        cpu_us = sum(int(row["worker_cpu_ns"]) for row in mine) / 1000
        assert step["worker_cpu_us_per_message"] == pytest.approx(cpu_us / step["delivered"])
        assert step["loop_lag_ns"] == max(int(row["loop_lag_ns"]) for row in mine)
        assert step["gc_collections"] == sum(int(row["gc_collections"]) for row in mine)
        assert step["gc_pause_ns"] == max(int(row["gc_pause_ns"]) for row in mine)
        bound_ns = max(int(row["clock_bound_ns"]) for row in mine)
        if not bound_ns:
            assert step[["clock_bound_ns", "below_bound", "beyond_bound"]].isna().all()
        else:
            assert step["clock_bound_ns"] == bound_ns
            assert step["below_bound"] == sum(int(row["below_bound"]) for row in mine) > step["below_zero"] > 0
        assert step["worker_wait_share"] == pytest.approx(0.01)
        assert step["steal_share"] == pytest.approx(0.0025), "5 ms a second, of two cores"


@pytest.mark.parametrize("run_id", [SWEEP, OPEN, MIXED, KILLED])
def test_terminal_and_page_judge_a_run_alike(
    run_id: str, runs: dict[str, Path], published: tuple[PipelineResult, Tables]
) -> None:
    """From the same files, by two ways: the reader's result, and the pipeline's tables. Neither looks into the list
    that the run recorded."""
    tables = published[1].of(run_id)
    derived = replace(tables, runs=tables.runs.assign(manifest=_without_list(tables.runs["manifest"][0])))
    recorded = read_run(runs[run_id])
    recorded.manifest.pop("trust", None)
    in_terminal = [replace(check, text=sentence(check.text)) for check in trust_of(judged_run(recorded))]
    assert checks(derived) == in_terminal


def _without_list(manifest: str) -> str:
    return json.dumps({name: value for name, value in json.loads(manifest).items() if name != "trust"})


def test_steps_carry_settings_and_latencies(published: tuple[PipelineResult, Tables]) -> None:
    """The knee curve is drawn from these columns alone."""
    tables = published[1]
    sweep, opened = tables.of(SWEEP), tables.of(OPEN)
    assert list(sweep.steps["in_flight"]) == [1, 16, 256] and sweep.steps["rate"].isna().all()
    assert list(sweep.steps["label"]) == ["in_flight=1", "in_flight=16", "in_flight=256"]
    assert json.loads(sweep.steps["settings"][0])["in_flight"] == 1
    assert set(sweep.steps["e2e_series"]) == {"e2e"} and sweep.steps["lag_p99_ns"].isna().all()
    assert set(opened.steps["e2e_series"]) == {"e2e_sched"} and (opened.steps["e2e_sched_p99_ns"] > 0).all()
    mixed = tables.of(MIXED)
    assert [run.runs["loop"].item() for run in (sweep, opened, mixed)] == ["closed", "open", "mixed"]
    assert list(mixed.steps["e2e_series"]) == ["e2e_sched", "e2e"]
    assert list(mixed.steps["confirm_series"]) == ["confirm_sched", "confirm"]
    for frame in (sweep, opened):
        by_series = frame.latency[frame.latency["series"] == "confirm"].set_index("step")
        assert list(frame.steps["confirm_p99_ns"]) == list(by_series.loc[frame.steps["step"], "p99_ns"])


def test_broker_figures_are_differences(published: tuple[PipelineResult, Tables]) -> None:
    """The model spends 4 µs per node and message and writes 1120 octets of WAL: three nodes, three times that."""
    steps = published[1].of(SWEEP).steps
    assert steps["broker_cpu_us_per_message"].tolist() == pytest.approx([12.0] * 3, rel=0.03)
    assert steps["wal_bytes_per_message"].tolist() == pytest.approx([3360.0] * 3, rel=0.03)
    brokers = published[1].of(SWEEP).brokers
    first = brokers.groupby("node").head(1)
    assert len(first) == 3 and first["cpu_share"].isna().all()
    assert brokers.drop(first.index)["cpu_share"].notna().all()


def test_the_timeline_adds_up_to_the_steps(published: tuple[PipelineResult, Tables]) -> None:
    """A slot that is lost or counted twice shows as a dent in the chart that never was."""
    for run_id in (SWEEP, OPEN):
        tables = published[1].of(run_id)
        steady = tables.timeline[tables.timeline["phase"] == "steady"]
        for _, step in tables.steps.iterrows():
            mine = steady[steady["step"] == step["step"]]
            assert list(mine["slot"]) == [0, 1, 2, 3]
            assert (mine["delivered_per_s"] * mine["length_s"]).sum() == pytest.approx(step["delivered"])
            assert mine["e2e_count"].sum() == step["e2e_count"]
            assert (mine["e2e_max_ns"] <= step["e2e_max_ns"]).all() and mine["e2e_max_ns"].max() == step["e2e_max_ns"]


@pytest.mark.parametrize("run_id", [SWEEP, OPEN, LATE])
def test_a_slot_has_the_histograms_of_its_own_intervals(published: tuple[PipelineResult, Tables], run_id: str) -> None:
    """The model counts a latency for each delivery. Slots of histograms that began with the first histogram would show
    each second's latencies a second too early."""
    timeline = published[1].of(run_id).timeline
    deliveries = timeline["delivered_per_s"] * timeline["length_s"]
    missing = timeline["e2e_count"].isna()
    assert missing.sum() == (1 if run_id == LATE else 0)
    assert timeline["e2e_count"][~missing].tolist() == pytest.approx(deliveries[~missing].tolist())
    assert missing[(timeline["step"] == 1) & (timeline["phase"] == "steady") & (timeline["slot"] == 0)].tolist() == [
        run_id == LATE
    ]


def test_slots_merge_workers_exactly(published: tuple[PipelineResult, Tables], runs: dict[str, Path]) -> None:
    """The band of a timeline is of all workers' samples together, not a mean of their percentiles."""
    slot = published[1].of(OPEN).timeline.query("step == 2 and phase == 'steady' and slot == 1").iloc[0]
    mine = [
        (float(start), payload)
        for tag, start, payload in log_of(runs[OPEN])
        if (tag["series"], tag["step"], tag["phase"]) == ("e2e_sched", "2", "steady")
    ]
    origin = min(start for start, _ in mine)
    whole = union([payload for start, payload in mine if 1.0 <= start + 0.5 - origin < 2.0])
    assert slot["workers"] == 3 and slot["e2e_sched_count"] == whole.get_total_count()
    assert slot["e2e_sched_p99_ns"] == whole.get_value_at_percentile(99)


def test_hosts_have_one_clock(published: tuple[PipelineResult, Tables]) -> None:
    """They record the coordinator's time, also where their own clocks are ahead."""
    tables = published[1].of(OPEN)
    starts = tables.intervals.groupby(["step", "phase", "slot"])["start_ns"].agg(["min", "max"])
    assert ((starts["max"] - starts["min"]) < 10_000_000).all()
    assert list(tables.hosts["clock_offset_ns"]) == [0, OFFSET_NS]
    assert tables.runs["clock_bound_ns"][0] == 200_000 and tables.runs["host_count"][0] == 2


def test_spectrum_follows_the_merged_histogram(published: tuple[PipelineResult, Tables]) -> None:
    """Points beyond what the samples support are to be drawn hollow, so they must be known."""
    tables = published[1].of(SWEEP)
    latency = tables.latency.set_index(["step", "series"])
    for (step, series), points in tables.spectrum.groupby(["step", "series"]):
        row = latency.loc[(step, series)]
        assert points["percentile"].is_monotonic_increasing and points["value_ns"].is_monotonic_increasing
        assert points.set_index("percentile").loc[99.0, "value_ns"] == row["p99_ns"]
        beyond = row["count"] * (100 - points["percentile"]) / 100
        assert (points["supported"] == (beyond >= schema.SAMPLES_ABOVE - 1e-6)).all()
        assert points["percentile"].max() < 100 and not points["supported"].all()


def test_a_killed_run_is_reported_with_what_it_has(published: tuple[PipelineResult, Tables]) -> None:
    """The run somebody had to kill is the one they want to see."""
    tables = published[1].of(KILLED)
    row = tables.runs.iloc[0]
    assert row["state"] == "running" and pd.isna(row["exit_code"])
    assert row["ended_ns"] == (tables.intervals["start_ns"] + tables.intervals["length_ns"]).max()
    assert tables.ledger.empty and len(tables.steps) == 2
    assert (tables.steps["delivered"] > 0).all()


def test_damage_is_quarantined_and_only_damage_is_missing(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path]
) -> None:
    """Every line is either in a table or in quarantine, with its place and its reason."""
    tables = published[1].of(KILLED)
    assert sorted(tables.quarantine["file"]) == sorted(
        [files.BROKER, files.EVENTS, files.HOST, files.INTERVALS_CSV, files.LATENCY_HLOG]
    )
    for _, line in tables.quarantine.iterrows():
        content = (runs[KILLED] / line["file"]).read_bytes()[line["offset"] :]
        assert content.decode().startswith(line["raw"]) and line["reason"]
    assert len(tables.intervals) == len(interval_rows(runs[KILLED])) - 1
    good = [payload for tag, _, payload in log_of(runs[KILLED]) if tag["series"] == "e2e" and tag["step"] == "1"]
    step = tables.latency.query("step == 1 and series == 'e2e'").iloc[0]
    assert step["payload"] == union([good[-1]]).encode().decode()
    assert published[1].of(SWEEP).quarantine.empty


def test_events_and_samples_are_placed_in_time(published: tuple[PipelineResult, Tables]) -> None:
    """Marks on the timeline must lie where things happened."""
    tables = published[1].of(SWEEP)
    blocked = tables.events[tables.events["kind"] == "blocked"].iloc[0]
    assert blocked["text"].startswith("the broker blocked") and blocked["worker"] == "0"
    began = tables.events[tables.events["kind"] == "step_started"]["t_s"].tolist()
    assert began == [0.5, 5.5, 10.5]
    assert tables.host_samples["t_s"].iloc[0] == 1.5
    assert (tables.steps["host_cpu_percent"] - 35).abs().max() < 10


def test_stages_are_merged_over_nodes_and_kept_apart_from_latencies(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path]
) -> None:
    """Where the time went is told by all nodes together; it is no latency of a client."""
    tables = published[1].of(SWEEP)
    oracle: dict[tuple[str, int], HdrHistogram] = {}
    for line in (runs[SWEEP] / files.LATENCY_HLOG).read_text().splitlines():
        if match := re.match(r"Tag=(stage[^;]*);step=(\d+).*,(\S+)$", line):
            key = match[1], int(match[2])
            oracle.setdefault(key, HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)).decode_and_add(match[3])
    found = {
        (f"stage.{row['chain']}.{row['stage']}", int(row["step"])): (row["count"], row["p99_ns"], row["payload"])
        for _, row in tables.stages.iterrows()
    }
    assert len(found) == 9
    assert found == {
        key: (merged.get_total_count(), merged.get_value_at_percentile(99), merged.encode().decode())
        for key, merged in oracle.items()
    }
    assert set(tables.stages["label"]) == set(tables.steps["label"])
    for name in ("latency", "spectrum"):
        assert not getattr(tables, name)["series"].str.startswith("stage").any()
    assert published[1].of(OPEN).stages.empty


def test_no_column_that_must_have_a_value_is_empty(published: tuple[PipelineResult, Tables]) -> None:
    """The pages rely on it instead of checking every cell."""
    for table in schema.TABLES:
        frame = getattr(published[1], table.name)
        for column in table.columns:
            assert column.nullable or frame[column.name].notna().all(), (table.name, column.name)
        assert published[0].rows[table.name] == len(frame)


def test_publishing_again_replaces_one_run(
    spark: SparkSession, runs: dict[str, Path], published: tuple[PipelineResult, Tables]
) -> None:
    """Reporting a run again after more of it was collected must not touch the others, nor double it."""
    before = published[1]
    again = run(spark, [runs[KILLED]], Path(published[0].store))
    after = store.read_tables(published[0].store)
    assert again.version > published[0].version
    for table in schema.TABLES:
        left, right = getattr(before, table.name), getattr(after, table.name)
        keys = list(table.order)
        pd.testing.assert_frame_equal(_sorted(left, keys), _sorted(right, keys))


def _sorted(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return frame.sort_values([*keys, *[name for name in frame.columns if name not in keys]], ignore_index=True)


def test_a_run_of_damaged_intervals_is_named_and_left_out(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path]
) -> None:
    """One spoiled run must not end the report of five others."""
    result, tables = published
    reason = f"the run {SPOILED}: every interval is damaged"
    assert [(each.source, each.reason) for each in result.left_out] == [(str(runs[SPOILED]), reason)]
    assert set(result.runs) == set(tables.runs["run_id"]) == set(runs) - {SPOILED}


def test_a_run_of_damaged_intervals_alone_is_refused(
    spark: SparkSession, tmp_path: Path, runs: dict[str, Path]
) -> None:
    """A page without a single figure would look like a result; the store must stay as it was."""
    with pytest.raises(EmptyRunError, match="run-spoiled: every interval is damaged"):
        run(spark, [runs[SPOILED]], tmp_path / "store")
    assert not store.Store.open(tmp_path / "store").runs


def test_a_run_without_samples_or_histograms_is_reported(published: tuple[PipelineResult, Tables]) -> None:
    """A foreign broker gives no samples, and publishing alone gives no latency: the rates are there all the same."""
    tables = published[1].of(BARE)
    assert len(tables.steps) == 1 and tables.steps["e2e_p99_ns"].isna().all()
    assert tables.steps["broker_cpu_us_per_message"].isna().all() and tables.steps["published"].iloc[0] > 0
    assert tables.latency.empty and tables.events.empty and len(tables.timeline) == 6


def test_groups_of_load_on_two_hosts_are_kept_apart_and_merged_exactly(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path]
) -> None:
    """Small and large messages side by side: one percentile over both would be of neither."""
    tables = published[1].of(GROUPS)
    payloads: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    delivered: dict[tuple[int, str], int] = defaultdict(int)
    for tag, _, payload in log_of(runs[GROUPS]):
        if tag["phase"] == "steady":
            for step in (int(tag["step"]), schema.WHOLE_RUN):
                payloads[step, tag["group"], tag["series"]].append(payload)
    with (runs[GROUPS] / files.INTERVALS_CSV).open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            delivered[int(row["step"]), row["group"]] += int(row["delivered"]) if row["phase"] == "steady" else 0
    found = {(row.step, row.group, row.series): row.payload for row in tables.latency.itertuples()}
    assert found == {key: union(parts).encode().decode() for key, parts in payloads.items()}
    assert {(row.step, row.group): row.delivered for row in tables.steps.itertuples()} == delivered
    assert (tables.steps["workers"] == 2).all() and tables.steps["broker_cpu_us_per_message"].isna().all()
    assert (tables.steps["broker_cpu_share"] > 0).all(), "of both groups together"
    assert set(tables.steps["label"]) == {"in_flight=4", "in_flight=16"} and tables.steps["in_flight"].notna().all()
    slots = tables.timeline.groupby(["group", "step", "phase"]).size().unstack("group")
    assert (slots["small"] == slots["large"]).all()
    assert (
        dict(zip(tables.ledger["group"], tables.ledger["confirmed"], strict=True)).items()
        >= {name: len(name) for name in NAMES}.items()
    )
    one = published[1].of(GROUPS, "small")
    assert {*one.steps["group"], *one.intervals["group"], *one.spectrum["group"], *one.ledger["group"]} == {"small"}
    assert [load for load in published[1].loads if load[0] == GROUPS] == [(GROUPS, name) for name in sorted(NAMES)]


def test_the_report_of_groups_on_two_hosts_has_the_figures_of_the_generators_summary(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path]
) -> None:
    """Writer, reader and pipeline merge the same intervals: what the terminal said is what the page says."""
    run = read_run(runs[WRITTEN])
    tables = published[1].of(WRITTEN)
    assert {line.host for line in run.histograms} == {"east", "west"}
    assert (tables.steps["workers"] == 2).all(), "a worker named 0 on each host"
    rows = {(row["step"], row["group"]): row for row in (run.result or {})["steps"]}
    steps = {(row["step"], row["group"]): row for _, row in tables.steps.iterrows()}
    assert rows.keys() == steps.keys() == {(step, group) for step in (1, 2, 3) for group in NAMES}
    for place, row in rows.items():
        for name in ("published", "delivered", "published_per_s", "delivered_per_s"):
            assert steps[place][name] == pytest.approx(row[name], abs=5e-4)
        for series, figures in row["latency"].items():
            of_table = {name: steps[place][f"{series}_{name}"] for name in figures}
            assert of_table == pytest.approx(figures, abs=0.05)


def test_a_background_load_has_rows_of_its_own_and_is_in_no_figure_of_the_measured_load(
    published: tuple[PipelineResult, Tables], runs: dict[str, Path]
) -> None:
    """What the terminal said of both loads is what the tables say of both."""
    run, tables = read_run(runs[BESIDE]), published[1].of(BESIDE)
    assert published[1].background_loads == [(BESIDE, NOISE)] and (BESIDE, NOISE) not in published[1].loads
    steps = {(row["step"], row["group"]): row for _, row in tables.steps.iterrows()}
    result = run.result or {}
    rows = {(row["step"], row["group"]): row for row in result["background"]}
    rows |= {(row["step"], ""): row for row in result["steps"]}
    assert rows.keys() == steps.keys() == {(1, NOISE), (2, NOISE), (1, ""), (2, ""), (3, "")}
    for place, row in rows.items():
        for name in ("published", "delivered", "published_per_s", "delivered_per_s"):
            assert steps[place][name] == pytest.approx(row[name], abs=5e-4)
        for series, figures in row["latency"].items():
            of_table = {name: steps[place][f"{series}_{name}"] for name in figures}
            assert of_table == pytest.approx(figures, abs=0.05)
    assert {row.label for row in tables.steps.itertuples() if row.group == NOISE} == {"rate=100", "rate=200"}
    assert tables.steps["broker_cpu_us_per_message"].isna().all(), "nobody can tell for which load the broker worked"
    payloads: dict[str, list[str]] = defaultdict(list)
    for tag, _, payload in log_of(runs[BESIDE]):
        if tag["phase"] == "steady" and tag["series"] == "e2e":
            payloads[tag.get("group", "")].append(payload)
    whole = tables.latency[(tables.latency["step"] == schema.WHOLE_RUN) & (tables.latency["series"] == "e2e")]
    assert {row.group: row.payload for row in whole.itertuples()} == {
        group: union(parts).encode().decode() for group, parts in payloads.items()
    }
    assert payloads.keys() == {"", NOISE}
    published_by = dict(zip(tables.ledger["group"], tables.ledger["published"], strict=True))
    assert published_by[NOISE] == 7


def test_writes_are_told_by_purpose(published: tuple[PipelineResult, Tables]) -> None:
    """A drive serves several purposes; a sum over all would not say which of them it waits for."""
    tables = published[1]
    mine = tables.writes[tables.writes["run_id"] == SWEEP]
    assert set(mine["purpose"]) == {"wal", "segment", "meta"}, "this node tells nothing of classic and snapshot"
    assert mine.loc[mine["purpose"] == "meta", ["bytes_per_s", "sync_mean_ns"]].isna().all(axis=None)
    for purpose, sync_ns, octets in (("wal", 3e6, 1.0), ("segment", 5e6, 0.25)):
        rows = mine[mine["purpose"] == purpose]
        brokers = tables.brokers[tables.brokers["run_id"] == SWEEP]
        joined = rows.merge(brokers[["node", "t_ns", "wal_bytes_per_s"]], on=["node", "t_ns"])
        assert len(joined) == len(rows) == brokers["length_s"].notna().sum()
        assert joined["bytes_per_s"].tolist() == pytest.approx((joined["wal_bytes_per_s"] * octets).tolist(), rel=1e-3)
        assert rows["sync_mean_ns"].dropna().unique().tolist() == [sync_ns]
    assert tables.writes[tables.writes["run_id"] == BARE].empty
