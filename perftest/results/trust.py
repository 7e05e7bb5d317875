"""A run's verdict on itself: may its numbers be believed?

Pure: rows and facts in, checks out. ``fail`` means that the figure is wrong, or that the load generator rather than the
broker made it. ``warn`` means that the figure needs care. ``pass`` is said too, so that a missing check is seen to be
missing.

What a check is, its limits, its rules and the sentences that follow from a ledger or a manifest alone stand here once,
for the summary in the terminal and for the report. The report (:mod:`reports.stats.validity`) judges all steps of a run
together, from tables, and has checks that need them: drift, clocks of several hosts, damaged records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from perftest.results.summary import CLOSED, MIXED, OPEN, run_loop

CPU_SHARE_WARN: Final = 0.85
"""Above it a worker often waits for itself, and its latencies are partly its own."""
CPU_SHARE_INVALID: Final = 0.95
"""From here on a worker, which is one thread, has nothing left: the rate is its own, not the broker's."""
LOOP_LAG_NS_MAX: Final = 20_000_000
"""A delay of the worker's event loop adds to the latency of everything that waited meanwhile."""
WAIT_SHARE_WARN: Final = 0.05
"""A worker that had less than this of its time left, between running and waiting for a core, was held up by whatever
else ran on its machine: what it measured is that machine as much as the broker."""
STEAL_WARN, STEAL_FAIL = 0.01, 0.25
"""Part of the host's CPU time: what the hypervisor took is in every latency."""
ACHIEVED_MIN: Final = 0.99
KEPT_UP_MIN: Final = 0.95
"""Below it the queue is longer at every interval's end: no steady state."""
SCHEDULE_LAG_WARN: Final = 0.1
"""Lag p99 over the p99 from the intended time."""
SAMPLES_ABOVE: Final = 10
"""A percentile stands on at least this many samples above it: 10/(1-p) in all."""

NOT_THE_BROKERS: Final = frozenset({"generator_cpu", "steal", "clock"})
"""Checks of a step that fail when its figures are not the broker's."""

_SHOWN: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}


class Status(StrEnum):
    """How a check came out. A NOTE says what a reader must know, and carries no weight."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    NOTE = "note"

    @property
    def weight(self) -> int:
        """To order by: higher is worse."""
        return ("note", "pass", "warn", "fail").index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check and a sentence about it. ``steps`` are the numbers of the steps that a check of the report is about."""

    check: str
    status: Status
    text: str
    steps: tuple[int, ...] = ()

    def to_json(self) -> dict[str, str]:
        """As an entry of a row's ``trust``."""
        return {"check": self.check, "status": str(self.status), "text": self.text}


_COUNTED: Final = {
    "connection_lost": ("connection lost", "connections lost"),
    "channel_closed": ("channel closed by the broker", "channels closed by the broker"),
    "consumer_cancelled": ("consumer cancelled by the broker", "consumers cancelled by the broker"),
    "metrics_lost": ("loss of the broker's own figures", "losses of the broker's own figures"),
    "node_lost": ("broker node did not answer", "times a broker node did not answer"),
}
_ADDED: Final = ("blocked_ns", "dropped", "polls", "empty")
"""Numbers that events carry: each counts for itself."""


class Disturbances:
    """Counts the events of a run that a reader must know of beside its figures; :meth:`event` takes every event."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()

    def event(self, record: Mapping[str, object]) -> None:
        """Count an event."""
        self._kinds[str(record.get("kind"))] += 1
        for name in _ADDED:
            number = record.get(name)
            if isinstance(number, int):
                self._sums[name] += number

    def in_words(self) -> str:
        """The disturbances in words; empty if nothing happened."""
        words = []
        for kind, (one, many) in _COUNTED.items():
            if count := self._kinds[kind]:
                words.append(f"1 {one}" if count == 1 else f"{count:,} {many}")
        if self._kinds["blocked"]:
            words.append(f"connections blocked by the broker for {self._sums['blocked_ns'] / 1e9:.1f} s, added up")
        if dropped := self._sums["dropped"]:
            words.append(f"{dropped:,} overdue messages not sent")
        return f"while the run lasted: {', '.join(words)}" if words else ""

    def polls(self) -> str:
        """How many polls found the queue empty; an empty text where nobody polled."""
        polls, empty = self._sums["polls"], self._sums["empty"]
        return f"polls   {polls:,}, of which {empty:,} ({empty / polls:.0%}) found the queue empty" if polls else ""


def step_checks(row: Mapping[str, Any]) -> list[Check]:
    """The checks of one row of ``result.json``."""
    checks = [_generator_cpu(row), _waits(row), _loop_lag(row), _collections(row), _steal(row), _samples(row)]
    checks += [_schedule(row), _confirms(row), _backlog(row), _negative(row), _achieved(row)]
    return [check for check in checks if check is not None]


def run_checks(
    manifest: Mapping[str, Any], ledger: Mapping[str, Any] | None, steps: int, disturbances: Disturbances | None = None
) -> list[Check]:
    """The checks of a whole run; ``steps`` counts the steps that have results."""
    checks = [_ledger(ledger, manifest), _loop(manifest), _place(manifest), _complete(manifest, steps)]
    checks.append(_broker_cpu(manifest))
    if disturbances is not None and (text := disturbances.in_words()):
        checks.append(_warn("disturbances", text))
    return [check for check in checks if check is not None]


def worst(checks: Iterable[Check]) -> Status:
    """The gravest status of all; PASS when there are none."""
    return max((check.status for check in checks), key=lambda status: status.weight, default=Status.PASS)


def supported(count: int) -> str:
    """The highest of the shown percentiles that ``count`` samples support, or an empty string."""
    names = [name for name, percentile in _SHOWN.items() if supports(count, percentile)]
    return names[-1] if names else ""


def supports(samples: float, percentile: float) -> bool:
    """Whether enough of so many samples lie above a percentile (0..100) to call it measured."""
    # A float such as 100 - 99.9 is a hair off: the comparison must not be.
    return bool(samples * (100.0 - percentile) / 100.0 >= SAMPLES_ABOVE - 1e-6)


def _generator_cpu(row: Mapping[str, Any]) -> Check:
    share = float(row["worker_cpu_share"])
    text = f"the busiest load worker used {share:.0%} of a core"
    if is_client_limited(share, _achieved_part(row)):
        return _fail("generator_cpu", f"{text}: the generator, not the broker, set this rate")
    if share > CPU_SHARE_WARN:
        return _warn("generator_cpu", f"{text}, above {CPU_SHARE_WARN:.0%}: some of the latency is the generator's")
    return _pass("generator_cpu", text)


def is_client_limited(cpu_share: float, achieved: float | None) -> bool:
    """Whether a step measured its own load generator.

    ``cpu_share`` is that of the busiest worker, 0..1. ``achieved`` is published over intended in an open loop, and None
    in a closed loop. A worker that used its whole core is the limit in any case. In an open loop, the generator is also
    the limit when a worker had little CPU time left and the schedule was missed.
    """
    missed = achieved is not None and achieved < ACHIEVED_MIN and cpu_share > CPU_SHARE_WARN
    return missed or cpu_share >= CPU_SHARE_INVALID


def is_limited(row: Mapping[str, Any]) -> bool:
    """Whether the figures of a row (with its ``trust``) show the load generator or its machine, not the broker."""
    return any(check["check"] in NOT_THE_BROKERS and check["status"] == Status.FAIL for check in row.get("trust", ()))


def is_valid(rows: Iterable[Mapping[str, Any]], run_trust: Iterable[Mapping[str, str]]) -> bool:
    """Whether no check failed, of the run or of its steps (rows with their ``trust``). Else the run is INVALID."""
    return not any(
        check["status"] == Status.FAIL for checks in (run_trust, *(row["trust"] for row in rows)) for check in checks
    )


def _loop_lag(row: Mapping[str, Any]) -> Check:
    lag_ms = row["loop_lag_ns"] / 1e6
    text = f"the load worker's event loop was late by {lag_ms:.1f} ms at most"
    if row["loop_lag_ns"] > LOOP_LAG_NS_MAX:
        return _warn("loop_lag", f"{text}: the highest percentiles hold the generator's own delay")
    return _pass("loop_lag", text)


def is_hindered(cpu_share: float, wait_share: float) -> bool:
    """Whether a worker had work to do all the time and did not get a core for all of it.

    ``cpu_share`` is the part of the time for which the worker ran. ``wait_share`` is the part for which it was ready to
    run and waited for a core.
    """
    return wait_share >= WAIT_SHARE_WARN and cpu_share + wait_share >= CPU_SHARE_INVALID


def _waits(row: Mapping[str, Any]) -> Check | None:
    if "worker_wait_share" not in row:
        return None  # a run of an older version
    wait, cpu = float(row["worker_wait_share"]), float(row["worker_cpu_share"])
    text = f"a load worker that was ready to run waited for a core {wait:.0%} of the time"
    if is_hindered(cpu, wait):
        return _warn("generator_wait", f"{text} and ran the rest: this machine had no core left for the generator")
    return _pass("generator_wait", text)


def _collections(row: Mapping[str, Any]) -> Check | None:
    if "gc_pause_ns" not in row:
        return None
    longest_ms = row["gc_pause_ns"] / 1e6
    text = f"{row['gc_collections']:,} garbage collections of the load workers, the longest {longest_ms:.1f} ms"
    if row["gc_pause_ns"] > LOOP_LAG_NS_MAX:
        return _warn("gc", f"{text}: the highest percentiles hold it")
    return _pass("gc", text)


def _steal(row: Mapping[str, Any]) -> Check | None:
    if "steal_share" not in row:
        return None
    share = float(row["steal_share"])
    text = f"the hypervisor took {share:.1%} of this machine's CPU time"
    if share >= STEAL_FAIL:
        return _fail("steal", f"{text}: rates and latencies are those of its other guests as much as the broker's")
    return _warn("steal", f"{text}, which is in every latency") if share >= STEAL_WARN else _pass("steal", text)


def _schedule(row: Mapping[str, Any]) -> Check | None:
    """How late messages left, as a part of the p99 from the intended time. The report has the same limit."""
    lag, whole = (row["latency"].get(name, {}) for name in ("lag", "e2e_sched"))
    if not whole.get("p99_ns") or "p99_ns" not in lag:
        return None
    part = lag["p99_ns"] / whole["p99_ns"]
    text = f"messages left {lag['p99_ns'] / 1e6:.2f} ms late at p99, {part:.0%} of the p99 from the intended time"
    if part < SCHEDULE_LAG_WARN:
        return _pass("schedule_lag", text)
    return _warn("schedule_lag", f"{text}: read both latencies, from the send and from the intended time")


def _samples(row: Mapping[str, Any]) -> Check:
    counts = {name: int(latency["count"]) for name, latency in row["latency"].items() if name in ("e2e", "confirm")}
    settings = row["settings"]
    if settings.get("rate") == 0 and not any(counts.values()):
        return _warn("samples", "no latency was recorded: at a rate of 0 clients are connected and idle")
    if not any(counts.values()):
        return _no_samples(row)
    name = min(counts, key=counts.__getitem__)
    best = supported(counts[name])
    missing = [shown for shown, percentile in _SHOWN.items() if not supports(counts[name], percentile)]
    if not missing:
        return _pass("samples", f"{counts[name]:,} samples of {name}: enough for {best}")
    text = f"{counts[name]:,} samples of {name} are too few for {', '.join(missing)}"
    return _pass("samples", text) if best in ("p99", "p99.9") else _warn("samples", text)


def _no_samples(row: Mapping[str, Any]) -> Check:
    """Why there are no samples. A run that only publishes or only consumes cannot have any, so it is only warned."""
    text, settings = "no latency was recorded", row["settings"]
    if not settings.get("publishers", 1):
        return _warn("samples", f"{text}: others published, at times that nothing ties to this run's clock")
    if not settings.get("consumers", 1) and not settings["in_flight"]:
        return _warn("samples", f"{text}: nobody consumes, and without confirms nobody answers")
    if row["published"] and row.get("returned", 0) >= row["published"]:
        return _fail("samples", f"{text}: every message was returned, for no queue is bound with its routing key")
    return _fail("samples", text)


def _confirms(row: Mapping[str, Any]) -> Check | None:
    if not row["settings"].get("publishers", 1):
        return None
    if not row["settings"].get("in_flight"):
        return _warn("confirms", "published without confirms: what the broker lost before storing it is not known")
    if row["published"] and not row["confirmed"]:
        return _fail("confirms", f"none of {row['published']:,} published messages was confirmed")
    if row.get("nacked"):
        return _warn("confirms", f"{row['nacked']:,} messages were refused by the broker (basic.nack)")
    return None


def _backlog(row: Mapping[str, Any]) -> Check | None:
    if not row["settings"].get("consumers"):
        return None
    routed = row["published"] - row.get("returned", 0)
    kept = row["delivered"] / routed if routed > 0 else 1.0
    if kept < KEPT_UP_MIN:
        text = f"delivered {kept:.1%} of what was published: the queue grew, so e2e latency depends on how long it ran"
        return _warn("backlog", text)
    return _pass("backlog", "consumers kept up with publishers")


def _negative(row: Mapping[str, Any]) -> Check | None:
    count = row.get("negative_latencies", 0)
    return _fail("clock", f"{count:,} messages arrived before they were sent: the clocks disagree") if count else None


def _achieved(row: Mapping[str, Any]) -> Check | None:
    part = _achieved_part(row)
    if part is None:
        return None
    text = f"published {part:.1%} of the intended rate"
    if part < ACHIEVED_MIN:
        return _warn("intended_rate", f"{text}: broker or generator could not keep up; read the *_sched latencies")
    return _pass("intended_rate", text)


def _achieved_part(row: Mapping[str, Any]) -> float | None:
    """Published over intended in an open loop: with a rate, a cycle of rates, or a trace.

    None in a closed loop, and where nothing was intended: at a rate of 0, or in a pause of a cycle.
    """
    fixed = row["settings"].get("rate")
    scheduled = row["loop"] == OPEN if "loop" in row else bool(fixed)  # rows of earlier versions do not tell
    if not scheduled or not (row["intended"] or fixed):
        return None
    return float(row["published"] / row["intended"]) if row["intended"] else 0.0


def _ledger(ledger: Mapping[str, Any] | None, manifest: Mapping[str, Any]) -> Check:
    if ledger is None:
        return _fail("ledger", "there is no ledger: the run was killed before loss and order could be checked")
    verdict = ledger.get("verdict")
    unsafe = [str(each.get("name")) for each in ledger.get("background", ()) if each.get("verdict") == "violated"]
    if unsafe and verdict != "violated":
        return _fail("ledger", f"messages of the background load were not safe: {', '.join(unsafe)}")
    if verdict == "ok":
        return _pass("ledger", f"{ledger.get('unique', 0):,} messages delivered; none lost, none out of order")
    if verdict == "violated":
        return _fail("ledger", harm_in_words(ledger))
    return _warn("ledger", _unknown_in_words(ledger, manifest))


def _unknown_in_words(ledger: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Why nobody can say whether messages were lost."""
    left = ledger.get("undelivered", 0)
    if not any(step.get("settings", {}).get("consumers", 1) for step in manifest["plan"]["steps"]):
        what = f"the {left:,} confirmed messages are" if left else "what was published is"
        return f"nobody consumes in this run: whether {what} all there is not known"
    if not left:
        return "not drained, and what did not come was not confirmed: whether it was stored or lost is not known"
    text = f"not drained, {left:,} confirmed messages were not delivered yet: loss cannot be ruled out"
    foreign = ledger.get("foreign", 0)
    return f"{text}; {foreign:,} messages of others came, so somebody shares these queues" if foreign else text


def harm_in_words(ledger: Mapping[str, Any]) -> str:
    """What a ledger with violations says, in words."""
    counts = ", ".join(f"{int(ledger[name]):,} {name}" for name in _VIOLATIONS if ledger.get(name))
    return f"messages were not safe: {counts or 'see the ledger'}"


_VIOLATIONS: Final = ("lost", "duplicated", "reordered", "unexpected", "damaged")


def _loop(manifest: Mapping[str, Any]) -> Check:
    return _pass("loop", LOOPS[run_loop(manifest["plan"])])


LOOPS: Final = {
    CLOSED: "closed loop: a slow broker slows the load down, so latencies hold at the rate that was reached, not above",
    OPEN: "open loop: the schedule was fixed in advance; *_sched latencies start at the intended time",
    MIXED: "open and closed loops: only steps with a schedule have *_sched latencies, which start at the intended time",
}


ONE_MACHINE: Final = (
    "generator and brokers shared one machine: they competed for its CPU and disk, and no network was crossed"
)


def _place(manifest: Mapping[str, Any]) -> Check | None:
    broker = manifest.get("broker") or {}
    uris: Sequence[str] = broker.get("uris") or ()
    if uris and all(_is_loopback(uri) for uri in uris):
        return _warn("loopback", ONE_MACHINE)
    return None


USER_CPU_ONLY: Final = (
    "the broker tells its user CPU time only: its CPU figures leave out the time that its kernel spent for it"
)


def _broker_cpu(manifest: Mapping[str, Any]) -> Check | None:
    if (manifest.get("broker") or {}).get("cpu_kind") != "user":
        return None
    return _warn("broker_cpu", USER_CPU_ONLY)


def _is_loopback(uri: str) -> bool:
    host = uri.split("//", 1)[-1].split("/", 1)[0].rsplit("@", 1)[-1]
    return host.startswith(("127.", "localhost", "[::1]"))


def _complete(manifest: Mapping[str, Any], steps: int) -> Check | None:
    planned = len(manifest["plan"]["steps"])
    if steps < planned:
        return _warn(
            "complete", f"{steps} of {planned} steps have results: the run ended early ({manifest.get('state')})"
        )
    return None


def _pass(check: str, text: str) -> Check:
    return Check(check=check, status=Status.PASS, text=text)


def _warn(check: str, text: str) -> Check:
    return Check(check=check, status=Status.WARN, text=text)


def _fail(check: str, text: str) -> Check:
    return Check(check=check, status=Status.FAIL, text=text)
