"""A run as a row of the list: its facts, its two figures, and the verdict on it. Pure: the records of a run in, a row
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from perftest.results.claims import layout_title
from perftest.results.integrity import Damages
from perftest.results.summary import OPEN
from perftest.results.trust import Check, Status, title
from perftest.results.trust_list import TRUST, failed, recorded_list

Record = Mapping[str, Any]
KILLED: Final = "killed"
RUNNING: Final = "running"
DAMAGED: Final = "damaged"
REASON_MAX: Final = 240
"""Characters of a reason in the list."""


class ListedVerdict(StrEnum):
    """What is to be thought of a run, as a word of an address. UNJUDGED: the run recorded no trust list."""

    VALID = "valid"
    INVALID = "invalid"
    UNSAFE = "unsafe"
    RUNNING = "running"
    KILLED = "killed"
    DAMAGED = "damaged"
    UNJUDGED = "unjudged"

    @property
    def words(self) -> str:
        """The verdict on a page."""
        return _WORDS.get(self, str(self))

    @property
    def status(self) -> Status:
        """The weight of the verdict, by which its chip is drawn."""
        return _STATUS.get(self, Status.FAIL)


_WORDS: Final = {
    ListedVerdict.INVALID: "INVALID",
    ListedVerdict.UNSAFE: "ledger violated",
    ListedVerdict.RUNNING: "in progress",
    ListedVerdict.UNJUDGED: "not judged",
}
_STATUS: Final = {
    ListedVerdict.VALID: Status.PASS,
    ListedVerdict.RUNNING: Status.NOTE,
    ListedVerdict.UNJUDGED: Status.NOTE,
    ListedVerdict.KILLED: Status.WARN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run directory. ``state`` is the manifest's, or ``killed``, or ``damaged``; ``reason`` says why the verdict is
    not ``valid``, or what is warned of. ``delivered_per_s`` and ``p99_ns`` (end to end) belong to the step that
    delivered most per second; None if nothing was delivered. ``run_id`` is the manifest's; ``name`` the directory's."""

    name: str
    run_id: str = ""
    workload: str = ""
    title: str = ""
    started_ns: int = 0
    state: str = ""
    broker: str = ""
    queues: tuple[str, ...] = ()
    layout: str = ""
    exit_code: int | None = None
    verdict: ListedVerdict = ListedVerdict.UNJUDGED
    reason: str = ""
    delivered_per_s: float | None = None
    p99_ns: float | None = None
    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def started(self) -> str:
        """To the second, UTC; empty if unknown."""
        return f"{datetime.fromtimestamp(self.started_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}" if self.started_ns else ""

    @property
    def day(self) -> str:
        """The day of the start, UTC; empty if unknown."""
        return self.started[:10]

    @property
    def running(self) -> bool:
        """Whether the run is in progress."""
        return self.state == RUNNING

    @property
    def readable(self) -> bool:
        """Whether the run has a page: its manifest can be read."""
        return self.state != DAMAGED

    @property
    def text(self) -> str:
        """All words of the row in lower case, for a search."""
        facts = (self.name, self.workload, self.title, self.broker, self.layout, self.state, self.started, self.note)
        return " ".join((*facts, *self.queues, *self.tags, str(self.verdict), self.verdict.words)).lower()


def unreadable(name: str, reason: str) -> ListedRun:
    """The row of a directory whose manifest cannot be used."""
    verdict = ListedVerdict.DAMAGED
    return ListedRun(name=name, run_id=name, state=DAMAGED, verdict=verdict, reason=reason[:REASON_MAX])


def listed_run(
    name: str,
    manifest: Record,
    result: Record | None,
    checks: Sequence[Check] | None,
    *,
    state: str,
    violated: bool = False,
    damage: str = "",
) -> ListedRun:
    """The row of a run. ``result`` is the content of result.json, None if there is none; ``checks`` as
    :func:`checks_of` has them, and ``state`` as :class:`ListedRun`. ``violated``: the ledger says so. ``damage`` is the
    fault of result.json, empty without one."""
    figures: tuple[float | None, float | None] = (None, None)
    try:
        figures = _figures(result)
    except (KeyError, TypeError, AttributeError, ValueError):
        damage = damage or "result.json has no usable figures"
    verdict, reason = _verdict(state, checks, violated=violated, damage=damage)
    plan, broker, ended = (_object(manifest, part) for part in ("plan", "broker", "ended"))
    code = ended.get("exit_code")
    return ListedRun(
        name=name,
        run_id=str(manifest["id"]),
        workload=str(plan.get("name", "")),
        title=str(plan.get("title", "")),
        started_ns=manifest["started_ns"],
        state=state,
        broker=f"{broker.get('product', '')} {broker.get('version', '')}".strip(),
        queues=_queues(plan),
        layout=layout_title(manifest),
        exit_code=code if isinstance(code, int) else None,
        verdict=verdict,
        reason=reason[:REASON_MAX],
        delivered_per_s=figures[0],
        p99_ns=figures[1],
    )


def checks_of(manifest: Record, result: Record | None) -> Sequence[Check] | None:
    """The trust list of the manifest; of a run of an earlier version, all checks of its result. None without any."""
    found = recorded_list(manifest, Damages())
    if found is not None or result is None:
        return found
    try:
        listed = [*result.get(TRUST, ()), *(each for row in result["steps"] for each in row.get(TRUST, ()))]
        return [Check.from_json(each) for each in listed] or None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _verdict(state: str, checks: Sequence[Check] | None, *, violated: bool, damage: str) -> tuple[ListedVerdict, str]:
    """The gravest that is to be said, and why."""
    if state == RUNNING:
        return ListedVerdict.RUNNING, ""
    bad = failed(checks or ())
    why = "; ".join(f"{title(check.check)}: {check.text}" for check in bad)
    if violated:
        return ListedVerdict.UNSAFE, why or "see the ledger of the run"
    if state == KILLED:
        return ListedVerdict.KILLED, "the end of the run is missing"
    if damage:
        return ListedVerdict.DAMAGED, damage
    if checks is None:
        return ListedVerdict.UNJUDGED, "the page of the run has its checks"
    if bad:
        return ListedVerdict.INVALID, why
    warned = sum(check.status is Status.WARN for check in checks)
    return ListedVerdict.VALID, f"{warned} warning{'s' * (warned > 1)}" if warned else ""


def _figures(result: Record | None) -> tuple[float | None, float | None]:
    """Delivered messages per second, and the end-to-end p99 in ns, of the step that delivered most per second. Raises
    KeyError, TypeError, AttributeError or ValueError for a result of another form."""
    rows = [] if result is None else list(result["steps"])
    best = max(rows, key=lambda row: float(row["delivered_per_s"]), default=None)
    if best is None or not _finite(best["delivered_per_s"]):
        return None, None
    latency = best["latency"]
    leading = latency.get("e2e_sched" if best.get("loop") == OPEN else "e2e") or {}
    return _finite(best["delivered_per_s"]), _finite(leading["p99_ns"]) if leading.get("count") else None


def _finite(value: Any) -> float | None:
    """A positive figure; None for anything that cannot be drawn."""
    number = float(value)
    return number if isfinite(number) and number > 0 else None


def _queues(plan: Record) -> tuple[str, ...]:
    """The distinct types of the queues, sorted; of all groups of load."""
    loads = [plan, *_objects(plan.get("groups"))]
    return tuple(
        sorted({str(queue.get("type", "")) for load in loads for queue in _objects(load.get("queues"))} - {""})
    )


def _objects(value: object) -> list[Record]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(manifest: Record, part: str) -> Record:
    value = manifest.get(part)
    return value if isinstance(value, dict) else {}
