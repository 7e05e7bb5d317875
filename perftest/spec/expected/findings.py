"""The rules of findings: a metric that exists, steps that the sweep has, and the numbers that the trend takes.

Which layouts there are is known when a sweep begins, so a finding may name any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from perftest.metrics.names import BROKER_CPU, LATENCIES, LEDGER_COUNTS, LINK_BODIES, RATES, spelled
from perftest.spec.expected.slo import any_of, parse_objective
from perftest.spec.expected.trends import Finding, StatedFigure, Trend
from perftest.spec.sweep import label, swept_value
from perftest.spec.units import UnitError

Broken = tuple[tuple[str | int, ...], str, str, object]
"""A broken rule: the key within the finding, the rule, the fix, and the value."""

_WHOLE: Final = (Trend.RISES, Trend.FALLS, Trend.FLAT, Trend.LEVEL)
"""Trends over all steps, if the finding names none."""
_COUNTS: Final = {
    Trend.RISES: (2, None),
    Trend.FALLS: (2, None),
    Trend.FLAT: (2, None),
    Trend.RATIO: (2, 2),
    Trend.LEVEL: (1, None),
    Trend.KNEE: (1, 2),
    Trend.BIGGEST_GAIN: (2, 2),
    Trend.BEST: (1, None),
}
"""The least and the most steps, or layouts, that a finding names."""
_ON_A_SCALE: Final = (Trend.KNEE, Trend.BIGGEST_GAIN)
"""Trends that need an order of all steps. Layouts have none."""
_NUMBERS: Final = {
    "factor": (Trend.RISES, Trend.FALLS),
    "tolerance": (Trend.RISES, Trend.FALLS, Trend.FLAT, Trend.KNEE, Trend.BEST),
    "at_least": (Trend.RATIO, Trend.LEVEL),
    "at_most": (Trend.RATIO, Trend.LEVEL),
}
"""The trends that take each number."""


def resolved(finding: Finding, swept: Sequence[str], labels: Sequence[str]) -> Finding:
    """The finding with labels as its steps, and with its metric in the one spelling: ``swept`` are the settings of the
    sweep, ``labels`` its steps in order."""
    finding = replace(finding, metric=spelled(finding.metric))
    if not finding.steps and (finding.across or finding.trend in _WHOLE):
        return replace(finding, steps=tuple(labels))
    return replace(finding, steps=tuple(label_of(step, swept, labels) for step in finding.steps))


def label_of(step: object, swept: Sequence[str], labels: Sequence[str]) -> str:
    """The label of a step that was named by its label or, if one setting is swept, by the value of this setting."""
    if step in labels or len(swept) != 1:
        return str(step)
    try:
        return label(swept[0], swept_value(swept[0], step))
    except UnitError:
        return str(step)


def broken_figure(stated: StatedFigure, labels: Sequence[str], *, known: bool = True) -> Iterator[Broken]:
    """All broken rules of a figure that the source states, with labels as its steps."""
    try:
        objective = parse_objective(stated.figure)
    except UnitError as error:
        yield ("figure",), error.rule, error.fix, stated.figure
        return
    if objective.comparison != "==":
        yield ("figure",), "a stated figure is one value", f"write {objective.metric}==VALUE", stated.figure
    for at, step in enumerate(stated.labels):
        if known and step not in labels:
            yield ("steps", at), f"the sweep has no step {step}", f"use one of: {', '.join(labels)}", stated.steps[at]


def broken_finding(finding: Finding, labels: Sequence[str], *, known: bool = True) -> Iterator[Broken]:
    """All broken rules of a resolved finding. With ``known`` False the sweep was changed, and any step may be named."""
    yield from _metric(finding)
    yield from _numbers(finding)
    yield from _across(finding, labels, known) if finding.across else _steps(finding, labels, known)
    yield from _needs(finding)
    if not finding.says.strip():
        yield ("says",), "a finding needs a sentence", "say in one sentence what the source found", finding.says


def _metric(finding: Finding) -> Iterator[Broken]:
    metric = finding.metric
    try:
        any_of(metric)
    except UnitError as error:
        yield ("metric",), error.rule, error.fix, metric
        return
    if metric not in (*RATES, LINK_BODIES) and metric.partition(".")[0] not in LATENCIES:
        what = "the broker's own time" if metric == BROKER_CPU else "a count"
        rule = f"a finding is about a latency, a rate or link_bodies, and {metric} is {what}"
        yield ("metric",), rule, "use rate or e2e.p99", metric
    elif finding.trend is Trend.LEVEL and metric != LINK_BODIES:
        rule = f"a level says nothing about {metric}, which depends on the hardware"
        yield ("trend",), rule, "use another trend, or the metric link_bodies", str(finding.trend)


def _needs(finding: Finding) -> Iterator[Broken]:
    for at, text in enumerate(finding.needs):
        try:
            metric = parse_objective(text).metric
        except UnitError as error:
            yield ("needs", at), error.rule, error.fix, text
            continue
        if metric in LEDGER_COUNTS:
            rule = f"a need is about a step, and {metric} counts over the whole run"
            yield ("needs", at), rule, "use backlog>1000 or segments_written>0", text


def _numbers(finding: Finding) -> Iterator[Broken]:
    for name, trends in _NUMBERS.items():
        value = getattr(finding, name)
        if value is not None and finding.trend not in trends:
            words = " or ".join(trends)
            yield (name,), f"{name} means nothing for {finding.trend}", f"remove it, or use trend: {words}", value
    if finding.factor is not None and finding.factor <= 1:
        yield (
            ("factor",),
            "a rise or a fall has a factor above 1",
            "write 1.5 for a rise or a fall by half",
            finding.factor,
        )
    if finding.tolerance is not None and not 0 <= finding.tolerance < 1:
        yield ("tolerance",), "a tolerance is a part from 0 to below 1", "write 0.1 for 10 %", finding.tolerance
    if finding.trend in (Trend.RATIO, Trend.LEVEL):
        yield from _bounds(str(finding.trend), finding.at_least, finding.at_most)


def _bounds(what: str, least: float | None, most: float | None) -> Iterator[Broken]:
    if least is None and most is None:
        yield ("trend",), f"a {what} needs a bound", "add at_least or at_most", what
    if min(least or 0, most or 0) < 0:
        yield ("at_least",), f"a {what} is not negative", "use bounds of 0 or more", least
    elif least is not None and most is not None and least > most:
        yield ("at_least",), f"at_least ({least:g}) is above at_most ({most:g})", "exchange the two", least


_NAMED: Final = {
    "layout": "name the title of a layout file, such as one_hdd",
    "workload": "name a workload as its file does, such as flow_control/in_flight",
}


def _across(finding: Finding, labels: Sequence[str], known: bool) -> Iterator[Broken]:
    what = "layout" if finding.layouts else "workload"
    if finding.trend in _ON_A_SCALE:
        rule = f"{what}s have no order, and {finding.trend} needs one"
        yield ("trend",), rule, "use rises, falls, flat, ratio or best", str(finding.trend)
        return
    if finding.layouts and finding.workloads:
        rule = "a finding compares layouts or workloads, not both"
        yield ("workloads",), rule, "make two findings of it", list(finding.workloads)
    for at, name in enumerate(finding.across):
        if not name.strip():
            yield (f"{what}s", at), f"a {what} needs a name", _NAMED[what], name
    yield from _counted(finding.trend, what, finding.across)
    yield from _named_steps(finding, labels, known)


def _steps(finding: Finding, labels: Sequence[str], known: bool) -> Iterator[Broken]:
    if not known and list(finding.labels) == list(labels):
        return  # all steps that are left of the sweep, which were not named
    wrong = [*_counted(finding.trend, "step", finding.labels)]
    yield from wrong
    if wrong:
        return
    unknown = [*_named_steps(finding, labels, known)]
    yield from unknown
    if known and not unknown:
        yield from _position(finding, labels)


def _counted(trend: Trend, what: str, named: Sequence[str]) -> Iterator[Broken]:
    """The number of steps or layouts that are compared."""
    least, most = _COUNTS[trend]
    if len(named) < least or (most is not None and len(named) > most):
        wanted = f"{least}" if least == most else f"{least} or {most}" if most else f"{least} or more"
        rule = f"{trend} takes {wanted} {what}s, this has {len(named)}"
        yield (f"{what}s",), rule, f"name the {what}s to compare", list(named)
    elif len(set(named)) < len(named):
        yield (f"{what}s",), f"a {what} is named twice", f"name each {what} once", list(named)


def _named_steps(finding: Finding, labels: Sequence[str], known: bool) -> Iterator[Broken]:
    """Steps that the sweep does not have. Steps in which layouts are compared are counted here."""
    named = finding.labels
    if finding.across and len(set(named)) < len(named):
        yield ("steps",), "a step is named twice", "name each step once", list(named)
    for at, step in enumerate(named):
        if known and step not in labels:
            fix = f"use one of: {', '.join(labels)}" if any(labels) else "add a sweep: findings compare its steps"
            yield ("steps", at), f"the sweep has no step {step}", fix, finding.steps[at]


def _position(finding: Finding, labels: Sequence[str]) -> Iterator[Broken]:
    """Rules about the places of known steps within the sweep."""
    at = [labels.index(step) for step in finding.labels]
    place, value = ("steps",), list(finding.labels)
    if finding.trend is Trend.KNEE and (at == [0] or at != sorted(at)):
        yield place, "a knee lies after a step, at a later step", "name the step before the knee and the knee", value
    if finding.trend is Trend.BIGGEST_GAIN and at[1] != at[0] + 1:
        yield place, "a gain lies between neighbours", "name two steps that follow each other", value
    elif finding.trend is Trend.BIGGEST_GAIN and len(labels) < 3:
        yield place, "the sweep has no other gain to compare with", "sweep three values or more", value
    if finding.trend is Trend.BEST and len(at) >= len(labels):
        yield place, "no other step is left to be worse", "name only the best steps", value
