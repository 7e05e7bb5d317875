"""A trace of arrivals: a text file, one arrival a line.

Each line is a time since the start, in seconds or with a unit::

    # one burst of three, then one at half a second
    0
    100us
    0.000250
    500ms

Units are ``s`` (also without a unit), ``ms``, ``us`` and ``ns``. The text after a ``#`` is a remark, and empty lines do
not count. Times must not go back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from perftest.errors import HelpfulError

_UNITS: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LINE: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-zµ]*)")
_LONGEST_S: Final = 1e6
"""Longest offset, more than eleven days: a longer one has probably lost its unit."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """A trace: offsets in seconds, never decreasing, and the time after which the trace begins again."""

    seconds: tuple[float, ...]
    period_s: float

    @property
    def rate(self) -> float:
        """Messages per second when it is played as recorded."""
        return len(self.seconds) / self.period_s


class TraceError(ValueError):
    """A trace that cannot be played. ``line`` counts from 1; 0 is the whole file."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line


class TraceFileError(HelpfulError):
    """A trace file that cannot be played."""


@lru_cache(maxsize=4)
def read_trace(path: str) -> Offsets:
    """The arrivals of a trace file. Raises :class:`TraceFileError`."""
    try:
        with Path(path).open(encoding="utf-8") as lines:
            return parse_trace(lines)
    except TraceError as error:
        where = f"{path}:{error.line}" if error.line else path
        what = str(error).split(": ", 1)[-1] if error.line else str(error)
        fix = "write one time a line, counted from the start: 0.5, 20ms, 1500us or 900ns"
        raise TraceFileError(f"the trace of arrivals cannot be played: {what}", where, fix) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fix = "check the path and its permissions"
        raise TraceFileError(f"the trace of arrivals cannot be read: {reason}", path, fix) from error


def parse_trace(lines: Iterable[str]) -> Offsets:
    """Read a trace. Raises :class:`TraceError`."""
    seconds: list[float] = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        offset = _offset(number, text)
        if seconds and offset < seconds[-1]:
            raise TraceError(number, f"{text} is before the arrival above it; offsets count from the start of the file")
        seconds.append(offset)
    if not seconds:
        raise TraceError(0, "no arrival in it")
    mean = (seconds[-1] - seconds[0]) / (len(seconds) - 1) if len(seconds) > 1 else 0.0
    mean = mean or seconds[0]
    period_s = seconds[-1] - seconds[0] + mean
    if period_s < 1e-9:
        raise TraceError(0, "all its arrivals are at 0: repeated, that is no schedule")
    return Offsets(tuple(seconds), period_s)


def _offset(number: int, text: str) -> float:
    """One line's time in seconds."""
    match = _LINE.fullmatch(text)
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise TraceError(number, f"{text!r} is not a time such as 0.5, 20ms or 1500ns")
    try:
        offset = float(match[1]) * unit
    except ValueError as error:
        raise TraceError(number, f"{match[1]!r} is not a number") from error
    if offset < 0 or not math.isfinite(offset):
        raise TraceError(number, f"{text} is before the start")
    if offset > _LONGEST_S:
        raise TraceError(number, f"{text} is more than eleven days; a number without a unit is seconds")
    return offset
