"""The output for rounds and for a series of layouts: figures, verdicts, the page, and the next commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from perftest.ci.cases import Suite, cases_of_findings, with_exit
from perftest.ci.publish import place_of, publish
from perftest.cli.measure import print_doubt, report_or_doubt
from perftest.cli.ui.summary import terminal_width, where_and_next, wrapped_lines
from perftest.measuring.session_options import Options
from perftest.results.reader import read_manifest
from perftest.results.schema import LAYOUTS, ROUNDS
from perftest.series.layout_series import series_of, sides_in
from perftest.series.rounds import Ended, Mean, Rounds, means
from perftest.spec.expected.slo import Objective, any_of, shown


def show_rounds(end: Ended, rounds: Rounds, options: Options) -> None:
    """Show each step's metric over the rounds, the verdicts, the directory of the rounds, and the next commands."""
    metric = rounds.until or any_of("rate")
    found = means(end.place, metric)
    if options.as_json:
        record = {"record": "rounds", "metric": metric.metric, "steps": [asdict(each) for each in found]}
        _end(end, options, "rounds", [], record)
        return
    _print_means(found, metric)
    _end(end, options, "rounds", [] if end.cut_short else [f"perftest compare BASE {end.place}"], {})


def show_series(end: Ended, rounds: Rounds, options: Options) -> None:
    """Show the verdicts and where the runs are, and name the next commands. If the rounds could end by a metric, show
    the metric of each step on each layout, too."""
    sides = sides_in(end.place)
    by_side = {side.name: means(side, rounds.until) for side in sides} if rounds.until is not None else {}
    if options.as_json:
        record: dict[str, Any] = {"record": "layouts", "sides": [str(side) for side in sides]}
        if rounds.until is not None:
            steps = {name: [asdict(each) for each in found] for name, found in by_side.items()}
            record |= {"metric": rounds.until.metric, "steps": steps}
        _end(end, options, "layouts", [], record)
        return
    for name, found in by_side.items():
        assert rounds.until is not None
        click.echo(f"\n{name}")
        _print_means(found, rounds.until)
    pair = []
    if len(sides) > 1 and not end.cut_short:
        other = sides[1 if series_of(end.place)[2].brokers else -1]  # another broker on the layout, or another layout
        pair = [f"perftest compare {sides[0]} {other}"]
    _end(end, options, "layouts", pair, {})


def _end(end: Ended, options: Options, kind: str, compare: Sequence[str], record: dict[str, Any]) -> None:
    """One report of all runs, and the end of the output: with ``--json`` the record, else the verdicts and commands."""
    wanted = options.report and end.runs
    report, doubt = report_or_doubt(list(end.runs), end.place) if wanted else (None, None)
    if options.as_json:
        record |= {"path": str(end.place), "report": str(report) if report else None}
        record |= {"findings": end.found.to_json()} if end.found is not None else {}
        click.echo(json.dumps(record, ensure_ascii=False))
    else:
        if end.found is not None:
            click.echo("\n" + wrapped_lines(end.found.lines(), terminal_width()))
        click.echo("\n" + where_and_next(kind, end.place, report, _commands(end, options, report, compare)))
    if doubt is not None:
        print_doubt(doubt)
    if not options.job.is_empty:
        publish(options.job, _suite(end, options))


def _suite(end: Ended, options: Options) -> Suite:
    """The findings over all runs, and what their exit codes tell besides."""
    found = cases_of_findings(end.found.findings(), asserted=options.assert_findings) if end.found else []
    place = place_of(end.place / (ROUNDS if (end.place / ROUNDS).exists() else LAYOUTS))
    started_ns = min((read_manifest(run)["started_ns"] for run in end.runs), default=0)
    return Suite(name=end.place.name, place=place, cases=with_exit(found, end.code), started_ns=started_ns)


def _commands(end: Ended, options: Options, report: Path | None, compare: Iterable[str]) -> list[str]:
    again = [f"{options.again} --resume {end.place}{options.target}"] if end.cut_short else []
    return [*again, *([] if report else [f"perftest report {end.place}"]), *compare]


def _print_means(found: Iterable[Mean], metric: Objective) -> None:
    for each in found:
        around = f" ± {100 * each.half_interval:.1f} %" if each.half_interval is not None else ""
        counted = f"{each.rounds} round{'s' if each.rounds > 1 else ''}"
        click.echo(f"{each.step or 'run':<40} {metric.metric} {shown(metric, each.mean)}{around} over {counted}")
