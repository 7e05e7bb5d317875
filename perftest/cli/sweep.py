"""``perftest sweep``: a workload, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perftest.cli.exits import Exit
from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.cli.target import only_one_target, out_options, split_uris, target_options

if TYPE_CHECKING:
    from perftest.spec.plan import Plan


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.UNTRUSTED, Exit.INTERRUPTED),
    examples=(
        "perftest sweep flow_control/in_flight --quick",
        "perftest sweep flow_control/prefetch -h amqp://user:secret@rabbit1 --set load.size=4KiB",
        "perftest sweep mine.yaml --dry-run",
    ),
)
@click.argument("name", metavar="WORKLOAD")
@target_options
@option(
    "--set",
    "overrides",
    section="Load",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a key of the workload, such as load.prefetch=100 or sweep.values=[1,10].",
)
@option("--quick", section="Timing", is_flag=True, help="Short steps: half a minute instead of half an hour.")
@option("--dry-run", section="Measurement", is_flag=True, help="Show the steps and the total time, and stop.")
@out_options
@option("--report/--no-report", section="Output", default=True, help="Make an HTML report afterwards.")
@json_option
@click.pass_context
def sweep(
    ctx: click.Context,
    name: str,
    uri: str | None,
    uris: str | None,
    cluster: Path | None,
    overrides: tuple[str, ...],
    quick: bool,
    dry_run: bool,
    out: Path,
    ui: str,
    report: bool,
    as_json: bool,
) -> None:
    """Measure step by step over the values of a workload.

    WORKLOAD is a file, or the name of a bundled one (perftest workload list).
    """
    from perftest.cli.workload import find
    from perftest.spec import plan_for

    targets = split_uris(uri, uris)
    only_one_target(targets, cluster)
    plan = plan_for(find(name), targets, overrides, quick=quick)
    if dry_run:
        _show(plan, as_json)
        return

    from perftest.cli.session import Options, measure

    ctx.exit(measure(plan, Options(out=out, ui=ui, as_json=as_json, report=report, cluster=cluster)))


def _show(plan: Plan, as_json: bool) -> None:
    from perftest.cli.ui.table import print_table
    from perftest.spec.codec import plan_digest, plan_to_json
    from perftest.spec.expand import describe, total_s
    from perftest.spec.units import format_duration

    if as_json:
        plain = {"total_s": total_s(plan), "digest": plan_digest(plan), "plan": plan_to_json(plan)}
        click.echo(json.dumps(plain, indent=1, ensure_ascii=False))
        return
    print_table(describe(plan), as_json=False)
    drains = len(plan.steps) if plan.isolation == "isolated" else 1
    click.echo(
        f"\n{len(plan.steps)} steps, {plan.isolation}: {format_duration(total_s(plan))}, "
        f"and up to {format_duration(plan.drain_s * drains)} of draining"
    )
