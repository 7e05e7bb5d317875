"""The checks of the fate of messages, records and connections."""

from __future__ import annotations

from typing import Final

from perftest.results.trust import Check, Status, harm_in_words
from reports.pipeline.tables import Tables
from reports.stats.check import numbers, sentence

DISTURBANCES: Final = {
    "connection_lost": "lost connections",
    "channel_closed": "channels closed by the broker",
    "blocked": "connections blocked by the broker",
    "consumer_cancelled": "cancelled consumers",
    "node_lost": "broker nodes that did not answer",
    "drain_timeout": "drain timeouts",
    "error": "errors",
}
"""Events that disturb a measurement, in words."""


def ledger(tables: Tables) -> Check:
    """What became of every message?"""
    if tables.ledger.empty:
        text = "There is no ledger: nothing can be said about lost, duplicated or reordered messages."
        return Check(check="ledger", status=Status.WARN, text=text)
    row = tables.ledger.iloc[0]
    if row["verdict"] == "violated":
        return Check(
            check="ledger",
            status=Status.FAIL,
            text=sentence(harm_in_words({str(name): count for name, count in row.items()})),
        )
    if row["verdict"] == "ok" and row["complete"]:
        text = f"Each of {int(row['confirmed']):,} confirmed messages was delivered, in order, undamaged."
        return Check(check="ledger", status=Status.PASS, text=text)
    left = int(row["undelivered"])
    text = f"The account is open: {left:,} confirmed messages had not been delivered when it was closed."
    return Check(check="ledger", status=Status.WARN, text=text)


def redeliveries(tables: Tables) -> Check:
    """Were deliveries repeated?"""
    steps = tables.steps[tables.steps["redelivered"] > 0]
    count, delivered = int(steps["redelivered"].sum()), int(tables.steps["delivered"].sum())
    if not count:
        return Check(check="redeliveries", status=Status.PASS, text="No message was redelivered while measured.")
    text = f"{count:,} of {delivered:,} deliveries were redeliveries: consumers or nodes went away."
    return Check(check="redeliveries", status=Status.WARN, text=text, steps=numbers(steps))


def refusals(tables: Tables) -> Check:
    """Did the broker refuse or return messages?"""
    steps = tables.steps[(tables.steps["nacked"] > 0) | (tables.steps["returned"] > 0)]
    nacked, returned = int(steps["nacked"].sum()), int(steps["returned"].sum())
    if not nacked and not returned:
        return Check(check="refusals", status=Status.PASS, text="No message was nacked or returned while measured.")
    text = f"{nacked:,} messages were nacked and {returned:,} returned: they are not in the confirmed rate."
    return Check(check="refusals", status=Status.WARN, text=text, steps=numbers(steps))


def damage(tables: Tables) -> Check:
    """Were records set aside?"""
    lines = tables.quarantine
    if lines.empty:
        return Check(check="damaged records", status=Status.PASS, text="Every record of the run could be read.")
    files = ", ".join(f"{count} in {file}" for file, count in lines["file"].value_counts(sort=False).items())
    noun = "record was" if len(lines) == 1 else "records were"
    text = f"{len(lines):,} damaged {noun} set aside ({files}): what they held is missing."
    return Check(check="damaged records", status=Status.WARN, text=text)


def disturbances(tables: Tables) -> Check:
    """Did something happen to the connections, or to a node?"""
    kinds = tables.events["kind"].value_counts()
    found = [f"{words}: {int(kinds[kind])}" for kind, words in DISTURBANCES.items() if kind in kinds]
    if not found:
        return Check(check="connections", status=Status.PASS, text="No connection was lost or blocked, no node lost.")
    where = tables.events[tables.events["kind"].isin(list(DISTURBANCES))]["step"].dropna()
    numbers = tuple(sorted({int(step) for step in where}))
    return Check(
        check="connections", status=Status.WARN, text=f"The run was disturbed; {', '.join(found)}.", steps=numbers
    )
