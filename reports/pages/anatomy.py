"""The section "Where the time went": the stages of a message's way through the broker, step by step.

Means add up, so the bars show means. Percentiles do not add up, because the messages that are slowest in one stage are
not the slowest in the next. So percentiles stand in a table, and are never added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from perftest.results.trust import SAMPLES_ABOVE
from reports.charts import shares
from reports.charts.shares import StageLook
from reports.pages import settings, words
from reports.pages.answer import curve
from reports.pages.model import Anatomy, Chart, Column, Kind, Sentence, Table
from reports.pages.tables import latency_column, table_of
from reports.store.tables import Tables

OUTSIDE: Final = "outside"
TOTAL: Final = "total"
SYNCS: Final = "fsync"
"""The chain that holds the lengths of all syncs by the role of the file. No message goes through such a chain."""

LOOKS: Final[Mapping[str, StageLook]] = {
    "read": StageLook("read", "@scale/0.000"),
    "propose": StageLook("propose", "@scale/0.120", ink="@ink"),
    "forward": StageLook("forward", "@scale/0.120", "/", ink="@ink"),
    "append": StageLook("append", "@scale/0.300", "."),
    "wal_queue": StageLook("WAL queue", "@scale/0.420", "/"),
    "wal_write": StageLook("WAL write", "@scale/0.420", "x"),
    "fsync": StageLook("fsync", "@scale/0.560"),
    "replicate": StageLook("replicate", "@scale/0.780"),
    "apply": StageLook("apply", "@scale/0.900", "."),
    "ready": StageLook("ready", "@classic"),
    "deliver": StageLook("deliver", "@scale/1.000"),
    "confirm": StageLook("confirm", "@scale/1.000"),
    "settle": StageLook("settle", "@soft"),
    OUTSIDE: StageLook("outside the broker", "@rule", ink="@ink"),
}
"""The stages in the order of the way, in words and colours; the hues change with the place: publisher's node, log,
majority, queue, consumer."""

MEANINGS: Final[Mapping[str, str]] = {
    "read": "cutting what came from the socket into runs",
    "propose": "waiting for the queue's last log entry, so as to share the next one",
    "forward": "from a follower, whose client published, to the leader",
    "append": "from the leader to this node's log",
    "wal_queue": "waiting until the WAL batch is begun",
    "wal_write": "write of the WAL batch",
    "fsync": "fdatasync of the WAL batch",
    "replicate": "from the own sync until a majority has synced and this node knows",
    "apply": "the queue machine",
    "ready": "waiting in the queue for a consumer with credit",
    "deliver": "building frames and handing them to the socket",
    "confirm": "building the confirm and handing it to the socket",
    "settle": "from the read of an acknowledgement until it is applied; it may wait to ride with publishes",
    TOTAL: "the whole chain",
}
CHAINS: Final = (("delivery", "e2e", "End-to-end"), ("confirm", "confirm", "Confirm"))
"""Each chain with the series that it is a part of, and with this series in words. The series count from the actual
send: the schedule of an open loop belongs to the generator, and its lag is no stage."""

COVERED_ENOUGH: Final = 0.95


def anatomy(run: pd.Series[Any], tables: Tables, *, prefix: str) -> Anatomy | None:
    """The section of one run; None for a broker that keeps no latency anatomy."""
    stages = tables.stages[tables.stages["chain"] != SYNCS].reset_index(drop=True)
    steps = tables.steps[tables.steps["step"].isin(stages["step"])].reset_index(drop=True)
    if stages.empty or steps.empty:
        return None
    names = settings.swept(run)
    named = dict(zip(steps["step"].tolist(), settings.short(steps, names), strict=True))
    charts = [
        chart
        for chain, series, word in CHAINS
        if (chart := _chart(run, steps, stages[stages["chain"] == chain], named, series, word, prefix)) is not None
    ]
    return Anatomy(
        sentences=tuple(Sentence(text=text) for text in _sentences(run, steps, stages)),
        charts=tuple(charts),
        table=_table(run, stages, named, settings.words_of(names) if names else "step"),
    )


def _parts(steps: pd.DataFrame, stages: pd.DataFrame, series: str) -> pd.DataFrame:
    """The mean of each stage per step, and the rest of the mean latency: ``step``, ``stage``, ``mean_ns``, ``share``,
    ``whole_ns``."""
    rows: list[dict[str, Any]] = []
    for _, step in steps.iterrows():
        mine = stages[stages["step"] == step["step"]]
        mean_ns = step[f"{series}_mean_ns"]
        if mine.empty or pd.isna(mean_ns):
            continue
        known = {str(name): float(mean) for name, mean in zip(mine["stage"], mine["mean_ns"], strict=True)}
        within = {name: known[name] for name in LOOKS if name in known}
        inside_ns = sum(within.values())
        whole_ns = max(float(mean_ns), inside_ns)
        rows += [
            {"step": step["step"], "stage": name, "mean_ns": part, "share": part / whole_ns, "whole_ns": whole_ns}
            for name, part in (within | {OUTSIDE: whole_ns - inside_ns}).items()
        ]
    return pd.DataFrame(rows, columns=["step", "stage", "mean_ns", "share", "whole_ns"])


def _chart(
    run: pd.Series[Any],
    steps: pd.DataFrame,
    stages: pd.DataFrame,
    named: Mapping[int, str],
    series: str,
    word: str,
    prefix: str,
) -> Chart | None:
    parts = _parts(steps, stages, series)
    if parts.empty:
        return None
    parts = parts.assign(
        setting=parts["step"].map(named),
        mean=[words.latency(value) for value in parts["mean_ns"]],
        whole=[words.latency(value) for value in parts["whole_ns"]],
        title=[LOOKS[name].title for name in parts["stage"]],
        percent=parts["share"] * 100,
    )
    names = settings.swept(run)
    heading = settings.words_of(names) if names else "step"
    columns = (
        Column(name="setting", title=heading),
        Column(name="title", title="stage"),
        latency_column("mean_ns", "mean"),
        Column(name="percent", title="share", kind=Kind.NUMBER, unit="%"),
    )
    return Chart(
        anchor=f"{prefix}{series}-stages",
        title=f"{word} latency, mean by stage",
        unit="",
        how_to_read="Each bar is a step and adds up to its mean latency, which stands at its end. From left to right, "
        "the parts follow the message's way through the broker. The rest is outside the broker: the generator, the "
        "kernel and the wire.",
        finding=_chart_finding(parts),
        figure=shares.figure(parts, LOOKS, axis=heading, total=f"mean {word.lower()} latency"),
        table=table_of(
            parts,
            columns,
            caption=f"{word} latency: the mean of each stage",
            file=f"{run['run_id']}-{series}-stages.csv",
        ),
    )


def _chart_finding(parts: pd.DataFrame) -> str:
    inside = 1 - parts.loc[parts["stage"] == OUTSIDE, "share"]
    low, high = words.share(float(inside.min())), words.share(float(inside.max()))
    spread = low if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"{spread} of the mean was spent inside the broker."


def _sentences(run: pd.Series[Any], steps: pd.DataFrame, stages: pd.DataFrame) -> list[str]:
    """The step to look at, its largest stage in the mean and its slowest at p99, and what was not followed."""
    delivery = stages[stages["chain"] == "delivery"]
    found = curve(run, steps)
    at = steps.index[-1] if found is None else steps.index[steps["step"] == found.knee_step][0]
    step, name = steps.loc[at], settings.long(steps, settings.swept(run))[int(at)]
    mine = delivery[delivery["step"] == step["step"]]
    timed = mine[(mine["stage"] != TOTAL) & (mine["count"] > 0)]
    said = []
    if len(timed):
        largest, slowest = timed.loc[timed["mean_ns"].idxmax()], timed.loc[timed["p99_ns"].idxmax()]
        where = f"At the knee, {name}" if found is not None else name[0].upper() + name[1:]
        p99 = words.latency(float(slowest["p99_ns"]))
        same = largest["stage"] == slowest["stage"]
        said.append(
            f"{where}: of {words.latency(float(timed['mean_ns'].sum()))} that a delivery spends in the broker in the "
            f"mean, {words.latency(float(largest['mean_ns']))} go into {_in_words(largest['stage'])}."
        )
        said.append(
            f"That is the slowest stage at p99 too: {p99}."
            if same
            else f"The slowest stage at p99 is {_in_words(slowest['stage'], f': {p99}')}."
        )
    said.append(
        "Means add up, percentiles do not: the messages that are slow in one stage are not the messages that are slow "
        "in the next. So the percentiles below have no sum."
    )
    return [*said, *_uncovered(steps, delivery)]


def _in_words(stage: object, more: str = "") -> str:
    name = str(stage)
    meaning = f" ({MEANINGS[name]}{more})" if name in MEANINGS else more
    return f"{LOOKS[name].title if name in LOOKS else name}{meaning}"


def _uncovered(steps: pd.DataFrame, delivery: pd.DataFrame) -> list[str]:
    """A sentence for steps in which many messages could not be followed from the first stamp to the last."""
    followed = delivery[delivery["stage"] == TOTAL].set_index("step")["count"]
    delivered = steps.set_index("step")["e2e_count"]
    covered = (followed.reindex(delivered.index).fillna(0) / delivered).dropna()
    if covered.empty or covered.min() >= COVERED_ENOUGH:
        return []
    return [
        f"Not every delivery could be followed from its first stamp to its last: as few as "
        f"{words.share(float(covered.min()))} in one step (redelivered, out of a deep queue, or over several hosts)."
    ]


def _table(run: pd.Series[Any], stages: pd.DataFrame, named: Mapping[int, str], heading: str) -> Table:
    order = {name: number for number, name in enumerate((*LOOKS, TOTAL))}
    chains = {"delivery": 0, "confirm": 1, "settle": 2}
    rows = stages[(stages["count"] > 0) & stages["step"].isin(named)]
    rows = rows[(rows["chain"] != "settle") | (rows["stage"] != TOTAL)]
    rows = rows.assign(
        rank=rows["stage"].map(order).fillna(len(order)),
        chain_rank=rows["chain"].map(chains).fillna(len(chains)),
        setting=rows["step"].map(named),
        title=[LOOKS[name].title if name in LOOKS else name for name in rows["stage"]],
        meaning=rows["stage"].map(MEANINGS).fillna(""),
        slowest=_slowest(rows),
        p999_ns=rows["p999_ns"].where(rows["count"] >= SAMPLES_ABOVE * 1000),
        place=rows["step"].map({step: place for place, step in enumerate(named)}),
    ).sort_values(["chain_rank", "place", "rank"])
    columns = (
        Column(name="setting", title=heading),
        Column(name="chain", title="chain"),
        Column(name="title", title="stage"),
        latency_column("mean_ns", "mean"),
        latency_column("p50_ns", "p50"),
        latency_column("p99_ns", "p99"),
        latency_column("p999_ns", "p99.9"),
        latency_column("max_ns", "max"),
        Column(name="slowest", title="slowest at p99"),
        Column(name="meaning", title="what happens"),
    )
    return table_of(rows, columns, caption=f"Stages of {run['run_id']}", file=f"{run['run_id']}-stages.csv")


def _slowest(rows: pd.DataFrame) -> Sequence[str]:
    """A mark for the stage of each step and chain with the highest p99; a chain of one stage has none."""
    stages = rows[(rows["stage"] != TOTAL) & (rows["chain"] != "settle")]
    marked = set(stages.groupby(["step", "chain"])["p99_ns"].idxmax()) if len(stages) else set()
    return ["◀ slowest" if index in marked else "" for index in rows.index]
