"""``perftest sweep``: measure a workload step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.ci.job_outputs import JobOutputs
from perftest.cli.sections import HTTP_URL, SectionedCommand, json_option, option, options
from perftest.cli.sweep_options import agree_to_length, measure_all, show_length, sweep_options, typed_after
from perftest.cli.target import (
    brokers_option,
    drives_option,
    home_option,
    job_options,
    layout_option,
    out_options,
    target_options,
)
from perftest.cli.ui.completion import workload_names
from perftest.exits import CliError, Exit
from perftest.measuring.asked_cluster import refuse_limits, tell_of_unused, with_broker
from perftest.options.targets import DRIVES_RULE, FUSE, Target, metrics_in_vain, no_home_without
from perftest.spec.cluster import Product

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.series.host_needs import HostNeeds
    from perftest.series.sweep_plan import SweepWork
    from perftest.spec.plan import Plan


# fmt: off
_own_options = options(
    option("--broker-metrics", section="Target", type=HTTP_URL, multiple=True,
           help="URL where the broker tells its own figures: http://host:15692/metrics (Prometheus) or "
                "http://user:password@host:15672 (RabbitMQ's management API). Repeatable, once for each node."),
    option("--at", "actions", section="Measurement", metavar="'TIME ACTION [NODE] [step N]'", multiple=True,
           help="Act on a node of the local cluster while the load runs, such as '30s kill leader' or "
                "'5s restart killed step 2'; also beside the actions of the workload. Repeatable."),
    option("--dry-run", section="Measurement", is_flag=True,
           help="Show the steps and the total time, and exit without a run."),
    option("--resume", section="Measurement", type=click.Path(path_type=Path, file_okay=False, exists=True),
           default=None,
           help="Continue an interrupted sweep. DIRECTORY holds its run, or its rounds."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.INTERRUPTED),
    examples=(
        "perftest sweep flow_control/in_flight --quick",
        "perftest sweep -h amqp://rabbit1 --vary in_flight=10,100,1000 --vary prefetch=100,1000",
        "perftest sweep mine.yaml --repeats 10 --until e2e.p99=5%   repeat until each p99 is known to 5 %",
    ),
)
@click.argument("name", metavar="[WORKLOAD]", required=False, shell_complete=workload_names)
@target_options
@layout_option
@drives_option
@brokers_option
@home_option
@sweep_options
@_own_options
@out_options
@job_options
@option("--report/--no-report", section="Output", default=True, help="Make an HTML report after the sweep, or none.")
@json_option
@click.pass_context
def sweep(ctx: click.Context, /, name: str | None, **flags: Any) -> None:
    """Measure a series of settings, one step after the other.

    WORKLOAD is a file, or the name of a bundled workload (see `perftest workload list`). Without WORKLOAD, the sweep
    measures one quorum queue with the settings of --vary.
    """
    from perftest.measuring.session_options import Options
    from perftest.series.host_needs import host_needs, this_host
    from perftest.series.sides import SeriesSide, SeriesWords, sides_of
    from perftest.series.sweep_plan import SweepRequest, check_layouts, refuse_layouts_beside, work_of

    target, request, resume = Target.of(flags), SweepRequest.of(name, flags), flags["resume"]
    refuse_layouts_beside(request, target.layout, *target.running)
    work = work_of(request, resume, is_placed=bool(target.layout or target.running or target.drives))
    brokers = target.brokers or work.brokers
    plans = [with_broker(replace(work.plan, uris=target.uris), each) for each in brokers or (None,)]
    plan, products = plans[0], [each.cluster.broker for each in plans]
    if len(plans) > 1:
        work = replace(work, brokers=brokers, layouts=work.layouts or ((str(target.layout),) if target.layout else ()))
    is_fuse = FUSE in (target.drives, work.drives) or (len(plans) > 1 and Product.RABBITMQ in products)
    for each in plans:
        refuse_limits(each)
    no_home_without(products, target.rabbitmq_home, *target.running)
    if target.running:
        tell_of_unused(plan)
    if flags["broker_metrics"] and not target.uris:
        click.echo(f"note: {metrics_in_vain(plan.cluster.broker)}", err=True)
    sides = () if target.running else (*sides_of(plans, work.layouts, target.layout, work.document, is_fuse=is_fuse),)
    placed = {side.name: side.layout for side in sides if side.layout is not None}
    if target.drives and not placed:
        raise CliError(DRIVES_RULE, "--drives", "name a layout: --layout FILE or --vary layout=A,B", Exit.USAGE)
    check_layouts(plan, [*placed.values()], resume, assert_findings=flags["assert_findings"])
    for side in sides or (SeriesSide(),):
        _refuse_actions(side.plan(plan), target.cluster, side.layout, request.actions)
    work = replace(work, plan=plan)
    cells = [(side.plan(plan).cluster.broker, side.layout) for side in sides]
    needs = host_needs(plan, cells, work.rounds.repeats)
    if flags["dry_run"]:
        _show(work, needs, flags["as_json"])
        return
    _require_brokers(products if sides else (), target.rabbitmq_home)
    for line in needs.lines(this_host()) if needs is not None else ():
        click.echo(line, err=True)
    agree_to_length(work, resume, yes=flags["yes"])
    options = Options(
        out=flags["out"], ui=flags["ui"], as_json=flags["as_json"], report=flags["report"], cluster=target.cluster,
        layout=placed.get(""), rabbitmq_home=target.rabbitmq_home, target=typed_after(target), actions=request.actions,
        broker_metrics=flags["broker_metrics"] if target.uris else (), assert_findings=flags["assert_findings"],
        job=JobOutputs(junit=flags["junit"], annotations=flags["annotations"]),
    )  # fmt: skip
    words = SeriesWords(layouts=work.layouts, brokers=work.brokers, drives=FUSE if is_fuse else "")
    is_series = bool(work.layouts or work.brokers)
    ctx.exit(measure_all(plan, options, work.rounds, sides if is_series else (), resume, words))


def _refuse_actions(plan: Plan, cluster: Path | None, layout: PlacedLayout | None, typed: Sequence[str]) -> None:
    """Raises SpecError with all problems of the timeline on a layout."""
    if not plan.timeline:
        return
    from perftest.actions.cluster_actions import refuse_actions

    refuse_actions(plan, cluster, layout, typed)


def _require_brokers(products: Sequence[Product], home: Path | None) -> None:
    """Raises RabbitMQError if a RabbitMQ is to be started that is not installed: no run would be made."""
    from infra import rabbitmq_cluster

    if Product.RABBITMQ in products:
        rabbitmq_cluster.require(home)


def _show(work: SweepWork, needs: HostNeeds | None, as_json: bool) -> None:
    from perftest.cli.ui.table import print_table
    from perftest.series.host_needs import this_host
    from perftest.spec.codec import plan_digest, plan_to_json
    from perftest.spec.expand import describe, total_s
    from perftest.spec.units import format_duration

    plan = work.plan
    if as_json:
        plain = {"total_s": total_s(plan), "repeats": work.rounds.repeats, "digest": plan_digest(plan)}
        plain |= {name: list(found) for name in ("layouts", "brokers") if (found := getattr(work, name))}
        plain |= {"series_s": work.length_s, **({"host_needs": asdict(needs)} if needs is not None else {})}
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
    show_length(work)
    for line in needs.lines(this_host()) if needs is not None else ():
        click.echo(line)
