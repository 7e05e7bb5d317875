"""``perftest simulate``: workloads at virtual time, on modelled drives, links and machines."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.sections import COUNT, DURATION, SectionedCommand, json_option, option, options
from perftest.cli.target import LAYOUT_PATH
from perftest.cli.ui.completion import layout_names, setting_names, workload_names
from perftest.exits import CliError, Exit
from perftest.spec.cluster import NODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perftest.measuring.placement import Inline
    from perftest.simulation.calibration import Calibration
    from perftest.simulation.cells import Cell
    from perftest.simulation.rabbitmq_calibration import RabbitCalibration
    from perftest.simulation.simulated_world import Setup
    from perftest.spec.load import Document
    from perftest.spec.plan import Plan

REFERENCE, RABBITMQ = "reference", "rabbitmq-3.10"
"""Choices of --broker."""


# fmt: off
_simulate_options = options(
    option("--set", "overrides", section="Load", metavar="PATH=VALUE", multiple=True,
           help="Change a key of the workloads, such as load.prefetch=100. Repeatable."),
    option("--vary", "varied", section="Load", metavar="SETTING=V1,V2", multiple=True, shell_complete=setting_names,
           help="Sweep these values instead of the workload's, such as in_flight=10,100. Repeatable."),
    option("--quick", section="Timing", is_flag=True, help="Simulate the workload's short steps."),
    option("--isolated", section="Measurement", is_flag=True,
           help="Start every step with fresh queues and connections."),
    option("--steady", "steady_s", section="Timing", type=DURATION, default="30s",
           help="Longest steady time of a step. Longer steps are shortened, and the run says so."),
    option("--warmup", "warmup_s", section="Timing", type=DURATION, default="2s",
           help="Longest warm-up of a step, before --settle."),
    option("--settle", "settle_s", section="Timing", type=DURATION, default="10s",
           help="Longest time for which a warm-up goes on until rates are steady. 0: no longer than --warmup."),
    option("--at", "actions", section="Measurement", metavar="'TIME ACTION [NODE] [step N]'", multiple=True,
           help="Act on a node at this virtual time, such as '2s kill leader', '3s restart killed'; also beside the "
                "actions of the workload. Repeatable."),
    option("--broker", section="Target", type=click.Choice((REFERENCE, RABBITMQ)), default=REFERENCE,
           help="Broker: the production code of the bundled broker, or a model of RabbitMQ."),
    option("--nodes", section="Target", type=COUNT, default=None,
           help="Number of broker nodes: 1, 3, 5, 7 or 9.  [default: as the workload says, or 3]"),
    option("--hosts", section="Target", type=click.Choice(("one", "each")), default="one",
           help="Machines: one, with its drives, for all processes; or one for each node and one for the generator."),
    option("--cores", section="Target", type=COUNT, default=None,
           help="Cores of each machine.  [default: as many as the calibrated machine]"),
    option("--latency", "latency_s", section="Target", type=DURATION, default="0.25ms",
           help="One-way latency between two machines."),
    option("--bandwidth", "bandwidth_mbit", section="Target", type=COUNT, default="10000",
           help="Bandwidth between two machines in Mbit/s, each way."),
    option("--layout", "layouts", section="Target", metavar="FILE", multiple=True, type=LAYOUT_PATH,
           shell_complete=layout_names,
           help="Layout file or bundled layout, such as disks/three_hdd: the modelled drives of each node, and what "
                "lies on them. Repeatable: every workload is simulated on every layout."),
    option("--drive", "drives", section="Target", metavar="[ROLE=]PROFILE", multiple=True,
           help="Profile of a machine's drive: measured (that of the calibration), or a modelled drive. With ROLE "
                "(data, segment, wal, classic) the role gets a drive of its own. Repeatable.  [default: measured]"),
    option("--credits", "credits_percent", section="Target", metavar="PERCENT", type=click.IntRange(0, 100),
           default=100, help="Part of their burst credits that drives have at the start."),
    option("--io-threads", "pool", section="Target", type=COUNT, default="0",
           help="Threads of a node that share all file work; 0: a thread for each store."),
    option("--seed", section="Measurement", type=COUNT, default="1",
           help="Seed of all chance: the same seed gives the same files."),
    option("--repeats", section="Measurement", type=COUNT, default="1",
           help="Simulations of each workload on each layout, with seeds that follow each other."),
    option("--assert", "assert_findings", section="Measurement", is_flag=True,
           help="End with exit code 4 unless all findings of the workloads are reproduced."),
    option("--calibration", section="Measurement", metavar="FILE", default=None,
           type=click.Path(path_type=Path, dir_okay=False),
           help="CPU costs, drive and loopback of a machine; with --broker rabbitmq-3.10, CPU costs of RabbitMQ.  "
                "[default: the one that ships with perftest]"),
    option("--calibrate", "calibrate_to", section="Measurement", metavar="FILE", default=None,
           type=click.Path(path_type=Path, dir_okay=False),
           help="Measure this machine, or with --broker rabbitmq-3.10 a RabbitMQ on this machine, write its "
                "calibration to FILE, and exit. Takes minutes; nothing else should run."),
    option("--verify", section="Measurement", is_flag=True,
           help="Measure the workloads in real time on a local cluster, too, and show both side by side."),
    option("-o", "--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
           help="Directory in which the run directories are created."),
    option("--jobs", section="Measurement", type=COUNT, default=None,
           help="Simulations that run at the same time.  [default: one for each core]"),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.INTERRUPTED),
    examples=(
        "perftest simulate flow_control/in_flight --quick",
        "perftest simulate disks/light_four_queues --hosts each --layout disks/one_hdd --layout disks/three_hdd",
        "perftest simulate disks/pure_one_queue disks/pure_four_queues --nodes 9 --drive wal=nvme --drive st1-1t",
    ),
)
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1, shell_complete=workload_names)
@_simulate_options
@json_option
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    as_json: bool,
    jobs: int | None,
    calibrate_to: Path | None,
    verify: bool,
    assert_findings: bool,
    **asked: Any,
) -> None:
    """Run workloads at virtual time.

    Production nodes and the production generator run in one process, on modelled machines, drives and links. With
    --broker rabbitmq-3.10 the nodes are a model of RabbitMQ. The run directories are those of `perftest sweep`, and are
    marked as simulated. WORKLOAD is a file, or the name of a bundled workload. Without WORKLOAD, one quorum queue is
    simulated with the settings of --vary. If a workload states findings, they are judged over all of its layouts and
    repeats.
    """
    from perftest.cli.simulated_output import compare_with_real, run_cells

    if calibrate_to is not None:
        _calibrate(calibrate_to, asked["out"], asked["broker"])
        return
    cells = _cells(names, asked)
    if verify:
        _refuse_model(asked["broker"], "--verify")
        _refuse_beside_verify(asked["repeats"], assert_findings)
        ctx.exit(int(compare_with_real(cells, as_json=as_json)))
    if assert_findings:
        _refuse_unjudgeable(cells)
    jobs = jobs or os.cpu_count() or 1
    ctx.exit(int(run_cells(cells, jobs=jobs, as_json=as_json, assert_findings=assert_findings)))


def _refuse_model(broker: str, what: str) -> None:
    if broker == RABBITMQ:
        fix = "leave out --broker rabbitmq-3.10, or measure a real RabbitMQ with `perftest sweep`"
        raise CliError(f"the model of RabbitMQ has no {what}", "--broker rabbitmq-3.10", fix, Exit.USAGE)


def _refuse_beside_verify(repeats: int, assert_findings: bool) -> None:
    given = [*(["--repeats"] if repeats != 1 else []), *(["--assert"] if assert_findings else [])]
    if given:
        what = f"--verify compares one simulation with the real figures, which does not go with {' and '.join(given)}"
        raise CliError(what, "--verify", f"leave out {' and '.join(given)}, or --verify", Exit.USAGE)


def _refuse_unjudgeable(cells: Sequence[Cell]) -> None:
    """Refuse --assert for findings that these simulations cannot decide. Raises CliError."""
    from perftest.series.judgement import refuse_unjudgeable

    titles = [cell.setup.placement.title for cell in cells]
    for plan in {cell.plan.name: cell.plan for cell in cells}.values():
        refuse_unjudgeable(plan, titles, "--layout")


def _calibrate(target: Path, directory: Path, broker: str) -> None:
    from perftest.exits import explained
    from perftest.measuring.measured_broker import make_directory

    make_directory(directory)
    with explained("the calibration cannot be written", target, "name a file in a directory that is there"):
        target.touch()
    found = _measured_calibration(directory, broker)
    target.write_text(found.to_text(), encoding="utf-8")
    click.echo(f"calibration {found.id} of this machine: {target}")


def _measured_calibration(directory: Path, broker: str) -> Calibration | RabbitCalibration:
    from perftest.simulation import rabbitmq_calibration
    from perftest.simulation.fitting import calibrate
    from perftest.simulation.rabbitmq_fitting import calibrate as calibrate_rabbitmq

    def tell(text: str) -> None:
        click.echo(text, err=True)

    if broker == RABBITMQ:
        start = rabbitmq_calibration.read(rabbitmq_calibration.SHIPPED).costs
        return calibrate_rabbitmq(directory, start, tell)
    return calibrate(directory, 6.0, tell)


def _cells(names: tuple[str, ...], asked: dict[str, Any]) -> list[Cell]:
    """The simulations to run: cells for each workload on each layout, one of each seed. Raises CliError and
    SpecError."""
    from perftest.actions.cluster_actions import refuse_actions_at
    from perftest.series.judgement import refuse_one_title
    from perftest.simulation.cells import Cell
    from perftest.simulation.simulated_run import StepLimits, shortened
    from perftest.simulation.simulated_world import places_of

    known, rabbit = _calibrations(asked)
    _check(asked)
    limits = StepLimits(steady_s=asked["steady_s"], warmup_s=asked["warmup_s"], settle_s=asked["settle_s"])
    read = [_plan(name, asked) for name in names or (None,)]
    if asked["actions"] or any(plan.timeline for plan, _ in read):
        _refuse_model(asked["broker"], "timeline")
    plans = [
        (plan, [(layout, replace(setup, rabbit=rabbit)) for layout, setup in _setups(plan, document, asked, known)])
        for plan, document in read
    ]
    for plan, setups in plans:
        refuse_one_title([setup.placement.title for _layout, setup in setups], "--layout")
        for _, setup in setups:
            refuse_actions_at(shortened(plan, limits), places_of(setup), asked["actions"])
    return [
        Cell(
            plan=plan,
            setup=replace(setup, seed=asked["seed"] + number),
            calibration=known,
            out=asked["out"],
            limits=limits,
            layout=layout,
        )
        for plan, setups in plans
        for number in range(asked["repeats"])
        for layout, setup in setups
    ]


def _calibrations(asked: dict[str, Any]) -> tuple[Calibration, RabbitCalibration | None]:
    """The calibration of generator and bundled broker, and that of RabbitMQ if RabbitMQ is asked for."""
    from perftest.simulation import calibration, rabbitmq_calibration

    if asked["broker"] == RABBITMQ:
        rabbit = rabbitmq_calibration.read(asked["calibration"] or rabbitmq_calibration.SHIPPED)
        return calibration.read(calibration.SHIPPED), rabbit
    return calibration.read(asked["calibration"] or calibration.SHIPPED), None


def _setups(
    plan: Plan, document: Document, asked: dict[str, Any], known: Calibration
) -> list[tuple[Path | Inline | None, Setup]]:
    """A setup for each layout, with the layout; without layouts, one with the drives of ``--drive``, or else with the
    layout of the workload. Raises CliError and SpecError."""
    from perftest.measuring.asked_cluster import layout_in, limits_of
    from perftest.simulation.simulated_drives import of_layouts, of_options
    from perftest.simulation.simulated_world import Setup
    from perftest.spec.cluster import Product
    from reference_broker.virtual.network import OneWayLink

    if plan.cluster.broker is not Product.REFERENCE and asked["broker"] != RABBITMQ:
        fix = "use --broker rabbitmq-3.10 for a model of RabbitMQ, or measure the workload with `perftest sweep`"
        raise CliError("the workload is for RabbitMQ", f"{plan.name}: cluster.broker", fix, Exit.USAGE)
    if plan.cluster.policies:
        fix = "leave out policies, or measure the workload with `perftest sweep`"
        raise CliError("a simulated cluster has no policies", f"{plan.name}: cluster.policies", fix, Exit.USAGE)
    within = OneWayLink(latency_ns=known.loopback_ns, octets_per_second=known.loopback_octets_per_second)
    between = OneWayLink(
        latency_ns=round(asked["latency_s"] * 1e9), octets_per_second=asked["bandwidth_mbit"] * 1_000_000 // 8
    )
    layouts: list[Path | Inline] = list(asked["layouts"])
    of_workload = layout_in(plan, document)
    if of_workload is not None and not (layouts or asked["drives"] or asked["pool"]):
        layouts = [of_workload]
    placed = of_layouts(layouts) or [of_options(asked["drives"], asked["pool"], known.drive)]
    placed = [replace(placement, credits=asked["credits_percent"] / 100) for placement in placed]
    setups = [
        Setup(
            nodes=asked["nodes"] or plan.cluster.nodes, limits=limits_of(plan), seed=asked["seed"],
            node_costs=known.node, generator_costs=known.generator,
            within=within, between=between, cores=asked["cores"] or known.cores, shared=asked["hosts"] == "one",
            placement=placement,
        )
        for placement in placed
    ]  # fmt: skip
    shown: list[Path | Inline | None] = [*layouts] or [None]
    return list(zip(shown, setups, strict=True))


def _plan(name: str | None, asked: dict[str, Any]) -> tuple[Plan, Document]:
    from perftest.series.sweep_plan import SweepRequest, swept_plan

    request = SweepRequest.of(name, asked)
    if request.layouts:
        raise CliError("a simulation names its layouts with --layout", "--vary layout", "use --layout", Exit.USAGE)
    plan, document = swept_plan(replace(request, in_random_order=False))
    return replace(plan, seed=asked["seed"]), document


def _check(asked: dict[str, Any]) -> None:
    problems = []
    if asked["nodes"] is not None and asked["nodes"] not in NODES:
        problems.append(f"--nodes {asked['nodes']}: use 1, 3, 5, 7 or 9")
    if asked["cores"] == 0:
        problems.append("--cores 0: a machine has at least one core")
    if asked["bandwidth_mbit"] == 0:
        problems.append("--bandwidth 0: use 1 or more Mbit/s")
    if asked["repeats"] == 0:
        problems.append("--repeats 0: use 1 or more")
    if not asked["steady_s"] > 0:
        problems.append("--steady 0: a step without steady time has no figures")
    if asked["layouts"]:
        given = {"--drive": asked["drives"], "--io-threads": asked["pool"]}
        problems += [f"{option} beside --layout: the layout file says that" for option, value in given.items() if value]
    if len(set(asked["layouts"])) < len(asked["layouts"]):
        problems.append("--layout: a layout is named twice")
    if problems:
        what = "this cannot be simulated: " + "; ".join(problems)
        raise CliError(what, "perftest simulate", "change the options that are named", Exit.USAGE)
