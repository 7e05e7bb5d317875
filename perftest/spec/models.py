"""The workload file: what a person writes, checked key by key.

Everything is refused that is not known, so that a misspelt key cannot silently measure something else. Relations
between keys are the business of :mod:`perftest.spec.check`; what a file comes down to, of :mod:`perftest.spec.expand`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from perftest.spec.plan import Isolation, QueueType
from perftest.spec.units import (
    COUNT_UNITS,
    DURATION_UNITS,
    RATE_UNITS,
    SIZE_UNITS,
    UNLIMITED,
    UnitError,
    parse_count,
    parse_duration_s,
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


def _schema(units: Any, description: str, *extra: str) -> WithJsonSchema:
    names = "|".join([*(unit.replace("/", "\\/") for unit in units)])
    pattern = f"^[0-9][0-9_]*(\\.[0-9]+)?\\s*({names})?$"
    choices: list[dict[str, object]] = [{"type": "number", "minimum": 0}, {"type": "string", "pattern": pattern}]
    return WithJsonSchema({"anyOf": [*choices, *({"const": word} for word in extra)], "description": description})


Duration = Annotated[float, _read(parse_duration_s), _schema(DURATION_UNITS, "seconds, or with a unit: 5m, 30s")]
Size = Annotated[int, _read(parse_size_bytes), _schema(SIZE_UNITS, "octets, or with a unit: 1kB (1000), 1KiB (1024)")]
Count = Annotated[int, _read(parse_count), _schema(COUNT_UNITS, "a whole number; k and M are allowed")]
Rate = Annotated[
    float | None,
    _read(parse_rate),
    _schema(RATE_UNITS, "messages per second of each publisher", UNLIMITED),
]
Swept = Literal["in_flight", "prefetch", "ack_interval", "rate", "size"]


class Model(BaseModel):
    """The strictness all parts share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Queue(Model):
    """A queue to declare before the run and to delete after it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    type: Annotated[QueueType, Field(strict=False)] = QueueType.QUORUM
    durable: bool = True
    predeclared: bool = False
    arguments: dict[str, str | int | bool] = Field(default_factory=dict)


class Load(Model):
    """How publishers and consumers behave, where the sweep does not say otherwise."""

    in_flight: Annotated[Count, Field(description="most unconfirmed messages per publisher; 0: no confirms")] = 1000
    prefetch: Annotated[Count, Field(description="basic.qos of each consumer; 0: unlimited")] = 1000
    ack_interval: Annotated[
        Count, Field(description="one basic.ack (multiple) every N deliveries; 0: automatic acknowledgement")
    ] = 1
    rate: Rate = None
    size: Size = 1000
    publishers: Count = 1
    consumers: Count = 1
    persistent: bool = True
    mandatory: bool = False


class Sweep(Model):
    """One setting, one step for each of its values, in this order."""

    setting: Swept
    values: Annotated[list[int | float | str], Field(min_length=1)]
    mode: Annotated[Isolation, Field(strict=False)] = Isolation.LIVE


class Timing(Model):
    """How long a step lasts. The warm-up is part of the duration and left out of results."""

    duration: Duration
    warmup: Duration = 0.0
    drain: Annotated[Duration, Field(description="longest wait for confirmed messages to be delivered")] = 10.0


class Workload(Model):
    """A workload file."""

    version: Annotated[Literal[1], Field(alias="schema", description="version of this file format")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)*$", max_length=80)]
    title: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(description="address of the published text this repeats")] = ""
    description: str = ""
    queues: Annotated[list[Queue], Field(min_length=1)]
    load: Load = Load()
    sweep: Sweep | None = None
    step: Timing
    quick: Annotated[Timing, Field(description="used instead of step with --quick")] = Timing(
        duration=4.0, warmup=1.0, drain=5.0
    )
    interval: Annotated[Duration, Field(description="how often a line of results is written")] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1


def json_schema() -> dict[str, object]:
    """The JSON schema of a workload file, for editors; ``workloads/schema.json`` is this."""
    schema = Workload.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
