"""A baseline and a candidate: whether they can be compared, what changed, and what changed along inside the broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite, log1p
from typing import Any, Final

import numpy as np
import pandas as pd

from perftest.results.trust import Status
from reports.charts import bars, forest, heat, pair, theme, timeline
from reports.pages import words
from reports.pages.anatomy import LOOKS, OUTSIDE
from reports.pages.model import Banner, Cell, Chart, Chip, Column, Comparison, Kind, Page, Sentence, Table
from reports.pages.several.judged import Judged, JudgedRow
from reports.pages.tables import latency_column, table_of
from reports.pages.trust_words import ledger_chip, runs_chip
from reports.stats.confidence import ChangeVerdict
from reports.stats.lead import lead_series, with_lead
from reports.stats.validity import checks
from reports.store.tables import Tables

GRAVEST_MAX: Final = 12
"""Most rows of the picture beside the answer."""
FOREST_MAX: Final = 60
"""Most rows of the forest plot; the table of verdicts has all."""
SPECTRA_MAX: Final = 6
"""Most steps whose spectra are drawn, and most whose stages are."""
COLUMNS_EACH: Final = timeline.COLUMNS_MAX // 2
"""Most points in time of each side."""
HEAT_ROWS: Final = ("max", "p99", "p95", "p50")
"""Rows of the heat map of each side, top down."""

MARKS: Final[Mapping[ChangeVerdict, str]] = {
    ChangeVerdict.REGRESSED: "✕",
    ChangeVerdict.IMPROVED: "✓",
    ChangeVerdict.INCONCLUSIVE: "?",
}
STATUSES: Final[Mapping[ChangeVerdict, Status]] = {
    ChangeVerdict.REGRESSED: Status.FAIL,
    ChangeVerdict.INCONCLUSIVE: Status.WARN,
}

RESOURCES: Final = (
    ("broker_cpu_us_per_message", "broker CPU", "µs/msg"),
    ("broker_cpu_share", "broker CPU", "cores"),
    ("wal_syncs_per_s", "WAL syncs", "1/s"),
    ("wal_bytes_per_message", "WAL bytes", "B/msg"),
    ("worker_cpu_us_per_message", "generator CPU", "µs/msg"),
    ("host_cpu_percent", "CPU of the load host", "%"),
)
"""Columns of the table of steps for the resources that a side used, with words and units."""


class _Side:
    """The repetitions of one side, each with its own tables; a run that the store does not have is left out."""

    def __init__(self, tables: Tables, run_ids: Sequence[str]) -> None:
        groups = dict(reversed(tables.loads))
        self.runs = [tables.of(run, groups[run]) for run in run_ids if run in groups]

    def frame(self, name: str) -> pd.DataFrame:
        """One table of all repetitions below each other."""
        return pd.concat([getattr(run, name) for run in self.runs], ignore_index=True) if self.runs else pd.DataFrame()

    def series(self, kind: str) -> str:
        """The series to lead with."""
        return lead_series(self.runs[0].runs.iloc[0], kind)

    @property
    def queue(self) -> str:
        """The queue type of the side."""
        return str(self.runs[0].runs.iloc[0]["queue_types"]).split(",")[0]


def comparison_page(found: Judged, tables: Tables, *, generated: str, names: tuple[str, str]) -> Page:
    """The page of a comparison. ``tables`` hold the runs of both sides; ``names`` are the directories of baseline and
    candidate."""
    part = comparison_part(found, with_lead(tables), names=names)
    return Page(title=part.title, generated=generated, parts=(("comparison", part),))


def comparison_part(found: Judged, tables: Tables, *, names: tuple[str, str]) -> Comparison:
    """The comparison as the page shows it; without the figures of runs that ``tables`` do not have."""
    base, candidate = _Side(tables, found.base), _Side(tables, found.candidate)
    both = bool(base.runs and candidate.runs and found.comparable)
    steps = _worst_steps(found.rows) if both else []
    sides = zip(("baseline", "candidate"), (found.base, found.candidate), (base, candidate), names, strict=True)
    return Comparison(
        title=_title(base, candidate),
        subtitle=" · ".join(_side_in_words(word, len(ids), side, name) for word, ids, side, name in sides),
        chips=(*_trust_chips((*base.runs, *candidate.runs)), *_chips(found)),
        banners=tuple(_banners(found)),
        sentences=tuple(_sentences(found)),
        headline=_verdicts(found.rows[:GRAVEST_MAX]) if found.rows else None,
        gravest=next(_forest(found.rows[:GRAVEST_MAX], "gravest", "The gravest changes with their intervals"), None),
        alike=_alike(found),
        differences=_differences(found),
        verdicts=_verdicts(found.rows) if found.rows else None,
        forest=tuple(_forest(found.rows)) if len(found.rows) > GRAVEST_MAX else (),
        spectra=tuple(_spectra(base, candidate, steps, found.noise_latency)) if both else (),
        over_time=(*_over_time(base, candidate), *_heat(base, candidate, found.noise_latency)) if both else (),
        inside=tuple(_inside(base, candidate, steps)) if both else (),
        resources=_resources(base, candidate) if both else None,
    )


def _side_in_words(word: str, count: int, side: _Side, name: str) -> str:
    """A side with the number of its runs, their directory, and the broker that they measured."""
    firsts = [run.runs.iloc[0] for run in side.runs]
    brokers = dict.fromkeys(f"{run['product']} {run['broker_version']}".strip() for run in firsts)
    known = f" ({', '.join(filter(None, brokers))})" if any(brokers) else ""
    return f"{word}: {words.plural(count, 'run')} of {name}{known}"


def _trust_chips(runs: Sequence[Tables]) -> Iterator[Chip]:
    """The worst ledger of both sides, and whether the runs are valid; nothing if no run is known."""
    if runs:
        yield ledger_chip("" if run.ledger.empty else str(run.ledger.iloc[0]["verdict"]) for run in runs)
        yield runs_chip([checks(run) for run in runs])


def _title(base: _Side, candidate: _Side) -> str:
    """The workload, if both sides have the same."""
    titles = [str(side.runs[0].runs.iloc[0]["title"]) for side in (base, candidate) if side.runs]
    return f"{titles[0]}: candidate against baseline" if len(set(titles)) == 1 and titles[0] else _NO_TITLE


_NO_TITLE: Final = "Candidate against baseline"


def _worst_steps(rows: Sequence[JudgedRow]) -> list[str]:
    """The steps to draw: in the order of their gravest verdicts, at most :data:`SPECTRA_MAX`."""
    return list(dict.fromkeys(row.step for row in rows))[:SPECTRA_MAX]


def _chips(found: Judged) -> Iterator[Chip]:
    said = "yes" if found.rows else "yes, but nothing was" if found.comparable else "no"
    yield Chip(name="Comparable", value=said, status=Status.PASS if found.rows else Status.FAIL)
    counts = pd.Series([row.verdict for row in found.rows], dtype=object).value_counts()
    for verdict in ChangeVerdict:
        if verdict in counts:
            text = f"{MARKS.get(verdict, '·')} {counts[verdict]}"
            yield Chip(name=verdict.capitalize(), value=text, status=STATUSES.get(verdict, Status.NOTE))


def _banners(found: Judged) -> Iterator[Banner]:
    if not found.comparable:
        facets = list(dict.fromkeys(each.facet for each in found.differences if each.refused))
        flags = " ".join(f"--allow {facet}" for facet in facets)
        text = (
            f"The sides differ in {' and '.join(facets)}, so a change could not be put down to the broker. Measure "
            f"again under equal conditions, or compare nonetheless with {flags}."
        )
        yield Banner(status=Status.FAIL, title="Not comparable", text=text)


def _sentences(found: Judged) -> Iterator[Sentence]:
    if found.rows and (lead := _lead(found.rows)):
        yield Sentence(text=lead)
    summary = [_counts(found.rows)] if found.rows else list(found.sentences[:1])
    for number, sentence in enumerate([*summary, *found.sentences[1:]]):
        text = f"{sentence[:1].upper()}{sentence[1:]}."
        yield Sentence(text=text, anchor="" if number else "verdicts", see="table")


def _counts(rows: Sequence[JudgedRow]) -> str:
    """The number of figures with each verdict, which add up to all."""
    counts = [(sum(row.verdict is verdict for row in rows), verdict) for verdict in ChangeVerdict]
    told = ", ".join(f"{count} {verdict}" for count, verdict in counts if count)
    return f"{words.plural(len(rows), 'figure')}: {told}"


def _lead(rows: Sequence[JudgedRow]) -> str:
    """The gravest change by name; empty without a change. ``rows`` are in the order of their verdicts."""
    for verdict, word in ((ChangeVerdict.REGRESSED, "worse"), (ChangeVerdict.IMPROVED, "better")):
        changed = [row for row in rows if row.verdict is verdict]
        if changed:
            most = max(changed, key=lambda row: abs(log1p(row.value)))
            figures = f"{100 * most.value:+.3g} % ({100 * most.low:+.3g} to {100 * most.high:+.3g} %)"
            where = f"{most.metric} at {most.step}" if most.step else most.metric
            return (
                f"The candidate is {word} in {len(changed)} of {words.plural(len(rows), 'figure')}, most in {where}: "
                f"{figures}."
            )
    return ""


def _alike(found: Judged) -> Sentence:
    refused = sum(each.refused for each in found.differences)
    if refused:
        return Sentence(text=f"No: {words.plural(refused, 'difference')} of the experiment itself, marked below.")
    if not found.differences:
        return Sentence(text="Yes: plan, load hosts, durability, broker and tool are the same on both sides.")
    return Sentence(
        text="Yes: the experiment is the same on both sides. The sides differ only in what is listed here, which may "
        "be the reason for what changed."
    )


def _differences(found: Judged) -> Table | None:
    if not found.differences:
        return None
    titles = {"facet": "aspect", "where": "key", "base": "baseline", "candidate": "candidate", "effect": "consequence"}
    rows = sorted(found.differences, key=lambda each: not each.refused)
    return Table(
        caption="In what the sides themselves differ",
        file="differences.csv",
        columns=tuple(Column(name=name, title=title) for name, title in titles.items()),
        rows=tuple(
            (each.facet, each.where, each.base, each.candidate, "✕ not comparable" if each.refused else "shown")
            for each in rows
        ),
    )


def _verdicts(rows: Sequence[JudgedRow]) -> Table:
    columns, cells = _verdict_columns(rows), [_verdict_cells(row) for row in rows]
    return Table(
        caption="Every metric of every step with its verdict, regressed first",
        file="verdicts.csv",
        columns=columns,
        rows=tuple(tuple(cell[column.name] for column in columns) for cell in cells),
    )


def _verdict_columns(rows: Sequence[JudgedRow]) -> tuple[Column, ...]:
    # A reason that holds for every row stands above, in the result.
    doubt = (Column(name="doubt", title="why no verdict"),) if len({row.doubt for row in rows}) > 1 else ()
    apart = any(_are_apart(row) for row in rows)
    medians = (Column(name="medians", title="change of medians", kind=Kind.CHANGE, unit="%"),) if apart else ()
    return (
        Column(name="step", title="step"),
        Column(name="metric", title="metric"),
        Column(name="unit", title="unit"),
        Column(name="baseline", title="baseline median", kind=Kind.NUMBER),
        Column(name="candidate", title="candidate median", kind=Kind.NUMBER),
        *medians,
        Column(name="change", title="shift (Hodges, Lehmann)", kind=Kind.CHANGE, unit="%"),
        Column(name="low", title="interval from", kind=Kind.CHANGE, unit="%"),
        Column(name="high", title="interval to", kind=Kind.CHANGE, unit="%"),
        Column(name="verdict", title="verdict"),
        *doubt,
    )


def _of_medians(row: JudgedRow) -> float:
    return row.candidate / row.base - 1 if row.base else inf


def _are_apart(row: JudgedRow) -> bool:
    """Whether the change of the medians and the shift differ in what the table shows of them."""
    medians = _of_medians(row)
    return isfinite(medians) and isfinite(row.value) and f"{100 * medians:.1f}" != f"{100 * row.value:.1f}"


def _verdict_cells(row: JudgedRow) -> dict[str, Cell]:
    """The cells of a row by column. The mark of a verdict is no arrow, which would look like the way of the figure."""
    return {
        "step": row.step or "run",
        "metric": row.metric,
        "unit": row.unit,
        "baseline": row.base,
        "candidate": row.candidate,
        "medians": _percent(_of_medians(row)),
        "change": _percent(row.value),
        "low": _percent(row.low),
        "high": _percent(row.high),
        "verdict": f"{MARKS.get(row.verdict, '·')} {row.verdict}",
        "doubt": row.doubt,
    }


def _percent(part: float) -> float | None:
    return 100 * part if isfinite(part) else None


def _forest(
    rows: Sequence[JudgedRow], anchor: str = "forest", title: str = "Change of each metric with its interval"
) -> Iterator[Chart]:
    shown = [row for row in rows if isfinite(row.value)][:FOREST_MAX]
    if not shown:
        return
    frame = pd.DataFrame(
        {
            "row": [f"{row.step or 'run'}: {row.metric}" for row in shown],
            **{name: [getattr(row, name) for row in shown] for name in ("value", "low", "high", "noise")},
            "verdict": [str(row.verdict) for row in shown],
        }
    )
    cut = (
        f" The {len(shown)} gravest of {len(rows)} rows are drawn; the table has all." if len(shown) < len(rows) else ""
    )
    yield Chart(
        anchor=anchor,
        title=title,
        unit="%",
        how_to_read="Each row is a metric of a step: the mark is the change, the line its interval, and the grey band "
        "is what counts as noise. A line wholly outside the band is a change; a line that reaches into the band and "
        "out of it leaves the question open. A longer latency is worse although it lies to the right, so go by "
        "the marks: crosses regressed, squares improved, rings are inconclusive, the rest did not "
        f"change.{cut}",
        finding="",
        figure=forest.figure(frame),
        table=_verdicts(shown),
    )


# The distributions of both sides.


def _spectra(base: _Side, candidate: _Side, steps: Sequence[str], noise: float) -> Iterator[Chart]:
    sides = [_spectrum(side, side.series("e2e")) for side in (base, candidate)]
    for number, step in enumerate(steps, 1):
        points = _paired(*(side[side["label"] == step] for side in sides))
        if len(points) < 2:
            continue
        yield Chart(
            anchor=f"spectrum-{number}",
            title=f"End-to-end latency by percentile, {step or 'run'}",
            unit="ms",
            latency=True,
            how_to_read="The baseline is dashed with hollow points, the candidate solid. Of several repetitions each "
            "point is the geometric mean. Below is the candidate as a multiple of the baseline: above 1 it is slower. "
            "The grey band is what counts as noise. Only percentiles with enough samples on both sides are drawn.",
            finding=_spectrum_finding(points, noise),
            figure=pair.spectrum_pair(
                points, quantity="end-to-end latency", noise=noise, colour=theme.queue_token(candidate.queue)
            ),
            table=_spectrum_table(points, f"spectrum-{number}.csv"),
        )


def _spectrum(side: _Side, series: str) -> pd.DataFrame:
    """The points that every repetition supports, as geometric means: ``label``, ``percentile``, ``value_ns``."""
    points = pd.concat([_of_series(run, series) for run in side.runs], ignore_index=True)
    points = points[points["supported"].astype(bool) & (points["value_ns"] > 0)]
    points = points.assign(percentile=points["percentile"].round(9), log=np.log(points["value_ns"].astype(float)))
    means = points.groupby(["label", "percentile"], sort=True)["log"].agg(["mean", "count"]).reset_index()
    means = means[means["count"] == len(side.runs)]
    return means.assign(value_ns=np.exp(means["mean"]))[["label", "percentile", "value_ns"]]


def _of_series(run: Tables, series: str) -> pd.DataFrame:
    """The points of the leading series; in a mixed run, whose steps lead with different series, each step's own."""
    if not series.endswith("_lead"):
        return run.spectrum[run.spectrum["series"] == series]
    leads = dict(zip(run.steps["step"], run.steps["e2e_series"], strict=True))
    return run.spectrum[run.spectrum["series"] == run.spectrum["step"].map(leads)]


def _paired(base: pd.DataFrame, candidate: pd.DataFrame) -> pd.DataFrame:
    both = base.merge(candidate, on="percentile", suffixes=("_base", "_candidate")).sort_values("percentile")
    return pd.DataFrame(
        {
            "percentile": both["percentile"],
            "baseline_ns": both["value_ns_base"],
            "candidate_ns": both["value_ns_candidate"],
            "ratio": both["value_ns_candidate"] / both["value_ns_base"],
        }
    ).reset_index(drop=True)


def _spectrum_finding(points: pd.DataFrame, noise: float) -> str:
    if (points["ratio"] - 1).abs().max() <= noise:
        return f"The sides differ by {words.share(noise)} at most, at every percentile."
    at = int((points["ratio"].map(np.log)).abs().argmax())
    row = points.iloc[at]
    sides = f"{words.latency(row['candidate_ns'])} against {words.latency(row['baseline_ns'])}"
    return f"The sides are furthest apart at {row['percentile']:.6g} %: {words.times(row['ratio'])}, {sides}."


def _spectrum_table(points: pd.DataFrame, file: str) -> Table:
    columns = (
        Column(name="percentile", title="percentile", kind=Kind.NUMBER, unit="%"),
        latency_column("baseline_ns", "baseline"),
        latency_column("candidate_ns", "candidate"),
        Column(name="ratio", title="candidate ÷ baseline", kind=Kind.NUMBER),
    )
    frame = points.assign(percentile=[float(f"{percentile:.6g}") for percentile in points["percentile"]])
    return table_of(frame, columns, caption="Both sides by percentile", file=file)


# Over time, each step from its own start.


def _over_time(base: _Side, candidate: _Side) -> Iterator[Chart]:
    before, after = (_slots(side) for side in (base, candidate))
    starts = before.groupby("label", sort=False)["t_s"].min()
    own = after.groupby("label", sort=False)["t_s"].min()
    after = after[after["label"].isin(starts.index)]
    moved = after["t_s"] - after["label"].map(own) + after["label"].map(starts)
    slots = pd.concat([before.assign(side="baseline"), after.assign(side="candidate", t_s=moved)], ignore_index=True)
    if before.empty or after.empty:
        return
    ends = slots.groupby("label", sort=False)["t_s"].max()
    bands = [(label, float(starts[label]), float(ends[label])) for label in map(str, starts.index)]
    yield Chart(
        anchor="over-time",
        title="Delivered rate (msg/s) and end-to-end p99 over time, step by step",
        unit="",
        how_to_read="The baseline is dashed, the candidate solid: the first run of each side. Each step of the "
        "candidate begins where the same step of the baseline began. Of grouped intervals the rate is the mean, "
        "the p99 that of the worst.",
        finding="",
        figure=pair.time_pair(_with_gaps(slots), bands, colour=theme.queue_token(candidate.queue)),
        table=_time_table(slots),
    )


def _slots(side: _Side) -> pd.DataFrame:
    """The intervals of the first repetition, thinned."""
    series, frame = side.series("e2e"), side.runs[0].timeline
    kept = frame.loc[frame["phase"] != "drain", ["step", "label", "phase", "t_s", "length_s", "delivered_per_s"]]
    kept = kept.assign(p99_ns=frame[f"{series}_p99_ns"]).sort_values("t_s", kind="stable").reset_index(drop=True)
    return timeline.thin(kept, columns_max=COLUMNS_EACH)[0]


def _with_gaps(slots: pd.DataFrame) -> pd.DataFrame:
    """An empty row behind each step of each side, so that no line joins two steps."""
    last = slots.groupby(["side", "label"], sort=False)["t_s"].max().reset_index()
    gaps = last.assign(t_s=last["t_s"] + 1e-3, delivered_per_s=np.nan, p99_ns=np.nan)
    return pd.concat([slots, gaps], ignore_index=True).sort_values(["side", "t_s"], kind="stable")


def _time_table(slots: pd.DataFrame) -> Table:
    columns = (
        Column(name="side", title="side"),
        Column(name="label", title="step"),
        Column(name="phase", title="phase"),
        Column(name="t_s", title="time in the baseline", kind=Kind.NUMBER, unit="s"),
        Column(name="delivered_per_s", title="delivered", kind=Kind.RATE, unit="msg/s"),
        latency_column("p99_ns", "end-to-end p99"),
    )
    return table_of(slots, columns, caption="Intervals of the first run of each side", file="over-time.csv")


def _heat(base: _Side, candidate: _Side, noise: float) -> Iterator[Chart]:
    """The percentiles of both sides over time, above each other on one scale of colours."""
    moments = ["label", "phase", "slot"]
    after = _moments(candidate, "candidate").drop(columns=["step", "t_s"])
    both = timeline.thin(_moments(base, "baseline").merge(after, on=moments), columns_max=COLUMNS_EACH)[0]
    names = {f"{side}_{name}_ns": f"{name} {side}" for name in HEAT_ROWS for side in pair.SIDES}
    points = pd.concat([both[["t_s"]].assign(row=row, value=both[name]) for name, row in names.items()])
    points = points[points["value"] > 0]
    if points.empty:
        return
    yield Chart(
        anchor="heat",
        title="End-to-end percentiles of both sides over time",
        unit="",
        how_to_read="Two rows for each percentile: the baseline above, the candidate below, all on one scale. "
        "Each column is an interval of the first run of each side, or the worst of several, at the time of the "
        "baseline. Where the two rows differ at p99 alone, the tail changed; where they differ at p50, too, everything "
        "did.",
        finding=_heat_finding(both["candidate_p99_ns"] / both["baseline_p99_ns"] - 1, noise),
        figure=heat.figure(points, list(names.values())),
        table=_heat_table(both, names),
    )


def _moments(side: _Side, name: str) -> pd.DataFrame:
    """The intervals of the first repetition with the percentiles of the leading series, in the order of time; among
    steps with the same settings, only the first step's."""
    series, frame = side.series("e2e"), side.runs[0].timeline
    figures = {f"{name}_{row}_ns": frame[f"{series}_{row}_ns"] for row in HEAT_ROWS}
    kept = frame.loc[frame["phase"] != "drain", ["step", "label", "phase", "slot", "t_s"]].assign(**figures)
    return kept.sort_values("t_s", kind="stable").drop_duplicates(["label", "phase", "slot"], ignore_index=True)


def _heat_finding(changes: pd.Series[float], noise: float) -> str:
    known = changes.dropna()
    if known.empty:
        return ""
    above, below = (words.share(float(part.mean())) for part in (known > noise, known < -noise))
    limit = f"{100 * noise:g} %"
    return (
        f"In {above} of the intervals the candidate's p99 is over {limit} above the baseline's; in {below} of them, "
        f"over {limit} below."
    )


def _heat_table(both: pd.DataFrame, names: Mapping[str, str]) -> Table:
    columns = (
        Column(name="label", title="step"),
        Column(name="phase", title="phase"),
        Column(name="t_s", title="time in the baseline", kind=Kind.NUMBER, unit="s"),
        *(latency_column(name, title) for name, title in names.items()),
    )
    return table_of(both, columns, caption="Percentiles of the first run of each side", file="heat.csv")


# What changed along.


def _inside(base: _Side, candidate: _Side, steps: Sequence[str]) -> Iterator[Chart]:
    frame = _stage_changes(base, candidate, steps)
    if frame.empty or frame["change_ns"].abs().max() < 1:
        return
    worst = frame.iloc[int(frame["change_ns"].abs().argmax())]
    moved = f"{words.latency(worst['baseline_ns'])} to {words.latency(worst['candidate_ns'])}"
    drawn = frame.assign(panel=frame["label"], row=frame["stage"], part="", value=frame["change_ns"])
    yield Chart(
        anchor="stages",
        title="Stages of the broker: change of the mean time",
        unit="ms",
        latency=True,
        how_to_read="A panel for each step, a bar for each stage of a message's way to its consumer: the mean time in "
        "the candidate less the mean time in the baseline. A bar to the right is a stage that takes longer. Means add "
        "up, so the bars of a panel add up to the change of the mean within the broker.",
        finding=f"The largest change is in {worst['stage']} at {worst['label'] or 'run'}: from {moved} in the mean.",
        figure=bars.figure(drawn, quantity="change of the mean", latency=True),
        table=table_of(
            frame,
            (
                Column(name="label", title="step"),
                Column(name="stage", title="stage"),
                latency_column("baseline_ns", "baseline mean"),
                latency_column("candidate_ns", "candidate mean"),
                latency_column("change_ns", "change"),
            ),
            caption="Mean time of each stage on both sides",
            file="stages.csv",
        ),
    )


def _stage_changes(base: _Side, candidate: _Side, steps: Sequence[str]) -> pd.DataFrame:
    """Stages that both sides have, in the order of the way: means over the repetitions (ns)."""
    means = []
    for side in (base, candidate):
        stages = side.frame("stages")
        delivery = stages[(stages["chain"] == "delivery") & stages["label"].isin(steps)]
        means.append(delivery.groupby(["label", "stage"])["mean_ns"].mean())
    both = pd.concat(means, axis=1, keys=["baseline_ns", "candidate_ns"], join="inner").reset_index()
    ways = [name for name in LOOKS if name != OUTSIDE]
    both = both[both["stage"].isin(ways)]
    places = both.assign(at=both["label"].map(list(steps).index), way=both["stage"].map(ways.index))
    ordered = places.sort_values(["at", "way"]).reset_index(drop=True)
    titles = ordered["stage"].map({name: LOOKS[name].title for name in ways})
    return ordered.assign(stage=titles, change_ns=ordered["candidate_ns"] - ordered["baseline_ns"])


def _resources(base: _Side, candidate: _Side) -> Table | None:
    """The resources that each side used, as means over its repetitions; None if nothing is known of both."""
    before, after = (_means(side) for side in (base, candidate))
    rows = [
        (str(label), title, unit, *_changed(float(before.loc[label, name]), float(after.loc[label, name])))
        for label in before.index
        if label in after.index
        for name, title, unit in RESOURCES
        if pd.notna(before.loc[label, name]) and pd.notna(after.loc[label, name])
    ]
    columns = (
        Column(name="step", title="step"),
        Column(name="figure", title="figure"),
        Column(name="unit", title="unit"),
        Column(name="baseline", title="baseline", kind=Kind.NUMBER),
        Column(name="candidate", title="candidate", kind=Kind.NUMBER),
        Column(name="change", title="change", kind=Kind.CHANGE, unit="%"),
    )
    caption = "What each side used, without a verdict"
    return Table(caption=caption, file="resources.csv", columns=columns, rows=tuple(rows)) if rows else None


def _changed(before: float, after: float) -> tuple[float, float, float | None]:
    return before, after, 100 * (after / before - 1) if before else None


def _means(side: _Side) -> Any:
    names = [name for name, *_ in RESOURCES]
    return side.frame("steps").groupby("label", sort=False)[names].mean()
