"""How publishers, consumers and connections behave: the part of a plan that no step changes.

A step can change the :class:`~perftest.spec.plan.Settings`. The letters in brackets are PerfTest's options with the
same meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

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

    name: str = ""
    type: str = "direct"
    durable: bool = True
    predeclared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """The content of bodies behind the stamp. Without ``files`` and ``json_count`` it is a filler that consumers check.

    ``files``
        their content, one after the other (-B). With files or JSON the stamp travels in a header.
    ``json_count``, ``json_fields``
        so many random JSON documents of ``size_bytes``, made of a pool of so many fields (-jb, -bc, -bfc).
    """

    files: tuple[str, ...] = ()
    content_type: str = ""
    json_count: int = 0
    json_fields: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Publishers. Each connection has ``channels`` channels, and each channel is a publisher with a window, a schedule
    and a numbering of its own (-X).

    ``arrivals``, ``trace``
        the schedule, if there is a rate; ``trace`` is the path of the file for :attr:`Arrivals.TRACE`.
    ``catch_up``
        whether overdue messages are sent as fast as possible (the honest schedule), or dropped and counted.
    ``messages``
        a publisher stops after so many; 0 is no limit (-C).
    ``transaction``
        ``tx.commit`` after so many, in place of confirms; 0: no transactions (-m).
    ``start_delay_s``
        each publisher begins a random time later, at most this (-prsd).
    ``routing_keys``, ``routing_key``, ``routing_key_cache``
        see :class:`RoutingKeys` (-k, -K). So many random keys are drawn once and rotated; 0 draws each anew (-rkcs).
    ``properties``
        AMQP properties by name, in PerfTest's spelling; any other name is a header (-mp).
    ``rate_cycle``, ``size_cycle``
        messages per second of each publisher, and octets, in turn (-vr, -vs).
    """

    channels: int = 1
    arrivals: Arrivals = Arrivals.FIXED
    trace: str = ""
    catch_up: bool = True
    messages: int = 0
    transaction: int = 0
    start_delay_s: float = 0.0
    routing_keys: RoutingKeys = RoutingKeys.QUEUE
    routing_key: str = ""
    routing_key_cache: int = 0
    properties: dict[str, Argument] = field(default_factory=dict)
    bodies: Bodies = Bodies()
    rate_cycle: Cycle = ()
    size_cycle: Cycle = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """Consumers. Each connection has ``channels`` channels with one consumer each (-Y).

    ``channel_prefetch``
        ``basic.qos`` with the global flag; 0 is none (-Q). ``Settings.prefetch`` counts for each consumer.
    ``transaction``
        ``tx.commit`` after so many acknowledged; 0: no transactions (-n).
    ``messages``
        a consumer stops after so many; 0 is no limit (-D).
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

    channels: int = 1
    channel_prefetch: int = 0
    transaction: int = 0
    messages: int = 0
    rate: float | None = None
    nack: bool = False
    requeue: bool = True
    polling: bool = False
    polling_interval_ms: int = 0
    start_delay_s: float = 0.0
    slow_start: bool = False
    arguments: dict[str, Argument] = field(default_factory=dict)
    exit_when: ExitWhen = ExitWhen.NEVER
    latency_cycle: Cycle = ()


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
    """Connections.

    ``heartbeat_s``, ``frame_max``
        values that the broker is asked for; None takes the broker's own (-b, -M).
    ``recover``, ``recovery_s``
        whether a lost connection is made again (-dcr), and the wait before: a random time between these two; None is
        a short, growing back-off (-cri).
    ``startup_timeout_s``, ``servers_up``
        wait so long for so many of the URIs before the run; 0 s does not wait, 0 servers are all (-sst, -sul).
    ``shutdown_timeout_s``
        how long closing may take; 0 or less does not close in good order (-st).
    ``exclusive``
        a queue belongs to one connection, which its publishers and consumers share (-E).
    ``external``
        SASL EXTERNAL: the certificate names the user (-se).
    """

    allocation: Allocation = Allocation.ROUND_ROBIN
    heartbeat_s: int | None = None
    frame_max: int | None = None
    recover: bool = True
    recovery_s: tuple[float, float] | None = None
    startup_timeout_s: float = 0.0
    servers_up: int = 0
    shutdown_timeout_s: float = 5.0
    exclusive: bool = False
    external: bool = False
    send_buffer: int = 0
    receive_buffer: int = 0
    no_delay: bool = True
    tls: Tls = Tls()
