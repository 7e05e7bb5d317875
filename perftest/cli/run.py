"""``perftest run``: one setting, with PerfTest's flags."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.extras import require
from perftest.cli.run_command import ENVIRONMENT, REPEATED, WORDS, TableCommand, show_and_leave
from perftest.exits import Exit

if TYPE_CHECKING:
    from perftest.measuring.session_options import MetricsOptions, Options
    from perftest.options.choices import Choices


@click.command(
    cls=TableCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.NOT_INSTALLED, Exit.INTERRUPTED),
    examples=(
        "perftest run -z 10",
        "perftest run -h amqp://user:secret@rabbit1 -u q -qq -c 200 -q 500 -A 10 -z 60",
        "perftest run -H amqp://rabbit1,amqp://rabbit2 -x 2 -y 2 --slo 'e2e.p99<20ms'",
    ),
)
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:
    """Publish and consume with one setting, and measure.

    Options have the names and the meaning of RabbitMQ PerfTest. With a URI they also have PerfTest's defaults: a
    classic queue, no publisher confirms, no prefetch limit. Without a URI, run measures the bundled cluster with a
    quorum queue, 1000 messages in flight and a prefetch of 1000.
    """
    show_and_leave(ctx, given)

    from perftest.cli.measure import measure
    from perftest.options.choices import Choices
    from perftest.options.plan_of_options import plan_of

    choices = Choices(given)
    if ctx.meta.get(ENVIRONMENT):
        choices.note(f"from the environment: {' '.join(ctx.meta[ENVIRONMENT])}")
    for text in ctx.meta.get(REPEATED, ()):
        choices.note(text)
    plan = plan_of(choices)
    options = run_options(choices)
    if options.otlp:
        require("otlp", "--otlp")
    for note in choices.notes:
        click.echo(f"note: {note}", err=True)
    ctx.exit(measure(plan, replace(options, command=("perftest", "run", *ctx.meta[WORDS]))))


def run_options(choices: Choices) -> Options:
    """The options that concern the command and not the plan."""
    from perftest.ci.job_outputs import JobOutputs
    from perftest.measuring.placement import layout_of
    from perftest.measuring.session_options import Options
    from perftest.spec.cluster import Product

    ui = choices["ui"]
    if ui == "auto" and choices.is_given("metrics_format"):
        ui = "plain"
    cluster = choices["cluster"]
    layout = _path(choices["layout"])
    return Options(
        out=Path(choices["out"]),
        ui=ui,
        as_json=choices["as_json"],
        report=choices["report"] and not choices["no_report"],
        cluster=Path(cluster) if cluster is not None else None,
        layout=layout_of(layout, broker=Product(choices["broker"] or Product.REFERENCE))
        if layout is not None
        else None,
        rabbitmq_home=_path(choices["rabbitmq_home"]),
        label=choices["id"] or "",
        metrics_format=choices["metrics_format"] or "default",
        plain=True,
        in_millis=choices["use_millis"],
        output_file=_path(choices["output_file"]),
        hlog_file=_path(choices["hlog"]),
        objectives=choices["slo"],
        actions=tuple(words for words, _ in choices["at"]),
        percentiles=choices["percentiles"] or (),
        legacy_latency=choices["legacy_latency"],
        job=JobOutputs(junit=_path(choices["junit"]), annotations=choices["annotations"]),
        metrics=_metrics(choices),
        otlp=choices["otlp"] or "",
        broker_metrics=_broker_metrics(choices),
    )


def _broker_metrics(choices: Choices) -> tuple[str, ...]:
    """The addresses of the broker's metrics. The nodes of a local cluster need none: they are asked in any case."""
    from perftest.options.targets import metrics_in_vain
    from perftest.spec.cluster import Product

    if choices.is_given("broker_metrics") and choices.local:
        choices.note(metrics_in_vain(Product(choices["broker"] or Product.REFERENCE)))
        return ()
    found: tuple[str, ...] = choices["broker_metrics"]
    return found


def _metrics(choices: Choices) -> MetricsOptions | None:
    """The metrics endpoint, if -mpr asks for it. The other options about metrics have no effect without -mpr."""
    from perftest.measuring.session_options import MetricsOptions
    from perftest.results.provenance import redact_command

    for key in ("port", "endpoint"):
        choices.useless(f"metrics_prometheus_{key}", "-mpr", unless=choices["metrics_prometheus"])
    for key in ("metrics_host", "metrics_prefix", "metrics_tags", "metrics_command_line_arguments", "exposed_metrics"):
        choices.useless(key, "-mpr", unless=choices["metrics_prometheus"])
    if not choices["metrics_prometheus"]:
        return None
    command = " ".join(redact_command(sys.argv[2:])) if choices["metrics_command_line_arguments"] else ""
    return MetricsOptions(
        host=choices["metrics_host"],
        port=choices["metrics_prometheus_port"],
        path=choices["metrics_prometheus_endpoint"],
        prefix=choices["metrics_prefix"],
        labels=choices["metrics_tags"] or {},
        exposed=choices["exposed_metrics"] or {},
        command=command,
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text is not None else None
