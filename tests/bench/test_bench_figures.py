"""What the final table of ``make bench`` says, from made-up samples."""

from __future__ import annotations

import io
import json
from collections import namedtuple

import pytest
from rich.box import MARKDOWN
from rich.console import Console

from tests.bench.__main__ import BENCHES, choose
from tests.bench.context import steal_percent
from tests.bench.figures import (
    BUDGETS,
    RABBITMQ,
    REFERENCE,
    Bound,
    Budget,
    Finding,
    Sample,
    Verdict,
    findings,
    median,
    number,
    rate_between,
    ratio,
    used_between,
)
from tests.bench.table import budgets_table, document, figures_table

AT_MOST = Budget("idle", "percent", "idle", Bound.AT_MOST, 2, "%")
RATIO = Budget("load", "rate", "load", Bound.TIMES_RABBITMQ, 10)


@pytest.mark.parametrize(
    ("budget", "ours", "theirs", "verdict"),
    [
        (AT_MOST, 2.0, None, Verdict.MET),
        (AT_MOST, 0.0, 5.0, Verdict.MET),
        (AT_MOST, 2.1, 99.0, Verdict.MISSED),
        (AT_MOST, None, 1.0, Verdict.UNKNOWN),
        (RATIO, 100.0, 10.0, Verdict.MET),
        (RATIO, 99.0, 10.0, Verdict.MISSED),
        (RATIO, 1e9, None, Verdict.UNKNOWN),
        (RATIO, None, 10.0, Verdict.UNKNOWN),
    ],
)
def test_a_verdict_needs_what_its_budget_is_about(
    budget: Budget, ours: float | None, theirs: float | None, verdict: Verdict
) -> None:
    """A ratio without RabbitMQ is unknown, however fast; a bound does not care for RabbitMQ."""
    assert Finding(budget, ours, {RABBITMQ: theirs} if theirs is not None else {}).verdict is verdict


def test_a_ratio_must_hold_beside_each_rabbitmq() -> None:
    share = Budget("load", "cores", "load", Bound.SHARE_OF_RABBITMQ, 0.5)
    assert Finding(RATIO, 100.0, {"3.10": 10.0, "4.3": 9.0}).verdict is Verdict.MET
    assert Finding(RATIO, 100.0, {"3.10": 10.0, "4.3": 11.0}).verdict is Verdict.MISSED
    assert Finding(share, 1.0, {"3.10": 2.0, "4.3": 3.0}).verdict is Verdict.MET
    assert Finding(share, 1.0, {"3.10": 2.0, "4.3": 1.9}).verdict is Verdict.MISSED


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [(6.0, 3.0, 2.0), (0.0, 3.0, 0.0), (1.0, 0.0, None), (1.0, -34.0, None), (-1.0, 3.0, None), (None, 3.0, None)],
)
def test_a_ratio_is_of_two_quantities(ours: float | None, theirs: float | None, expected: float | None) -> None:
    """A publish rate that rises has a negative fall: no multiple of anything."""
    assert ratio(ours, theirs) == expected


def test_the_median_is_of_this_bench_broker_and_figure() -> None:
    samples = [Sample("a", REFERENCE, {"x": value, "y": 0.0}) for value in (1.0, 50.0, 3.0)]
    samples += [Sample("a", RABBITMQ, {"x": 1000.0}), Sample("b", REFERENCE, {"x": 2000.0}), Sample("a", REFERENCE, {})]
    assert median(samples, "a", REFERENCE, "x") == 3.0
    assert median(samples, "a", RABBITMQ, "y") is None


def test_a_rate_is_that_of_its_part_alone() -> None:
    """The first thousand in one second, the rest in ten."""
    progress = [(0, 5.0), (500, 5.5), (1000, 6.0), (2000, 16.0)]
    assert rate_between(progress, 0, 1000) == pytest.approx(1000)
    assert rate_between(progress, 1500, 2000) == pytest.approx(100)


def test_cpu_is_that_of_the_steady_part_alone() -> None:
    samples = [(0.0, 10.0), (2.0, 18.0), (4.0, 19.0), (6.0, 30.0)]
    assert used_between(samples, 2.0, 4.0) == pytest.approx(1.0)
    assert used_between(samples, 1.0, 3.0) == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (5.678, "5.68"), (233_239.4, "233,239"), (99.96, "100")]
)
def test_numbers_are_written_for_people(value: float | None, text: str) -> None:
    assert number(value) == text


def test_steal_is_the_share_of_all_time() -> None:
    """Of four processors over two seconds, one second of one processor went elsewhere."""
    Times = namedtuple("Times", ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest"))
    before, after = Times(9, 0, 1, 5, 0, 0, 0, 3, 9), Times(12, 0, 2, 8, 0, 0, 0, 4, 12)
    assert steal_percent(before, after) == pytest.approx(12.5)
    assert steal_percent(after, after) == 0.0


def test_every_budget_belongs_to_a_bench() -> None:
    """One that is spelled otherwise would never be measured, and nobody would miss it."""
    assert {budget.bench for budget in BUDGETS} <= set(BENCHES)


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("", list(BENCHES)),
        ("in-flight 1", ["in-flight 1"]),
        ("deep, 40 queues", ["40 queues x 10", "40 queues x 50", "deep"]),
        ("rate", ["rate 200", "rate 500", "rate 1000", "rate 2000", "rate 4000"]),
        ("no such thing", []),
    ],
)
def test_benches_are_chosen_by_name_or_by_part_of_one(only: str, names: list[str]) -> None:
    """A whole name is that bench alone: in-flight 1 is not in-flight 1000."""
    assert choose(only) == names


def test_markdown_has_no_line_that_is_no_row() -> None:
    """A line between rows would end the table where it is shown."""
    samples = [Sample(bench, REFERENCE, {"x": 1.0}) for bench in ("a", "b")]
    out = io.StringIO()
    Console(file=out, width=130).print(figures_table(samples, box=MARKDOWN))
    rows = [line.strip() for line in out.getvalue().splitlines() if line.startswith("|")]
    assert len(rows) == 4 and sum(set(row) <= set("|- :") for row in rows) == 1, out.getvalue()


def test_the_tables_and_the_document_say_the_same() -> None:
    samples = [
        Sample("in-flight 20", REFERENCE, {"delivered_per_s": 20_000.0}),
        Sample("in-flight 20", RABBITMQ, {"delivered_per_s": 5_000.0}),
        Sample("idle", REFERENCE, {"busiest_node_percent": 2.5}),
    ]
    found = findings(samples, ["in-flight 20", "idle"])
    out = io.StringIO()
    Console(file=out, width=130).print(figures_table(samples), budgets_table(found, usual=True))
    lines = out.getvalue().splitlines()
    words = ["in-flight 20: delivered/s", "≥ 4 x", "20,000", "5,000", "4 x", "met"]
    assert any(all(word in line for word in words) for line in lines), out.getvalue()
    assert any("busiest node" in line and "missed" in line for line in lines), out.getvalue()
    kept = json.loads(json.dumps(document({"schema": 1}, samples, found, {"deep": "no room"})))
    assert [budget["verdict"] for budget in kept["budgets"]] == ["met", "missed"]
    assert kept["budgets"][0]["ratio"] == {RABBITMQ: 4}
    assert kept["samples"][2]["figures"] == {"busiest_node_percent": 2.5}
    assert kept["failures"] == {"deep": "no room"}
