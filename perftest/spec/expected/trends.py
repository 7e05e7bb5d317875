"""The findings of a workload's source, as trends to look for on another cluster.

A trend says nothing about absolute figures, because hardware differs. A trend compares the figures of one metric in
several steps of one sweep, or in one step on several layouts of drives or of several workloads.
:mod:`perftest.spec.expected.findings` holds the rules of these parts, and :mod:`perftest.results.claims` says what each
trend means in figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from perftest.spec.fields import Key, Several

TOLERANCE: Final = 0.1
"""Part by which figures may differ and still count as equal, unless a finding says otherwise."""
FACTOR: Final = 1.1
"""Least factor of a rise or a fall, unless a finding says otherwise."""


class Trend(StrEnum):
    """How the metric changes over the steps of a finding.

    ``LEVEL``: each step lies between ``at_least`` and ``at_most``. That is for figures that do not depend on the
    hardware, such as how often the nodes carry a message.
    ``RISES``, ``FALLS``: from the first step to the last by at least ``factor``, and nowhere back by more than
    ``tolerance``. ``FLAT``: all steps are equal within ``tolerance``. ``RATIO``: the second step over the first lies
    between ``at_least`` and ``at_most``. ``KNEE``: the metric still rises to the last of the two steps, and no later
    step rises further; both by ``tolerance``. A single step stands for itself and its predecessor. ``BIGGEST_GAIN``: no
    other two neighbours are so far apart (in units of the metric). ``BEST``: the best of these steps is at least as
    good as every other step, within ``tolerance``.
    """

    RISES = "rises"
    FALLS = "falls"
    FLAT = "flat"
    RATIO = "ratio"
    LEVEL = "level"
    KNEE = "knee"
    BIGGEST_GAIN = "biggest_gain"
    BEST = "best"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A trend that the source found, for a verdict on whether a sweep reproduces it. A finding with layouts must hold
    in each of its steps, any other on every layout. A finding with workloads is judged if all of them ran."""

    # In a plan, steps are labels. Rises, falls, flat and findings with layouts or workloads name all of their steps.

    trend: Annotated[Trend, Key("how the metric changes over the steps")]
    metric: Annotated[str, Key("a latency or a rate, as in an objective: e2e.p99, rate")]
    says: Annotated[str, Key("what the source says, in one sentence")]
    place: Annotated[str, Key("where the source says so")] = ""
    steps: Annotated[Several[int | float | str], Key("values of the swept setting, or labels; empty: all steps")] = ()
    layouts: Annotated[Several[str], Key("titles of layouts of drives to compare, in each of the steps")] = ()
    workloads: Annotated[Several[str], Key("names of workloads to compare, in each of the steps")] = ()
    factor: Annotated[float | None, Key("least factor of a rise or a fall; none: 1.1")] = None
    tolerance: Annotated[float | None, Key("part by which equal figures may differ; none: 0.1")] = None
    at_least: Annotated[float | None, Key("lower bound of a ratio or a level")] = None
    at_most: Annotated[float | None, Key("upper bound of a ratio or a level")] = None
    needs: Annotated[Several[str], Key("what must have happened in each compared step: segments_written>0")] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The steps of a finding of a plan."""
        return tuple(map(str, self.steps))

    @property
    def compared(self) -> tuple[str, ...]:
        """The names that a finding of a plan compares: its layouts or workloads, or else its steps."""
        return self.across or self.labels

    @property
    def across(self) -> tuple[str, ...]:
        """What a finding compares in each of its steps: layouts or workloads; empty if it compares the steps."""
        return self.layouts or self.workloads

    @property
    def rise(self) -> float:
        """The least factor of a rise or a fall."""
        return FACTOR if self.factor is None else self.factor

    @property
    def slack(self) -> float:
        """The factor by which figures may differ and still count as equal."""
        return 1 + (TOLERANCE if self.tolerance is None else self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFigure:
    """A figure that the source states, to be drawn beside measured figures. It is no finding: hardware differs."""

    # In a plan, steps are labels.

    figure: Annotated[str, Key("metric and value, as an objective: rate==19k, e2e.p95==60ms")]
    steps: Annotated[Several[int | float | str], Key("values of the swept setting, or labels, that have it")] = ()
    layouts: Annotated[Several[str], Key("titles of layouts of drives that have it")] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The steps of a figure of a plan."""
        return tuple(map(str, self.steps))
