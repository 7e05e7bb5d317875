"""Several runs side by side: the best that each did, rounds of one plan as one, and a line for each on one chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pandas as pd

from reports.charts import bars, knee, theme
from reports.pages import answer, settings, words
from reports.pages.figures import is_simulated, knee_paths
from reports.pages.invalid import usable
from reports.pages.model import Chart, Chip, Column, Kind, Overview, Run, Sentence, Table, Verdicts
from reports.pages.rates import is_scheduled
from reports.pages.several.apart import RepeatedLoads
from reports.pages.several.intervals import HIGH, LOW, RIVALS, named_rivals
from reports.pages.simulated import marked_overview
from reports.pages.sweep import shared_charts
from reports.pages.tables import latency_column, table_of
from reports.pages.trust_words import runs_chip
from reports.stats.confidence import change
from reports.stats.lead import lead_series
from reports.stats.rounds import CONFIDENCE, over_rounds, overlapping, spread
from reports.stats.validity import limited

COLOURS: Final = ("@quorum", "@classic", "@lazy", "@mirrored", "@strict-ordered", "@soft", "@accent")
RATE: Final = "delivered_per_s"
LINES_MAX: Final = 8
"""Most loads with a line of their own on the shared chart."""


@dataclass(frozen=True)
class LoadSide:
    """RepeatedLoads of one load as one: its steps over all rounds, and the knee curve of these."""

    rounds: RepeatedLoads

    @property
    def name(self) -> str:
        """What tells the load from the others of the page; empty if there is no other."""
        return self.rounds.name

    @property
    def what(self) -> str:
        """What the loads of the page are: ``queue type`` if they differ in nothing else."""
        return self.rounds.what

    @property
    def run(self) -> pd.Series[Any]:
        """The first round."""
        return self.rounds.loads[0].runs.iloc[0]

    @property
    def count(self) -> int:
        """The number of rounds."""
        return len(self.rounds.loads)

    @property
    def p99(self) -> str:
        """The column of the end-to-end p99 to lead with."""
        return f"{lead_series(self.run, 'e2e')}_p99_ns"

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row for each setting that all rounds measured, in the order of the settings."""
        series = lead_series(self.run, "e2e")
        figures = [RATE, *(f"{series}_{name}_ns" for name in ("p50", "p99", "p999"))]
        frames = [load.steps for load in self.rounds.loads]
        found = over_rounds(frames, figures, [f"{series}_count"]) if len(frames) > 1 else frames[0]
        return settings.in_order(found, settings.swept(self.run))

    @cached_property
    def rivals(self) -> list[list[int]]:
        """For each of the steps, the rows of the others whose rates the rounds do not tell apart from it."""
        if self.count == 1:
            return [[] for _ in self.steps.index]
        bounds = [self.steps[name].tolist() for name in (RATE, f"{RATE}_low", f"{RATE}_high")]
        return overlapping(list(zip(*bounds, strict=True)))

    @cached_property
    def curve(self) -> answer.Curve | None:
        """The knee curve over all rounds. A step in which any round was limited by the generator is left out."""
        if not settings.swept(self.run):
            return None
        doubtful = {
            key
            for load in self.rounds.loads
            for key in load.steps.loc[load.steps["step"].isin(limited(load.steps)), "settings"]
        }
        return answer.curve(self.run, self.steps, self.steps.loc[self.steps["settings"].isin(doubtful), "step"])

    @cached_property
    def best(self) -> pd.Series[Any] | None:
        """The step with the highest delivered rate; None if nothing was delivered."""
        known = self.curve.steps if self.curve is not None else self.steps
        known = known[known[RATE] > 0]
        return None if known.empty else known.iloc[int(known[RATE].argmax())]

    def at_best(self, column: str) -> list[float]:
        """A figure of each round at the setting of the best step."""
        best = self.best
        if best is None:
            return []
        values = [load.steps.loc[load.steps["settings"] == best["settings"], column] for load in self.rounds.loads]
        return [float(found.iloc[-1]) for found in values if len(found)]

    def setting_of(self, step: pd.Series[Any]) -> str:
        """A step in words: ``in-flight limit 200``."""
        return settings.long(step.to_frame().T, settings.swept(self.run))[0]


def overview_section(
    sides: Sequence[LoadSide],
    sections: Sequence[Run],
    judged: tuple[Verdicts, ...],
    *,
    title: str,
    notes: Sequence[str],
) -> Overview:
    """The overview of loads; ``sections`` are the runs as the page tells them, in the order of the rounds of the
    sides. ``notes`` say where the details of the runs are."""
    names = [name for side in sides for name in side.rounds.round_names()]
    charts = [chart for chart in (_shared(sides), *_factors(sides)) if chart is not None]
    overview = Overview(
        title=title,
        subtitle=_subtitle(sides, sections),
        sentences=tuple(_of_rounds(sides[0]) if len(sides) == 1 else _of_sides(sides)),
        headline=_by_setting(sides[0]) if len(sides) == 1 else _by_side(sides),
        chips=verdict_chips(sections),
        runs=tuple(sections),
        table=_table([load for side in sides for load in side.rounds.loads], names, sections),
        charts=tuple(charts),
        verdicts=judged,
        notes=tuple(Sentence(text=text) for text in notes),
    )
    return marked_overview(overview, [is_simulated(load.runs.iloc[0]) for side in sides for load in side.rounds.loads])


def _subtitle(sides: Sequence[LoadSide], sections: Sequence[Run]) -> str:
    runs = words.plural(len(sections), "run")
    rounds = {side.count for side in sides}
    each = words.plural(max(rounds), "round")
    if len(sides) == 1:
        return f"{each} of one plan · {sections[0].measured}"
    loads = words.plural(len(sides), sides[0].what)
    same = {section.measured.partition(" · ")[0] for section in sections}
    workload = f" · {same.pop()}" if len(same) == 1 else ""
    return f"{runs} of {loads}{f', up to {each} of each' if max(rounds) > 1 else ''}{workload}"


def verdict_chips(sections: Sequence[Run]) -> tuple[Chip, ...]:
    """The verdict of runs on themselves: how many are valid, with how many warnings, and whether any lost messages."""
    ledgers = [chip for section in sections for chip in section.chips if chip.name == "Ledger"]
    worst = max(ledgers, key=lambda chip: chip.status.weight, default=None)
    runs = runs_chip([section.checks for section in sections])
    return (runs,) if worst is None else (worst, runs)


# Sentences.


def _of_rounds(side: LoadSide) -> Iterator[Sentence]:
    """The answer over the rounds of one plan: the setting to take, the highest rate, the knee, and how much the rounds
    differ."""
    best = side.best
    if best is None:
        yield Sentence(text="Nothing was delivered at a setting that all rounds measured.")
        return
    over = f"Over {words.plural(side.count, 'round')}"
    curve = None if is_scheduled(side.rounds.loads[0].steps) else side.curve
    if curve is None or curve.sweep.advised == curve.sweep.peak:
        text = (
            f"{over}, the highest delivered rate is {_with_bounds(best, RATE)}, with {side.setting_of(best)}, at p99 "
        )
        yield Sentence(text=f"{text}{_with_bounds(best, side.p99)} end to end.")
    else:
        yield Sentence(text=f"{over}, {_advice(side, curve)}")
        yield Sentence(text=_highest(side, best))
    if curve is not None:
        yield Sentence(text=_knee(curve))
    frames = [load.steps for load in side.rounds.loads]
    apart = spread(frames, RATE) - 1, spread(frames, side.p99) - 1
    yield Sentence(
        text=f"Between two rounds, the rate of a setting differs by {words.share(apart[0])} at most, and its p99 by "
        f"{words.share(apart[1])}. Figures in brackets are 95 % intervals."
    )
    left = max(len(set(frame["settings"])) for frame in frames) - len(side.steps)
    if left:
        yield Sentence(text=f"{words.plural(left, 'setting')} not measured in every round: see the rounds one by one.")


def _advice(side: LoadSide, curve: answer.Curve) -> str:
    """The setting with nearly the highest rate that has the lowest p99."""
    sweep = curve.sweep
    step = curve.steps.iloc[sweep.advised]
    part = words.share(sweep.rate_at(sweep.advised) / sweep.rate_at(sweep.peak))
    return (
        f"{curve.names[sweep.advised]} gives {_with_bounds(step, RATE)}, {part} of the highest rate, at p99 "
        f"{_with_bounds(step, side.p99)} end to end."
    )


def _highest(side: LoadSide, best: pd.Series[Any]) -> str:
    """The highest rate, and the settings that the rounds do not tell apart from it."""
    name = side.setting_of(best)
    text = (
        f"The highest delivered rate is {_with_bounds(best, RATE)}, with {name}, at p99 {_with_bounds(best, side.p99)}."
    )
    rivals = dict(zip(side.steps["settings"], side.rivals, strict=True)).get(best["settings"], [])
    if not rivals:
        return text
    named = words.listed([name, *(side.setting_of(side.steps.iloc[row]) for row in rivals)])
    return f"{text} The rounds cannot tell the rates of {named} apart: their intervals overlap."


def _knee(curve: answer.Curve) -> str:
    """The knee, and the settings that are no part of the curve."""
    sweep, named = curve.sweep, curve.names
    part = words.share(sweep.rate_at(sweep.knee) / sweep.rate_at(sweep.peak))
    p99 = words.latency(sweep.latency_ns_at(sweep.knee))
    at = f"{named[sweep.knee][:1].upper()}{named[sweep.knee][1:]}"
    text = f"{at} is the knee, the highest delivered rate per unit of p99: {part} of the peak at p99 {p99}."
    if not sweep.limited:
        return text
    return (
        f"{text} With {', '.join(sweep.limited)} the load generator or its machine was the limit, so the highest rate "
        "may be higher."
    )


def _with_bounds(step: pd.Series[Any], column: str) -> str:
    """A figure with its interval, where several rounds give one."""
    say = words.rate if column == RATE else words.latency
    value = say(float(step[column]))
    low, high = (float(step.get(f"{column}_{end}", float("inf"))) for end in ("low", "high"))
    return f"{value} ({words.between(say(low), say(high))})" if max(abs(low), abs(high)) < float("inf") else value


def _of_sides(sides: Sequence[LoadSide]) -> Iterator[Sentence]:
    """The load that delivers most, the next, and whether chance may have made the difference."""
    known = sorted((side for side in sides if side.best is not None), key=_peak, reverse=True)
    if not known:
        yield Sentence(text="No run delivered a message in its steady time.")
        return
    first = known[0]
    assert first.best is not None
    alike = [side for side in known if words.rate(_peak(side)) == words.rate(_peak(first))]
    most = f"{words.listed([side.name for side in alike])} deliver most, and alike" if alike[1:] else ""
    yield Sentence(
        text=f"Of {words.plural(len(sides), first.what)}, {most or f'{first.name} delivers most'}: "
        f"{_with_bounds(first.best, RATE)}, {f'{first.name} ' if most else ''}with {first.setting_of(first.best)}, at "
        f"p99 {_with_bounds(first.best, first.p99)}."
    )
    if known[len(alike) :]:
        yield Sentence(text=_next(first, known[len(alike)]))
    if len(known) > len(alike) + 1:
        last = known[-1]
        assert last.best is not None
        yield Sentence(text=f"{last.name} delivers least: {_with_bounds(last.best, RATE)}.")


def _peak(side: LoadSide) -> float:
    return 0.0 if side.best is None else float(side.best[RATE])


def _next(first: LoadSide, second: LoadSide) -> str:
    """The second, and how sure its distance from the first is."""
    less = words.share(1 - _peak(second) / _peak(first))
    said = f"{second.name} is next with {words.rate(_peak(second))}, {less} less"
    found = change(first.at_best(RATE), second.at_best(RATE), CONFIDENCE)
    if not abs(found.high) < float("inf"):
        return f"{said}. One run of each does not tell whether that is more than chance: repeat both."
    low, high = sorted((-found.high, -found.low))
    if low <= 0:
        return f"{said}. Over the rounds, that may be chance: the difference is {_span(low, high)}."
    return f"{said}: the difference over the rounds is {_span(low, high)}."


def _span(low: float, high: float) -> str:
    return f"{100 * low:.3g} % to {100 * high:.3g} %"


# Tables.


def _measures(side: LoadSide) -> tuple[Column, ...]:
    return (Column(name=RATE, title="delivered", kind=Kind.RATE, unit="msg/s"), *_bound_columns(side.p99, side.count))


def _bound_columns(p99: str, rounds: int) -> tuple[Column, ...]:
    rate = Column(name=f"{RATE}_low", title=LOW, kind=Kind.RATE, unit="msg/s")
    ends = (rate, replace(rate, name=f"{RATE}_high", title=HIGH)) if rounds > 1 else ()
    latencies = (latency_column(f"{p99}_low", LOW), latency_column(f"{p99}_high", HIGH)) if rounds > 1 else ()
    return (*ends, latency_column(p99, "p99"), *latencies)


def _by_setting(side: LoadSide) -> Table:
    """Each setting over all rounds."""
    names = settings.swept(side.run)
    short = settings.short(side.steps, names)
    frame = side.steps.assign(setting=short, rivals=named_rivals(short, side.rivals))
    frame = frame.replace([float("inf"), -float("inf")], None)
    heading = Column(name="setting", title=settings.words_of(names) if names else "step")
    rivals = (RIVALS,) if any(side.rivals) else ()
    file = f"{side.run['name']}-rounds.csv".replace("/", "-")
    return table_of(frame, (heading, *_measures(side), *rivals), caption="Each setting over all rounds", file=file)


def _by_side(sides: Sequence[LoadSide]) -> Table:
    """The best step of each load."""
    rounds = max(side.count for side in sides)
    columns = (
        Column(name="load", title=sides[0].what),
        Column(name="at", title="best at"),
        Column(name=RATE, title="delivered", kind=Kind.RATE, unit="msg/s"),
        *_bound_columns("p99_ns", rounds),
        *((Column(name="rounds", title="rounds", kind=Kind.COUNT),) if rounds > 1 else ()),
    )
    frame = pd.DataFrame([_side_row(side) for side in sides]).replace([float("inf"), -float("inf")], None)
    return table_of(frame, columns, caption="The best step of each load", file="loads.csv")


def _side_row(side: LoadSide) -> dict[str, Any]:
    row: dict[str, Any] = {"load": side.name, "rounds": side.count}
    best = side.best
    if best is None:
        return row | {"at": "", RATE: None, "p99_ns": None}
    figures = {RATE: RATE, side.p99: "p99_ns"}
    row |= {"at": side.setting_of(best)} | {name: best[column] for column, name in figures.items()}
    ends = ("low", "high")
    return row | {f"{name}_{end}": best.get(f"{column}_{end}") for column, name in figures.items() for end in ends}


def _table(loads: Sequence[Any], names: Sequence[str], sections: Sequence[Run]) -> Table:
    """One row per run: what tells it apart, its highest delivered rate, and whether the figures may be used."""
    columns = (
        Column(name="run", title="run"),
        Column(name="load", title="what differs"),
        Column(name="queue_types", title="queue"),
        Column(name="broker", title="broker"),
        Column(name="peak_per_s", title="peak delivered", kind=Kind.RATE, unit="msg/s"),
        Column(name="at", title="at"),
        latency_column("p99_ns", "p99 there"),
        Column(name="state", title="state"),
        Column(name="usable", title="verdict"),
    )
    rows = [
        _run_row(load.runs.iloc[0], load.steps) | {"load": name, "usable": usable(section.checks)}
        for load, name, section in zip(loads, names, sections, strict=True)
    ]
    return table_of(pd.DataFrame(rows), columns, caption="The runs", file="runs.csv")


def _run_row(run: pd.Series[Any], steps: pd.DataFrame) -> dict[str, Any]:
    row = {"queue_types": run["queue_types"], "state": run["state"], "run": run["run_id"]}
    row |= {"broker": f"{run['product']} {run['broker_version']}".strip()}
    if steps.empty:
        return row | {"peak_per_s": None, "at": "", "p99_ns": None}
    at = int(steps[RATE].argmax())
    return row | {
        "peak_per_s": steps[RATE].iloc[at],
        "at": settings.long(steps, settings.swept(run))[at],
        "p99_ns": steps[f"{lead_series(run, 'e2e')}_p99_ns"].iloc[at],
    }


# Charts.


def _factors(sides: Sequence[LoadSide]) -> list[Chart]:
    swept = [(replace(side.rounds.loads[0], steps=side.steps), side.curve) for side in sides if side.curve is not None]
    return shared_charts([(load, found) for load, found in swept if found is not None])


def _shared(sides: Sequence[LoadSide]) -> Chart | None:
    """The knee curves of all loads on one pair of axes; without sweeps, the rate of each load as a bar."""
    swept = sorted((side for side in sides if side.curve is not None), key=_peak, reverse=True)
    if not 0 < len(swept) <= LINES_MAX:
        return _peaks(sides)
    paths = [path for number, side in enumerate(swept) for path in _paths(side, number, colours=_colours(swept))]
    if not paths:
        return None
    over = "all rounds" if len(sides) == 1 else "all loads"
    return Chart(
        anchor="all-knee",
        title=f"End-to-end p99 against delivered rate, {over}",
        unit="ms",
        latency=True,
        how_to_read="Each line is a load, or a line through the grid of a load; each point is a step, labelled by its "
        "setting. To the right the rate is higher, and further up the latency is longer."
        + (" Rings mark the knees." if any(path.knee is not None for path in paths) else "")
        + (" Only the line with the highest rate has labels." if len(swept) > 1 else "")
        + (
            " Points are geometric means over the rounds, whiskers their 95 % intervals, and thin lines the rounds."
            if any(side.count > 1 for side in swept)
            else ""
        ),
        finding="",
        figure=knee.figure(paths, quantity="end-to-end p99"),
        table=_points_table([path for path in paths if not path.faint]),
    )


def _colours(sides: Sequence[LoadSide]) -> list[str]:
    """A colour for each load: that of its queue type where types differ, else one by its place."""
    types = [str(side.run["queue_types"]).split(",")[0] for side in sides]
    if len(set(types)) == len(types):
        return [theme.queue_token(queue) for queue in types]
    return [COLOURS[number % len(COLOURS)] for number in range(len(sides))]


def _paths(side: LoadSide, number: int, *, colours: Sequence[str]) -> Iterator[knee.Path]:
    """The lines of a load: those over all rounds, and a thin one for each round."""
    assert side.curve is not None
    first = number == 0
    look: Mapping[str, Any] = {"colour": colours[number], "marker": theme.marker(number), "labelled": first}
    for path in knee_paths(side.run, side.curve.sweep, **look):
        named = replace(path, name=", ".join(filter(None, (side.name, path.name))))
        yield replace(named, knee=None) if is_scheduled(side.rounds.loads[0].steps) else named
    if side.count == 1 or len(side.curve.sweep.varied) > 1:
        return
    for name, load in zip(side.rounds.round_names(), side.rounds.loads, strict=True):
        found = answer.curve(load.runs.iloc[0], load.steps)
        if found is not None:
            yield from (
                replace(path, name=name, faint=True, knee=None)
                for path in knee_paths(load.runs.iloc[0], found.sweep, **look)
            )


def _points_table(paths: Sequence[knee.Path]) -> Table:
    columns = (
        Column(name="load", title="load"),
        Column(name="setting", title="setting"),
        Column(name=RATE, title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column("latency_ns", "end-to-end p99"),
    )
    frame = pd.concat([path.points.assign(load=path.name, setting=path.points["settings"]) for path in paths])
    return table_of(frame, columns, caption="Delivered rate and p99 of all loads", file="knee.csv")


def _peaks(sides: Sequence[LoadSide]) -> Chart | None:
    """The highest delivered rate of each load."""
    known = [side for side in sides if side.best is not None]
    if not known:
        return None
    rows = [_side_row(side) for side in known]
    frame = pd.DataFrame(
        {
            "panel": "",
            "row": [row["load"] for row in rows],
            "part": "",
            "value": [row[RATE] for row in rows],
            "low": [row.get(f"{RATE}_low") for row in rows],
            "high": [row.get(f"{RATE}_high") for row in rows],
        }
    )
    return Chart(
        anchor="all-peaks",
        title="Highest delivered rate of each load",
        unit="msg/s",
        how_to_read="Each bar is the best step of a load. Of several rounds a bar is the geometric mean, and its "
        "whiskers are the 95 % interval.",
        finding="",
        figure=bars.figure(frame, quantity="delivered (msg/s)"),
        table=_by_side(known),
    )
