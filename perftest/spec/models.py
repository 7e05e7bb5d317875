"""The workload file: what a person writes, checked key by key.

Unknown keys are refused, so that a misspelt key cannot silently measure something else. Sections that are parts of the
plan get their keys, types and defaults from the fields of these parts, and are read as these parts.
:mod:`perftest.spec.check` checks the relations between keys, and :mod:`perftest.spec.expand` makes a plan of the file.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, core_schema

from perftest.spec import behaviour
from perftest.spec.actions import TimedAction
from perftest.spec.cluster import ClusterSpec, LayoutOf
from perftest.spec.expected.trends import Finding
from perftest.spec.fields import Longest, Quantity, by_key, quantity_of, types_of
from perftest.spec.keys import Count, Duration, Model, reader_of, schema_of
from perftest.spec.layout import Layout
from perftest.spec.plan import Isolation, QueueSpec, Settings
from perftest.spec.units import FIELD_OF_KEY, KEY_OF_FIELD

SCHEMA_VERSION: Final = 1
"""The version a workload file names. Raised when a file of the previous version would be misread."""


# Parts of the plan as sections of the file


def _type_of(kind: Any) -> Any:
    """The type of a key for the type of a field: with validators for marks, and with the lists of YAML for tuples."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[_type_of(inner[0]), *(each for mark in inner[1:] for each in _validators(mark))]
    if origin is tuple:
        if inner[-1] is ...:
            return list[_type_of(inner[0])]  # type: ignore[misc]
        return Annotated[tuple[*map(_type_of, inner)], Field(strict=False)]  # type: ignore[misc]
    if inner[-1:] == (type(None),):
        return reduce(or_, map(_type_of, inner))
    if kind == LayoutOf:
        return _LAYOUT
    if kind in SECTIONS:
        return Annotated[kind, _SECTION]
    return Annotated[kind, Field(strict=False)] if isinstance(kind, type) and issubclass(kind, Enum) else kind


def _validators(mark: object) -> list[Any]:
    if isinstance(mark, Quantity):
        return [BeforeValidator(reader_of(mark)), schema_of(mark)]
    return [Field(max_length=mark.characters) if isinstance(mark, Longest) else Field(description=str(mark))]


class _Section:
    """A mark on a part of the plan: the part is read from a section of the file, with the defaults of the part."""

    def __get_pydantic_core_schema__(self, part: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(section: BaseModel) -> object:
            given = {key: _frozen(getattr(section, key)) for key in section.model_fields_set}
            return part(**{FIELD_OF_KEY.get(key, key): value for key, value in given.items()})

        return core_schema.no_info_after_validator_function(
            read,
            handler.generate_schema(SECTIONS[part]),
            serialization=core_schema.plain_serializer_function_ser_schema(_in_base_units),
        )


_SECTION: Final = _Section()
SECTIONS: Final[dict[type, type[Model]]] = {}
"""The keys of a section for each part of the plan that is a section of the file."""


def _as_written(content: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """A layout stays as it was written, so that whoever reads the plan can read the layout as a layout file."""
    check(content)
    return content


_LAYOUT: Final = Annotated[
    Annotated[str, Field(max_length=400), Tag("file")] | Annotated[Layout, WrapValidator(_as_written), Tag("drives")],
    Discriminator(lambda value: "file" if isinstance(value, str) else "drives"),
]


def _add_section(part: Any, name: str, words: str) -> None:
    """Make the keys of a section of the fields of a part of the plan. Parts within the part come before it."""
    keys: dict[str, Any] = {}
    for each in fields(part):
        quantity = quantity_of(part, each.name)
        default: Any = ... if each.default is MISSING else each.default
        if each.default_factory is not MISSING:
            default = Field(default_factory=each.default_factory)
        elif isinstance(default, tuple):
            default = Field(default_factory=list)
        elif quantity and quantity.per_second and default is not ...:
            default /= quantity.per_second
        keys[KEY_OF_FIELD.get(each.name, each.name)] = (_type_of(types_of(part)[each.name]), default)
    SECTIONS[part] = create_model(name, __base__=Model, __doc__=words, __module__=__name__, **keys)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _in_base_units(part: object) -> dict[str, Any]:
    """A part of the plan by the keys of the file, with times in seconds."""
    return by_key(part, lambda quantity, value: value / quantity.per_second if quantity.per_second else value)


_add_section(QueueSpec, "Queue", "A queue to declare before the run and to delete after it.")
_add_section(Settings, "Load", "The settings of publishers and consumers, unless the sweep changes them.")
_add_section(
    behaviour.Exchange,
    "Exchange",
    "The exchange that publishers publish to. The default exchange has no name and routes by the name of a queue.",
)
_add_section(
    behaviour.Bodies, "Bodies", "The content of bodies: without files and JSON documents a filler that consumers check."
)
_add_section(behaviour.Publishing, "Publishing", "How publishers behave; no step changes this.")
_add_section(behaviour.Consuming, "Consuming", "How consumers behave; no step changes this.")
_add_section(behaviour.Tls, "Tls", "How amqps connections are secured.")
_add_section(behaviour.Connecting, "Connecting", "How connections are made, kept and ended.")
_add_section(Finding, "Finding", "A trend that the source found, for a verdict on whether a sweep reproduces it.")

_add_section(
    TimedAction,
    "TimedAction",
    "An action on a node, a drive, a host or links in the middle of the run. Its time counts from the first step.",
)

_add_section(ClusterSpec, "Cluster", "The cluster that is started on this machine if no broker is named.")

Queue = Annotated[QueueSpec, _SECTION]
Load = Annotated[Settings, _SECTION]
Exchange = Annotated[behaviour.Exchange, _SECTION]
Publishing = Annotated[behaviour.Publishing, _SECTION]
Consuming = Annotated[behaviour.Consuming, _SECTION]
Connecting = Annotated[behaviour.Connecting, _SECTION]
Found = Annotated[Finding, _SECTION]


# The rest of the file

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


class OwnStep(Model):
    """A step of a background load: other settings than those of its load, and how long they hold."""

    set: Annotated[dict[Swept, Value], Field(description="settings that differ from the load of this group")]
    duration: Annotated[Duration, Field(description="the last step goes on until the load stops")]


class BackgroundLoad(Model):
    """A load beside the measured load, in none of its figures. Its times count from the first step of the measured
    load, and stand still while the measured load drains between isolated steps."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=40)]
    queues: Annotated[list[Queue], Field(min_length=1)]
    load: Load = Settings()
    exchange: Exchange = behaviour.Exchange()
    publishing: Publishing = behaviour.Publishing()
    consuming: Consuming = behaviour.Consuming()
    ahead: Annotated[Duration, Field(description="begin so long before the measured load")] = 0.0
    start: Annotated[Duration, Field(description="begin so long after the measured load")] = 0.0
    stop: Annotated[Duration | None, Field(description="when the load ends; left out: with the run")] = None
    steps: Annotated[list[OwnStep], Field(description="settings of this load, one after the other")] = Field(
        default_factory=list
    )
    workers: Annotated[Count, Field(description="processes to spread the clients over; 0: chosen")] = 0


class GroupLoad(BackgroundLoad):
    """A load of its own beside the load at the top of the file: background load, or measured with figures of its own.
    A measured group has the steps of the measured load, and its own settings in all of them."""

    measured: bool = False


class Workload(Model):
    """A workload file."""

    version: Annotated[Literal[1], Field(alias="schema", description="version of this file format")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)*$", max_length=80)]
    title: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(description="address of the published text this repeats")] = ""
    description: str = ""
    queues: Annotated[list[Queue], Field(min_length=1)]
    load: Load = Settings()
    exchange: Exchange = behaviour.Exchange()
    publishing: Publishing = behaviour.Publishing()
    consuming: Consuming = behaviour.Consuming()
    connecting: Connecting = behaviour.Connecting()
    background: list[BackgroundLoad] = Field(default_factory=list)
    groups: Annotated[list[GroupLoad], Field(description="loads beside this one, measured or background")] = Field(
        default_factory=list
    )
    cluster: Annotated[ClusterSpec, _SECTION] = ClusterSpec()
    timeline: Annotated[
        list[Annotated[TimedAction, _SECTION]],
        Field(description="actions on nodes, drives, hosts and links while the load runs"),
    ] = Field(default_factory=list)
    sweep: Sweep | None = None
    findings: Annotated[list[Found], Field(description="what the source found, as trends")] = Field(
        default_factory=list
    )
    step: Timing
    quick: Annotated[Timing, Field(description="used instead of step with --quick")] = Timing(
        duration=4.0, warmup=1.0, drain=5.0
    )
    interval: Annotated[Duration, Field(description="how often a line of results is written")] = 1.0
    confirm_timeout: Annotated[Duration, Field(description="longest wait for a confirm")] = 30.0
    workers: Annotated[Count, Field(description="processes to spread the clients over; 0: chosen")] = 0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1


class _SchemaOfFile(GenerateJsonSchema):
    """Defaults by the keys of the file."""

    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(_in_base_units(dft) if is_dataclass(dft) else dft)


def json_schema() -> dict[str, object]:
    """The JSON schema of a workload file, for editors; ``workloads/schema.json`` is this."""
    schema = Workload.model_json_schema(by_alias=True, schema_generator=_SchemaOfFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
