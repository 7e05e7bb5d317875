"""Numbers as a reader wants them: three significant figures, thousands separated, the unit beside the number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LATENCY_UNITS: Final = {"µs": 1e3, "ms": 1e6, "s": 1e9}
"""Nanoseconds per unit."""

NOT_MEASURED: Final = "–"


def significant(value: float) -> str:
    """``value`` with three significant figures: 0.0123, 4.81, 48.1, 1,204. The page's script formats alike."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}" if size >= 1e-4 or not size else f"{value:.1e}"


def whole(value: float) -> str:
    """A count or a rate without decimals: 205,300."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """A rate in a sentence; below 10/s decimals matter."""
    return f"{whole(value) if value >= 10 else significant(value)} msg/s"


def latency(value_ns: float) -> str:
    """A latency in a sentence, in the unit that gives the shortest number: 820 µs, 4.81 ms, 1.2 s."""
    for unit, size_ns in LATENCY_UNITS.items():
        if value_ns < 999.5 * size_ns:
            return f"{significant(value_ns / size_ns)} {unit}"
    return f"{significant(value_ns / 1e9)} s"


def octets(value: float) -> str:
    """A size in a sentence: 8 GiB, 1.5 MiB, 912 B."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def times(factor: float) -> str:
    """A ratio in a sentence: 6.0 times."""
    return f"{significant(factor) if factor >= 10 else f'{factor:.1f}'} times"


def share(part: float) -> str:
    """A share in a sentence: 2.2 %; 0.06 %."""
    percent = 100 * part
    return f"{percent:.1f} %" if abs(percent) >= 1 else f"{percent:.2g} %"


def duration(seconds: float) -> str:
    """A length of time in a sentence: 38 s, 4 min 10 s, 1 h 5 min."""
    whole_s = round(seconds)
    if whole_s < 90:
        return f"{significant(seconds) if seconds < 10 else whole_s} s"
    minutes, rest_s = divmod(whole_s, 60)
    if minutes < 90:
        return f"{minutes} min" + (f" {rest_s} s" if rest_s else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def plural(count: int, one: str, many: str = "") -> str:
    """``1 step``, ``6 steps``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def between(low: str, high: str) -> str:
    """Two figures as a range, with the unit once if both have the same: ``119 to 130 ms``."""
    first, last = low.rpartition(" "), high.rpartition(" ")
    return f"{first[0]} to {high}" if first[2] == last[2] and first[0] else f"{low} to {high}"
