"""``perftest runs``: find runs in a store, read runs into it, and mark them with tags and notes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.extras import require
from perftest.cli.sections import SectionedCommand, SummaryGroup, json_option, option, options
from perftest.cli.store import upkeep
from perftest.cli.store.catalogue import DATE, RUN_PLACE, day, plain_setting, spark_options, store_option
from perftest.exits import CliError, Exit, name_damage
from perftest.metrics.figures import three_figures

if TYPE_CHECKING:
    from reports.catalogue.annotations import Annotation, AnnotationChange
    from reports.catalogue.listing import CatalogueEntry

VERDICTS: Final = ("passed", "unsafe", "missed", "untrusted", "failed", "interrupted", "killed")
NOTE_SHOWN: Final = 40
"""Characters of a note in a list."""


@click.group(cls=SummaryGroup, invoke_without_command=True, context_settings={"help_option_names": ["--help", "-?"]})
@click.pass_context
def runs(ctx: click.Context) -> None:
    """Find runs in a store of many runs, read runs into it, and mark them with tags and notes.

    Without a command: the newest runs, as `perftest runs list` shows them.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


runs.add_command(upkeep.compact)
runs.add_command(upkeep.history)

_filters = options(
    option(
        "--workload",
        section="Target",
        metavar="PATTERN",
        default="",
        help="Name of the plan, such as 'flow_control/*'.",
    ),
    option(
        "--broker",
        section="Target",
        metavar="TEXT",
        default="",
        help="Part of its name and version: 'RabbitMQ 4'.",
    ),
    option("--host", section="Target", metavar="PATTERN", default="", help="Name of a host that took part."),
    option(
        "--setting",
        "--set",
        "settings",
        section="Load",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of one of the run's steps, such as in_flight=200. Repeatable.",
    ),
    option("--since", section="Timing", type=DATE, default=None, help="First day or minute of the start, UTC."),
    option("--before", section="Timing", type=DATE, default=None, help="First day or minute after the start, UTC."),
    option(
        "--verdict",
        "verdicts",
        section="Judgement",
        type=click.Choice(VERDICTS),
        multiple=True,
        help="How the run ended. Repeatable: one of them.",
    ),
    option(
        "--tag",
        "tags",
        section="Judgement",
        metavar="TAG",
        multiple=True,
        help="A tag of the run. Repeatable: all of them.",
    ),
    option(
        "--limit", section="Output", type=click.IntRange(min=1), default=50, help="Most runs to show: the newest ones."
    ),
)


@runs.command(
    "list",
    cls=SectionedCommand,
    exits=(Exit.NOT_INSTALLED,),
    examples=(
        "perftest runs list --workload 'flow_control/*' --since 2026-11-01",
        "perftest runs list --broker 'RabbitMQ 4' --verdict missed --verdict unsafe",
        "perftest runs list --tag release-1.4 --json",
    ),
)
@store_option
@_filters
@json_option
def list_(store: str, limit: int, as_json: bool, **filters: Any) -> None:
    """List the runs of a store, the newest first. Rate and latency are those of the step that delivered most."""
    require("report", "a list of runs")
    from perftest.cli.ui.table import print_table
    from reports.catalogue.listing import RunVerdict, Wanted, parse_setting, select
    from reports.store.store import damaged_runs

    wanted = Wanted(
        **{name: filters[name] for name in ("workload", "broker", "host", "tags")},
        settings=dict(parse_setting(plain_setting(text)) for text in filters["settings"]),
        since_ns=filters["since"],
        before_ns=filters["before"],
        verdicts=frozenset(RunVerdict(each) for each in filters["verdicts"]),
    )
    known = _entries(store)
    found = select(known, wanted)
    print_table([(_record if as_json else _line)(entry) for entry in found[:limit]], as_json=as_json)
    if len(found) > limit:
        click.echo(f"{len(found) - limit} more runs: raise --limit, or ask for less", err=True)
    if not found:
        click.echo(_none(known), err=True)
    name_damage(damaged_runs(store, [entry.run_id for entry in found[:limit]]))


@runs.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED, Exit.DAMAGED),
    examples=(
        "perftest runs read                                      all new runs below runs/",
        "perftest runs read s3a://bucket/runs --store s3a://bucket/runs/.store",
        "perftest runs read runs/20261121-101502-in_flight-3fa1   one run",
    ),
)
@click.argument("places", metavar="[PLACE]...", nargs=-1, type=RUN_PLACE)
@store_option
@spark_options
@click.pass_context
def read(
    ctx: click.Context, /, places: tuple[Path | str, ...], store: str, spark_master: str, spark_conf: tuple[str, ...]
) -> None:
    """Read runs into the store. A run that the store has as it is now is not read again.

    PLACE is a run directory or a directory that holds runs, or the URI of one. Without PLACE: runs.
    """
    from perftest.cli.report import Spark, fill_store

    require("report", "a store of runs")
    told = fill_store(places or (Path("runs"),), store, Spark(spark_master, spark_conf))
    click.echo(f"{store}: {told['read']} of {told['listed']} runs were read, {len(told['left_out'])} of them left out")
    ctx.exit(int(name_damage(told["damaged"])))


@runs.command(
    cls=SectionedCommand,
    exits=(Exit.NOT_INSTALLED,),
    examples=(
        "perftest runs show 20261121-101502-in_flight-3fa1",
        "perftest runs show runs/20261121-101502-in_flight-3fa1   by its directory",
        "perftest runs show 20261121-101502-in_flight-3fa1 --json",
    ),
)
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def show(run_id: str, store: str, as_json: bool) -> None:
    """Show all that the catalogue knows of a run, with its tags and its note."""
    require("report", "a list of runs")
    from reports.store.store import damaged_runs

    entry = _entry(store, run_id)
    row = _record(entry)
    name_damage(damaged_runs(store, [entry.run_id]))
    if as_json:
        click.echo(json.dumps(row, ensure_ascii=False, indent=1))
        return
    width = max(map(len, row))
    for name, value in row.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name:<{width}}  {shown if shown not in (None, '') else '-'}")


@runs.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED),
    examples=(
        "perftest runs tag 20261121-101502-in_flight-3fa1 baseline release-1.4",
        "perftest runs tag 20261121-101502-in_flight-3fa1 --remove baseline",
        "perftest runs list --tag release-1.4   find the runs with a tag",
    ),
)
@click.argument("run_id", metavar="RUN")
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@option("--remove", section="Other", metavar="TAG", multiple=True, help="Take a tag away. Repeatable.")
@store_option
def tag(run_id: str, tags: tuple[str, ...], remove: tuple[str, ...], store: str) -> None:
    """Give tags to a run, or take tags away."""
    require("report", "a list of runs")
    if not tags and not remove:
        raise CliError("no tag was given", "TAG", "name a tag to give, or --remove TAG", Exit.USAGE)
    from reports.catalogue.annotations import AnnotationChange

    after = _change(store, run_id, AnnotationChange(add=tags, remove=remove))
    click.echo(", ".join(after.tags) or "no tags")


@runs.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED),
    examples=(
        "perftest runs note 20261121-101502-in_flight-3fa1 'new drive, firmware 2.1'",
        "perftest runs note 20261121-101502-in_flight-3fa1 ''   remove the note",
        "perftest runs show 20261121-101502-in_flight-3fa1      read the note",
    ),
)
@click.argument("run_id", metavar="RUN")
@click.argument("text")
@store_option
def note(run_id: str, text: str, store: str) -> None:
    """Write a note on a run, in place of its note. An empty TEXT removes the note."""
    require("report", "a list of runs")
    from reports.catalogue.annotations import AnnotationChange

    click.echo(_change(store, run_id, AnnotationChange(note=text)).note or "no note")


def _none(known: list[CatalogueEntry]) -> str:
    """Why a list is empty, with the values that a filter can have."""
    if not known:
        return "the store has no run: read some with `perftest runs read`"
    workloads = sorted({entry.workload for entry in known})
    brokers = sorted({_broker(entry) for entry in known} - {""})
    names = sorted({name for entry in known for name in (*entry.hosts, *entry.hostnames)} - {""})
    listed = [
        f"{word}: {', '.join(some[:8])}{' …' if len(some) > 8 else ''}"
        for word, some in (("workloads", workloads), ("brokers", brokers), ("hosts", names))
        if some
    ]
    return f"none of the {len(known)} runs in the store is as wanted; {'; '.join(listed)}"


def _change(store: str, run_id: str, change: AnnotationChange) -> Annotation:
    from reports.catalogue.annotations import annotate
    from reports.store.locations import location_of

    return annotate(location_of(store), _entry(store, run_id).run_id, change, time.time_ns())


def _entries(store: str, run_ids: list[str] | None = None) -> list[CatalogueEntry]:
    from reports.catalogue.annotations import read_annotations
    from reports.catalogue.listing import COLUMNS, entries
    from reports.store.locations import location_of
    from reports.store.store import arrow_table

    rows = {
        name: arrow_table(store, name, runs=run_ids, columns=columns).to_pylist() for name, columns in COLUMNS.items()
    }
    found = [row["run_id"] for row in rows["runs"]]
    return entries(rows["runs"], rows["steps"], rows["hosts"], read_annotations(location_of(store), found))


def _entry(store: str, run_id: str) -> CatalogueEntry:
    """The run with this id, or the run whose directory was given."""
    return _entries(store, [Path(run_id).name])[0]


def _record(entry: CatalogueEntry) -> dict[str, Any]:
    """A run with full figures, for programs."""
    return {
        "run": entry.run_id,
        "workload": entry.workload,
        "started": f"{day(entry.started_ns)} UTC",
        "started_ns": entry.started_ns,
        "length_s": round(entry.length_s, 3),
        "verdict": str(entry.verdict),
        "broker": _broker(entry),
        "queue_types": entry.queue_types,
        "hosts": list(entry.hosts),
        "tool": f"{entry.tool_version} {entry.tool_commit}".strip(),
        "steps": entry.steps,
        "delivered_per_s": entry.delivered_per_s,
        "e2e_p99_ns": entry.e2e_p99_ns,
        "tags": list(entry.annotation.tags),
        "note": entry.annotation.note,
        "path": entry.path,
    }


def _line(entry: CatalogueEntry) -> dict[str, Any]:
    """A run in one line of a terminal."""
    rate, p99_ns = entry.delivered_per_s, entry.e2e_p99_ns
    return {
        "run": entry.run_id,
        "workload": entry.workload,
        "started (UTC)": day(entry.started_ns),
        "verdict": str(entry.verdict),
        "broker": _broker(entry),
        "delivered/s": None if rate is None else f"{rate:,.0f}",
        "p99 ms": None if p99_ns is None else three_figures(p99_ns / 1e6),
        "tags": ", ".join(entry.annotation.tags),
        "note": entry.annotation.note.replace("\n", " ")[:NOTE_SHOWN],
    }


def _broker(entry: CatalogueEntry) -> str:
    return f"{entry.product} {entry.broker_version}".strip()
