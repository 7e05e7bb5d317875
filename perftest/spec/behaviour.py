"""How publishers, consumers and connections behave: the part of a plan that no step changes.

A step can change the :class:`~perftest.spec.plan.Settings`. These classes are sections of a workload file, and their
fields are the keys of these sections (:class:`~perftest.spec.fields.Key`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from perftest.spec.fields import (
    Count,
    Key,
    LatencyCycle,
    Milliseconds,
    Octets,
    Pair,
    Rate,
    RateCycle,
    Seconds,
    Several,
    SizeCycle,
    WholeSeconds,
)

Cycle = tuple[tuple[float, float], ...]
"""Values in the unit of their field (messages per second, octets, microseconds of processing) and the seconds for which
each holds, over and over again; empty: no cycle."""

Argument = str | int | float | bool


class Arrivals(StrEnum):
    """The intended times of a publisher: at equal distances, as a Poisson process of the publisher's rate, or as a file
    of offsets says."""

    FIXED = "fixed"
    POISSON = "poisson"
    TRACE = "trace"


class RoutingKeys(StrEnum):
    """The routing key of messages: the name of the publisher's queue, the same key for all, or a random key for
    each."""

    QUEUE = "queue"
    FIXED = "fixed"
    RANDOM = "random"


class ExitWhen(StrEnum):
    """When consumers leave by themselves: never, when their queue is empty, or after a second without a message
    (-ew)."""

    NEVER = "never"
    EMPTY = "empty"
    IDLE = "idle"


class Allocation(StrEnum):
    """How connections are spread over the URIs (-cal)."""

    ROUND_ROBIN = "round-robin"
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The exchange that publishers publish to. The default exchange has no name, and routes by the name of a queue; it
    is neither declared nor bound."""

    name: Annotated[str, Key("name of the exchange; empty: the default exchange", longest=200)] = ""
    type: Annotated[str, Key("type of the exchange")] = "direct"
    durable: Annotated[bool, Key("whether the exchange survives a restart of the broker")] = True
    predeclared: Annotated[bool, Key("true: the exchange exists already, and is declared passively")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """The content of bodies behind the stamp. Without files and JSON documents, the content is a filler that consumers
    check; with files or JSON documents, the stamp travels in a header."""

    files: Annotated[Several[str], Key("files with bodies, which are sent in turn")] = ()
    content_type: Annotated[str, Key("content type of messages with files or JSON documents")] = ""
    json_count: Annotated[Count, Key("number of random JSON documents of the size of the load; 0: no JSON")] = 0
    json_fields: Annotated[Count, Key("number of fields of which the JSON documents are made")] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """How publishers behave; no step changes this. Each channel is a publisher with a window, a schedule and a
    numbering of its own."""

    channels: Annotated[Count, Key("channels on each connection; each is a publisher of its own")] = 1
    arrivals: Annotated[Arrivals, Key("schedule of the intended times, if there is a rate")] = Arrivals.FIXED
    trace: Annotated[str, Key("file of offsets, for arrivals: trace")] = ""
    catch_up: Annotated[bool, Key("whether overdue messages are sent at once; false: dropped and counted")] = True
    messages: Annotated[
        Count,
        Key("number of messages after which a publisher stops; 0: no limit. A sweep with this key must be isolated"),
    ] = 0
    transaction: Annotated[Count, Key("messages per transaction, in place of confirms; 0: no transactions")] = 0
    start_delay_s: Annotated[Seconds, Key("longest random delay before a publisher begins")] = field(
        default=0.0, metadata={"alias": "start_delay"}
    )
    routing_keys: Annotated[RoutingKeys, Key("the queue's name, routing_key, or random keys")] = RoutingKeys.QUEUE
    routing_key: Annotated[str, Key("routing key of all messages, for routing_keys: fixed")] = ""
    routing_key_cache: Annotated[Count, Key("number of random keys used in turn; 0: a new key for each message")] = 0
    properties: Annotated[
        dict[str, Argument],
        Key("properties of messages, spelled as in PerfTest (contentType, priority …); other names become headers"),
    ] = field(default_factory=dict)
    bodies: Annotated[Bodies, Key("content of the bodies")] = Bodies()
    rate_cycle: Annotated[RateCycle, Key("rates and how long each holds, in turn: [[100, 1m], [1k, 10s]]")] = ()
    size_cycle: Annotated[SizeCycle, Key("sizes and how long each holds, in turn until the end")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """How consumers behave; no step changes this."""

    channels: Annotated[Count, Key("channels on each connection; each channel has a consumer")] = 1
    channel_prefetch: Annotated[Count, Key("basic.qos with the global flag, not for quorum queues; 0: none")] = 0
    transaction: Annotated[Count, Key("number of acknowledgements per transaction; 0: no transactions")] = 0
    messages: Annotated[Count, Key("number of messages after which a consumer stops; 0: no limit")] = 0
    rate: Annotated[Rate, Key("most messages per second of each consumer")] = None
    nack: Annotated[bool, Key("whether consumers reject messages with basic.nack")] = False
    requeue: Annotated[bool, Key("whether rejected messages return to their queue")] = True
    polling: Annotated[bool, Key("whether consumers fetch with basic.get")] = False
    polling_interval_ms: Annotated[Milliseconds, Key("pause between two requests of basic.get")] = field(
        default=0, metadata={"alias": "polling_interval"}
    )
    start_delay_s: Annotated[Seconds, Key("delay before consumers begin")] = field(
        default=0.0, metadata={"alias": "start_delay"}
    )
    slow_start: Annotated[bool, Key("whether consumers begin one second apart")] = False
    arguments: Annotated[dict[str, Argument], Key("arguments of basic.consume")] = field(default_factory=dict)
    exit_when: Annotated[ExitWhen, Key("when consumers stop; idle: after a second without a message")] = ExitWhen.NEVER
    latency_cycle: Annotated[LatencyCycle, Key("processing times and how long each holds, in turn until the end")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How amqps connections are secured."""

    ca_file: Annotated[str, Key("certificates of authorities; empty: the broker's certificate is not checked")] = ""
    cert_file: Annotated[str, Key("certificate of the client")] = ""
    key_file: Annotated[str, Key("private key of the client")] = ""
    system_authorities: Annotated[bool, Key("whether the system's authorities are trusted")] = False
    server_names: Annotated[Several[str], Key("server names to request in the TLS handshake (SNI)")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """How connections are made, kept and ended. After a loss a connection tries every URI."""

    allocation: Annotated[Allocation, Key("which of several URIs a connection uses: in turn, or a random one")] = (
        Allocation.ROUND_ROBIN
    )
    publisher_nodes: Annotated[Several[Count], Key("nodes of the publishers, counted from 1; none: all")] = ()
    consumer_nodes: Annotated[Several[Count], Key("nodes of the consumers, counted from 1; none: all")] = ()
    heartbeat_s: Annotated[
        WholeSeconds | None, Key("heartbeat interval to request from the broker; none: the broker's")
    ] = field(default=None, metadata={"alias": "heartbeat"})
    frame_max: Annotated[Octets | None, Key("largest frame to request from the broker; none: the broker's")] = None
    recover: Annotated[bool, Key("whether lost connections are opened again")] = True
    recovery_s: Annotated[
        Pair[Seconds, Seconds] | None,
        Key("least and longest wait before a lost connection is opened again: [1s, 5s]; none: a growing back-off"),
    ] = field(default=None, metadata={"alias": "recovery"})
    startup_timeout_s: Annotated[Seconds, Key("longest wait for the brokers before the run; 0: no wait")] = field(
        default=0.0, metadata={"alias": "startup_timeout"}
    )
    servers_up: Annotated[Count, Key("number of brokers that must answer before the run; 0: all")] = 0
    shutdown_timeout_s: Annotated[
        Seconds, Key("longest time to close the connections; 0: connections are dropped without closing")
    ] = field(default=5.0, metadata={"alias": "shutdown_timeout"})
    exclusive: Annotated[bool, Key("whether each queue belongs to one connection, which its clients share")] = False
    external: Annotated[bool, Key("whether to log in with SASL EXTERNAL: the certificate names the user")] = False
    send_buffer: Annotated[Octets, Key("send buffer of each socket; 0: the system's")] = 0
    receive_buffer: Annotated[Octets, Key("receive buffer of each socket; 0: the system's")] = 0
    no_delay: Annotated[bool, Key("whether sockets have TCP_NODELAY")] = True
    tls: Annotated[Tls, Key("certificates of amqps connections")] = Tls()
