"""The checks of a step, and what a check is. The checks of a whole run are in :mod:`perftest.results.run_checks`.

The list of all checks, and the verdict of the run, are made once, at its end (:mod:`perftest.results.trust_list`).

Pure: the facts of a step in, checks out. The facts are a row of ``result.json``, or the same made from a row of the
report's table ``steps`` (:mod:`reports.stats.validity`). So the terminal and the page judge a step by the same limits,
in the same words. ``pass`` is said too, so that a missing check is seen to be missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from perftest.metrics.figures import three_figures
from perftest.results.summary import OPEN

CPU_SHARE_WARN: Final = 0.85
"""Share of a core above which a worker often waits for itself, so that its latencies are partly its own."""
CPU_SHARE_INVALID: Final = 0.95
"""Share of a core from which on a worker, which is one thread, is at its limit: the rate is the worker's, not the
broker's."""
SHARE_WINDOW_MIN_NS: Final = 500_000_000
"""Shortest step for which a share of CPU time is told. The system counts stolen time in ticks of 10 ms, and a load of a
few messages consists of its start alone."""
WAIT_SHARE_WARN: Final = 0.05
"""Share of its time without a core at which a worker was held up by other work on its machine. Its figures then measure
that machine as much as the broker."""
WAIT_SHARE_LONG: Final = 0.2
"""Share of its time without a core at which even a worker with time to spare is warned of: its waits are in the
latencies."""
PAUSE_WARN: Final = 1.0
"""Ratio of the generator's longest pause to the p99 of its step from which on the pause is warned of. A pause below the
p99 is lost among latencies that were as long without it. A pause above made the highest percentiles. A limit in
milliseconds would miss the pause of 5 ms that is the whole tail of a fast broker, and would blame a pause of 25 ms
beside a queue of a second."""
STEAL_WARN, STEAL_FAIL = 0.01, 0.25
"""Shares of the host's CPU time over the whole step that the hypervisor took. Stolen time is in every latency."""
ACHIEVED_MIN: Final = 0.99
"""Smallest ratio of published to intended messages. Below it the load was another than the plan's; other checks say
why."""
KEPT_UP_MIN: Final = 0.98
"""Smallest ratio of delivered to published messages. Below it the queue grew, and the end-to-end latency tells its
length. With 2 % left behind, the last message of a step of 10 s waits 0.2 s, which is more than most latencies that are
to be measured."""
SCHEDULE_LAG_WARN, SCHEDULE_LAG_FAIL = 0.1, 0.5
"""Shares of the step's p99 from the intended time that the p99 of the lag may have. A broker that stalls makes windows
full and sends late. A lag of more than half the tail is the generator's own doing only if the generator had nothing
left."""
HOST_CPU_WARN: Final = 90.0
"""CPU of a load host, in percent, from which on the host is a second generator at its limit."""
ACCOUNTED_WARN, ACCOUNTED_FAIL = 0.001, 0.01
"""Differences between latency samples and deliveries, as a share of the deliveries."""
SAMPLES_ABOVE: Final = 10
"""Smallest number of samples above a percentile: 10/(1-p) in all."""

NOT_THE_BROKERS: Final = frozenset({"generator_cpu", "steal", "clock"})
"""Checks that fail when the figures of a step are not the broker's."""

_SHOWN: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}

Facts = Mapping[str, Any]
Consequence = tuple[bool, str]
"""Whether the event happened, and what that means for the figures."""
_NONE: Final[Consequence] = (False, "")


class Status(StrEnum):
    """How a check came out. FAIL: the figure is wrong, or the load generator rather than the broker made it. WARN: the
    figure needs care. NOTE: something that a reader must know; it carries no weight."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    NOTE = "note"

    @property
    def weight(self) -> int:
        """To order by: higher is worse."""
        return ("pass", "note", "warn", "fail").index(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One check and a clause about it. ``degree`` tells the worst of several steps with the same status: higher is
    worse. ``steps`` are the numbers of the steps that a check of a whole run is about."""

    check: str
    status: Status
    text: str
    degree: float = 0.0
    steps: tuple[int, ...] = ()

    def to_json(self) -> dict[str, str]:
        """As an entry of a row's ``trust``."""
        return {"check": self.check, "status": str(self.status), "text": self.text}

    def to_list_json(self) -> dict[str, Any]:
        """As an entry of the trust list of a run, with its steps."""
        return self.to_json() | ({"steps": list(self.steps)} if self.steps else {})

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Check:
        """The check of :meth:`to_json` or :meth:`to_list_json`. Raises KeyError, TypeError or ValueError for anything
        else."""
        steps = tuple(int(step) for step in record.get("steps", ()))
        return cls(str(record["check"]), Status(record["status"]), str(record["text"]), steps=steps)


def title(check: str) -> str:
    """The name of a check for people: ``generator CPU`` for ``generator_cpu``."""
    return check.replace("_", " ").replace("cpu", "CPU")


def judged(
    check: str, text: str, degree: float = 0.0, *, fail: Consequence = _NONE, warn: Consequence = _NONE
) -> Check:
    """The gravest that applies; PASS with the bare ``text`` if neither does."""
    for status, (applies, meaning) in ((Status.FAIL, fail), (Status.WARN, warn)):
        if applies:
            return Check(check, status, f"{text}: {meaning}", degree)
    return Check(check, Status.PASS, text, degree)


def step_checks(row: Facts) -> list[Check]:
    """The checks of one step, by its row of ``result.json``. Facts that earlier versions did not have may be absent."""
    return [check for judge in STEP_CHECKS if (check := judge(row)) is not None]


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """The checks in the order in which a reader wants them: failures, warnings, notes, passes."""
    found = (replace(check, degree=0.0) for check in checks)  # a degree is of use only where steps are compared
    return sorted(found, key=lambda check: -check.status.weight)


def of_all_steps(rows: Sequence[Facts]) -> list[Check]:
    """Each check of the steps once, for all of them: with the gravest status of all steps, in the words of the worst
    step, and with the numbers of the steps in which it did not pass."""
    by_name: dict[str, list[tuple[Facts, Check]]] = {}
    for row in rows:
        for check in step_checks(row):
            by_name.setdefault(check.check, []).append((row, check))
    return [_of_worst(found, several=len(rows) > 1) for found in by_name.values()]


def _of_worst(found: Sequence[tuple[Facts, Check]], *, several: bool) -> Check:
    worst_row, worst = max(found, key=lambda each: (each[1].status.weight, each[1].degree))
    against = [row for row, check in found if check.status is not Status.PASS]
    others = [str(row["label"]) for row in against if row is not worst_row]
    also = f"; also {others[0]}{f' and {len(others) - 1} more' if len(others) > 1 else ''}" if others else ""
    where = f" ({worst_row['label']}{also})" if several else ""
    steps = tuple(dict.fromkeys(int(row["step"]) for row in against))
    return replace(worst, text=f"{worst.text}{where}", steps=steps)


def is_limited(trust: Iterable[Mapping[str, str]]) -> bool:
    """Whether the figures of a step with this ``trust`` show the load generator or its machine, not the broker."""
    return any(check["check"] in NOT_THE_BROKERS and check["status"] == Status.FAIL for check in trust)


def supported(count: int) -> str:
    """The highest of the shown percentiles that ``count`` samples support, or an empty string."""
    names = [name for name, percentile in _SHOWN.items() if supports(count, percentile)]
    return names[-1] if names else ""


def supports(samples: float, percentile: float) -> bool:
    """Whether enough of the ``samples`` lie above a percentile (0..100) to call it measured."""
    # A float such as 100 - 99.9 is a hair off: the comparison must not be.
    return bool(samples * (100.0 - percentile) / 100.0 >= SAMPLES_ABOVE - 1e-6)


def samples_for(percentile: float) -> int:
    """The fewest samples that support a percentile (0..100): 10,000 for 99.9."""
    return math.ceil(SAMPLES_ABOVE * 100.0 / (100.0 - percentile) - 1e-6)


# The generator and its machine


def _is_too_short(row: Facts) -> bool:
    return bool(row.get("length_ns", SHARE_WINDOW_MIN_NS) < SHARE_WINDOW_MIN_NS)


def _too_short(row: Facts, check: str, what: str) -> Check:
    """A share of a time that is too short for shares."""
    return Check(
        check, Status.PASS, f"measured for {three_figures(row['length_ns'] / 1e6)} ms: too short to tell {what}"
    )


def _generator_cpu(row: Facts) -> Check:
    share = row.get("worker_cpu_share")
    if _is_too_short(row):
        return _too_short(row, "generator_cpu", "whether the load workers were the limit")
    if share is None:
        return Check("generator_cpu", Status.WARN, "the CPU time of the load workers is unknown: it may be the limit")
    return judged(
        "generator_cpu",
        f"the busiest load worker used {share:.0%} of a core",
        share,
        fail=(_is_client_limited(row), "the generator, not the broker, set this rate"),
        warn=(share > CPU_SHARE_WARN, f"above {CPU_SHARE_WARN:.0%}, some of the latency is the generator's"),
    )


def _is_client_limited(row: Facts) -> bool:
    """Whether a step measured its own load generator.

    A worker that used its whole core is the limit in any case. In an open loop, the generator is also the limit when a
    worker had little CPU time left and the schedule was missed.
    """
    if _is_too_short(row):
        return False
    share, achieved = row.get("worker_cpu_share", 0.0), _achieved(row)
    missed = achieved is not None and achieved < ACHIEVED_MIN and share > CPU_SHARE_WARN
    return bool(missed or share >= CPU_SHARE_INVALID)


def _generator_wait(row: Facts) -> Check | None:
    wait = row.get("worker_wait_share")
    if wait is None:
        return None
    if _is_too_short(row):
        return _too_short(row, "generator_wait", "whether a load worker had to wait for a core")
    text = f"a load worker that was ready to run waited for a core {wait:.0%} of the time"
    meaning = "it ran the rest, so this machine had no core left for the generator"
    if not _is_hindered(row):
        meaning = "each of these waits is in a latency"
    return judged("generator_wait", text, wait, warn=(_is_hindered(row) or wait >= WAIT_SHARE_LONG, meaning))


def _is_hindered(row: Facts) -> bool:
    """Whether a worker had work to do all the time and did not get a core for all of it."""
    wait = row.get("worker_wait_share", 0.0)
    return not _is_too_short(row) and bool(
        wait >= WAIT_SHARE_WARN and row.get("worker_cpu_share", 0.0) + wait >= CPU_SHARE_INVALID
    )


def _loop_lag(row: Facts) -> Check | None:
    latencies = (row["latency"].get(name, {}) for name in ("e2e_sched", "e2e", "confirm_sched", "confirm"))
    p99_ns = next((latency["p99_ns"] for latency in latencies if latency.get("p99_ns")), 0)
    if not p99_ns:
        return None  # no latency that a pause could be in
    # A pause between two beats of the loop's timer is no lag: the collector tells of its pauses by itself.
    lag_ns, pause_ns = row["loop_lag_ns"], row.get("gc_pause_ns", 0)
    text = f"the load worker's event loop was late by {lag_ns / 1e6:.1f} ms at most"
    if row.get("gc_collections"):
        text += f", the longest of {row['gc_collections']:,} garbage collections took {pause_ns / 1e6:.1f} ms"
    part = max(lag_ns, pause_ns) / p99_ns
    meaning = f"above the step's p99 of {p99_ns / 1e6:.1f} ms, so the highest percentiles hold the generator's delay"
    return judged("loop_lag", text, part, warn=(part > PAUSE_WARN, meaning))


def _host_cpu(row: Facts) -> Check | None:
    busy = row.get("host_cpu_percent")
    if busy is None:
        return None
    full = (busy >= HOST_CPU_WARN, "whatever else ran there, the generator had to wait for it")
    return judged("host_cpu", f"the busiest load host used {busy:.0f}% of its CPU", busy, warn=full)


def _steal(row: Facts) -> Check | None:
    share = row.get("steal_share")
    if share is None:
        return None
    if _is_too_short(row):
        return _too_short(row, "steal", "what the hypervisor took")
    share = min(share, 1.0)  # runs of earlier versions may have more: theft of before the step
    return judged(
        "steal",
        f"the hypervisor took {share:.1%} of the load host's CPU time",
        share,
        fail=(share >= STEAL_FAIL, "rates and latencies are those of its other guests as much as the broker's"),
        warn=(share >= STEAL_WARN, "that time is in every latency"),
    )


def _clock(row: Facts) -> Check:
    bound_ns = row.get("clock_bound_ns", 0)
    if bound_ns:
        return _two_clocks(row, bound_ns)
    count = row.get("negative_latencies", 0)
    meaning = "the clocks disagree by more than the latency"
    return judged("clock", f"{count:,} messages arrived before they were sent", count, fail=(count > 0, meaning))


def _two_clocks(row: Facts, bound_ns: int) -> Check:
    """Messages that crossed from one host to another were timed by the clocks of both."""
    wrong = row.get("negative_latencies", 0) + row.get("beyond_bound", 0)
    below, bound = ", ".join(below_the_clocks(row)), f"±{bound_ns / 1000:,.0f} µs"
    if wrong:
        text = f"{wrong:,} messages arrived before they were sent, by more than the clocks leave open ({bound})"
        return Check("clock", Status.FAIL, f"{text}: a clock is wrong", wrong)
    if below:
        text = f"{below} of end-to-end latency are below what the clocks of the hosts can tell ({bound})"
        return Check("clock", Status.WARN, f"{text}: read them as at most so much more", bound_ns)
    text = f"the clocks of the hosts agree within {bound}, which is less than every percentile of end-to-end latency"
    return Check("clock", Status.PASS, text, bound_ns)


def below_the_clocks(row: Facts, series: str = "e2e") -> list[str]:
    """The shown percentiles of an end-to-end latency that are less than the clocks of the hosts leave open."""
    latency, bound_ns = row["latency"].get(series, {}), row.get("clock_bound_ns", 0)
    keys = {name: f"{name.replace('.', '')}_ns" for name in _SHOWN}
    return [name for name, key in keys.items() if latency.get("count") and latency.get(key, bound_ns) < bound_ns]


# The schedule


def _achieved(row: Facts) -> float | None:
    """Published over intended in an open loop: with a rate, a cycle of rates, or a trace.

    None in a closed loop, and where nothing was intended: at a rate of 0, or in a pause of a cycle.
    """
    fixed = row["settings"].get("rate")
    scheduled = row["loop"] == OPEN if "loop" in row else bool(fixed)  # rows of earlier versions do not tell
    if not scheduled or not (row["intended"] or fixed):
        return None
    return float(row["published"] / row["intended"]) if row["intended"] else 0.0


def _intended_rate(row: Facts) -> Check | None:
    part = _achieved(row)
    if part is None:
        return None
    meaning = "broker or generator could not keep up, so read the latencies from the intended time"
    text = f"published {part:.1%} of the intended rate"
    return judged("intended_rate", text, -part, warn=(part < ACHIEVED_MIN, meaning))


def _schedule_lag(row: Facts) -> Check | None:
    lag, whole = (row["latency"].get(name, {}) for name in ("lag", "e2e_sched"))
    if not whole.get("p99_ns") or "p99_ns" not in lag:
        return None
    part = lag["p99_ns"] / whole["p99_ns"]
    spent = _is_client_limited(row) or _is_hindered(row)
    return judged(
        "schedule_lag",
        f"messages left {lag['p99_ns'] / 1e6:.2f} ms late at p99, {part:.0%} of the p99 from the intended time",
        part,
        fail=(part > SCHEDULE_LAG_FAIL and spent, "the generator, which had nothing left, made most of the tail"),
        warn=(part >= SCHEDULE_LAG_WARN, "read both latencies, from the send and from the intended time"),
    )


# The messages


def _samples(row: Facts) -> Check:
    counts = {name: int(latency["count"]) for name, latency in row["latency"].items() if name in ("e2e", "confirm")}
    if not any(counts.values()):
        return _no_samples(row)
    name = min(counts, key=counts.__getitem__)
    count, best = counts[name], supported(counts[name])
    missing = [shown for shown, percentile in _SHOWN.items() if not supports(count, percentile)]
    if "p99" in missing:
        text = f"{count:,} samples of {name} are too few for {', '.join(missing)}"
        return Check("samples", Status.WARN, text, -count)
    beyond = f", not for {', '.join(missing)}" if missing else ""
    return Check("samples", Status.PASS, f"{count:,} samples of {name}: enough for {best}{beyond}", -count)


def _histograms(row: Facts) -> Check | None:
    delivered = row["delivered"]
    if not delivered > 0 or not row["settings"].get("publishers", 1):
        return None
    recorded = row["latency"].get("e2e", {}).get("count", 0) + row.get("negative_latencies", 0)
    part, meaning = abs(recorded - delivered) / delivered, "some are missing, counted twice, or messages of others"
    text = f"latency samples and deliveries differ by {part:.2%}"
    fail, warn = (part > ACCOUNTED_FAIL, meaning), (part > ACCOUNTED_WARN, meaning)
    return judged("histograms", text, part, fail=fail, warn=warn)


def _no_samples(row: Facts) -> Check:
    """Why there are no samples. A run that only publishes or only consumes cannot have any, so it is only warned."""
    settings = row["settings"]
    if settings.get("rate") == 0:
        return _no_latency(Status.WARN, "at a rate of 0 clients are connected and idle")
    if not settings.get("publishers", 1):
        return _no_latency(Status.WARN, "others published, at times that nothing ties to this run's clock")
    if not settings.get("consumers", 1) and not settings.get("in_flight", 1):
        return _no_latency(Status.WARN, "nobody consumes, and without confirms nobody answers")
    if row["published"] and row.get("returned", 0) >= row["published"]:
        return _no_latency(Status.FAIL, "every message was returned, for no queue is bound with its routing key")
    return _no_latency(Status.FAIL, "no message was confirmed or delivered in the time that counts")


def _no_latency(status: Status, why: str) -> Check:
    return Check("samples", status, f"no latency was recorded: {why}")


def _confirms(row: Facts) -> Check | None:
    if not row["settings"].get("publishers", 1):
        return None
    if not row["settings"].get("in_flight", 1):
        text = "published without confirms: what the broker lost before storing it is not known"
        return Check("confirms", Status.WARN, text)
    none = bool(row["published"]) and not row["confirmed"]
    text = f"{row['confirmed']:,} confirms of {row['published']:,} published messages"
    return judged("confirms", text, fail=(none, "the broker answered nothing"))


def _refusals(row: Facts) -> Check:
    nacked, returned = (int(row.get(name, 0)) for name in ("nacked", "returned"))
    text = f"{nacked:,} messages were refused by the broker (basic.nack) and {returned:,} returned"
    return judged("refusals", text, nacked + returned, warn=(nacked + returned > 0, "no queue has them"))


def _redeliveries(row: Facts) -> Check:
    count, delivered = (int(row.get(name, 0)) for name in ("redelivered", "delivered"))
    meaning = "consumers or nodes went away, or consumers gave messages back"
    return judged(
        "redeliveries", f"{count:,} of {delivered:,} deliveries were redeliveries", count, warn=(count > 0, meaning)
    )


def _backlog(row: Facts) -> Check | None:
    if not row["settings"].get("consumers", 1):
        return None
    routed = row["published"] - row.get("returned", 0)
    kept = row["delivered"] / routed if routed > 0 else 1.0
    meaning = "the queue grew, so end-to-end latency tells its length"
    return judged("backlog", f"delivered {kept:.1%} of what was published", -kept, warn=(kept < KEPT_UP_MIN, meaning))


STEP_CHECKS: Final[tuple[Callable[[Facts], Check | None], ...]] = (
    *(_generator_cpu, _generator_wait, _host_cpu, _loop_lag, _steal, _clock),
    *(_intended_rate, _schedule_lag),
    *(_samples, _histograms, _confirms, _refusals, _redeliveries, _backlog),
)
"""Every check of a step, in the order of the list."""
