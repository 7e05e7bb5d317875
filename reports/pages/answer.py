"""The answer of a page: its first sentences, at most five, and a small table of the settings to choose between."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import pandas as pd

from reports.pages import rates, settings, words
from reports.pages.model import Column, Kind, Sentence, Table
from reports.pages.tables import LEDGER_WORDS, latency_column, supports, table_of
from reports.stats import knee
from reports.stats.lead import lead_series
from reports.stats.validity import limited

SENTENCES_MAX: Final = 5
NOTICEABLE: Final = 1.05
"""Factors closer to 1 are not worth a sentence."""

_ENOUGH: Final = f"at least {100 * knee.ENOUGH:g} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The knee curve of a sweep, and the steps of the sweep in words, row by row."""

    sweep: knee.SweepShape
    names: tuple[str, ...]

    @property
    def knee_step(self) -> int:
        """The number of the step at the knee."""
        return int(self.steps["step"].iloc[self.sweep.knee])

    def along(self, setting: str, row: int) -> str:
        """The value of one setting: ``in-flight limit 200``."""
        return settings.long(self.steps.iloc[[row]], (setting,))[0]

    def is_unlimited(self, setting: str, row: int) -> bool:
        """Whether the value of one setting switches its limit off, so that no value is above it."""
        return bool(settings.values(self.steps.iloc[[row]], (setting,))[setting].iloc[0] == inf)

    def held(self, setting: str, row: int) -> str:
        """The values of the other settings while one changes: `` at prefetch 1000``; empty when no other changes."""
        others = tuple(name for name in self.sweep.varied if name != setting)
        return f" at {settings.long(self.steps.iloc[[row]], others)[0]}" if others else ""

    @property
    def steps(self) -> pd.DataFrame:
        """The steps of the curve, in the order of their settings."""
        return self.sweep.steps


def curve(run: pd.Series[Any], steps: pd.DataFrame, also: Collection[int] = ()) -> Curve | None:
    """The knee curve of a run; None without a sweep, or with fewer than two settings that delivered. Steps in which the
    load generator was the limit are left out; ``also`` are the numbers of more of them."""
    names = settings.swept(run)
    latency = f"{lead_series(run, 'e2e')}_p99_ns"
    if not names:
        return None
    left_out = {*limited(steps), *also}
    found = knee.sweep(steps, settings.values(steps, names), latency=latency, limited=left_out)
    return None if found is None else Curve(sweep=found, names=tuple(settings.long(found.steps, names)))


def sentences(
    run: pd.Series[Any], steps: pd.DataFrame, found: Curve | None, ledger: pd.Series[Any] | None, *, prefix: str
) -> list[Sentence]:
    """The sentences for a reader with one minute; a broken promise comes first. ``found`` is the curve of the run."""
    if rates.is_scheduled(steps):
        said = rates.rate_sentences(steps, prefix=prefix)
    else:
        said = _of_sweep(found, prefix) if found else _of_steps(run, steps, prefix)
    safety = Sentence(text=ledger_sentence(ledger), anchor=f"{prefix}ledger", see="ledger")
    violated = ledger is not None and ledger["verdict"] == "violated"
    kept = said[: SENTENCES_MAX - 1]
    return [safety, *kept] if violated else [*kept, safety]


def ledger_sentence(ledger: pd.Series[Any] | None) -> str:
    """Loss and duplication in one sentence."""
    if ledger is None:
        return "There is no ledger: the run ended before its messages were accounted for, so loss is unknown."
    confirmed = words.plural(int(ledger["confirmed"]), "confirmed message")
    if ledger["verdict"] == "violated":
        return f"Safety was violated: of {confirmed}, {', '.join(_wrong(ledger)) or 'see the ledger'}."
    if ledger["verdict"] == "ok":
        return f"Nothing was lost or duplicated: {confirmed} of the whole run, every one delivered."
    left = words.plural(int(ledger["undelivered"]), "confirmed message")
    return f"Loss is unknown: the queues were not drained, and {left} of {int(ledger['confirmed']):,} had not arrived."


def _wrong(ledger: pd.Series[Any]) -> list[str]:
    """The violations and their numbers: ``3 lost``."""
    harm = ("lost", "duplicated", "reordered", "unexpected", "damaged")
    return [f"{int(ledger[name]):,} {LEDGER_WORDS.get(name, name)}" for name in harm if ledger[name]]


def headline(run: pd.Series[Any], steps: pd.DataFrame, found: Curve | None) -> Table | None:
    """The settings to choose between, and the merits of each; of a run without a sweep, its steps; of a run with a
    schedule, the rates asked for. ``found`` is the curve of the run."""
    if rates.is_scheduled(steps):
        return rates.rates_table(run, steps)
    series = lead_series(run, "e2e")
    measures = (
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column(f"{series}_p50_ns", "p50"),
        latency_column(f"{series}_p99_ns", "p99"),
        latency_column(f"{series}_p999_ns", "p99.9"),
    )
    names = settings.swept(run)
    source = found.steps if found is not None else settings.in_order(steps, names)
    frame = source.assign(setting=settings.short(source, names))
    heading = [Column(name="setting", title=settings.words_of(names) if names else "step")]
    if found is None:
        frame = frame.head(8)
    else:
        merits = _merits(found.sweep)
        frame = frame.iloc[list(merits)].assign(merit=list(merits.values()))
        heading.append(Column(name="merit", title="best at"))
    if frame.empty:
        return None
    file = f"{run['run_id']}-result.csv"
    return table_of(frame, (*heading, *measures), caption="The settings to choose between, end to end", file=file)


def _merits(sweep: knee.SweepShape) -> dict[int, str]:
    """The rows that are best at something, in the order of the settings, and at what."""
    merits: dict[int, list[str]] = {}
    lowest = int(sweep.steps[sweep.latency].argmin())
    chosen = (
        (sweep.knee, "knee"),
        *_near_peak(sweep),
        (sweep.peak, "peak rate"),
        (lowest, "lowest p99"),
    )
    for row, merit in chosen:
        merits.setdefault(row, []).append(merit)
    return {row: ", ".join(names) for row, names in sorted(merits.items())}


def _near_peak(sweep: knee.SweepShape) -> list[tuple[int, str]]:
    """The rows with enough of the peak, with the part that each has, and the settings of which each is the lowest."""
    lowest: dict[int, list[str]] = {sweep.advised: []}
    for each in sweep.enough:
        lowest.setdefault(each.row, []).append(settings.words_of((each.setting,)))
    many = len(sweep.varied) > 1
    parts = {row: [] if row == sweep.peak else [f"{words.share(_part(sweep, row))} of peak"] for row in lowest}
    return [
        (row, merit)
        for row, names in lowest.items()
        for merit in [*parts[row], *(f"lowest {n} within 5 % of peak" for n in names if many)]
    ]


def _part(sweep: knee.SweepShape, row: int) -> float:
    """The rate of a row as a part of the peak."""
    return sweep.rate_at(row) / sweep.rate_at(sweep.peak)


def _of_sweep(found: Curve, prefix: str) -> list[Sentence]:
    at_knee, at_steps = f"{prefix}knee", f"{prefix}steps"
    sweep = found.sweep
    is_told = sweep.limited or sweep.knee == sweep.peak
    rivals = "" if is_told else _rivals(found, sweep.steps[sweep.rate], sweep.peak, of="the highest rate")
    advice = _peak(found) if sweep.limited and sweep.advised == sweep.peak else _advice(found)
    peak = "" if sweep.advised == sweep.peak else _peak(found)
    said = [
        Sentence(text=advice, anchor=at_knee),
        Sentence(text=" ".join(filter(None, (f"{peak}{rivals}".lstrip(), _knee(found)))), anchor=at_knee),
        Sentence(text=_gain(found), anchor=at_steps, see="table"),
    ]
    beyond = " ".join(_beyond(found, each) for each in found.sweep.beyond)
    return [*said, Sentence(text=beyond, anchor=at_knee)] if beyond else said


def _advice(found: Curve) -> str:
    """The one setting to take for rate: nearly the peak, at the lowest p99 of all steps with so much."""
    sweep, name = found.sweep, found.names[found.sweep.advised]
    rate, p99 = words.rate(sweep.rate_at(sweep.advised)), _p99(found, sweep.advised)
    highest = "the highest rate known" if sweep.limited else "the highest rate measured"
    gives = f"{highest}, {rate}," if sweep.advised == sweep.peak else f"{rate}, {_share_of(found, highest)},"
    return f"{name[:1].upper()}{name[1:]} gives {gives} at p99 {p99} end to end."


def _share_of(found: Curve, highest: str) -> str:
    return f"{words.share(_part(found.sweep, found.sweep.advised))} of {highest}"


def _peak(found: Curve) -> str:
    sweep = found.sweep
    rate, p99 = words.rate(sweep.rate_at(sweep.peak)), _p99(found, sweep.peak)
    if sweep.limited:
        return (
            f"The delivered rate reaches at least {rate}, with {found.names[sweep.peak]}; p99 end to end is {p99} "
            f"there. More is not known: with {', '.join(sweep.limited)} the load generator or its machine was the "
            "limit."
        )
    return f"The highest delivered rate is {rate}, with {found.names[sweep.peak]}, at p99 {p99}."


def _rivals(found: Curve, merit: pd.Series[float], best: int, *, of: str = "that") -> str:
    """The settings that come so near the best that another run may put them first."""
    near = [row for row in range(len(merit)) if row != best and merit.iloc[row] * NOTICEABLE > merit.iloc[best]]
    if not near:
        return ""
    named = found.names[near[0]] if len(near) == 1 else words.plural(len(near), "other setting")
    one = f"{named[0].upper()}{named[1:]} {'comes' if len(near) == 1 else 'come'}"
    return f" {one} within 5 % of {of}, which one run does not tell apart."


def _p99(found: Curve, row: int) -> str:
    """The p99 of a step, with the number of samples where there are too few for a p99."""
    text = words.latency(found.sweep.latency_ns_at(row))
    samples = int(found.steps[found.sweep.latency.replace("_p99_ns", "_count")].iloc[row])
    return text if supports(samples, "p99") else f"{text} (of only {words.plural(samples, 'sample')})"


def knee_sentences(found: Curve) -> str:
    """The knee, and the setting for a reader who wants rate first."""
    sweep = found.sweep
    if all(each.row == sweep.knee for each in sweep.enough):
        return _knee(found)
    return " ".join([_knee(found), *(_enough(found, each) for each in sweep.enough)])


def _enough(found: Curve, least: knee.Enough) -> str:
    if found.is_unlimited(least.setting, least.row):
        only = found.along(least.setting, least.row)
        return f"Only {only} has {_ENOUGH} of the peak{found.held(least.setting, least.row)}."
    name = settings.words_of((least.setting,)) if len(found.sweep.varied) > 1 else "setting"
    value = found.along(least.setting, least.row).removeprefix("" if name == "setting" else f"{name} ")
    return f"The smallest {name} with {_ENOUGH} of the peak{found.held(least.setting, least.row)} is {value}."


def _knee(found: Curve) -> str:
    """The place of the knee, its rule, and the rate given up there."""
    sweep = found.sweep
    name = found.names[sweep.knee]
    part = f"{words.share(_part(sweep, sweep.knee))} of the peak"
    part = "also the highest rate," if sweep.knee == sweep.peak else part
    return (
        f"{name[0].upper()}{name[1:]} is the knee, the highest delivered rate per unit of p99: "
        f"{part} at p99 {_p99(found, sweep.knee)}."
        f"{_rivals(found, sweep.steps[sweep.rate] / sweep.steps[sweep.latency], sweep.knee)}"
    )


def _gain(found: Curve) -> str:
    gain = found.sweep.biggest_gain
    if gain is None:
        return "No two steps differ in one setting alone, so what each setting gains by itself is not known."
    if gain.factor <= NOTICEABLE:
        return "No setting delivers over 5 % more than its neighbour."
    before, after = (words.rate(found.sweep.rate_at(row)) for row in (gain.before, gain.after))
    lower, higher = (found.along(gain.setting, row) for row in (gain.before, gain.after))
    return (
        "The biggest gain between neighbours, in messages per second, is from "
        f"{lower} to {higher}{found.held(gain.setting, gain.before)}: from {before} to {after}, "
        f"{words.times(gain.factor)} the rate."
    )


def _beyond(found: Curve, beyond: knee.Beyond) -> str:
    held = found.held(beyond.setting, beyond.row)
    if beyond.row == found.sweep.knee:
        name = settings.words_of((beyond.setting,))
        highest = f"has the highest {name} measured{held}" if held else "is the highest setting measured"
        more = (
            "and the last step to it gained less than 5 %" if beyond.saturated else "so a higher one may deliver more"
        )
        return f"The knee {highest}, {more}."
    growth = beyond.latency
    then = f"multiplies p99 by {words.significant(growth)}" if growth >= NOTICEABLE else "hardly changes p99"
    p99 = _p99(found, beyond.row)
    name = found.along(beyond.setting, beyond.row)
    return f"Beyond the knee, {name}{held} delivers {_change(beyond.rate - 1)} and {then}, to {p99}."


def _change(more: float) -> str:
    """A relative change of a rate: 2.2 times as much; 18 % less; about as much, where one run does not tell."""
    if more >= 1:
        return f"{words.times(1 + more)} as much"
    change = f"{words.share(abs(more))} {'more' if more > 0 else 'less'}"
    if abs(more) < 0.0005:
        return "as much"
    return f"about as much ({change})" if abs(more) < NOTICEABLE - 1 else change


def _of_steps(run: pd.Series[Any], steps: pd.DataFrame, prefix: str) -> list[Sentence]:
    """The sentences of a run with one setting, or with one step that counts: there is no knee."""
    series = lead_series(run, "e2e")
    names = settings.long(steps, settings.swept(run))
    said = [_step_sentence(row, name, series) for (_, row), name in zip(steps.iterrows(), names, strict=True)]
    kept = [Sentence(text=text, anchor=f"{prefix}steps", see="table") for text in said[:3]]
    if len(steps) == 1:
        text = "One setting was measured, so there is no knee to find: a sweep over several settings shows one."
        kept.append(Sentence(text=text))
    return kept


def _step_sentence(row: pd.Series[Any], name: str, series: str) -> str:
    where = "" if name == settings.WHOLE else f"{name}: "
    if pd.isna(row[f"{series}_p99_ns"]):
        return f"{where or 'The run: '}no message was delivered in its steady time."
    counted = " after the warm-up" if row["warmup_s"] > 0 else ""
    rate = (
        f"{words.rate(float(row['delivered_per_s']))} delivered over {words.duration(float(row['length_s']))}{counted}"
    )
    samples = int(row[f"{series}_count"])
    parts = ", ".join(
        f"{word} {words.latency(float(row[f'{series}_{column}_ns']))}"
        for column, word in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
        if supports(samples, column)
    )
    few = "" if supports(samples, "p99") else f" (too few for more: {words.plural(samples, 'sample')})"
    return f"{where}{rate}; end to end {parts or 'nothing that can be told'}{few}."
