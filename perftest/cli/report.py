"""``perftest report``: make an HTML page of run directories.

Small runs are read by the process of the command. A pipeline that needs a Spark runs in a process of its own, which
ends before the page is written, and the JVM with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from perftest.cli.extras import require
from perftest.cli.report_server import serve_reports
from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.cli.store.catalogue import RUN_PLACE, STORE_VARIABLE, spark_options
from perftest.cli.store.spark_archive import NAME as SPARK_ARCHIVE
from perftest.cli.store.spark_archive import spark_archive
from perftest.cli.ui.completion import run_places
from perftest.errors import HelpfulError
from perftest.exits import CliError, Exit, name_damage

if TYPE_CHECKING:
    from reports.comparison.compare import CompareResult

RunPlace = Path | str
"""The directory of a run, or of runs: a path of this machine, or a URI."""
Say = Callable[[str], None]
"""Tells a person what is going on."""
ELLIPSIS = " …"


class Spark(NamedTuple):
    """Which Spark reads the runs: its master, and settings KEY=VALUE."""

    master: str
    conf: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """As options of the pipeline; none for the Spark of this machine, which is the default there."""
        master = [] if self == LOCAL else ["--master", self.master]
        return [*master, *(word for each in self.conf for word in ("--conf", each))]


LOCAL = Spark("local[*]")

_OLD_STORE = ("manifest.json", "attempts", ".lock")
"""Files of stores before version 5."""
SUMMARY = "summary.json"
"""The file with the content of the page for programs."""


class ReportCommand(SectionedCommand):
    """The command, with a word of its own in the place of the first RUN."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command that the first word names."""
        if args[:1] == [SPARK_ARCHIVE]:
            return spark_archive.make_context(f"{info_name} {SPARK_ARCHIVE}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    cls=ReportCommand,
    exits=(Exit.RUN_ERROR, Exit.MISSED, Exit.NOT_INSTALLED, Exit.DAMAGED),
    examples=(
        "perftest report runs/20261121-101502-in_flight-3fa1",
        "perftest report runs/2026* --separate --out november   an overview, and a page for each run",
        "perftest report --serve                                all runs in the browser",
    ),
)
@click.argument("runs", metavar="RUN...", nargs=-1, type=RUN_PLACE, shell_complete=run_places)
@option(
    "--out",
    section="Output",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Directory to write the report to.  [default: the directory RUN; runs/report-TIME for several RUNs]",
)
@option(
    "--separate",
    section="Output",
    is_flag=True,
    help="Write a page for each run, and an overview with links to them. All pages share one script beside them.",
)
@option(
    "--store",
    section="Target",
    metavar="PLACE",
    default=None,
    envvar=STORE_VARIABLE,
    help="Store of report tables: a directory, or a URI.  [default: .store in the directory that holds the runs; "
    "beside the page if that cannot be written]",
)
@spark_options
@option(
    "--serve",
    section="Output",
    is_flag=True,
    help="Show the runs in the directory RUN (default: runs) in the browser of this machine, until Ctrl-C: a list, "
    "pages when they are asked for, and runs in progress, live.",
)
@option("--port", section="Output", type=click.IntRange(0, 65535), default=8765, help="Port of --serve; 0: a free one.")
@option(
    "--assert",
    "assert_findings",
    section="Judgement",
    is_flag=True,
    help="End with exit code 4 unless all findings of the runs' workloads are reproduced.",
)
@json_option
@click.pass_context
def report(
    ctx: click.Context,
    /,
    runs: tuple[RunPlace, ...],
    out: Path | None,
    separate: bool,
    store: str | None,
    spark_master: str,
    spark_conf: tuple[str, ...],
    serve: bool,
    port: int,
    assert_findings: bool,
    as_json: bool,
) -> None:
    """Make an HTML report of one or more runs.

    If the workload states findings, the report judges them over all runs of the same plan. RUN is the directory of a
    run, or a directory that holds runs, the rounds of a sweep, or its layouts; or the URI of a run or of a directory
    that holds runs, such as s3a://bucket/runs/ID.

    `perftest report spark-archive` writes the file that executors of a Spark cluster need; its --help says more.
    """
    spark = Spark(spark_master, spark_conf)
    if serve:
        require("report", "a report")
        folders = [Path(each) for each in runs]
        serve_reports(folders, store, port, partial(_served, store, spark), partial(served_comparison, store, spark))
        return
    if not runs:
        raise CliError("no run was given", "RUN", "name a run directory: perftest report runs/ID", Exit.USAGE)

    found = _found(runs)
    require("report", "a report")
    (first, *others) = runs
    if out is None and (others or isinstance(first, str)):
        out = Path("runs") / f"report-{utc_stamp()}"
    page = build_report(found, out, Path(first), separate=separate, spark=spark, store=store)
    place = out or Path(first) / "report"
    summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
    judged = summary["findings"]
    if as_json:
        click.echo(json.dumps({"report": str(page), "findings": judged}, ensure_ascii=False))
    else:
        if judged:
            from perftest.cli.ui.summary import terminal_width, wrapped_lines
        for each in judged:
            named = [each["workload"]] if len(judged) > 1 else []
            click.echo("\n".join([*named, wrapped_lines(each["lines"], terminal_width())]))
        click.echo(page)
    missed = not judged or any(each["verdict"] != "reproduced" for each in judged)
    damaged = summary["left_out"] or any(run["damaged"] for run in summary["runs"])
    code = Exit.DAMAGED if damaged else Exit.OK
    ctx.exit(int(Exit.MISSED if assert_findings and missed else code))


def _served(store: str | None, spark: Spark, run: Path) -> Path:
    return build_report([run], None, run, spark=spark, store=store)


def served_comparison(
    store: str | None, spark: Spark, base: Path, candidate: Path, allow: frozenset[str], out: Path
) -> Path:
    """The page that compares two runs, which may differ in the facets ``allow``. Raises UnlikeRunsError and, as
    building does, HelpfulError."""
    from reports.comparison.compare import compare, runs_of
    from reports.comparison.facets import REFUSED
    from reports.comparison.text import difference
    from reports.errors import UnlikeRunsError

    known = frozenset(facet for facet in REFUSED if facet in allow)
    result = compare(runs_of(base), runs_of(candidate), allow=known)
    if result.refused:
        facets = list(dict.fromkeys(str(each.facet) for each in result.refused))
        said = list(map(difference, result.refused))
        fix = f"A figure may have changed because of that. Measure again with the same {' and '.join(facets)}."
        raise UnlikeRunsError(
            "These runs are too unlike to be compared", f"{base.name}, {candidate.name}", fix, facets, said
        )
    return build_comparison(result, out, (base, candidate), store=store, spark=spark)


def _found(places: Sequence[RunPlace]) -> list[RunPlace]:
    """The runs on this machine, each by its directory, and the URIs as they are: the pipeline lists what lies there.
    Raises NotARunError."""
    from perftest.results.reader import read_manifest
    from perftest.results.schema import MANIFEST

    found: list[RunPlace] = []
    for place in places:
        found += [place] if isinstance(place, str) else _runs_in(place)
    for run in found:
        if isinstance(run, Path) and (len(found) == 1 or not (run / MANIFEST).exists()):
            read_manifest(run)  # refuse what is no run; of several, the pipeline leaves out a damaged one
    return found


def utc_stamp() -> str:
    """The time for the name of a directory, to the second."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _runs_in(place: Path) -> list[Path]:
    """The runs of a directory: the run itself, its rounds, or the rounds on each layout of a series. Raises
    NotARunError."""
    from perftest.results.errors import NotARunError
    from perftest.results.reader import run_directories
    from perftest.results.schema import LAYOUTS as SERIES
    from perftest.results.schema import MANIFEST

    if not (place / SERIES).is_file():
        return run_directories(place)
    from perftest.series.layout_series import sides_in

    found = [each.parent for side in sides_in(place) for each in sorted(side.glob(f"*/{MANIFEST}"))]
    if not found:
        fix = f"measure the layouts: `perftest sweep --resume {place}`"
        raise NotARunError("no layout of this sweep has a run", str(place), fix)
    return found


def build_report(
    runs: Sequence[RunPlace],
    out: Path | None,
    beside: Path,
    *,
    separate: bool = False,
    spark: Spark = LOCAL,
    store: str | None = None,
) -> Path:
    """Run the pipeline, write the page to ``out/report.html``, and return the path of the page. Raises CliError.

    Without ``out`` the page is ``beside/report.html`` and what belongs to it lies below ``beside/report/``; ``beside``
    is the directory of the run or of its rounds. With ``separate`` each run has a page of its own beside that page.
    ``store`` takes the tables; see :func:`fill_store`.
    """
    place = out or beside / "report"
    _remove_old_store(place / "store")
    told = fill_store(runs, store, spark, beside=place / "store")
    name_damage(told["damaged"])
    with _progress("writing the page"):
        import reports

        named = (("--separate", separate), ("--out", out), ("--store", store))
        flags = [word for name, value in named if value for word in ([name] if value is True else [name, str(value)])]
        written = Path(
            reports.build(
                told["pages"],
                place,
                page=None if out else beside / "report.html",
                command=["perftest", "report", *map(str, runs), *flags],
                separate=separate,
                runs=told["runs"],
                left_out=told["left_out"],
            )
        )
    return written


def _remove_old_store(store: Path) -> None:
    """Remove an earlier version's store from the place of a report's tables: nothing reads it, and the runs are
    there."""
    if (store / _OLD_STORE[0]).is_file():
        for name in _OLD_STORE:
            path = store / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def build_comparison(
    result: CompareResult,
    out: Path,
    names: tuple[Path, Path],
    *,
    spark: Spark = LOCAL,
    store: str | None = None,
) -> Path:
    """Run the pipeline over both sides, write the page of the comparison to ``out/comparison.html``, and return its
    path. ``names`` are the directories of baseline and candidate. ``store`` takes the tables; see :func:`fill_store`.
    Raises CliError."""
    told = fill_store([run.path for run in (*result.base, *result.candidate)], store, spark, beside=out / "store")
    with _progress("writing the page"):
        import reports

        said = (str(names[0]), str(names[1]))
        page = out / "comparison.html"
        written = Path(reports.build_comparison(told["pages"], result, page=page, names=said, runs=told["runs"]))
    return written


def fill_store(
    runs: Sequence[RunPlace], store: str | None = None, spark: Spark = LOCAL, *, beside: Path | None = None
) -> dict[str, Any]:
    """Compute the tables of ``runs`` and publish them in ``store``. Returns the pipeline's report. Raises CliError.

    Without ``store`` the tables go where PERFTEST_STORE says, or into the store in the directory that holds the runs.
    If that cannot be used, or no page can read it, they go into the store ``beside`` the page.
    """
    with _progress("looking at the runs") as say:
        return _pipeline(runs, store or os.environ.get(STORE_VARIABLE) or None, beside, say, spark)


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Say]:
    """Show the progress, and hand out a function that names the next step: a line each, or on a terminal one line with
    the elapsed seconds, which vanishes at the end."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb" or os.environ.get("CI"):
        click.echo(f"{what}{ELLIPSIS}", err=True)
        yield lambda words: click.echo(f"{words}{ELLIPSIS}", err=True)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda words: progress.update(task, description=words)


def _pipeline(
    runs: Sequence[RunPlace], store: str | None, beside: Path | None, say: Say, spark: Spark
) -> dict[str, Any]:
    """Run the pipeline, and show its steps: in a process of its own if it needs a Spark."""
    from reports.pipeline import job

    places = [str(each) for each in runs]
    asked = job.Job(
        places=places, store=store, beside=str(beside) if beside else None, master=spark.master, conf=spark.conf
    )
    try:
        told: dict[str, Any] = job.run(asked, say, may_start_spark=False)
    except job.SparkNeeded:
        told = _by_process(runs, store, beside, say, spark)
    except HelpfulError as error:
        raise CliError(f"no report: {error.what}", error.where, error.fix) from error
    for path, reason in told["left_out"].items():
        click.echo(f"left out: {path}: {reason}", err=True)
    if told["note"]:
        click.echo(told["note"], err=True)
    return told


def _by_process(
    runs: Sequence[RunPlace], store: str | None, beside: Path | None, say: Say, spark: Spark
) -> dict[str, Any]:
    """Run the pipeline in its own process. Its words on stderr are shown if it fails."""
    command = [sys.executable, "-m", "reports.pipeline", *map(str, runs)]
    command += [
        word for name, place in (("--store", store), ("--beside", beside)) if place for word in (name, str(place))
    ]
    command += spark.words()
    done = _followed(command, say)
    if done.returncode == 0:
        told: dict[str, Any] = json.loads(done.stdout)
        return told
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("error:")), _cause(lines))
    fix = next((line.removeprefix("  fix").strip() for line in lines if line.startswith("  fix")), "")
    where = next((line.removeprefix("  at").strip() for line in lines if line.startswith("  at")), str(store or beside))
    again = f"try `perftest report {' '.join(str(run) for run in runs)}` again"
    raise CliError(f"no report: {first.removeprefix('error: ')}", where, fix or again)


def _followed(command: Sequence[str], say: Say) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Lines on its stderr that end in an ellipsis are said at once, and are no part of the
    result."""
    kept = []
    # A file takes all of stdout while stderr is being read; a pipe would be full at 64 KiB.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stdout:
        with subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace"
        ) as process:
            for line in process.stderr or ():
                if line.endswith(f"{ELLIPSIS}\n"):
                    say(line.removesuffix(f"{ELLIPSIS}\n"))
                else:
                    kept.append(line)
        stdout.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, stdout.read(), "".join(kept))


def _cause(lines: Sequence[str]) -> str:
    """The innermost cause in a stack trace of the JVM or of Python; without a cause, its last line."""
    causes = [line for line in lines if line.startswith("Caused by:")]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return next((found[-1] for found in (causes, errors, lines) if found), "it said nothing")
