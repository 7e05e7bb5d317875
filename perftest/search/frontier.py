"""Compares settings by rate and latency: the frontier, the recommended setting, and the published rules of thumb.

A point is one setting, run in a closed loop, with its delivered rate and its latency. The frontier has the points that
no other point beats in both. There are two published rules of thumb
(https://www.rabbitmq.com/blog/2020/05/14/quorum-queues-and-flow-control-single-queue-benchmarks): a higher in-flight
limit pays until it saturates, and the best ack interval is 5 to 10 % of the prefetch, while an interval of 1 is fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from perftest.metrics.figures import three_figures

ENOUGH: Final = 0.95
"""Part of the best rate from which on a rate counts as the best: a smaller difference is noise."""
NEAR: Final = 0.8
"""Part of the best rate from which on a single probe may only have been unlucky."""
RULE: Final = (0.05, 0.10)
"""The ack interval of the rule of thumb, as a part of the prefetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting with its ``rate`` in messages per second and its end-to-end p99, ``latency_ns``.

    ``missed`` are the objectives that the setting missed, and other reasons against it. ``limits`` say that the load
    generator was the limit of its probes, so the broker's figures for this setting are not known. ``rates`` are the
    rates of its probes, if the setting was probed more than once.
    """

    in_flight: int
    prefetch: int
    ack_interval: int
    rate: float
    latency_ns: float
    missed: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()

    @property
    def fit(self) -> bool:
        """Whether the setting may be recommended."""
        return not self.missed and not self.limits

    @property
    def setting(self) -> str:
        """The setting in words."""
        return f"in-flight {self.in_flight}, prefetch {self.prefetch}, ack interval {self.ack_interval}"


def grid(in_flight: Iterable[int], prefetch: Iterable[int], parts: Iterable[float]) -> list[tuple[int, int, int]]:
    """Every combination of the settings, without repetitions. Ack intervals are parts of the prefetch, at least 1."""
    limits, windows = list(in_flight), list(prefetch)
    found = ((limit, window, max(round(window * part), 1)) for limit in limits for window in windows for part in parts)
    return list(dict.fromkeys(found))


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats in rate and latency, by rising rate; without points that the generator
    limited."""
    best: list[Point] = []
    for point in sorted(_judged(points), key=lambda each: (-each.rate, each.latency_ns)):
        if not best or point.latency_ns < best[-1].latency_ns:
            best.append(point)
    return best[::-1]


def recommend(points: Sequence[Point]) -> Point | None:
    """The point with the lowest latency among the fit points within 5 % of the best rate; None if no point is fit."""
    good = [point for point in points if point.fit]
    most = max((point.rate for point in good), default=0.0)
    enough = [point for point in good if point.rate >= ENOUGH * most]
    return min(enough, key=lambda point: (point.latency_ns, -point.rate), default=None)


def contenders(points: Sequence[Point]) -> list[Point]:
    """The points that need more probes.

    These are the points near the best rate, which might be recommended, and the other ack intervals of the recommended
    point, because the rule of thumb is judged by them.
    """
    chosen = recommend(points)
    if chosen is None:
        return []
    near = NEAR * max(point.rate for point in points if point.fit)
    window = (chosen.in_flight, chosen.prefetch)
    return [p for p in points if (not p.missed and p.rate >= near) or (p.in_flight, p.prefetch) == window]


def _judged(points: Iterable[Point]) -> list[Point]:
    """The points whose figures are the broker's and not the generator's."""
    return [point for point in points if not point.limits]


def settled(probes: Iterable[Point]) -> list[Point]:
    """One point for each setting, from all of its probes: with medians, and with misses and limits of most probes."""
    by_setting: dict[str, list[Point]] = {}
    for each in probes:
        by_setting.setdefault(each.setting, []).append(each)
    return [_median(alike) for alike in by_setting.values()]


def _median(alike: Sequence[Point]) -> Point:
    bad = [point.missed for point in alike if point.missed]
    limited = [point.limits for point in alike if point.limits]
    return replace(
        alike[0],
        rate=median(point.rate for point in alike),
        latency_ns=median(point.latency_ns for point in alike),
        missed=bad[-1] if 2 * len(bad) > len(alike) else (),
        limits=limited[-1] if 2 * len(limited) > len(alike) else (),
        rates=tuple(sorted(point.rate for point in alike)),
    )


def sentences(points: Sequence[Point]) -> list[str]:
    """Sentences about the points, the recommendation first. Points that the generator limited are not compared."""
    judged = _judged(points)
    compared = _comparison(judged) if judged or not points else ["no setting can be recommended"]
    return [*compared, *_invalid(points, len(judged))]


def _invalid(points: Sequence[Point], judged: int) -> list[str]:
    """A sentence about the settings that cannot be judged, with the highest rate among them."""
    limited = [point for point in points if point.limits]
    if not limited:
        return []
    most = max(limited, key=lambda point: point.rate)
    rest = "every other one was compared" if judged else "none was compared"
    return [
        f"INVALID: in {len(limited)} of {len(points)} settings the load generator or its machine was the limit, "
        "not the broker; "
        f"{rest}. What they can do is not known: with {most.setting} at least {most.rate:,.0f} msg/s"
    ]


def _comparison(points: Sequence[Point]) -> list[str]:
    chosen = recommend(points)
    if chosen is None:
        missed = sorted({each for point in points for each in point.missed})
        return [f"no setting can be recommended: {'; '.join(missed) or 'nothing was measured'}"]
    latency_ms = chosen.latency_ns / 1e6
    found = [
        f"recommended: {chosen.setting}: {chosen.rate:,.0f} msg/s at a 99th percentile of "
        f"{three_figures(latency_ms)} ms"
    ]
    found += _saturation(points)
    found += _ack_rule(points, chosen)
    return found


def _saturation(points: Sequence[Point]) -> list[str]:
    """A sentence about the in-flight limit from which on a higher limit does not pay."""
    limits = sorted({point.in_flight for point in points})
    if len(limits) < 2:
        return []
    best = {limit: max((p for p in points if p.in_flight == limit), key=lambda p: p.rate) for limit in limits}
    most = max(point.rate for point in best.values())
    enough = next(limit for limit in limits if best[limit].rate >= ENOUGH * most)
    if enough == limits[-1]:
        return [f"the rate still grows at in-flight {enough}, the highest tried: it is not saturated"]
    last, here = best[limits[-1]], best[enough]
    gain = 100 * (last.rate / here.rate - 1)
    costs = f"{gain:+.0f} % rate at {last.latency_ns / max(here.latency_ns, 1):.1f} times the latency"
    return [f"in-flight saturates at {enough}: {limits[-1]} brings {costs} (as the rule of thumb says)"]


def _ack_rule(points: Sequence[Point], chosen: Point) -> list[str]:
    """Sentences that compare the ack interval of the rule of thumb with the best ack interval."""
    alike = [p for p in points if (p.in_flight, p.prefetch) == (chosen.in_flight, chosen.prefetch)]
    low, high = RULE
    by_rule = [p for p in alike if low <= p.ack_interval / p.prefetch <= high]
    if len(alike) < 2 or not by_rule:
        return []
    best, ruled = max(alike, key=lambda p: p.rate), max(by_rule, key=lambda p: p.rate)
    part = f"{100 * best.ack_interval / best.prefetch:.2g} % of the prefetch"
    if ruled.rate >= ENOUGH * best.rate:
        beside = "the best" if ruled is best else f"the best, {best.ack_interval}, {best.rate:,.0f}"
        found = [
            f"the rule of thumb for the ack interval (5 to 10 % of the prefetch) holds: {ruled.ack_interval} gives "
            f"{ruled.rate:,.0f} msg/s, {beside}"
        ]
    elif _overlap(ruled, best):
        found = [
            "whether the rule of thumb for the ack interval (5 to 10 % of the prefetch) holds cannot be told: "
            f"probes of {ruled.ack_interval} gave {_range(ruled)} msg/s, of {best.ack_interval} {_range(best)}"
        ]
    else:
        found = [
            f"the rule of thumb for the ack interval (5 to 10 % of the prefetch) does not hold here: "
            f"{ruled.ack_interval} gives {ruled.rate:,.0f} msg/s, {best.ack_interval} ({part}) {best.rate:,.0f}"
        ]
    single = next((p for p in alike if p.ack_interval == 1), None)
    if single is not None and single is not best:
        found.append(f"an ack interval of 1 gives {100 * single.rate / best.rate:.0f} % of the best rate")
    return found


def _overlap(slower: Point, faster: Point) -> bool:
    """Whether a probe of the slower point was as fast as a probe of the faster point."""
    return bool(slower.rates and faster.rates) and slower.rates[-1] >= faster.rates[0]


def _range(point: Point) -> str:
    return f"{point.rates[0]:,.0f} to {point.rates[-1]:,.0f}"
