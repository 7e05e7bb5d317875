"""A judged comparison of sample runs: three repetitions of a baseline, and three of a candidate whose tail is longer at
one setting. The judgement is hand-made, with a row for each verdict; the figures come from the sample tables."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import ModuleType
from typing import Any

from reports.pages.model import Page
from reports.pages.several.comparison import comparison_page
from reports.pages.several.judged import Judged, JudgedDifference, JudgedRow
from reports.stats.confidence import ChangeVerdict

REPEATS = 3
NAMES = ("runs/base", "runs/candidate")

ROWS = (
    ("in_flight=1000", "e2e.p99", "ms", 11.6, 17.9, 0.54, 0.46, 0.63, ChangeVerdict.REGRESSED),
    ("in_flight=1000", "delivered", "msg/s", 205_300.0, 193_000.0, -0.06, -0.08, -0.04, ChangeVerdict.REGRESSED),
    ("in_flight=200", "e2e.p99.9", "ms", 6.1, 6.7, 0.1, -0.04, 0.26, ChangeVerdict.INCONCLUSIVE),
    ("in_flight=200", "broker_cpu", "µs/msg", 8.1, 8.0, -0.01, -inf, inf, ChangeVerdict.INCONCLUSIVE),
    ("in_flight=20", "confirm.p50", "ms", 1.22, 1.04, -0.15, -0.17, -0.12, ChangeVerdict.IMPROVED),
    ("in_flight=20", "delivered", "msg/s", 16_100.0, 16_240.0, 0.009, 0.002, 0.016, ChangeVerdict.WITHIN_NOISE),
    ("in_flight=1", "e2e.p99", "ms", 1.64, 1.65, 0.006, -0.01, 0.02, ChangeVerdict.NO_CHANGE),
)


SUMMARY = "2 regressed, 2 inconclusive, 1 improved, 1 within noise, 1 no change detected"


def rows() -> tuple[JudgedRow, ...]:
    """A row for each verdict."""
    names = ("step", "metric", "unit", "base", "candidate", "value", "low", "high", "verdict")
    made: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in ROWS]
    return tuple(
        JudgedRow(
            **row,
            noise=0.02 if row["unit"] == "msg/s" else 0.05,
            doubt="only 800 samples" if row["low"] == -inf else "",
        )
        for row in made
    )


def samples(sample_tables: ModuleType) -> tuple[list[Any], list[Any]]:
    """The runs of both sides."""
    plain = replace(sample_tables.SWEEP, with_stages=True)
    slow = tuple(
        replace(step, sigma=0.56, rate=0.94 * step.rate, p50_ns=1.08 * step.p50_ns) if step.setting == 1000 else step
        for step in plain.steps
    )
    sides = (("base", plain), ("cand", replace(plain, steps=slow)))
    base, candidate = (
        [replace(side, run_id=f"20261121-10150{number}-in_flight-{name}") for number in range(REPEATS)]
        for name, side in sides
    )
    return base, candidate


def judged(sample_tables: ModuleType, *, refused: bool = False) -> Judged:
    """The judgement; a ``refused`` one has another host on the candidate's side, and no rows."""
    base, candidate = samples(sample_tables)
    host = JudgedDifference(facet="host", where="hosts[0].cores", base="2", candidate="8", refused=True)
    broker = JudgedDifference(facet="broker", where="broker.version", base="0.1.0", candidate="0.2.0", refused=False)
    return Judged(
        base=tuple(sample.run_id for sample in base),
        candidate=tuple(sample.run_id for sample in candidate),
        rows=() if refused else rows(),
        differences=(host, broker) if refused else (broker,),
        sentences=() if refused else (SUMMARY, "95 % confidence for all intervals"),
        noise_latency=0.05,
    )


def page(sample_tables: ModuleType, *, refused: bool = False) -> Page:
    """The page of the comparison."""
    base, candidate = samples(sample_tables)
    tables = sample_tables.tables(*base, *candidate)
    return comparison_page(judged(sample_tables, refused=refused), tables, generated="", names=NAMES)
