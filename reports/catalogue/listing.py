"""The runs of a store as rows to look through, and the choice among them; pure.

A run can have several values of one setting (a sweep) and several load hosts. A filter finds a run if any of them fits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from perftest.results.schema import SETTING_WORDS
from reports.catalogue.annotations import NOTHING, Annotation
from reports.errors import SettingError
from reports.store.columns import Row
from reports.store.schema import SETTINGS


class RunVerdict(StrEnum):
    """How a run ended, in one word; the exit code of its command decides."""

    PASSED = "passed"
    UNSAFE = "unsafe"
    MISSED = "missed"
    UNTRUSTED = "untrusted"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"


_OF_EXIT_CODE: Final = {
    0: RunVerdict.PASSED,
    3: RunVerdict.UNSAFE,
    4: RunVerdict.MISSED,
    5: RunVerdict.UNTRUSTED,
    130: RunVerdict.INTERRUPTED,
}
_TEXTS: Final = ("product", "broker_version", "tool_version", "tool_commit", "queue_types")
_NAMES: Final = tuple(column.name for column in SETTINGS)
COLUMNS: Final = {
    "runs": ("run_id", "name", "started_ns", "length_s", "state", "exit_code", "path", *_TEXTS),
    "steps": ("run_id", "step", "delivered_per_s", "e2e_series", "e2e_p99_ns", "e2e_sched_p99_ns", *_NAMES),
    "hosts": ("run_id", "host", "hostname"),
}
"""Columns that the catalogue reads, by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One run. ``hosts`` are names within the run, such as local, and ``hostnames`` the hosts' own, in the same order.
    ``settings``: for each setting that the run stated, its values over all steps; ``e2e_p99_ns`` and
    ``delivered_per_s`` belong to the step with the highest delivered rate; None if nothing was delivered."""

    run_id: str
    workload: str
    started_ns: int
    length_s: float
    verdict: RunVerdict
    product: str
    broker_version: str
    tool_version: str
    tool_commit: str
    queue_types: str
    hosts: tuple[str, ...]
    hostnames: tuple[str, ...]
    settings: Mapping[str, tuple[float, ...]]
    steps: int
    delivered_per_s: float | None
    e2e_p99_ns: int | None
    path: str
    annotation: Annotation = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The conditions on a listed run; an empty part is no condition.

    ``workload`` and ``host`` are patterns with ``*`` and ``?``. ``broker`` is a part of ``product version``.
    ``since_ns`` and ``before_ns`` are Unix times of the start. All ``tags`` and all ``settings`` must fit.
    """

    workload: str = ""
    broker: str = ""
    host: str = ""
    settings: Mapping[str, float] = field(default_factory=dict)
    since_ns: int | None = None
    before_ns: int | None = None
    verdicts: frozenset[RunVerdict] = frozenset()
    tags: tuple[str, ...] = ()

    def takes(self, entry: CatalogueEntry) -> bool:
        """Whether a run is wanted."""
        product = f"{entry.product} {entry.broker_version}".lower()
        return (
            (not self.workload or fnmatchcase(entry.workload, self.workload))
            and self.broker.lower() in product
            and (not self.host or any(fnmatchcase(host, self.host) for host in (*entry.hosts, *entry.hostnames)))
            and all(value in entry.settings.get(name, ()) for name, value in self.settings.items())
            and (self.since_ns is None or entry.started_ns >= self.since_ns)
            and (self.before_ns is None or entry.started_ns < self.before_ns)
            and (not self.verdicts or entry.verdict in self.verdicts)
            and set(self.tags) <= set(entry.annotation.tags)
        )


def parse_setting(text: str) -> tuple[str, float]:
    """``in_flight=200`` as name and value; words of workload files count, too.

    :raises SettingError: no setting, or no value of a setting
    """
    name, _, said = text.partition("=")
    words = {word: number for number, word in SETTING_WORDS.get(name, {}).items()}
    if name not in _NAMES:
        raise SettingError(
            f"{text!r} names no setting", "--setting", f"write NAME=VALUE, with one of {', '.join(_NAMES)}"
        )
    truths = {"true": 1.0, "false": 0.0}
    try:
        return name, float(truths[said] if said in truths else words.get(said, said))
    except ValueError:
        raise SettingError(f"{said!r} is no value of {name}", "--setting", "write a number, true or false") from None


def entries(
    runs: Iterable[Row], steps: Iterable[Row], hosts: Iterable[Row], annotations: Mapping[str, Annotation]
) -> list[CatalogueEntry]:
    """The runs of the tables ``runs``, ``steps`` and ``hosts``, the newest first. Of these tables the columns in
    :data:`COLUMNS` are needed."""
    steps_of, hosts_of = _by_run(steps), _by_run(hosts)
    found = [_entry(run, steps_of[run["run_id"]], hosts_of[run["run_id"]], annotations) for run in runs]
    return sorted(found, key=lambda each: (-each.started_ns, each.run_id))


def select(found: Iterable[CatalogueEntry], wanted: Wanted) -> list[CatalogueEntry]:
    """The entries that are wanted, in their order."""
    return [each for each in found if wanted.takes(each)]


def _by_run(rows: Iterable[Row]) -> defaultdict[str, list[Row]]:
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["run_id"]].append(row)
    return found


def _entry(
    run: Row, steps: Sequence[Row], hosts: Sequence[Row], annotations: Mapping[str, Annotation]
) -> CatalogueEntry:
    rate, p99_ns = _best(steps)
    return CatalogueEntry(
        run_id=run["run_id"],
        workload=run["name"],
        started_ns=run["started_ns"],
        length_s=run["length_s"],
        verdict=_verdict(run["state"], run["exit_code"]),
        **{name: run[name] for name in _TEXTS},
        hosts=tuple(host["host"] for host in hosts),
        hostnames=tuple(host["hostname"] for host in hosts),
        settings={
            name: tuple(sorted({float(step[name]) for step in steps if step[name] is not None})) for name in _NAMES
        },
        steps=len({step["step"] for step in steps}),
        delivered_per_s=rate,
        e2e_p99_ns=p99_ns,
        path=run["path"],
        annotation=annotations.get(run["run_id"], NOTHING),
    )


def _verdict(state: str, exit_code: int | None) -> RunVerdict:
    if state == "running":
        return RunVerdict.KILLED
    if exit_code is None:
        return RunVerdict.INTERRUPTED if state == "interrupted" else RunVerdict.FAILED
    return _OF_EXIT_CODE.get(exit_code, RunVerdict.FAILED)


def _best(steps: Sequence[Row]) -> tuple[float | None, int | None]:
    """Delivered rate and end-to-end p99 of the step that delivered most per second."""
    best = max(steps, key=lambda step: step["delivered_per_s"] or 0.0, default=None)
    if best is None or not best["delivered_per_s"]:
        return None, None
    return best["delivered_per_s"], best[f"{best['e2e_series']}_p99_ns"]
