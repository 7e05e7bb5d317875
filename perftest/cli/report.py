"""``perftest report``: from run directories to pages.

The JVM of the pipeline lives in a process of its own, which ends before the pages are written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from perftest.cli.exits import CliError, Exit
from perftest.cli.sections import SectionedCommand, json_option, option


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest report runs/20261121-101502-in_flight-3fa1",
        "perftest report runs/*-prefetch-* --out prefetch-report",
        "perftest report runs/20261121-101502-in_flight-3fa1 --json   only the path, for scripts",
    ),
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@option(
    "--out",
    section="Output",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Directory of the report.  [default: RUN/report, or runs/report-TIME for several]",
)
@json_option
def report(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Make an HTML report of one or more runs."""
    from perftest.results.reader import read_manifest

    for run in runs:
        read_manifest(run)  # refuse what is no run before a JVM is started
    default = runs[0] / "report" if len(runs) == 1 else Path("runs") / f"report-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    page = build_report(runs, out or default)
    click.echo(json.dumps({"report": str(page)}) if as_json else str(page))


def build_report(runs: Sequence[Path], out: Path) -> Path:
    """Run the pipeline and write the pages; the path of the page. Raises CliError."""
    store = out / "store"
    click.echo(f"reading {len(runs)} run{'s' if len(runs) > 1 else ''} with Spark …", err=True)
    _pipeline(runs, store)

    import reports

    command = ["perftest", "report", *(str(run) for run in runs), "--out", str(out)]
    return Path(reports.build(store, out, command=command))


def _pipeline(runs: Sequence[Path], store: Path) -> None:
    """The pipeline in its own process. What it says on stderr is for people; it is shown when it fails."""
    command = [sys.executable, "-m", "reports.pipeline", *(str(run) for run in runs), "--store", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "it said nothing")
    fix = next((line.removeprefix("  fix").strip() for line in lines if line.startswith("  fix")), "")
    where = next((line.removeprefix("  at").strip() for line in lines if line.startswith("  at")), str(store))
    again = f"try `perftest report {' '.join(str(run) for run in runs)}` again"
    raise CliError(f"no report: {first.removeprefix('error: ')}", where, fix or again)
