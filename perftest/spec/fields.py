"""How the fields of a plan are written in a file: marks on the types of these fields.

A mark is a :class:`Quantity`, a :class:`Longest` or a text, the meaning of the key. The workload file
(:mod:`perftest.spec.models`) is checked by these marks, and :mod:`perftest.spec.condense` writes a file by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from perftest.spec.units import (
    BANDWIDTH_UNITS,
    COUNT_UNITS,
    DURATION_UNITS,
    KEY_OF_FIELD,
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


class Longest(NamedTuple):
    """The most characters of a text."""

    characters: int


def _parse_paced(value: object) -> float:
    """A rate with a limit: a cycle cannot be unlimited for some time."""
    rate = parse_rate(value)
    if rate is None:
        raise UnitError(f"{value!r} is no rate to hold for some time", "write 1000 or 40k/s")
    return rate


def _whole(per_second: float) -> Quantity:
    """A time that a field holds as a whole number of units."""
    return replace(SECONDS, parse=lambda value: round(parse_duration_s(value) * per_second), per_second=per_second)


SECONDS: Final = Quantity(parse_duration_s, DURATION_UNITS, "seconds, or with a unit: 5m, 30s", per_second=1.0)
_MICROSECONDS: Final = _whole(1e6)
COUNT: Final = Quantity(parse_count, COUNT_UNITS, "a whole number; k and M are allowed")
SIZE: Final = Quantity(parse_size_bytes, SIZE_UNITS, "octets, or with a unit: 1kB (1000), 1KiB (1024)")
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

Held = Annotated[Seconds, "how long the value holds"]
RateCycle = tuple[tuple[Annotated[float, _PACED], Held], ...]
SizeCycle = tuple[tuple[Annotated[float, SIZE], Held], ...]
LatencyCycle = tuple[tuple[Annotated[float, _MICROSECONDS], Held], ...]


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
    return {KEY_OF_FIELD.get(name, name): plain(kinds[name], value) for name, value in chosen}
