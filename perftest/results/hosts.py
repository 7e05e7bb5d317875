"""The hosts of a run: their roles in the manifest, and the figures of load hosts over a step. Pure.

A row of ``hosts`` without ``roles`` is a load host: runs on one host have no roles. A record of ``host.jsonl`` tells of
the time before it: a record at the very end of a step belongs to the step, a record at the start does not.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LOAD: Final = "load"
BROKER: Final = "broker"

START_SKEW_MAX_NS: Final = 10_000_000
"""Difference between the starts of hosts above which they measured different loads for a while."""

_OCTETS: Final = ("rx_bytes", "tx_bytes")
_FIGURES: Final = ("cpu_percent", *(f"{name}_per_s" for name in _OCTETS))


def roles_of(host: Mapping[str, Any]) -> tuple[str, ...]:
    """The roles of a host: LOAD, BROKER, or both."""
    roles = host.get("roles")
    known = tuple(str(role) for role in roles) if isinstance(roles, list | tuple) else ()
    return known or (LOAD,)


def has_load(host: Mapping[str, Any]) -> bool:
    """Whether a host made load."""
    return LOAD in roles_of(host)


@dataclass(slots=True)
class _Samples:
    """Times and figures of one host, 8 octets each; NaN is not known."""

    t_ns: array[int] = field(default_factory=lambda: array("q"))
    figures: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in _FIGURES})
    octets: dict[str, float] = field(default_factory=dict)


class HostRecords:
    """Follows the hosts through the records of ``host.jsonl``, in the order of time."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Samples] = {}

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> HostRecords:
        """From the records of ``host.jsonl``."""
        made = cls()
        for record in records:
            made.add(record)
        return made

    def add(self, record: Mapping[str, Any]) -> None:
        """One record; a record without a time or a host tells nothing."""
        t_ns, name = record.get("t_ns"), record.get("host")
        if not isinstance(t_ns, int) or not isinstance(name, str):
            return
        samples = self._hosts.setdefault(name, _Samples())
        length_s = (t_ns - samples.t_ns[-1]) / 1e9 if samples.t_ns else 0.0
        for octets in _OCTETS:
            now, before = _number(record.get(octets)), samples.octets.get(octets, math.nan)
            # A counter that went back belongs to a host that was started again.
            rate = (now - before) / length_s if length_s > 0 and now >= before else math.nan
            samples.figures[f"{octets}_per_s"].append(rate)
            samples.octets[octets] = now
        samples.t_ns.append(t_ns)
        samples.figures["cpu_percent"].append(_number(record.get("cpu_percent")))

    def use(self, start_ns: int, end_ns: int) -> dict[str, dict[str, float | None]]:
        """Means over a time, by host: ``cpu_percent``, ``rx_bytes_per_s`` and ``tx_bytes_per_s``."""
        found = {}
        for name, samples in self._hosts.items():
            within = slice(bisect_right(samples.t_ns, start_ns), bisect_right(samples.t_ns, end_ns))
            if within.start < within.stop:
                found[name] = {figure: _mean(values[within]) for figure, values in samples.figures.items()}
        return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None
