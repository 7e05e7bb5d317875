"""``perftest export``: a run in the format of another program."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from perftest.cli.sections import SectionedCommand, option, options
from perftest.cli.ui.completion import run_places
from perftest.exits import CliError, Exit, explained, name_damage

if TYPE_CHECKING:
    from perftest.exporters.slots import ExportedSlot
    from perftest.metrics.interval import Series
    from perftest.results.reader import Run

FORMATS: Final = {
    "hgrm": "percentile distribution for HdrHistogram's plotter, of one series in one step",
    "hlog": "interval log of HdrHistogram, over all workers",
    "csv": "table of steps or intervals",
    "json": "the same table, with the checks and the ledger of the run",
    "parquet": "the same table for data frames",
    "perftest": "results of PerfTestMulti, which PerfTest's own pages draw",
}
SERIES: Final = ("e2e", "e2e_sched", "confirm", "confirm_sched", "lag", "ack")
_UNITS_NS: Final = {"ns": 1, "us": 1000, "ms": 10**6}
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.=-]+")


# fmt: off
_options = options(
    option("--format", "name", section="Output", type=click.Choice(list(FORMATS)), required=True, show_default=False,
           help="; ".join(f"{name}: {text}" for name, text in FORMATS.items()) + "."),
    option("--out", section="Output", type=click.Path(path_type=Path), default=None,
           help="File to write, or a directory for several hgrm files.  [default: print to stdout]"),
    option("--table", section="Output", type=click.Choice(["steps", "intervals"]), default="steps",
           help="Rows of csv, json and parquet: a row for each step, or for each interval over all workers."),
    option("--series", section="Output", type=click.Choice(SERIES), default=None, show_default="all of the run",
           help="Latency to export as hgrm or hlog."),
    option("--step", section="Output", type=click.IntRange(1), default=None, show_default="all of the run",
           help="Number of the step to export as hgrm or hlog."),
    option("--unit", section="Output", type=click.Choice(list(_UNITS_NS)), default="ms",
           help="Unit of the values of a hgrm file."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED, Exit.DAMAGED),
    examples=(
        "perftest export runs/20261121-101502-in_flight-3fa1 --format csv --out steps.csv",
        "perftest export runs/20261121-101502-in_flight-3fa1 --format hgrm --series e2e --step 3 > e2e.hgrm",
        "perftest export runs/20261121-101502-in_flight-3fa1 --format perftest --out results.json",
    ),
)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path), shell_complete=run_places)
@_options
@click.pass_context
def export(ctx: click.Context, /, run: Path, name: str, out: Path | None, **asked: Any) -> None:
    """Write a run in the format of another program.

    RUN is a run directory. Only the steady time of each step is exported as hgrm and hlog. Latencies are nanoseconds,
    except in hgrm files (--unit) and in PerfTest's results (microseconds).
    """
    from perftest.results.reader import judged_run, read_run

    read = judged_run(read_run(run))
    code = name_damage({str(run): read.damages.lines()})
    if name == "hgrm":
        _hgrm(read, out, **asked)
    elif name == "parquet":
        _parquet(_rows(read, asked["table"]), out)
    else:
        _put(out, _text(read, name, asked))
    ctx.exit(int(code))


def _text(run: Run, name: str, asked: Mapping[str, Any]) -> str:
    """The content of a file of text."""
    from perftest.exporters import perftest_multi, tables

    if name == "perftest":
        return perftest_multi.results(run.manifest["plan"], (run.result or {}).get("steps", ()), _slots(run))
    if name == "hlog":
        from perftest.exporters.interval_log import log

        return log(_steady(run, asked["step"]), _series(asked["series"]))
    rows = _rows(run, asked["table"])
    return tables.as_csv(rows) if name == "csv" else tables.as_json(run, rows)


def _rows(run: Run, table: str) -> list[dict[str, Any]]:
    from perftest.exporters import tables

    return tables.step_rows(run) if table == "steps" else tables.interval_rows(run, _slots(run))


def _slots(run: Run) -> list[ExportedSlot]:
    from perftest.exporters.slots import slots_of

    return slots_of(run.intervals, run.histograms)


def _steady(run: Run, step: int | None) -> list[ExportedSlot]:
    from perftest.metrics.interval import Phase

    found = [slot for slot in _slots(run) if slot.phase is Phase.STEADY]
    numbers = sorted({slot.step for slot in found})
    if step is not None and step not in numbers:
        known = ", ".join(map(str, numbers)) or "no step"
        raise CliError(f"step {step} was not measured", str(run.path), f"the run measured {known}", Exit.USAGE)
    return [slot for slot in found if step is None or slot.step == step]


def _series(name: str | None) -> Sequence[Series]:
    from perftest.metrics.interval import Series

    return [Series(name)] if name is not None else list(Series)


class _Part(NamedTuple):
    """A histogram of a run: the label of its step, and its series."""

    step: int
    label: str
    series: Series

    @property
    def file(self) -> str:
        return f"{self.step:02d}-{_NOT_A_NAME.sub('-', self.label or 'run')}.{self.series}.hgrm"


def _hgrm(run: Run, out: Path | None, *, step: int | None, series: str | None, unit: str, table: str) -> None:
    """Write a file for each series of each step and group, or print the only one."""
    from perftest.exporters.hgrm import distribution
    from perftest.exporters.slots import merged

    slots, rows = _steady(run, step), (run.result or {}).get("steps", ())
    texts: dict[_Part, str] = {}
    for row in rows:
        own = [slot for slot in slots if (slot.step, slot.group) == (row["step"], row["group"])]
        for each in _series(series):
            if (found := merged(own, each)).total:
                texts[_Part(row["step"], row["label"], each)] = distribution(found, _UNITS_NS[unit])
    if not texts:
        fix = "a run of another tool has no histograms here; another series is named by --series"
        raise CliError("the run has no such latencies", str(run.path), fix)
    if len(texts) == 1 and (out is None or not out.is_dir()):
        _put(out, next(iter(texts.values())))
        return
    if out is None:
        there = ", ".join(f"--step {part.step} --series {part.series}" for part in list(texts)[:3])
        fix = f"name a directory with --out, or one of them: {there} …"
        raise CliError(f"the run has {len(texts)} histograms", str(run.path), fix, Exit.USAGE)
    for part, text in texts.items():
        _put(out / part.file, text)
        click.echo(out / part.file, err=True)


def _parquet(rows: Sequence[Mapping[str, Any]], out: Path | None) -> None:
    """Write the rows as a Parquet file. Raises CliError."""
    if out is None:
        raise CliError("a Parquet file is not printed", "--out", "name a file: --out steps.parquet", Exit.USAGE)
    import pyarrow as pa  # the extra report: the entry point of the command says so if pyarrow is missing
    import pyarrow.parquet

    from perftest.exporters.tables import columns_of

    columns = {name: [row.get(name) for row in rows] for name in columns_of([dict(row) for row in rows])}
    with _explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table(columns), out, compression="zstd")


def _put(out: Path | None, text: str) -> None:
    """Write the text to a file, or to stdout. Raises CliError."""
    if out is None:
        sys.stdout.write(text)
        return
    with _explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")


def _explained(out: Path) -> Any:
    return explained("the file cannot be written", out, "name another file or directory with --out")
