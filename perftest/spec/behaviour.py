"""How publishers, consumers and connections behave: the part of a plan that no step changes.

A step can change the :class:`~perftest.spec.plan.Settings`. The text in the type of a field is what users read about
the key of a workload file. The letters in brackets are PerfTest's options with the same meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from perftest.spec.fields import (
    Count,
    LatencyCycle,
    Longest,
    Milliseconds,
    Octets,
    Rate,
    RateCycle,
    Seconds,
    SizeCycle,
    WholeSeconds,
)

Cycle = tuple[tuple[float, float], ...]
"""Values and the seconds for which each holds, over and over again; empty: no cycle."""

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
    """The exchange that publishers publish to (-e, -t). The default exchange has no name; it is neither declared nor
    bound."""

    name: Annotated[str, Longest(200)] = ""
    type: str = "direct"
    durable: bool = True
    predeclared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """The content of bodies behind the stamp (-B, -T; -jb, -bc, -bfc). Without ``files`` and ``json_count`` it is a
    filler that consumers check. JSON documents have ``size_bytes``. With files or JSON the stamp travels in a header.
    """

    files: Annotated[tuple[str, ...], "their content, one after the other"] = ()
    content_type: str = ""
    json_count: Annotated[Count, "so many random JSON documents"] = 0
    json_fields: Annotated[Count, "made of a pool of so many fields"] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Publishers. Each connection has ``channels`` channels, and each channel is a publisher with a window, a schedule
    and a numbering of its own (-X). The limits are ``messages`` (-C), ``transaction`` (-m: in place of confirms) and
    ``start_delay_s`` (-prsd).

    ``arrivals``, ``trace``
        the schedule, if there is a rate; ``trace`` is the path of the file for :attr:`Arrivals.TRACE`.
    ``catch_up``
        whether overdue messages are sent as fast as possible (the honest schedule), or dropped and counted.
    ``routing_keys``, ``routing_key``, ``routing_key_cache``
        see :class:`RoutingKeys` (-k, -K, -rkcs).
    ``properties``
        AMQP properties by name, in PerfTest's spelling; any other name is a header (-mp).
    ``rate_cycle``, ``size_cycle``
        messages per second of each publisher, and octets, in turn (-vr, -vs).
    """

    channels: Annotated[Count, "channels of each connection; each is a publisher"] = 1
    arrivals: Arrivals = Arrivals.FIXED
    trace: Annotated[str, "file of offsets for arrivals: trace"] = ""
    catch_up: Annotated[bool, "send what became overdue; false: drop and count it"] = True
    messages: Annotated[Count, "a publisher stops after so many; 0: no limit"] = 0
    transaction: Annotated[Count, "tx.commit after so many; 0: no transactions"] = 0
    start_delay_s: Annotated[Seconds, "each begins a random time later, at most this"] = 0.0
    routing_keys: RoutingKeys = RoutingKeys.QUEUE
    routing_key: str = ""
    routing_key_cache: Annotated[Count, "random keys to rotate; 0: each is drawn anew"] = 0
    properties: dict[str, Argument] = field(default_factory=dict)
    bodies: Bodies = Bodies()
    rate_cycle: Annotated[RateCycle, "rates and how long each holds, in turn, for ever"] = ()
    size_cycle: Annotated[SizeCycle, "sizes and how long each holds, in turn, for ever"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """Consumers. Each connection has ``channels`` channels with one consumer each (-Y). The limits are ``messages``
    (-D) and ``transaction`` (-n).

    ``channel_prefetch``
        of a channel as a whole (-Q). ``Settings.prefetch`` counts for each consumer.
    ``rate``
        most messages per second of a consumer; None is no limit (-R).
    ``nack``, ``requeue``
        ``basic.nack`` in place of ``basic.ack``, and whether the message goes back to its queue (-na, -re).
    ``polling``, ``polling_interval_ms``
        ``basic.get`` over and over again, with a pause (-po, -pi).
    ``start_delay_s``, ``slow_start``
        consumers begin so much later (-csd), a second apart (-S).
    ``arguments``
        of ``basic.consume`` (-ca).
    ``latency_cycle``
        microseconds of processing, in turn (-vl).
    """

    channels: Annotated[Count, "channels of each connection; each has a consumer"] = 1
    channel_prefetch: Annotated[Count, "basic.qos with the global flag; 0: none"] = 0
    transaction: Annotated[Count, "tx.commit after so many; 0: no transactions"] = 0
    messages: Annotated[Count, "a consumer stops after so many; 0: no limit"] = 0
    rate: Rate = None
    nack: bool = False
    requeue: bool = True
    polling: Annotated[bool, "basic.get in place of basic.consume"] = False
    polling_interval_ms: Milliseconds = 0
    start_delay_s: Seconds = 0.0
    slow_start: Annotated[bool, "consumers begin a second apart"] = False
    arguments: dict[str, Argument] = field(default_factory=dict)
    exit_when: ExitWhen = ExitWhen.NEVER
    latency_cycle: Annotated[LatencyCycle, "processing times and how long each holds, in turn, for ever"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How ``amqps`` connections are secured. Without ``ca_file`` a certificate is not checked, as PerfTest does by
    default; the system's authorities are used with ``system_authorities`` (-udsc)."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    system_authorities: bool = False
    server_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """Connections. ``heartbeat_s`` is -b, ``frame_max`` is -M.

    ``recover``, ``recovery_s``
        whether a lost connection is made again (-dcr), and the wait before: a random time between these two; None is
        a short, growing back-off (-cri).
    ``startup_timeout_s``, ``servers_up``
        the wait for the brokers before the run (-sst, -sul).
    ``shutdown_timeout_s``
        how long closing may take; 0 or less does not close in good order (-st).
    ``exclusive``
        a queue belongs to one connection, which its publishers and consumers share (-E).
    ``external``
        SASL EXTERNAL: the certificate names the user (-se).
    ``publisher_nodes``, ``consumer_nodes``
        the nodes to which publishers and consumers connect, by the places of their URIs from 1 on; none: all. After a
        loss a connection tries every URI.
    """

    allocation: Allocation = Allocation.ROUND_ROBIN
    publisher_nodes: Annotated[tuple[Count, ...], "nodes of the publishers, counted from 1; none: all"] = ()
    consumer_nodes: Annotated[tuple[Count, ...], "nodes of the consumers, counted from 1; none: all"] = ()
    heartbeat_s: Annotated[WholeSeconds | None, "asked of the broker; none: its own"] = None
    frame_max: Annotated[Octets | None, "asked of the broker; none: its own"] = None
    recover: bool = True
    recovery_s: Annotated[
        tuple[Seconds, Seconds] | None, "a lost connection is made again after a time between these"
    ] = None
    startup_timeout_s: Annotated[Seconds, "wait so long for the brokers; 0: do not wait"] = 0.0
    servers_up: Annotated[Count, "so many of the URIs must answer; 0: all"] = 0
    shutdown_timeout_s: Annotated[Seconds, "how long closing may take"] = 5.0
    exclusive: bool = False
    external: Annotated[bool, "SASL EXTERNAL"] = False
    send_buffer: Octets = 0
    receive_buffer: Octets = 0
    no_delay: bool = True
    tls: Tls = Tls()
