"""A sweep over layouts of drives: the same steps on a cluster of each layout, round by round.

Every layout gets a cluster of its own in each round, and a run of its own. The layouts alternate, so a machine that
gets slower is no friend of one of them. All runs lie below one directory, with a directory for each layout, which
``perftest compare`` takes as a side. The findings of the workload are judged over all of them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.exits import CliError, Exit, explained, gravest
from perftest.cli.judgement import is_missed, judged, keep
from perftest.cli.layouts import SERIES, sides_in
from perftest.cli.measure import measure, report_or_doubt
from perftest.cli.measured_broker import make_directory, undo_leftovers
from perftest.cli.rounds import (
    Rounds,
    enough_in,
    means,
    plan_of_round,
    put_unfinished_aside,
    recorded_codes,
    rounds_from_json,
    rounds_to_json,
    runs_in,
)
from perftest.cli.session_options import Options
from perftest.cli.ui.summary import terminal_width, where_and_next, wrapped_lines
from perftest.results.writer import run_id
from perftest.spec.codec import plan_from_json, plan_to_json
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from infra.layout import Layout
    from reports.stats.reproduction import Reproduction


def measure_series(
    plan: Plan, options: Options, rounds: Rounds, layouts: Mapping[str, Layout], place: Path | None = None
) -> Exit:
    """Measure the plan on each layout in each round. Return the gravest exit code of all runs of the series.

    ``layouts`` are by the words with which they were named. With ``place``, continue the series in that directory.
    """
    undo_leftovers(place or options.out)
    place = place or _new_directory(plan, options, rounds, list(layouts))
    sides = [place / side_of(at, name) for at, name in enumerate(layouts, start=1)]
    for side in sides:
        put_unfinished_aside(side)
    codes: list[Exit] = []
    for number in range(1, rounds.repeats + 1):
        if _is_enough(sides, rounds):
            break
        for side, (name, layout) in zip(sides, layouts.items(), strict=True):
            if len(runs_in(side)) >= number:
                continue
            most = "at most " if rounds.until else ""
            click.echo(f"layout {name}, round {number} of {most}{rounds.repeats}", err=True)
            here = replace(options, out=side, layout=layout, report=False, is_round=True)
            codes.append(Exit(measure(plan_of_round(plan, rounds, number), here)))
            if codes[-1] in (Exit.RUN_ERROR, Exit.INTERRUPTED):
                _tell(place, rounds, options, None, cut_short=True)
                return gravest([*codes, *_recorded(place)])
    found = judged(plan, _runs(place))
    keep(found, place)
    _tell(place, rounds, options, found, cut_short=False)
    if options.assert_findings and is_missed(found):
        codes.append(Exit.MISSED)
    return gravest([*codes, *_recorded(place)])


def _runs(place: Path) -> list[Path]:
    return [run for side in sides_in(place) for run in runs_in(side)]


def _recorded(place: Path) -> list[Exit]:
    return recorded_codes(_runs(place))


def _is_enough(sides: Sequence[Path], rounds: Rounds) -> bool:
    """Whether the metric is precise enough in every step on every layout. A round that has begun is finished first, so
    that all layouts have as many rounds."""
    whole = len({len(runs_in(side)) for side in sides}) == 1
    return whole and all(enough_in(side, rounds) for side in sides)


def series_of(place: Path) -> tuple[Plan, Rounds, list[str]]:
    """The plan, the rounds and the names of the layouts that a series was started with. Raises CliError."""
    try:
        plain = json.loads((place / SERIES).read_text(encoding="utf-8"))
        rounds = rounds_from_json({"until": "", "part": 0.0, "random": False, **plain})
        return plan_from_json(plain["plan"]), rounds, [str(each) for each in plain["layouts"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the series of layouts cannot be continued: {error}"
        raise CliError(what, str(place / SERIES), "start a new sweep, without --resume") from error


def side_of(number: int, name: str) -> str:
    """The directory of a layout: ``2-three_hdd`` for ``disks/three_hdd`` and for ``/tmp/three_hdd.yaml``."""
    return f"{number}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', Path(name).stem)}"


def _new_directory(plan: Plan, options: Options, rounds: Rounds, layouts: Sequence[str]) -> Path:
    place = options.out / run_id(f"{plan.name}-layouts", time.time_ns())
    plain = {"schema": 1, **rounds_to_json(rounds), "layouts": layouts, "plan": plan_to_json(replace(plan, uris=()))}
    make_directory(place)
    with explained("the state of the series cannot be written", place / SERIES, "choose another directory with --out"):
        (place / SERIES).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return place


def _tell(place: Path, rounds: Rounds, options: Options, found: Reproduction | None, *, cut_short: bool) -> None:
    """Print the verdicts and where the runs are, make one report of all of them, and name the next commands. If rounds
    ended by a metric, print the metric of each step on each layout, too."""
    sides = sides_in(place)
    steps = _means(sides, rounds, as_json=options.as_json)
    runs = _runs(place)
    report, doubt = report_or_doubt(runs, place) if options.report and runs and not cut_short else (None, None)
    if options.as_json:
        record: dict[str, object] = {"record": "layouts", "path": str(place), "report": str(report) if report else None}
        record |= {"findings": found.to_json()} if found is not None else {}
        record |= {"metric": rounds.until.metric, "steps": steps} if rounds.until is not None else {}
        click.echo(json.dumps({**record, "sides": [str(side) for side in sides]}, ensure_ascii=False))
    else:
        if found is not None:
            click.echo("\n" + wrapped_lines(found.lines(), terminal_width()))
        commands = [f"{options.again} --resume {place}"] if cut_short else []
        commands += [] if report or cut_short else [f"perftest report {place}"]
        commands += [f"perftest compare {sides[0]} {sides[-1]}"] if len(sides) > 1 and not cut_short else []
        click.echo("\n" + where_and_next("layouts", place, report, commands))
    if doubt is not None:
        click.echo(doubt.lines(), err=True)


def _means(sides: Sequence[Path], rounds: Rounds, *, as_json: bool) -> dict[str, list[dict[str, Any]]]:
    """The metric that ends the rounds, in each step of each layout, by the directory of the layout."""
    found: dict[str, list[dict[str, Any]]] = {}
    for side in sides if rounds.until is not None else ():
        assert rounds.until is not None
        if not as_json:
            click.echo(f"\n{side.name}")
        found[side.name] = means(side, rounds.until, as_json=as_json)
    return found
