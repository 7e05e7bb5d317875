"""Runs whose truth is known get the verdict they deserve; unlike ones get none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.comparison import text
from reports.comparison.compare import CompareResult, compare, runs_of
from reports.comparison.facets import Difference, Facet
from reports.stats.confidence import ChangeVerdict

Make = Callable[..., Path]


def verdicts(result: CompareResult) -> dict[str, ChangeVerdict]:
    return {line.metric: line.verdict for line in result.lines}


@pytest.mark.parametrize(
    "candidate, expected",
    [
        ({}, {}),
        (
            {"ms": 2.6},
            {
                "e2e.p50": ChangeVerdict.REGRESSED,
                "e2e.p99": ChangeVerdict.REGRESSED,
                "confirm.p99": ChangeVerdict.REGRESSED,
            },
        ),
        ({"ms": 1.5}, {"e2e.p50": ChangeVerdict.IMPROVED, "e2e.p99": ChangeVerdict.IMPROVED}),
        ({"per_s": 340}, {"delivered": ChangeVerdict.REGRESSED, "published": ChangeVerdict.REGRESSED}),
        ({"per_s": 460}, {"delivered": ChangeVerdict.IMPROVED}),
    ],
)
def test_a_change_is_told_from_chance(
    make_side: Make, candidate: dict[str, Any], expected: dict[str, ChangeVerdict]
) -> None:
    """What changed is named with its direction, what did not is not."""
    result = compare(runs_of(make_side("a", seed=1)), runs_of(make_side("b", seed=2, **candidate)))
    found = verdicts(result)
    assert not result.refused
    assert result.repeated
    assert {"delivered", "published", "e2e.p50", "e2e.p99", "confirm.p50"} <= found.keys()
    assert {name: found[name] for name in expected} == expected
    if not expected:
        assert ChangeVerdict.REGRESSED not in found.values()
        assert ChangeVerdict.IMPROVED not in found.values()


@pytest.mark.parametrize("repeats", [(1, 1), (1, 6), (4, 4)])
def test_too_few_repetitions_are_inconclusive_and_say_what_to_do(make_side: Make, repeats: tuple[int, int]) -> None:
    """However large the change looks: text, Markdown and JSON say why, and how to come to a verdict."""
    sides = [
        runs_of(make_side(name, seed=seed, repeats=count, ms=ms))
        for seed, (name, count, ms) in enumerate(zip("ab", repeats, (2.0, 9.0), strict=True))
    ]
    result = compare(*sides)
    assert not result.repeated
    assert set(verdicts(result).values()) == {ChangeVerdict.INCONCLUSIVE}
    said = text.sentences(result)
    assert said[1].startswith("no verdict: ")
    assert "measure each side 10 times (at least 5)" in said[2]
    assert "--slo" in said[3]
    assert all(sentence in text.markdown(result) for sentence in said)
    plain = text.to_json(result)
    assert {row["verdict"] for row in plain["metrics"]} == {"inconclusive"}
    assert {row["reason"] for row in plain["metrics"]} == {
        f"a verdict takes 5 repetitions of each side, these are {repeats[0]} against {repeats[1]}"
    }
    assert all(row["change"] > 3 for row in plain["metrics"] if row["metric"] == "e2e.p50")


def test_the_length_of_a_run_is_no_repetition(make: Make) -> None:
    """Sixty steady intervals of one run are one value."""
    result = compare(runs_of(make("a", seed=1, seconds=60)), runs_of(make("b", seed=2, seconds=60, ms=2.6)))
    assert {(line.change.low, line.change.high) for line in result.lines} == {(-math.inf, math.inf)}
    assert {row[5] for row in text.rows(result)} == {"–"}


def test_a_percentile_without_samples_beyond_it_is_inconclusive(make_side: Make) -> None:
    """4 intervals of 30 messages: one lies beyond the 99th percentile."""
    sides = runs_of(make_side("a", seed=1, per_s=30)), runs_of(make_side("b", seed=2, per_s=30, ms=9))
    result = compare(*sides)
    assert verdicts(result)["e2e.p99"] is ChangeVerdict.INCONCLUSIVE
    assert verdicts(result)["e2e.p50"] is ChangeVerdict.REGRESSED
    assert any("e2e.p99.9" in each and "samples" in each for each in text.sentences(result))


def test_repetitions_are_judged_by_how_they_differ(make: Make) -> None:
    """Five runs of each side whose figures lie wide apart: within a run all is steady, over the runs nothing is."""
    for number, ms in enumerate((1.0, 1.4, 2.0, 2.8, 4.0)):
        make("base", seed=number, ms=ms)
        make("candidate", seed=10 + number, ms=ms * 1.1)
    base, candidate = (make(name, seed=99, ms=2.0).parent for name in ("base", "candidate"))
    result = compare(runs_of(base), runs_of(candidate))
    assert result.repeated
    assert verdicts(result)["e2e.p50"] is ChangeVerdict.INCONCLUSIVE
    said = text.sentences(result)
    assert "over 6 and 6 repetitions" in said[1]
    assert "repetitions of each side would decide" in said[2] and "The assumption: runs go on to vary" in said[2]
    (line,) = (each for each in result.lines if each.metric == "e2e.p50")
    assert line.needed is not None and line.needed > 100


def test_five_repetitions_say_how_many_would_decide(make_side: Make) -> None:
    """Even a large change has no p value below 2 of 252 deals, which is too much for nine figures."""
    base, candidate = (runs_of(make_side(name, seed=at, repeats=5, ms=ms)) for at, (name, ms) in enumerate(SIDES))
    every, one = compare(base, candidate), compare(base, candidate, metrics=("e2e.p99.9",))
    assert [line.p for line in every.lines if line.metric == "e2e.p99"] == [pytest.approx(2 / 252)]
    (line,) = (each for each in every.lines if each.metric == "e2e.p50")
    assert line.verdict is ChangeVerdict.INCONCLUSIVE and "over all" in line.reason and line.needed in (6, 7)
    assert one.lines[0].p_adjusted == one.lines[0].p


SIDES = (("a", 2.0), ("b", 9.0))


def test_rows_have_the_value_of_every_run(make_side: Make) -> None:
    """A page draws the runs themselves; their medians head the row, in the unit of the row."""
    base, candidate = (runs_of(make_side(name, seed=at, ms=ms)) for at, (name, ms) in enumerate(SIDES))
    result = compare(base, candidate, metrics=("e2e.p50", "delivered"))
    first = result.sorted_lines()[0]
    assert (first.metric, first.verdict, first.reason) == ("e2e.p50", ChangeVerdict.REGRESSED, "")
    assert len(first.base_values) == len(first.candidate_values) == 8
    assert base[0].result is not None
    p50_ns = base[0].result["steps"][0]["latency"]["e2e"]["p50_ns"]
    assert first.base_values[0] == pytest.approx(p50_ns / 1e6)
    assert first.base == pytest.approx(2, rel=0.1) and first.change.low > 3
    assert first.p == pytest.approx(2 / 12870) and first.p_adjusted == pytest.approx(2 * first.p)


def test_a_step_that_a_repetition_lacks_is_named(make_side: Make) -> None:
    """Nothing is left out in silence."""
    base, candidate = (runs_of(make_side(name, seed=seed, repeats=3)) for seed, name in enumerate("ab"))
    for run in (*base, *candidate):
        assert run.result is not None
        run.result["steps"].append(run.result["steps"][0] | {"label": "late"})
    assert base[1].result is not None
    base[1].result["steps"].pop()
    result = compare(base, candidate)
    assert result.missing == ["late"]
    assert "not every run has: late" in text.sentences(result)


@pytest.mark.parametrize("zeros", [1, 3])
def test_a_repetition_that_measured_nothing_is_named(make_side: Make, zeros: int) -> None:
    """A rate of 0 has no ratio: shown, and no verdict."""
    base, candidate = (runs_of(make_side(name, seed=seed, repeats=5)) for seed, name in enumerate("ab"))
    for run in base[:zeros]:
        assert run.result is not None
        run.result["steps"][0]["delivered_per_s"] = 0.0
    (line,) = compare(base, candidate, metrics=("delivered",)).lines
    assert (line.verdict, line.reason) == (ChangeVerdict.INCONCLUSIVE, f"{zeros} of 5 repetitions measured 0")
    json.dumps(text.to_json(compare(base, candidate)), allow_nan=False)


@pytest.mark.parametrize(
    "candidate, facet, where",
    [
        ({"prefetch": 7}, Facet.PLAN, "plan.steps[0].settings.prefetch: 1000 against 7"),
        ({"facts": {"durability": "none"}}, Facet.DURABILITY, "broker.durability: fsync against none"),
        (
            {"end": False},
            Facet.VALIDITY,
            "result.valid: trustworthy against the run was killed or is still running: what is here is",
        ),
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


def test_names_with_markup_stay_names(make: Make) -> None:
    """A label of a step or a product may have any letters; a review must not run or lose them."""
    sides = runs_of(make("a", seed=1)), runs_of(make("b", seed=2, facts={"product": "<b>a|b</b>"}))
    for run in (*sides[0], *sides[1]):
        assert run.result is not None
        run.result["steps"][0]["label"] = "x|<img src=y>`z`"
    page = text.markdown(compare(*sides))
    assert "<img" not in page and "<b>" not in page
    rows = [line for line in page.splitlines() if line.startswith("| x")]
    assert rows and all(line.replace(r"\|", "").count("|") == len(text.HEAD) + 1 for line in rows)


def test_another_broker_is_what_one_wants_to_know(make: Make) -> None:
    """It is shown, and its durability, said in other words, is no obstacle."""
    other = {"product": "reference_broker", "durability": "fdatasync on a majority"}
    base, candidate = runs_of(make("a", seed=1)), runs_of(make("b", seed=2, facts=other))
    base[0].manifest["plan"]["cluster"] = {"nodes": 3, "broker": "rabbitmq"}
    candidate[0].manifest["plan"]["cluster"] = {"nodes": 3, "broker": "reference"}
    result = compare(base, candidate)
    assert not result.refused
    assert "broker.product: RabbitMQ against reference_broker" in text.shown_differences(result)


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("cluster", {"nodes": 1, "layout": {"drives": {"d": {"directory": "/d"}}}}, False),
        ("connecting", {"allocation": "random"}, False),
        ("publishing", {"start_delay_s": 1.0}, False),
        ("publishing", {"start_delay_s": 1.0, "channels": 7}, True),
        ("seed", 7, True),
    ],
)
def test_two_brokers_are_compared_across_what_belongs_to_them(make: Make, key: str, value: Any, refused: bool) -> None:
    """A broker that was started here and one at a URI have other clusters and other connections. Both are shown; a
    load of another kind is refused nonetheless."""
    base, candidate = runs_of(make("a", seed=1)), runs_of(make("b", seed=2, facts={"product": "reference_broker"}))
    plan = candidate[0].manifest["plan"]
    plan[key] = {**plan[key], **value} if isinstance(value, dict) else value
    assert compare(base, candidate).refused
    result = compare(base, candidate, across=True)
    assert bool(result.refused) is refused and bool(result.lines) is not refused
    shown = "\n".join(_shown(each) for each in result.differences)
    assert f"plan.{key}" in shown and "broker.product: RabbitMQ against reference_broker" in shown


def _shown(each: Difference) -> str:
    return f"{each.where}: {each.base} against {each.candidate}"


def test_what_is_wrong_on_both_sides_is_said_once(make: Make) -> None:
    sides = (runs_of(make(name, seed=seed, end=False)) for seed, name in enumerate("ab"))
    told = text.refusal(compare(*sides))
    assert told.endswith(", on both sides") and told.count("killed or is still running") == 1


def test_repetitions_must_be_of_one_measurement(make: Make) -> None:
    """A directory that gathers anything at all is no baseline."""
    make("base", seed=1)
    directory = make("base", seed=2, in_flight=7).parent
    result = compare(runs_of(directory), runs_of(make("b", seed=3)), allow=frozenset())
    assert any(each.where.endswith("in_flight") for each in result.refused)


def test_markdown_and_json_hold_every_row(make_side: Make) -> None:
    """A review that leaves out a row hides it."""
    sides = runs_of(make_side("a", seed=1, per_s=3000)), runs_of(make_side("b", seed=2, per_s=3000, ms=2.6))
    result = compare(*sides, metrics=("p99", "p99.9", "delivered"))
    page = text.markdown(result)
    assert [line.metric for line in result.lines] == [
        "delivered",
        "e2e.p99",
        "e2e.p99.9",
        "confirm.p99",
        "confirm.p99.9",
    ]
    assert page.count("\n| ") == 2 + len(result.lines)
    assert page.startswith("**4 regressed")
    plain = json.loads(json.dumps(text.to_json(result), allow_nan=False))
    assert [row["metric"] for row in plain["metrics"]] == [line.metric for line in result.lines]
