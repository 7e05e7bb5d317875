"""``perftest history``: a metric of a workload over all runs of a report store, and where it changed."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.extras import require
from perftest.cli.sections import PART, SectionedCommand, json_option, option, options
from perftest.cli.store.catalogue import plain_setting, store_option
from perftest.cli.ui.completion import history_names
from perftest.exits import CliError, Exit, name_damage
from perftest.metrics.names import MetricNameError

if TYPE_CHECKING:
    from reports.stats.history import HistoryMetric, MetricHistory, MetricSeries
    from reports.store.tables import Tables

_WIDTH: Final = 60
"""Columns of the bars of the terminal."""


# fmt: off
_options = options(
    option("--workload", section="Load", default="", show_default=False, metavar="NAME",
           help="Only runs of this workload. Needed if the store has runs of several."),
    option("--broker", section="Target", default="", show_default=False, metavar="TEXT",
           help="Only runs whose broker, with its version, contains TEXT."),
    option("--host", section="Target", default="", show_default=False, metavar="NAME",
           help="Only runs with a host of this name."),
    option("--set", "--setting", "settings", section="Load", multiple=True, metavar="SETTING=VALUE",
           help="Only steps with this setting, such as in_flight=100. Repeatable."),
    option("--since", section="Timing", default="", show_default=False, metavar="DATE",
           help="Only runs that began on this day or later."),
    option("--until", "--before", "until", section="Timing", default="", show_default=False, metavar="DATE",
           help="Only runs that began before this day."),
    option("--level", section="Judgement", type=PART, default="5%",
           help="Probability that a history without any change shows one."),
    store_option,
    option("--page", section="Output", type=click.Path(path_type=Path, dir_okay=False), default=None,
           help="Write a page, too."),
    option("--csv", "as_csv", section="Output", is_flag=True, help="Print a line of CSV for each run."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED, Exit.DAMAGED),
    examples=(
        "perftest history p99 --workload flow_control/in_flight --set in_flight=200",
        "perftest history delivered --workload smoke --since 2026-10-01 --page history.html",
        "perftest history confirm.p99 --workload smoke --broker RabbitMQ --json",
    ),
)
@click.argument("metric", shell_complete=history_names)
@_options
@json_option
@click.pass_context
def history(
    ctx: click.Context,
    /,
    metric: str,
    workload: str,
    broker: str,
    host: str,
    settings: tuple[str, ...],
    since: str,
    until: str,
    level: float,
    store: str,
    page: Path | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show a metric over time, and at which runs it changed.

    METRIC is a metric of `perftest compare`: delivered, published, e2e.p99, confirm.p99.9, broker_cpu; rate, p50, p99,
    p99.9 and cpu are short names. A run is one value. A change needs three runs on each side, and is judged by a
    permutation test. Beside each change stand the versions and commits that changed with it.
    """
    require("report", "a history")
    if as_csv and as_json:
        raise CliError("--csv and --json exclude each other", "--csv", "choose one of them", Exit.USAGE)
    from reports.stats.history import history as find
    from reports.stats.history import history_metric
    from reports.store.store import damaged_runs

    try:
        wanted = history_metric(metric)
    except MetricNameError as error:
        raise CliError(error.rule, "METRIC", error.fix, Exit.USAGE) from error
    span = (_day_ns("--since", since), _day_ns("--until", until))
    tables, name = _chosen(store, workload, broker, host, span)
    found = find(_with_settings(tables, settings), wanted, level=level)
    if page is not None:
        from reports.html.history import write_history

        generated = f"Made {datetime.now(UTC):%Y-%m-%d %H:%M UTC} from the report store {store}."
        write_history(found, page, workload=name, generated=generated)
    _show(found, as_csv=as_csv, as_json=as_json)
    if page is not None and not (as_csv or as_json):
        click.echo(str(page))
    ctx.exit(int(name_damage(damaged_runs(store, list(tables.runs["run_id"])))))


def _chosen(
    store: str, workload: str, broker: str, host: str, span: tuple[int | None, int | None]
) -> tuple[Tables, str]:
    """The tables of the wanted runs for a history, and the name of their workload. Raises CliError."""
    from reports.stats.history import COLUMNS
    from reports.store.store import arrow_table, read_tables

    facts = ("run_id", "name", "product", "broker_version", "started_ns")
    runs = arrow_table(store, "runs", columns=facts).to_pylist()
    names = sorted({run["name"] for run in runs})
    if not workload and len(names) > 1:
        fix = f"choose one with --workload: {', '.join(names[:12])}"
        raise CliError(f"the store has runs of {len(names)} workloads", store, fix, Exit.USAGE)
    since_ns, until_ns = span
    chosen = [
        run["run_id"]
        for run in runs
        if (not workload or run["name"] == workload)
        and broker.lower() in f"{run['product']} {run['broker_version']}".lower()
        and (since_ns is None or run["started_ns"] >= since_ns)
        and (until_ns is None or run["started_ns"] < until_ns)
    ]
    if host:
        hosts = arrow_table(store, "hosts", chosen, ("run_id", "host", "hostname")).to_pylist()
        there = {each["run_id"] for each in hosts if host in (each["host"], each["hostname"])}
        chosen = [run_id for run_id in chosen if run_id in there]
    if not chosen:
        fix = f"the store has {len(runs)} runs, of {', '.join(names[:12]) or 'no workload'}: choose less strictly"
        raise CliError("no run in the store is as wanted", store, fix, Exit.USAGE)
    return read_tables(store, chosen, COLUMNS), workload or names[0]


def _with_settings(tables: Tables, told: Sequence[str]) -> Tables:
    """Only the steps with these settings. Raises CliError."""
    from dataclasses import replace

    steps = tables.steps
    for text in told:
        setting, _, value = plain_setting(text).partition("=")
        values = [json.loads(each or "{}").get(setting) for each in steps["settings"]]
        kept = [_text(each) == value.strip() for each in values]
        if not any(kept):
            known = sorted({_text(each) for each in values if each is not None})
            fix = f"there are {', '.join(known[:12])}" if known else "see the settings of the runs in their report"
            raise CliError(f"no step has {text}", "--set", fix, Exit.USAGE)
        steps = steps[kept].reset_index(drop=True)
    return replace(tables, steps=steps)


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _day_ns(name: str, text: str) -> int | None:
    """Unix time of the begin of a day, or of a moment; UTC without a zone."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 10**9
    except (ValueError, OverflowError) as error:
        raise CliError(f"{text!r} is no date", name, "write it as 2026-11-21", Exit.USAGE) from error


def _show(found: MetricHistory, *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_to_json(found), ensure_ascii=False, indent=1))
    elif as_csv:
        _print_csv(found)
    else:
        _plot(found)


def _to_json(found: MetricHistory) -> dict[str, Any]:
    from reports.stats.history import origin

    metric = found.metric
    return {
        "metric": metric.name,
        "unit": "ns" if metric.latency else metric.unit,
        "level_of_each_series": found.level,
        "series": [
            {
                "step": series.name,
                "runs": json.loads(series.runs[["run_id", "started_ns", "value", "broker", "commit"]].to_json(
                    orient="records", double_precision=12
                )),
                "changes": [
                    {
                        "run_id": str(series.runs["run_id"].iloc[change.index]),
                        "before": change.before,
                        "after": change.after,
                        "p": change.p,
                        "origin": origin(series, change),
                    }
                    for change in series.changes
                ],
            }
            for series in found.series
        ],
    }  # fmt: skip


def _print_csv(found: MetricHistory) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    unit = "ns" if found.metric.latency else found.metric.unit
    out.writerow(["step", "run_id", "started_ns", f"{found.metric.name} ({unit})", "broker", "commit", "change"])
    for series in found.series:
        changed = {change.index for change in series.changes}
        for at, run in enumerate(series.runs.to_dict("records")):
            cells = [run[name] for name in ("run_id", "started_ns", "value", "broker", "commit")]
            out.writerow([series.name, *cells, "change" if at in changed else ""])


def _plot(found: MetricHistory) -> None:
    """A bar for each run, and a line of words at each change."""
    from rich.console import Console

    from reports.pages.several.history import sentences

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    for text in sentences(found):
        console.print(text)
    for series in found.series:
        console.print()
        console.print(f"{series.name}: {found.metric.name}", style="bold")
        for line, style in _bars(found.metric, series):
            console.print(line, style=style, no_wrap=True, overflow="ellipsis")


def _bars(metric: HistoryMetric, series: MetricSeries) -> list[tuple[str, str]]:
    from reports.pages.several.history import change_in_words, moment, value_in_words
    from reports.stats.history import origin

    greatest = float(series.runs["value"].max()) or 1.0
    changes = {change.index: change for change in series.changes}
    lines = []
    for at, run in enumerate(series.runs.to_dict("records")):
        if at in changes:
            said = change_in_words(metric, changes[at])
            lines.append((f"--- change: {said}; {origin(series, changes[at])}", "bold yellow"))
        bar = "█" * max(round(_WIDTH * float(run["value"]) / greatest), 1)
        lines.append((f"{moment(int(run['started_ns']))}  {value_in_words(metric, run['value']):>14}  {bar}", ""))
    return lines
