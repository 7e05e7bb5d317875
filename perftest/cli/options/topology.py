"""Options about queues, exchanges and the way from one to the other."""

from __future__ import annotations

from perftest.cli.options.option import Arity, flag, many, section, value

OPTIONS = section(
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
