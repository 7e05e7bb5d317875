"""Verdicts on findings: what repetitions decide, and what one run can and cannot say."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from perftest.results.claims import Finding, Trend, claims_of
from reports.stats.confidence import change
from reports.stats.reproduction import CONFIDENCE, ReproductionOutcome, judge, judge_layouts, judge_runs

KEYS = ("trend", "metric", "says", "steps", "layouts", "workloads", "needs")
STEPS = ("s=1", "s=2", "s=3", "s=4")
YES, NO, NOT_TRIED, UNKNOWN = (
    ReproductionOutcome.REPRODUCED,
    ReproductionOutcome.NOT_REPRODUCED,
    ReproductionOutcome.NOT_TRIED,
    ReproductionOutcome.NOT_ENOUGH_DATA,
)


NOISE = [[1, 2 * 0.03**2, 9], [2, 0.03**2, 4], [4, 0.03**2 / 2, 1]]
"""Ten seconds that vary by 3 % each, without memory."""


def row(label: str, rate: float, *, p99_ms: float = 1.0, count: int = 100_000, limited: bool = False) -> dict[str, Any]:
    summary = {"count": count, "p99_ns": p99_ms * 1e6, "p95_ns": p99_ms * 1e6, "max_ns": p99_ms * 1e7}
    trust = [{"check": "generator_cpu", "status": "fail" if limited else "pass", "text": ""}]
    return {
        "label": label,
        "delivered": 1,
        "delivered_per_s": rate,
        "published_per_s": rate,
        "length_ns": 10 * 10**9,
        "latency": {"e2e": summary},
        "noise": dict.fromkeys(("delivered_per_s", "p95_ns", "p99_ns"), NOISE),
    } | {"trust": trust}


STEAL = [{"check": "steal", "status": "fail", "text": "25.9 % was stolen"}]


def rounds(rates: Sequence[float], count: int, spread: float = 0.01) -> list[list[dict[str, Any]]]:
    """Repetitions whose rates lie ``spread`` above and below in turn; each step of its own phase."""
    steps = list(enumerate(zip(STEPS, rates, strict=True)))
    return [
        [row(label, rate * (1 + spread * (-1) ** (number + at))) for at, (label, rate) in steps]
        for number in range(count)
    ]


def plan(*findings: Finding) -> dict[str, Any]:
    """As a manifest has it."""
    steps = [{"number": number, "label": label} for number, label in enumerate(STEPS, 1)]
    plain = [{name: getattr(each, name) for name in (*KEYS, "factor", "at_least", "at_most")} for each in findings]
    return {"steps": steps, "findings": json.loads(json.dumps(plain))}


def finding(trend: str, *steps: int, metric: str = "rate", **numbers: float) -> Finding:
    labels = tuple(STEPS[step - 1] for step in steps)
    return Finding(trend=Trend(trend), metric=metric, says="so", steps=labels, **numbers)


def bodies(*figures: float | None) -> list[list[dict[str, Any]]]:
    """Repetitions of one step with these octets between nodes."""
    return [[{**row(STEPS[0], 100), "link_bodies": each}] for each in figures]


@pytest.mark.parametrize(
    ("figures", "outcome"),
    [
        ((2.04,), YES), ((2.03, 2.04, 2.05), YES), ((1.5, 2.1, 3.0), UNKNOWN), ((2.5,), NO), ((1.0, 1.1, 1.05), NO),
        ((2.29,), UNKNOWN), ((None,), UNKNOWN), ((2.04, None, 2.04), UNKNOWN), ((0.0,), NO),
    ],
)  # fmt: skip
def test_a_level_is_judged_by_what_was_counted(figures: Sequence[float | None], outcome: ReproductionOutcome) -> None:
    """One run is enough; a run without the figure decides nothing."""
    asked = finding("level", 1, metric="link_bodies", at_least=1.9, at_most=2.3)
    found = judge(plan(asked), bodies(*figures))
    assert found is not None and found.outcome is outcome
    assert "factor of 2" not in found.sentence


def test_a_finding_is_not_tried_where_nothing_happened_that_it_needs() -> None:
    """Two drives are alike if none of them has to write segments."""
    alike = replace(finding("flat", 1, 2), needs=("segments_written>0",))
    of_two = [{"segments_written": files} for files in (3, 0)]
    for happened, outcome in (([{"segments_written": 3}] * 2, YES), (of_two, NOT_TRIED), ([{}, {}], NOT_TRIED)):
        told = [[{**row(step, 100), **part} for step, part in zip(STEPS, happened, strict=False)]] * 3
        found = judge(plan(alike), told)
        assert found is not None and found.outcome is outcome
    assert found.findings[0].figures.endswith("s=1 needs segments_written>0, and has unknown")


def test_a_finding_compares_workloads_in_each_step() -> None:
    """Each side in rounds of its own; the other side did not run, or ran on the same layout."""
    faster = replace(finding("ratio", 1, 3, at_least=1.5), workloads=("mirrored", "quorum"))
    own = plan(faster) | {"name": "quorum"}
    quorum = [({"plan": own}, rows) for rows in rounds(RISE, 3)]
    mirrored = [({"plan": {"name": "mirrored"}}, rows) for rows in rounds((60, 200, 150, 800), 3)]
    alone, beside = judge_runs(own, quorum), judge_runs(own, quorum, mirrored)
    assert alone is not None and alone.outcome is UNKNOWN
    assert alone.lines()[1:] == ["  not enough data  1 of these findings compares workloads, of which one ran."]
    assert beside is not None and beside.outcome is YES
    assert [claim.claim.text.partition(":")[0] for claim in beside.findings[0].claims] == list(STEPS[0:3:2])


RISE, FALL = (100, 200, 400, 800), (800, 400, 200, 100)
EQUAL, KNEE = (100, 101, 99, 100), (100, 200, 400, 400)

CASES: list[tuple[Finding, Sequence[float], ReproductionOutcome]] = [
    (finding("rises", 1, 2, 3, 4, factor=2), RISE, YES),
    (finding("rises", 1, 4, factor=2), RISE, YES),
    (finding("rises", 1, 4, factor=2), FALL, NO),
    (finding("rises", 1, 4, factor=1.5), EQUAL, NO),
    (finding("rises", 1, 2, 3, 4, factor=2), (100, 400, 200, 800), NO),
    (finding("falls", 1, 4, factor=2), FALL, YES),
    (finding("falls", 1, 4, factor=2), RISE, NO),
    (finding("flat", 1, 2, 3, 4), EQUAL, YES),
    (finding("flat", 1, 2, 3, 4), RISE, NO),
    (finding("ratio", 1, 2, at_least=1.5, at_most=2.5), RISE, YES),
    (finding("ratio", 1, 4, at_most=1.5), RISE, NO),
    (finding("knee", 3), KNEE, YES),
    (finding("knee", 1, 3), KNEE, YES),
    (finding("knee", 2), KNEE, NO),
    (finding("knee", 4), KNEE, NO),
    (finding("biggest_gain", 3, 4), RISE, YES),
    (finding("biggest_gain", 1, 2), RISE, NO),
    (finding("best", 4), RISE, YES),
    (finding("best", 1, 2), RISE, NO),
    (finding("best", 1, 2), EQUAL, YES),
]


@pytest.mark.parametrize(("asked", "rates", "outcome"), CASES)
def test_six_rounds_and_the_seconds_of_one_say_the_same(
    asked: Finding, rates: Sequence[float], outcome: ReproductionOutcome
) -> None:
    for count in (6, 1):
        judged = judge(plan(asked), rounds(rates, count))
        assert judged is not None
        assert judged.findings[0].outcome is outcome, judged.lines()
        assert judged.outcome is outcome and judged.rounds == count


@pytest.mark.parametrize(("asked", "rates", "outcome"), CASES)
def test_one_round_without_intervals_decides_nothing(
    asked: Finding, rates: Sequence[float], outcome: ReproductionOutcome
) -> None:
    silent = [[each | {"noise": {}} for each in rows] for rows in rounds(rates, 1)]
    judged = judge(plan(asked), silent)
    assert judged is not None and judged.outcome is UNKNOWN
    assert "one round has no bounds" in judged.lines()[-1]


def test_a_step_that_cannot_be_told_from_its_neighbour_is_no_doubt_about_a_rise() -> None:
    """A rise by orders of magnitude is known from its ends; a fall in between contradicts."""
    asked = finding("rises", 1, 2, 3, 4, factor=2)
    noisy = rounds((100, 400, 390, 800), 3, spread=0.08)
    for rates, outcome in (((100, 400, 390, 800), YES), ((100, 400, 100, 800), NO)):
        judged = judge(plan(asked), rounds(rates, 3, spread=0.08))
        assert judged is not None and judged.outcome is outcome, judged.lines()
    missing = [[each for each in rows if each["label"] != STEPS[2]] for rows in noisy]
    judged = judge(plan(asked), missing)
    assert judged is not None and judged.outcome is YES


def test_a_gain_that_is_none_is_not_the_biggest() -> None:
    judged = judge(plan(finding("biggest_gain", 1, 2)), rounds((400, 300, 200, 100), 3))
    assert judged is not None and judged.outcome is UNKNOWN
    assert "s=1 → s=2 gains nothing" in judged.lines()[-1]


def test_the_means_that_are_shown_have_the_ratio_that_is_shown() -> None:
    """100 and 400 on one side, 200 and 800 on the other: a reader divides the means, and gets the ratio."""
    measured = rounds(RISE, 1, spread=0) + rounds([rate * 4 for rate in RISE], 1, spread=0)
    judged = judge(plan(finding("ratio", 1, 2, at_least=1)), measured)
    assert judged is not None
    assert "200 msg/s → 400 msg/s, 2 times" in judged.findings[0].figures


def test_rounds_that_vary_too_much_decide_nothing() -> None:
    judged = judge(plan(finding("rises", 1, 2, factor=2)), rounds(RISE, 3, spread=0.5))
    assert judged is not None and judged.outcome is UNKNOWN


def test_bounds_of_two_steps_are_the_intervals_of_compare() -> None:
    """No second statistics: without other steps, the ratios of the rounds have the bounds that `compare` gives."""
    source = random.Random(7)
    measured = [[row(label, source.uniform(100, 200)) for label in STEPS[:2]] for _ in range(5)]
    judged = judge(plan(finding("ratio", 1, 2, at_least=1.0)), measured)
    assert judged is not None
    (claim,) = judged.findings[0].claims
    ratios = [after / before for before, after in zip(claim.claim.base, claim.claim.candidate, strict=True)]
    expected = change([1.0] * 5, ratios, CONFIDENCE)
    assert (claim.low, claim.high) == pytest.approx((1 + expected.low, 1 + expected.high))


@pytest.mark.parametrize("rates", [(100, 100, 100), (100, 150, 150)], ids=["undecided", "contradicted"])
def test_only_what_contradicts_shares_the_confidence_of_its_finding(rates: Sequence[float]) -> None:
    """One claim of three is enough against a finding, and all three must hold for it."""
    source = random.Random(8)
    measured = [
        [row(label, rate * source.uniform(0.95, 1.15)) for label, rate in zip(STEPS, rates, strict=False)]
        for _ in range(5)
    ]
    of_one, of_three = (judge(plan(finding("flat", *steps)), measured) for steps in ((1, 2), (1, 2, 3)))
    assert of_one is not None and of_three is not None and len(of_three.findings[0].claims) == 3
    (alone,) = of_one.findings[0].claims
    shared = next(each for each in of_three.findings[0].claims if each.claim.text == alone.claim.text)
    assert alone.outcome is shared.outcome is (NO if rates[1] > 100 else UNKNOWN)
    if shared.outcome is NO:
        assert shared.low < alone.low < alone.ratio < alone.high < shared.high
    else:
        assert (shared.low, shared.high) == (alone.low, alone.high)


def test_a_round_on_a_slow_machine_spoils_no_verdict() -> None:
    """Slow in every step: the ratios of its steps are those of the other rounds."""
    measured = rounds(RISE, 2) + rounds([rate / 5 for rate in RISE], 2)
    judged = judge(plan(finding("ratio", 1, 2, at_least=1.8, at_most=2.2)), measured)
    assert judged is not None and judged.outcome is YES


@pytest.mark.parametrize("seed", range(20))
def test_the_unit_does_not_matter(seed: int) -> None:
    """A machine that is five times as fast in every step gets the same verdicts: findings are trends."""
    source = random.Random(seed)
    rates = [source.uniform(50, 900) for _ in STEPS]
    asked = [case[0] for case in CASES]
    verdicts = []
    for scale in (1.0, 5.0):
        judged = judge(plan(*asked), rounds([rate * scale for rate in rates], 4))
        assert judged is not None
        verdicts.append([each.outcome for each in judged.findings])
    assert verdicts[0] == verdicts[1], seed


def test_of_latencies_the_lowest_is_best() -> None:
    measured = [[row(label, 1, p99_ms=at + 1 + number / 100) for at, label in enumerate(STEPS)] for number in range(4)]
    judged = judge(plan(finding("best", 1, metric="e2e.p99"), finding("best", 4, metric="e2e.p99")), measured)
    assert judged is not None
    assert [each.outcome for each in judged.findings] == [YES, NO]
    assert judged.outcome is ReproductionOutcome.PARTLY
    assert "1 of 2 findings over 4 rounds" in judged.sentence


@pytest.mark.parametrize(
    ("spoil", "doubt"),
    [
        (lambda rows: rows.pop(1), "s=2 was not measured"),
        (lambda rows: rows.__setitem__(1, row("s=2", 9e9, limited=True)), "s=2 is INVALID: generator_cpu"),
        (lambda rows: rows.__setitem__(1, row("s=2", 9e9) | {"trust": STEAL}), "s=2 is INVALID: 25.9 % was stolen"),
        (
            lambda rows: rows.__setitem__(1, row("s=2", 9e9, count=500)),
            "only 500 samples, and needs 1,000, 20 s",
        ),
        (lambda rows: rows.__setitem__(1, row("s=2", 9e9, count=999)), "only 999 samples, and needs 1,000, 11 s"),
    ],
)
def test_what_was_not_measured_well_is_no_data(spoil: Any, doubt: str) -> None:
    """However far apart the figures are."""
    measured = rounds(RISE, 4)
    for rows in measured:
        spoil(rows)
    judged = judge(plan(finding("ratio", 1, 2, metric="e2e.p99", at_least=5)), measured)
    assert judged is not None and judged.outcome is UNKNOWN
    assert doubt in judged.findings[0].figures


def test_zeros_in_some_rounds_are_no_data_and_zeros_in_all_are_a_ratio() -> None:
    asked = plan(finding("ratio", 4, 1, at_most=0.1))
    measured = rounds((0, 1, 1, 500), 3)
    dead = judge(asked, measured)
    assert dead is not None and dead.outcome is YES
    measured[0][0] = row("s=1", 400)
    half = judge(asked, measured)
    assert half is not None and half.outcome is UNKNOWN
    nothing = judge(plan(finding("ratio", 1, 4, at_least=2)), rounds((0, 1, 1, 500), 3))
    assert nothing is not None and nothing.outcome is UNKNOWN


def test_a_plan_without_readable_findings_has_no_verdict() -> None:
    assert judge(plan(), rounds(RISE, 1)) is None
    strange = plan(finding("rises", 1, 2))
    strange["findings"][0]["trend"] = "oscillates"
    assert judge(strange, rounds(RISE, 1)) is None


def test_verdicts_are_plain_json() -> None:
    judged = judge(plan(*(replace(case[0]) for case in CASES)), rounds(RISE, 3))
    assert judged is not None
    plain = json.loads(json.dumps(judged.to_json(), allow_nan=False))
    assert plain["verdict"] == "partly reproduced" and len(plain["findings"]) == len(CASES)
    assert plain["findings"][0]["claims"][0].keys() >= {"claim", "verdict", "ratio", "low", "high", "least", "most"}


SSD, ONE, TWO, THREE = "one_ssd", "one_hdd", "two_hdd", "three_hdd"


def over_layouts(trend: str, *layouts: str, steps: Sequence[int] = (1,), **numbers: Any) -> Finding:
    return replace(finding(trend, *steps, **numbers), layouts=layouts)


def on_layouts(count: int, spread: float = 0.01, **rates: Sequence[float]) -> dict[str, list[list[dict[str, Any]]]]:
    """Repetitions on each layout; each layout has the rates of its steps."""
    return {layout: rounds(each, count, spread) for layout, each in rates.items()}


DRIVES = {"one_ssd": RISE, "one_hdd": (40, 40, 40, 40), "three_hdd": (90, 190, 50, 50)}
LAYOUT_CASES: list[tuple[Finding, ReproductionOutcome]] = [
    (over_layouts("ratio", ONE, THREE, at_least=1.2), YES),
    (over_layouts("ratio", ONE, THREE, at_least=3), NO),
    (over_layouts("ratio", ONE, THREE, steps=(1, 2), at_least=1.2), YES),
    (over_layouts("ratio", ONE, THREE, steps=(1, 2, 3, 4), at_least=2), NO),
    (over_layouts("rises", ONE, THREE, SSD, factor=2), YES),
    (over_layouts("falls", ONE, THREE, SSD, factor=2), NO),
    (over_layouts("falls", SSD, THREE, ONE, factor=2), YES),
    (over_layouts("flat", SSD, THREE, steps=(2,)), YES),
    (over_layouts("flat", SSD, ONE, steps=(2,)), NO),
    (over_layouts("best", SSD), YES),
    (over_layouts("best", THREE, SSD), YES),
    (over_layouts("best", ONE), NO),
    (over_layouts("ratio", ONE, TWO, at_least=1.2), UNKNOWN),
    (finding("rises", 1, 4), NO),
    (finding("ratio", 1, 2, at_least=0.9), YES),
]


@pytest.mark.parametrize(("asked", "expected"), LAYOUT_CASES)
def test_layouts_are_compared_step_by_step_and_steps_layout_by_layout(
    asked: Finding, expected: ReproductionOutcome
) -> None:
    """A finding over layouts must hold in each of its steps, one over steps on each layout."""
    judged = judge_layouts(plan(asked), on_layouts(6, **DRIVES))
    assert judged is not None
    assert judged.findings[0].outcome is expected, judged.lines()
    assert judged.layouts == tuple(DRIVES) and "over 6 rounds on each of 3 layouts" in judged.sentence


def test_claims_say_where_they_hold() -> None:
    runs = on_layouts(3, spread=0, **DRIVES)
    asked = over_layouts("ratio", ONE, THREE, steps=(1, 2), at_least=1)
    words = [claim.text for claim in claims_of(asked, STEPS, runs)]
    assert words == ["s=1: one_hdd → three_hdd: 40 msg/s → 90 msg/s", "s=2: one_hdd → three_hdd: 40 msg/s → 190 msg/s"]
    words = [claim.text for claim in claims_of(replace(asked, steps=("s=2",)), STEPS, runs)]
    assert words == ["one_hdd → three_hdd: 40 msg/s → 190 msg/s"]
    words = [claim.text for claim in claims_of(finding("ratio", 1, 2, at_least=1), STEPS, runs)]
    assert words[1] == "one_hdd: s=1 → s=2: 40 msg/s → 40 msg/s" and len(words) == 3


def test_layouts_of_one_round_share_its_machine() -> None:
    """Rounds that are slow on every layout spoil no verdict: each round gives one ratio."""
    runs = on_layouts(2, **DRIVES)
    for layout, slow in on_layouts(2, **{name: [rate / 7 for rate in rates] for name, rates in DRIVES.items()}).items():
        runs[layout] += slow
    judged = judge_layouts(plan(over_layouts("ratio", ONE, THREE, at_least=2, at_most=2.5)), runs)
    assert judged is not None and judged.outcome is YES


def test_a_layout_without_all_rounds_is_no_data() -> None:
    runs = on_layouts(3, **DRIVES)
    runs[ONE].pop()
    judged = judge_layouts(plan(over_layouts("ratio", ONE, THREE, at_least=1.2)), runs)
    assert judged is not None and judged.outcome is UNKNOWN and judged.rounds == 2
    assert "one_hdd was not measured in 1 of 3 rounds" in judged.findings[0].figures


def test_a_step_without_all_rounds_is_no_data() -> None:
    """The ratio that is shown is that of the rounds which measured both steps."""
    measured = rounds(RISE, 4)
    measured[2].pop(0)
    judged = judge(plan(finding("ratio", 1, 2, at_least=1.5)), measured)
    assert judged is not None and judged.outcome is UNKNOWN
    assert "s=1 was not measured in 1 of 4 rounds" in judged.findings[0].figures


def test_findings_over_layouts_are_counted_where_no_layouts_were_compared() -> None:
    """Half a screen of "was not measured" would hide the verdicts that there are."""
    compared = over_layouts("ratio", ONE, THREE, at_least=1.2)
    judged = judge(plan(compared, finding("rises", 1, 4), over_layouts("flat", ONE, THREE)), rounds(RISE, 3))
    assert judged is not None
    heading, reproduced, counted = judged.lines()
    assert "1 of 3 findings" in heading and reproduced.startswith("  reproduced")
    assert counted == "  not enough data  2 of these findings compare layouts of drives."
    assert len(judged.findings) == 3 and judged.outcome is ReproductionOutcome.PARTLY
    both = judge_layouts(plan(compared), on_layouts(3, **DRIVES))
    assert both is not None and "layouts of drives" not in both.lines()[-1]


def test_verdicts_on_layouts_are_plain_json() -> None:
    judged = judge_layouts(plan(*(case[0] for case in LAYOUT_CASES)), on_layouts(3, **DRIVES))
    assert judged is not None
    plain = json.loads(json.dumps(judged.to_json(), allow_nan=False))
    assert plain["layouts"] == list(DRIVES)
    assert plain["findings"][0]["layouts"] == [ONE, THREE] and "layouts" not in plain["findings"][-1]


@pytest.mark.parametrize("is_simulated", [False, True], ids=["measured", "simulated"])
@pytest.mark.parametrize("seed", range(5))
def test_the_names_of_directories_decide_nothing(is_simulated: bool, seed: int) -> None:
    """Runs come in any order; the rounds that are compared are those of one time, or of one seed. In each round the
    second layout is 1.2 times as fast, and the rounds differ far more than that."""
    runs = []
    for number, speed in enumerate((100.0, 400.0, 900.0, 300.0, 700.0)):
        for title, factor in ((ONE, 1.0), (TWO, 1.2)):
            began = {"simulated": {"seed": number + 1}, "started_ns": 7} if is_simulated else {"started_ns": number}
            manifest = {"broker": {"layout": f"{title}: drive_1 (modelled) wal; io pool:10"}, **began}
            runs.append((manifest, [row("s=1", speed * factor)]))
    random.Random(seed).shuffle(runs)
    asked = over_layouts("ratio", ONE, TWO, at_least=1.15, at_most=1.25)
    judged = judge_runs(plan(asked), runs)
    assert judged is not None and judged.findings[0].outcome is YES, judged.lines()
