"""The section "Traffic by link": the traffic between the nodes of the broker, by link and purpose.

Octets of one message are told in *bodies*, too: 1 body is the octets of a message's body. A queue of three members
needs two bodies for replication, a publisher away from the leader one more, and a consumer on a node without a member
one more. Heads of messages and of frames are why figures are a little above whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from reports.charts import bars
from reports.pages import words
from reports.pages.model import Chart, Column, Kind, Sentence, Table, Traffic
from reports.pages.tables import table_of
from reports.store.tables import Tables

PANELS_MAX: Final = 3
"""Number of steps in the figure: the first step, the step with the highest rate, and the last step."""
PROXIED_MIN: Final = 0.5
"""Number of bodies per message from which on messages were proxied. Acknowledgements and confirms are far below."""
MEANINGS: Final[Mapping[str, str]] = {
    "replication": "entries for the other members of a queue",
    "consensus": "votes, answers and notices between members",
    "snapshot": "whole states for members that are far behind",
    "commands": "publishes and acknowledgements on their way to the leader or owner of a queue",
    "deliveries": "deliveries and answers for clients of a node without a member",
    "control": "requests about queues and metadata",
    "raft": "replication, with votes and answers",
    "proxied": "requests to the leader of a queue and their results",
    "other": "everything else",
}
"""The purposes in words; the last three are of earlier versions of the broker."""


def link_traffic(tables: Tables, *, prefix: str) -> Traffic | None:
    """The section of one run; None if no node told its traffic to another."""
    steps = _steps(tables)
    found = links_chart(tables.links, _shown(steps), anchor=f"{prefix}links-octets")
    if found is None:
        return None
    by_purpose = _by_purpose(tables.links, steps)
    busiest = _busiest(tables.links, steps)
    return Traffic(
        sentences=tuple(_sentences(by_purpose, busiest, prefix)),
        chart=found,
        purposes=_purposes(by_purpose),
        matrix=_matrix(tables.links, busiest),
    )


def links_chart(links: pd.DataFrame, steps: pd.DataFrame, *, anchor: str) -> Chart | None:
    """Octets per message of each link in these steps, by purpose; None if nothing was sent."""
    titles = dict(zip(steps["step"], steps["label"], strict=True))
    mine = links[links["step"].isin(titles) & (links["bytes_per_s"] > 0)]
    if mine.empty:
        return None
    frame = _in_order(mine).assign(
        panel=lambda rows: rows["step"].map(titles).map(str),
        row=lambda rows: rows["node"] + " → " + rows["peer"],
        part=lambda rows: rows["purpose"],
        value=lambda rows: rows["bytes_per_message"].fillna(0.0),
        mbit=lambda rows: rows["bytes_per_s"] * 8 / 1e6,
    )
    columns = (
        Column(name="panel", title="step"),
        Column(name="row", title="link"),
        Column(name="host", title="from host"),
        Column(name="peer_host", title="to host"),
        Column(name="part", title="purpose"),
        Column(name="value", title="octets per message", kind=Kind.NUMBER, unit="B/msg"),
        Column(name="mbit", title="rate", kind=Kind.NUMBER, unit="Mbit/s"),
    )
    meant = "; ".join(f"{name}: {MEANINGS[name]}" for name in dict.fromkeys(frame["purpose"]) if name in MEANINGS)
    return Chart(
        anchor=anchor,
        title="Octets between nodes per message",
        unit="B/msg",
        how_to_read="Each bar is what one node sent to another for each delivered message, by purpose. "
        f"{meant[:1].upper()}{meant[1:]}.",
        finding=_most(mine, titles),
        figure=bars.figure(frame, quantity="octets per message (B)"),
        table=table_of(frame, columns, caption="Octets between nodes", file="links.csv"),
    )


def _most(mine: pd.DataFrame, titles: Mapping[Any, Any]) -> str:
    whole = mine.groupby("step")["bytes_per_message"].sum()
    busiest = mine[mine["step"] == whole.idxmax()]
    by_purpose = busiest.groupby("purpose")["bytes_per_message"].sum()
    told = ", ".join(f"{words.octets(float(value))} {name}" for name, value in by_purpose.items() if value > 0)
    where = f"In {titles[busiest['step'].iloc[0]]}, all" if mine["step"].nunique() > 1 else "All"
    return f"{where} links together carried {words.octets(float(whole.max()))} per message: {told}."


def _in_order(links: pd.DataFrame) -> pd.DataFrame:
    """By step, link, and purpose in the order of MEANINGS."""
    places = {name: place for place, name in enumerate(MEANINGS)}
    place = links["purpose"].map(lambda purpose: places.get(purpose, len(places)))
    return links.assign(place=place).sort_values(["step", "node", "peer", "place"], kind="stable")


def _steps(tables: Tables) -> pd.DataFrame:
    """The measured steps that have steady time, one row each."""
    beside = {group for _, group in tables.background_loads}
    steps = tables.steps
    return steps[~steps["group"].isin(beside) & (steps["length_s"] > 0)].drop_duplicates("step").reset_index(drop=True)


def _shown(steps: pd.DataFrame) -> pd.DataFrame:
    if len(steps) <= PANELS_MAX:
        return steps
    return steps.iloc[sorted({0, int(steps["delivered_per_s"].argmax()), len(steps) - 1})]


def _busiest(links: pd.DataFrame, steps: pd.DataFrame) -> pd.Series[Any]:
    """The step with the most octets per message."""
    whole = links[links["step"].isin(steps["step"])].groupby("step")["bytes_per_message"].sum()
    return steps[steps["step"] == whole.idxmax()].iloc[0]


def _by_purpose(links: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Octets and bodies per message of all links together, by step and purpose. ``bodies`` is NaN where messages have
    no known size."""
    sent = links[links["bytes_per_s"] > 0].groupby(["step", "purpose"], as_index=False)["bytes_per_message"].sum()
    found = steps[["step", "label", "size_bytes"]].merge(sent, on="step")
    found = found.assign(node="", peer="", bodies=found["bytes_per_message"] / found["size_bytes"].astype(float))
    return _in_order(found).reset_index(drop=True)


def _purposes(by_purpose: pd.DataFrame) -> Table:
    columns = (
        Column(name="label", title="step"),
        Column(name="purpose", title="purpose"),
        Column(name="bytes_per_message", title="octets per message", kind=Kind.NUMBER, unit="B/msg"),
        Column(name="bodies", title="bodies per message", kind=Kind.NUMBER),
    )
    return table_of(by_purpose, columns, caption="All links together, by purpose", file="traffic.csv")


def _matrix(links: pd.DataFrame, step: pd.Series[Any]) -> Table:
    """The octets that each node (row) sent to each other (column)."""
    mine = links[links["step"] == step["step"]]
    sums = mine.groupby(["node", "peer"])["bytes_per_message"].sum()
    names = sorted({*mine["node"], *mine["peer"]})
    frame = pd.DataFrame(
        [{"node": node, **{peer: sums.get((node, peer)) for peer in names}} for node in names],
    )
    columns = (
        Column(name="node", title="from"),
        *(Column(name=peer, title=f"to {peer}", kind=Kind.NUMBER, unit="B/msg") for peer in names),
    )
    return table_of(frame, columns, caption=f"Octets per message from node to node, {step['label']}", file="matrix.csv")


def _sentences(by_purpose: pd.DataFrame, step: pd.Series[Any], prefix: str) -> Iterator[Sentence]:
    mine = by_purpose[by_purpose["step"] == step["step"]].set_index("purpose")
    text = f"For each delivered message the nodes sent each other {words.octets(mine['bytes_per_message'].sum())}"
    if mine["bodies"].notna().all():
        text += f", which is {words.significant(float(mine['bodies'].sum()))} times its body ({step['label']})"
    yield Sentence(text=f"{text}.", anchor=f"{prefix}links-octets")
    bodies = {str(purpose): float(value) for purpose, value in mine["bodies"].dropna().items()}
    if bodies and not {"raft", "proxied"} & bodies.keys():  # earlier versions do not tell the two directions apart
        yield Sentence(text=_proxied(bodies))


def _proxied(bodies: Mapping[str, float]) -> str:
    """Which messages took a way over another node, in words."""
    published, delivered = (bodies.get(name, 0.0) >= PROXIED_MIN for name in ("commands", "deliveries"))
    there = (
        f"Publishes were proxied: a message went to the leader or owner of its queue in {_times(bodies['commands'])}"
        if published
        else "Publishes were not proxied: publishers were on the node of the leader or owner"
    )
    back = (
        f"deliveries were proxied, in {_times(bodies['deliveries'])} a message, to a node without a member"
        if delivered
        else "deliveries were not proxied: each consumer got its messages from the node that it is connected to"
    )
    return f"{there}; {back}."


def _times(bodies: float) -> str:
    return f"{words.significant(bodies)} bodies"
