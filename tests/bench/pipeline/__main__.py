"""``make bench-pipeline``: what reports cost, beside other means on the same data.

Every command is a process of its own, as a user starts it: Java and Spark from nothing. CPU seconds count the JVM and
all workers; they survive a noisy machine, and wall seconds do not. No goal that is missed fails the command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from perftest.results.provenance import host_facts, tool_facts
from tests.bench.pipeline.fleet import damage, make_fleet
from tests.bench.pipeline.many_rows import SLOTS
from tests.bench.pipeline.processes import CommandError, Taken, take

SMALL: Final = {"steps": (1, 4, 16, 64, 256), "steady": 4, "warmup": 1}
"""A run of 25 intervals of two workers."""
WIDE: Final = {"steps": (1, 4, 16, 64, 256), "steady": 4, "warmup": 1, "hosts": 2, "workers": 2}
EXECUTOR_ROUNDS: Final = 3
TINY: Final = {"steps": (64,), "steady": 2, "warmup": 1, "workers": 1}

Row = dict[str, Any]
ERRORS: Final = Console(stderr=True)


class Bench:
    """Where benches work, and what they found."""

    def __init__(self, folder: Path, environment: dict[str, str], scale: float) -> None:
        self.folder = folder
        self.environment = environment
        self.scale = scale
        self.rows: list[Row] = []

    def runs(self, name: str, count: int, **shape: Any) -> list[Path]:
        """Run directories for a bench."""
        return make_fleet(self.folder / name / "runs", max(1, int(count * self.scale)), **shape)

    def command(self, *arguments: object) -> Taken:
        """Run a Python module."""
        return take([sys.executable, *map(str, arguments)], self.environment)

    def note(self, what: str, taken: Taken, *, goal: str = "", **more: Any) -> None:
        """Keep a figure, and print it at once."""
        row: Row = {"what": what, "wall_s": round(taken.wall_s, 2), "cpu_s": round(taken.cpu_s, 2)}
        row |= {"peak_mib": taken.peak_bytes >> 20, "goal": goal, **more}
        self.rows.append(row)
        ERRORS.print(json.dumps(row), highlight=False, soft_wrap=True)


def small(bench: Bench) -> None:
    """``perftest report`` of one small run, three times: the first one fills caches."""
    [run] = bench.runs("small", 1, **SMALL)
    for number in range(3):
        out = bench.folder / "small" / f"out{number}"
        # A store of its own: the one beside the runs would know the run the second time.
        taken = bench.command("-m", "perftest.cli", "report", run, "--out", out, "--store", out / "store")
        bench.note(f"report of one run of 25 intervals, time {number + 1}", taken, goal="<= 7 s")
    taken = bench.command("-m", "perftest.cli", "report", run, "--out", out, "--store", out / "store")
    bench.note("the same again, from the store", taken, goal="<= 1.5 s")


def forty(bench: Bench) -> None:
    """One page of forty runs."""
    runs = bench.runs("forty", 40, **SMALL)
    taken = bench.command("-m", "perftest.cli", "report", *runs, "--out", bench.folder / "forty" / "out")
    bench.note("report of 40 such runs", taken, goal="<= 11 s")


def page(bench: Bench) -> None:
    """A page from tables that are there, without a JVM."""
    [run] = bench.runs("page", 1, **SMALL)
    store, out = bench.folder / "page" / "store", bench.folder / "page" / "out"
    bench.command("-m", "reports.pipeline", run, "--store", store)
    code = f"import reports, pathlib as p; reports.build(p.Path({str(store)!r}), p.Path({str(out)!r}))"
    bench.note("page from finished tables", bench.command("-c", code), goal="<= 2 s")


def merge(bench: Bench) -> None:
    """20,000 histograms: the whole pipeline, a loop, and pandas."""
    _merge(bench, 130, "<= 6 s, <= 1.5 GiB")


def merge_many(bench: Bench) -> None:
    """100,000 histograms: the whole pipeline, a loop, and pandas."""
    _merge(bench, 650, ">= 6,000/s")


def _merge(bench: Bench, count: int, goal: str) -> None:
    runs = bench.runs(f"merge-{count}", count, **WIDE)
    place = runs[0].parents[1]
    lines = sum(each.read_bytes().count(b"\nTag=") for each in place.glob("runs/*/latency.hlog"))
    what = f"{lines:,} histograms"
    taken = bench.command("-m", "reports.pipeline", *runs, "--store", place / "store")
    told = json.loads(taken.output)
    bench.note(
        f"pipeline: {what}",
        taken,
        goal=goal,
        session_s=told["start_s"],
        work_s=told["run_s"],
        per_s=round(lines / told["run_s"]),
    )
    digests = set()
    for rival in ("loop", "pandas"):
        taken = bench.command("-m", "tests.bench.pipeline.rivals", rival, place / "runs", place / f"{rival}.parquet")
        told = json.loads(taken.output)
        digests.add(told["digest"])
        bench.note(f"{rival}: {what}", taken, work_s=told["seconds"], per_s=round(lines / told["seconds"]))
    if len(digests) != 1:
        raise CommandError(f"the ways to merge disagree: {digests}")


def executors(bench: Bench) -> None:
    """The same runs on one executor of one core and on two, in turns; the work without the start of Spark."""
    runs = bench.runs("executors", 800, **WIDE)
    conf = [word for key in ("host", "bindAddress") for word in ("--conf", f"spark.driver.{key}=127.0.0.1")]
    work: dict[int, list[float]] = {1: [], 2: []}
    for number in range(EXECUTOR_ROUNDS):
        for count in work:
            store = bench.folder / "executors" / f"store-{number}-{count}"
            words = ("--store", store, "--master", f"local-cluster[{count},1,1024]", *conf)
            taken = bench.command("-m", "reports.pipeline", runs[0].parent, *words)
            work[count].append(json.loads(taken.output)["run_s"])
            bench.note(f"{len(runs)} runs, executors of one core: {count}", taken, work_s=work[count][-1])
    ratio = statistics.median(work[1]) / statistics.median(work[2])
    bench.rows.append({"what": "two executors of one core, times one", "work_s": round(ratio, 2), "goal": ">= 1.7"})


def fleet(bench: Bench) -> None:
    """Runs by the thousand in one job, three of them damaged; then one more run."""
    for count in (100, 1_000, 10_000):
        runs = bench.runs(f"fleet-{count}", count, **TINY)
        if len(runs) < 4:
            continue
        damage(runs[-3:])
        store = bench.folder / f"fleet-{count}" / "store"
        command = ("-m", "reports.pipeline", runs[0].parent, "--store", store)
        taken = bench.command(*command)
        told = json.loads(taken.output)
        bench.note(
            f"pipeline: {len(runs):,} runs, three of them damaged",
            taken,
            work_s=told["run_s"],
            ms_per_run=round(1e3 * told["run_s"] / len(runs), 2),
            cpu_ms_per_run=round(1e3 * taken.cpu_s / len(runs), 2),
            left_out=len(told["left_out"]),
        )
        bench.note(f"pipeline: {len(runs):,} runs again, nothing new", bench.command(*command))
        asked = bench.command("-m", "perftest.cli", "query", "--store", store, BY_DAY)
        bench.note(f"query: a metric by day over {len(runs):,} runs", asked, goal="<= 1.5 s")


def rows(bench: Bench) -> None:
    """A table of 50 million rows of 100,000 runs, asked for all of it, for a day, and for one run."""
    runs = max(100, int(100_000 * bench.scale))
    store = bench.folder / "rows" / "store"
    bench.note(f"made: {runs * SLOTS:,} rows", bench.command("-m", "tests.bench.pipeline.many_rows", store, runs))
    octets = sum(file.stat().st_size for file in store.rglob("*.parquet"))
    for what, condition in OF_TIMELINE.items():
        asked = bench.command("-m", "perftest.cli", "query", "--store", store, f"{BY_STEP} {condition}")
        bench.note(f"query: {what} of {runs * SLOTS:,} rows", asked, mib=octets >> 20)


BY_STEP: Final = "SELECT count(*), median(e2e_p99_ns) FROM timeline JOIN runs USING (run_id)"
OF_TIMELINE: Final = {
    "the median of all": "",
    "the median of a day": "WHERE timeline.date = '2026-11-15'",
    "the median of one run": "WHERE run_id = 'run-000007'",
}

BY_DAY: Final = (
    "SELECT to_timestamp(started_ns // 1000000000)::DATE AS day, median(e2e_p99_ns) / 1e6 AS p99_ms "
    "FROM steps JOIN runs USING (run_id) GROUP BY day ORDER BY day"
)

BENCHES: Final[dict[str, Callable[[Bench], None]]] = {
    "small": small,
    "forty": forty,
    "page": page,
    "merge": merge,
    "merge-many": merge_many,
    "fleet": fleet,
    "rows": rows,
    "executors": executors,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep; 1 when a bench could not be finished."""
    parser = argparse.ArgumentParser(prog="make bench-pipeline", description=__doc__)
    parser.add_argument("--only", default="", help="names of benches, with commas: " + ", ".join(BENCHES))
    parser.add_argument("--scale", type=float, default=1.0, help="part of the runs of each bench, for a quick look")
    parser.add_argument("--json", type=Path, default=None, help="keep machine, commit and figures in a file")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if options.only else list(BENCHES)
    if unknown := [name for name in chosen if name not in BENCHES]:
        parser.error(f"no bench is called {unknown[0]!r}; choose from {', '.join(BENCHES)}")
    failed = False
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-pipeline-") as folder:
        bench = Bench(Path(folder).resolve(), {**os.environ, "CI": "1"}, options.scale)
        for name in chosen:
            try:
                BENCHES[name](bench)
            except CommandError as error:
                failed = True
                ERRORS.print(f"{name}: {error}", highlight=False, soft_wrap=True)
    _show(bench.rows)
    if options.json is not None:
        facts = {"measured": f"{datetime.now(UTC):%Y-%m-%d}", "host": host_facts(Path()), "tool": tool_facts()}
        options.json.write_text(json.dumps(facts | {"rows": bench.rows}, indent=1, default=str), encoding="utf-8")
    return int(failed)


def _show(rows: Sequence[Row]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in columns))
    Console(width=180).print(table)


if __name__ == "__main__":
    sys.exit(main())
