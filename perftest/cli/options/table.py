"""All options of ``perftest run``, section by section; also PerfTest's options without effect, and those refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perftest.cli.options.option import Arity, Effect, Option, flag, many, section, value
from perftest.cli.ui import METRICS_FORMATS, UI_NAMES

_GENERAL = (
    *section(
        "Target",
        value(
            "-h --uri",
            "text",
            "URI",
            "AMQP URI of the broker. Without a URI, a local three-node cluster is started for this run.",
        ),
        value("-H --uris", "text", "URIS", "AMQP URIs of several brokers, separated by commas."),
        value(
            "--cluster",
            "path",
            "DIRECTORY",
            "Measure the local cluster that `perftest broker start` keeps in DIRECTORY.",
            perftest=False,
        ),
    ),
    *section(
        "Timing",
        value(
            "-z --time",
            "limit_s",
            "DURATION",
            "Length of the run, warm-up included. 0, or no -z: the run lasts until Ctrl-C.",
        ),
        value(
            "--warmup",
            "duration_s",
            "DURATION",
            "First part of the run, which is recorded but left out of the result.",
            shown="a tenth of -z, at most 5s; 0 with -C, -D or -ew",
            perftest=False,
            places=("warmup_s",),
        ),
        value(
            "--drain",
            "duration_s",
            "DURATION",
            "Longest wait after the last publish until every confirmed message has been delivered.",
            default="10s",
            perftest=False,
        ),
        value(
            "-st --shutdown-timeout",
            "signed_s",
            "DURATION",
            "Longest time to close the connections; 0 or less: drop them without closing.",
            default="5",
        ),
    ),
    *section(
        "Measurement",
        value(
            "-d --id",
            "text",
            "ID",
            "Name of the run. It begins each line of PerfTest's output and is part of the run directory's name.",
            shown="test-HHMMSS-mmm",
        ),
        value(
            "-i --interval",
            "duration_s",
            "DURATION",
            "Time between two records of the measurement: 100ms to 1m.",
            default="1s",
            places=("interval_s",),
        ),
        many(
            "--slo",
            "objective",
            "EXPR",
            "Objective of the run, such as e2e.p99<20ms, rate>=10k or loss==0. A missed objective ends the run "
            "with exit code 4. Repeatable.",
            perftest=False,
        ),
        value(
            "--percentiles",
            "percentiles",
            "LIST",
            "Percentiles to show for each latency at the end, such as 50,90,99.9.",
            perftest=False,
        ),
        flag(
            "--legacy-latency",
            "Also show the latencies that PerfTest would show: measured from the send, and sampled.",
            perftest=False,
        ),
        value("--seed", "count", "N", "Seed of every random choice of the run.", default="1", perftest=False),
        value(
            "--workers",
            "count",
            "N",
            "Number of worker processes that share the clients; 0: as many as the load is expected to need.",
            default="0",
            perftest=False,
            places=("workers",),
        ),
        many(
            "--broker-metrics",
            "http_url",
            "URL",
            "URL where the broker tells its own figures: http://host:15692/metrics (Prometheus) or "
            "http://user:password@host:15672 (RabbitMQ's management API). Repeatable, once for each node.",
            perftest=False,
        ),
        flag("-ms --use-millis", "Show latencies in milliseconds instead of microseconds in PerfTest's lines and CSV."),
    ),
    *section(
        "Output",
        value(
            "-o --output-file",
            "path",
            "FILE",
            "Write a CSV file with a row for each interval: PerfTest's columns first, then further ones.",
        ),
        value(
            "-mf --metrics-format",
            "metrics_format",
            "|".join(METRICS_FORMATS),
            "Print PerfTest's console lines in this format (as --ui plain does).",
            shown="default, where there is no terminal",
        ),
        value(
            "--hlog",
            "path",
            "FILE",
            "Write all latencies of the run to FILE, as an HdrHistogram interval log.",
            perftest=False,
        ),
        value(
            "--out",
            "path",
            "DIRECTORY",
            "Directory in which the run directory is created.",
            default="runs",
            perftest=False,
        ),
        value(
            "--ui",
            "ui",
            "NAME",
            f"How progress is shown: {', '.join(UI_NAMES)}.",
            default="auto",
            perftest=False,
        ),
        flag("--report", "Make an HTML report after the run.", perftest=False),
        flag("--no-report", "Make no HTML report after the run.", perftest=False),
        flag("--json", "Print the result as JSON instead of a table.", perftest=False, key="as_json"),
    ),
    *section(
        "Metrics",
        flag("-mpr --metrics-prometheus", "Serve metrics for Prometheus over HTTP while the run lasts."),
        value("-mpp --metrics-prometheus-port", "count", "PORT", "Port on which metrics are served.", default="8080"),
        value(
            "--metrics-host",
            "text",
            "ADDRESS",
            "Address on which metrics are served; 0.0.0.0: every address of this machine.",
            default="127.0.0.1",
            perftest=False,
        ),
        value(
            "-mpe --metrics-prometheus-endpoint",
            "text",
            "PATH",
            "URL path under which metrics are served.",
            default="/metrics",
        ),
        value("-mpx --metrics-prefix", "text", "PREFIX", "Prefix of the name of every metric.", default="perftest_"),
        value("-mt --metrics-tags", "labels", "K=V,...", "Labels to add to every metric."),
        flag(
            "-mcla --metrics-command-line-arguments",
            "Serve one more metric, perftest_args, with the command line as its label.",
        ),
        value(
            "-em --exposed-metrics",
            "gauges",
            "K=V,...",
            "Constant gauges to serve beside the metrics, such as expected_published=50000.",
        ),
    ),
    *section(
        "Other",
        flag(
            "-env --environment-variables",
            "List the environment variables that this command reads, and exit.",
            key="show_environment",
        ),
        flag("-mh --metrics-help", "Show the options about metrics, and exit.", key="show_metrics"),
        flag("-v --version", "Show the version, and exit.", key="show_version"),
    ),
)

_TOPOLOGY = section(
    "Topology",
    value(
        "-u --queue",
        "names",
        "NAMES",
        "Names of the queues, separated by commas. Each queue gets every message, and each consumer takes "
        "from every queue; with the default exchange, publishers and consumers are spread over the queues "
        "instead.",
        local="perftest",
        shown="one for each consumer, named by the server",
        places=("queues",),
    ),
    value(
        "-qp --queue-pattern",
        "pattern",
        "PATTERN",
        "Pattern of the queue names, with a place for a number: q-%d or q-%03d. Needs -qpf and -qpt.",
    ),
    value("-qpf --queue-pattern-from", "count", "N", "First number of the queue names of -qp."),
    value("-qpt --queue-pattern-to", "count", "N", "Last number of the queue names of -qp."),
    value("-qf --queue-file", "path", "FILE", "Read the queue names from FILE, one name a line."),
    flag("-qq --quorum-queue", "Declare quorum queues and publish persistent messages.", key="quorum"),
    value(
        "-ad --auto-delete",
        "boolean",
        "BOOL",
        "Whether the broker deletes a queue when its last consumer leaves.",
        default="true",
        local="false",
        places=("queues.auto_delete",),
    ),
    flag(
        "-E --exclusive",
        "Declare exclusive queues. A queue then belongs to one connection, which its publishers and consumers share.",
        places=("connecting.exclusive",),
    ),
    many(
        "-qa --queue-args",
        "pairs",
        "K=V,...",
        "Arguments of the queues, such as x-max-length=10. Repeatable.",
        key="queue_arguments",
    ),
    value(
        "-mlb --max-length-bytes",
        "octets",
        "SIZE",
        "Longest that a queue may become, in octets of message bodies; 0: no limit.",
    ),
    value(
        "-ll --leader-locator",
        "leader_locator",
        "client-local|balanced",
        "Node on which the leader of a new quorum queue starts: that of the declaring client, or balanced "
        "over the nodes.",
    ),
    flag(
        "-p --predeclared",
        "Use queues and exchange that exist as they are, declare the missing ones, and delete none of them.",
    ),
    value(
        "-e --exchange",
        "exchange",
        "NAME",
        "Name of the exchange to publish to; amq.default or an empty name: the default exchange.",
        shown="named like its type; bundled cluster: the default exchange",
        places=("exchange.name",),
        arity=Arity.OPTIONAL,
    ),
    value("-t --type", "text", "TYPE", "Type of the exchange, such as direct, fanout or topic.", default="direct"),
    value(
        "-k --routing-key",
        "text",
        "KEY",
        "Routing key of all messages.",
        shown="the queue's name",
        places=("publishing.routing_key",),
    ),
    flag(
        "-K --random-routing-key",
        "Publish each message with a new random routing key.",
        places=("publishing.routing_keys",),
    ),
    value(
        "-rkcs --routing-key-cache-size",
        "count",
        "N",
        "Number of random routing keys that -K draws once and then uses in turn; 0: a new key for each message.",
        default="0",
        places=("publishing.routing_key_cache",),
    ),
    flag("-sb --skip-binding-queues", "Do not bind the queues to the exchange."),
)

_PUBLISHERS = section(
    "Publishers",
    value("-x --producers", "count", "N", "Number of connections that publish.", default="1", places=("publishers",)),
    value(
        "-X --producer-channel-count",
        "count",
        "N",
        "Number of channels on each publishing connection. Each channel is a publisher of its own.",
        default="1",
        places=("publishing.channels",),
    ),
    value(
        "-r --rate",
        "signed_rate",
        "RATE",
        "Messages per second of each publisher, on a schedule that is fixed in advance; 0: publishers stay idle.",
        shown="unlimited",
        default="unlimited",
        places=("rate",),
    ),
    value(
        "-P --publishing-interval",
        "interval_s",
        "SECONDS",
        "Time between two messages of a publisher, 0.1 s or more. Used instead of -r.",
        places=("rate",),
    ),
    many(
        "-vr --variable-rate",
        "rate_cycle",
        "RATE:SECONDS",
        "A rate and how long it holds, such as 1000:60. Several of them take turns until the end. Repeatable.",
        places=("publishing.rate_cycle",),
    ),
    value(
        "--arrivals",
        "arrivals",
        "fixed|poisson|trace:FILE",
        "Schedule of the intended send times: evenly spaced, random (Poisson), or read from a file.",
        default="fixed",
        perftest=False,
        places=("publishing.arrivals", "publishing.trace"),
    ),
    value(
        "-prsd --producer-random-start-delay",
        "signed_s",
        "SECONDS",
        "Each publisher starts after a random delay of at most this long.",
        shown="1 if there is a rate; bundled cluster: 0",
        places=("publishing.start_delay_s",),
    ),
    value(
        "-c --confirm --in-flight",
        "in_flight",
        "N",
        "Most unconfirmed messages of each publisher (in-flight limit). 0: confirms without a limit; -1 or "
        "off: no confirms.",
        default="off",
        local="1000",
        places=("in_flight",),
    ),
    value(
        "-ct --confirm-timeout",
        "signed_s",
        "SECONDS",
        "Longest wait for a publisher confirm; a negative number: no limit.",
        default="30",
        places=("confirm_timeout_s",),
    ),
    value(
        "-m --ptxsize",
        "count",
        "N",
        "Publish in transactions and commit after every N messages; 0: no transactions.",
        default="0",
        places=("publishing.transaction",),
    ),
    value(
        "-C --pmessages",
        "count",
        "N",
        "Number of messages after which a publisher stops; 0: no limit.",
        default="0",
        places=("publishing.messages",),
    ),
    value(
        "-s --size",
        "size",
        "SIZE",
        "Size of each message body in octets, 28 or more: the first 28 hold the time stamps.",
        default="28",
        local="1000",
        places=("size_bytes",),
    ),
    many(
        "-vs --variable-size",
        "size_cycle",
        "SIZE:SECONDS",
        "A body size and how long it holds, such as 1000:60. Several of them take turns until the end. Repeatable.",
        places=("publishing.size_cycle",),
    ),
    value(
        "-B --body",
        "paths",
        "FILES",
        "Files with message bodies, separated by commas. Publishers send them in turn.",
        places=("publishing.bodies.files",),
    ),
    value("-T --body-content-type", "text", "TYPE", "Content type of the bodies of -B or -jb."),
    flag(
        "-jb --json-body",
        "Publish random JSON documents, each of the size that -s gives.",
        places=("publishing.bodies.json_count",),
    ),
    value("-bc --body-count", "count", "N", "Number of JSON bodies to generate before the run.", default="100"),
    value(
        "-bfc --body-field-count",
        "count",
        "N",
        "Number of random fields to generate before the run. JSON bodies are made of them.",
        default="1000",
        places=("publishing.bodies.json_fields",),
    ),
    value(
        "-mp --message-properties",
        "pairs",
        "K=V,...",
        "Properties of the messages, such as priority=5,contentType=text/plain. Any other name becomes a header.",
        places=("publishing.properties",),
    ),
    many(
        "-f --flag",
        "message_flag",
        "FLAG",
        "persistent: messages and queues are durable; mandatory: messages that no queue takes are returned. "
        "Repeatable.",
        key="flags",
        places=("persistent", "mandatory"),
    ),
)

_CONSUMERS = section(
    "Consumers",
    value("-y --consumers", "count", "N", "Number of connections that consume.", default="1", places=("consumers",)),
    value(
        "-Y --consumer-channel-count",
        "count",
        "N",
        "Number of channels on each consuming connection. Each channel has a consumer of its own.",
        default="1",
        places=("consuming.channels",),
    ),
    value(
        "-q --qos --prefetch",
        "prefetch",
        "N",
        "Prefetch: most unacknowledged messages of each consumer, at most 65535; 0: no limit.",
        default="0",
        local="1000",
        places=("prefetch",),
    ),
    value(
        "-Q --global-qos",
        "count",
        "N",
        "Prefetch of each channel as a whole; 0: no limit. Quorum queues refuse this option.",
        default="0",
        places=("consuming.channel_prefetch",),
    ),
    value(
        "-A --multi-ack-every --ack-interval",
        "ack_interval",
        "N",
        "Acknowledge every N deliveries together, with the multiple flag; 0 or 1: each delivery by itself.",
        default="1",
        places=("ack_interval",),
    ),
    value(
        "--ack-interval-ms",
        "count",
        "MS",
        "Acknowledge an incomplete group of -A after this many milliseconds; 0: wait until the group is complete.",
        default="0",
        perftest=False,
        places=("ack_after_ms",),
    ),
    flag(
        "-a --autoack",
        "Consume with automatic acknowledgement: the broker counts a message as settled when it is sent.",
        places=("autoack",),
    ),
    flag("-na --nack", "Reject every message (basic.nack) instead of acknowledging it.", places=("consuming.nack",)),
    value(
        "-re --requeue",
        "boolean",
        "BOOL",
        "Whether the messages that -na rejects return to their queue.",
        default="true",
    ),
    value(
        "-L --consumer-latency",
        "latency_us",
        "MICROSECONDS",
        "Time that a consumer works on each message before the acknowledgement, in microseconds.",
        default="0",
        places=("consumer_latency_us",),
    ),
    many(
        "-vl --variable-latency",
        "latency_cycle",
        "US:SECONDS",
        "A processing time in microseconds and how long it holds, such as 500:60. Several of them take turns "
        "until the end. Repeatable.",
        places=("consuming.latency_cycle",),
    ),
    value(
        "-R --consumer-rate",
        "signed_rate",
        "RATE",
        "Most messages per second that each consumer takes.",
        default="unlimited",
        places=("consuming.rate",),
    ),
    flag("-po --polling", "Fetch messages with basic.get, one request for each message, instead of a subscription."),
    value("-pi --polling-interval", "count", "MS", "Pause between two basic.get of -po, in milliseconds.", default="0"),
    value(
        "-n --ctxsize",
        "count",
        "N",
        "Acknowledge in transactions and commit after every N messages; 0: no transactions.",
        default="0",
        places=("consuming.transaction",),
    ),
    value(
        "-D --cmessages",
        "count",
        "N",
        "Number of messages after which a consumer stops; 0: no limit.",
        default="0",
        places=("consuming.messages",),
    ),
    value(
        "-ew --exit-when",
        "exit_when",
        "empty|idle",
        "Stop consumers when their queue is empty (empty), or when no message came for 1 s (idle).",
        shown="never",
        places=("consuming.exit_when",),
    ),
    value(
        "-csd --consumer-start-delay",
        "signed_s",
        "SECONDS",
        "Start the consumers this long after the load begins.",
        default="0",
    ),
    flag("-S --slow-start", "Start the consumers one after the other, one second apart."),
    many(
        "-ca --consumer-args",
        "pairs",
        "K=V,...",
        "Arguments of basic.consume, such as x-priority=10.",
        key="consumer_arguments",
    ),
)

_CONNECTIONS = section(
    "Connections",
    value(
        "-cal --connection-allocation",
        "allocation",
        "random|round-robin",
        "Which of several URIs a new connection uses: a random one, or each in turn.",
        default="random",
        local="round-robin",
    ),
    value(
        "-b --heartbeat",
        "count",
        "SECONDS",
        "Heartbeat interval to request from the broker, in seconds; 0: what the broker proposes.",
        default="0",
    ),
    value(
        "-M --framemax",
        "size",
        "SIZE",
        "Largest frame to request from the broker, in octets; 0: what the broker proposes.",
        default="0",
        places=("connecting.frame_max",),
    ),
    flag("-dcr --disable-connection-recovery", "End the run when a connection is lost, instead of connecting again."),
    value(
        "-cri --connection-recovery-interval",
        "range_s",
        "SECONDS",
        "Wait before a lost connection is opened again; a range such as 30-60: a random time within it.",
        default="5",
        shown="5; bundled cluster: short at first, then growing",
        places=("connecting.recovery_s",),
    ),
    value(
        "-sst --servers-startup-timeout",
        "signed_s",
        "SECONDS",
        "Longest wait for the brokers to answer before the run starts; -1: no wait.",
        default="-1",
    ),
    value(
        "-sul --servers-up-limit",
        "signed",
        "N",
        "Number of URIs that must answer within -sst.",
        shown="all",
        default="-1",
        places=("connecting.servers_up",),
    ),
    value(
        "-tsbs --tcp-send-buffer-size",
        "signed_octets",
        "SIZE",
        "Size of the send buffer of each socket, in octets.",
        shown="the system's",
    ),
    value(
        "-trbs --tcp-receive-buffer-size",
        "signed_octets",
        "SIZE",
        "Size of the receive buffer of each socket, in octets.",
        shown="the system's",
    ),
    value(
        "-tnd --tcp-no-delay",
        "boolean",
        "BOOL",
        "Whether sockets send small packets at once (TCP_NODELAY).",
        default="true",
    ),
    flag(
        "-udsc --use-default-ssl-context",
        "Check the certificates of amqps:// brokers against the system's authorities.",
    ),
    value(
        "--tls-ca",
        "path",
        "FILE",
        "Check the certificates of amqps:// brokers against the authorities in FILE (PEM).",
        perftest=False,
        places=("connecting.tls.ca_file", "connecting.tls"),
    ),
    value(
        "--tls-cert",
        "path",
        "FILE",
        "Certificate to present to the broker (PEM).",
        perftest=False,
        places=("connecting.tls.cert_file",),
    ),
    value(
        "--tls-key",
        "path",
        "FILE",
        "Private key of the certificate in --tls-cert (PEM).",
        perftest=False,
        places=("connecting.tls.key_file",),
    ),
    value(
        "-sni --server-name-indication",
        "names",
        "NAMES",
        "Server names to request in the TLS handshake (SNI), separated by commas.",
    ),
    flag(
        "-se --sasl-external",
        "Log in with SASL EXTERNAL: the TLS certificate names the user.",
        places=("connecting.external",),
    ),
)

_JVM = "there is no JVM"
_METRICS = "metrics are not sent to Datadog; -mpr serves them for Prometheus"
_INSTANCES = "runs on several hosts are not synchronised by instances"
_STREAM = "streams are not measured; use -qq for a quorum queue, or PerfTest and stream-perf-test for a stream"
_OAUTH = "no tokens are fetched; write a token as the password of the URI: amqp://:TOKEN@host"

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
    flag("--verbose", "", reason="messages are not printed one by one"),
    flag("--verbose-full", "", reason="messages are not printed one by one"),
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
