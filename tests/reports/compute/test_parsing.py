"""Lines of the files of a run, damaged and whole."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.metrics.histogram import Histogram
from perftest.results import schema as files
from reports.compute import histograms, parsing
from reports.compute.run import damaged, parsed_lines, slotted, usable
from reports.compute.run_files import READ, RunFiles, open_run

Rows = list[dict[str, Any]]


def opened(run: Path) -> RunFiles:
    """The files of a run directory, as the pipeline hands them over."""
    contents = {name: (run / name).read_bytes() for name in READ if (run / name).is_file()}
    return RunFiles(source=str(run), contents=contents)


def parsed(run: Path, file: str) -> tuple[Rows, Rows]:
    """The good records and the damaged lines of a file; histograms with what :func:`merge_run` says of payloads."""
    files_of_run = opened(run)
    head = open_run(files_of_run)
    records = parsed_lines(head, file, files_of_run.contents[file])
    good, bad = usable(records).to_pylist(), damaged(records)
    if file == files.LATENCY_HLOG:
        spoiled = histograms.merge_run(slotted(usable(records), {}, 10**9), spread=False).damaged
        bad += [each._asdict() for each in spoiled]
        good = [row for row in good if row["offset"] not in {each.offset for each in spoiled}]
    return good, bad


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12), max_size=12),
    whole=st.booleans(),
)
def test_every_line_is_read_once_with_its_place(lines: list[str], whole: bool) -> None:
    """A line read twice counts its messages twice; a line read by nobody loses them."""
    content = "\n".join(lines).encode() + (b"\n" if whole else b"")
    read = list(parsing.lines_of(content))
    expected = content.decode().split("\n")
    assert [line.octets.decode() for line in read] == (expected[:-1] if expected[-1] == "" else expected)
    assert all(content[line.offset :].startswith(line.octets) for line in read)
    assert [line.whole for line in read[:-1]] == [True] * len(read[:-1])


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
    records, bad = parsed(run, files.LATENCY_HLOG)
    half = len(records) // 2
    assert not bad
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
    records, bad = parsed(run, files.INTERVALS_CSV)
    assert placeless(records) == placeless([before[0], *before[2:]])
    (line,) = bad
    assert reason in line["reason"]
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
    records, bad = parsed(run, files.LATENCY_HLOG)
    assert placeless(records) == placeless(before[1:])
    assert [reason in line["reason"] for line in bad] == [True]


@pytest.mark.parametrize("file", [files.INTERVALS_CSV, files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER])
def test_a_last_line_without_its_end_is_set_aside(tmp_path: Path, make_run: Callable[..., Path], file: str) -> None:
    """A killed run ends in half a line, and half a number looks like a number."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    before, _ = parsed(run, file)
    path = run / file
    path.write_bytes(path.read_bytes()[:-2])
    records, bad = parsed(run, file)
    assert records == before[:-1]
    assert [line["reason"] for line in bad] == ["cut short: the line has no end"]


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
    records, bad = parsed(run, file)
    assert not records
    assert reason in bad[0]["reason"]


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


def test_a_file_without_lines_has_no_records(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """A run that failed at its start has empty files."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    for file in (files.LATENCY_HLOG, files.EVENTS, files.HOST, files.BROKER):
        (run / file).write_bytes(b"")
        assert parsed(run, file) == ([], [])


def test_half_a_character_is_set_aside(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """JSON can name half of a character; no table can hold it."""
    run = make_run(tmp_path / "run", steps=(1,), workers=1)
    (run / files.EVENTS).write_text('{"t_ns": 1, "kind": "\\ud800"}\n{"t_ns": 1, "kind": "\\ud83d\\ude00"}\n')
    records, bad = parsed(run, files.EVENTS)
    assert [row["kind"] for row in records] == ["\U0001f600"]
    assert "half a character" in bad[0]["reason"]


def test_worker_functions_need_no_pyspark() -> None:
    """Executors import these modules by name; importing pyspark.sql there would cost seconds per worker."""
    names = "reports.pipeline.tasks, reports.pipeline.large_run_parts, reports.pipeline.lots"
    script = f"import sys, {names}; print(sorted({{'pyspark', 'pandas', 'deltalake'}} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
