"""What to run, fully expanded: the only thing the engine needs to know.

A :class:`Plan` is what a workload file or the flags of ``perftest run`` come down to. Everything is resolved: no
defaults left to apply, no units left to parse, contradictions already refused (:mod:`perftest.spec.check`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from perftest.spec.behaviour import Arrivals, Connecting, Consuming, Exchange, Publishing


class QueueType(StrEnum):
    """The value of ``x-queue-type``."""

    QUORUM = "quorum"
    CLASSIC = "classic"


class Isolation(StrEnum):
    """How one step follows another.

    ``LIVE``: the same connections and queues, settings changed while messages flow (as in the published
    in-flight and ack-interval benchmarks). ``ISOLATED``: fresh queues and connections for every step (as in
    the published prefetch benchmark, where one setting's backlog would spoil the next).
    """

    LIVE = "live"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One point of the space that is swept.

    ``in_flight``
        most unconfirmed messages per publisher; :data:`~perftest.spec.units.NO_CONFIRMS` (0) publishes without confirms
        (PerfTest ``-c`` absent), :data:`~perftest.spec.units.IN_FLIGHT_UNLIMITED` with confirms that nothing waits for
        (PerfTest ``-c 0``).
    ``prefetch``
        ``basic.qos`` of each consumer; 0 is unlimited (``-q``).
    ``ack_interval``
        one ``basic.ack`` (multiple) every N deliveries; 1 acks each message (``-A 0`` and ``-A 1``);
        :data:`~perftest.spec.units.AUTOMATIC_ACK` (0) is automatic acknowledgement (``-a``).
    ``rate``
        messages per second of each publisher; None publishes as fast as confirms allow: a closed loop (``-r``).
    ``size_bytes``
        octets of body, at least :data:`perftest.engine.accounting.stamp.SIZE` (``-s``).
    ``ack_after_ms``
        acknowledge what waits for the rest of an interval after so long; 0 waits for the whole interval.
    ``consumer_latency_us``
        how long a consumer works on each message before it acknowledges it (``-L``).
    ``publishers``, ``consumers``
        connections; the channels of each are :attr:`Publishing.channels` and :attr:`Consuming.channels`.
    """

    in_flight: int = 1000
    prefetch: int = 1000
    ack_interval: int = 1
    rate: float | None = None
    size_bytes: int = 1000
    ack_after_ms: int = 0
    consumer_latency_us: int = 0
    publishers: int = 1
    consumers: int = 1
    persistent: bool = True
    mandatory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue to declare. Durable unless told otherwise; ``arguments`` are passed as they are.

    A queue without a name is one of each consumer's own, which the server names; there is at most one such. ``bound``:
    bound to the plan's exchange with the routing key of its publishers (-sb leaves that out).
    """

    name: str
    type: QueueType = QueueType.QUORUM
    durable: bool = True
    auto_delete: bool = False
    predeclared: bool = False
    bound: bool = True
    arguments: dict[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One measured setting. ``number`` counts from 1; the first ``warmup_s`` seconds are recorded, marked, and left
    out of results."""

    number: int
    label: str
    settings: Settings
    duration_s: float
    warmup_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A load beside the measured one, for as long as the run takes: made by a worker of its own, and in none of its
    figures."""

    name: str
    queues: tuple[QueueSpec, ...]
    settings: Settings
    exchange: Exchange = field(default_factory=Exchange)
    publishing: Publishing = field(default_factory=Publishing)
    consuming: Consuming = field(default_factory=Consuming)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run.

    ``duration_s`` of the only step of a plain ``perftest run`` may be infinite; ``swept`` names the settings that
    differ
    between steps, in the order the report shows them. Publishers and consumers spread over ``queues`` round-robin,
    connections over
    ``uris`` as ``connecting.allocation`` says.

    With ``declare_missing`` what is predeclared and not there is declared after all, as by PerfTest's ``-p``; it is not
    deleted either.

    ``workers`` is the number of processes that the clients are spread over; 0 lets the engine choose.
    """

    name: str
    title: str
    uris: tuple[str, ...]
    queues: tuple[QueueSpec, ...]
    steps: tuple[Step, ...]
    isolation: Isolation
    swept: tuple[str, ...] = ()
    interval_s: float = 1.0
    drain_s: float = 10.0
    confirm_timeout_s: float = 30.0
    seed: int = 1
    delete_queues: bool = True
    declare_missing: bool = False
    source: str = ""
    exchange: Exchange = field(default_factory=Exchange)
    publishing: Publishing = field(default_factory=Publishing)
    consuming: Consuming = field(default_factory=Consuming)
    connecting: Connecting = field(default_factory=Connecting)
    background: tuple[Background, ...] = ()
    workers: int = 0


def is_open_loop(settings: Settings, publishing: Publishing) -> bool:
    """Whether messages have intended times: there is a rate, a cycle of rates, or a trace."""
    return settings.rate is not None or bool(publishing.rate_cycle) or publishing.arrivals is Arrivals.TRACE
