"""How the fields of a plan are written in a file: marks on the types of these fields.

A mark is a :class:`Quantity` or a :class:`Key`. Pydantic checks a workload file (:mod:`perftest.spec.models`) by these
marks, and :mod:`perftest.spec.condense` writes a file by them. The key of a file for a field is the name of the field,
or the ``alias`` in the metadata of the field: a field may end with its unit, and a key does not. Workers read plans
without Pydantic, which would take longer to import than all of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from perftest.spec.units import (
    BANDWIDTH_UNITS,
    COUNT_UNITS,
    DURATION_UNITS,
    RATE_UNITS,
    SHARE_UNITS,
    SIZE_UNITS,
    UNLIMITED,
    WORDS,
    UnitError,
    parse_ack_interval,
    parse_bandwidth_mbit,
    parse_count,
    parse_duration_s,
    parse_in_flight,
    parse_prefetch,
    parse_rate,
    parse_share,
    parse_size_bytes,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """How people write a value.

    ``parse`` gives the value of the field, and raises :class:`~perftest.spec.units.UnitError`. ``per_second`` says how
    many units of the field make a second; 0: the value is no time. ``words`` stand for some values. ``units``,
    ``meaning`` and the ``least`` number are for the JSON schema.
    """

    parse: Callable[[object], int | float | None]
    units: Mapping[str, float]
    meaning: str
    words: Mapping[Any, str] = field(default_factory=dict)
    least: int = 0
    per_second: float = 0.0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        show = core_schema.plain_serializer_function_ser_schema(self.in_base_unit)
        return core_schema.no_info_before_validator_function(self._read, handler(source), serialization=show)

    def _read(self, value: object) -> object:
        """The value of the field, for Pydantic, with the rule and the fix of the parser."""
        from pydantic_core import PydanticCustomError

        try:
            return self.parse(value)
        except UnitError as error:
            raise PydanticCustomError("quantity", "{rule}", {"rule": error.rule, "fix": error.fix}) from error

    def in_base_unit(self, value: Any) -> Any:
        """The value of a field, times in seconds."""
        return value / self.per_second if self.per_second and value is not None else value

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """What editors check before the parser does."""
        names = "|".join(unit.replace("/", "\\/") for unit in self.units)
        number = "[0-9][0-9_]*(\\.[0-9]+)?\\s*"
        pattern = f"^({number}({names})\\s*)+$|^{number}$" if self.per_second else f"^{number}({names})?$"
        numbers = [{"type": "number", "minimum": self.least}, {"type": "string", "pattern": pattern}]
        words = [{"const": word} for word in self.words.values()]
        return {"anyOf": [*numbers, *words], "description": self.meaning}


@dataclass(frozen=True, slots=True)
class Key:
    """The ``meaning`` of a key in a sentence, and the most characters of a text (0: no limit).

    In a file, a word stands for a member of an enumeration, a list for a tuple, and a mapping for a part of the plan.
    """

    meaning: str
    longest: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        kind: Any = handler.resolve_ref_schema(schema)
        if kind["type"] in ("enum", "tuple", "dataclass"):
            kind["strict"] = False
        return kind | {"max_length": self.longest} if self.longest else schema

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema) | {"description": self.meaning}


def _parse_paced(value: object) -> float:
    """A rate with a limit: a cycle cannot be unlimited for some time."""
    rate = parse_rate(value)
    if rate is None:
        raise UnitError(f"{value!r} is no rate to hold for some time", "write 1000 or 40k/s")
    return rate


def _whole(per_second: float) -> Quantity:
    """A time that a field holds as a whole number of units."""
    return replace(SECONDS, parse=lambda value: round(parse_duration_s(value) * per_second), per_second=per_second)


SECONDS: Final = Quantity(parse_duration_s, DURATION_UNITS, "seconds, or with units: 30s, 1h30m", per_second=1.0)
_MICROSECONDS: Final = _whole(1e6)
COUNT: Final = Quantity(parse_count, COUNT_UNITS, "a whole number; k and M are allowed")
SIZE: Final = Quantity(parse_size_bytes, SIZE_UNITS, "octets, or with a unit: 1k or 1kB (1000), 1KiB (1024)")
_RATE: Final = Quantity(parse_rate, RATE_UNITS, "messages per second of each publisher", {None: UNLIMITED})
_PACED: Final = Quantity(_parse_paced, RATE_UNITS, f"{_RATE.meaning}; 0: none for that time")
_PREFETCH: Final = replace(
    COUNT, parse=parse_prefetch, meaning="basic.qos of each consumer; 0: unlimited", words=WORDS["prefetch"]
)
_IN_FLIGHT: Final = Quantity(
    parse_in_flight, COUNT_UNITS, "most unconfirmed messages per publisher", WORDS["in_flight"], least=1
)
_ACK_INTERVAL: Final = Quantity(
    parse_ack_interval, COUNT_UNITS, "one basic.ack (multiple) every N deliveries", WORDS["ack_interval"], least=1
)
_SHARE: Final = Quantity(parse_share, SHARE_UNITS, "a share from 0 to 1, or with a unit: 1%")
_BANDWIDTH: Final = Quantity(parse_bandwidth_mbit, BANDWIDTH_UNITS, "megabits per second, or with a unit: 100mbit")

Seconds = Annotated[float, SECONDS]
WholeSeconds = Annotated[int, _whole(1.0)]
Milliseconds = Annotated[int, _whole(1e3)]
Microseconds = Annotated[int, _MICROSECONDS]
Count = Annotated[int, COUNT]
Octets = Annotated[int, SIZE]
Rate = Annotated[float | None, _RATE]
InFlight = Annotated[int, _IN_FLIGHT]
Prefetch = Annotated[int, _PREFETCH]
AckInterval = Annotated[int, _ACK_INTERVAL]
Share = Annotated[float, _SHARE]
Bandwidth = Annotated[float, _BANDWIDTH]

Several = Annotated[tuple[_A, ...], Key("one after the other")]
Pair = Annotated[tuple[_A, _B], Key("two values")]
Held = Annotated[Seconds, Key("how long the value holds")]
RateCycle = Several[Pair[Annotated[float, _PACED], Held]]
SizeCycle = Several[Pair[Annotated[float, SIZE], Held]]
LatencyCycle = Several[Pair[Annotated[float, _MICROSECONDS], Held]]


def key_of(part: Any, name: str) -> str:
    """The key of a file for a field of a part of a plan."""
    return str(part.__dataclass_fields__[name].metadata.get("alias", name))


@cache
def field_of(part: Any, key: str) -> str:
    """The field of a part of a plan for a key of a file. Raises StopIteration for an unknown key."""
    return next(each.name for each in fields(part) if key_of(part, each.name) == key)


@cache
def types_of(part: Any) -> dict[str, Any]:
    """The types of the fields of a part of a plan, with their marks."""
    return get_type_hints(part, include_extras=True)


def quantity_of(part: Any, field: str) -> Quantity | None:
    """The quantity that a field of a part has, if it has one."""
    return next((mark for mark in get_args(types_of(part)[field]) if isinstance(mark, Quantity)), None)


def changed(part: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a part whose values differ from their defaults, and these values."""
    for each in fields(part):
        value = getattr(part, each.name)
        made = MISSING if each.default_factory is MISSING else each.default_factory()
        if value not in (each.default, made):
            yield each.name, value


def by_key(part: Any, show: Callable[[Quantity, Any], Any], *, all_fields: bool = True) -> dict[str, Any]:
    """The fields of a part by the keys of a file: all fields, or the changed ones. ``show`` writes the quantities."""

    def plain(kind: Any, value: Any) -> Any:
        base, *marks = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        inner = get_args(base)
        for quantity in (mark for mark in marks if isinstance(mark, Quantity)):
            return show(quantity, value)
        if value is not None and inner[-1:] == (type(None),):
            return plain(inner[0], value)
        if isinstance(value, tuple):
            return [plain(inner[0] if inner[-1] is ... else inner[at], each) for at, each in enumerate(value)]
        if is_dataclass(value):
            return by_key(value, show, all_fields=all_fields)
        if isinstance(value, Mapping):
            return dict(value)
        return value.value if isinstance(value, Enum) else value

    kinds = types_of(part.__class__)
    chosen = ((each.name, getattr(part, each.name)) for each in fields(part)) if all_fields else changed(part)
    return {key_of(part, name): plain(kinds[name], value) for name, value in chosen}
