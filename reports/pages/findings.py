"""The result in words: at most five sentences, a small table, and the knee they speak of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.pages import settings, words
from reports.pages.figures import lead_series
from reports.pages.model import Cell, Column, Kind, Sentence, Table
from reports.pages.tables import latency_column


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A sweep's steps in order, and the rows (not step numbers) that matter. ``latency`` is the p99 column."""

    steps: pd.DataFrame
    names: tuple[str, ...]
    p50: str
    latency: str
    peak: int
    knee: int
    enough: int

    def rate(self, row: int) -> float:
        """Delivered messages per second."""
        return float(self.steps["delivered_per_s"].iloc[row])

    def p99_ns(self, row: int) -> float:
        """The p99 of the leading end-to-end series."""
        return float(self.steps[self.latency].iloc[row])


def curve(run: pd.Series[Any], steps: pd.DataFrame) -> Curve | None:
    """The knee curve of a sweep; None without a sweep, or with fewer than two steps that delivered."""
    series = lead_series(run, "e2e")[0]
    latency = f"{series}_p99_ns"
    measured = steps[steps[latency].notna() & (steps["delivered_per_s"] > 0)].reset_index(drop=True)
    if not settings.swept(run) or len(measured) < 2:
        return None
    rates = measured["delivered_per_s"]
    power = rates / measured[latency]
    return Curve(
        steps=measured,
        names=tuple(settings.long(measured, settings.swept(run))),
        p50=f"{series}_p50_ns",
        latency=latency,
        peak=int(rates.argmax()),
        knee=int(power.argmax()),
        enough=int((rates >= 0.95 * rates.max()).argmax()),
    )


def sentences(
    run: pd.Series[Any], steps: pd.DataFrame, ledger: pd.Series[Any] | None, *, prefix: str
) -> list[Sentence]:
    """What a reader with one minute should take away."""
    found = curve(run, steps)
    said = _sweep(found, prefix) if found else _steps_in_words(run, steps, prefix)
    safety = Sentence(text=ledger_sentence(ledger), anchor=f"{prefix}ledger", see="ledger")
    violated = ledger is not None and ledger["verdict"] == "violated"
    return [safety, *said[:4]] if violated else [*said[:4], safety]


def ledger_sentence(ledger: pd.Series[Any] | None) -> str:
    """Loss and duplication in one sentence."""
    if ledger is None:
        return "There is no ledger: the run ended before its messages were accounted for, so loss is unknown."
    confirmed = words.plural(int(ledger["confirmed"]), "confirmed message")
    if ledger["verdict"] == "violated":
        wrong = ("lost", "duplicated", "reordered", "unexpected", "damaged")
        counts = [
            f"{int(ledger[name]):,} {'out of order' if name == 'reordered' else name}" for name in wrong if ledger[name]
        ]
        return f"Safety was violated: of {confirmed}, {', '.join(counts) or 'see the ledger'}."
    if ledger["verdict"] == "ok":
        return f"Nothing was lost or duplicated: {confirmed}, every one delivered."
    left = words.plural(int(ledger["undelivered"]), "confirmed message")
    return f"Loss is unknown: the queues were not drained, and {left} of {int(ledger['confirmed']):,} had not arrived."


def headline(run: pd.Series[Any], steps: pd.DataFrame) -> Table | None:
    """The settings a reader would choose between and what speaks for each; of a run without a sweep, its steps."""
    series = lead_series(run, "e2e")[0]
    found = curve(run, steps)
    measures = (
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column(f"{series}_p50_ns", "p50"),
        latency_column(f"{series}_p99_ns", "p99"),
        latency_column(f"{series}_p999_ns", "p99.9"),
    )
    names = settings.swept(run)
    source = found.steps if found is not None else steps.reset_index(drop=True)
    settled = settings.short(source, names)
    heading = [Column(name="setting", title=settings.words_of(names) if names else "step")]
    leads: list[tuple[int, tuple[str, ...]]]
    if found is not None:
        heading.append(Column(name="merit", title="because"))
        leads = [(row, (settled[row], merit)) for row, merit in _roles(found)]
    else:
        leads = [(row, (name,)) for row, name in enumerate(settled[:8])]
    if not leads:
        return None
    return Table(
        caption="The settings to choose between, end to end",
        file=f"{run['run_id']}-result.csv",
        columns=(*heading, *measures),
        rows=tuple((*lead, *_numbers(source.iloc[row], measures)) for row, lead in leads),
    )


def _roles(found: Curve) -> list[tuple[int, str]]:
    """The rows that are best at something, in the order of the settings, and at what."""
    roles: dict[int, list[str]] = {}
    lowest = int(found.steps[found.latency].argmin())
    chosen = ((found.knee, "knee"), (found.enough, "95 % of peak"), (found.peak, "peak rate"), (lowest, "lowest p99"))
    for row, role in chosen:
        roles.setdefault(row, []).append(role)
    return [(row, ", ".join(names)) for row, names in sorted(roles.items())]


def _numbers(row: pd.Series[Any], columns: Sequence[Column]) -> list[Cell]:
    values = [row.get(column.name) for column in columns]
    return [None if value is None or pd.isna(value) else float(value) for value in values]


def _sweep(found: Curve, prefix: str) -> list[Sentence]:
    knee, steps = f"{prefix}knee", f"{prefix}steps"
    said = [
        (_peak(found), knee, "figure"),
        (knee_sentence(found), knee, "figure"),
        (_gain(found), steps, "table"),
        (_beyond(found), knee, "figure"),
    ]
    return [Sentence(text=text, anchor=anchor, see=see) for text, anchor, see in said]


def _peak(found: Curve) -> str:
    rate, p99 = words.rate(found.rate(found.peak)), words.latency(found.p99_ns(found.peak))
    return f"The delivered rate peaks at {rate}, with {found.names[found.peak]}; p99 end to end is {p99} there."


def knee_sentence(found: Curve) -> str:
    """Where the knee is, by which rule, and what is given up there."""
    part = words.share(found.rate(found.knee) / found.rate(found.peak))
    what = f"{found.names[found.knee]} is the knee, the highest delivered rate per unit of p99"
    text = f"{what[0].upper()}{what[1:]}: {part} of the peak at p99 {words.latency(found.p99_ns(found.knee))}."
    if found.enough != found.knee:
        text += f" The smallest setting with 95 % of the peak is {found.names[found.enough]}."
    return text


def _gain(found: Curve) -> str:
    rates = found.steps["delivered_per_s"]
    factors = (rates / rates.shift()).iloc[1:]
    at = int(factors.argmax()) + 1
    factor = float(factors.iloc[at - 1])
    if factor <= 1.05:
        return "No setting delivers noticeably more than its neighbour."
    before, after = words.rate(found.rate(at - 1)), words.rate(found.rate(at))
    gain = f"{words.times(factor)} the rate ({before} to {after})"
    return f"The biggest gain between neighbours is from {found.names[at - 1]} to {found.names[at]}: {gain}."


def _beyond(found: Curve) -> str:
    last = len(found.steps) - 1
    if found.knee == last:
        return "The knee is the last setting measured: a higher one may deliver still more."
    more = found.rate(last) / found.rate(found.knee) - 1
    growth = found.p99_ns(last) / found.p99_ns(found.knee)
    change = f"delivers {_change(more)}"
    then = f"multiplies p99 by {words.significant(growth)}" if growth >= 1.05 else "leaves p99 as it is"
    return f"Beyond the knee, {found.names[last]} {change} and {then}, to {words.latency(found.p99_ns(last))}."


def _change(more: float) -> str:
    """A relative change of a rate: 2.2 times as much; 1.8 % less."""
    if more >= 1:
        return f"{words.times(1 + more)} as much"
    return "as much" if abs(more) < 0.0005 else f"{words.share(abs(more))} {'more' if more > 0 else 'less'}"


def _steps_in_words(run: pd.Series[Any], steps: pd.DataFrame, prefix: str) -> list[Sentence]:
    """One setting, or one step that counts: no knee to speak of, and the page says so."""
    series = lead_series(run, "e2e")[0]
    said = [
        _step_sentence(row, name, series)
        for (_, row), name in zip(steps.iterrows(), settings.long(steps, settings.swept(run)), strict=True)
    ]
    sentences = [Sentence(text=text, anchor=f"{prefix}steps", see="table") for text in said[:3] if text]
    only = Sentence(
        text="One setting was measured, so there is no knee to find: a sweep over several settings shows one."
    )
    return [*sentences, only] if len(steps) < 2 else sentences


def _step_sentence(row: pd.Series[Any], name: str, series: str) -> str:
    if pd.isna(row[f"{series}_p99_ns"]):
        return f"{name}: no message was delivered in its steady time."
    rate = (
        f"{name}: {words.rate(float(row['delivered_per_s']))} delivered over {words.duration(float(row['length_s']))}"
    )
    parts = ", ".join(
        f"{word} {words.latency(float(row[f'{series}_{p}_ns']))}"
        for p, word in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
    )
    return f"{rate}; end to end {parts}."
