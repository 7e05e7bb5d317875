"""The checks of a whole run by its manifest, ledger and events, and the facts that they need of a manifest.

Pure: facts in, checks out. The facts of a run are columns of the report's table ``runs``; :func:`facts_of` makes them
from a manifest. ``rows`` are the steps that have results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final
from urllib.parse import urlsplit

from perftest.results.hosts import START_SKEW_MAX_NS
from perftest.results.modelled_drives import drives_check
from perftest.results.summary import CLOSED, MIXED, OPEN, run_loop
from perftest.results.trust import Check, Facts, Status, judged

COMPLETE: Final = 0.9
"""Share of its planned time below which a measured step is called short."""

_VIOLATIONS: Final = ("lost", "duplicated", "reordered", "unexpected", "damaged")
_IN_ORDER: Final = {"key": "no key out of order", "none": "the queues promise no order"}
"""The good news about the order that was checked; other orders: none out of order."""
_LOOPS: Final = {
    CLOSED: "closed loop: a slow broker slows the load down, so latencies hold at the rate that was reached, not above",
    OPEN: "open loop: the schedule was fixed in advance; *_sched latencies start at the intended time",
    MIXED: "open and closed loops: only steps with a schedule have *_sched latencies, which start at the intended time",
}
_ONE_MACHINE: Final = (
    "generator and brokers shared one machine: they competed for its CPU and disk, and no network was crossed"
)
_USER_CPU_ONLY: Final = (
    "the broker tells its user CPU time only: its CPU figures leave out the time that its kernel spent for it"
)
_COUNTED: Final = {
    "connection_lost": ("connection lost", "connections lost"),
    "channel_closed": ("channel closed by the broker", "channels closed by the broker"),
    "consumer_cancelled": ("consumer cancelled by the broker", "consumers cancelled by the broker"),
    "metrics_lost": ("loss of the broker's own figures", "losses of the broker's own figures"),
    "node_lost": ("broker node did not answer", "times a broker node did not answer"),
    "host_lost": ("load host lost, with its share of the load", "load hosts lost, with their shares of the load"),
    "worker_lost": ("worker lost, with its share of the load", "workers lost, with their shares of the load"),
    "clock_changed": ("change of a host's clock", "changes of hosts' clocks"),
    "drain_timeout": ("drain that ran out of time", "drains that ran out of time"),
    "action": ("action of the timeline", "actions of the timeline"),
    "action_failed": ("action that failed", "actions that failed"),
    "error": ("error", "errors"),
}
_ADDED: Final = ("blocked_ns", "dropped", "polls", "empty")
"""Numbers that events carry, added up over the events."""


class Disturbances:
    """Counts the events of a run that a reader must know of beside its figures; :meth:`event` takes every event."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._steps: set[int] = set()

    def event(self, record: Mapping[str, object]) -> None:
        """Count an event."""
        kind, step = str(record.get("kind")), record.get("step")
        self._kinds[kind] += 1
        if isinstance(step, int) and (kind in _COUNTED or kind in ("blocked", "dropped")):
            self._steps.add(step)
        for name in _ADDED:
            number = record.get(name)
            if isinstance(number, int):
                self._sums[name] += number

    def check(self) -> Check:
        """The disturbances in words, and the steps in which they happened."""
        words = []
        for kind, (one, many) in _COUNTED.items():
            if count := self._kinds[kind]:
                words.append(f"1 {one}" if count == 1 else f"{count:,} {many}")
        if self._kinds["blocked"]:
            words.append(f"connections blocked by the broker for {self._sums['blocked_ns'] / 1e9:.1f} s, added up")
        if dropped := self._sums["dropped"]:
            words.append(f"{dropped:,} overdue messages not sent")
        if not words:
            return Check("disturbances", Status.PASS, "no connection was lost or blocked, no node lost")
        text = f"while the run lasted: {', '.join(words)}"
        lost = self._kinds["host_lost"] or self._kinds["worker_lost"]  # the figures mix two different loads
        return Check("disturbances", Status.FAIL if lost else Status.WARN, text, steps=tuple(sorted(self._steps)))

    def polls(self) -> str:
        """The number of polls that found the queue empty; an empty text without polls."""
        polls, empty = self._sums["polls"], self._sums["empty"]
        return f"polls   {polls:,}, of which {empty:,} ({empty / polls:.0%}) found the queue empty" if polls else ""


def facts_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The facts in a manifest for the checks; ``wanted_s`` is the planned length of each step without its warm-up."""
    plan, broker, ended = manifest["plan"], manifest.get("broker") or {}, manifest.get("ended") or {}
    lengths = {step.get("number"): (step.get("duration_s"), step.get("warmup_s")) for step in plan["steps"]}
    return {
        "state": manifest.get("state"),
        "ended_reason": ended.get("reason"),
        "loop": run_loop(plan),
        "steps_planned": len(plan["steps"]),
        "wanted_s": {number: whole - (warmup or 0) for number, (whole, warmup) in lengths.items() if whole},
        "one_machine": one_machine(broker.get("uris") or (), len(manifest.get("hosts") or ())),
        "cpu_kind": broker.get("cpu_kind"),
        "drives": broker.get("drives") or (),
        "hosts": manifest.get("hosts") or (),
        "clock_bound_ns": max(
            (int(each.get("clock_bound_ns") or 0) for each in manifest.get("hosts") or ()), default=0
        ),
        "background": background_names(plan),
        "durability": str(broker.get("durability") or ""),
    }


def background_names(plan: Mapping[str, Any]) -> str:
    """The names of the background loads of a plan, in a sentence; empty without any."""
    return ", ".join(str(load.get("name", "")) for load in plan.get("background") or ())


def one_machine(uris: Sequence[str], hosts: int) -> bool:
    """Whether generator and brokers shared a machine: one load host, and loopback addresses only."""
    names = {urlsplit(uri).hostname or "" for uri in uris if uri}
    return bool(names) and hosts <= 1 and all(name in ("localhost", "::1") or name[:4] == "127." for name in names)


def run_checks(
    run: Facts, rows: Sequence[Facts], ledger: Mapping[str, Any] | None, disturbances: Disturbances
) -> list[Check]:
    """The checks of a whole run: ``run`` has the keys of :func:`facts_of`."""
    checks = [_finished(run), _ledger(ledger, rows), _complete(run, rows), disturbances.check()]
    checks.append(Check("loop", Status.PASS, _LOOPS[run["loop"]]))
    if run["one_machine"]:
        checks.append(Check("loopback", Status.NOTE, _ONE_MACHINE))
    if run.get("cpu_kind") == "user":
        checks.append(Check("broker_cpu", Status.NOTE, _USER_CPU_ONLY))
    if (of_drives := drives_check(run.get("drives") or ())) is not None:
        checks.append(of_drives)
    return [*checks, *_of_hosts(run.get("hosts") or ())]


def _of_hosts(hosts: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Whether every host of a run on several stayed to the end, and whether all began together."""
    if len(hosts) < 2:
        return
    lost = [(str(host.get("name")), host["lost"]) for host in hosts if isinstance(host.get("lost"), Mapping)]
    text = f"all {len(hosts)} hosts stayed to the end"
    if lost:
        told = ", ".join(f"{name} ({of.get('reason') or 'nobody knows why'})" for name, of in lost)
        text = f"{len(lost)} of {len(hosts)} hosts lost: {told}; what they did after that is missing"
    yield Check("lost_hosts", Status.WARN if lost else Status.PASS, text)
    began = [host["start_skew_ns"] for host in hosts if isinstance(host.get("start_skew_ns"), int)]
    if began:
        apart_ns = max(began) - min(0, *began)
        text = f"the hosts began within {apart_ns / 1e6:.2f} ms of each other"
        yield judged("start_skew", text, warn=(apart_ns > START_SKEW_MAX_NS, "at first the load was only a part of it"))


def _finished(run: Facts) -> Check:
    state, reason = run["state"], run.get("ended_reason")
    if state == "finished":
        return Check("finished", Status.PASS, "the run came to its planned end")
    if state == "running":
        text = "the run was killed or is still running: what is here is what had been written"
        return Check("finished", Status.FAIL, text)
    because = f": {reason}" if isinstance(reason, str) and reason not in ("", state) else ""
    text = f"the run was not finished but {state}{because}"
    return Check("finished", Status.WARN if state == "interrupted" else Status.FAIL, text)


def _complete(run: Facts, rows: Sequence[Facts]) -> Check:
    measured, planned = len({row["step"] for row in rows}), run["steps_planned"]
    short = [row for row in rows if _is_short(row, run["wanted_s"].get(row["step"], inf))]
    text = f"{measured} of {planned} planned steps have results"
    if short:
        labels = [row["label"] or f"step {row['step']}" for row in short]
        text += f", {', '.join(labels)} for a shorter time than planned"
    status = Status.FAIL if not rows else Status.WARN if short or measured < planned else Status.PASS
    return Check("complete", status, text, steps=tuple(row["step"] for row in short))


def _is_short(row: Facts, wanted_s: float) -> bool:
    return wanted_s < inf and row["length_ns"] < COMPLETE * wanted_s * 1e9


def _ledger(ledger: Mapping[str, Any] | None, rows: Sequence[Facts]) -> Check:
    if ledger is None:
        # Whatever the figures are, the messages behind them may be lost.
        text = "there is no ledger: the run was killed before loss and order could be checked"
        return Check("ledger", Status.FAIL, text)
    verdict = ledger.get("verdict")
    unsafe = [str(each.get("name")) for each in ledger.get("background", ()) if each.get("verdict") == "violated"]
    if verdict == "violated":
        counts = ", ".join(f"{int(ledger[name]):,} {name}" for name in _VIOLATIONS if ledger.get(name))
        counts += " (within their keys)" if ledger.get("order") == "key" and ledger.get("reordered") else ""
        return Check("ledger", Status.FAIL, f"messages were not safe: {counts or 'see the ledger'}")
    if unsafe:
        return Check("ledger", Status.FAIL, f"messages of the background load were not safe: {', '.join(unsafe)}")
    if verdict == "ok":
        in_order = _IN_ORDER.get(str(ledger.get("order")), "none out of order")
        text = f"{ledger.get('unique', 0):,} messages delivered; none lost, {in_order}"
        return Check("ledger", Status.PASS, text)
    return Check("ledger", Status.WARN, _unknown_in_words(ledger, rows))


def _unknown_in_words(ledger: Mapping[str, Any], rows: Sequence[Facts]) -> str:
    """Why it is unknown whether messages were lost."""
    left = ledger.get("undelivered", 0)
    if rows and not any(row["settings"].get("consumers", 1) for row in rows):
        what = f"the {left:,} confirmed messages are" if left else "what was published is"
        return f"nobody consumes in this run: whether {what} all there is not known"
    if not left:
        return "not drained, and what did not come was not confirmed: whether it was stored or lost is not known"
    text = f"not drained, {left:,} confirmed messages were not delivered yet: loss cannot be ruled out"
    foreign = ledger.get("foreign", 0)
    return f"{text}; {foreign:,} messages of others came, so somebody shares these queues" if foreign else text
