"""``perftest search``: the highest rate that meets objectives, or the setting that serves best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.exits import Exit
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
    option,
)
from perftest.cli.target import only_one_target, split_uris, target_options

if TYPE_CHECKING:
    from perftest.cli.probes import SearchPlan
    from perftest.spec.plan import Plan


class NumbersType(click.ParamType[tuple[float, ...]]):
    """Numbers with commas; ``5%`` is 0.05."""

    name = "LIST"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers, each above 0."""
        try:
            found = tuple(_number(each) for each in str(value).split(","))
        except ValueError:
            found = ()
        if not found or min(found) <= 0:
            self.fail(f"{value!r} is not a list of numbers above 0; write 10,100,1000", param, ctx)
        return found


NUMBERS: Final = NumbersType()


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
@option(
    "--workload",
    "workload",
    section="Load",
    default=None,
    metavar="WORKLOAD",
    help="Take queues and load from a workload file or a bundled one; the flags below change it.",
)
@option("-x", "--producers", "publishers", section="Load", type=COUNT, default=None, help="Publishers.  [default: 1]")
@option("-y", "--consumers", "consumers", section="Load", type=COUNT, default=None, help="Consumers.  [default: 1]")
@option(
    "-c",
    "--confirm",
    "--in-flight",
    "in_flight",
    section="Load",
    type=IN_FLIGHT,
    default=None,
    help="Most unconfirmed messages per publisher; unlimited, or no_confirms.  [default: 1000]",
)
@option(
    "-q",
    "--qos",
    "--prefetch",
    "prefetch",
    section="Load",
    type=PREFETCH,
    default=None,
    help="Prefetch; 0 or unlimited: no limit.  [default: 1000]",
)
@option(
    "-A",
    "--multi-ack-every",
    "--ack-interval",
    "ack_interval",
    section="Load",
    type=ACK_INTERVAL,
    default=None,
    help="Acknowledge every N deliveries; or automatic.  [default: 1]",
)
@option("-s", "--size", "size_bytes", section="Load", type=SIZE, default=None, help="Octets of body.  [default: 1000]")
@option("--slo", "slos", section="Judgement", multiple=True, help='Objective, such as "e2e.p99<20ms"; repeatable.')
@option("--tolerance", section="Judgement", type=PART, default="5%", help="How narrow the bracket has to become.")
@option("--repeats", section="Judgement", type=COUNT, default="3", help="Probes of each end, or of each contender.")
@option("--max-probes", section="Judgement", type=COUNT, default="24", help="After so many the search ends anyway.")
@option("--frontier", section="Judgement", is_flag=True, help="Compare settings instead: in-flight, prefetch, acks.")
@option("--in-flights", section="Judgement", type=NUMBERS, default="10,100,1000", help="In-flight limits to compare.")
@option("--prefetches", section="Judgement", type=NUMBERS, default="100,1000", help="Prefetches to compare.")
@option(
    "--ack-parts",
    section="Judgement",
    type=NUMBERS,
    default="0.1%,5%,10%,50%",
    help="Ack intervals to compare, as parts of the prefetch.",
)
@option("--time", "duration_s", section="Timing", type=DURATION, default="10s", help="Length of a probe.")
@option("--warmup", "warmup_s", section="Timing", type=DURATION, default="2s", help="Left out at its beginning.")
@option("--drain", "drain_s", section="Timing", type=DURATION, default="10s", help="Longest wait after each probe.")
@option(
    "--out",
    section="Output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    help="Where the runs of the probes are made.",
)
@json_option
@click.pass_context
def search(ctx: click.Context, /, frontier: bool, **flags: Any) -> None:
    """Find the highest rate that meets every objective, or with --frontier the setting that serves best.

    A probe is a run at a fixed schedule on a fresh queue. It passes when it meets every objective, published what was
    asked for, and delivered it. Both ends of the bracket are probed again until a majority says the same.
    """
    from perftest.cli.probes import compare_settings, find_rate

    asked = _asked(**flags)
    flags["frontier"] = frontier
    ctx.exit(int(compare_settings(asked, flags) if frontier else find_rate(asked, flags)))


def _asked(
    *,
    uri: str | None,
    uris: str | None,
    cluster: Path | None,
    workload: str | None,
    slos: tuple[str, ...],
    out: Path,
    as_json: bool,
    **flags: Any,
) -> SearchPlan:
    from perftest.cli.probes import SearchPlan
    from perftest.spec.check import check_plan
    from perftest.spec.problem import Problem, SpecError
    from perftest.spec.slo import parse_objective
    from perftest.spec.units import UnitError

    targets = split_uris(uri, uris)
    only_one_target(targets, cluster)
    plan, swept = _base_plan(targets, workload, flags)
    objectives, problems = [], check_plan(plan, lambda field: f"--{field.replace('_', '-')}")
    for text in slos:
        try:
            objectives.append(parse_objective(text))
        except UnitError as error:
            problems.append(Problem(path="", value=text, rule=error.rule, fix=error.fix, file="--slo"))
    if flags["repeats"] < 1 or flags["repeats"] % 2 == 0:
        rule = "an even number of repeats has no majority"
        problems.append(Problem(path="", value=flags["repeats"], rule=rule, fix="use 1, 3 or 5", file="--repeats"))
    if problems:
        raise SpecError(problems)
    return SearchPlan(plan=plan, swept=swept, objectives=tuple(objectives), out=out, cluster=cluster, as_json=as_json)


def _base_plan(targets: tuple[str, ...], workload: str | None, flags: dict[str, Any]) -> tuple[Plan, tuple[str, ...]]:
    """One isolated step with the load that was asked for, and what the workload file sweeps."""
    from perftest.cli.reproduce import LOAD_FLAGS, beside, plan_of_words
    from perftest.cli.workload import find
    from perftest.spec import plan_for
    from perftest.spec.plan import Isolation, Settings, Step

    changes = {name: flags[name] for name in LOAD_FLAGS if flags[name] is not None}
    base = plan_for(find(workload), targets) if workload is not None else plan_of_words(beside(targets))
    load = base.steps[0].settings if workload is not None else Settings()
    settings = replace(load, **changes)
    step = Step(number=1, label="", settings=settings, duration_s=flags["duration_s"], warmup_s=flags["warmup_s"])
    plan = replace(
        base,
        name="search",
        title="perftest search",
        uris=targets,
        isolation=Isolation.ISOLATED,
        steps=(step,),
        swept=(),
        drain_s=flags["drain_s"],
    )
    return plan, base.swept


def _number(text: str) -> float:
    stripped = text.strip()
    return float(stripped.removesuffix("%")) / (100 if stripped.endswith("%") else 1)
