"""Replication over time: who led each queue, how far the others were behind, and how long commits took."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

import pandas as pd

from reports.charts import heat, lanes
from reports.pages import words
from reports.pages.model import Chart, Column, Kind, Table
from reports.pages.tables import latency_column, table_of
from reports.store.tables import Tables

QUEUES_MAX: Final = 30
"""Number of queues that have a row: those with the most entries."""
_INDEXES: Final = ("commit_index", "synced_index")
_PERCENTILES: Final = {"max": "max", "p99": "p99", "p95": "p95", "p50": "median"}


def members(brokers: pd.DataFrame) -> pd.DataFrame:
    """A row per sample, node and queue that is replicated: ``term``, ``role``, and ``commit`` and ``behind`` in entries
    of the queue's log. ``behind`` is what some node had committed and this one had not on its drive."""
    columns = ["t_s", "node", "queue", "role", "term", "commit", "synced"]
    rows = [
        (t_s, node, str(each["name"]), str(each.get("role", "")), each.get("term"), *map(each.get, _INDEXES))
        for t_s, node, told in brokers[["t_s", "node", "queues"]].itertuples(index=False)
        for each in (json.loads(told) if told else ())
        if all(index in each for index in _INDEXES)
    ]
    found = pd.DataFrame(rows, columns=columns)
    committed = found.groupby(["t_s", "queue"])["commit"].transform("max")
    return found.assign(behind=(committed - found["synced"]).clip(lower=0))


def leaders(found: pd.DataFrame) -> Table | None:
    """The leaders of each queue; None for a broker that does not tell."""
    if found.empty:
        return None
    rows = [_queue(str(queue), samples) for queue, samples in found.groupby("queue", sort=False)]
    frame = pd.DataFrame(rows).sort_values("entries", ascending=False, kind="stable").head(QUEUES_MAX)
    columns = (
        Column(name="queue", title="queue"),
        Column(name="first", title="leader first"),
        Column(name="last", title="leader last"),
        Column(name="changes", title="changes", kind=Kind.COUNT),
        Column(name="term", title="last term", kind=Kind.COUNT),
        Column(name="entries", title="entries committed", kind=Kind.COUNT),
        Column(name="behind", title="most behind", kind=Kind.COUNT, unit="entries"),
        Column(name="node", title="node behind"),
    )
    caption = "Leaders of the queues" if len(rows) <= QUEUES_MAX else f"Leaders of the {QUEUES_MAX} busiest queues"
    return table_of(frame.reset_index(drop=True), columns, caption=caption, file="leaders.csv")


def _queue(queue: str, samples: pd.DataFrame) -> dict[str, Any]:
    led = samples[samples["role"] == "leader"].sort_values(["t_s", "term"], kind="stable")
    # Two nodes may both say that they lead while one has not heard of the election: the later term counts.
    names = led.drop_duplicates("t_s", keep="last")["node"]
    worst = samples.iloc[int(samples["behind"].argmax())]
    return {
        "queue": queue,
        "first": names.iloc[0] if len(names) else "",
        "last": names.iloc[-1] if len(names) else "",
        "changes": int((names != names.shift()).sum()) - 1 if len(names) else 0,
        "term": int(samples["term"].max()),
        "entries": int(samples["commit"].max()),
        "behind": int(worst["behind"]),
        "node": str(worst["node"]) if worst["behind"] else "",
    }


def over_time(found: pd.DataFrame, tables: Tables, marks: Collection[float], prefix: str) -> Iterator[Chart]:
    """The lag of each node, and the time of commits; ``marks`` are moments of elections (s)."""
    if not found.empty:
        yield _behind(found, marks, prefix)
    yield from _commits(tables, marks, prefix)


def _behind(found: pd.DataFrame, marks: Collection[float], prefix: str) -> Chart:
    summed = found.groupby(["node", "t_s"])["behind"].sum().reset_index()
    frame = lanes.thinned(summed.assign(name=summed["node"], value=summed["behind"].astype(float)))
    worst = frame.iloc[int(frame["value"].argmax())]
    columns = (
        Column(name="t_s", title="time", kind=Kind.NUMBER, unit="s"),
        Column(name="node", title="node"),
        Column(name="behind", title="behind", kind=Kind.COUNT, unit="entries"),
    )
    return Chart(
        anchor=f"{prefix}behind",
        title="How far each node was behind",
        unit="entries",
        how_to_read="Each line is a node, with all its queues. A node is behind by the entries that were committed and "
        "that it did not have on its drive. A queue goes on as long as more than half of its nodes keep up. Nodes are "
        "asked one after the other, so some milliseconds' worth of entries mean nothing.",
        finding=f"{worst['node']} was {words.plural(int(worst['value']), 'entry', 'entries')} behind at "
        f"{worst['t_s']:.0f} s."
        if worst["value"]
        else "No node was behind in any sample.",
        figure=lanes.figure({"behind (entries)": frame}, marks=marks),
        table=table_of(frame, columns, caption="How far each node was behind", file="behind.csv"),
    )


def _commits(tables: Tables, marks: Collection[float], prefix: str) -> Iterator[Chart]:
    """From the confirms of the measured load: a quorum queue confirms committed messages."""
    beside = {group for _, group in tables.background_loads}
    mine = tables.timeline[~tables.timeline["group"].isin(beside) & tables.timeline["confirm_p50_ns"].notna()]
    if mine.empty:
        return
    frame = pd.concat(
        [mine[["t_s"]].assign(row=title, value=mine[f"confirm_{name}_ns"]) for name, title in _PERCENTILES.items()]
    ).dropna(subset=["value"])
    worst = mine.iloc[int(mine["confirm_p99_ns"].fillna(0).argmax())]
    columns = (
        Column(name="t_s", title="time", kind=Kind.NUMBER, unit="s"),
        Column(name="row", title="percentile"),
        latency_column("value", "confirm"),
    )
    yield Chart(
        anchor=f"{prefix}commits",
        title="How long a commit took",
        unit="",
        how_to_read="Each column is an interval, each row a percentile of the time from a message to its confirm. The "
        "broker sends the confirm once the message is committed. A dotted line is the first sample after an election.",
        finding=f"The highest p99 of an interval is {words.latency(float(worst['confirm_p99_ns']))}, at "
        f"{worst['t_s']:.0f} s."
        if pd.notna(worst["confirm_p99_ns"])
        else "",
        figure=heat.figure(frame, list(_PERCENTILES.values()), marks=marks),
        table=table_of(frame.reset_index(drop=True), columns, caption="Time to a confirm", file="commits.csv"),
    )
