"""Modelled drives of the measured broker: their profiles, their lateness, and whether that spoils a run. Pure.

The nodes count since their start, and from anew when a drive gets another profile. So a run has the sum of the growths
between the records of ``broker.jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from perftest.results.trust import Check, Status

LATE_MAX: Final = 0.01
"""Share of operations that may be late by more than a fifth of the median operation. Above it, the p99 of the lateness
is more than 20 % of the median, and the figures show how busy this machine was, and not the drive."""
FEW: Final = 300
"""Operations below which a drive is judged as if it had as many: of 50 operations, one late one is no 2 percent."""
_COUNTERS: Final = ("operations", "late")
_LAST: Final = ("kind", "usual_ns", "service_ns_p50", "late_ns_p50", "late_ns_p99", "late_ns_max", "credits")


class DriveRecords:
    """Follows the drives through the records of ``broker.jsonl``."""

    def __init__(self) -> None:
        self._drives: dict[tuple[str, str], dict[str, Any]] = {}
        self._before: dict[tuple[str, str], Mapping[str, Any]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """One record of ``broker.jsonl``."""
        for drive in record.get("drives") or ():
            key = str(record["node"]), str(drive["name"])
            fresh = {"node": key[0], "name": key[1], "profiles": [], "operations": 0, "late": 0, "purposes": {}}
            facts = self._drives.setdefault(key, fresh)
            before = self._before.get(key, drive)  # what was before the run is not of the run
            restarted = drive["operations"] < before["operations"]
            for name in _COUNTERS:
                facts[name] += drive[name] - (0 if restarted else before[name])
            _add_purposes(facts["purposes"], drive["purposes"], before["purposes"])
            facts |= {name: drive[name] for name in _LAST if name in drive}
            if drive["profile"] not in facts["profiles"]:
                facts["profiles"].append(drive["profile"])
            self._before[key] = drive

    def facts(self) -> list[dict[str, Any]]:
        """The entries of ``broker.drives`` in the manifest: profiles, counts of this run, and the node's percentiles
        since the last change of the profile."""
        return list(self._drives.values())


def drives_check(drives: Sequence[Mapping[str, Any]]) -> Check | None:
    """Whether modelled drives kept their time; None for a broker without any."""
    if not drives:
        return None
    worst = max(drives, key=_judged_share)
    is_fuse = worst.get("kind") == "fuse"
    operations, length = ("requests", "usual") if is_fuse else ("operations", "median")
    text = (
        f"drives are modelled ({in_words(drives)}): {_late_share(worst):.1%} of the {operations} of {worst['name']} on "
        f"{worst['node']} ended late by more than a fifth of their {length} length"
    )
    if "late_ns_p99" in worst:
        p99, usual = worst["late_ns_p99"] / 1e6, worst["usual_ns" if is_fuse else "service_ns_p50"] / 1e6
        text += f" (lateness p99 {p99:.2f} ms, {'usual request' if is_fuse else 'operation p50'} {usual:.2f} ms)"
    if _judged_share(worst) > LATE_MAX:
        meaning = "the figures show how busy this machine was, not the drive; use more cores, or less load"
        return Check("modelled_drives", Status.FAIL, f"{text}: {meaning}", _late_share(worst))
    return Check("modelled_drives", Status.NOTE, text, _late_share(worst))


def in_words(drives: Iterable[Mapping[str, Any]]) -> str:
    """The profiles of a run's drives: ``st1-1t``, or ``st1-1t, hdd7200``; empty without any."""
    return ", ".join(dict.fromkeys(profile for drive in drives for profile in drive["profiles"]))


def _late_share(drive: Mapping[str, Any]) -> float:
    return drive["late"] / drive["operations"] if drive["operations"] else 0.0


def _judged_share(drive: Mapping[str, Any]) -> float:
    share: float = drive["late"] / max(drive["operations"], FEW)
    return share


def _add_purposes(
    sums: dict[str, dict[str, int]], now: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]
) -> None:
    for purpose, counts in now.items():
        known = before.get(purpose, {})
        of_purpose = sums.setdefault(purpose, {})
        for name, count in counts.items():
            earlier = known.get(name, 0)
            of_purpose[name] = of_purpose.get(name, 0) + count - (earlier if count >= earlier else 0)
