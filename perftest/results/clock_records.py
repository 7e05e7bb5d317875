"""The clocks of the load hosts of a run, as the manifest tells them: from the lines of ``clocks.jsonl``. Pure.

A line is an exchange with a host (:class:`perftest.metrics.host_clock.ClockExchange`) or the model of the host's clock
that a cut of the run went by (:class:`perftest.metrics.clock_model.ClockModel`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perftest.metrics.clock_model import ClockModel
from perftest.metrics.host_clock import ClockExchange, HostClock

PHASES: Final = ("before", "during", "after")


class ClockRecords:
    """Follows the clocks of all hosts but the coordinator's own through the records of ``clocks.jsonl``."""

    def __init__(self) -> None:
        self._hosts: dict[str, _HostRecords] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """One record."""
        host = self._hosts.setdefault(str(record["host"]), _HostRecords())
        if "model" in record:
            host.add_model(ClockModel.from_json(record["model"]), record["t_ns"])
        else:
            host.add_exchange(record["phase"], ClockExchange(*(record[name] for name in ClockExchange._fields)))

    def rows(self) -> dict[str, dict[str, Any]]:
        """The facts about each host's clock for its row of ``hosts`` in the manifest, by the host's name.

        ``clock_offset_ns`` is the host's clock minus the coordinator's at the last cut, ``clock_bound_ns`` the greatest
        bound at any cut, and ``clock_drift_ppm`` how much the host's clock gains. ``clock_exchanges`` has, for each
        phase of the run, the number of exchanges, the least round trip, and offset and bound by these alone.
        """
        return {name: host.row() for name, host in self._hosts.items()}


class _HostRecords:
    def __init__(self) -> None:
        self._clocks = {phase: HostClock() for phase in PHASES}
        self._counts = dict.fromkeys(PHASES, 0)
        self._round_trips: dict[str, int] = {}
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._bound_ns = 0

    def add_exchange(self, phase: str, exchange: ClockExchange) -> None:
        self._clocks[phase].add(exchange)
        self._counts[phase] += 1
        self._round_trips[phase] = min(self._round_trips.get(phase, exchange.round_trip_ns), exchange.round_trip_ns)

    def add_model(self, model: ClockModel, reference_ns: int) -> None:
        host_ns = model.to_host(reference_ns)
        self._last = reference_ns, host_ns - reference_ns
        self._first = self._first or self._last
        self._bound_ns = max(self._bound_ns, model.bound_at(host_ns))

    def row(self) -> dict[str, Any]:
        phases = {phase: self._phase(phase) for phase in PHASES if len(self._clocks[phase])}
        if self._first is None or self._last is None:
            return {"clock_exchanges": phases}
        (began_ns, first_ns), (ended_ns, last_ns) = self._first, self._last
        drift = (last_ns - first_ns) / (ended_ns - began_ns) if ended_ns > began_ns else 0.0
        return {
            "clock": "CLOCK_MONOTONIC",
            "clock_offset_ns": last_ns,
            "clock_bound_ns": self._bound_ns,
            "clock_drift_ppm": round(drift * 1e6, 3),
            "round_trip_ns": min(self._round_trips.values(), default=0),
            "clock_exchanges": phases,
        }

    def _phase(self, phase: str) -> dict[str, int]:
        clock = self._clocks[phase]
        model = clock.model(clock.last_ns, clock.last_ns)
        return {
            "count": self._counts[phase],
            "round_trip_ns": self._round_trips[phase],
            "offset_ns": clock.last_ns - model.to_reference(clock.last_ns),
            "bound_ns": model.bound_at(clock.last_ns),
        }


def with_clocks(hosts: list[dict[str, Any]], rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The hosts of a manifest with what is known of their clocks; a host that is not there yet is added."""
    known = {str(host.get("name")): host for host in hosts}
    return list((known | {name: {"name": name, **known.get(name, {}), **row} for name, row in rows.items()}).values())
