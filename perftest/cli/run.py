"""``perftest run``: one setting, with PerfTest's flags."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.exits import Exit
from perftest.cli.sections import COUNT, DURATION, RATE, SIZE, SectionedCommand, json_option, option
from perftest.cli.target import only_one_target, out_options, split_uris, target_options

if TYPE_CHECKING:
    from perftest.spec.plan import Plan

_FLAG_OF_FIELD = {
    "in_flight": "-c/--confirm",
    "prefetch": "-q/--qos",
    "ack_interval": "-A/--multi-ack-every",
    "rate": "-r/--rate",
    "size_bytes": "-s/--size",
    "publishers": "-x/--producers",
    "warmup_s": "--warmup",
    "queues": "-u/--queue",
    "interval_s": "-i/--interval",
}


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.UNTRUSTED, Exit.INTERRUPTED),
    examples=(
        "perftest run -z 10                                        the bundled cluster, as fast as confirms allow",
        "perftest run -h amqp://user:secret@rabbit1 -qq -c 200 -q 500 -A 10 -z 60",
        "perftest run -H amqp://rabbit1,amqp://rabbit2 -x 2 -y 2 -r 1k -s 1KiB -f persistent",
    ),
)
@target_options
@option("-u", "--queue", "queue", section="Topology", default="perftest", metavar="NAMES", help="Queues, with commas.")
@option("-qq", "--quorum-queue", "quorum", section="Topology", is_flag=True, help="Quorum queues, persistent messages.")
@option("-x", "--producers", "publishers", section="Load", type=COUNT, default="1", help="Publishers.")
@option("-y", "--consumers", section="Load", type=COUNT, default="1", help="Consumers.")
@option(
    "-c",
    "--confirm",
    "--in-flight",
    "in_flight",
    section="Load",
    type=COUNT,
    default="1000",
    help="Most unconfirmed messages per publisher; 0 publishes without confirms.",
)
@option(
    "-q",
    "--qos",
    "--prefetch",
    "prefetch",
    section="Load",
    type=COUNT,
    default="1000",
    help="Prefetch of each consumer; 0 is unlimited.",
)
@option(
    "-A",
    "--multi-ack-every",
    "--ack-interval",
    "ack_interval",
    section="Load",
    type=COUNT,
    default="1",
    help="Acknowledge every N deliveries with the multiple flag.",
)
@option("-a", "--autoack", section="Load", is_flag=True, help="Automatic acknowledgement instead.")
@option(
    "-r",
    "--rate",
    section="Load",
    type=RATE,
    default="unlimited",
    help="Messages per second of each publisher: a fixed schedule (open loop).",
)
@option("-s", "--size", "size_bytes", section="Load", type=SIZE, default="1000", help="Octets of body, 28 or more.")
@option(
    "-f",
    "--flag",
    "flags",
    section="Load",
    type=click.Choice(["persistent", "mandatory"]),
    multiple=True,
    help="Message flags; persistent makes queues durable too.",
)
@option(
    "-z",
    "--time",
    "duration_s",
    section="Timing",
    type=DURATION,
    default=None,
    help="How long, warm-up included; without it, until Ctrl-C.",
)
@option(
    "--warmup",
    "warmup_s",
    section="Timing",
    type=DURATION,
    default=None,
    help="Left out of the result.  [default: a tenth of -z, at most 5s]",
)
@option(
    "--drain", "drain_s", section="Timing", type=DURATION, default="10s", help="Longest wait for what was confirmed."
)
@option("-i", "--interval", "interval_s", section="Measurement", type=DURATION, default="1s", help="Sampling interval.")
@out_options
@option("--report/--no-report", section="Output", default=False, help="Make an HTML report afterwards.")
@json_option
@click.pass_context
def run(ctx: click.Context, /, out: Path, ui: str, as_json: bool, report: bool, **flags: Any) -> None:
    """Publish and consume with one setting and measure.

    PerfTest's flags keep their letters. What differs: confirms are on by default, latency is measured from the intended
    time when there is a rate, and the result says whether it can be trusted.
    """
    cluster: Path | None = flags.pop("cluster")
    plan = build_plan(**flags, local=cluster is not None)
    only_one_target(plan.uris, cluster)

    from perftest.cli.session import Options, measure

    ctx.exit(measure(plan, Options(out=out, ui=ui, as_json=as_json, report=report, cluster=cluster)))


def build_plan(*, uri: str | None, uris: str | None, local: bool, **flags: Any) -> Plan:
    """The plan of a flag line. Raises SpecError with every contradiction, by flag."""
    from perftest.spec.check import check_plan
    from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step
    from perftest.spec.problem import SpecError

    targets = split_uris(uri, uris)
    quorum = flags["quorum"] or local or not targets
    persistent = quorum or "persistent" in flags["flags"]
    settings = Settings(
        in_flight=flags["in_flight"],
        prefetch=flags["prefetch"],
        # PerfTest's -A 0 means: each message by itself.
        ack_interval=0 if flags["autoack"] else max(flags["ack_interval"], 1),
        rate=flags["rate"],
        size_bytes=flags["size_bytes"],
        publishers=flags["publishers"],
        consumers=flags["consumers"],
        persistent=persistent,
        mandatory="mandatory" in flags["flags"],
    )
    duration_s = math.inf if flags["duration_s"] is None else flags["duration_s"]
    warmup_s = min(duration_s / 10, 5.0) if flags["warmup_s"] is None else flags["warmup_s"]
    kind = QueueType.QUORUM if quorum else QueueType.CLASSIC
    names = [name.strip() for name in flags["queue"].split(",")]
    plan = Plan(
        name="run",
        title="perftest run",
        uris=targets,
        queues=tuple(QueueSpec(name=name, type=kind, durable=persistent) for name in names),
        steps=(Step(number=1, label="", settings=settings, duration_s=duration_s, warmup_s=warmup_s),),
        isolation=Isolation.LIVE,
        interval_s=flags["interval_s"],
        drain_s=flags["drain_s"],
    )
    problems = check_plan(plan, lambda field: _FLAG_OF_FIELD.get(field, field))
    if problems:
        raise SpecError(problems)
    return plan
