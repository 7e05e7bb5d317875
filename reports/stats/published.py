"""Published findings over all brokers that tried them: the facts of their page, of their JSON and of their Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perftest.results.trust import Check
from reports.stats.reproduction import JudgedClaim, JudgedFinding, Reproduction, ReproductionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A workload on one broker: the verdicts, or why there is none; and its runs, each with the name of its page and
    its trust list."""

    reproduction: Reproduction | None = None
    why_not: str = ""
    pages: tuple[str, ...] = ()
    trust: tuple[Sequence[Check], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFigure:
    """A figure that the source states, beside what each broker measured: ``place`` is the layout or the step. Values
    are in the unit of the metric (nanoseconds, messages per second)."""

    metric: str
    place: str
    stated: float
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWorkload:
    """A workload with its findings, as brokers tried them. ``plan`` is the plan as in a manifest; verdicts on
    ``objectives`` stand behind those on its findings."""

    name: str
    plan: Mapping[str, Any]
    brokers: Mapping[str, Tried]
    levels: tuple[LevelFigure, ...] = ()
    objectives: tuple[str, ...] = ()

    @property
    def source(self) -> tuple[str, str]:
        """Title and address of the source."""
        address = str(self.plan.get("source") or "")
        return str(self.plan.get("source_title") or address or "no source"), address


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFinding:
    """A finding with its verdict on each broker; None where it was not tried."""

    workload: PublishedWorkload
    says: str
    place: str
    brokers: Mapping[str, JudgedFinding | None]

    def outcome(self, broker: str) -> ReproductionOutcome | None:
        """The verdict on a broker."""
        found = self.brokers.get(broker)
        return found.outcome if found is not None else None

    @property
    def key(self) -> str:
        """The name of the finding in JSON."""
        return f"{self.workload.name}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSource:
    """A publication with the findings that its workloads state."""

    title: str
    address: str
    workloads: tuple[PublishedWorkload, ...]
    findings: tuple[PublishedFinding, ...] = field(default=())


NOT_RUN: Final = "not run"
"""The word for a finding without a verdict."""
OBJECTIVE: Final = "Objective: "
"""The beginning of the sentence of an objective."""


def sources_of(workloads: Sequence[PublishedWorkload]) -> list[PublishedSource]:
    """The workloads by source, in their order."""
    found: dict[tuple[str, str], list[PublishedWorkload]] = {}
    for each in workloads:
        found.setdefault(each.source, []).append(each)
    return [
        PublishedSource(
            title=title,
            address=address,
            workloads=tuple(several),
            findings=tuple(finding for each in several for finding in _findings(each)),
        )
        for (title, address), several in found.items()
    ]


def _said(objectives: Sequence[str]) -> list[dict[str, str]]:
    return [{"says": f"{OBJECTIVE}{text}"} for text in objectives]


def _findings(workload: PublishedWorkload) -> Iterator[PublishedFinding]:
    for at, plain in enumerate((*(workload.plan.get("findings") or ()), *_said(workload.objectives))):
        judged = {
            broker: None if tried.reproduction is None else tried.reproduction.findings[at]
            for broker, tried in workload.brokers.items()
        }
        says, place = str(plain["says"]), str(plain.get("place") or "")
        yield PublishedFinding(workload=workload, says=says, place=place, brokers=judged)


def trust_of(sources: Sequence[PublishedSource]) -> list[Sequence[Check]]:
    """The trust lists of all runs."""
    several = [workload for source in sources for workload in source.workloads]
    return [found for each in several for tried in each.brokers.values() for found in tried.trust]


def brokers_of(workloads: Sequence[PublishedWorkload]) -> list[str]:
    """All brokers, in the order in which they were asked for."""
    return list(dict.fromkeys(broker for each in workloads for broker in each.brokers))


def counted(findings: Sequence[PublishedFinding], broker: str) -> dict[str, int]:
    """How many findings have each verdict on a broker; ``not run`` for those without any."""
    words = [*(str(each) for each in ReproductionOutcome if each is not ReproductionOutcome.PARTLY), NOT_RUN]
    found = dict.fromkeys(words, 0)
    for each in findings:
        found[str(each.outcome(broker) or NOT_RUN)] += 1
    return found


def reasons(source: PublishedSource, broker: str) -> list[str]:
    """Why findings do not hold on a broker, or are not decided, in sentences: by the verdicts of the other brokers on
    the same machine, by what did not happen, and by what the judge lacked."""
    by_outcome: dict[ReproductionOutcome | None, list[PublishedFinding]] = {}
    for each in source.findings:
        by_outcome.setdefault(each.outcome(broker), []).append(each)
    against = by_outcome.get(ReproductionOutcome.NOT_REPRODUCED, ())
    parts = {
        "Does not hold": _elsewhere(against, broker),
        "Undecided": _lacks(by_outcome.get(ReproductionOutcome.NOT_ENOUGH_DATA, ()), broker),
        "Not tried": _needs(by_outcome.get(ReproductionOutcome.NOT_TRIED, ()), broker),
    }
    said = [
        f"{what}: {'; '.join(f'{count} {why}' for count, why in counted if count)}."
        for what, counted in parts.items()
        if any(count for count, _why in counted)
    ]
    missing = [each for each in source.workloads if (tried := each.brokers.get(broker)) and tried.why_not]
    return said + [f"{each.name} did not run: {each.brokers[broker].why_not}." for each in missing]


def _elsewhere(against: Sequence[PublishedFinding], broker: str) -> list[tuple[int, str]]:
    """The findings that do not hold on a broker, by what the other brokers say of them."""
    verdicts = [{each.outcome(other) for other in each.brokers if other != broker} for each in against]
    holds = sum(ReproductionOutcome.REPRODUCED in each for each in verdicts)
    fails = sum(
        ReproductionOutcome.NOT_REPRODUCED in each and ReproductionOutcome.REPRODUCED not in each for each in verdicts
    )
    return [
        (holds, "and holds on another broker with the same drives and host: the broker makes the difference"),
        (fails, "on any broker here that decided it: drives or host differ from the source's"),
        (len(against) - holds - fails, "and no other broker here has decided it: broker, drives or host may be why"),
    ]


_LACKS: Final = (
    ("INVALID", "for a step that is INVALID: the host was the limit, not the broker"),
    ("samples", "for steps that are too short for their percentile"),
    ("has no ", "for a figure that the run does not have"),
    ("not measured", "for a step, a layout or a workload that did not run"),
    ("", "for too few rounds: the interval still crosses the claimed bound"),
)
"""What a judge lacked, by a word of its doubt; the first that fits counts."""


def _lacks(findings: Sequence[PublishedFinding], broker: str) -> list[tuple[int, str]]:
    found = dict.fromkeys((why for _word, why in _LACKS), 0)
    for each in findings:
        doubts = "; ".join(claim.claim.doubt for claim in _claims(each, broker))
        found[next(why for word, why in _LACKS if word in doubts)] += 1
    return [(count, why) for why, count in found.items()]


def _needs(findings: Sequence[PublishedFinding], broker: str) -> list[tuple[int, str]]:
    found: dict[str, int] = {}
    for each in findings:
        need = next((claim.claim.untried for claim in _claims(each, broker) if claim.claim.untried), "")
        found[f"because {need}"] = found.get(f"because {need}", 0) + 1
    return [(count, why) for why, count in found.items()]


def _claims(finding: PublishedFinding, broker: str) -> Sequence[JudgedClaim]:
    judged = finding.brokers.get(broker)
    return judged.claims if judged is not None else ()
