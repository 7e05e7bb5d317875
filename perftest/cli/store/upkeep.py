"""``perftest runs compact`` and ``perftest runs history``: the files of a store, and who added what when."""

from __future__ import annotations

import click

from perftest.cli.extras import require
from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.cli.store.catalogue import day, store_option
from perftest.exits import Exit


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED),
    examples=(
        "perftest runs compact",
        "perftest runs compact --keep-days 7",
        "perftest runs compact --store s3a://bucket/runs/.store",
    ),
)
@option(
    "--keep-days",
    section="Other",
    type=click.FloatRange(min=1),
    default=30.0,
    help="Days for which files stay that only earlier versions of the store need.",
)
@store_option
def compact(keep_days: float, store: str) -> None:
    """Bring small files of a store together, and remove files that nothing needs any more.

    A report does this by itself when a date has more than 64 small files. Readers and writers go on meanwhile.
    """
    require("report", "a store of runs")
    from reports.store import upkeep
    from reports.store.store import existing

    done = upkeep.compact(existing(store), keep_days)
    click.echo(f"{store}: {done.before} files before, {done.after} after; {done.vacuumed} old files were removed")


@click.command(
    cls=SectionedCommand,
    exits=(Exit.NOT_INSTALLED,),
    examples=(
        "perftest runs history",
        "perftest runs history --limit 5 --json",
        "perftest runs history --store s3a://bucket/runs/.store",
    ),
)
@option("--limit", section="Output", type=click.IntRange(min=1), default=50, help="Most changes to show: the newest.")
@store_option
@json_option
def history(limit: int, store: str, as_json: bool) -> None:
    """Show who added runs to a store and when, the newest change first."""
    require("report", "a store of runs")
    from perftest.cli.ui.table import print_table
    from reports.store import upkeep
    from reports.store.store import existing

    rows = [
        {
            "version": each.version,
            "time (UTC)": day(each.t_ns),
            "who": each.who,
            "what": each.what,
            "runs": each.runs,
        }
        for each in upkeep.history(existing(store), limit)
    ]
    print_table(rows, as_json=as_json)
