"""The effect of each swept setting: one factor at a time, two factors, and the settling time of the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from typing import Final

import pandas as pd

from reports.charts import bars, factors, surface, theme
from reports.pages import settings, words
from reports.pages.answer import Curve
from reports.pages.model import Chart, Column, Kind, Table
from reports.pages.tables import latency_column, table_of
from reports.stats.axes import AxisLine
from reports.stats.lead import lead_series
from reports.stats.settling import WITHIN, Settling, settlings
from reports.store.tables import Tables

LINES_MAX: Final = 5
"""Most lines of a setting. If there are more, only the line through the knee is drawn."""
SWEPT_MAX: Final = 8
"""Most sweeps that share one figure."""

MEASURES: Final = (
    factors.Measure(column="delivered_per_s", title="delivered", is_latency=False),
    factors.Measure(column="p50_ns", title="p50", is_latency=True),
    factors.Measure(column="p99_ns", title="p99", is_latency=True),
)

Swept = tuple[Tables, Curve]
"""One load with its knee curve."""


@dataclass(frozen=True, slots=True)
class _Look:
    """How the lines of a run are drawn; the lines of a grid in one run have colours and markers of their own."""

    name: str
    colour: str
    marker: str
    dash: str = "solid"


def factor_charts(load: Tables, found: Curve | None, *, prefix: str) -> list[Chart]:
    """The figures of one run, as far as they have something to show. ``found`` is the curve of the run."""
    charts: list[Chart | None] = []
    if found is not None:
        charts += [_factors([(load, found)], prefix), *_surfaces([(load, found)], prefix)]
    charts.append(_settling(load, prefix))
    return [chart for chart in charts if chart is not None]


def shared_charts(sweeps: Sequence[Swept]) -> list[Chart]:
    """The figures of several runs that swept the same settings, a line or a panel for each run."""
    if not 2 <= len(sweeps) <= SWEPT_MAX or len({found.sweep.varied for _, found in sweeps}) > 1:
        return []
    return [chart for chart in (_factors(sweeps, "all-"), *_surfaces(sweeps, "all-")) if chart is not None]


def _factors(sweeps: Sequence[Swept], prefix: str) -> Chart | None:
    lines = [line for (load, found), look in zip(sweeps, _looks(sweeps), strict=True) for line in _lines(found, look)]
    if not lines:
        return None
    return Chart(
        anchor=f"{prefix}factors",
        title="One setting at a time: delivered rate (msg/s), end-to-end p50 and p99",
        unit="",
        how_to_read=_factors_how(sweeps),
        finding=_factors_finding(sweeps[0][1]) if len(sweeps) == 1 else "",
        figure=factors.figure(lines, MEASURES),
        table=_factors_table(lines, _file(sweeps, "factors")),
    )


def _factors_how(sweeps: Sequence[Swept]) -> str:
    parts = ["Each column changes one setting and holds the others; each step to the right doubles the setting."]
    parts.append("Panels of one row share their axis, so the column with the steeper line has the stronger setting.")
    if len(sweeps) > 1:
        parts.append("The colour tells the queue type, the dash tells runs of one type apart.")
    if any(_is_crowded(found, line.setting) for _, found in sweeps for line in found.sweep.lines):
        parts.append("Where a setting has many lines, only the line through the knee is shown.")
    return " ".join(parts)


def _factors_finding(found: Curve) -> str:
    """Which setting has the strongest effect on the rate, among the lines through the knee."""
    sweep = found.sweep
    rates = {}
    for line in sweep.lines:
        if sweep.knee in line.rows:
            least, most = min(line.rows, key=sweep.rate_at), max(line.rows, key=sweep.rate_at)
            rates[line.setting] = (
                sweep.rate_at(most) / sweep.rate_at(least),
                sorted((least, most), key=line.rows.index),
            )
    if not rates:
        return ""
    setting, (factor, ends) = max(rates.items(), key=lambda each: each[1][0])
    low, high = (settings.long(sweep.steps.iloc[[row]], (setting,))[0] for row in ends)
    strongest = "Of the settings, " if len(rates) > 1 else ""
    name = settings.words_of((setting,))
    verb = f"{name} moves the rate most" if len(rates) > 1 else f"{name[:1].upper()}{name[1:]} moves the rate"
    return f"{strongest}{verb}: {words.times(factor)} between {low} and {high}{found.held(setting, sweep.knee)}."


def _looks(sweeps: Sequence[Swept]) -> list[_Look]:
    seen: dict[str, int] = {}
    looks = []
    for load, _ in sweeps:
        run = load.runs.iloc[0]
        queue = str(run["queue_types"]).split(",")[0]
        turn = seen[queue] = seen.get(queue, -1) + 1
        name = str(run["run_id"]) if len(sweeps) > 1 else ""
        dash = theme.DASHES[turn % len(theme.DASHES)]
        looks.append(_Look(name, theme.queue_token(queue), theme.QUEUE_MARKERS.get(queue, "circle"), dash))
    return looks


def _is_crowded(found: Curve, setting: str) -> bool:
    return sum(line.setting == setting for line in found.sweep.lines) > LINES_MAX


def _drawn(found: Curve, setting: str, *, only_knee: bool) -> list[AxisLine]:
    lines = [line for line in found.sweep.lines if line.setting == setting]
    through = [line for line in lines if found.sweep.knee in line.rows]
    return (through or lines[:1]) if only_knee or _is_crowded(found, setting) else lines


def _lines(found: Curve, look: _Look) -> list[factors.FactorLine]:
    made = []
    for setting in found.sweep.varied:
        chosen = _drawn(found, setting, only_knee=bool(look.name))
        for number, line in enumerate(chosen):
            drawn = factors.FactorLine(
                setting=settings.words_of((setting,)),
                name=", ".join(filter(None, (look.name, found.held(setting, line.rows[0]).removeprefix(" at ")))),
                points=_points(found, line),
                colour=look.colour,
                marker=look.marker,
                dash=look.dash,
            )
            if len(chosen) > 1:
                drawn = replace(drawn, colour=theme.scale_token(number, len(chosen)), marker=theme.marker(number))
            made.append(drawn)
    return made


def _points(found: Curve, line: AxisLine) -> pd.DataFrame:
    """The steps of a line with their places on the axis. A setting without a limit stands one place beyond all."""
    sweep = found.sweep
    rows = sweep.steps.iloc[list(line.rows)].reset_index(drop=True)
    numbers = settings.values(rows, (line.setting,))[line.setting].tolist()
    return pd.DataFrame(
        {
            "place": _log_places(numbers),
            "text": settings.short(rows, (line.setting,)),
            "delivered_per_s": rows["delivered_per_s"],
            "p50_ns": rows[sweep.latency.replace("_p99_", "_p50_")],
            "p99_ns": rows[sweep.latency],
        }
    )


def _log_places(numbers: Sequence[float]) -> list[float]:
    """Logarithms to base 2; values that have none (0, no limit) stand one place beside the others.

    ``numbers`` go up.
    """
    known = [log2(number) for number in numbers if 0 < number < inf]
    low, high = (known[0], known[-1]) if known else (0.0, 0.0)
    return [low - 1 if number <= 0 else high + 1 if number == inf else log2(number) for number in numbers]


def _factors_table(lines: Sequence[factors.FactorLine], file: str) -> Table:
    columns = (
        Column(name="setting", title="setting"),
        Column(name="held", title="line"),
        Column(name="text", title="value"),
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column("p50_ns", "end-to-end p50"),
        latency_column("p99_ns", "end-to-end p99"),
    )
    frame = pd.concat([line.points.assign(setting=line.setting, held=line.name) for line in lines], ignore_index=True)
    return table_of(frame, columns, caption="Each setting by itself", file=file)


def _file(sweeps: Sequence[Swept], name: str) -> str:
    return f"{sweeps[0][0].runs.iloc[0]['run_id']}-{name}.csv" if len(sweeps) == 1 else f"{name}.csv"


# Two factors at once.


def _surfaces(sweeps: Sequence[Swept], prefix: str) -> list[Chart]:
    varied = sweeps[0][1].sweep.varied
    if len(varied) != 2 or any(not found.sweep.lines for _, found in sweeps):
        return []
    lead = sweeps[0][1].sweep.lead or varied[0]
    other = next(name for name in varied if name != lead)
    cells = pd.concat([_cells(load, found, (lead, other), many=len(sweeps) > 1) for load, found in sweeps])
    return [
        _surface(cells.assign(value=cells["delivered_per_s"]), (lead, other), sweeps, prefix, latency=False),
        _surface(cells.assign(value=cells["p99_ns"]), (lead, other), sweeps, prefix, latency=True),
    ]


def _cells(load: Tables, found: Curve, names: tuple[str, str], *, many: bool) -> pd.DataFrame:
    steps = found.steps
    run = load.runs.iloc[0]
    numbers = settings.values(steps, names)
    return pd.DataFrame(
        {
            "panel": f"{run['queue_types']}, {run['run_id']}" if many else "",
            "x": settings.short(steps, names[:1]),
            "y": settings.short(steps, names[1:]),
            "across": numbers[names[0]],
            "up": numbers[names[1]],
            "delivered_per_s": steps["delivered_per_s"],
            "p99_ns": steps[found.sweep.latency],
        }
    )


def _surface(
    cells: pd.DataFrame, names: tuple[str, str], sweeps: Sequence[Swept], prefix: str, *, latency: bool
) -> Chart:
    across, up = (settings.words_of((name,)) for name in names)
    quantity = "end-to-end p99" if latency else "delivered rate"
    best = cells.iloc[int(cells["value"].argmin() if latency else cells["value"].argmax())]
    value = words.latency(float(best["value"])) if latency else words.rate(float(best["value"]))
    drawn = _in_order(cells)
    return Chart(
        anchor=f"{prefix}{'p99' if latency else 'rate'}-surface",
        title=f"{quantity[:1].upper()}{quantity[1:]} by {across} and {up}",
        unit="ms" if latency else "msg/s",
        latency=latency,
        how_to_read="Each cell is a step, with its value printed. The colour is on a logarithmic scale"
        + (", the same in all panels" if len(sweeps) > 1 else "")
        + f"; the outline marks the {'lowest' if latency else 'highest'} value. If all columns look alike, only {up} "
        f"matters; if all rows look alike, only {across} does.",
        finding=f"{'Lowest' if latency else 'Highest'}: {value} at {across} {best['x']} and {up} {best['y']}.",
        figure=surface.figure(drawn, across=across, up=up, quantity=quantity, latency=latency, least=latency),
        table=_surface_table(drawn, (across, up), _file(sweeps, "p99-surface" if latency else "rate-surface"), latency),
    )


def _in_order(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells so that both settings rise in the order in which they appear."""
    xs = cells.sort_values("across", kind="stable")["x"].drop_duplicates().tolist()
    ys = cells.sort_values("up", kind="stable")["y"].drop_duplicates().tolist()
    diagonal = cells.assign(x_at=cells["x"].map(xs.index), y_at=cells["y"].map(ys.index))
    return diagonal.sort_values(["panel", "y_at", "x_at"], kind="stable").reset_index(drop=True)


def _surface_table(cells: pd.DataFrame, heads: tuple[str, str], file: str, latency: bool) -> Table:
    columns = (
        *([Column(name="panel", title="run")] if cells["panel"].any() else []),
        Column(name="x", title=heads[0]),
        Column(name="y", title=heads[1]),
        latency_column("p99_ns", "end-to-end p99")
        if latency
        else Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
    )
    return table_of(cells, columns, caption=f"By {heads[0]} and {heads[1]}", file=file)


# Settling time of the tail.


def _settling(load: Tables, prefix: str) -> Chart | None:
    run = load.runs.iloc[0]
    names = settings.swept(run)
    found = settlings(load.timeline, p99=f"{lead_series(run, 'e2e')}_p99_ns")
    if not names or len(found) < 2 or all(each.after_s == 0 for each in found):
        return None  # all within their first interval: nothing to draw
    frame = _changes(load.steps, names, found)
    unsettled = int(frame["after_s"].isna().sum())
    drawn = frame.assign(panel="", row=frame["change"], part=frame["direction"], value=frame["drawn_s"])
    return Chart(
        anchor=f"{prefix}settling",
        title="Time until the end-to-end p99 has settled after each change",
        unit="s",
        how_to_read="A bar for each step, in the order in which the steps ran. The bar ends when the p99 of the "
        f"intervals is within {words.share(WITHIN)} of the step's level (their median p99) and stays there; of three "
        "neighbouring intervals the median counts. A bar that is longer than the warm-up says that the warm-up was too "
        "short. A step that has not settled has a bar of its whole length.",
        finding=_settling_finding(frame, unsettled),
        figure=bars.figure(drawn, quantity="time to settle (s)"),
        table=_settling_table(frame, f"{run['run_id']}-settling.csv"),
    )


def _changes(steps: pd.DataFrame, names: tuple[str, ...], found: Sequence[Settling]) -> pd.DataFrame:
    """A row per step in the order of running: the change that began the step, and how long the p99 took."""
    ran = steps.sort_values("t_s", kind="stable").reset_index(drop=True)
    texts = dict(zip(ran["step"].tolist(), settings.short(ran, names), strict=True))
    values = dict(zip(ran["step"].tolist(), settings.values(ran, names).to_numpy().tolist(), strict=True))
    known = [each for each in found if each.step in texts]
    order = ran["step"].tolist()
    befores = [order[place - 1] if (place := order.index(each.step)) else None for each in known]
    rows = [
        {
            "change": f"{number}. {'start' if before is None else texts[before]} → {texts[each.step]}",
            "direction": _direction(None if before is None else values[before], values[each.step]),
            "after_s": each.after_s,
            "drawn_s": each.length_s if each.after_s is None else each.after_s,
            "settled": "no" if each.after_s is None else "yes",
            "level_ns": each.level_ns,
        }
        for number, (before, each) in enumerate(zip(befores, known, strict=True), 1)
    ]
    return pd.DataFrame(rows)


def _direction(before: Sequence[float] | None, after: Sequence[float]) -> str:
    if before is None or list(before) == list(after):
        return "from idle" if before is None else "same setting"
    return "setting went up" if list(before) < list(after) else "setting went down"


def _settling_finding(frame: pd.DataFrame, unsettled: int) -> str:
    settled = frame[frame["after_s"].notna()]
    never = f" {words.plural(unsettled, 'step')} did not settle." if unsettled else ""
    if settled.empty:
        return f"No step settled: the p99 kept moving by more than {words.share(WITHIN)}."
    worst = settled.iloc[int(settled["after_s"].argmax())]
    change = str(worst["change"]).split(". ", 1)[1]
    return f"The slowest to settle was {change}, after {words.duration(float(worst['after_s']))}.{never}"


def _settling_table(frame: pd.DataFrame, file: str) -> Table:
    columns = (
        Column(name="change", title="change"),
        Column(name="direction", title="direction"),
        Column(name="after_s", title="settled after", kind=Kind.NUMBER, unit="s"),
        Column(name="settled", title="settled"),
        latency_column("level_ns", "level of the p99"),
    )
    return table_of(frame, columns, caption="Time to settle", file=file)
