"""``perftest remote run``: a workload from many hosts, as one run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.ci.job_outputs import JobOutputs
from perftest.cli.remote.host_options import hosts_argument, show_steps
from perftest.cli.sections import SectionedCommand, json_option, option, options
from perftest.cli.sweep_options import agree_to_length, measure_all, show_length, sweep_options, typed_after
from perftest.cli.target import job_options, layout_option, out_options
from perftest.cli.ui.completion import workload_names
from perftest.exits import CliError, Exit
from perftest.measuring.asked_cluster import layout_for, refuse_limits, tell_of_unused
from perftest.measuring.placement import layout_of
from perftest.options.targets import Target, no_layout_beside, split_uris
from perftest.spec.cluster import ClusterSpec, Product

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.measuring.session_options import Options
    from perftest.series.sweep_plan import SweepWork
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
    sweep_options,
    option("--at", "actions", section="Measurement", metavar="'TIME ACTION [NODE] [PEER] [VALUE]'", multiple=True,
           help="Act on a node, a host or links while the load runs, such as '30s partition leader', "
                "'30s latency rabbit1 rabbit2 5ms', '40s reconnect', '50s kill-host load1'. Repeatable."),
    option("--resume", section="Measurement", type=click.Path(path_type=Path, file_okay=False, exists=True),
           default=None, help="Continue what was interrupted. DIRECTORY holds its run, its rounds, or its layouts."),
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
        "perftest remote run hosts.yaml mine.yaml --vary layout=disks/one_hdd,disks/three_hdd --repeats 3",
        "perftest remote run hosts.yaml mine.yaml -h amqp://rabbit1 --dry-run",
    ),
)
@hosts_argument
@click.argument("workload", metavar="[WORKLOAD]", required=False, shell_complete=workload_names)
@_run_options
@out_options
@job_options
@option("--report/--no-report", section="Output", default=True, help="Make an HTML report after the run, or none.")
@json_option
@click.pass_context
def run(ctx: click.Context, /, inventory: Path, workload: str | None, **flags: Any) -> None:
    """Run WORKLOAD from the hosts of HOSTS.yaml, and record it here as one run.

    Everything that a host needs is sent there first; Python and sshd are enough. Without -h or -H, the hosts with the
    role broker start a node each, as one cluster. All hosts begin at the same moment, and all of it ends with the run.
    With several layouts or rounds, each of them is a run, with nodes of its own.
    """
    from perftest.actions.cluster_actions import refuse_actions_at
    from perftest.measuring.session_options import Options
    from perftest.series.sides import SeriesSide, SeriesWords
    from perftest.series.sweep_plan import SweepRequest, check_layouts, refuse_layouts_beside, work_of
    from perftest.spec.hosts import load_hosts

    specs, request, resume = load_hosts(inventory), SweepRequest.of(workload, flags), flags["resume"]
    targets, layout = split_uris(flags["uri"], flags["uris"]), flags["layout"]
    no_layout_beside(layout, targets, None)
    refuse_layouts_beside(request, layout, *targets)
    work = work_of(request, resume, is_placed=layout is not None)
    plan = replace(work.plan, uris=targets)
    nodes = [] if targets else [spec for spec in specs if spec.is_broker]
    _check_roles(plan, specs, inventory)
    _check_brokers(targets, nodes, inventory)
    refuse_limits(plan)
    if targets:
        tell_of_unused(plan)
    else:
        _check_cluster(plan, nodes)
    _check_standing(inventory, nodes, [*work.layouts, layout])
    several = {name: layout_of(Path(name), elsewhere=True) for name in work.layouts}
    path = layout or named_layout(nodes, inventory)
    placed = layout_for(plan, path, work.document, elsewhere=True) if nodes and not several else None
    layouts = tuple(several.values()) or (placed,)
    check_layouts(plan, list(filter(None, layouts)), resume, assert_findings=flags["assert_findings"])
    taking_part = [spec for spec in specs if spec.is_load or spec in nodes]
    for each in layouts:
        refuse_fuse(each)
        refuse_actions_at(plan, _places(taking_part, nodes, each), request.actions)
    if flags["dry_run"]:
        _show(taking_part, nodes, replace(work, plan=plan), layouts)
        return
    agree_to_length(replace(work, plan=plan), resume, yes=flags["yes"])
    options = Options(
        out=flags["out"], ui=flags["ui"], as_json=flags["as_json"], report=flags["report"], layout=placed,
        actions=request.actions, assert_findings=flags["assert_findings"],
        job=JobOutputs(junit=flags["junit"], annotations=flags["annotations"]),
        prepare=partial(_prepared, inventory, taking_part, nodes, plan),
        again=f"perftest remote run {shlex.quote(str(inventory))}",
        target=typed_after(Target(uris=targets, cluster=None, layout=layout)),
    )  # fmt: skip
    sides = [SeriesSide(name=name, layout=each) for name, each in several.items()]
    ctx.exit(measure_all(plan, options, work.rounds, sides, resume, SeriesWords(layouts=work.layouts)))


@contextlib.contextmanager
def _prepared(
    inventory: Path, taking_part: list[HostSpec], nodes: list[HostSpec], plan: Plan, options: Options
) -> Iterator[Options]:
    """The hosts of one run while it lasts, and the nodes on them with ``options.layout``, unless these stay anyway.
    Raises HostsError, LinkError, ClusterError."""
    from infra import local_cluster
    from perftest.measuring.measured_broker import set_policies
    from perftest.remote.brokers import brokers, found
    from perftest.remote.crew import crew
    from perftest.remote.faults import faults

    def say(text: str) -> None:
        click.echo(text, err=True)

    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(crew(taking_part, say))
        on_hosts = stack.enter_context(faults(hosts, taking_part, plan)) if plan.timeline else None
        started = found(inventory, hosts, [spec.name for spec in nodes]) if nodes else None
        if nodes and started is None:
            limits, layout = plan.cluster.settings, options.layout
            started = stack.enter_context(brokers(hosts, nodes, options.out, say, layout, limits))
            if plan.cluster.policies:
                set_policies(local_cluster.load(started.directory), plan)
        directory = started.directory if started is not None else None
        yield replace(options, load_from=hosts, faults=on_hosts, cluster=directory, nodes=started, layout=None)


def _check_standing(inventory: Path, nodes: list[HostSpec], layouts: Sequence[object]) -> None:
    """Refuse a layout for nodes that run already. Raises CliError."""
    from perftest.remote.brokers import standing

    if nodes and any(layouts) and standing(inventory) is not None:
        fix = "end them (perftest remote down), or leave out --layout and --vary layout"
        what = "the nodes of `perftest remote up` have their layout already"
        raise CliError(what, "--layout, --vary layout", fix, Exit.USAGE)


def _check_cluster(plan: Plan, nodes: list[HostSpec]) -> None:
    """Refuse a cluster that the workload asks for and the hosts cannot be. Raises CliError."""
    if plan.cluster.broker is not Product.REFERENCE:
        fix = "start RabbitMQ there, and name it with -H, or leave out cluster.broker"
        raise CliError("hosts start nodes of the reference broker only", "cluster.broker", fix, Exit.USAGE)
    wanted = plan.cluster.nodes
    if wanted not in (ClusterSpec().nodes, len(nodes)):
        what = f"the workload asks for {wanted} nodes, and {len(nodes)} hosts have the role broker"
        raise CliError(what, "cluster.nodes", "give as many hosts the role, or leave out cluster.nodes", Exit.USAGE)


def _places(taking_part: list[HostSpec], nodes: list[HostSpec], layout: PlacedLayout | None) -> Places:
    """The nodes, drives and hosts that the timeline of the plan may act on."""
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


def refuse_fuse(layout: PlacedLayout | None) -> None:
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


def _show(
    taking_part: list[HostSpec], nodes: list[HostSpec], work: SweepWork, layouts: Sequence[PlacedLayout | None]
) -> None:
    """What each host would do, and every command that would run there."""
    from perftest.remote import steps
    from perftest.spec.expand import total_s
    from perftest.spec.units import format_duration

    plan = work.plan
    for spec in taking_part:
        does = ["is a broker node"] if spec in nodes else []
        if spec.is_load:
            roles = (("publishes", spec.publishes), ("consumes", spec.consumes))
            does += [verb for verb, groups in roles if groups != ()]
        click.echo(f"{spec.name}  {' and '.join(does)}, at {spec.address}, in {spec.directory}")
    click.echo(f"{len(plan.steps)} steps: {format_duration(total_s(plan))}")
    show_length(work)
    for each in layouts:
        if work.layouts and each is not None:
            click.echo(f"with layout {each.text}")
        show_steps(
            (spec, step) for spec in taking_part for step in steps.of_run(spec, plan, each, is_node=spec in nodes)
        )


COMMANDS = (run,)
