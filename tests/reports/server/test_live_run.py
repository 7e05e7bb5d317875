"""A run in progress: what is told follows from the files alone, however they grew."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perftest.metrics.histogram import Histogram
from perftest.results import hlog, schema
from perftest.results.intervals import cells_of, parser
from perftest.results.reader import read_run
from reports.server.live import CHUNK_BYTES, GrowingFile, LiveRun

STARTED_NS = 1_795_256_102_000_000_000
SECOND = 1_000_000_000
FILES = (schema.INTERVALS_CSV, schema.LATENCY_HLOG, schema.EVENTS)


def manifest_of(run: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run / schema.MANIFEST).read_text(encoding="utf-8"))
    return loaded


def whole(run: Path) -> LiveRun:
    live = LiveRun(run, manifest_of(run))
    live.look(ended=True)
    return live


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", steps=(1, 64, 1024), workers=3, steady=5)


def together(records: Iterable[Any]) -> list[list[Any]]:
    """Records of the same interval of all workers, which begin a few milliseconds apart, in the order of their ends."""
    groups: list[list[Any]] = []
    for each in sorted(records, key=lambda record: (record.step, record.phase, record.start_ns)):
        last = groups[-1][0] if groups else None
        same = last and (last.step, last.phase) == (each.step, each.phase)
        if same and each.start_ns - last.start_ns < SECOND / 4:
            groups[-1].append(each)
        else:
            groups.append([each])
    return sorted(groups, key=lambda group: group[-1].start_ns + group[-1].length_ns)


def test_rates_are_those_of_all_workers(finished: Path) -> None:
    live = whole(finished)
    expected = []
    for group in together(read_run(finished).intervals):
        length_ns = max(each.start_ns + each.length_ns for each in group) - min(each.start_ns for each in group)
        expected.append(sum(each.published for each in group) * 1e9 / length_ns)
    assert [point["published_per_s"] for point in live.points] == pytest.approx(expected, rel=1e-9)
    assert live.damaged == 0


def test_percentiles_are_those_of_merged_histograms(finished: Path) -> None:
    *_, last = together(each for each in read_run(finished).histograms if each.series == "e2e")
    assert len(last) > 1
    merged = Histogram()
    for each in last:
        merged.add_payload(each.payload, each.max_ns)
    p50_ns, p99_ns = merged.capped_percentiles_ns((50.0, 99.0))
    point = whole(finished).points[-1]
    assert (point["e2e_p50_ms"], point["e2e_p99_ms"]) == (p50_ns / 1e6, p99_ns / 1e6)


def pieces_of(run: Path, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """What is appended to the files: interval after interval, the lines of each cut anywhere."""
    base_ns, groups = 0, dict[int, list[tuple[str, bytes]]]()
    for line in (run / schema.LATENCY_HLOG).read_bytes().splitlines(keepends=True):
        base_ns = hlog.base_ns_of(line.decode()) or base_ns
        found = hlog.parse_line(line.decode().rstrip(), base_ns)
        groups.setdefault(second_of(found.start_ns) if found else -1, []).append((schema.LATENCY_HLOG, line))
    header, *lines = (run / schema.INTERVALS_CSV).read_bytes().splitlines(keepends=True)
    groups[-1].append((schema.INTERVALS_CSV, header))
    parse = parser(cells_of(header.decode().rstrip()))
    for line in lines:
        record = parse(line.decode().rstrip())
        assert record is not None
        groups.setdefault(second_of(record["start_ns"]), []).append((schema.INTERVALS_CSV, line))
    for _, group in sorted(groups.items()):
        for name, line in group:
            cut = chance.randrange(len(line))
            yield name, line[:cut]
            yield name, line[cut:]
    yield schema.EVENTS, (run / schema.EVENTS).read_bytes()


def second_of(start_ns: int) -> int:
    return round((start_ns - STARTED_NS) / SECOND)


@pytest.mark.parametrize("seed", range(8))
def test_files_that_grow_in_any_pieces_tell_the_same_points(finished: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = tmp_path / "run"
    run.mkdir()
    live = LiveRun(run, manifest_of(finished))
    for name, piece in pieces_of(finished, chance):
        with (run / name).open("ab") as file:
            file.write(piece)
        if chance.random() < 0.3:
            live.look()
    live.look(ended=True)
    expected = whole(finished)
    assert list(live.points) == list(expected.points), f"seed {seed}"
    assert (live.told, list(live.events)) == (expected.told, list(expected.events))


def test_only_points_that_the_browser_does_not_have_are_sent(finished: Path) -> None:
    live = whole(finished)
    assert live.since(live.told) == []
    assert live.since(live.told - 2) == list(live.points)[-2:]
    assert live.since(live.told + 5) == []


def test_a_point_waits_for_the_lines_of_other_workers(finished: Path) -> None:
    live = LiveRun(finished, manifest_of(finished))
    live.look()
    before = live.told
    live.look(ended=True)
    assert before < live.told


@pytest.mark.parametrize("name", FILES)
def test_damage_is_counted_and_costs_the_line_only(tmp_path: Path, make_run: Callable[..., Path], name: str) -> None:
    run = make_run(tmp_path / "run", steps=(1, 64))
    points = len(whole(run).points)
    with (run / name).open("ab") as file:
        file.write(b"Tag=e2e;step=x,1,1,1,HISTFAAA\n\xff\xfe{]\n")
    live = whole(run)
    assert live.damaged == 2
    assert len(live.points) == points


def test_a_run_without_files_has_no_points(tmp_path: Path, finished: Path) -> None:
    live = LiveRun(tmp_path, manifest_of(finished))
    live.look(ended=True)
    assert list(live.points) == []


def test_a_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    line = "x" * 99 + "\n"
    file.write_text(line * (CHUNK_BYTES // 50), encoding="utf-8")
    growing = GrowingFile(file)
    first = growing.new_lines()
    assert not growing.caught_up
    rest = growing.new_lines() + growing.new_lines()
    assert growing.caught_up
    assert len(first) + len(rest) == CHUNK_BYTES // 50
