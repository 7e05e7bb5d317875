"""``perftest sweep``: measure a workload step by step."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.asked_cluster import in_folder, layout_for, refuse_limits, tell_of_unused, with_broker
from perftest.cli.exits import CliError, Exit
from perftest.cli.extras import require_report
from perftest.cli.layouts import (
    SERIES,
    broker_option,
    layout_of,
    layout_option,
    no_broker_beside,
    no_layout_beside,
)
from perftest.cli.sections import COUNT, HTTP_URL, SectionedCommand, json_option, option, options
from perftest.cli.target import (
    metrics_in_vain,
    only_one_target,
    out_options,
    split_uris,
    target_options,
    typed_again,
)

if TYPE_CHECKING:
    from infra.layout import Layout
    from perftest.cli.rounds import Rounds
    from perftest.cli.session_options import Options
    from perftest.spec.actions import TimedAction
    from perftest.spec.load import Document
    from perftest.spec.plan import Plan
    from perftest.spec.problem import Problem

ONE_QUEUE: Final = """\
schema: 1
name: sweep
title: one quorum queue
queues: [{name: perftest}]
step: {duration: 30s, warmup: 5s}
"""
"""The workload that is swept if none is named."""


LAYOUT: Final = "layout"
"""What ``--vary`` takes besides settings."""
_GRID: Final = "sweep={grid: {"
"""The beginning of the override that ``--vary`` becomes."""


# fmt: off
_sweep_options = options(
    option("--set", "overrides", section="Load", metavar="PATH=VALUE", multiple=True,
           help="Change a key of the workload, such as load.prefetch=100 or sweep.values=[1,10]. Repeatable."),
    option("--vary", "varied", section="Load", metavar="SETTING=V1,V2", multiple=True,
           help="Sweep these values instead of the workload's, such as in_flight=10,100. With several --vary, every "
                "combination is a step. layout=A,B runs all steps on a cluster of each layout. Repeatable."),
    option("--broker-metrics", section="Target", type=HTTP_URL, multiple=True,
           help="URL where the broker tells its own figures: http://host:15692/metrics (Prometheus) or "
                "http://user:password@host:15672 (RabbitMQ's management API). Repeatable, once for each node."),
    option("--at", "actions", section="Measurement", metavar="'TIME ACTION [NODE] [step N]'", multiple=True,
           help="Act on a node of the local cluster while the load runs, such as '30s kill leader' or "
                "'5s restart killed step 2'; also beside the actions of the workload. Repeatable."),
    option("--quick", section="Timing", is_flag=True,
           help="Run the workload's short steps: seconds instead of minutes."),
    option("--isolated", section="Measurement", is_flag=True,
           help="Start every step with fresh queues and connections."),
    option("--random", "in_random_order", section="Measurement", is_flag=True,
           help="Run the steps in a random order, which the seed of the workload determines."),
    option("--repeats", section="Measurement", type=COUNT, default="1",
           help="Most rounds to measure. Each round runs all steps and is a run of its own."),
    option("--until", section="Measurement", metavar="METRIC=PART", default=None,
           help="Stop repeating once METRIC is known within PART of its value in every step, such as e2e.p99=5%."),
    option("--assert", "assert_findings", section="Measurement", is_flag=True,
           help="End with exit code 4 unless all findings of the workload are reproduced."),
    option("--dry-run", section="Measurement", is_flag=True,
           help="Show the steps and the total time, and exit without a run."),
    option("--resume", section="Measurement", type=click.Path(path_type=Path, file_okay=False, exists=True),
           default=None,
           help="Continue an interrupted sweep. DIRECTORY holds its run, or its rounds."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.NOT_INSTALLED, Exit.INTERRUPTED),
    examples=(
        "perftest sweep flow_control/in_flight --quick",
        "perftest sweep -h amqp://rabbit1 --vary in_flight=10,100,1000 --vary prefetch=100,1000",
        "perftest sweep mine.yaml --repeats 10 --until e2e.p99=5%   repeat until each p99 is known to 5 %",
    ),
)
@click.argument("name", metavar="[WORKLOAD]", required=False)
@target_options
@layout_option
@broker_option
@_sweep_options
@out_options
@option("--report/--no-report", section="Output", default=True, help="Make an HTML report after the sweep, or none.")
@json_option
@click.pass_context
def sweep(
    ctx: click.Context,
    /,
    name: str | None,
    uri: str | None,
    uris: str | None,
    cluster: Path | None,
    layout: Path | None,
    broker: str | None,
    dry_run: bool,
    resume: Path | None,
    out: Path,
    ui: str,
    report: bool,
    as_json: bool,
    broker_metrics: tuple[str, ...],
    assert_findings: bool,
    **asked: Any,
) -> None:
    """Measure a series of settings, one step after the other.

    WORKLOAD is a file, or the name of a bundled workload (see `perftest workload list`). Without WORKLOAD, the sweep
    measures one quorum queue with the settings of --vary.
    """
    from perftest.cli.session_options import Options

    require_report(report and not dry_run, "add --no-report")
    targets = split_uris(uri, uris)
    only_one_target(targets, cluster)
    no_layout_beside(layout, targets, cluster)
    no_broker_beside(broker, targets, cluster, resume)
    named = take_layouts(asked, layout, (*targets, *([str(cluster)] if cluster else [])))
    if named and resume is not None:
        rule = "layouts cannot be added to a sweep that is continued"
        raise CliError(rule, "--vary layout", "leave out --resume, or the layouts", Exit.USAGE)
    if resume is not None and (resume / SERIES).exists():
        refuse_changes(name, asked, changed=bool(layout or targets or cluster))
        rest = Options(out=out, ui=ui, as_json=as_json, report=report, assert_findings=assert_findings)
        ctx.exit(_resume_series(resume, rest))
    (plan, rounds), document = (resumed_plan(resume, name, asked), None) if resume else planned(name, asked)
    plan = replace(plan, uris=targets, timeline=(*plan.timeline, *typed_actions(asked["actions"])))
    plan = with_broker(plan, broker)
    refuse_limits(plan)
    if targets or cluster is not None:
        tell_of_unused(plan)
    if broker_metrics and not targets:
        click.echo(f"note: {metrics_in_vain(plan.cluster.broker)}", err=True)
    placed = None if named or targets or cluster is not None else layout_for(plan, layout, document)
    several = {each: layout_of(Path(each), plan.cluster.nodes, plan.cluster.broker) for each in named}
    check_layouts(plan, [*several.values(), *filter(None, [placed])], resume, assert_findings=assert_findings)
    _refuse_actions(plan, cluster, tuple(several.values()) or (placed,), asked["actions"])
    if dry_run:
        _show(plan, rounds, as_json, named)
        return

    again = broker_typed_again(targets, cluster, layout)
    options = Options(out=out, ui=ui, as_json=as_json, report=report, cluster=cluster, layout=placed, target=again)
    options = replace(options, actions=asked["actions"], broker_metrics=broker_metrics if targets else ())
    options = replace(options, assert_findings=assert_findings)
    ctx.exit(measure_all(plan, options, rounds, several, resume))


def measure_all(
    plan: Plan, options: Options, rounds: Rounds, layouts: Mapping[str, Layout], resume: Path | None
) -> int:
    """Measure the plan in its rounds, on each of the layouts if there are some, and return the exit code. ``resume`` is
    the directory of what is continued: a series, rounds, or a run. Raises CliError."""
    from perftest.cli.layout_series import measure_series
    from perftest.cli.measure import measure
    from perftest.cli.rounds import STATE, repeat

    if resume is not None:
        _refuse_other_hosts(resume, options)
    if layouts:
        return measure_series(plan, options, rounds, layouts, resume)
    if rounds.repeats > 1:
        return repeat(plan, options, rounds, resume if resume and (resume / STATE).exists() else None)
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


def _refuse_actions(plan: Plan, cluster: Path | None, layouts: Sequence[Layout | None], typed: Sequence[str]) -> None:
    """Raises SpecError with all problems of the timeline on one of the layouts."""
    if not plan.timeline:
        return
    from perftest.cli.cluster_actions import refuse_actions

    for each in layouts:
        refuse_actions(plan, cluster, each, typed)


def broker_typed_again(targets: tuple[str, ...], cluster: Path | None, layout: Path | None) -> str:
    """The words that name the broker in a command that continues the sweep. The plan of the run knows its --broker."""
    words = typed_again(targets, cluster) + (["--layout", str(layout)] if layout is not None else [])
    return "".join(f" {shlex.quote(word)}" for word in words)


def take_layouts(asked: dict[str, Any], layout: Path | None, running: Sequence[str]) -> list[str]:
    """Take the layouts of ``--vary layout=A,B`` out of what was asked for. Raises CliError for what does not go with
    them."""
    typed = [text for text in asked["varied"] if _axis(text)[0] == LAYOUT]
    asked["varied"] = tuple(text for text in asked["varied"] if text not in typed)
    asked["layouts"] = named = [each.strip() for text in typed for each in _axis(text)[1].split(",")]
    beside = {"--layout": layout, "a broker that runs already": running}
    for what, given in beside.items():
        if named and given:
            rule = f"layouts are varied on clusters that are started for them, which does not go with {what}"
            raise CliError(rule, "--vary layout", f"leave out {what}, or the layouts", Exit.USAGE)
    if len(set(named)) < len(named):
        raise CliError("a layout is named twice", "--vary layout", "name each layout once", Exit.USAGE)
    return named


def _resume_series(place: Path, options: Options) -> int:
    """Measure what is left of a sweep over layouts. Raises CliError, SpecError."""
    from perftest.cli.layout_series import series_of

    plan, rounds, names = series_of(place)
    layouts = {each: layout_of(Path(each), plan.cluster.nodes, plan.cluster.broker) for each in names}
    check_layouts(plan, [*layouts.values()], None, assert_findings=options.assert_findings)
    return measure_all(plan, options, rounds, layouts, place)


def typed_actions(typed: Sequence[str]) -> list[TimedAction]:
    """The actions of ``--at``. Raises SpecError with all that cannot be read."""
    from perftest.spec.actions import parse_action
    from perftest.spec.problem import Problem, SpecError
    from perftest.spec.units import UnitError

    found, problems = [], []
    for text in typed:
        try:
            found.append(parse_action(text))
        except UnitError as error:
            problems.append(Problem(path="", value=None, rule=error.rule, fix=error.fix, file="--at"))
    if problems:
        raise SpecError(problems)
    return found


def check_layouts(plan: Plan, layouts: Sequence[Layout], resume: Path | None, *, assert_findings: bool) -> None:
    """Refuse layouts that cannot be told apart, and --assert where the findings cannot be decided. Raises CliError."""
    from perftest.cli.judgement import refuse_one_title, refuse_unjudgeable

    titles = [each.name for each in layouts]
    refuse_one_title(titles, "--vary layout")
    if assert_findings and resume is not None and not plan.findings:
        what = "the rest of a sweep cannot be judged by itself"
        raise CliError(what, "--assert", "leave --assert out, and measure the whole sweep again", Exit.USAGE)
    if assert_findings:
        refuse_unjudgeable(plan, titles, "--vary layout=A,B")


def planned(name: str | None, asked: dict[str, Any]) -> tuple[tuple[Plan, Rounds], Document]:
    """The plan of a new sweep with its rounds, and the document of its workload. Raises CliError, SpecError."""
    plan, document = swept_plan(name, asked)
    return (plan, _rounds(asked)), document


def swept_plan(name: str | None, asked: dict[str, Any]) -> tuple[Plan, Document]:
    """The plan of the workload, with the changes that options ask for, and the document of the workload. Raises
    SpecError."""
    from perftest.cli.workload import find
    from perftest.spec import SpecError
    from perftest.spec.check import check
    from perftest.spec.expand import expand
    from perftest.spec.load import load_workload, parse_workload

    if name is None and not asked["varied"] and not asked.get("layouts"):
        fix = "name a workload (perftest workload list), or settings: --vary in_flight=10,100,1000"
        raise CliError("there is nothing to sweep", "WORKLOAD", fix, Exit.USAGE)
    overrides = [*asked["overrides"], *_sweep_override(asked)]
    try:
        path = find(name) if name else Path()
        read = load_workload(path, overrides) if name else parse_workload(ONE_QUEUE, "--vary", overrides)
        problems = check(*read)
    except SpecError as error:
        problems = error.problems
    if problems:
        raise SpecError([_blamed(problem, asked["varied"]) for problem in problems])
    return in_folder(expand(read[0], (), quick=asked["quick"]), path), read[1]


def _blamed(problem: Problem, varied: Sequence[str]) -> Problem:
    """A problem of a value that ``--vary`` put into the document, with the option as it was typed as its place."""
    if not problem.file.startswith(f"--set {_GRID}"):
        return problem
    setting = problem.path.removeprefix("sweep.grid.").partition("[")[0].partition(".")[0]
    typed = [text for text in varied if _axis(text)[0] == setting] or varied
    return replace(problem, file=" ".join(f"--vary {text}" for text in typed), path="")


def _sweep_override(asked: dict[str, Any]) -> list[str]:
    """The options about the sweep, as changes of the document."""
    found = []
    if asked["varied"]:
        axes = [_axis(each) for each in asked["varied"]]
        names = [setting for setting, _ in axes]
        if len(set(names)) < len(names):
            raise CliError("a setting is varied twice", "--vary", "give all its values at once", Exit.USAGE)
        found.append(f"{_GRID}{', '.join(f'{setting}: [{values}]' for setting, values in axes)}}}}}")
    found += ["sweep.mode=isolated"] if asked["isolated"] else []
    found += ["sweep.order=random"] if asked["in_random_order"] else []
    return found


def _axis(text: str) -> tuple[str, str]:
    setting, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise CliError(f"{text!r} is not SETTING=VALUES", "--vary", "write --vary in_flight=10,100,1000", Exit.USAGE)
    return setting.strip().replace("-", "_"), values


def _rounds(asked: dict[str, Any]) -> Rounds:
    from perftest.cli.rounds import ROUNDS_MIN, Rounds

    objective, part = _until(asked["until"]) if asked["until"] else (None, 0.0)
    if asked["repeats"] < 1 or (objective is not None and asked["repeats"] < ROUNDS_MIN):
        least = ROUNDS_MIN if objective is not None else 1
        rule = f"{asked['repeats']} rounds are too few" + (" to know how much they differ" if least > 1 else "")
        raise CliError(rule, "--repeats", f"use {least} or more", Exit.USAGE)
    return Rounds(repeats=asked["repeats"], until=objective, part=part, random=asked["in_random_order"])


def _until(text: str) -> tuple[Any, float]:
    """The metric of ``e2e.p99=5%``, and how wide half of its confidence interval may be, as a part of its value."""
    from perftest.cli.sections import PART
    from perftest.spec.slo import parse_objective
    from perftest.spec.units import UnitError

    metric, equals, part = text.partition("=")
    try:
        objective = parse_objective(f"{metric.strip()}>0{'ms' if '.' in metric else ''}")
        if not equals:
            raise UnitError(f"{text!r} is not METRIC=PART", "write e2e.p99=5%")
    except UnitError as error:
        raise CliError(error.rule, "--until", error.fix, Exit.USAGE) from error
    return objective, PART.convert(part, None, None)


def refuse_changes(name: str | None, asked: dict[str, Any], *, changed: bool = False) -> None:
    """Refuse options that would change a sweep that is continued. Raises CliError."""
    flags = ("overrides", "varied", "quick", "isolated", "in_random_order", "until", "actions")
    if name is not None or changed or any(asked[flag] for flag in flags):
        fix = "with --resume, give only options about the broker and the output"
        raise CliError("a continued sweep cannot be changed", "--resume", fix, Exit.USAGE)


def resumed_plan(place: Path, name: str | None, asked: dict[str, Any]) -> tuple[Plan, Rounds]:
    """The plan and the rounds that are left of a sweep without layouts. Raises CliError."""
    from perftest.cli.rounds import STATE, Rounds, remaining, rounds_of

    refuse_changes(name, asked)
    if (place / STATE).exists():
        return rounds_of(place)
    return remaining(place), Rounds(repeats=1, until=None, part=0.0, random=False)


def _show(plan: Plan, rounds: Rounds, as_json: bool, layouts: Sequence[str] = ()) -> None:
    from perftest.cli.ui.table import print_table
    from perftest.spec.codec import plan_digest, plan_to_json
    from perftest.spec.expand import describe, total_s
    from perftest.spec.units import format_duration

    if as_json:
        plain = {"total_s": total_s(plan), "repeats": rounds.repeats, "digest": plan_digest(plan)}
        plain |= {"layouts": list(layouts)} if layouts else {}
        click.echo(json.dumps({**plain, "plan": plan_to_json(plan)}, indent=1, ensure_ascii=False))
        return
    print_table(describe(plan), as_json=False)
    drains = len(plan.steps) if plan.isolation == "isolated" else 1
    click.echo(
        f"\n{len(plan.steps)} steps, {plan.isolation}: {format_duration(total_s(plan))}, "
        f"and up to {format_duration(plan.drain_s * drains)} of draining"
    )
    if plan.background:
        click.echo(f"beside them: {', '.join(each.name for each in plan.background)}")
    if layouts:
        click.echo(f"all of this on each of {len(layouts)} layouts: {', '.join(layouts)}")
    if rounds.repeats > 1:
        whole = format_duration(total_s(plan) * rounds.repeats)
        click.echo(f"at most {rounds.repeats} rounds of this: {whole}, without draining")
