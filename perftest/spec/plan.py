"""The plan of a run, fully expanded: all facts for the engine.

A workload file, or the flags of ``perftest run``, come down to a :class:`Plan`. A plan has no defaults left to apply
and no units left to parse, and its contradictions have been refused (:mod:`perftest.spec.check`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Final

from perftest.spec.behaviour import Arrivals, Connecting, Consuming, Exchange, Publishing
from perftest.spec.cluster import ClusterSpec
from perftest.spec.expected.trends import Finding, StatedFigure
from perftest.spec.fields import (
    AckInterval,
    Count,
    InFlight,
    Key,
    Microseconds,
    Milliseconds,
    Octets,
    Prefetch,
    Rate,
    Share,
)
from perftest.spec.load_hosts import LoadHost
from perftest.spec.timed_action import TimedAction


class QueueType(StrEnum):
    """The value of ``x-queue-type``. Only the bundled broker has keyed queues."""

    QUORUM = "quorum"
    CLASSIC = "classic"
    KEYED = "keyed"

    @property
    def is_replicated(self) -> bool:
        """Whether such a queue is replicated by Raft: always durable, and never exclusive."""
        return self is not QueueType.CLASSIC


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
    """The settings of publishers and consumers: of a step, or of the load unless the sweep changes them."""

    in_flight: Annotated[
        InFlight,
        Key("most unconfirmed messages of each publisher; unlimited: confirms without a limit; no_confirms: none"),
    ] = 1000
    prefetch: Annotated[
        Prefetch,
        Key("most unacknowledged messages of each consumer (basic.qos), at most 65535; unlimited or 0: no limit"),
    ] = 1000
    ack_interval: Annotated[
        AckInterval,
        Key("deliveries that one basic.ack acknowledges, at most the prefetch; automatic: automatic acknowledgement"),
    ] = 1
    rate: Annotated[Rate, Key("messages per second of each publisher; a rate makes an open loop")] = None
    size_bytes: Annotated[Octets, Key("octets of a body, 28 or more")] = field(default=1000, metadata={"alias": "size"})
    ack_after_ms: Annotated[
        Milliseconds,
        Key("time after which an incomplete ack interval is acknowledged; 0: wait until the interval is complete"),
    ] = field(default=0, metadata={"alias": "ack_after"})
    consumer_latency_us: Annotated[
        Microseconds, Key("time that a consumer works on each message before the acknowledgement")
    ] = field(default=0, metadata={"alias": "consumer_latency"})
    failing: Annotated[
        Share, Key("share of the deliveries, drawn at random, that consumers reject instead of acknowledging them")
    ] = 0.0
    publishers: Annotated[Count, Key("number of connections that publish")] = 1
    consumers: Annotated[Count, Key("number of connections that consume: 0, or at least as many as the queues")] = 1
    persistent: Annotated[bool, Key("whether messages are persistent")] = True
    mandatory: Annotated[bool, Key("whether messages are mandatory: the broker returns what reaches no queue")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue to declare before the run and to delete after it. A plan has at most one queue without a name."""

    name: Annotated[str, Key("name; empty: a queue for each consumer, which the server names", longest=200)]
    type: Annotated[QueueType, Key("type; keyed: of the bundled broker, with its key in arguments")] = QueueType.QUORUM
    durable: Annotated[bool, Key("whether the queue survives a restart; always true for quorum queues")] = True
    auto_delete: Annotated[bool, Key("whether the queue goes with its last consumer; never of quorum queues")] = False
    predeclared: Annotated[bool, Key("true: the queue exists already, and is declared passively")] = False
    bound: Annotated[bool, Key("whether the queue is bound to the exchange, if the exchange has a name")] = True
    arguments: Annotated[
        dict[str, str | int | bool], Key("arguments of the declaration, without x-queue-type, which is type")
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step with its settings. ``number`` counts from 1. The first ``warmup_s`` seconds are recorded, marked, and
    left out of results."""

    number: int
    label: str
    settings: Settings
    duration_s: float
    warmup_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A load of a run: clients that share their queues, their exchange and the way they behave.

    ``measured`` groups make the figures of a run, and all of them have steps of the same times. A group that is not
    measured is background load: it runs beside the measured groups, and is in none of their figures. The first measured
    group of a run has no ``name``.

    Background load begins ``start_s`` after the first step of the measured groups, or that long before it if the number
    is negative. It ends at ``stop_s`` after the same moment (infinity: with the run), and has steps of its own, one
    after the other; the last one goes on until the end. All these times are of the clock of :func:`at_run_time`.
    ``workers`` is the number of its processes; 0 lets the engine choose.
    """

    name: str = ""
    measured: bool = True
    queues: tuple[QueueSpec, ...]
    steps: tuple[Step, ...]
    start_s: float = 0.0
    stop_s: float = math.inf
    workers: int = 0
    exchange: Exchange = field(default_factory=Exchange)
    publishing: Publishing = field(default_factory=Publishing)
    consuming: Consuming = field(default_factory=Consuming)

    @classmethod
    def background(cls, name: str, queues: tuple[QueueSpec, ...], settings: Settings, **more: Any) -> Group:
        """Background load of one step without end."""
        step = Step(number=1, label=name, settings=settings, duration_s=math.inf, warmup_s=0.0)
        return cls(name=name, measured=False, queues=queues, steps=(step,), **more)

    @property
    def has_own_steps(self) -> bool:
        """Whether records of this background load go by its own steps. With one step they go by the steps of the
        measured load, so that a reader sees what each of these did to the background load."""
        return not self.measured and len(self.steps) > 1


GROUP_PARTS: Final = ("queues", "steps", "exchange", "publishing", "consuming")
"""The fields of a group that describe its load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run: its groups of load, and what all of them share.

    ``groups`` are the loads that run side by side; at least one is measured, and the measured groups come first. The
    clients of a group spread over its queues round-robin, and connections over ``uris`` as ``connecting.allocation``
    says. ``swept`` names the settings that differ between steps, in the order the report shows them. The only step of a
    plain ``perftest run`` may have an infinite duration.

    With ``declare_missing`` a predeclared queue or exchange that does not exist is declared after all, as by PerfTest's
    ``-p``. It is not deleted after the run.

    ``workers`` is the number of processes for the clients of each measured group; 0 lets the engine choose.
    ``findings`` are the source's findings, ``published`` its figures, and ``objectives`` what a run has to reach; none
    affects the run. ``timeline`` are actions on the nodes of the local cluster while the plan runs. ``cluster`` is what
    is started if no broker is named. ``hosts`` are the hosts that generate the load; without any, this machine does.

    Most runs have one measured group, and most readers of a plan mean this group: :attr:`load`, and the properties
    named as its fields.
    """

    name: str
    title: str
    uris: tuple[str, ...]
    groups: tuple[Group, ...]
    isolation: Isolation
    swept: tuple[str, ...] = ()
    interval_s: float = 1.0
    drain_s: float = 10.0
    confirm_timeout_s: float = 30.0
    seed: int = 1
    delete_queues: bool = True
    declare_missing: bool = False
    source: str = ""
    source_title: str = ""
    connecting: Connecting = field(default_factory=Connecting)
    workers: int = 0
    findings: tuple[Finding, ...] = ()
    published: tuple[StatedFigure, ...] = ()
    objectives: tuple[str, ...] = ()
    timeline: tuple[TimedAction, ...] = ()
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    hosts: tuple[LoadHost, ...] = ()

    @classmethod
    def of(cls, *, background: tuple[Group, ...] = (), **values: Any) -> Plan:
        """A plan of one measured group: ``values`` are the fields of the plan and of the group."""
        load = Group(**{name: values.pop(name) for name in GROUP_PARTS if name in values})
        return cls(groups=(load, *background), **values)

    def changed(self, **changes: Any) -> Plan:
        """The plan with other values for fields of the plan or of its :attr:`load`."""
        parts = {name: changes.pop(name) for name in GROUP_PARTS if name in changes}
        groups = tuple(replace(group, **parts) if group is self.load else group for group in self.groups)
        return replace(self, **{"groups": groups} | changes)

    def only(self, group: Group) -> Plan:
        """The plan of one of its groups alone, for the workers of this group."""
        return replace(self, groups=(group,))

    @property
    def load(self) -> Group:
        """The first group."""
        return self.groups[0]

    @property
    def measured(self) -> tuple[Group, ...]:
        """The measured groups."""
        return tuple(group for group in self.groups if group.measured)

    @property
    def background(self) -> tuple[Group, ...]:
        """The groups that are not measured."""
        return tuple(group for group in self.groups if not group.measured)

    @property
    def queues(self) -> tuple[QueueSpec, ...]:
        """The queues of the :attr:`load`."""
        return self.load.queues

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the :attr:`load`."""
        return self.load.steps

    @property
    def exchange(self) -> Exchange:
        """The exchange of the :attr:`load`."""
        return self.load.exchange

    @property
    def publishing(self) -> Publishing:
        """How the publishers of the :attr:`load` behave."""
        return self.load.publishing

    @property
    def consuming(self) -> Consuming:
        """How the consumers of the :attr:`load` behave."""
        return self.load.consuming


def at_run_time(steps: tuple[Step, ...], at_s: float) -> tuple[int, float]:
    """The step (an index) and the seconds since it began, ``at_s`` seconds after the first step began.

    The clock of a run stands still while clients connect, change their settings or drain between steps. A time beyond
    all steps is in the last one.
    """
    for index, step in enumerate(steps[:-1]):
        if at_s < step.duration_s:
            return index, at_s
        at_s -= step.duration_s
    return len(steps) - 1, at_s


def consumers_work(plan: Plan) -> bool:
    """Whether consumers take time for messages, so that a message may arrive long before it is processed."""
    consuming = plan.consuming
    return bool(
        consuming.rate or consuming.latency_cycle or any(step.settings.consumer_latency_us for step in plan.steps)
    )


def is_open_loop(settings: Settings, publishing: Publishing) -> bool:
    """Whether messages have intended times: there is a rate, a cycle of rates, or a trace."""
    return settings.rate is not None or bool(publishing.rate_cycle) or publishing.arrivals is Arrivals.TRACE
