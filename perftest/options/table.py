"""All options of ``perftest run``, section by section; also PerfTest's options without effect, and those refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perftest.options.option import Arity, Effect, Option, flag, many, section, value
from perftest.options.targets import BROKER_HELP, HOME_HELP
from perftest.screen import METRICS_FORMATS, UI_NAMES

# A table: the help of an option stands below its names.
# fmt: off
_GENERAL = (
    *section(
        "Target",
        value("-h --uri", "text", "URI",
              help="AMQP URI of the broker. Without a URI, a local three-node cluster is started for this run."),
        value("-H --uris", "text", "URIS", help="AMQP URIs of several brokers, separated by commas."),
        value("--cluster", "path", "DIRECTORY", perftest=False,
              help="Measure the local cluster that `perftest broker start` keeps in DIRECTORY."),
        value("--broker", "product", "NAME", perftest=False, shown="reference", help=BROKER_HELP),
        value("--rabbitmq-home", "path", "DIRECTORY", perftest=False, shown="the installed one", help=HOME_HELP),
        value("--layout", "path", "FILE", perftest=False,
              help="Layout file or bundled layout, such as disks/three_hdd: which drives hold which files of the nodes "
                   "of the cluster that is started for this run."),
    ),
    *section(
        "Timing",
        value("-z --time", "limit_s", "DURATION",
              help="Length of the run, warm-up included. 0, or no -z: the run lasts until Ctrl-C."),
        value("--warmup", "duration_s", "DURATION", shown="a tenth of -z, at most 5s; 0 with -C, -D, -ew or -x 0",
              perftest=False, places=("warmup_s",),
              help="First part of the run, which is recorded but left out of the result."),
        value("--drain", "duration_s", "DURATION", default="10s", perftest=False,
              help="Longest wait after the last publish until every confirmed message has been delivered."),
        value("-st --shutdown-timeout", "signed_s", "DURATION", default="5",
              help="Longest time to close the connections; 0 or less: drop them without closing."),
    ),
    *section(
        "Measurement",
        value("-d --id", "text", "ID", shown="test-HHMMSS-mmm",
              help="Name of the run. It begins each line of PerfTest's output and is part of the run directory's "
                   "name."),
        value("-i --interval", "duration_s", "DURATION", default="1s", places=("interval_s",),
              help="Time between two records of the measurement: 100ms to 1m."),
        many("--at", "action", "'TIME ACTION [NODE]'", perftest=False,
             help="Act on a node of the local cluster while the load runs, such as '30s kill leader' or "
                  "'35s restart killed'. Repeatable."),
        many("--slo", "objective", "EXPR", perftest=False,
             help="Objective of the run, such as e2e.p99<20ms, rate>=10k or loss==0. A missed objective ends the "
                  "run with exit code 4. Repeatable."),
        value("--percentiles", "percentiles", "LIST", perftest=False,
              help="Percentiles to show for each latency at the end, such as 50,90,99.9."),
        flag("--legacy-latency", perftest=False,
             help="Also show the latencies that PerfTest would show: measured from the send, and sampled."),
        value("--seed", "count", "N", default="1", perftest=False, help="Seed of every random choice of the run."),
        value("--workers", "count", "N", default="0", perftest=False, places=("workers",),
              help="Number of worker processes that share the clients; 0: as many as the load is expected to need."),
        many("--broker-metrics", "http_url", "URL", perftest=False,
             help="URL where the broker tells its own figures: http://host:15692/metrics (Prometheus) or "
                  "http://user:password@host:15672 (RabbitMQ's management API). Repeatable, once for each node."),
        flag("-ms --use-millis",
             help="Show latencies in milliseconds instead of microseconds in PerfTest's lines and CSV."),
    ),
    *section(
        "Output",
        value("-o --output-file", "path", "FILE",
              help="Write a CSV file with a row for each interval: PerfTest's columns first, then further ones."),
        value("-mf --metrics-format", "metrics_format", "|".join(METRICS_FORMATS),
              shown="default, where there is no terminal",
              help="Print PerfTest's console lines in this format (as --ui plain does)."),
        value("--hlog", "path", "FILE", perftest=False,
              help="Write all latencies of the run to FILE, as an HdrHistogram interval log."),
        value("--out", "path", "DIRECTORY", default="runs", perftest=False,
              help="Directory in which the run directory is created."),
        value("--ui", "ui", "NAME", default="auto", perftest=False,
              help=f"How progress is shown: {', '.join(UI_NAMES)}."),
        value("--junit", "path", "FILE", perftest=False,
              help="Write the verdicts to FILE as JUnit XML: a case for each objective, and one for the trust in all."),
        value("--annotations", "annotations", "github|gitlab[=FILE]", perftest=False,
              help="Annotate the build: print GitHub's lines for missed objectives to stderr, or write GitLab's code "
                   "quality report (FILE, or gl-code-quality-report.json)."),
        flag("--report", perftest=False, help="Make an HTML report after the run."),
        flag("--no-report", perftest=False, help="Make no HTML report after the run."),
        flag("--json", perftest=False, key="as_json", help="Print the result as JSON instead of a table."),
    ),
    *section(
        "Metrics",
        flag("-mpr --metrics-prometheus", help="Serve metrics for Prometheus over HTTP while the run lasts."),
        value("-mpp --metrics-prometheus-port", "count", "PORT", default="8080",
              help="Port on which metrics are served."),
        value("--metrics-host", "text", "ADDRESS", default="127.0.0.1", perftest=False,
              help="Address on which metrics are served; 0.0.0.0: every address of this machine."),
        value("-mpe --metrics-prometheus-endpoint", "text", "PATH", default="/metrics",
              help="URL path under which metrics are served."),
        value("-mpx --metrics-prefix", "text", "PREFIX", default="perftest_",
              help="Prefix of the name of every metric."),
        value("-mt --metrics-tags", "labels", "K=V,...", help="Labels to add to every metric."),
        flag("-mcla --metrics-command-line-arguments",
             help="Serve one more metric, perftest_args, with the command line as its label."),
        value("-em --exposed-metrics", "gauges", "K=V,...",
              help="Constant gauges to serve beside the metrics, such as expected_published=50000."),
        value("--otlp", "http_url", "URL", perftest=False,
              help="Send metrics to a collector of OpenTelemetry (OTLP over HTTP), such as http://collector:4318. This "
                   "needs the extra otlp."),
    ),
    *section(
        "Other",
        flag("-env --environment-variables", key="show_environment",
             help="List the environment variables that this command reads, and exit."),
        flag("-mh --metrics-help", key="show_metrics", help="Show the options about metrics, and exit."),
        flag("-v --version", key="show_version", help="Show the version, and exit."),
    ),
)

_TOPOLOGY = section(
    "Topology",
    value("-u --queue", "names", "NAMES", local="perftest", shown="one for each consumer, named by the server",
          places=("queues",),
          help="Names of the queues, separated by commas. Each queue gets every message, and each consumer takes "
               "from every queue; with the default exchange, publishers and consumers are spread over the queues "
               "instead."),
    value("-qp --queue-pattern", "pattern", "PATTERN",
          help="Pattern of the queue names, with a place for a number: q-%d or q-%03d. Needs -qpf and -qpt."),
    value("-qpf --queue-pattern-from", "count", "N", help="First number of the queue names of -qp."),
    value("-qpt --queue-pattern-to", "count", "N", help="Last number of the queue names of -qp."),
    value("-qf --queue-file", "path", "FILE", help="Read the queue names from FILE, one name a line."),
    flag("-qq --quorum-queue", key="quorum", help="Declare quorum queues and publish persistent messages."),
    value("-ad --auto-delete", "boolean", "BOOL", default="true", local="false", places=("queues.auto_delete",),
          help="Whether the broker deletes a queue when its last consumer leaves."),
    flag("-E --exclusive", places=("connecting.exclusive",),
         help="Declare exclusive queues. A queue then belongs to one connection, which its publishers and consumers "
              "share."),
    many("-qa --queue-args", "pairs", "K=V,...", key="queue_arguments",
         help="Arguments of the queues, such as x-max-length=10. Repeatable."),
    value("-mlb --max-length-bytes", "size", "SIZE",
          help="Longest that a queue may become, in octets of message bodies; 0: no limit."),
    value("-ll --leader-locator", "leader_locator", "client-local|balanced",
          help="Node on which the leader of a new quorum queue starts: that of the declaring client, or balanced "
               "over the nodes."),
    flag("-p --predeclared",
         help="Use queues and exchange that exist as they are, declare the missing ones, and delete none of them."),
    value("-e --exchange", "exchange", "NAME", shown="named like its type; bundled cluster: the default exchange",
          places=("exchange.name",), arity=Arity.OPTIONAL,
          help="Name of the exchange to publish to; amq.default or an empty name: the default exchange."),
    value("-t --type", "text", "TYPE", default="direct",
          help="Type of the exchange, such as direct, fanout or topic."),
    value("-k --routing-key", "text", "KEY", shown="the queue's name", places=("publishing.routing_key",),
          help="Routing key of all messages."),
    flag("-K --random-routing-key", places=("publishing.routing_keys",),
         help="Publish each message with a new random routing key."),
    value("-rkcs --routing-key-cache-size", "count", "N", default="0", places=("publishing.routing_key_cache",),
          help="Number of random routing keys that -K draws once and then uses in turn; 0: a new key for each "
               "message."),
    flag("-sb --skip-binding-queues", help="Do not bind the queues to the exchange."),
)

_PUBLISHERS = section(
    "Publishers",
    value("-x --producers", "count", "N", default="1", places=("publishers",),
          help="Number of connections that publish."),
    value("-X --producer-channel-count", "count", "N", default="1", places=("publishing.channels",),
          help="Number of channels on each publishing connection. Each channel is a publisher of its own."),
    value("-r --rate", "signed_rate", "RATE", shown="unlimited", default="unlimited", places=("rate",),
          help="Messages per second of each publisher, on a schedule that is fixed in advance; 0: publishers stay "
               "idle."),
    value("-P --publishing-interval", "interval_s", "SECONDS", places=("rate",),
          help="Time between two messages of a publisher, 0.1 s or more. Used instead of -r."),
    many("-vr --variable-rate", "rate_cycle", "RATE:SECONDS", places=("publishing.rate_cycle",),
         help="A rate and how long it holds, such as 1000:60. Several of them take turns until the end. Repeatable."),
    value("--arrivals", "arrivals", "fixed|poisson|trace:FILE", default="fixed", perftest=False,
          places=("publishing.arrivals", "publishing.trace"),
          help="Schedule of the intended send times: evenly spaced, random (Poisson), or read from a file."),
    value("-prsd --producer-random-start-delay", "signed_s", "SECONDS",
          shown="1 if there is a rate; bundled cluster: 0", places=("publishing.start_delay_s",),
          help="Each publisher starts after a random delay of at most SECONDS."),
    value("-c --confirm --in-flight", "in_flight", "N", default="off", local="1000", places=("in_flight",),
          help="Most unconfirmed messages of each publisher (in-flight limit). 0: confirms without a limit; -1 or "
               "off: no confirms."),
    value("-ct --confirm-timeout", "signed_s", "SECONDS", default="30", places=("confirm_timeout_s",),
          help="Longest wait for a publisher confirm; a negative number: no limit."),
    value("-m --ptxsize", "count", "N", default="0", places=("publishing.transaction",),
          help="Publish in transactions and commit after every N messages; 0: no transactions."),
    value("-C --pmessages", "count", "N", default="0", places=("publishing.messages",),
          help="Number of messages after which a publisher stops; 0: no limit."),
    value("-s --size", "size", "SIZE", default="28", local="1000", places=("size_bytes",),
          help="Size of each message body in octets, 28 or more: the first 28 hold the time stamps."),
    many("-vs --variable-size", "size_cycle", "SIZE:SECONDS", places=("publishing.size_cycle",),
         help="A body size and how long it holds, such as 1000:60. Several of them take turns until the end. "
              "Repeatable."),
    value("-B --body", "paths", "FILES", places=("publishing.bodies.files",),
          help="Files with message bodies, separated by commas. Publishers send them in turn."),
    value("-T --body-content-type", "text", "TYPE", help="Content type of the bodies of -B or -jb."),
    flag("-jb --json-body", places=("publishing.bodies.json_count",),
         help="Publish random JSON documents, each of the size that -s gives."),
    value("-bc --body-count", "count", "N", default="100", help="Number of JSON bodies to generate before the run."),
    value("-bfc --body-field-count", "count", "N", default="1000", places=("publishing.bodies.json_fields",),
          help="Number of random fields to generate before the run. JSON bodies are made of them."),
    value("-mp --message-properties", "pairs", "K=V,...", places=("publishing.properties",),
          help="Properties of the messages, such as priority=5,contentType=text/plain. Any other name becomes a "
               "header."),
    many("-f --flag", "message_flag", "FLAG", key="flags", places=("persistent", "mandatory"),
         help="persistent: messages and queues are durable; mandatory: messages that no queue takes are returned. "
              "Repeatable."),
)

_CONSUMERS = section(
    "Consumers",
    value("-y --consumers", "count", "N", default="1", places=("consumers",),
          help="Number of connections that consume."),
    value("-Y --consumer-channel-count", "count", "N", default="1", places=("consuming.channels",),
          help="Number of channels on each consuming connection. Each channel has a consumer of its own."),
    value("-q --qos --prefetch", "prefetch", "N", default="0", local="1000", places=("prefetch",),
          help="Prefetch: most unacknowledged messages of each consumer, at most 65535; 0: no limit."),
    value("-Q --global-qos", "count", "N", default="0", places=("consuming.channel_prefetch",),
          help="Prefetch of each channel as a whole; 0: no limit. Quorum queues refuse this option."),
    value("-A --multi-ack-every --ack-interval", "ack_interval", "N", default="1", places=("ack_interval",),
          help="Acknowledge every N deliveries together, with the multiple flag; 0 or 1: each delivery by itself."),
    value("--ack-interval-ms", "time_ms", "MS", default="0", perftest=False, places=("ack_after_ms",),
          help="Acknowledge an incomplete group of -A after this many milliseconds; 0: wait until the group is "
               "complete."),
    flag("-a --autoack", places=("autoack",),
         help="Consume with automatic acknowledgement: the broker counts a message as settled when it is sent."),
    flag("-na --nack", places=("consuming.nack",),
         help="Reject every message (basic.nack) instead of acknowledging it."),
    value("-re --requeue", "boolean", "BOOL", default="true",
          help="Whether the messages that -na rejects return to their queue."),
    value("-L --consumer-latency", "latency_us", "MICROSECONDS", default="0", places=("consumer_latency_us",),
          help="Time that a consumer works on each message before the acknowledgement, in microseconds."),
    many("-vl --variable-latency", "latency_cycle", "US:SECONDS", places=("consuming.latency_cycle",),
         help="A processing time in microseconds and how long it holds, such as 500:60. Several of them take turns "
              "until the end. Repeatable."),
    value("-R --consumer-rate", "signed_rate", "RATE", default="unlimited", places=("consuming.rate",),
          help="Most messages per second that each consumer takes."),
    flag("-po --polling",
         help="Fetch messages with basic.get, one request for each message, instead of a subscription."),
    value("-pi --polling-interval", "time_ms", "MS", default="0",
          help="Pause between two basic.get of -po, in milliseconds."),
    value("-n --ctxsize", "count", "N", default="0", places=("consuming.transaction",),
          help="Acknowledge in transactions and commit after every N messages; 0: no transactions."),
    value("-D --cmessages", "count", "N", default="0", places=("consuming.messages",),
          help="Number of messages after which a consumer stops; 0: no limit."),
    value("-ew --exit-when", "exit_when", "empty|idle", shown="never", places=("consuming.exit_when",),
          help="Stop consumers when their queue is empty (empty), or when no message came for 1 s (idle)."),
    value("-csd --consumer-start-delay", "signed_s", "SECONDS", default="0",
          help="Start the consumers SECONDS after the load begins."),
    flag("-S --slow-start", help="Start the consumers one after the other, one second apart."),
    many("-ca --consumer-args", "pairs", "K=V,...", key="consumer_arguments",
         help="Arguments of basic.consume, such as x-priority=10."),
)

_CONNECTIONS = section(
    "Connections",
    value("-cal --connection-allocation", "allocation", "random|round-robin", default="random", local="round-robin",
          help="Which of several URIs a new connection uses: a random one, or each in turn."),
    value("-b --heartbeat", "time_s", "SECONDS", default="0",
          help="Heartbeat interval to request from the broker, in seconds; 0: what the broker proposes."),
    value("-M --framemax", "size", "SIZE", default="0", places=("connecting.frame_max",),
          help="Largest frame to request from the broker, in octets; 0: what the broker proposes."),
    flag("-dcr --disable-connection-recovery",
         help="End the run when a connection is lost, instead of connecting again."),
    value("-cri --connection-recovery-interval", "range_s", "SECONDS", default="5",
          shown="5; bundled cluster: short at first, then growing", places=("connecting.recovery_s",),
          help="Wait before a lost connection is opened again; a range such as 30-60: a random time within it."),
    value("-sst --servers-startup-timeout", "signed_s", "SECONDS", default="-1",
          help="Longest wait for the brokers to answer before the run starts; -1: no wait."),
    value("-sul --servers-up-limit", "signed", "N", shown="all", default="-1", places=("connecting.servers_up",),
          help="Number of URIs that must answer within -sst."),
    value("-tsbs --tcp-send-buffer-size", "signed_size", "SIZE", shown="the system's",
          help="Size of the send buffer of each socket, in octets."),
    value("-trbs --tcp-receive-buffer-size", "signed_size", "SIZE", shown="the system's",
          help="Size of the receive buffer of each socket, in octets."),
    value("-tnd --tcp-no-delay", "boolean", "BOOL", default="true",
          help="Whether sockets send small packets at once (TCP_NODELAY)."),
    flag("-udsc --use-default-ssl-context",
         help="Check the certificates of amqps:// brokers against the system's authorities."),
    value("--tls-ca", "path", "FILE", perftest=False, places=("connecting.tls.ca_file", "connecting.tls"),
          help="Check the certificates of amqps:// brokers against the authorities in FILE (PEM)."),
    value("--tls-cert", "path", "FILE", perftest=False, places=("connecting.tls.cert_file",),
          help="Certificate to present to the broker (PEM)."),
    value("--tls-key", "path", "FILE", perftest=False, places=("connecting.tls.key_file",),
          help="Private key of the certificate in --tls-cert (PEM)."),
    value("-sni --server-name-indication", "names", "NAMES",
          help="Server names to request in the TLS handshake (SNI), separated by commas."),
    flag("-se --sasl-external", places=("connecting.external",),
         help="Log in with SASL EXTERNAL: the TLS certificate names the user."),
)

_JVM = "there is no JVM"
_METRICS = "metrics are not sent to Datadog; -mpr serves them for Prometheus"
_INSTANCES = "runs on several hosts are not synchronised by instances"
_STREAM = "streams are not measured; use -qq for a quorum queue, or PerfTest and stream-perf-test for a stream"
_OAUTH = "no tokens are fetched; write a token as the password of the URI: amqp://:TOKEN@host"

_WITHOUT = (
    value("-hst --heartbeat-sender-threads", "text", "N", reason=_JVM),
    value("-pst --producer-scheduler-threads", "text", "N", reason=_JVM),
    value("-ctp --consumers-thread-pools", "text", "N", reason=_JVM),
    value("-niot --nio-threads", "text", "N", reason=_JVM),
    value("-niotp --nio-thread-pool", "text", "N", reason=_JVM),
    flag("-nty --netty", reason=_JVM),
    value("-ntyt --netty-threads", "text", "N", reason=_JVM),
    flag("-ntyep --netty-epoll", reason=_JVM),
    flag("-ntykq --netty-kqueue", reason=_JVM),
    flag("-mc --metrics-client", reason=_JVM),
    flag("-mcl --metrics-class-loader", reason=_JVM),
    flag("-mjm --metrics-jvm-memory", reason=_JVM),
    flag("-mjgc --metrics-jvm-gc", reason=_JVM),
    flag("-mjp --metrics-processor", reason=_JVM),
    flag("-mjt --metrics-jvm-thread", reason=_JVM),
    flag("-mjx --metrics-jmx", reason=_JVM),
    flag("-mda --metrics-datadog", reason=_METRICS),
    value("-mdk --metrics-datadog-api-key", "text", "KEY", reason=_METRICS),
    value("-mdak --metrics-datadog-application-key", "text", "KEY", reason=_METRICS),
    value("-mds --metrics-datadog-step-size", "text", "SECONDS", reason=_METRICS),
    value("-mdh --metrics-datadog-host-tag", "text", "TAG", reason=_METRICS),
    flag("-mdd --metrics-datadog-descriptions", reason=_METRICS),
    value("-mdu --metrics-datadog-uri", "text", "URI", reason=_METRICS),
    value("-ei --expected-instances", "text", "N", reason=_INSTANCES),
    value("-isn --instance-sync-namespace", "text", "NAME", reason=_INSTANCES),
    value("-ist --instance-sync-timeout", "text", "SECONDS", reason=_INSTANCES),
    flag("--verbose", reason="messages are not printed one by one"),
    flag("--verbose-full", reason="messages are not printed one by one"),
)
_REFUSED = (
    flag("-sq --stream-queue", reason=_STREAM),
    value("-smssb --stream-max-segment-size-bytes", "text", "SIZE", reason=_STREAM),
    value("-ma --max-age", "text", "DURATION", reason=_STREAM),
    value("-sco --stream-consumer-offset", "text", "OFFSET", reason=_STREAM),
    value("-o2uri --oauth2-token-endpoint", "text", "URI", reason=_OAUTH),
    value("-o2id --oauth2-client-id", "text", "ID", reason=_OAUTH),
    value("-o2sec --oauth2-client-secret", "text", "SECRET", reason=_OAUTH),
    value("-o2gr --oauth2-grant-type", "text", "TYPE", reason=_OAUTH),
    value("-o2p --oauth2-parameters", "text", "K=V,...", reason=_OAUTH),
)

_UNSUPPORTED = (
    *section("Other", *_WITHOUT, effect=Effect.WITHOUT),
    *section("Other", *_REFUSED, effect=Effect.REFUSED),
)
# fmt: on

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
