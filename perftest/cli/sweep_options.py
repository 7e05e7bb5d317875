"""Options that ``sweep`` and ``remote run`` share, and the measurement that both of them make."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perftest.cli.sections import COUNT, option, options
from perftest.cli.ui.completion import metric_names, setting_names
from perftest.exits import CliError, Exit
from perftest.options.targets import Target, typed_again

if TYPE_CHECKING:
    from perftest.measuring.session_options import Options
    from perftest.series.rounds import Rounds
    from perftest.series.sides import SeriesSide, SeriesWords
    from perftest.series.sweep_plan import SweepWork
    from perftest.spec.plan import Plan

LONG_S: Final = 3600.0
"""Time from which a matrix of runs is begun only after a yes."""
# fmt: off
sweep_options = options(
    option("--set", "overrides", section="Load", metavar="PATH=VALUE", multiple=True,
           help="Change a key of the workload, such as load.prefetch=100 or sweep.values=[1,10]. Repeatable."),
    option("--vary", "varied", section="Load", metavar="SETTING=V1,V2", multiple=True, shell_complete=setting_names,
           help="Sweep these values instead of the workload's, such as in_flight=10,100. With several --vary, every "
                "combination is a step. layout=A,B runs all steps on a cluster of each layout. Repeatable."),
    option("--quick", section="Timing", is_flag=True,
           help="Run the workload's short steps: seconds instead of minutes."),
    option("--isolated", section="Measurement", is_flag=True,
           help="Start every step with fresh queues and connections."),
    option("--random", "in_random_order", section="Measurement", is_flag=True,
           help="Run the steps in a random order, which the seed of the workload determines."),
    option("--repeats", section="Measurement", type=COUNT, default="1",
           help="Most rounds to measure. Each round runs all steps and is a run of its own."),
    option("--until", section="Measurement", metavar="METRIC=PART", default=None, shell_complete=metric_names,
           help="Stop repeating once METRIC is known within PART of its value in every step, such as e2e.p99=5%."),
    option("--assert", "assert_findings", section="Measurement", is_flag=True,
           help="End with exit code 4 unless all findings of the workload are reproduced."),
    option("--yes", "yes", section="Measurement", is_flag=True,
           help="Begin several rounds or layouts, or combinations of settings, that take more than an hour, without a "
                "question."),
)
"""Options that say what a sweep measures: fields of :class:`~perftest.series.sweep_plan.SweepRequest`."""
# fmt: on


def agree_to_length(work: SweepWork, resume: Path | None, *, yes: bool) -> None:
    """Ask at a terminal whether a matrix that takes long may begin. Raises CliError without a terminal, and for no."""
    from perftest.spec.units import format_duration

    if yes or resume is not None or not work.is_matrix or work.length_s <= LONG_S:
        return
    takes = f"this takes {work.length_in_words()}"
    if sys.stdin.isatty() and click.confirm(f"{takes}. Begin?", err=True):
        return
    rule = f"{takes}: more than {format_duration(LONG_S)} needs --yes"
    raise CliError(rule, work.plan.name, "add --yes to begin, or --dry-run to see the steps", Exit.USAGE)


def show_length(work: SweepWork) -> None:
    """Print the layouts and rounds of a sweep, and the time of all of them together."""
    if work.layouts:
        click.echo(f"all of this on each of {len(work.layouts)} layouts: {', '.join(work.layouts)}")
    if work.brokers:
        click.echo(f"all of this with each of {len(work.brokers)} brokers: {', '.join(work.brokers)}")
    if work.rounds.repeats > 1:
        click.echo(f"{work.at_most}{work.rounds.repeats} rounds of this")
    if work.copies > 1:
        click.echo(f"in all: {work.length_in_words()}")


def measure_all(
    plan: Plan,
    options: Options,
    rounds: Rounds,
    sides: Sequence[SeriesSide],
    resume: Path | None,
    words: SeriesWords | None = None,
) -> int:
    """Measure the plan in its rounds, on each of the sides if there are some, and return the exit code. ``resume`` is
    the directory of what is continued: a series, rounds, or a run. ``words`` name the sides. Raises CliError."""
    from perftest.cli.measure import measure
    from perftest.cli.series_output import show_rounds, show_series
    from perftest.series.layout_series import measure_series
    from perftest.series.rounds import STATE, repeat

    if resume is not None:
        _refuse_other_hosts(resume, options)
    if sides:
        end = measure_series(plan, options, rounds, measure, sides, resume, words)
        show_series(end, rounds, options)
        return end.code
    if rounds.repeats > 1:
        end = repeat(plan, options, rounds, measure, resume if resume and (resume / STATE).exists() else None)
        show_rounds(end, rounds, options)
        return end.code
    return measure(plan, replace(options, resumed=resume))


def _refuse_other_hosts(place: Path, options: Options) -> None:
    """Refuse to continue here what hosts have measured, and on hosts what was measured here. Raises CliError."""
    from perftest.results.reader import read_manifest

    manifests = sorted(place.glob("**/manifest.json"))
    if any(("coordinator" in read_manifest(each.parent)) != (options.prepare is not None) for each in manifests):
        here = options.prepare is None
        what = f"the first part was measured from {'hosts' if here else 'this machine'}"
        command = "perftest remote run HOSTS.yaml" if here else "perftest sweep"
        raise CliError(what, str(place), f"continue with `{command} --resume {place}`", Exit.USAGE)


def typed_after(target: Target) -> str:
    """The words that name the broker in a command that continues the sweep. The plan of the run knows its --broker, and
    a series its layouts and drives."""
    words = typed_again(target.uris, target.cluster)
    words += ["--layout", str(target.layout)] if target.layout is not None else []
    words += ["--drives", target.drives] if target.drives and target.layout is not None else []
    words += ["--rabbitmq-home", str(target.rabbitmq_home)] if target.rabbitmq_home is not None else []
    return "".join(f" {shlex.quote(word)}" for word in words)
