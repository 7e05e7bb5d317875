"""Whether a run reproduces the findings of its source: the judge for terminal and page.

The steps of one round shared the state of the machine in that round, so each round gives one ratio of two steps, and
:mod:`reports.stats.contrasts` has the interval of the ratio, from several rounds or from the intervals of one. A claim
is reproduced if the whole interval of its ratio lies within the bounds of the claim, not reproduced if the whole
interval lies outside, and anything else is not enough data. Either verdict on a finding is wrong at most one time in
twenty (:data:`ERROR`). All claims must hold for *reproduced*, so each is tested alone: an intersection-union test
(R. L. Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982), for two bounds the
two one-sided tests of D. J. Schuirmann (1987). One claim is enough for *not reproduced*, so these intervals hold
together.

If something did not happen that the finding needs, the finding was not tried. A guard takes part only if it
contradicts. Figures that are counted, and not timed, are known to 2 % from one round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from perftest.metrics.figures import three_figures
from perftest.results.claims import Claim, Finding, Row, Runs, claims_of, findings_of, labels_of, layout_title
from reports.stats.confidence import each_of
from reports.stats.contrasts import half_width

ERROR: Final = 0.05
"""Probability of a wrong verdict, at most."""
CONFIDENCE: Final = 1 - 2 * ERROR
"""Of the interval of one ratio: the truth lies beyond either end with the probability ERROR."""
COUNTED: Final = 1.02
"""Factor to which one round knows counted figures, such as octets per message: only the samples at the ends of a step
vary."""
SHOWN_MAX: Final = 2
"""Claims of a finding that a line shows."""


class ReproductionOutcome(StrEnum):
    """The verdict on a claim, a finding, or all findings. Only all findings can be reproduced partly."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT_REPRODUCED = "not reproduced"
    NOT_TRIED = "not tried"
    NOT_ENOUGH_DATA = "not enough data"


_GRAVITY: Final = (
    ReproductionOutcome.NOT_REPRODUCED,
    ReproductionOutcome.NOT_TRIED,
    ReproductionOutcome.NOT_ENOUGH_DATA,
    ReproductionOutcome.REPRODUCED,
)


_UNKNOWN: Final = "one round has no bounds for this figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """A claim with the ratio that was measured, and the bounds of its interval; NaN if there is no ratio."""

    claim: Claim
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    outcome: ReproductionOutcome

    @property
    def text(self) -> str:
        """The figures of the claim in words."""
        if self.claim.untried:
            return f"{self.claim.text}: {self.claim.untried}"
        if not self.is_known and not self.claim.doubt:
            return self.claim.text
        if not self.is_known:
            return f"{self.claim.text}: {self.claim.doubt}"
        times = "" if self.claim.is_counted else f", {three_figures(self.ratio)} times"
        known = f"{three_figures(self.low)} to {three_figures(self.high)}" if math.isfinite(self.high) else _UNKNOWN
        measured = f"{self.claim.text}{times} ({known}"
        doubt = f"; {self.claim.doubt}" if self.claim.doubt else ""
        return f"{measured}; claimed {_bounds(self.claim)}){doubt}"

    @property
    def is_known(self) -> bool:
        """Whether there is a ratio."""
        return not math.isnan(self.ratio)

    def to_json(self) -> dict[str, object]:
        """The claim as in ``result.json``; null for a bound that is not there."""
        figures = {"ratio": self.ratio, "low": self.low, "high": self.high, "most": self.claim.most}
        known: dict[str, object] = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        doubt = self.claim.untried or self.claim.doubt
        words = {"claim": self.claim.text, "verdict": str(self.outcome), "doubt": doubt}
        return words | known | {"least": self.claim.least}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFinding:
    """A finding with its claims, the claims that decide first."""

    finding: Finding
    claims: tuple[JudgedClaim, ...]
    outcome: ReproductionOutcome

    @property
    def is_known(self) -> bool:
        """Whether any claim has a ratio."""
        return any(claim.is_known for claim in self.claims)

    @property
    def figures(self) -> str:
        """The deciding claims in words."""
        more = len(self.claims) - SHOWN_MAX
        shown = "; ".join(claim.text for claim in self.claims[:SHOWN_MAX])
        return f"{shown}; and {more} more" if more > 0 else shown

    def to_json(self) -> dict[str, object]:
        """The finding as in ``result.json``."""
        finding = self.finding
        said: dict[str, object] = {"trend": str(finding.trend), "metric": finding.metric}
        said |= {"says": finding.says, "place": finding.place}
        said |= {name: list(across) for name in ("layouts", "workloads") if (across := getattr(finding, name))}
        return said | {"verdict": str(self.outcome), "claims": [claim.to_json() for claim in self.claims]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """All findings of a plan, judged over ``rounds`` repetitions, on each of ``layouts`` if there are several."""

    findings: tuple[JudgedFinding, ...]
    rounds: int
    outcome: ReproductionOutcome
    layouts: tuple[str, ...] = ()

    @property
    def reproduced(self) -> bool:
        """Whether every finding is reproduced."""
        return self.outcome is ReproductionOutcome.REPRODUCED

    @property
    def sentence(self) -> str:
        """The verdict over all findings."""
        counted = (
            f"{sum(each.outcome is ReproductionOutcome.REPRODUCED for each in self.findings)} of {len(self.findings)}"
        )
        rounds = f"{self.rounds} round{'s' if self.rounds != 1 else ''}"
        each = f" on each of {len(self.layouts)} layouts" if len(self.layouts) > 1 else ""
        text = f"The source's findings: {self.outcome}, {counted} findings over {rounds}{each}."
        one = " One round is judged by how much its figures varied within the steps."
        are_timed = any(not claim.claim.is_counted for finding in self.findings for claim in finding.claims)
        return text + (one if self.rounds == 1 and are_timed else "")

    def lines(self) -> list[str]:
        """The verdicts for a terminal: over all findings, then each finding with its figures. Findings over layouts or
        workloads are counted if there were none to compare."""
        layouts = [one for one in self.findings if one.finding.layouts and len(self.layouts) < 2]
        workloads = [one for one in self.findings if one.finding.workloads and not one.is_known]
        apart = layouts + workloads
        each = [
            f"  {one.outcome:15}  {one.finding.says}\n{'':19}{one.finding.metric}: {one.figures}"
            for one in self.findings
            if one not in apart
        ]
        told = [_counted(layouts, "layouts of drives"), _counted(workloads, "workloads, of which one ran")]
        return [self.sentence, *each, *filter(None, told)]

    def to_json(self) -> dict[str, object]:
        """The verdicts as in ``result.json``."""
        findings = [each.to_json() for each in self.findings]
        known = {"verdict": str(self.outcome), "rounds": self.rounds, "confidence": CONFIDENCE, "findings": findings}
        return known | ({"layouts": list(self.layouts)} if any(self.layouts) else {})


def _counted(findings: Sequence[JudgedFinding], what: str) -> str:
    """A line about findings whose other sides were not measured."""
    compare = f"compare{'s' if len(findings) == 1 else ''}"
    told = f"  {ReproductionOutcome.NOT_ENOUGH_DATA:15}  {len(findings)} of these findings {compare} {what}."
    return told if findings else ""


Told = Iterable[tuple[Mapping[str, Any], Sequence[Row]]]
"""Runs, each with its manifest and its rows."""


def judge(plan: Mapping[str, Any], repetitions: Sequence[Sequence[Row]]) -> Reproduction | None:
    """The verdicts on the findings of a plan (as in a manifest), from the rows of each repetition; None without
    findings."""
    return judge_layouts(plan, {"": repetitions})


def judge_runs(plan: Mapping[str, Any], runs: Told, others: Told = ()) -> Reproduction | None:
    """The verdicts over runs of one plan; None without findings. Runs on one layout are repetitions of each other.
    ``others`` are runs of other workloads, for findings that compare these.

    The rounds are in the order in which the runs began, simulations in the order of their seeds, and neither in the
    order of their directories' names: the runs of one round are compared with each other."""
    workloads: dict[str, list[tuple[Mapping[str, Any], Sequence[Row]]]] = {}
    for manifest, rows in others:
        workloads.setdefault(str(manifest["plan"].get("name", "")), []).append((manifest, rows))
    beside = {name: _by_layout(each) for name, each in workloads.items()}
    return judge_layouts(plan, _by_layout(runs) or {"": []}, beside)


def _by_layout(runs: Told) -> dict[str, list[Sequence[Row]]]:
    several = list(runs)
    found: dict[str, list[Sequence[Row]]] = {layout_title(manifest): [] for manifest, _rows in several}
    for manifest, rows in sorted(several, key=lambda run: _place_in_rounds(run[0])):
        found[layout_title(manifest)].append(rows)
    return found


def _place_in_rounds(manifest: Mapping[str, Any]) -> tuple[int, int]:
    return int((manifest.get("simulated") or {}).get("seed", 0)), int(manifest.get("started_ns") or 0)


def judge_layouts(
    plan: Mapping[str, Any], runs: Runs, others: Mapping[str, Runs] = MappingProxyType({})
) -> Reproduction | None:
    """The verdicts on the findings of a plan that ran on several layouts; None without findings. ``others`` are the
    runs of other workloads by name."""
    labels = labels_of(plan)
    workloads = {**others, str(plan.get("name", "")): runs}
    judged = tuple(_finding(each, claims_of(each, labels, runs, workloads)) for each in findings_of(plan))
    if not judged:
        return None
    rounds = min(map(len, runs.values()), default=0)
    outcome = _overall([each.outcome for each in judged])
    return Reproduction(findings=judged, rounds=rounds, outcome=outcome, layouts=tuple(runs))


def _overall(outcomes: Sequence[ReproductionOutcome]) -> ReproductionOutcome:
    if all(each is ReproductionOutcome.REPRODUCED for each in outcomes):
        return ReproductionOutcome.REPRODUCED
    if ReproductionOutcome.REPRODUCED in outcomes:
        return ReproductionOutcome.PARTLY
    weaker = (ReproductionOutcome.NOT_REPRODUCED, ReproductionOutcome.NOT_TRIED)
    return next((each for each in weaker if each in outcomes), ReproductionOutcome.NOT_ENOUGH_DATA)


def _finding(finding: Finding, claims: Sequence[Claim]) -> JudgedFinding:
    judged = [_claim(claim, each_of(CONFIDENCE, len(claims))) for claim in claims]
    told = [each for each in judged if not each.claim.is_guard or each.outcome is ReproductionOutcome.NOT_REPRODUCED]
    found = sorted(told, key=lambda each: _GRAVITY.index(each.outcome))
    outcome = found[0].outcome if found else ReproductionOutcome.NOT_ENOUGH_DATA
    return JudgedFinding(finding=finding, claims=tuple(found), outcome=outcome)


def _claim(claim: Claim, together: float) -> JudgedClaim:
    """The verdict on a claim. ``together``: confidence that its interval needs so that those of all claims hold."""
    if claim.untried:
        return JudgedClaim(claim=claim, outcome=ReproductionOutcome.NOT_TRIED)
    zeros = [sum(not value for value in side) for side in (claim.base, claim.candidate)]
    if not claim.base or not claim.candidate or zeros[0] == len(claim.base):
        doubt = claim.doubt or "the first figure is 0"
        unknown = replace(claim, base=(), candidate=(), doubt=doubt)
        return JudgedClaim(claim=unknown, outcome=ReproductionOutcome.NOT_ENOUGH_DATA)
    some = zeros[0] or 0 < zeros[1] < len(claim.candidate)
    wide, narrow = _interval(claim, together), _interval(claim, CONFIDENCE)
    if claim.doubt or some:
        return JudgedClaim(claim=claim, **narrow._asdict(), outcome=ReproductionOutcome.NOT_ENOUGH_DATA)
    if wide.high < claim.least or wide.low > claim.most:
        return JudgedClaim(claim=claim, **wide._asdict(), outcome=ReproductionOutcome.NOT_REPRODUCED)
    is_above = claim.least <= narrow.low or (claim.is_linear and not claim.least)
    is_inside = is_above and narrow.high <= claim.most
    outcome = ReproductionOutcome.REPRODUCED if is_inside else ReproductionOutcome.NOT_ENOUGH_DATA
    return JudgedClaim(claim=claim, **narrow._asdict(), outcome=outcome)


class _Interval(NamedTuple):
    """A ratio and its bounds."""

    ratio: float
    low: float
    high: float


def _interval(claim: Claim, confidence: float) -> _Interval:
    """The ratio of the second figure over the first, and its bounds; 0 if some second figure is."""
    ratios = [after / before for before, after in zip(claim.base, claim.candidate, strict=True) if before]
    steps = {step: [math.log(value) for value in values] for step, values in claim.steps.items()}
    if claim.is_linear:
        half = half_width(ratios, claim.weights, steps, claim.noise, confidence)
        return _Interval(fmean(ratios), fmean(ratios) - half, fmean(ratios) + half)
    if not all(ratios):
        return _Interval(0.0, 0.0, 0.0)
    logs = [math.log(ratio) for ratio in ratios]
    centre = math.exp(fmean(logs))
    if claim.is_counted and len(logs) == 1:
        return _Interval(centre, centre / COUNTED, centre * COUNTED)
    half = half_width(logs, claim.weights, steps, claim.noise, confidence)
    factor = math.exp(half) if half < _LOG_MAX else math.inf
    return _Interval(centre, centre / factor, centre * factor)


_LOG_MAX: Final = 700.0
"""Logarithm of about the greatest float."""


def _bounds(claim: Claim) -> str:
    if math.isinf(claim.most):
        return f"at least {three_figures(claim.least)}"
    most = three_figures(claim.most)
    return f"{three_figures(claim.least)} to {most}" if claim.least else f"at most {most}"
