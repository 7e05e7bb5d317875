"""Runs whose truth is known get the verdict they deserve; unlike ones get none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.comparison import text
from reports.comparison.compare import Comparison, compare, runs_of
from reports.comparison.facets import Facet
from reports.stats.verdict import Verdict

Make = Callable[..., Path]


def verdicts(result: Comparison) -> dict[str, Verdict]:
    return {line.metric: line.verdict for line in result.lines}


@pytest.mark.parametrize(
    "candidate, expected",
    [
        ({}, {}),
        ({"ms": 2.6}, {"e2e p50": Verdict.REGRESSED, "e2e p99": Verdict.REGRESSED, "confirm p99": Verdict.REGRESSED}),
        ({"ms": 1.5}, {"e2e p50": Verdict.IMPROVED, "e2e p99": Verdict.IMPROVED}),
        ({"per_s": 340}, {"delivered/s": Verdict.REGRESSED, "published/s": Verdict.REGRESSED}),
        ({"per_s": 460}, {"delivered/s": Verdict.IMPROVED}),
    ],
)
def test_a_change_is_told_from_chance(make: Make, candidate: dict[str, Any], expected: dict[str, Verdict]) -> None:
    """What changed is named with its direction, what did not is not."""
    result = compare(runs_of(make("a", seed=1)), runs_of(make("b", seed=2, **candidate)))
    found = verdicts(result)
    assert not result.refused
    assert {"delivered/s", "published/s", "e2e p50", "e2e p99", "confirm p50"} <= found.keys()
    assert {name: found[name] for name in expected} == expected
    if not expected:
        assert Verdict.REGRESSED not in found.values()
        assert Verdict.IMPROVED not in found.values()


def test_the_same_two_runs_get_the_same_verdict(make: Make) -> None:
    """A gate that rolls dice is no gate."""
    sides = runs_of(make("a", seed=1)), runs_of(make("b", seed=2, ms=2.2))
    assert text.to_json(compare(*sides)) == text.to_json(compare(*sides))


def test_a_few_intervals_are_inconclusive_and_say_so(make: Make) -> None:
    """However large the change looks."""
    result = compare(runs_of(make("a", seed=1, seconds=4)), runs_of(make("b", seed=2, seconds=4, ms=9)))
    assert set(verdicts(result).values()) == {Verdict.INCONCLUSIVE}
    assert [each for each in text.sentences(result) if "only" in each] == ["run, all metrics: only 4 steady intervals"]


def test_a_percentile_without_samples_beyond_it_is_inconclusive(make: Make) -> None:
    """30 intervals of 20 messages: six lie beyond the 99th percentile."""
    result = compare(runs_of(make("a", seed=1, per_s=20)), runs_of(make("b", seed=2, per_s=20, ms=9)))
    assert verdicts(result)["e2e p99"] is Verdict.INCONCLUSIVE
    assert verdicts(result)["e2e p50"] is Verdict.REGRESSED


def test_repetitions_are_judged_by_how_they_differ(make: Make) -> None:
    """Three runs of each side whose figures lie wide apart: within a run all is steady, over the runs nothing is."""
    for number, ms in enumerate((1.0, 2.0, 4.0)):
        make("base", seed=number, ms=ms)
        make("candidate", seed=10 + number, ms=ms * 1.1)
    base, candidate = (make(name, seed=99, ms=2.0).parent for name in ("base", "candidate"))
    result = compare(runs_of(base), runs_of(candidate))
    assert result.repeated
    assert verdicts(result)["e2e p50"] is Verdict.INCONCLUSIVE
    assert verdicts(result)["delivered/s"] in (Verdict.NO_CHANGE, Verdict.WITHIN_NOISE, Verdict.INCONCLUSIVE)
    assert "over 4 and 4 repetitions" in text.sentences(result)[1]


@pytest.mark.parametrize(
    "candidate, facet, where",
    [
        ({"prefetch": 7}, Facet.PLAN, "plan.steps[0].settings.prefetch: 1000 against 7"),
        ({"facts": {"durability": "none"}}, Facet.DURABILITY, "broker.durability: fsync against none"),
        ({"end": False}, Facet.VALIDITY, "result.valid: trustworthy against the run never ended"),
        ({"verdict": "violated", "harm": {"lost": 3}}, Facet.SAFETY, "ledger.verdict: ok against violated"),
    ],
)
def test_unlike_runs_are_refused_by_name(make: Make, candidate: dict[str, Any], facet: Facet, where: str) -> None:
    """And compared nonetheless if somebody insists."""
    sides = runs_of(make("a", seed=1)), runs_of(make("b", seed=2, **candidate))
    result = compare(*sides)
    assert {each.facet for each in result.refused} == {facet}
    assert where in text.refusal(result)
    assert not result.lines
    insisted = compare(*sides, allow=frozenset({facet}))
    assert insisted.lines
    assert where in text.markdown(insisted)


def test_another_broker_is_what_one_wants_to_know(make: Make) -> None:
    """It is shown, and its durability, said in other words, is no obstacle."""
    other = {"product": "reference_broker", "durability": "fdatasync on a majority"}
    result = compare(runs_of(make("a", seed=1)), runs_of(make("b", seed=2, facts=other)))
    assert not result.refused
    assert "broker.product: RabbitMQ against reference_broker" in text.shown_differences(result)


def test_repetitions_must_be_of_one_measurement(make: Make) -> None:
    """A directory that gathers anything at all is no baseline."""
    make("base", seed=1)
    directory = make("base", seed=2, in_flight=7).parent
    result = compare(runs_of(directory), runs_of(make("b", seed=3)), allow=frozenset())
    assert any(each.where.endswith("in_flight") for each in result.refused)


def test_markdown_and_json_hold_every_row(make: Make) -> None:
    """A review that leaves out a row hides it."""
    result = compare(runs_of(make("a", seed=1)), runs_of(make("b", seed=2, ms=2.6)), metrics=("p99", "delivered"))
    page = text.markdown(result)
    assert [line.metric for line in result.lines] == [
        "delivered/s",
        "e2e p99",
        "e2e p99.9",
        "confirm p99",
        "confirm p99.9",
    ]
    assert page.count("\n| ") == 2 + len(result.lines)
    assert page.startswith("**4 regressed")
    plain = json.loads(json.dumps(text.to_json(result), allow_nan=False))
    assert [row["metric"] for row in plain["metrics"]] == [line.metric for line in result.lines]
