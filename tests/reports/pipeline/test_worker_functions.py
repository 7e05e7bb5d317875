"""The functions that run in Spark's Python workers, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from perftest.metrics.histogram import HIGHEST_NS, LOWEST_NS, SIGNIFICANT_FIGURES, Histogram
from perftest.results import schema as files
from reports.pipeline import histograms, parsing, source
from reports.store import columns
from reports.store.columns import Batches

Rows = list[dict[str, Any]]


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def splits_of(run: Path, file: str, size: int = source.SPLIT_BYTES) -> Iterator[pa.RecordBatch]:
    rows = source.splits(source.open_runs([run]).runs, file, size)
    return iter([pa.RecordBatch.from_pylist(rows, source.SPLIT_SCHEMA)])


def parsed(run: Path, file: str, size: int = source.SPLIT_BYTES) -> tuple[Rows, Rows]:
    """The good records and the damaged lines of a file."""
    parser: dict[str, Callable[[Batches], Batches]] = {
        files.INTERVALS_CSV: parsing.parse_intervals,
        files.LATENCY_HLOG: parsing.parse_histograms,
        files.EVENTS: parsing.parse_events,
        files.HOST: parsing.parse_host_samples,
        files.BROKER: parsing.parse_brokers,
    }
    rows = rows_of(parser[file](splits_of(run, file, size)))
    return [row for row in rows if row["problem"] is None], [row for row in rows if row["problem"] is not None]


@settings(derandomize=True, max_examples=80, deadline=None)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12), max_size=12),
    size=st.integers(1, 40),
    whole=st.booleans(),
)
def test_every_line_is_read_by_exactly_one_split(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int, whole: bool
) -> None:
    """A line read twice counts its messages twice; one read by nobody loses them."""
    content = "\n".join(lines).encode() + (b"\n" if whole else b"")
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(content)
    read = [
        line
        for begin in range(0, len(content), size)
        for line in parsing.read_lines(path, begin, min(begin + size, len(content)))
    ]
    expected = content.decode().split("\n")
    assert [line.text for line in read] == (expected[:-1] if expected[-1] == "" else expected)
    assert [content[line.offset : line.offset + 1].decode(errors="replace")[:1] for line in read if line.text] == [
        line.text.encode()[:1].decode(errors="replace") for line in read if line.text
    ]
    assert [line.whole for line in read[:-1]] == [True] * len(read[:-1])


@pytest.mark.parametrize("size", [source.SPLIT_BYTES, 5000, 700])
@pytest.mark.parametrize("file", [files.INTERVALS_CSV, files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER])
def test_splits_of_any_size_give_the_same_records(
    tmp_path: Path, make_run: Callable[..., Path], file: str, size: int
) -> None:
    """A long run is cut into splits and a short one is not: both must give the same report."""
    run = make_run(tmp_path / "run", steps=(1, 8), steady=2)
    whole, damaged = parsed(run, file)
    assert not damaged
    assert whole and parsed(run, file, size) == (whole, [])


def test_times_of_a_histogram_log_are_exact(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """Histograms meet their intervals by time; doubles of the Unix time are off by 240 ns."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    records, _ = parsed(run, files.LATENCY_HLOG)
    intervals, _ = parsed(run, files.INTERVALS_CSV)
    assert {row["start_ns"] for row in records} == {row["start_ns"] for row in intervals}


def test_logs_that_were_appended_keep_their_own_base_times(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """Logs of several hosts in one file each say what their times are counted from."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1, steady=1, warmup=0)
    log = run / files.LATENCY_HLOG
    first = log.read_text()
    log.write_text(first + first.replace("1795256102.000", "1795256202.000"))
    for size in (source.SPLIT_BYTES, 600):
        records, damaged = parsed(run, files.LATENCY_HLOG, size)
        half = len(records) // 2
        assert not damaged
        assert [row["start_ns"] + 100 * 10**9 for row in records[:half]] == [row["start_ns"] for row in records[half:]]


def edited(run: Path, file: str, edit: Callable[[list[str]], list[str]]) -> None:
    path = run / file
    path.write_text("".join(edit(path.read_text().splitlines(keepends=True))))


def placeless(records: Rows) -> Rows:
    """Records without their place in the file, which damage before them moves."""
    return [{name: value for name, value in row.items() if name != "offset"} for row in records]


INTERVAL_DAMAGE = {
    "a cell too few": (lambda line: line.replace(",steady,", ","), "cells under"),
    "a word for a number": (lambda line: line.replace("1000000000", "soon"), "not a whole number"),
    "an unknown phase": (lambda line: line.replace("steady", "lunch"), "phase is 'lunch'"),
    "a negative count": (lambda line: line.replace(",1000000000,", ",1000000000,-"), "intended is negative"),
    "no length": (lambda line: line.replace("1000000000", "0"), "length_ns is 0"),
    "beyond 64 bits": (lambda line: line.replace("1000000000", "9" * 30), "beyond 64 bits"),
    "an endless cell": (lambda line: "x" * 200_000 + "\n", "not CSV"),
}


@pytest.mark.parametrize("name", INTERVAL_DAMAGE)
def test_damaged_intervals_are_set_aside_with_their_reason(
    tmp_path: Path, make_run: Callable[..., Path], name: str
) -> None:
    """A damaged line must cost that line and be told, not change a rate in silence or end the report."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    before, _ = parsed(run, files.INTERVALS_CSV)
    damage, reason = INTERVAL_DAMAGE[name]
    edited(run, files.INTERVALS_CSV, lambda lines: [*lines[:2], damage(lines[2]), *lines[3:]])
    records, damaged = parsed(run, files.INTERVALS_CSV)
    assert placeless(records) == placeless([before[0], *before[2:]])
    (line,) = damaged
    assert reason in line["problem"]
    assert (run / files.INTERVALS_CSV).read_bytes()[line["offset"] :].decode().startswith(line["raw"])


HLOG_DAMAGE = {
    "payload cut": (lambda line: line[:-9] + "\n", "payload"),
    "no tag": (lambda line: line.split(",", 1)[1], "where a tag"),
    "tag without a step": (lambda line: line.replace(";step=1", ""), "tag"),
    "step zero": (lambda line: line.replace("step=1", "step=0"), "steps count from 1"),
    "start in words": (lambda line: line.replace(",0.500,", ",soon,"), "start is 'soon'"),
    "not finite": (lambda line: line.replace(",0.500,", ",Infinity,"), "start is 'Infinity'"),
    "unknown phase": (lambda line: line.replace("phase=warmup", "phase=lunch"), "phase is 'lunch'"),
    "maximum of another": (
        lambda line: re.sub(r"(Tag=[^,]*,[^,]*,[^,]*),[^,]*", r"\1,9.000000", line),
        "bucket of the maximum",
    ),
    "maximum in words": (lambda line: re.sub(r"(Tag=[^,]*,[^,]*,[^,]*),[^,]*", r"\1,long", line), "maximum is 'long'"),
}


@pytest.mark.parametrize("name", HLOG_DAMAGE)
def test_damaged_histogram_lines_are_set_aside_with_their_reason(
    tmp_path: Path, make_run: Callable[..., Path], name: str
) -> None:
    """A percentile must never be read from half a histogram."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    before, _ = parsed(run, files.LATENCY_HLOG)
    damage, reason = HLOG_DAMAGE[name]
    edited(run, files.LATENCY_HLOG, lambda lines: [*lines[:4], damage(lines[4]), *lines[5:]])
    records, damaged = parsed(run, files.LATENCY_HLOG)
    assert placeless(records) == placeless(before[1:])
    assert [reason in line["problem"] for line in damaged] == [True]


@pytest.mark.parametrize("file", [files.INTERVALS_CSV, files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER])
def test_a_last_line_without_its_end_is_set_aside(tmp_path: Path, make_run: Callable[..., Path], file: str) -> None:
    """A killed run ends in half a line, and half a number looks like a number."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    before, _ = parsed(run, file)
    path = run / file
    path.write_bytes(path.read_bytes()[:-2])
    records, damaged = parsed(run, file)
    assert records == before[:-1]
    assert [line["problem"] for line in damaged] == ["cut short: the line has no end"]


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        (files.EVENTS, '{"kind": "steady"}', "t_ns is missing"),
        (files.EVENTS, '{"t_ns": 1}', "kind is None"),
        (files.EVENTS, '{"t_ns": true, "kind": "steady"}', "t_ns is True"),
        (files.EVENTS, "[1]", "not a JSON object"),
        (files.HOST, '{"t_ns": 1, "host": "a", "load1": "high"}', "load1 is 'high'"),
        (files.BROKER, '{"t_ns": 1, "node": "n", "metrics": 3}', "metrics is not an object"),
        (files.BROKER, '{"t_ns": 1, "node": "n", "cpu_ns": 1.5}', "cpu_ns is 1.5"),
        (files.BROKER, "{'t_ns': 1}", "not JSON"),
        (files.BROKER, "[" * 100_000, "not JSON"),
        (files.HOST, '{"t_ns": 1, "host": "a", "load1": NaN}', "beyond what a double holds"),
        (files.HOST, '{"t_ns": 1, "host": "a", "load1": 1' + "0" * 400 + "}", "beyond what a double holds"),
    ],
)
def test_json_lines_of_the_wrong_shape_are_set_aside(
    tmp_path: Path, make_run: Callable[..., Path], file: str, line: str, reason: str
) -> None:
    """Samples come from brokers and hosts we did not write."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    (run / file).write_text(line + "\n")
    records, damaged = parsed(run, file)
    assert not records
    assert reason in damaged[0]["problem"]


PAYLOADS = pa.schema([("step", pa.int64()), ("series", pa.string()), ("payload", pa.string()), ("max_ns", pa.int64())])


def payload(*values: int) -> str:
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for value in values:
        histogram.record_value(value)
    text: str = histogram.encode().decode()
    return text


def recorded(step: int, *values: int) -> dict[str, Any]:
    return {"step": step, "series": "e2e", "payload": payload(*values), "max_ns": max(values)}


@pytest.mark.parametrize("keys_max", [1, 2, 256])
def test_partial_merge_loses_nothing_when_it_must_let_go(monkeypatch: pytest.MonkeyPatch, keys_max: int) -> None:
    """The bound on memory must never cost a sample."""
    monkeypatch.setattr(histograms, "KEYS_MAX", keys_max)
    rows = [recorded(at % 3, at, 10 * at) for at in range(1, 13)]
    batches = [pa.RecordBatch.from_pylist(rows[:5], PAYLOADS), pa.RecordBatch.from_pylist(rows[5:], PAYLOADS)]
    merged = rows_of(histograms.merge_partial(iter(batches)))
    for step in range(3):
        expected = sorted(value for at in range(1, 13) if at % 3 == step for value in (at, 10 * at))
        parts = [row for row in merged if row["step"] == step]
        table = pa.Table.from_pylist(parts, PAYLOADS)
        (final,) = histograms.merge_group(table).to_pylist()
        assert final == recorded(step, *expected)


def test_the_maximum_is_the_recorded_one_and_no_percentile_exceeds_it() -> None:
    """The top of a bucket is up to a thousandth more than any message took; p99.9 of few samples is the maximum."""
    (row,) = rows_of(histograms.percentiles(iter([pa.RecordBatch.from_pylist([recorded(1, 7, 4_194_305)], PAYLOADS)])))
    assert row["max_ns"] == row["p999_ns"] == row["p99_ns"] == 4_194_305
    decoded = Histogram()
    decoded.add_payload(row["payload"])
    assert decoded.percentiles_ns((99.9,))[0] > 4_194_305
    spectrum = pa.schema([("run_id", pa.string()), *PAYLOADS])
    batch = pa.RecordBatch.from_pylist([{"run_id": "r"} | recorded(1, *range(1, 10), *[4_194_305] * 90)], spectrum)
    points = rows_of(histograms.spectrum(iter([batch])))
    assert {point["value_ns"] for point in points if point["percentile"] > 50} == {4_194_305}


def test_curve_ends_where_samples_end_and_meets_the_table(synthetic_runs: ModuleType) -> None:
    """A curve that goes on past its last sample shows a tail that was never measured."""
    values = np.random.default_rng(3).lognormal(14, 0.5, 2000).astype(np.int64)
    histogram = Histogram()
    histogram.add_payload(synthetic_runs.histogram(values).encode().decode())
    points = {point.percentile: point for point in histograms.curve(histogram, (50.0, 99.0, 99.9, 99.99))}
    assert 99.9 in points and 99.99 not in points
    assert points[99.0].value_ns == histogram.percentiles_ns((99.0,))[0]
    for point in points.values():
        assert point.count_above == int((values > point.value_ns).sum())
        assert 2000 * (100 - point.percentile) / 100 >= 1 - 1e-6
    assert histograms.curve(Histogram()) == []


def test_empty_input_is_no_error() -> None:
    """Spark hands empty partitions to every function; a vectorised one breaks on them first."""
    empty = pa.RecordBatch.from_pylist([], PAYLOADS)
    for function in (histograms.merge_partial, histograms.percentiles):
        assert rows_of(function(iter([]))) == []
        assert rows_of(function(iter([empty]))) == []
    assert rows_of(histograms.spectrum(iter([]))) == []
    assert rows_of(parsing.parse_events(iter([]))) == []


def test_batches_have_the_declared_types(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """Spark fails late and darkly when a batch's types are not those of its schema."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    for batch in parsing.parse_histograms(splits_of(run, files.LATENCY_HLOG)):
        assert batch.schema == parsing.PARSED_HISTOGRAMS
    source_batch = pa.RecordBatch.from_pylist([recorded(1, 7)], PAYLOADS)
    for batch in histograms.percentiles(iter([source_batch])):
        assert batch.schema == histograms.with_summary(PAYLOADS)


def test_worker_functions_need_no_pyspark(synthetic_runs: ModuleType) -> None:
    """Executors unpickle these functions by name; importing pyspark.sql there would cost seconds per worker."""
    for module in (columns, histograms, parsing):
        text = Path(str(module.__file__)).read_text()
        assert "import pyspark" not in text and "from pyspark" not in text
    assert json.loads(json.dumps(list(histograms.SUMMARY.names)))[0] == "count"
