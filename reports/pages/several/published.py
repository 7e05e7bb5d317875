"""The page of published findings: the score of each source on each broker, why findings do not hold, and a row for each
finding with what every broker measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any, Final

import pandas as pd

from reports.charts import bars, claims, stated
from reports.pages import words
from reports.pages.model import Chart, Chip, Column, Kind, Page, PublishedPage, PublishedPart, Sentence, Table
from reports.pages.tables import table_of
from reports.pages.trust_words import runs_chip
from reports.stats.published import (
    NOT_RUN,
    OBJECTIVE,
    PublishedFinding,
    PublishedSource,
    brokers_of,
    counted,
    reasons,
    sources_of,
    trust_of,
)
from reports.stats.published import PublishedWorkload as Workload
from reports.stats.reproduction import ReproductionOutcome

_HELD: Final = str(ReproductionOutcome.REPRODUCED)
_LANES: Final = 24
"""Most lanes of a chart of ratios, so that a printed sheet has room for the chart."""
_READ: Final = (
    "Each finding has a lane for each broker. The thick line is the range that the finding claims for the ratio of two "
    "measured figures; the mark is the measured ratio with its interval. A finding holds if the whole interval lies on "
    "the thick line."
)


def published_page(workloads: Sequence[Workload], *, generated: str, notes: Sequence[str] = ()) -> Page:
    """The page over all workloads. ``notes`` say how and where they ran, and what was left out."""
    sources, brokers = sources_of(workloads), brokers_of(workloads)
    parts = [("published", _all(sources, brokers, notes))]
    of_each = [("published_part", _part(source, brokers, at)) for at, source in enumerate(sources, 1)]
    return Page(title="Published findings, tried again", generated=generated, parts=(*parts, *of_each))


def _all(sources: Sequence[PublishedSource], brokers: Sequence[str], notes: Sequence[str]) -> PublishedPage:
    findings = [finding for source in sources for finding in source.findings]
    said = [_score(findings, broker) for broker in brokers]
    table = _scores(sources, brokers)
    return PublishedPage(
        title="Published findings, tried again",
        subtitle=f"{words.plural(len(findings), 'finding')} of {words.plural(len(sources), 'source')}",
        sentences=tuple(Sentence(text=text) for text in (*said, *notes)),
        headline=table,
        picture=_strips(sources, brokers, table, "published"),
        chips=_chips(sources),
    )


def _chips(sources: Sequence[PublishedSource]) -> tuple[Chip, ...]:
    lists = trust_of(sources)
    return (runs_chip(lists),) if lists else ()


def _score(findings: Sequence[PublishedFinding], broker: str) -> str:
    counts = counted(findings, broker)
    decided = counts[_HELD] + counts[str(ReproductionOutcome.NOT_REPRODUCED)]
    left = len(findings) - decided
    if not decided:
        return f"On {broker}, none of {words.plural(len(findings), 'finding')} is decided."
    open_ones = f"; {left} of {len(findings)} are not decided" if left else ""
    return f"On {broker}, {counts[_HELD]} of {decided} decided findings hold{open_ones}."


def _scores(sources: Sequence[PublishedSource], brokers: Sequence[str]) -> Table:
    rows = [
        {"source": source.title, "broker": broker, **counted(source.findings, broker)}
        for source in sources
        for broker in brokers
    ]
    verdicts = [name for name in rows[0] if name not in ("source", "broker")]
    columns = [Column(name="source", title="source"), Column(name="broker", title="broker")]
    columns += [Column(name=name, title=name, kind=Kind.COUNT) for name in verdicts]
    return table_of(pd.DataFrame(rows), columns, caption="Findings by verdict", file="published-scores.csv")


def _strips(sources: Sequence[PublishedSource], brokers: Sequence[str], table: Table, name: str) -> Chart:
    strips = [
        {"panel": source.title, "row": broker, "part": verdict, "value": count}
        for source in sources
        for broker in brokers
        for verdict, count in counted(source.findings, broker).items()
    ]
    return Chart(
        anchor=f"{name}-score",
        title="Findings by verdict",
        unit="",
        how_to_read="Each bar is a broker: how many findings of the source have each verdict.",
        finding="",
        figure=bars.figure(pd.DataFrame(strips), quantity="findings", colours=_COLOURS),
        table=table,
    )


_COLOURS: Final = {
    _HELD: "@good",
    str(ReproductionOutcome.NOT_REPRODUCED): "@bad",
    str(ReproductionOutcome.NOT_TRIED): "@warn",
    str(ReproductionOutcome.NOT_ENOUGH_DATA): "@soft",
    NOT_RUN: "@rule",
}


def _part(source: PublishedSource, brokers: Sequence[str], number: int) -> PublishedPart:
    said = [text for broker in brokers for text in (_score(source.findings, broker), " ".join(reasons(source, broker)))]
    address = f"[{source.title}]({source.address})" if source.address else source.title
    return PublishedPart(
        prefix=f"s{number}-",
        title=source.title,
        subtitle=words.plural(len(source.findings), "finding"),
        sentences=tuple(Sentence(text=text) for text in said if text),
        source=Sentence(text=f"The source is {address}."),
        score=_strips([source], brokers, _scores([source], brokers), f"s{number}"),
        chips=_chips([source]),
        ratios=tuple(_ratios(source, brokers, number)),
        table=_findings(source.findings, brokers, f"Findings of {source.title}", f"published-{number}.csv"),
        levels=tuple(_levels(source, number)),
    )


def _ratios(source: PublishedSource, brokers: Sequence[str], number: int) -> Iterator[Chart]:
    """The ratios of each workload's findings, in charts that fit on a sheet. Objectives have no ratios."""
    for workload in source.workloads:
        findings = [
            each for each in source.findings if each.workload is workload and not each.says.startswith(OBJECTIVE)
        ]
        size = max(1, _LANES // len(brokers))
        for at in range(0, len(findings), size):
            of_chart, slug = findings[at : at + size], workload.name.replace("/", "-") + (f"-{at}" if at else "")
            yield Chart(
                anchor=f"s{number}-{slug}",
                title=f"{workload.name}: measured against claimed{', continued' if at else ''}",
                unit="times",
                how_to_read=_READ,
                finding="",
                figure=claims.beside(pd.DataFrame([_lane(each, broker) for each in of_chart for broker in brokers])),
                table=_findings(of_chart, brokers, f"Findings of {workload.name}", f"{slug}.csv"),
            )


def _lane(finding: PublishedFinding, broker: str) -> dict[str, Any]:
    judged = finding.brokers.get(broker)
    claim = judged.claims[0] if judged is not None and judged.claims else None
    return {
        "says": finding.says,
        "broker": broker,
        "verdict": str(finding.outcome(broker) or NOT_RUN),
        "ratio": claim.ratio if claim else nan,
        "low": claim.low if claim else nan,
        "high": claim.high if claim else nan,
        "least": claim.claim.least if claim else 0.0,
        "most": claim.claim.most if claim else inf,
    }


_COLUMNS: Final = tuple(
    Column(name=name, title=title)
    for name, title in (
        ("says", "what the source found"),
        ("workload", "workload"),
        ("broker", "broker"),
        ("verdict", "verdict"),
        ("figures", "measured"),
    )
)


def _findings(findings: Sequence[PublishedFinding], brokers: Sequence[str], caption: str, file: str) -> Table:
    rows, links = [], []
    for finding in findings:
        for broker in brokers:
            judged, tried = finding.brokers.get(broker), finding.workload.brokers.get(broker)
            why = tried.why_not if tried is not None else ""
            rows.append(
                {
                    "says": f"{finding.says} ({finding.place})" if finding.place else finding.says,
                    "workload": finding.workload.name,
                    "broker": broker,
                    "verdict": str(finding.outcome(broker) or NOT_RUN),
                    "figures": judged.figures if judged is not None else why,
                }
            )
            links.append(next(iter(tried.pages), "") if tried is not None else "")
    table = table_of(
        pd.DataFrame(rows, columns=[column.name for column in _COLUMNS]), _COLUMNS, caption=caption, file=file
    )
    return replace(table, links=tuple(links) if any(links) else ())


def _levels(source: PublishedSource, number: int) -> Iterator[Chart]:
    """A chart for each workload and metric of which the source states figures."""
    for workload in source.workloads:
        for metric in dict.fromkeys(each.metric for each in workload.levels):
            levels = [each for each in workload.levels if each.metric == metric]
            rows = [{"row": each.place, "series": stated.STATED, "value": each.stated} for each in levels]
            for broker in dict.fromkeys(broker for each in levels for broker in each.measured):
                known = (each for each in levels if broker in each.measured)
                rows += [{"row": each.place, "series": broker, "value": each.measured[broker]} for each in known]
            is_latency = "." in metric
            frame = pd.DataFrame(rows)
            kind = Column(name="value", title=metric, kind=Kind.LATENCY, unit="ms") if is_latency else _RATE
            columns = (Column(name="row", title="place"), Column(name="series", title="who"), kind)
            slug = f"{workload.name}-{metric}".replace("/", "-").replace(".", "-")
            yield Chart(
                anchor=f"s{number}-{slug}",
                title=f"{workload.name}: {metric}, stated and measured",
                unit="" if is_latency else "msg/s",
                latency=is_latency,
                how_to_read="Each row is a layout or a step. The upright line is what the source states; hardware "
                "differs, so the order of the rows counts, and not their level.",
                finding="",
                figure=stated.figure(frame, quantity=metric if is_latency else f"{metric} (msg/s)", latency=is_latency),
                table=table_of(frame, columns, caption=f"{workload.name}: {metric}", file=f"{slug}.csv"),
            )


_RATE: Final = Column(name="value", title="rate", kind=Kind.RATE, unit="msg/s")
