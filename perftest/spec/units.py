"""Quantities as people write them: ``5m``, ``1KiB``, ``40k``. There is one parser and one error.

Decimal prefixes count in thousands (``1k`` and ``1kB`` are 1000 octets, ``40k`` is 40,000 messages), binary prefixes in
1024 (``1KiB`` is 1024 octets). A time may have several units (``1h30m``). A number without a unit is in the base unit:
seconds, octets, messages, messages per second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from math import isclose
from typing import Final
from urllib.parse import urlsplit

_NUMBER: Final = r"[0-9][0-9_]*(?:\.[0-9]+)?"
_QUANTITY: Final = re.compile(rf"^\s*(?P<number>{_NUMBER})\s*(?P<unit>[^\d\s].*?)?\s*$")
_PART: Final = rf"\s*({_NUMBER})\s*([a-zµ]+)\s*"
_SEVERAL_PARTS: Final = re.compile(rf"(?:{_PART}){{2,}}")

DURATION_UNITS: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_SIZE_UNITS: Final = {
    "B": 1,
    "k": 1000,
    "kB": 1000,
    "M": 1000**2,
    "MB": 1000**2,
    "G": 1000**3,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
SIZE_UNITS: Final[Mapping[str, float]] = {
    **_SIZE_UNITS,
    **{unit.lower(): octets for unit, octets in _SIZE_UNITS.items()},
    **{unit.upper(): octets for unit, octets in _SIZE_UNITS.items()},
}
"""Units of sizes. PerfTest writes them in upper or lower case (``20gb``)."""
COUNT_UNITS: Final[Mapping[str, float]] = {"k": 1000, "K": 1000, "M": 1000**2}
RATE_UNITS: Final[Mapping[str, float]] = {**COUNT_UNITS, "/s": 1, "k/s": 1000, "M/s": 1000**2}

SHARE_UNITS: Final[Mapping[str, float]] = {"%": 0.01}
BANDWIDTH_UNITS: Final[Mapping[str, float]] = {"kbit": 0.001, "mbit": 1.0, "gbit": 1000.0}

_DURATIONS: Final = "5m, 1h30m, 1.5s or 250ms"
_SIZES: Final = "1000, 1k, 1kB or 1KiB"

UNLIMITED: Final = "unlimited"
NO_CONFIRMS: Final = 0
"""The in-flight limit of a channel without confirms."""
IN_FLIGHT_UNLIMITED: Final = 1 << 30
"""The in-flight limit of a channel with confirms and without a limit (PerfTest's ``-c 0``)."""
AUTOMATIC_ACK: Final = 0
"""The ack interval of consumers with automatic acknowledgement."""
PREFETCH_UNLIMITED: Final = 0
"""Prefetch without a limit: 0, as in the protocol."""

WORDS: Final[Mapping[str, Mapping[int, str]]] = {
    "in_flight": {NO_CONFIRMS: "no_confirms", IN_FLIGHT_UNLIMITED: UNLIMITED},
    "prefetch": {PREFETCH_UNLIMITED: UNLIMITED},
    "ack_interval": {AUTOMATIC_ACK: "automatic"},
}
"""Words for values of settings: a file, ``--vary`` and a label have the word instead of the number."""


class UnitError(ValueError):
    """A quantity that cannot be read. ``rule`` says what is wrong, ``fix`` shows how to write it."""

    def __init__(self, rule: str, fix: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.fix = fix


def parse_duration_s(value: object) -> float:
    """``5m``, ``1h30m``, ``250ms`` or a number of seconds, as seconds. Raises :class:`UnitError`."""
    if isinstance(value, str) and _SEVERAL_PARTS.fullmatch(value):
        return _sum_of_parts(value)
    return _quantity(value, DURATION_UNITS, "duration", _DURATIONS)


def parse_latency_ns(value: str) -> float:
    """``500us``, ``20ms``, ``1s``, as nanoseconds. The unit is needed. Raises :class:`UnitError`."""
    if value.strip()[-1:].isdigit():
        raise UnitError(f"{value!r} is not a latency with its unit", "write 500us, 20ms or 1s")
    return round(parse_duration_s(value) * 1e9, 3)


def parse_size_bytes(value: object) -> int:
    """``1k`` or ``1kB`` (1000), ``1KiB`` (1024) or a number of octets, as octets. Raises :class:`UnitError`."""
    return _whole(_quantity(value, SIZE_UNITS, "size", _SIZES), value, "size", _SIZES)


def parse_count(value: object) -> int:
    """``40k``, ``1M`` or a whole number. Raises :class:`UnitError`."""
    return _whole(_quantity(value, COUNT_UNITS, "count", "1000, 1k or 2M"), value, "count", "1000, 1k or 2M")


def parse_share(value: object) -> float:
    """``1%`` or a number from 0 to 1, as the number. Raises :class:`UnitError`."""
    share = _quantity(value, SHARE_UNITS, "share", "1% or 0.01")
    if share > 1:
        raise UnitError(f"{value!r} is more than everything", "write 1% or 0.01")
    return share


def parse_bandwidth_mbit(value: object) -> float:
    """``100mbit``, ``1gbit`` or a number of megabits per second, as that number. Raises :class:`UnitError`."""
    return _quantity(value, BANDWIDTH_UNITS, "bandwidth", "100mbit or 1gbit")


def parse_in_flight(value: object) -> int:
    """A count, or ``unlimited`` (confirms that no publisher waits for), or ``no_confirms``. Raises :class:`UnitError`.

    0 is refused: in PerfTest ``-c 0`` is unlimited, and many users take 0 for no confirms.
    """
    fix = "write no_confirms to publish without confirms, or unlimited for confirms that no publisher waits for"
    word = _worded("in_flight", value)
    return _count_above_0(value, "an in-flight limit of 0 says two things", fix) if word is None else word


def parse_prefetch(value: object) -> int:
    """A count; 0 and ``unlimited`` both mean no limit. Raises :class:`UnitError`."""
    word = _worded("prefetch", value)
    return parse_count(value) if word is None else word


def parse_ack_interval(value: object) -> int:
    """A count, or ``automatic`` for automatic acknowledgement. Raises :class:`UnitError`.

    0 is refused, because PerfTest's ``-A 0`` acknowledges each message by itself.
    """
    fix = "write automatic for automatic acknowledgement, or 1 to acknowledge each message by itself"
    word = _worded("ack_interval", value)
    return _count_above_0(value, "an ack interval of 0 says two things", fix) if word is None else word


def parse_http_url(value: str) -> str:
    """``http://host:15692/metrics``; the error shows no password. Raises :class:`UnitError`."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = value.rpartition("@")[2]
        fix = "write http://host:15692/metrics, or http://user:password@host:15672 with %40 for an @ in its parts"
        raise UnitError(f"{shown!r} is not an HTTP address", fix)
    return value


def in_words(setting: str, value: int | float | None) -> str:
    """A value of a setting as a file has it: ``no_confirms``, ``unlimited``, ``1000``."""
    if value is None:
        return UNLIMITED
    return WORDS.get(setting, {}).get(int(value)) or format(value, ".15g")


def parse_rate(value: object) -> float | None:
    """``40k``, ``40k/s`` or a number of messages per second; ``unlimited`` is None. Raises :class:`UnitError`."""
    if value is None or (isinstance(value, str) and value.strip() == UNLIMITED):
        return None
    return _quantity(value, RATE_UNITS, "rate", "1000, 40k/s or unlimited")


def format_duration(seconds: float) -> str:
    """The shortest exact reading: ``5m``, ``1m30s``, ``2.5s``, ``250ms``."""
    if seconds == float("inf"):
        return "until stopped"
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{amount:g}{unit}" for amount, unit in parts if amount) or "0s"


def _worded(setting: str, value: object) -> int | None:
    """The value of a word; None for any other value."""
    return next((number for number, word in WORDS[setting].items() if value == word), None)


def _count_above_0(value: object, rule: str, fix: str) -> int:
    count = parse_count(value)
    if not count:
        raise UnitError(rule, fix)
    return count


def _quantity(value: object, units: Mapping[str, float], kind: str, examples: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnitError(f"{value!r} is not a {kind}", f"write {examples}")
    if isinstance(value, int | float):
        return _finite(float(value), value, kind, examples)
    match = _QUANTITY.match(value)
    if match is None:
        raise UnitError(f"{value!r} is not a {kind}", f"write {examples}")
    unit = match["unit"]
    if unit is not None and unit not in units:
        raise UnitError(f"{value!r}: unknown unit {unit!r} of a {kind}", f"use one of {', '.join(_shown(units))}")
    return float(match["number"].replace("_", "")) * (units[unit] if unit else 1.0)


def _sum_of_parts(text: str) -> float:
    """A time of several units, the greatest first: in another order the text may be a slip."""
    parts = [(float(number.replace("_", "")), unit) for number, unit in re.findall(_PART, text)]
    if unknown := next((unit for _, unit in parts if unit not in DURATION_UNITS), None):
        fix = f"use {', '.join(_shown(DURATION_UNITS))}"
        raise UnitError(f"{text!r}: unknown unit {unknown!r} of a duration", fix)
    sizes = [DURATION_UNITS[unit] for _, unit in parts]
    if any(later >= earlier for earlier, later in pairwise(sizes)):
        raise UnitError(f"{text!r} is not a duration", "write each unit once, the greatest first: 1h30m")
    return sum(number * DURATION_UNITS[unit] for number, unit in parts)


def _shown(units: Mapping[str, float]) -> list[str]:
    """Units without those that differ in upper and lower case only."""
    return [unit for at, unit in enumerate(units) if unit.lower() not in map(str.lower, [*units][:at])]


def _finite(number: float, value: object, kind: str, examples: str) -> float:
    if not 0 <= number < float("inf"):
        raise UnitError(f"{value!r} is not a {kind}: it must be zero or more and finite", f"write {examples}")
    return number


def _whole(number: float, value: object, kind: str, examples: str) -> int:
    nearest = round(number)
    if not isclose(number, nearest, rel_tol=1e-12):
        raise UnitError(f"{value!r} is not a whole {kind}", f"write {examples}")
    return nearest
