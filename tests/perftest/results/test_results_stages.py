"""From what nodes answer about their stages to lines of the log, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hdrh.histogram import HdrHistogram

from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase
from perftest.results import schema
from perftest.results.reader import read_run, summarise
from perftest.results.stages import StageCounts, lines
from perftest.results.writer import RunWriter

BEFORE, LATER = (5_000, 7_000_000), (9_000, 9_000, 80_000_000)


def payload(values: Sequence[int]) -> str:
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        histogram.record_value(value)
    return str(histogram.encode().decode())


def answer(values: Sequence[int], *, incarnation: int = 1, **more: Any) -> StageCounts:
    chains = {"delivery": {"fsync": payload(values), "ready": payload(())}}
    found = StageCounts.of({"name": "node2", "incarnation": incarnation, "chains": chains, **more})
    assert found is not None
    return found


def merged(text: str) -> Histogram:
    made = Histogram()
    made.add_payload(text)
    return made


def test_a_step_gets_the_difference_of_two_answers() -> None:
    """The answers are cumulative: without the difference, every step would hold those before it."""
    (line,) = lines(answer(BEFORE), answer(BEFORE + LATER), step=3, start_ns=10**18, end_ns=10**18 + 10**9)
    assert (line.series, line.step, line.phase, line.worker) == ("stage.delivery.fsync", 3, Phase.STEADY, "node2")
    assert (line.start_ns, line.length_ns) == (10**18, 10**9)
    assert merged(line.payload).counts.tolist() == merged(payload(LATER)).counts.tolist()
    assert line.max_ns == merged(payload(LATER)).max_ns


def test_a_node_that_was_started_anew_counts_from_its_start() -> None:
    """Its counters begin at zero: subtracting those of its former life would give nonsense."""
    for before in (answer(BEFORE * 9), None):
        (line,) = lines(before, answer(LATER, incarnation=2), step=1, start_ns=0, end_ns=1)
        assert merged(line.payload).total == len(LATER)


def test_the_syncs_of_a_node_are_a_chain_of_their_own() -> None:
    """A layout is judged by the syncs of each drive, and not only by those that a message waited for."""
    gauges = {"fsync.wal": payload(LATER), "batch.octets": payload(BEFORE)}
    found = {line.series: line for line in lines(None, answer((), gauges=gauges), step=1, start_ns=0, end_ns=1)}
    assert list(found) == ["stage.fsync.wal"]
    assert merged(found["stage.fsync.wal"].payload).counts.tolist() == merged(payload(LATER)).counts.tolist()


def test_a_node_that_does_not_tell_is_left_out() -> None:
    """An older node, or another broker's control port, must not end a run."""
    for foreign in ({"error": "unknown request"}, {"name": "n", "incarnation": 1, "chains": {"delivery": {"x": "?"}}}):
        assert StageCounts.of(foreign) is None


def test_the_log_keeps_stages_beside_the_rest(tmp_path: Path, records: ModuleType) -> None:
    """They are no latencies of the step: the row of results must not change by them."""
    writer = RunWriter(tmp_path, records.plan(), ["perftest"], now_ns=records.STARTED_NS)
    start_ns = records.STARTED_NS + 10**9
    written = list(lines(answer(BEFORE), answer(BEFORE + LATER), step=1, start_ns=start_ns, end_ns=start_ns + 10**9))
    writer.stages(written)
    writer.close()
    run = read_run(writer.path)
    assert not run.damaged
    assert [(line.series, line.payload, line.max_ns, line.worker) for line in run.histograms] == [
        (line.series, line.payload, line.max_ns, line.worker) for line in written
    ]
    assert summarise(run)["steps"] == []
    assert schema.STAGE_PREFIX in (writer.path / schema.LATENCY_HLOG).read_text()
