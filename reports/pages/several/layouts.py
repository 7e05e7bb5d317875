"""The part of the page about layouts of drives: all runs whose manifest has a layout, side by side.

A *cell* is a step of a measured load on one layout. Its panel tells the rest: the plan, the number of queues, the
background load, the settings of the step, and the broker if the page has several. So layouts are compared below one
broker only. Figures of a drive follow from the figures of its files: a node counts
its writes by purpose, and the layout says on which drive the files of a purpose lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from reports.charts import bars, lanes, spectrum
from reports.pages import settings, words
from reports.pages.anatomy import SYNCS
from reports.pages.figures import broker_of, is_simulated, manifest_of
from reports.pages.model import (
    Chart,
    Column,
    DrawnDrive,
    DrawnLayout,
    Kind,
    Layouts,
    Sentence,
    Table,
    Verdicts,
)
from reports.pages.reproduction import named
from reports.pages.several.intervals import HIGH, LOW, RIVALS, named_rivals
from reports.pages.simulated import marked_layouts
from reports.pages.tables import latency_column, supports, table_of
from reports.stats.lead import lead_series
from reports.stats.rounds import interval, overlapping
from reports.store.schema import PERCENTILES
from reports.store.tables import Tables

ALONE: Final = "alone"
ROLE_OF: Final[Mapping[str, str]] = {
    "wal": "wal",
    "meta": "data",
    "snapshot": "data",
    "segment": "segment",
    "classic": "classic",
}
"""The role of the files that a node writes for a purpose."""
_KINDS: Final = ("mount", "directory", "profile", "figures", "fuse")
_DRIVE: Final = re.compile(r"(?P<name>\w+) \((?P<place>.*)\) ?(?P<roles>[a-z, ]*)")
_IO: Final = {"dedicated": "a thread for each store"}
_MEASURES: Final = (
    ("rate", "delivered_per_s", "Delivered rate", "msg/s", "delivered", False),
    ("p99", "p99_ns", "End-to-end p99", "ms", "p99", True),
)


def layouts_section(loads: Sequence[Tables], judged: Sequence[Verdicts]) -> Layouts | None:
    """The part for these measured loads; None if no run had a layout."""
    placed = sorted((load for load in loads if layout_of(load.runs.iloc[0]) is not None), key=_place)
    if not placed:
        return None
    drawn = {layout.name: layout for load in placed if (layout := layout_of(load.runs.iloc[0])) is not None}
    brokers = list(dict.fromkeys(broker_of(load.runs.iloc[0]) for load in placed))
    cells = pd.concat([_cells(load, names_broker=len(brokers) > 1) for load in placed], ignore_index=True)
    rounds = cells.groupby(["panel", "layout"])["run_id"].nunique().max()
    counted = (words.plural(len(drawn), "layout"), words.plural(int(rounds), "round"))
    part = Layouts(
        title=_title(placed),
        subtitle=f"{' of drives, '.join(counted)} · {_workloads(placed)} · {', '.join(brokers)}",
        sentences=tuple(_sentences(cells)),
        headline=_headline(cells),
        drawn=tuple(drawn.values()),
        cells=tuple(_cell_charts(cells)),
        spectra=tuple(_spectra(placed, drawn)),
        over_time=tuple(chart for number, load in enumerate(placed, 1) if (chart := _over_time(load, number))),
        per_message=tuple(_per_message(cells, placed)),
        interference=tuple(_interference(cells)),
        verdicts=tuple(named(each, among=judged) for each in judged),
    )
    return marked_layouts(part, [is_simulated(load.runs.iloc[0]) for load in placed])


def _title(placed: Sequence[Tables]) -> str:
    """The titles of the workloads, on how many layouts."""
    titles = list(dict.fromkeys(settings.title(load.runs.iloc[0]) for load in placed))
    named = titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"
    return f"{named}, by layout of drives"


def _workloads(placed: Sequence[Tables]) -> str:
    """The workloads by name, or their number if there are many."""
    names = list(dict.fromkeys(str(load.runs.iloc[0]["name"]) for load in placed))
    return f"workload {names[0]}" if len(names) == 1 else words.plural(len(names), "workload")


def _headline(cells: pd.DataFrame) -> Table:
    """Each load on each layout, over its rounds."""
    keys = ["panel", "layout"]
    rate = _centres(cells.rename(columns={"delivered_per_s": "value"}), keys)
    tail = _centres(cells.rename(columns={"p99_ns": "value"}), keys)
    frame = rate.merge(tail, how="left", on=keys, suffixes=("", "_p99")).replace([float("inf"), -float("inf")], None)
    several = bool((rate["rounds"] > 1).any())
    low = Column(name="low", title=LOW, kind=Kind.RATE, unit="msg/s")
    ends = (low, replace(low, name="high", title=HIGH)) if several else ()
    frame = frame.assign(rivals=_rivals(rate))
    columns = (
        Column(name="layout", title="layout"),
        *((Column(name="panel", title="load"),) if frame["panel"].nunique() > 1 else ()),
        Column(name="value", title="delivered", kind=Kind.RATE, unit="msg/s"),
        *ends,
        latency_column("value_p99", "p99"),
        *((Column(name="rounds", title="rounds", kind=Kind.COUNT),) if several else ()),
        *((RIVALS,) if frame["rivals"].any() else ()),
    )
    return table_of(frame, columns, caption="Each load on each layout", file="layouts.csv")


def _rivals(rates: pd.DataFrame) -> list[str]:
    """For each row, the layouts of its panel whose intervals overlap with that of the row."""
    named: dict[int, str] = {}
    for _, rows in rates.groupby("panel", sort=False):
        bounds = list(zip(*(rows[name].tolist() for name in ("value", "low", "high")), strict=True))
        named |= dict(zip(rows.index, named_rivals(rows["layout"].tolist(), overlapping(bounds)), strict=True))
    return [named[row] for row in rates.index]


def _centres(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The centre of ``value`` over the rounds of each of ``keys``, with the bounds ``low`` and ``high``, and how many
    ``rounds`` there were. Values of 0 have no centre."""
    known = frame[frame["value"] > 0]
    rows = [
        dict(
            zip((*keys, "value", "low", "high", "rounds"), (*key, *interval(values.tolist()), len(values)), strict=True)
        )
        for key, values in known.groupby(keys, sort=False)["value"]
    ]
    return pd.DataFrame(rows, columns=[*keys, "value", "low", "high", "rounds"])


def _place(load: Tables) -> tuple[Any, ...]:
    """Few queues before many, a light background load before a heavy one; layouts with one kind of drive together, few
    drives before many."""
    run = load.runs.iloc[0]
    plan, layout = manifest_of(run).get("plan") or {}, layout_of(run)
    assert layout is not None
    beside = plan.get("background") or ()
    rate = sum(map(_background_rate, beside))
    kinds = sorted({drive.what for drive in layout.drives})
    return len(plan.get("queues") or ()), bool(beside), rate, len(kinds), kinds, len(layout.drives), layout.name


def layout_of(run: pd.Series[Any]) -> DrawnLayout | None:
    """The layout in the manifest of a run; None if there is none, or if it cannot be read.

    The layout stands under ``cluster`` as an object, or under ``broker`` in a line of text.
    """
    manifest = manifest_of(run)
    cluster, broker = manifest.get("cluster"), manifest.get("broker")
    layout = cluster.get("layout") if isinstance(cluster, dict) else None
    layout = layout or (broker.get("layout") if isinstance(broker, dict) else None)
    layout = _read_line(layout) if isinstance(layout, str) else layout
    if not isinstance(layout, dict) or not layout.get("drives"):
        return None
    roles: dict[str, str] = layout.get("roles") or {}
    roles = roles | ({"classic": roles["data"]} if "data" in roles and "classic" not in roles else {})
    return DrawnLayout(
        name=str(layout.get("name") or layout.get("title") or "layout"),
        io=_io(layout.get("io", "dedicated")),
        drives=tuple(
            DrawnDrive(name=name, what=(what := _what(drive)), roles=tuple(_drawn_roles(roles, name, what)))
            for name, drive in _drives(layout["drives"])
        ),
    )


def _drawn_roles(roles: Mapping[str, str], drive: str, what: str) -> Iterator[str]:
    """The roles on a drive. A model charges only syncs and reads, and a log file has neither."""
    for role in (role for role, on in roles.items() if on == drive):
        yield f"{role} (no cost)" if role == "logs" and what.startswith("modelled") else role


def _read_line(line: str) -> dict[str, Any]:
    """A layout in a line: ``name: fast (/mnt/fast) wal; disk (/mnt/disk) data, segment; io dedicated``."""
    *parts, io = line.split("; ")
    title, _colon, first = (parts or [""])[0].rpartition(": ")
    found = [match for part in (first, *parts[1:]) if (match := _DRIVE.fullmatch(part))]
    roles = {role: match["name"] for match in found for role in match["roles"].split(", ") if role}
    drives = {match["name"]: {"kind": "", "path": match["place"]} for match in found}
    return {"name": title, "drives": drives, "roles": roles, "io": io.removeprefix("io ")}


def _drives(drives: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Drives by their names: as a list of objects with a name, or as an object by name."""
    if isinstance(drives, dict):
        yield from ((str(name), drive or {}) for name, drive in drives.items())
    else:
        yield from ((str(drive.get("name", "")), drive) for drive in drives)


def _what(drive: Mapping[str, Any]) -> str:
    """A drive in a few words."""
    kind = str(drive["kind"] if "kind" in drive else next((name for name in _KINDS if drive.get(name)), "drive"))
    fuse = drive.get("fuse")
    profile = drive.get("profile") or (fuse.get("profile") if isinstance(fuse, dict) else None)
    if kind in ("modelled", "profile", "figures"):
        return f"modelled: {profile or 'own figures'}"
    if kind == "fuse":
        return f"FUSE, modelled: {profile}" if profile else "FUSE"
    place = str(drive.get("path") or drive.get(kind) or "")
    if place.startswith("FUSE"):
        return place
    return f"{kind} {place[-18:]}".strip()


def _io(io: Any) -> str:
    if isinstance(io, dict):
        io = f"pool:{io.get('pool')}"
    name = str(io)
    return _IO.get(name, f"one line of {name.removeprefix('pool:')} threads" if name.startswith("pool:") else name)


def _cells(load: Tables, *, names_broker: bool = False) -> pd.DataFrame:
    """A row per step: where it belongs on the page, and its figures. ``names_broker``: its load has the broker, too."""
    run = load.runs.iloc[0]
    layout = layout_of(run)
    assert layout is not None
    plan = manifest_of(run).get("plan") or {}
    beside = ", ".join(map(_beside, plan.get("background") or ())) or ALONE
    labels = settings.long(load.steps, settings.swept(run))
    bare = words.plural(len(plan.get("queues") or ()), "queue")
    bare = f"{broker_of(run)}, {bare}" if names_broker else bare
    return load.steps.assign(
        layout=layout.name,
        beside=beside,
        p99_ns=load.steps[f"{lead_series(run, 'e2e')}_p99_ns"],
        load=[f"{bare}, {label}" if len(labels) > 1 else bare for label in labels],
        panel=[f"{bare}, {label}, {beside}" if len(labels) > 1 else f"{bare}, {beside}" for label in labels],
    )


def _beside(background: Mapping[str, Any]) -> str:
    """The name of a background load, with its rate, which tells a light load from a heavy one of the same name."""
    name, rate = str(background.get("name", "")), _background_rate(background)
    return f"{name} at {words.rate(rate)}" if rate else name


def _background_rate(background: Mapping[str, Any]) -> float:
    settings = background.get("settings") or {}
    return float((settings.get("rate") or 0) * settings.get("publishers", 1))


def _sentences(cells: pd.DataFrame) -> Iterator[Sentence]:
    """For each load on several layouts, the best layout, the worst, and whether chance may have made the order."""
    panels = list(cells.groupby("panel", sort=False))
    for panel, rows in panels:
        rates = {str(layout): found.tolist() for layout, found in rows.groupby("layout", sort=False)["delivered_per_s"]}
        rates = {layout: values for layout, values in rates.items() if all(value > 0 for value in values)}
        if len(rates) < 2:
            continue
        said = [_order(rates), *_pairs(rates)]
        yield from [Sentence(text=f"{panel}: {' '.join(said)}")] if len(panels) > 1 else map(_sentence, said)
    if len(set(cells["layout"])) == 1:
        yield Sentence(
            text=f"One layout was measured: {cells['layout'].iloc[0]}. Another one to compare it with is missing."
        )


def _order(rates: Mapping[str, list[float]]) -> str:
    """The best and the worst layout, from the rates of each layout's rounds."""
    found = {layout: interval(values) for layout, values in rates.items()}
    best, worst = max(found, key=lambda each: found[each][0]), min(found, key=lambda each: found[each][0])
    most, least = words.rate(found[best][0]), words.rate(found[worst][0])
    if most == least:
        return f"all layouts delivered {most}."
    less = words.share(1 - found[worst][0] / found[best][0])
    said = f"{best} delivered most ({most}), {worst} least ({least}, {less} less)"
    if min(len(rates[best]), len(rates[worst])) < 2:
        return f"{said}; one run of each does not tell whether that is more than chance."
    if overlapping([found[best], found[worst]])[0]:
        return f"{said}; over the rounds, that may be chance: the 95 % intervals overlap."
    return f"{said}, which is more than chance."


def _pairs(rates: Mapping[str, list[float]]) -> Iterator[str]:
    """A sentence about the layouts that the rounds do not tell apart; none if there are no such layouts."""
    layouts, rivals = list(rates), overlapping([interval(values) for values in rates.values()])
    pairs = [(row, other) for row, others in enumerate(rivals) for other in others if row < other]
    if len(pairs) == 1 and len(layouts) > 2:
        ((row, other),) = pairs
        yield f"The rounds cannot tell {layouts[row]} and {layouts[other]} apart: their 95 % intervals overlap."
    elif len(pairs) > 1:
        yield f"The rounds cannot tell {len(pairs)} pairs of layouts apart: their 95 % intervals overlap."


def _sentence(text: str) -> Sentence:
    return Sentence(text=text)


def _cell_charts(cells: pd.DataFrame) -> Iterator[Chart]:
    for name, column, title, unit, word, latency in _MEASURES:
        frame = _centres(cells.rename(columns={column: "value"}), ["panel", "layout"]).rename(columns={"layout": "row"})
        frame = frame.assign(part="")
        if frame.empty:
            continue
        value = (
            latency_column("value", word) if latency else Column(name="value", title=word, kind=Kind.RATE, unit=unit)
        )
        columns = (Column(name="panel", title="load"), Column(name="row", title="layout"), value)
        yield Chart(
            anchor=f"l-cells-{name}",
            title=f"{title} by layout",
            unit="ms" if latency else unit,
            latency=latency,
            how_to_read="Each panel is a load, and its bars are the layouts, over one axis for all panels. A load that "
            f"is {ALONE} has no background load beside it. A bar of several rounds is their geometric mean, and its "
            "whiskers are the 95 % interval.",
            finding=_extremes(frame, latency),
            figure=bars.figure(frame, quantity=f"{title}" if latency else f"{title} ({unit})", latency=latency),
            table=table_of(frame, columns, caption=f"{title} by load and layout", file=f"cells-{name}.csv"),
        )


def _extremes(frame: pd.DataFrame, latency: bool) -> str:
    if len(frame) < 2:
        return ""
    ordered = frame.sort_values("value", kind="stable")
    low, high = ordered.iloc[0], ordered.iloc[-1]
    say = words.latency if latency else words.rate
    text = f"From {say(float(low['value']))} ({low['row']}; {low['panel']})"
    return f"{text} to {say(float(high['value']))} ({high['row']}; {high['panel']})."


def _mean(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return frame.groupby(keys, sort=False)["value"].mean().reset_index()


def _against_alone(cells: pd.DataFrame, figure: str) -> pd.DataFrame:
    """A row for each load beside a background load that also ran alone, on one layout: ``figure`` beside, the same
    alone, and the ``factor`` between them. The load that was alone may belong to another run or workload."""
    keys = ["load", "layout"]
    is_alone = cells["beside"] == ALONE
    alone = cells[is_alone].groupby(keys, sort=False, as_index=False)[figure].mean()
    mixed = cells[~is_alone].groupby([*keys, "beside"], sort=False, as_index=False)[figure].mean()
    known: pd.DataFrame = mixed.merge(alone, on=keys, suffixes=("", "_alone")).dropna()
    frame: pd.DataFrame = known[known[f"{figure}_alone"] > 0]
    return frame.assign(
        panel=frame["load"] + ", beside " + frame["beside"],
        row=frame["layout"],
        factor=frame[figure] / frame[f"{figure}_alone"],
    )


def _interference(cells: pd.DataFrame) -> Iterator[Chart]:
    """Loads that ran alone and beside a background load, on one layout."""
    rates, tails = _against_alone(cells, "delivered_per_s"), _against_alone(cells, "p99_ns")
    if not rates.empty:
        yield _rate_loss(rates.assign(loss=(1 - rates["factor"]) * 100))
    if not tails.empty:
        yield _slower(tails)


def _rate_loss(frame: pd.DataFrame) -> Chart:
    """The part of its rate that each load loses to the background load."""
    drawn = frame.assign(value=frame["loss"].clip(lower=0.0), part="")
    worst = frame.sort_values("loss", kind="stable").iloc[-1]
    columns = (
        Column(name="panel", title="load"),
        Column(name="row", title="layout"),
        Column(name="delivered_per_s_alone", title="alone", kind=Kind.RATE, unit="msg/s"),
        Column(name="delivered_per_s", title="beside", kind=Kind.RATE, unit="msg/s"),
        Column(name="loss", title="loss", kind=Kind.NUMBER, unit="%"),
    )
    return Chart(
        anchor="l-interference-rate",
        title="Delivered rate lost to the background load",
        unit="%",
        how_to_read="0 % means that the background load costs no rate, 100 % that nothing is delivered beside it. A "
        "load of a given rate loses nothing as long as the broker keeps up. The table has a gain as a negative loss.",
        finding=f"{worst['row']} loses most: {words.share(max(float(worst['loss']), 0.0) / 100)} of the rate of "
        f"{worst['panel']}.",
        figure=bars.figure(drawn, quantity="lost part of the delivered rate (%)"),
        table=table_of(frame, columns, caption="Rate lost to a background load", file="interference-rate.csv"),
    )


def _slower(frame: pd.DataFrame) -> Chart:
    """The factor by which the p99 of each load is longer beside the background load."""
    drawn = frame.assign(value=frame["factor"], part="")
    worst = frame.sort_values("factor", kind="stable").iloc[-1]
    columns = (
        Column(name="panel", title="load"),
        Column(name="row", title="layout"),
        latency_column("p99_ns_alone", "p99 alone"),
        latency_column("p99_ns", "p99 beside"),
        Column(name="factor", title="times", kind=Kind.NUMBER),
    )
    return Chart(
        anchor="l-interference-p99",
        title="End-to-end p99 beside the background load, against alone",
        unit="times",
        how_to_read="1 means that the background load costs nothing; 2 that it doubles the p99.",
        finding=f"It costs most on {worst['row']}, where p99 is {words.times(float(worst['factor']))} that of the load "
        "alone.",
        figure=bars.figure(drawn, quantity="p99 beside / p99 alone"),
        table=table_of(frame, columns, caption="Cost of a background load", file="interference.csv"),
    )


def _spectra(placed: Sequence[Tables], drawn: Mapping[str, DrawnLayout]) -> Iterator[Chart]:
    """For each layout, a line per purpose, over all its runs and steps; the drive stands in the name of the line."""
    for number, layout in enumerate(drawn.values(), 1):
        syncs = pd.concat([_syncs(load) for load in placed if _name(load) == layout.name], ignore_index=True)
        if syncs.empty:
            continue
        points = _points(syncs, layout)
        columns = (
            Column(name="setting", title="files"),
            Column(name="panel", title="load"),
            Column(name="percentile", title="percentile", kind=Kind.NUMBER, unit="%"),
            latency_column("value_ns", "length"),
        )
        slowest = points[points["percentile"] == 99.0].sort_values("value_ns").iloc[-1]
        yield Chart(
            anchor=f"l-syncs-{number}",
            title=f"Length of syncs on {layout.name}",
            unit="ms",
            latency=True,
            how_to_read="Each line is a kind of file, with the drive on which it lies, over all nodes. "
            f"{_shown_cells(points)} Where too few syncs support a percentile, the line is dotted.",
            finding=f"The longest syncs are those of {slowest['setting']}: p99 {words.latency(slowest['value_ns'])}.",
            figure=spectrum.figure(points, quantity="sync"),
            table=table_of(points, columns, caption=f"Syncs on {layout.name}", file=f"syncs-{number}.csv"),
        )


def _name(load: Tables) -> str:
    layout = layout_of(load.runs.iloc[0])
    return layout.name if layout is not None else ""


def _syncs(load: Tables) -> pd.DataFrame:
    """The syncs of a run by kind of file and step, with the panel of the step's cell."""
    mine = _cells(load)
    syncs = load.stages[load.stages["chain"] == SYNCS]
    return syncs.assign(panel=syncs["step"].map(dict(zip(mine["step"], mine["panel"], strict=True))).fillna(""))


def _shown_cells(points: pd.DataFrame) -> str:
    """Which step each line shows, as a sentence."""
    shown = points.drop_duplicates("setting").groupby("panel", sort=False)["setting"].agg(", ".join)
    text = "; ".join(f"of {files}: {panel}" for panel, files in shown.items())
    if len(shown) == 1:
        text = str(shown.index[0])
    return f"Of several steps, a line shows the step with the most syncs: {text}."


def _points(syncs: pd.DataFrame, layout: DrawnLayout) -> pd.DataFrame:
    """The percentiles of each purpose: histograms of several steps are not added here, so the fullest step stands."""
    rows = []
    fullest = syncs.sort_values("count", ascending=False, kind="stable").drop_duplicates("stage")
    for number, (_, row) in enumerate(fullest.sort_values("stage").iterrows(), 1):
        for name, percentile in PERCENTILES.items():
            rows.append(
                {
                    "step": number,
                    "setting": f"{row['stage']} ({_drive(layout, str(row['stage']))})",
                    "panel": row["panel"],
                    "series": "sync",
                    "percentile": percentile,
                    "value_ns": row[f"{name}_ns"],
                    "supported": supports(float(row["count"]), name),
                }
            )
    return pd.DataFrame(rows)


def _drive(layout: DrawnLayout, purpose: str) -> str:
    role = ROLE_OF.get(purpose, purpose)
    return next((drive.name for drive in layout.drives if role in drive.roles), "no drive named")


def _per_message(cells: pd.DataFrame, placed: Sequence[Tables]) -> Iterator[Chart]:
    """Octets and syncs of all nodes per delivered message, by purpose."""
    costs = [found for load in placed if not (found := _costs(load, cells)).empty]
    if not costs:
        return
    rows = pd.concat(costs, ignore_index=True)
    for name, title, unit in (
        ("bytes", "Octets written per message", "B/msg"),
        ("syncs", "Syncs per 1,000 messages", "1/1,000 msg"),
    ):
        means = rows.rename(columns={name: "value"}).dropna(subset=["value"])
        frame = _mean(means, ["panel", "row", "part"])
        columns = (
            Column(name="panel", title="load"),
            Column(name="row", title="layout"),
            Column(name="part", title="purpose"),
            Column(name="value", title=title.lower(), kind=Kind.NUMBER, unit=unit),
        )
        yield Chart(
            anchor=f"l-per-message-{name}",
            title=title,
            unit=unit,
            how_to_read="All nodes together, while the step is steady. The parts of a bar are what the files are for. "
            "What background loads write is in the bars, too: the messages are those of the measured load.",
            finding="",
            figure=bars.figure(frame, quantity=f"{title} ({unit})"),
            table=table_of(frame, columns, caption=title, file=f"per-message-{name}.csv"),
        )


def _costs(load: Tables, cells: pd.DataFrame) -> pd.DataFrame:
    """A row per step and purpose with ``bytes`` and ``syncs`` (per 1,000) of a delivered message."""
    mine = cells[cells["run_id"] == load.runs.iloc[0]["run_id"]]
    rows = []
    for _, step in mine.iterrows():
        begins_s, ends_s = load.writes["t_s"] - load.writes["length_s"], load.writes["t_s"]
        spent = load.writes[(begins_s >= step["t_s"]) & (ends_s <= step["t_s"] + step["length_s"])]
        if spent.empty or not step["delivered_per_s"] > 0:
            continue
        per_node = spent.groupby(["purpose", "node"])[["bytes_per_s", "syncs_per_s"]].mean()
        for purpose, rates in per_node.groupby("purpose").sum(min_count=1).iterrows():
            rows.append(
                {
                    "panel": step["panel"],
                    "row": step["layout"],
                    "part": purpose,
                    "bytes": rates["bytes_per_s"] / step["delivered_per_s"],
                    "syncs": 1000 * rates["syncs_per_s"] / step["delivered_per_s"],
                }
            )
    return pd.DataFrame(rows, columns=["panel", "row", "part", "bytes", "syncs"])


def _over_time(load: Tables, number: int) -> Chart | None:
    """Octets and syncs of all nodes over the time of one run, by purpose."""
    if load.writes.empty:
        return None
    run = load.runs.iloc[0]
    second = (load.writes["t_s"] / max(float(run["interval_s"]), 1.0)).round()
    size = -(-int(second.nunique()) // lanes.POINTS_MAX)
    keyed = load.writes.assign(slot=second // size)
    nodes = keyed.groupby(["slot", "purpose", "node"])[["t_s", "bytes_per_s", "syncs_per_s"]].mean()
    summed = nodes.groupby(["slot", "purpose"]).agg({"t_s": "min", "bytes_per_s": "sum", "syncs_per_s": "sum"})
    frame = summed.reset_index().rename(columns={"purpose": "name"})
    layout = _name(load)
    columns = (
        Column(name="t_s", title="time", kind=Kind.NUMBER, unit="s"),
        Column(name="name", title="purpose"),
        Column(name="bytes_per_s", title="octets", kind=Kind.RATE, unit="B/s"),
        Column(name="syncs_per_s", title="syncs", kind=Kind.RATE, unit="1/s"),
    )
    titles = {"bytes_per_s": "octets (B/s)", "syncs_per_s": "syncs (1/s)"}
    drawn = {title: frame.rename(columns={column: "value"}) for column, title in titles.items()}
    return Chart(
        anchor=f"l-time-{number}",
        title=f"Writes of {run['run_id']} on {layout}",
        unit="",
        how_to_read="All nodes together. Each line is what the files are for.",
        finding="",
        figure=lanes.figure(drawn),
        table=table_of(frame, columns, caption=f"Writes over time on {layout}", file=f"writes-{number}.csv"),
    )
