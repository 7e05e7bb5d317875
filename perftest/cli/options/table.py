"""All options of ``perftest run``, section by section, and PerfTest's options that are accepted or refused only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perftest.cli.options.option import Arity, Effect, Option, flag, many, section, value
from perftest.cli.ui.names import METRICS_FORMATS, UI_NAMES

_GENERAL = (
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

_TOPOLOGY = section(
    "Topology",
    value(
        "-u --queue",
        "names",
        "NAMES",
        "Queues, with commas. Each gets every message, each consumer takes from all; with the default exchange they are"
        " spread over in turn.",
        local="perftest",
        shown="each consumer's own, named by the server",
        places=("queues",),
    ),
    value("-qp --queue-pattern", "pattern", "PATTERN", "Queues by a pattern and two numbers: q-%d or q-%03d."),
    value("-qpf --queue-pattern-from", "count", "N", "First number of the pattern."),
    value("-qpt --queue-pattern-to", "count", "N", "Last number of the pattern."),
    value("-qf --queue-file", "path", "FILE", "Queues by a file with a name in each line."),
    flag("-qq --quorum-queue", "Quorum queues, persistent messages.", key="quorum"),
    value(
        "-ad --auto-delete",
        "boolean",
        "BOOL",
        "Whether queues go with their last consumer.",
        default="true",
        local="false",
        places=("queues.auto_delete",),
    ),
    flag(
        "-E --exclusive",
        "Queues of one connection, which their publishers and consumers share.",
        places=("connecting.exclusive",),
    ),
    many(
        "-qa --queue-args", "pairs", "K=V,...", "Queue arguments: x-max-length=10. Repeatable.", key="queue_arguments"
    ),
    value("-mlb --max-length-bytes", "octets", "SIZE", "Longest a queue may be; 0: no limit."),
    value("-ll --leader-locator", "leader_locator", "client-local|balanced", "Where leaders of quorum queues begin."),
    flag("-p --predeclared", "Use queues and exchange as they are where they exist; delete none of them."),
    value(
        "-e --exchange",
        "exchange",
        "NAME",
        "Exchange to publish to; amq.default, or no name: the default exchange.",
        shown="named as its type; bundled cluster: the default exchange",
        places=("exchange.name",),
        arity=Arity.OPTIONAL,
    ),
    value("-t --type", "text", "TYPE", "Type of the exchange: direct, fanout, topic, ...", default="direct"),
    value(
        "-k --routing-key",
        "text",
        "KEY",
        "One routing key for all.",
        shown="the queue's name",
        places=("publishing.routing_key",),
    ),
    flag("-K --random-routing-key", "A new random routing key for each message.", places=("publishing.routing_keys",)),
    value(
        "-rkcs --routing-key-cache-size",
        "count",
        "N",
        "Rotate through so many random routing keys.",
        default="0",
        places=("publishing.routing_key_cache",),
    ),
    flag("-sb --skip-binding-queues", "Do not bind queues to the exchange."),
)

_PUBLISHERS = section(
    "Publishers",
    value("-x --producers", "count", "N", "Connections that publish.", default="1", places=("publishers",)),
    value(
        "-X --producer-channel-count",
        "count",
        "N",
        "Channels of each; every one is a publisher by itself.",
        default="1",
        places=("publishing.channels",),
    ),
    value(
        "-r --rate",
        "signed_rate",
        "RATE",
        "Messages per second of each publisher, on a schedule fixed in advance; 0: stay idle.",
        shown="unlimited",
        default="unlimited",
        places=("rate",),
    ),
    value(
        "-P --publishing-interval",
        "interval_s",
        "SECONDS",
        "Time between the messages of a publisher instead: 0.1 or more.",
        places=("rate",),
    ),
    many(
        "-vr --variable-rate",
        "rate_cycle",
        "RATE:SECONDS",
        "Rates and how long each holds, in turn, for ever. Repeatable.",
        places=("publishing.rate_cycle",),
    ),
    value(
        "--arrivals",
        "arrivals",
        "fixed|poisson|trace:FILE",
        "How the intended times lie: evenly, at random, or as a file says.",
        default="fixed",
        perftest=False,
        places=("publishing.arrivals", "publishing.trace"),
    ),
    value(
        "-prsd --producer-random-start-delay",
        "signed_s",
        "SECONDS",
        "Each publisher begins a random time later, at most this.",
        shown="1 if there is a rate; bundled cluster: 0",
        places=("publishing.start_delay_s",),
    ),
    value(
        "-c --confirm --in-flight",
        "in_flight",
        "N",
        "Most unconfirmed messages of each publisher; 0: confirms without a limit; -1 or off: no confirms.",
        default="off",
        local="1000",
        places=("in_flight",),
    ),
    value(
        "-ct --confirm-timeout",
        "signed_s",
        "SECONDS",
        "Longest wait for a confirm; negative: for ever.",
        default="30",
        places=("confirm_timeout_s",),
    ),
    value(
        "-m --ptxsize",
        "count",
        "N",
        "Transactions: commit after N messages.",
        default="0",
        places=("publishing.transaction",),
    ),
    value(
        "-C --pmessages",
        "count",
        "N",
        "A publisher stops after N messages; 0: no limit.",
        default="0",
        places=("publishing.messages",),
    ),
    value(
        "-s --size",
        "size",
        "SIZE",
        "Octets of body, 28 or more: the stamp takes 28.",
        default="28",
        local="1000",
        places=("size_bytes",),
    ),
    many(
        "-vs --variable-size",
        "size_cycle",
        "SIZE:SECONDS",
        "Sizes and how long each holds, in turn, for ever. Repeatable.",
        places=("publishing.size_cycle",),
    ),
    value(
        "-B --body",
        "paths",
        "FILES",
        "Bodies out of files, with commas, one after the other.",
        places=("publishing.bodies.files",),
    ),
    value("-T --body-content-type", "text", "TYPE", "Content type of those bodies."),
    flag("-jb --json-body", "Random JSON documents of the size of -s.", places=("publishing.bodies.json_count",)),
    value("-bc --body-count", "count", "N", "So many of them are made beforehand.", default="100"),
    value(
        "-bfc --body-field-count",
        "count",
        "N",
        "Out of so many fields.",
        default="1000",
        places=("publishing.bodies.json_fields",),
    ),
    value(
        "-mp --message-properties",
        "pairs",
        "K=V,...",
        "priority=5, contentType=..., timestamp=...; any other name is a header.",
        places=("publishing.properties",),
    ),
    many(
        "-f --flag",
        "message_flag",
        "FLAG",
        "persistent (makes queues durable, too) or mandatory. Repeatable.",
        key="flags",
        places=("persistent", "mandatory"),
    ),
)

_CONSUMERS = section(
    "Consumers",
    value("-y --consumers", "count", "N", "Connections that consume.", default="1", places=("consumers",)),
    value(
        "-Y --consumer-channel-count",
        "count",
        "N",
        "Channels of each; every one is a consumer by itself.",
        default="1",
        places=("consuming.channels",),
    ),
    value(
        "-q --qos --prefetch",
        "prefetch",
        "N",
        "Prefetch of each consumer, at most 65535; 0 is unlimited.",
        default="0",
        local="1000",
        places=("prefetch",),
    ),
    value(
        "-Q --global-qos",
        "count",
        "N",
        "Prefetch of each channel; not for quorum queues.",
        default="0",
        places=("consuming.channel_prefetch",),
    ),
    value(
        "-A --multi-ack-every --ack-interval",
        "ack_interval",
        "N",
        "Acknowledge every N deliveries with the multiple flag; 0 or 1: each by itself.",
        default="1",
        places=("ack_interval",),
    ),
    value(
        "--ack-interval-ms",
        "count",
        "MS",
        "Acknowledge a part of an interval after so long; 0: wait for the rest of it.",
        default="0",
        perftest=False,
        places=("ack_after_ms",),
    ),
    flag("-a --autoack", "Automatic acknowledgement instead.", places=("autoack",)),
    flag("-na --nack", "Reject messages instead.", places=("consuming.nack",)),
    value("-re --requeue", "boolean", "BOOL", "Whether rejected messages go back to their queue.", default="true"),
    value(
        "-L --consumer-latency",
        "latency_us",
        "MICROSECONDS",
        "How long a consumer works on each message.",
        default="0",
        places=("consumer_latency_us",),
    ),
    many(
        "-vl --variable-latency",
        "latency_cycle",
        "US:SECONDS",
        "Such times and how long each holds, in turn, for ever. Repeatable.",
        places=("consuming.latency_cycle",),
    ),
    value(
        "-R --consumer-rate",
        "signed_rate",
        "RATE",
        "Most messages per second of each consumer.",
        default="unlimited",
        places=("consuming.rate",),
    ),
    flag("-po --polling", "basic.get over and over again, instead of a subscription."),
    value("-pi --polling-interval", "count", "MS", "Pause between those.", default="0"),
    value(
        "-n --ctxsize",
        "count",
        "N",
        "Transactions: commit after N acknowledged messages.",
        default="0",
        places=("consuming.transaction",),
    ),
    value(
        "-D --cmessages",
        "count",
        "N",
        "A consumer stops after N messages; 0: no limit.",
        default="0",
        places=("consuming.messages",),
    ),
    value(
        "-ew --exit-when",
        "exit_when",
        "empty|idle",
        "Consumers leave when their queue is empty, or nothing came for 1 s.",
        shown="never",
        places=("consuming.exit_when",),
    ),
    value("-csd --consumer-start-delay", "signed_s", "SECONDS", "Consumers begin so much later.", default="0"),
    flag("-S --slow-start", "Consumers begin a second apart."),
    many(
        "-ca --consumer-args",
        "pairs",
        "K=V,...",
        "Arguments of basic.consume: x-priority=10.",
        key="consumer_arguments",
    ),
)

_CONNECTIONS = section(
    "Connections",
    value(
        "-cal --connection-allocation",
        "allocation",
        "random|round-robin",
        "Which of several URIs a connection is opened to.",
        default="random",
        local="round-robin",
    ),
    value("-b --heartbeat", "count", "SECONDS", "Heartbeat to ask for; 0: the broker's.", default="0"),
    value(
        "-M --framemax",
        "size",
        "SIZE",
        "Largest frame to ask for; 0: the broker's.",
        default="0",
        places=("connecting.frame_max",),
    ),
    flag("-dcr --disable-connection-recovery", "A lost connection ends the run."),
    value(
        "-cri --connection-recovery-interval",
        "range_s",
        "SECONDS",
        "Wait before a lost connection is made again; 30-60: a random time.",
        default="5",
        shown="5; bundled cluster: short, growing",
        places=("connecting.recovery_s",),
    ),
    value(
        "-sst --servers-startup-timeout",
        "signed_s",
        "SECONDS",
        "Wait so long for the brokers before the run; -1: do not.",
        default="-1",
    ),
    value(
        "-sul --servers-up-limit",
        "signed",
        "N",
        "So many of the URIs must answer.",
        shown="all",
        default="-1",
        places=("connecting.servers_up",),
    ),
    value("-tsbs --tcp-send-buffer-size", "signed_octets", "SIZE", "Send buffer of sockets.", shown="the system's"),
    value("-trbs --tcp-receive-buffer-size", "signed_octets", "SIZE", "Receive buffer.", shown="the system's"),
    value("-tnd --tcp-no-delay", "boolean", "BOOL", "Send small packets at once.", default="true"),
    flag("-udsc --use-default-ssl-context", "Check certificates of amqps:// by the system's authorities."),
    value(
        "--tls-ca",
        "path",
        "FILE",
        "Check them by these authorities (PEM).",
        perftest=False,
        places=("connecting.tls.ca_file", "connecting.tls"),
    ),
    value(
        "--tls-cert",
        "path",
        "FILE",
        "Certificate to show to the broker (PEM).",
        perftest=False,
        places=("connecting.tls.cert_file",),
    ),
    value("--tls-key", "path", "FILE", "Its key (PEM).", perftest=False, places=("connecting.tls.key_file",)),
    value("-sni --server-name-indication", "names", "NAMES", "Server names to ask for, with commas."),
    flag("-se --sasl-external", "SASL EXTERNAL: the certificate says who it is.", places=("connecting.external",)),
)

_JVM = "there is no JVM"
_METRICS = "Datadog is not sent to; -mpr serves metrics for Prometheus"
_INSTANCES = "runs on several hosts are not synchronised by instances"
_STREAM = "streams are not measured; use -qq for a quorum queue, or PerfTest and stream-perf-test for streams"
_OAUTH = "no tokens are fetched; write one as the password of the URI: amqp://:TOKEN@host"

_WITHOUT = (
    value("-hst --heartbeat-sender-threads", "text", "N", "", reason=_JVM),
    value("-pst --producer-scheduler-threads", "text", "N", "", reason=_JVM),
    value("-ctp --consumers-thread-pools", "text", "N", "", reason=_JVM),
    value("-niot --nio-threads", "text", "N", "", reason=_JVM),
    value("-niotp --nio-thread-pool", "text", "N", "", reason=_JVM),
    flag("-nty --netty", "", reason=_JVM),
    value("-ntyt --netty-threads", "text", "N", "", reason=_JVM),
    flag("-ntyep --netty-epoll", "", reason=_JVM),
    flag("-ntykq --netty-kqueue", "", reason=_JVM),
    flag("-mc --metrics-client", "", reason=_JVM),
    flag("-mcl --metrics-class-loader", "", reason=_JVM),
    flag("-mjm --metrics-jvm-memory", "", reason=_JVM),
    flag("-mjgc --metrics-jvm-gc", "", reason=_JVM),
    flag("-mjp --metrics-processor", "", reason=_JVM),
    flag("-mjt --metrics-jvm-thread", "", reason=_JVM),
    flag("-mjx --metrics-jmx", "", reason=_JVM),
    flag("-mda --metrics-datadog", "", reason=_METRICS),
    value("-mdk --metrics-datadog-api-key", "text", "KEY", "", reason=_METRICS),
    value("-mdak --metrics-datadog-application-key", "text", "KEY", "", reason=_METRICS),
    value("-mds --metrics-datadog-step-size", "text", "SECONDS", "", reason=_METRICS),
    value("-mdh --metrics-datadog-host-tag", "text", "TAG", "", reason=_METRICS),
    flag("-mdd --metrics-datadog-descriptions", "", reason=_METRICS),
    value("-mdu --metrics-datadog-uri", "text", "URI", "", reason=_METRICS),
    value("-ei --expected-instances", "text", "N", "", reason=_INSTANCES),
    value("-isn --instance-sync-namespace", "text", "NAME", "", reason=_INSTANCES),
    value("-ist --instance-sync-timeout", "text", "SECONDS", "", reason=_INSTANCES),
    flag("--verbose", "", reason="no line is printed for each message"),
    flag("--verbose-full", "", reason="no line is printed for each message"),
)
_REFUSED = (
    flag("-sq --stream-queue", "", reason=_STREAM),
    value("-smssb --stream-max-segment-size-bytes", "text", "SIZE", "", reason=_STREAM),
    value("-ma --max-age", "text", "DURATION", "", reason=_STREAM),
    value("-sco --stream-consumer-offset", "text", "OFFSET", "", reason=_STREAM),
    value("-o2uri --oauth2-token-endpoint", "text", "URI", "", reason=_OAUTH),
    value("-o2id --oauth2-client-id", "text", "ID", "", reason=_OAUTH),
    value("-o2sec --oauth2-client-secret", "text", "SECRET", "", reason=_OAUTH),
    value("-o2gr --oauth2-grant-type", "text", "TYPE", "", reason=_OAUTH),
    value("-o2p --oauth2-parameters", "text", "K=V,...", "", reason=_OAUTH),
)

_UNSUPPORTED = (
    *section("Other", *_WITHOUT, effect=Effect.WITHOUT),
    *section("Other", *_REFUSED, effect=Effect.REFUSED),
)

OPTIONS: Final[tuple[Option, ...]] = (
    *_GENERAL,
    *_TOPOLOGY,
    *_PUBLISHERS,
    *_CONSUMERS,
    *_CONNECTIONS,
    *_UNSUPPORTED,
)
BY_KEY: Final[Mapping[str, Option]] = {each.key: each for each in OPTIONS}
BY_SHORT: Final[Mapping[str, Option]] = {each.short: each for each in OPTIONS if each.short}
BY_LONG: Final[Mapping[str, Option]] = {name: each for each in OPTIONS for name in each.long}
BY_VARIABLE: Final[Mapping[str, Option]] = {
    each.variable: each for each in OPTIONS if each.perftest and not each.key.startswith("show_")
}


def at_place(place: str) -> Iterator[Option]:
    """The options that set a value of the plan."""
    return (each for each in OPTIONS if place in each.places)


def by_effect(effect: Effect) -> Iterator[tuple[str, list[Option]]]:
    """Reasons, and the options that have each."""
    found: dict[str, list[Option]] = {}
    for each in OPTIONS:
        if each.effect is effect:
            found.setdefault(each.reason, []).append(each)
    yield from found.items()
