"""A measured run as ``run`` and ``sweep`` make it: measured, printed, and put on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from perftest.cli.conclusion import Conclusion, print_failure
from perftest.cli.extras import is_installed
from perftest.exits import CliError, Exit
from perftest.installation import command_for
from perftest.measuring.interrupts import Interrupts
from perftest.measuring.measured_run import run_plan
from perftest.measuring.session_options import Options
from perftest.spec.plan import Plan


def measure(plan: Plan, options: Options) -> int:
    """Run a plan, print its results, and return the exit code. A plan without URIs gets a local cluster."""
    interrupts = Interrupts()
    with interrupts.installed():
        ran = run_plan(plan, options, interrupts)
        writer, code = ran.writer, ran.code
        conclusion = Conclusion(writer, options)
        interrupts.allow()
        conclusion.print_measured()
        if ran.failure is not None:  # the results are printed even if a full drive could not take them
            raise ran.failure
        print_failure(ran.outcome)
        reported = options.report and writer.rows and not ran.session.aborting
        report, doubt = report_or_doubt([writer.path], writer.path) if reported else (None, None)
        code = max(code, doubt.code) if doubt is not None and doubt.code is Exit.INTERRUPTED else code
        conclusion.print_end(code, report)
        if doubt is not None:
            print_doubt(doubt)
        conclusion.copy_hlog()
        conclusion.publish(code)
    return int(code)


def report_or_doubt(runs: Sequence[Path], beside: Path) -> tuple[Path | None, CliError | None]:
    """The report of the runs in the directory ``beside``, or the reason why there is no report.

    A missing report does not spoil a measurement that succeeded.
    """
    if not is_installed("report"):
        return None, _no_report(beside)
    from perftest.cli.report import build_report

    try:
        return build_report(runs, None, beside), None
    except CliError as error:
        return None, error
    except KeyboardInterrupt:
        fix = f"the results are complete; `perftest report {beside}` makes the page"
        return None, CliError("no report: interrupted", str(beside), fix, Exit.INTERRUPTED)


def _no_report(beside: Path) -> CliError:
    """The reason why an installation without the extra makes no report: it is no error of this measurement."""
    fix = f"{command_for('report')} && perftest report {beside}"
    return CliError("no report: its packages are not installed", str(beside), fix, Exit.NOT_INSTALLED)


def print_doubt(doubt: CliError) -> None:
    """Print to stderr why there is no report. Packages that are not installed are a note, and the rest an error."""
    click.echo(f"no report: {doubt.fix}" if doubt.code is Exit.NOT_INSTALLED else doubt.lines(), err=True)
