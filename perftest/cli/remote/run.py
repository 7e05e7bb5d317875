"""``perftest remote run``: a workload from many hosts, as one run."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.asked_cluster import layout_for, refuse_limits, tell_of_unused
from perftest.cli.exits import CliError, Exit
from perftest.cli.layouts import layout_option, no_layout_beside
from perftest.cli.remote.inventory import hosts_argument
from perftest.cli.sections import SectionedCommand, json_option, option, options
from perftest.cli.target import out_options, split_uris
from perftest.spec.cluster import ClusterSpec, Product

if TYPE_CHECKING:
    from infra.layout import Layout
    from perftest.spec.actions import Places
    from perftest.spec.hosts import HostSpec
    from perftest.spec.plan import Plan

# fmt: off
_run_options = options(
    option("-h", "--uri", section="Target", default=None, metavar="URI",
           help="AMQP URI of the broker, as the load hosts reach it."),
    option("-H", "--uris", section="Target", default=None, metavar="URIS",
           help="AMQP URIs of several broker nodes, separated by commas."),
    layout_option,
    option("--set", "overrides", section="Load", metavar="PATH=VALUE", multiple=True,
           help="Change a key of the workload, such as load.prefetch=100. Repeatable."),
    option("--vary", "varied", section="Load", metavar="SETTING=V1,V2", multiple=True,
           help="Sweep these values instead of the workload's, such as in_flight=10,100. Repeatable."),
    option("--quick", section="Timing", is_flag=True,
           help="Run the workload's short steps: seconds instead of minutes."),
    option("--isolated", section="Measurement", is_flag=True,
           help="Start every step with fresh queues and connections."),
    option("--random", "in_random_order", section="Measurement", is_flag=True,
           help="Run the steps in a random order, which the seed of the workload determines."),
    option("--at", "actions", section="Measurement", metavar="'TIME ACTION [NODE] [PEER] [VALUE]'", multiple=True,
           help="Act on a node, a host or links while the load runs, such as '30s partition leader', "
                "'30s latency rabbit1 rabbit2 5ms', '40s reconnect', '50s kill-host load1'. Repeatable."),
    option("--dry-run", section="Measurement", is_flag=True,
           help="Show what each host does and is asked to run, and exit without connecting."),
)
# fmt: on


@click.command(
    "run",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.INTERRUPTED),
    examples=(
        "perftest remote run hosts.yaml flow_control/in_flight --quick -h amqp://rabbit1",
        "perftest remote run hosts.yaml mine.yaml -H amqp://rabbit1,amqp://rabbit2 --vary in_flight=10,100",
        "perftest remote run hosts.yaml mine.yaml -h amqp://rabbit1 --dry-run",
    ),
)
@hosts_argument
@click.argument("workload", metavar="[WORKLOAD]", required=False)
@_run_options
@out_options
@option("--report/--no-report", section="Output", default=True, help="Make an HTML report after the run, or none.")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    inventory: Path,
    workload: str | None,
    uri: str | None,
    uris: str | None,
    layout: Path | None,
    dry_run: bool,
    out: Path,
    ui: str,
    report: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Run WORKLOAD from the hosts of HOSTS.yaml, and record it here as one run.

    Everything that a host needs is sent there first; Python and sshd are enough. Without -h or -H, the hosts with the
    role broker start a node each, as one cluster. All hosts begin at the same moment, and all of it ends with the run.
    """
    from perftest.cli.cluster_actions import refuse_actions_at
    from perftest.cli.remote.brokers import standing
    from perftest.cli.sweep import swept_plan, typed_actions
    from perftest.spec.hosts import load_hosts

    specs = load_hosts(inventory)
    plan, document = swept_plan(workload, {"repeats": 1, "until": None} | asked)
    targets = split_uris(uri, uris)
    plan = replace(plan, uris=targets, timeline=(*plan.timeline, *typed_actions(asked["actions"])))
    nodes = [] if targets else [spec for spec in specs if spec.is_broker]
    _check_roles(plan, specs, inventory)
    no_layout_beside(layout, targets, None)
    _check_brokers(targets, nodes, inventory)
    refuse_limits(plan)
    if targets:
        tell_of_unused(plan)
    else:
        _check_cluster(plan, nodes)
    placed = layout_for(plan, layout or named_layout(nodes, inventory), document, elsewhere=True) if nodes else None
    refuse_fuse(placed)
    taking_part = [spec for spec in specs if spec.is_load or spec in nodes]
    refuse_actions_at(plan, _places(taking_part, nodes, placed), asked["actions"])
    if nodes and layout is not None and standing(inventory) is not None:
        fix = "end them (perftest remote down), or leave out --layout"
        raise CliError("the nodes of `perftest remote up` have their layout already", "--layout", fix, Exit.USAGE)
    if dry_run:
        _show(taking_part, nodes, plan, placed)
        return

    from perftest.cli.measure import measure
    from perftest.cli.remote.brokers import brokers, found
    from perftest.cli.remote.crew import crew
    from perftest.cli.remote.faults import faults
    from perftest.cli.session_options import Options

    def say(text: str) -> None:
        click.echo(text, err=True)

    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(crew(taking_part, say))
        on_hosts = stack.enter_context(faults(hosts, taking_part, plan)) if plan.timeline else None
        started = found(inventory, hosts, [spec.name for spec in nodes]) if nodes else None
        if nodes and started is None:
            started = stack.enter_context(brokers(hosts, nodes, out, say, placed, plan.cluster.settings))
        options = Options(
            out=out, ui=ui, as_json=as_json, report=report, load_from=hosts, faults=on_hosts,
            cluster=started.directory if started is not None else None, nodes=started, actions=asked["actions"],
        )  # fmt: skip
        code = measure(plan, options)
    ctx.exit(code)


def _check_cluster(plan: Plan, nodes: list[HostSpec]) -> None:
    """Refuse a cluster that the workload asks for and the hosts cannot be. Raises CliError."""
    if plan.cluster.broker is not Product.REFERENCE:
        fix = "start RabbitMQ there, and name it with -H, or leave out cluster.broker"
        raise CliError("hosts start nodes of the reference broker only", "cluster.broker", fix, Exit.USAGE)
    wanted = plan.cluster.nodes
    if wanted not in (ClusterSpec().nodes, len(nodes)):
        what = f"the workload asks for {wanted} nodes, and {len(nodes)} hosts have the role broker"
        raise CliError(what, "cluster.nodes", "give as many hosts the role, or leave out cluster.nodes", Exit.USAGE)


def _places(taking_part: list[HostSpec], nodes: list[HostSpec], layout: Layout | None) -> Places:
    """What the timeline of the plan may act on."""
    from perftest.spec.actions import Places
    from reference_broker.storage.drives.profiles import PROFILES

    no_drives = "these nodes have none" if nodes else "this run measures a broker at a URI"
    drives = [drive.name for drive in layout.drives if not drive.path] if layout is not None else []
    hosts = [spec.name for spec in taking_part]
    return Places([spec.name for spec in nodes], drives, tuple(PROFILES), no_drives, hosts)


def named_layout(nodes: list[HostSpec], inventory: Path) -> Path | None:
    """The layout that the inventory names for the nodes. Raises CliError if there are several."""
    named = {spec.layout for spec in nodes}
    if len(named) > 1:
        what = "the nodes of a cluster have one layout, and the inventory names several"
        raise CliError(what, f"{inventory}: layout", "name it once, under defaults, or with --layout", Exit.USAGE)
    path = named.pop() if named else None
    return Path(path) if path is not None else None


def refuse_fuse(layout: Layout | None) -> None:
    """Raises CliError for drives that only the machine of this command can make."""
    if layout is not None and layout.fuse:
        what = f"drive {layout.fuse[0].name} is a FUSE drive, which is made on the machine of this command only"
        fix = "leave out its size (then the node models the drive itself), or name a directory of the hosts"
        raise CliError(what, f"layout {layout.name}", fix, Exit.USAGE)


def _check_roles(plan: Plan, specs: tuple[HostSpec, ...], inventory: Path) -> None:
    """Refuse groups that an inventory names and the workload does not have. Raises CliError."""
    groups = {group.name for group in plan.groups}
    for spec in specs:
        for key in ("publishes", "consumes"):
            for name in getattr(spec, key) or ():
                if name not in groups:
                    known = ", ".join(repr(each) for each in sorted(groups))
                    what = f"{spec.name} {key} for {name!r}, and the workload has no such group"
                    raise CliError(what, f"{inventory}: hosts.{spec.name}.{key}", f"use one of {known}", Exit.USAGE)


def _check_brokers(targets: tuple[str, ...], nodes: list[HostSpec], inventory: Path) -> None:
    """Refuse a run without a broker. Raises CliError."""
    if not targets and not nodes:
        fix = "name it with -h or -H, as the load hosts reach it, or give hosts the role broker"
        raise CliError("no broker is named", "-h/--uri, -H/--uris", fix, Exit.USAGE)


def _show(taking_part: list[HostSpec], nodes: list[HostSpec], plan: Plan, layout: Layout | None) -> None:
    """What each host would do, and every command that would run there."""
    from perftest.cli.remote import steps

    for spec in taking_part:
        does = ["is a broker node"] if spec in nodes else []
        if spec.is_load:
            roles = (("publishes", spec.publishes), ("consumes", spec.consumes))
            does += [verb for verb, groups in roles if groups != ()]
        click.echo(f"{spec.name}  {' and '.join(does)}, at {spec.address}, in {spec.directory}")
    click.echo(f"{len(plan.steps)} steps, {sum(step.duration_s for step in plan.steps):g} s in all")
    steps.show((spec, step) for spec in taking_part for step in steps.of_run(spec, plan, layout, is_node=spec in nodes))


COMMANDS = (run,)
