"""Options about the run as a whole: which broker, how long, what is recorded and where it goes."""

from __future__ import annotations

from perftest.cli.options.option import flag, many, section, value
from perftest.cli.ui.names import METRICS_FORMATS, UI_NAMES

OPTIONS = (
    *section(
        "Target",
        value("-h --uri", "text", "URI", "AMQP URI of the broker. Without any: a local cluster for this run."),
        value("-H --uris", "text", "URIS", "Several URIs, with commas."),
        value(
            "--cluster",
            "path",
            "DIRECTORY",
            "The local cluster that `perftest broker start` keeps in this directory.",
            perftest=False,
        ),
    ),
    *section(
        "Timing",
        value("-z --time", "limit_s", "DURATION", "How long, warm-up included; 0 or none: until Ctrl-C."),
        value(
            "--warmup",
            "duration_s",
            "DURATION",
            "Recorded, and left out of the result.",
            shown="a tenth of -z, at most 5s; 0 if -C, -D or -ew ends the run",
            perftest=False,
            places=("warmup_s",),
        ),
        value(
            "--drain",
            "duration_s",
            "DURATION",
            "Longest wait, after the last publish, for what was confirmed.",
            default="10s",
            perftest=False,
        ),
        value(
            "-st --shutdown-timeout",
            "signed_s",
            "DURATION",
            "Longest time to close connections; 0 or less: just drop them.",
            default="5",
        ),
    ),
    *section(
        "Measurement",
        value(
            "-d --id",
            "text",
            "ID",
            "Name of the run, at the beginning of each line, and in its directory's.",
            shown="test-HHMMSS-mmm",
        ),
        value(
            "-i --interval",
            "duration_s",
            "DURATION",
            "How often a record is written: 100ms to 1m.",
            default="1s",
            places=("interval_s",),
        ),
        many(
            "--slo",
            "objective",
            "EXPR",
            "What has to be reached, else exit code 4: e2e.p99<20ms, rate>=10k, loss==0. Repeatable.",
            perftest=False,
        ),
        value(
            "--percentiles",
            "percentiles",
            "LIST",
            "Percentiles of each latency to show at the end: 50,90,99.9.",
            perftest=False,
        ),
        flag(
            "--legacy-latency",
            "Show latencies from the send as well, as PerfTest measures.",
            perftest=False,
        ),
        value("--seed", "count", "N", "Seed of everything random.", default="1", perftest=False),
        value(
            "--workers",
            "count",
            "N",
            "Processes to spread the clients over; 0: chosen.",
            default="0",
            perftest=False,
            places=("workers",),
        ),
        many(
            "--broker-metrics",
            "http_url",
            "URL",
            "Where the broker tells its own figures: http://host:15692/metrics (Prometheus), or "
            "http://user:password@host:15672 (RabbitMQ's management API). Repeatable, for several nodes.",
            perftest=False,
        ),
        flag("-ms --use-millis", "Show latencies in ms rather than µs in PerfTest's lines and CSV."),
    ),
    *section(
        "Output",
        value("-o --output-file", "path", "FILE", "CSV of the intervals: PerfTest's columns, then more."),
        value(
            "-mf --metrics-format",
            "metrics_format",
            "|".join(METRICS_FORMATS),
            "PerfTest's console lines, in one of its formats (--ui plain).",
            shown="default, where there is no terminal",
        ),
        value("--hlog", "path", "FILE", "HdrHistogram interval log of all latencies.", perftest=False),
        value("--out", "path", "DIRECTORY", "Where run directories are made.", default="runs", perftest=False),
        value(
            "--ui",
            "ui",
            "NAME",
            f"Progress: {', '.join(UI_NAMES)}.",
            default="auto",
            perftest=False,
        ),
        flag("--report", "Make an HTML report afterwards.", perftest=False),
        flag("--no-report", "Make none.", perftest=False),
        flag("--json", "Print JSON instead of a table.", perftest=False, key="as_json"),
    ),
    *section(
        "Metrics",
        flag("-mpr --metrics-prometheus", "Serve metrics for Prometheus while the run lasts."),
        value("-mpp --metrics-prometheus-port", "count", "PORT", "Port to serve them on.", default="8080"),
        value(
            "--metrics-host",
            "text",
            "ADDRESS",
            "Address to serve them on; 0.0.0.0: all of this machine's.",
            default="127.0.0.1",
            perftest=False,
        ),
        value("-mpe --metrics-prometheus-endpoint", "text", "PATH", "Path to serve them at.", default="/metrics"),
        value("-mpx --metrics-prefix", "text", "PREFIX", "Their names begin with this.", default="perftest_"),
        value("-mt --metrics-tags", "labels", "K=V,...", "Labels of all of them."),
        flag("-mcla --metrics-command-line-arguments", "One more, perftest_args, has the command line as a label."),
        value("-em --exposed-metrics", "gauges", "K=V,...", "Further gauges: expected_published=50000."),
    ),
    *section(
        "Other",
        flag("-env --environment-variables", "List the environment variables that are read.", key="show_environment"),
        flag("-mh --metrics-help", "Show the options about metrics.", key="show_metrics"),
        flag("-v --version", "Show the version.", key="show_version"),
    ),
)
