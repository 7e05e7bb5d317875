"""Runs in the formats of other programs: each format is read back by a reader of its own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given
from hypothesis import strategies as st

from hdr_buckets import BUCKET_HIGHEST_NS
from perftest.exporters import perftest_multi, tables
from perftest.exporters.hgrm import distribution
from perftest.exporters.interval_log import log
from perftest.exporters.slots import merged, slots_of
from perftest.foreign import read_results
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase, Series
from perftest.results.reader import Run, judged_run, read_run
from tests.perftest.results import records

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A sweep of three steps, each with a second of warm-up and three of steady time."""
    return judged_run(read_run(records.write_run(tmp_path).path))


def _slowly(histogram: Histogram) -> Iterator[str]:
    """The lines of HdrHistogram's percentile iterator, bucket by bucket."""
    total, below, level = histogram.total, 0, 0.0
    for bucket, count in enumerate(histogram.counts.tolist()):
        below += count
        value = min(int(BUCKET_HIGHEST_NS[bucket]), histogram.max_ns)
        while count and 100.0 * below / total >= level:
            yield f"{value:12.3f} {level / 100:2.12f} {below:10d} {1 / (1 - level / 100):14.2f}"
            halves = 0
            while 100.0 / (100.0 - level) >= 2 ** (halves + 1):
                halves += 1
            level += 100.0 / (5 * 2 ** (halves + 1))
            if below == total:
                break
    yield f"{histogram.max_ns:12.3f} {1:2.12f} {total:10d}"


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300))
def test_a_distribution_has_the_lines_of_hdrhistograms_iterator(values: list[int]) -> None:
    histogram = Histogram.of(records.latency([max(value, 1) for value in values]))
    text = distribution(histogram, 1)
    assert [line for line in text.splitlines()[2:] if not line.startswith("#")] == list(_slowly(histogram))


def test_a_distribution_ends_with_the_figures_of_the_whole() -> None:
    """The plotter skips them; a person does not."""
    values = [1_000_000] * 99 + [9_000_000]
    library = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        library.record_value(value)
    text = distribution(Histogram.of(records.latency(values)), 10**6)
    mean, deviation = library.get_mean_value() / 1e6, library.get_stddev() / 1e6
    assert f"#[Mean    = {mean:12.3f}, StdDeviation   = {deviation:12.3f}]" in text
    assert "#[Max     =        9.000, Total count    =          100]\n#[Buckets =           32, SubBuckets" in text
    assert text.startswith("       Value     Percentile TotalCount 1/(1-Percentile)\n\n       1.000 0.000000000000")


def test_intervals_of_workers_are_one_interval() -> None:
    """Counts added, histograms merged; a worker that ended early leaves the rest to the others."""
    plan = records.plan(steps=2)
    first, second = (records.intervals(plan, worker=name) for name in ("0", "1"))
    second = [replace(each, start_ns=each.start_ns + 3_000_000) for each in second[:-1]]
    slots = slots_of([*first, *second], [])
    assert len(slots) == len(first)
    assert [slot.counts["published"] for slot in slots] == [2 * each.published for each in first[:-1]] + [400]
    assert slots[0].length_ns == 1_003_000_000


def test_histograms_go_to_their_intervals(run: Run) -> None:
    slots = slots_of(run.intervals, run.histograms)
    assert [slot.latencies[Series.E2E].total for slot in slots] == [slot.counts["delivered"] for slot in slots]
    steady = [slot for slot in slots if slot.phase is Phase.STEADY and slot.step == 2]
    assert run.result is not None
    latency = run.result["steps"][1]["latency"]["e2e"]
    assert merged(steady, Series.E2E).capped_percentiles_ns([99.0]) == [latency["p99_ns"]]


def test_an_interval_log_is_read_by_the_library(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "e2e.hlog"
    file.write_text(log(slots_of(run.intervals, run.histograms), [Series.E2E]))
    whole = HdrHistogram(1, 3_600_000_000_000, 3)
    reader = HistogramLogReader(str(file), whole)
    seconds = []
    while (each := reader.get_next_interval_histogram()) is not None:
        seconds.append((each.get_start_time_stamp() // 1000, each.get_tag()))
        whole.add(each)
    reader.close()
    assert whole.get_total_count() == 4 * (200 + 400 + 600)
    first = records.STARTED_NS // 10**9
    assert seconds == [(first + second, "e2e") for second in range(12)]


def test_a_table_has_the_figures_of_the_result(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(tables.step_rows(run)))))
    assert run.result is not None
    assert [row["settings.in_flight"] for row in rows] == ["1", "10", "100"]
    for row, step in zip(rows, run.result["steps"], strict=True):
        assert float(row["latency.e2e.p99_ns"]) == step["latency"]["e2e"]["p99_ns"]
        assert float(row["published_per_s"]) == step["published_per_s"]
        assert row["run.id"] == run.manifest["id"]
    parsed = json.loads(tables.as_json(run, tables.step_rows(run)))
    assert parsed["rows"][0]["label"] == "in_flight=1" and parsed["trust"] and parsed["ledger"]["verdict"] == "ok"


def test_intervals_are_a_table_too(run: Run) -> None:
    rows = tables.interval_rows(run, slots_of(run.intervals, run.histograms))
    assert [row["phase"] for row in rows[:4]] == ["warmup", "steady", "steady", "steady"]
    assert rows[4]["label"] == "in_flight=10" and rows[4]["published"] == 400 == rows[4]["latency.e2e.count"]


def test_perftests_results_are_read_back(run: Run) -> None:
    """By the importer of PerfTestMulti's results: the sweep is a varying scenario of three loads."""
    assert run.result is not None
    slots = slots_of(run.intervals, run.histograms)
    text = perftest_multi.results(run.manifest["plan"], run.result["steps"], slots)
    found = json.loads(text)["flow_control/in_flight"]
    assert found["dimensions"] == ["confirm"] and found["dimension-values"] == {"confirm": ["1", "10", "100"]}
    runs = read_results(text.encode(), "results.json", unit_ns=None, tags={})
    assert [each.settings["in_flight"] for each in runs] == [1, 10, 100]
    assert [[piece.counts["published"] for piece in each.slices] for each in runs] == [[n] * 4 for n in (200, 400, 600)]
    assert all(each.stated for each in runs)


def test_a_run_of_one_step_is_a_simple_scenario(run: Run) -> None:
    """Two steps with the same settings are told apart by their numbers."""
    assert run.result is not None
    plan, rows = {"name": "x", "swept": []}, run.result["steps"]
    (sample, *_) = json.loads(perftest_multi.results(plan, rows[:1], slots_of(run.intervals, [])))["x"]["samples"]
    assert sample == {
        "elapsed": 1000, "send-msg-rate": 200.0, "send-bytes-rate": 0.0, "recv-msg-rate": 200.0, "recv-bytes-rate": 0.0,
    }  # fmt: skip
    assert json.loads(perftest_multi.results(plan, rows, []))["x"]["dimensions"] == ["step"]
