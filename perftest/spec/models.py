"""The workload file: what a person writes, checked key by key.

Unknown keys are refused, so that a misspelt key cannot silently measure something else. :mod:`perftest.spec.check`
checks the relations between keys, and :mod:`perftest.spec.expand` makes a plan of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from perftest.spec.behaviour import Allocation, Arrivals, ExitWhen, RoutingKeys
from perftest.spec.plan import Isolation, QueueType
from perftest.spec.units import (
    COUNT_UNITS,
    DURATION_UNITS,
    RATE_UNITS,
    SIZE_UNITS,
    UNLIMITED,
    WORDS,
    UnitError,
    parse_ack_interval,
    parse_count,
    parse_duration_s,
    parse_in_flight,
    parse_prefetch,
    parse_rate,
    parse_size_bytes,
)

SCHEMA_VERSION: Final = 1
"""The version a workload file names. Raised when a file of the previous version would be misread."""


def _read(parse: Callable[[object], object]) -> BeforeValidator:
    """A parser of quantities as a validator that keeps the parser's rule and fix."""

    def validate(value: object) -> object:
        try:
            return parse(value)
        except UnitError as error:
            raise PydanticCustomError("quantity", "{rule}", {"rule": error.rule, "fix": error.fix}) from error

    return BeforeValidator(validate)


def _parse_paced(value: object) -> float:
    """A rate with a limit: a cycle cannot be unlimited for some time."""
    rate = parse_rate(value)
    if rate is None:
        raise UnitError(f"{value!r} is no rate to hold for some time", "write 1000 or 40k/s")
    return rate


def _schema(units: Any, description: str, *extra: str, least: int = 0) -> WithJsonSchema:
    names = "|".join([*(unit.replace("/", "\\/") for unit in units)])
    pattern = f"^[0-9][0-9_]*(\\.[0-9]+)?\\s*({names})?$"
    choices: list[dict[str, object]] = [{"type": "number", "minimum": least}, {"type": "string", "pattern": pattern}]
    return WithJsonSchema({"anyOf": [*choices, *({"const": word} for word in extra)], "description": description})


Duration = Annotated[float, _read(parse_duration_s), _schema(DURATION_UNITS, "seconds, or with a unit: 5m, 30s")]
Size = Annotated[int, _read(parse_size_bytes), _schema(SIZE_UNITS, "octets, or with a unit: 1kB (1000), 1KiB (1024)")]
Count = Annotated[int, _read(parse_count), _schema(COUNT_UNITS, "a whole number; k and M are allowed")]
InFlight = Annotated[
    int,
    _read(parse_in_flight),
    _schema(COUNT_UNITS, "most unconfirmed messages per publisher", *WORDS["in_flight"].values(), least=1),
]
Prefetch = Annotated[
    int,
    _read(parse_prefetch),
    _schema(COUNT_UNITS, "basic.qos of each consumer; 0: unlimited", *WORDS["prefetch"].values()),
]
AckInterval = Annotated[
    int,
    _read(parse_ack_interval),
    _schema(COUNT_UNITS, "one basic.ack (multiple) every N deliveries", *WORDS["ack_interval"].values(), least=1),
]
Rate = Annotated[
    float | None,
    _read(parse_rate),
    _schema(RATE_UNITS, "messages per second of each publisher", UNLIMITED),
]
_PAIR: Final = Field(strict=False)
"""YAML has lists, and no tuples."""

Held = Annotated[Duration, Field(description="how long the value holds")]
Paced = Annotated[
    float, _read(_parse_paced), _schema(RATE_UNITS, "messages per second of each publisher; 0: none for that time")
]
RateCycle = Annotated[
    list[Annotated[tuple[Paced, Held], _PAIR]], Field(description="rates and how long each holds, in turn, for ever")
]
SizeCycle = Annotated[
    list[Annotated[tuple[Size, Held], _PAIR]], Field(description="sizes and how long each holds, in turn, for ever")
]
LatencyCycle = Annotated[
    list[Annotated[tuple[Duration, Held], _PAIR]],
    Field(description="processing times and how long each holds, in turn, for ever"),
]
Argument = str | int | float | bool
Swept = Literal[
    "in_flight",
    "prefetch",
    "ack_interval",
    "rate",
    "size",
    "ack_after",
    "consumer_latency",
    "publishers",
    "consumers",
]
Value = int | float | str


class Model(BaseModel):
    """The strictness that all parts share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Queue(Model):
    """A queue to declare before the run and to delete after it."""

    name: Annotated[str, Field(max_length=200, description="empty: one of each consumer's own, named by the server")]
    type: Annotated[QueueType, Field(strict=False)] = QueueType.QUORUM
    durable: bool = True
    auto_delete: bool = False
    predeclared: bool = False
    bound: Annotated[bool, Field(description="bound to the exchange, if that has a name")] = True
    arguments: dict[str, str | int | bool] = Field(default_factory=dict)


class Load(Model):
    """The settings of publishers and consumers, unless the sweep changes them."""

    in_flight: InFlight = 1000
    prefetch: Prefetch = 1000
    ack_interval: AckInterval = 1
    rate: Rate = None
    size: Size = 1000
    ack_after: Annotated[
        Duration, Field(description="acknowledge a part of an interval after so long; 0: wait for the rest")
    ] = 0.0
    consumer_latency: Annotated[Duration, Field(description="how long a consumer works on each message")] = 0.0
    publishers: Count = 1
    consumers: Count = 1
    persistent: bool = True
    mandatory: bool = False


class Exchange(Model):
    """The exchange that publishers publish to. The default exchange has no name and routes by the name of a queue."""

    name: Annotated[str, Field(max_length=200)] = ""
    type: str = "direct"
    durable: bool = True
    predeclared: bool = False


class Bodies(Model):
    """The content of bodies: without files and JSON documents a filler that consumers check."""

    files: Annotated[list[str], Field(description="their content, one after the other")] = Field(default_factory=list)
    content_type: str = ""
    json_count: Annotated[Count, Field(description="so many random JSON documents")] = 0
    json_fields: Annotated[Count, Field(description="made of a pool of so many fields")] = 1000


class Publishing(Model):
    """How publishers behave; no step changes this."""

    channels: Annotated[Count, Field(description="channels of each connection; each is a publisher")] = 1
    arrivals: Annotated[Arrivals, Field(strict=False)] = Arrivals.FIXED
    trace: Annotated[str, Field(description="file of offsets for arrivals: trace")] = ""
    catch_up: Annotated[bool, Field(description="send what became overdue; false: drop and count it")] = True
    messages: Annotated[Count, Field(description="a publisher stops after so many; 0: no limit")] = 0
    transaction: Annotated[Count, Field(description="tx.commit after so many; 0: no transactions")] = 0
    start_delay: Annotated[Duration, Field(description="each begins a random time later, at most this")] = 0.0
    routing_keys: Annotated[RoutingKeys, Field(strict=False)] = RoutingKeys.QUEUE
    routing_key: str = ""
    routing_key_cache: Annotated[Count, Field(description="random keys to rotate; 0: each is drawn anew")] = 0
    properties: dict[str, Argument] = Field(default_factory=dict)
    bodies: Bodies = Bodies()
    rate_cycle: RateCycle = Field(default_factory=list)
    size_cycle: SizeCycle = Field(default_factory=list)


class Consuming(Model):
    """How consumers behave; no step changes this."""

    channels: Annotated[Count, Field(description="channels of each connection; each has a consumer")] = 1
    channel_prefetch: Annotated[Count, Field(description="basic.qos with the global flag; 0: none")] = 0
    transaction: Annotated[Count, Field(description="tx.commit after so many; 0: no transactions")] = 0
    messages: Annotated[Count, Field(description="a consumer stops after so many; 0: no limit")] = 0
    rate: Rate = None
    nack: bool = False
    requeue: bool = True
    polling: Annotated[bool, Field(description="basic.get in place of basic.consume")] = False
    polling_interval: Duration = 0.0
    start_delay: Duration = 0.0
    slow_start: Annotated[bool, Field(description="consumers begin a second apart")] = False
    arguments: dict[str, Argument] = Field(default_factory=dict)
    exit_when: Annotated[ExitWhen, Field(strict=False)] = ExitWhen.NEVER
    latency_cycle: LatencyCycle = Field(default_factory=list)


class Tls(Model):
    """How amqps connections are secured."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    system_authorities: bool = False
    server_names: list[str] = Field(default_factory=list)


class Connecting(Model):
    """How connections are made, kept and ended."""

    allocation: Annotated[Allocation, Field(strict=False)] = Allocation.ROUND_ROBIN
    heartbeat: Annotated[Duration | None, Field(description="asked of the broker; none: its own")] = None
    frame_max: Annotated[Size | None, Field(description="asked of the broker; none: its own")] = None
    recover: bool = True
    recovery: Annotated[
        Annotated[tuple[Duration, Duration], _PAIR] | None,
        Field(description="a lost connection is made again after a time between these"),
    ] = None
    startup_timeout: Annotated[Duration, Field(description="wait so long for the brokers; 0: do not wait")] = 0.0
    servers_up: Annotated[Count, Field(description="so many of the URIs must answer; 0: all")] = 0
    shutdown_timeout: Annotated[Duration, Field(description="how long closing may take")] = 5.0
    exclusive: bool = False
    external: Annotated[bool, Field(description="SASL EXTERNAL")] = False
    send_buffer: Size = 0
    receive_buffer: Size = 0
    no_delay: bool = True
    tls: Tls = Tls()


class Sweep(Model):
    """A step for each value of one setting, for each combination of several settings, or for each entry of a list.

    A sweep has one of these three: ``setting`` with ``values``; ``grid``, whose first setting changes slowest;
    ``steps``, each with the same settings.
    """

    setting: Swept | None = None
    values: list[Value] = Field(default_factory=list)
    grid: Annotated[
        dict[Swept, Annotated[list[Value], Field(min_length=1)]], Field(description="every combination of these")
    ] = Field(default_factory=dict)
    steps: Annotated[list[dict[Swept, Value]], Field(description="exactly these settings, step by step")] = Field(
        default_factory=list
    )
    mode: Annotated[Isolation, Field(strict=False)] = Isolation.LIVE
    order: Annotated[
        Literal["given", "random"], Field(description="random: drawn with the seed, so that drift is no trend")
    ] = "given"


class Timing(Model):
    """The times of a step. The warm-up is part of the duration and is left out of results."""

    duration: Duration
    warmup: Duration = 0.0
    drain: Annotated[Duration, Field(description="longest wait for confirmed messages to be delivered")] = 10.0


class BackgroundLoad(Model):
    """A load beside the measured load, in none of its figures."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=40)]
    queues: Annotated[list[Queue], Field(min_length=1)]
    load: Load = Load()
    exchange: Exchange = Exchange()
    publishing: Publishing = Publishing()
    consuming: Consuming = Consuming()


class Workload(Model):
    """A workload file."""

    version: Annotated[Literal[1], Field(alias="schema", description="version of this file format")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)*$", max_length=80)]
    title: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(description="address of the published text this repeats")] = ""
    description: str = ""
    queues: Annotated[list[Queue], Field(min_length=1)]
    load: Load = Load()
    exchange: Exchange = Exchange()
    publishing: Publishing = Publishing()
    consuming: Consuming = Consuming()
    connecting: Connecting = Connecting()
    background: list[BackgroundLoad] = Field(default_factory=list)
    sweep: Sweep | None = None
    step: Timing
    quick: Annotated[Timing, Field(description="used instead of step with --quick")] = Timing(
        duration=4.0, warmup=1.0, drain=5.0
    )
    interval: Annotated[Duration, Field(description="how often a line of results is written")] = 1.0
    confirm_timeout: Annotated[Duration, Field(description="longest wait for a confirm")] = 30.0
    workers: Annotated[Count, Field(description="processes to spread the clients over; 0: chosen")] = 0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1


def json_schema() -> dict[str, object]:
    """The JSON schema of a workload file, for editors; ``workloads/schema.json`` is this."""
    schema = Workload.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
