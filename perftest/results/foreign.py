"""Runs that another tool measured: the facts in their manifests, and how far they can be trusted. Pure.

``foreign`` of the manifest::

    tool          who measured
    files         name, octets and SHA-256 of each file that was imported
    unknown       sentences: what is not known of the run
    missing       figures of a row and columns of the table ``steps`` that the tool does not tell
    stated        percentiles of the whole run without a histogram, as the tool states them
    of_intervals  percentiles of single intervals without a histogram: the least, the middle and the greatest of each

Nothing here is made of anything else: where there is no histogram, there is no percentile of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perftest.results.trust import KEPT_UP_MIN, Check, Facts, Status, judged, supported


def foreign_of(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A manifest's facts about the tool that measured the run; None for a run of this tool."""
    found = manifest.get("foreign")
    return found if isinstance(found, Mapping) else None


def known_figures(row: Facts, foreign: Mapping[str, Any]) -> dict[str, Any]:
    """A row without the figures that the tool does not tell. Whether the load kept a schedule is unknown, too."""
    left_out = {*missing(foreign), "loop"}
    return {name: value for name, value in row.items() if name not in left_out}


def missing(foreign: Mapping[str, Any]) -> tuple[str, ...]:
    """The figures that the tool does not tell."""
    found = foreign.get("missing")
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


def foreign_checks(foreign: Mapping[str, Any], rows: Sequence[Facts]) -> list[Check]:
    """The trust list of a run that another tool measured. No check passes for want of knowledge."""
    return list(_checks(str(foreign.get("tool") or "another tool"), foreign, rows))


def _checks(tool: str, foreign: Mapping[str, Any], rows: Sequence[Facts]) -> Iterator[Check]:
    yield Check("measured_by", Status.NOTE, f"{tool} measured this run; its figures were only imported")
    yield _ledger_check(tool)
    text = "the CPU time of the load generator is unknown: the generator may be the limit"
    yield Check("generator_cpu", Status.WARN, text)
    text = "whether the load kept a schedule is unknown: latencies may leave out the time before the send"
    yield Check("loop", Status.WARN, text)
    yield _histograms(tool, rows)
    yield from _backlogs(foreign, rows)
    if not rows:
        yield Check("complete", Status.FAIL, "no interval of the run has a figure")
    said = [str(each) for each in foreign.get("unknown") or ()]
    if said:
        yield Check("unknown", Status.NOTE, f"not known is: {'; '.join(said)}")


def _ledger_check(tool: str) -> Check:
    return Check("ledger", Status.WARN, f"{tool} kept no ledger: whether messages were lost is not known")


def _histograms(tool: str, rows: Sequence[Facts]) -> Check:
    counts = [int(each["count"]) for row in rows for each in row["latency"].values() if each.get("count")]
    if not counts:
        text = f"there is no histogram: percentiles are those that {tool} states, and cannot be merged or compared"
        return Check("histograms", Status.WARN, text)
    text = f"{min(counts):,} samples in histograms"
    best = supported(min(counts))
    return Check("histograms", Status.PASS if best else Status.WARN, f"{text}: enough for {best or 'no percentile'}")


def _backlogs(foreign: Mapping[str, Any], rows: Sequence[Facts]) -> Iterator[Check]:
    if {"published", "delivered"} & set(missing(foreign)):
        return
    for row in rows:
        kept = row["delivered"] / row["published"] if row["published"] else 1.0
        text = f"delivered {kept:.1%} of what was published"
        meaning = "the queue grew, so end-to-end latency tells its length"
        yield judged("backlog", text, -kept, warn=(kept < KEPT_UP_MIN, meaning))
