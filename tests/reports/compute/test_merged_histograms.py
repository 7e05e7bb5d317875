"""Merged histograms against hdrhistogram itself, on recorded and on generated data, and on data that is damaged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from hdr_buckets import HIGHEST_NS, LOWEST_NS, SIGNIFICANT_FIGURES
from perftest.results import schema as files
from reports.compute import histograms
from reports.compute.run import run_tables
from reports.compute.run_files import READ, RunFiles
from reports.store.schema import PERCENTILES, TABLES, WHOLE_RUN
from tests.examples import dear

HOSTS, SERIES = ("a", "b"), ("confirm", "e2e")


def union(payloads: list[str]) -> HdrHistogram:
    whole = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for payload in payloads:
        whole.decode_and_add(payload)
    return whole


def recorded(values: np.ndarray, at: int, synthetic_runs: ModuleType) -> dict[str, Any]:
    """The histogram of the values, in a place that follows from ``at``."""
    place = {"step": 1 + at % 2, "group": "", "phase": "steady", "slot": at // 4, "offset": at, "raw": ""}
    payload = synthetic_runs.histogram(values).encode().decode()
    return place | {
        "series": SERIES[at % 2],
        "host": HOSTS[at // 2 % 2],
        "max_ns": int(values.max()),
        "payload": payload,
    }


@dear(25)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 24), max_size=4))
def test_generated_histograms_merge_to_those_of_hdrhistogram(
    synthetic_runs: ModuleType, seed: int, cuts: list[int]
) -> None:
    """However the histograms of a run are cut into parts, which are merged first."""
    random = np.random.default_rng(seed)
    values = [random.lognormal(random.uniform(0, 27), 1.0, 40).astype(np.int64) for _ in range(24)]
    rows = [recorded(np.clip(each, 1, HIGHEST_NS), at, synthetic_runs) for at, each in enumerate(values)]
    edges = [0, *sorted(cuts), len(rows)]
    parts = [rows[begin:end] for begin, end in pairwise(edges)]
    tables = [histograms.merge_part(pa.Table.from_pylist(part, histograms.SLOTTED))[0] for part in parts]
    merged = histograms.merge_run(pa.concat_tables(tables), spread=True)
    expected: dict[Any, list[str]] = defaultdict(list)
    for row in rows:
        expected[row["step"], "", row["series"]].append(row["payload"])
        expected[row["step"], "", row["host"], row["series"]].append(row["payload"])
    found = {**merged.steps, **merged.hosts}
    assert {key: each.encode() for key, each in found.items()} == {
        key: union(payloads).encode().decode() for key, payloads in expected.items()
    }
    for row in histograms.latency_rows(merged):
        if row["step"] != WHOLE_RUN:
            oracle = union(expected[row["step"], "", row["series"]])
            assert row["count"] == oracle.get_total_count() and row["mean_ns"] == oracle.get_mean_value()
            for name, percentile in PERCENTILES.items():
                assert row[f"{name}_ns"] == min(oracle.get_value_at_percentile(percentile), row["max_ns"])
    assert not merged.damaged


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> RunFiles:
    """A run on two hosts."""
    path = make_run(tmp_path_factory.mktemp("run") / "run", steps=(1, 8), steady=2, hosts=2)
    contents = {name: (path / name).read_bytes() for name in READ if (path / name).is_file()}
    return RunFiles(source=str(path), contents=contents)


@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=6), st.integers(0, 40)), min_size=1, max_size=8)
)
def test_a_damaged_histogram_log_stops_no_report(run: RunFiles, edits: list[tuple[int, bytes, int]]) -> None:
    """Octets of the log replaced, inserted and removed: every table is there, and damage is told with its place."""
    log = run.contents[files.LATENCY_HLOG]
    for at, octets, removed in edits:
        place = at % len(log)
        log = log[:place] + octets + log[place + removed :]
    tables = run_tables(RunFiles(source="run", contents={**run.contents, files.LATENCY_HLOG: log}))
    assert tables.keys() == {table.name for table in TABLES}
    for row in tables["quarantine"].to_pylist():
        text = log[row["offset"] :].split(b"\n")[0].rstrip(b"\r").decode("utf-8", errors="replace")
        assert row["file"] == files.LATENCY_HLOG and row["reason"] and text.startswith(row["raw"])


def test_the_order_of_lines_changes_no_table_but_of_events(run: RunFiles) -> None:
    """Lines of several hosts come in any order; the figures must not depend on the order."""
    expected = run_tables(run)
    turned = dict(run.contents)
    for name in (files.INTERVALS_CSV, files.LATENCY_HLOG, files.HOST, files.BROKER):
        head = {files.INTERVALS_CSV: 1, files.LATENCY_HLOG: 4}.get(name, 0)
        lines = turned[name].splitlines(keepends=True)
        turned[name] = b"".join([*lines[:head], *reversed(lines[head:])])
    found = run_tables(RunFiles(source=run.source, contents=turned))
    for name, table in expected.items():
        assert (
            found[name]
            .sort_by([(each, "ascending") for each in table.column_names])
            .equals(table.sort_by([(each, "ascending") for each in table.column_names]))
        ), name


def test_a_damaged_payload_costs_no_more_than_itself(run: RunFiles) -> None:
    """The report of a long run must not end for one octet."""
    lines = run.contents[files.LATENCY_HLOG].splitlines(keepends=True)
    spoiled = b"".join([*lines[:4], lines[4][:-20] + b"\n", *lines[5:]])
    expected = run_tables(
        RunFiles(source="run", contents={**run.contents, files.LATENCY_HLOG: b"".join(lines[:4] + lines[5:])})
    )
    found = run_tables(RunFiles(source="run", contents={**run.contents, files.LATENCY_HLOG: spoiled}))
    assert len(found["quarantine"]) == 1
    assert all(found[name].equals(table) for name, table in expected.items() if name != "quarantine")
