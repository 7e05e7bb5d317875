"""``perftest search``: the highest rate that meets objectives, or the setting that serves best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.sections import (
    ACK_INTERVAL,
    COUNT,
    DURATION,
    IN_FLIGHT,
    PART,
    PREFETCH,
    SIZE,
    SectionedCommand,
    json_option,
    number_of,
    option,
    options,
)
from perftest.cli.target import broker_option, home_option, layout_option, target_options
from perftest.cli.ui.completion import metric_names, workload_names
from perftest.exits import Exit
from perftest.options.targets import (
    no_broker_beside,
    no_home_without,
    no_layout_beside,
    only_one_target,
    split_uris,
    typed_again,
)

if TYPE_CHECKING:
    from perftest.series.probes import SearchPlan
    from perftest.spec.load import Document
    from perftest.spec.plan import Plan


class NumbersType(click.ParamType[tuple[float, ...]]):
    """Numbers with commas; ``5%`` is 0.05."""

    name = "LIST"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers, each above 0."""
        try:
            found = tuple(number_of(each) for each in str(value).split(","))
        except ValueError:
            found = ()
        if not found or min(found) <= 0:
            self.fail(f"{value!r} is not a list of numbers above 0; write 10,100,1000", param, ctx)
        return found


NUMBERS: Final = NumbersType()


# fmt: off
_search_options = options(
    option("--workload", "workload", section="Load", default=None, metavar="WORKLOAD", shell_complete=workload_names,
           help="Take queues and load from a workload file or a bundled workload. The options below change its load."),
    option("-x", "--producers", "publishers", section="Load", type=COUNT, default=None,
           help="Number of publishers.  [default: 1]"),
    option("-y", "--consumers", "consumers", section="Load", type=COUNT, default=None,
           help="Number of consumers.  [default: 1]"),
    option("-c", "--confirm", "--in-flight", "in_flight", section="Load", type=IN_FLIGHT, default=None,
           help="Most unconfirmed messages of each publisher (in-flight limit); unlimited: confirms without a limit; "
                "no_confirms: no confirms.  [default: 1000]"),
    option("-q", "--qos", "--prefetch", "prefetch", section="Load", type=PREFETCH, default=None,
           help="Prefetch: most unacknowledged messages of each consumer; 0 or unlimited: no limit.  [default: 1000]"),
    option("-A", "--multi-ack-every", "--ack-interval", "ack_interval", section="Load", type=ACK_INTERVAL,
           default=None,
           help="Acknowledge every N deliveries together; automatic: automatic acknowledgement.  [default: 1]"),
    option("-s", "--size", "size_bytes", section="Load", type=SIZE, default=None,
           help="Size of each message body in octets.  [default: 1000]"),
    option("--slo", "slos", section="Judgement", metavar="EXPR", multiple=True, shell_complete=metric_names,
           help='Objective that each probe must meet, such as "e2e.p99<20ms". Repeatable.'),
    option("--tolerance", section="Judgement", type=PART, default="5%",
           help="The search ends when the lowest rate that fails is at most this part above the highest rate that "
                "passes."),
    option("--repeats", section="Judgement", type=COUNT, default="3",
           help="Number of probes that confirm each end of the bracket, or each of the best settings; an odd number."),
    option("--max-probes", section="Judgement", type=COUNT, default="24",
           help="Number of probes after which the search ends in any case."),
    option("--frontier", section="Judgement", is_flag=True,
           help="Compare settings (in-flight limit, prefetch, ack interval) instead of searching for a rate."),
    option("--in-flights", section="Judgement", type=NUMBERS, default="10,100,1000",
           help="In-flight limits that --frontier compares."),
    option("--prefetches", section="Judgement", type=NUMBERS, default="100,1000",
           help="Prefetches that --frontier compares."),
    option("--ack-parts", section="Judgement", type=NUMBERS, default="0.1%,5%,10%,50%",
           help="Ack intervals that --frontier compares, as parts of the prefetch."),
    option("--time", "duration_s", section="Timing", type=DURATION, default="10s",
           help="Length of each probe, warm-up included."),
    option("--warmup", "warmup_s", section="Timing", type=DURATION, default="2s",
           help="First part of each probe, which is left out of its result."),
    option("--drain", "drain_s", section="Timing", type=DURATION, default="10s",
           help="Longest wait after each probe until every confirmed message has been delivered."),
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
           help="Directory in which the run directories of the probes are created."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.INTERRUPTED),
    examples=(
        'perftest search --slo "e2e.p99<20ms" --slo "loss==0"',
        'perftest search -h amqp://rabbit1 -x 4 -y 4 -s 4KiB --slo "confirm.p99<10ms" --time 30s',
        'perftest search --frontier --slo "e2e.p99<50ms"',
    ),
)
@target_options
@layout_option
@broker_option
@home_option
@_search_options
@json_option
@click.pass_context
def search(ctx: click.Context, /, frontier: bool, **flags: Any) -> None:
    """Find the highest rate that meets every objective, or with --frontier the setting that serves best.

    A probe is a short run at a fixed rate on a fresh queue. A probe passes if it published and delivered messages at
    that rate and met every objective. The search narrows a bracket between the highest rate that passes and the lowest
    rate that fails. It probes both ends again until a majority of probes agrees.
    """
    from perftest.series.probes import compare_settings, find_rate

    asked = _asked(**flags)
    flags["frontier"] = frontier
    ctx.exit(int(compare_settings(asked, flags) if frontier else find_rate(asked, flags)))


def _asked(
    *,
    uri: str | None,
    uris: str | None,
    cluster: Path | None,
    layout: Path | None,
    broker: str | None,
    rabbitmq_home: Path | None,
    workload: str | None,
    slos: tuple[str, ...],
    out: Path,
    as_json: bool,
    **flags: Any,
) -> SearchPlan:
    from perftest.measuring.asked_cluster import layout_for, tell_of_unused, with_broker
    from perftest.series.probes import SearchPlan
    from perftest.spec.check import check_plan
    from perftest.spec.expected.slo import parse_objective
    from perftest.spec.problem import Problem, SpecError
    from perftest.spec.rules import too_few_consumers
    from perftest.spec.units import UnitError

    targets = split_uris(uri, uris)
    only_one_target(targets, cluster)
    no_layout_beside(layout, targets, cluster)
    no_broker_beside(broker, targets, cluster)
    plan, swept, document = _base_plan(targets, workload, flags)
    plan = with_broker(plan, broker)
    no_home_without([plan.cluster.broker], rabbitmq_home, targets, cluster)
    objectives, problems = [], check_plan(plan, lambda field: f"--{field.replace('_', '-')}")
    for text in slos or plan.objectives:
        try:
            objectives.append(parse_objective(text))
        except UnitError as error:
            problems.append(Problem(path="", value=text, rule=error.rule, fix=error.fix, file="--slo"))
    settings, channels = plan.steps[0].settings, plan.consuming.channels
    if (found := too_few_consumers(len(plan.queues), consumers=settings.consumers, channels=channels)) is not None:
        problems.append(Problem(path="", value=found.value, rule=found.rule, fix=found.fix, file="--consumers"))
    if flags["repeats"] < 1 or flags["repeats"] % 2 == 0:
        rule = "an even number of repeats has no majority"
        problems.append(Problem(path="", value=flags["repeats"], rule=rule, fix="use 1, 3 or 5", file="--repeats"))
    if problems:
        raise SpecError(problems)
    if targets or cluster is not None:
        tell_of_unused(plan)
    placed = None if targets or cluster is not None else layout_for(plan, layout, document)
    return SearchPlan(
        plan=plan, swept=swept, objectives=tuple(objectives), out=out, cluster=cluster, layout=placed,
        rabbitmq_home=rabbitmq_home, as_json=as_json, show=click.echo,
        target=(*typed_again(targets, cluster), *_started_again(layout, broker, rabbitmq_home)),
    )  # fmt: skip


def _started_again(layout: Path | None, broker: str | None, home: Path | None) -> list[str]:
    """The words about what is started, as they were typed."""
    typed = {"--layout": layout, "--broker": broker, "--rabbitmq-home": home}
    return [word for option, value in typed.items() if value for word in (option, str(value))]


def _base_plan(
    targets: tuple[str, ...], workload: str | None, flags: dict[str, Any]
) -> tuple[Plan, tuple[str, ...], Document | None]:
    """A plan of one isolated step with the load of the command line, the settings that the workload file sweeps, and
    the document of that file."""
    from perftest.measuring.asked_cluster import in_folder
    from perftest.measuring.workload_file import find
    from perftest.series.reproduce import LOAD_FLAGS, beside, plan_of_words
    from perftest.spec import plan_for
    from perftest.spec.load import load_workload
    from perftest.spec.plan import Isolation, Settings, Step

    changes = {name: flags[name] for name in LOAD_FLAGS if flags[name] is not None}
    base = plan_for(find(workload), targets) if workload is not None else plan_of_words(beside(targets))
    base = in_folder(base, find(workload)) if workload is not None else base
    document = load_workload(find(workload))[1] if workload is not None else None
    load = base.steps[0].settings if workload is not None else Settings()
    settings = replace(load, **changes)
    step = Step(number=1, label="", settings=settings, duration_s=flags["duration_s"], warmup_s=flags["warmup_s"])
    plan = base.changed(
        name="search",
        title="perftest search",
        uris=targets,
        isolation=Isolation.ISOLATED,
        steps=(step,),
        swept=(),
        drain_s=flags["drain_s"],
    )
    return plan, base.swept, document
