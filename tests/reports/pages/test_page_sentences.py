"""Every generated sentence agrees with the tables of its page, whatever the runs are like.

The runs are generated: steps in any order, ties, one step, steps that delivered nothing, several rounds, layouts, and
steps in which the generator was the limit. The oracle reads the sentences as a reader does, and looks the figures up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.pages import kinds, words
from reports.pages.model import Chart, Page, Table
from reports.pages.page import page
from reports.pages.several.comparison import comparison_part
from reports.pages.several.history import history_page
from reports.pages.several.judged import JudgedRow
from reports.stats.confidence import ChangeVerdict
from reports.stats.history import history, history_metric
from reports.store.tables import Tables
from tests.examples import dear
from tests.reports.conftest import _load
from tests.reports.pages.test_page_history import tables_over_days

SAMPLES: ModuleType = _load("sample_tables")
SETTINGS = (1, 5, 20, 200, 1000, 10_000, None)

FIGURE = re.compile(r"(?<!\w)(\d(?:[\d,.]*\d)?)(?: to (\d(?:[\d,.]*\d)?))? (msg/s|µs|ms|s)(?![a-z/])")

steps = st.lists(
    st.builds(
        SAMPLES.Step,
        setting=st.sampled_from(SETTINGS),
        rate=st.one_of(
            st.just(0.0), st.sampled_from([1_000.0, 50_000.0]), st.floats(min_value=1.0, max_value=300_000.0)
        ),
        p50_ns=st.floats(min_value=1e5, max_value=5e8),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda step: step.setting,
)


def shown(made: Page) -> dict[str, list[Table]]:
    """All tables of each part of a page, those of its figures too."""
    found: dict[str, list[Table]] = {}
    for article in kinds.articles(made):
        for section in article.sections:
            for block in section.blocks:
                parts = [block, *([block.picture] if isinstance(block, kinds.Minute) and block.picture else [])]
                tables = [part.table for part in parts if isinstance(part, kinds.Data | Chart)]
                tables += [block.headline] if isinstance(block, kinds.Minute) and block.headline else []
                found.setdefault(article.anchor, []).extend(tables)
    return found


def figures(tables: list[Table]) -> set[str]:
    """Every number of the tables, as a sentence would say it: as a rate, and as a latency."""
    numbers = {cell for table in tables for row in table.rows for cell in row if isinstance(cell, int | float)}
    return {say(float(number)) for number in numbers for say in (words.rate, words.latency) if number >= 0}


def said(made: Page) -> Iterator[tuple[str, str]]:
    """The sentences of each opening, with the anchor of the part."""
    for article in kinds.articles(made):
        for block in article.sections[0].blocks if article.opens else ():
            assert isinstance(block, kinds.Minute)
            yield from ((article.anchor, sentence.text) for sentence in block.sentences)


def assert_true(made: Page) -> None:
    """Each rate and latency of a sentence is in a table of its part."""
    tables = shown(made)
    for anchor, text in said(made):
        known = figures(tables[anchor])
        for low, high, unit in FIGURE.findall(text):
            for number in filter(None, (low, high)):
                if unit != "s":  # "s" may be a length of time
                    assert f"{number} {unit}" in known, (f"{number} {unit}", text)


def sample(number: int, found: list[Any], **more: Any) -> Any:
    """A run with these steps."""
    return replace(SAMPLES.SWEEP, run_id=f"20261121-10150{number}-in_flight-{number:04}", steps=tuple(found), **more)


def highest(tables: Tables) -> pd.Series[Any] | None:
    """The step with the highest rate of all steps that the generator did not limit."""
    known = tables.steps[(tables.steps["delivered_per_s"] > 0) & (tables.steps["worker_cpu_share"] < 0.95)]
    return None if known.empty else known.iloc[int(known["delivered_per_s"].argmax())]


def assert_advised(text: str, tables: Tables) -> None:
    """No step with 95 % of the highest rate has a lower p99 than the step that the first sentence names."""
    known = tables.steps[(tables.steps["delivered_per_s"] > 0) & (tables.steps["worker_cpu_share"] < 0.95)]
    near = known[known["delivered_per_s"] >= 0.95 * known["delivered_per_s"].max()]
    assert words.latency(float(near["e2e_p99_ns"].min())) in text


@dear(20)
@given(steps, st.randoms(use_true_random=False))
def test_one_run(found: list[Any], chance: Any) -> None:
    """The answer names the highest rate that the broker, and not the generator, set."""
    tables = SAMPLES.tables(sample(1, found))
    shares = [chance.choice([0.4, 0.4, 0.97]) for _ in tables.steps.index]
    tables = replace(tables, steps=tables.steps.assign(worker_cpu_share=shares))
    made = page(tables, generated="")
    assert_true(made)
    best = highest(tables)
    (run,) = made.runs
    if best is not None and run.charts and run.charts[0].anchor == "knee":
        first = " ".join(sentence.text for sentence in run.sentences[:2])
        assert words.rate(float(best["delivered_per_s"])) in first
        assert ("at least" in first) == any(share >= 0.95 for share in shares)
        assert_advised(run.sentences[0].text, tables)
    is_invalid = any(banner.title.startswith("INVALID") for banner in run.banners)
    assert is_invalid == any(check.status == "fail" for check in run.checks)


@dear(10)
@given(steps, st.integers(2, 4), st.randoms(use_true_random=False))
def test_rounds_of_one_plan(found: list[Any], count: int, chance: Any) -> None:
    """The centre lies between the rounds, and the interval around the centre."""
    rounds = []
    for number in range(count):
        moved = [replace(each, rate=each.rate * chance.uniform(0.9, 1.1)) for each in found]
        rounds.append(sample(number, moved))
    made = page(SAMPLES.tables(*rounds), generated="")
    assert_true(made)
    ((_, overview), *_rest) = made.parts
    for row in overview.headline.rows:
        rate, low, high = row[1:4]
        if rate is not None and low is not None:
            assert low <= rate <= high
        if "rivals" in [column.name for column in overview.headline.columns] and rate is not None and low is not None:
            others = [each for each in overview.headline.rows if each is not row and each[1] is not None]
            overlap = [each[0] for each in others if each[2] <= high and low <= each[3]]
            assert bool(overlap) == bool(row[-1])
        rates = [step.rate for each in rounds for step in each.steps if str(step.setting or 0) == row[0]]
        if rates and rate is not None:
            assert min(rates) * 0.99 <= rate <= max(rates) * 1.01


@dear(10)
@given(st.lists(st.floats(min_value=10.0, max_value=200_000.0), min_size=2, max_size=4), st.integers(1, 3))
def test_layouts(rates: list[float], rounds: int) -> None:
    """The best layout is the best, and one round of each is not called more than chance."""
    samples = [
        sample(
            number * 10 + turn,
            [SAMPLES.Step(setting=None, rate=rate * (1 + 0.001 * turn), p50_ns=1e6)],
            swept=(),
            layout={
                "name": f"layout{number}", "io": "dedicated", "roles": {"wal": "d1"},
                "drives": [{"name": "d1", "kind": "modelled", "profile": "st1"}],
            },
        )
        for number, rate in enumerate(rates)
        for turn in range(rounds)
    ]  # fmt: skip
    made = page(SAMPLES.tables(*samples), generated="")
    assert_true(made)
    ((kind, layouts), *_rest) = made.parts
    assert kind == "layouts"
    text = layouts.sentences[0].text
    best = max(range(len(rates)), key=rates.__getitem__)
    if len(set(map(words.rate, rates))) > 1:
        assert text.startswith(f"layout{best} delivered most") or rates.count(rates[best]) > 1
    if rounds == 1:
        assert "which is more than chance" not in text


def steps_by(chance: Random) -> list[Any]:
    """Steps of a sweep: rates and latencies of any size, with a tie now and then."""
    settings = sorted(chance.sample([1, 5, 20, 200, 1000, 10_000], chance.randint(2, 5)))
    rates = [round(10 ** chance.uniform(1, 5.4), 1) for _ in settings]
    rates[-1] = chance.choice([rates[-1], rates[0]])
    return [
        SAMPLES.Step(setting=setting, rate=rate, p50_ns=10 ** chance.uniform(5, 8.5))
        for setting, rate in zip(settings, rates, strict=True)
    ]


def opening(made: Page, kind: str) -> tuple[kinds.Article, kinds.Minute]:
    """The first part of a kind, and its opening."""
    article = next(each for each in kinds.articles(made) if each.kind == kind)
    (minute,) = (block for block in article.sections[0].blocks if isinstance(block, kinds.Minute))
    return article, minute


@pytest.mark.parametrize("seed", range(3))
def test_hosts(seed: int) -> None:
    """Every figure of the opening, and of the sentence that the run has about its hosts, is in a table of the page, or
    was measured on one host."""
    chance = Random(seed)
    count = chance.randint(2, 5)
    names = [f"load{number}" for number in range(1, count + 1)]
    spread = replace(SAMPLES.SPREAD, load_hosts=count, steps=tuple(steps_by(chance)))
    slow, gone = (chance.choice([*names, ""]) for _ in range(2))
    tables = SAMPLES.tables(replace(spread, slow_host=slow, gone_host=gone))
    made = page(tables, generated="")
    _, minute = opening(made, "hosts")
    whole = [table for each in shown(made).values() for table in each]
    measured = {words.latency(float(each)) for each in tables.host_steps["e2e_p99_ns"].dropna()}
    measured |= {words.rate(float(each)) for each in tables.host_steps["delivered_per_s"]}
    known = figures(whole) | measured
    parts = {words.share(float(each)) for each in tables.host_steps["published_part"].dropna()}
    for sentence in minute.sentences:
        text = sentence.text.partition(" where the median of the hosts was ")[0]
        assert all(f"{low} {unit}" in known for low, _, unit in FIGURE.findall(text) if unit != "s"), text
        assert {f"{share} %" for share in re.findall(r"([\d.]+) %", text)} <= parts, text
    even = made.runs[0].sentences[1]
    assert even == minute.sentences[1] and even.text.startswith(f"{count} hosts made the load")
    assert (f"{gone} was lost" in " ".join(each.text for each in minute.sentences)) == bool(gone)


@pytest.mark.parametrize("seed", range(4))
def test_several_loads(seed: int) -> None:
    """The best, the next and the last of several loads are those of the table, and the distance is that of theirs."""
    chance = Random(seed)
    queues = chance.sample(["quorum", "classic", "lazy", "mirrored"], chance.randint(2, 4))
    rounds, steps = chance.randint(1, 3), steps_by(chance)
    samples = [
        sample(
            number * 10 + turn,
            [replace(step, rate=step.rate * factor * chance.uniform(0.95, 1.05)) for step in steps],
            queue_types=queue,
        )
        for number, queue in enumerate(queues)
        for factor in [chance.uniform(0.3, 1.0)]
        for turn in range(rounds)
    ]
    made = page(SAMPLES.tables(*samples), generated="")
    assert_true(made)
    _, minute = opening(made, "overview")
    assert minute.headline is not None
    at = [column.name for column in minute.headline.columns].index("delivered_per_s")
    order = sorted(minute.headline.rows, key=lambda row: -float(row[at] or 0))
    texts = [sentence.text for sentence in minute.sentences]
    assert texts[0].startswith(f"Of {len(queues)} queue types, {order[0][0]} delivers most")
    less = words.share(1 - float(order[1][at] or 0) / float(order[0][at] or 1))
    assert texts[1].startswith(f"{order[1][0]} is next") and f", {less} less" in texts[1]
    if len(queues) > 2:
        assert texts[2].startswith(f"{order[-1][0]} delivers least")


def test_loads_that_are_alike_have_no_winner() -> None:
    steps = steps_by(Random(1))
    samples = [sample(number, steps, queue_types=queue) for number, queue in enumerate(["quorum", "classic"])]
    _, minute = opening(page(SAMPLES.tables(*samples), generated=""), "overview")
    texts = [sentence.text for sentence in minute.sentences]
    assert texts[0].startswith("Of 2 queue types, quorum and classic deliver most, and alike: ")
    assert not any("next" in text or "least" in text for text in texts)


@pytest.fixture(scope="module")
def both_sides() -> tuple[ModuleType, Tables]:
    """The module of sample comparisons, and the tables of its runs."""
    comparisons = _load("sample_comparisons")
    base, candidate = comparisons.samples(SAMPLES)
    return comparisons, SAMPLES.tables(*base, *candidate)


def judged_by(chance: Random, number: int) -> JudgedRow:
    """One figure of two sides, with any verdict."""
    verdict = chance.choice(list(ChangeVerdict))
    base, value = 10 ** chance.uniform(0, 5), chance.uniform(-0.6, 1.5)
    half = chance.uniform(0.01, 0.2)
    return JudgedRow(
        step=chance.choice(["", "in_flight=20", "in_flight=1000"]),
        metric=f"metric{number}",
        unit="ms",
        base=base,
        candidate=base * (1 + value) * chance.uniform(0.98, 1.02),
        value=value,
        low=value - half,
        high=value + half,
        noise=0.05,
        verdict=verdict,
        doubt="",
    )


@pytest.mark.parametrize("seed", range(8))
def test_comparisons(seed: int, both_sides: tuple[ModuleType, Tables]) -> None:
    """The counts add up, and the figure of the first sentence is the row of the table that changed most."""
    chance, (comparisons, tables) = Random(seed), both_sides
    order = list(ChangeVerdict)
    rows = sorted((judged_by(chance, at) for at in range(chance.randint(1, 20))), key=lambda r: order.index(r.verdict))
    found = replace(comparisons.judged(SAMPLES), rows=tuple(rows))
    part = comparison_part(found, tables, names=("a", "b"))
    assert part.verdicts is not None
    names = [column.name for column in part.verdicts.columns]
    cells = [dict(zip(names, row, strict=True)) for row in part.verdicts.rows]
    counted = next(each.text for each in part.sentences if each.text.startswith(f"{len(rows)} figure"))
    counts = {
        text: int(count) for count, text in re.findall(r"(\d+) ([a-z][a-z ]+?)(?=[,.])", counted.partition(": ")[2])
    }
    assert sum(counts.values()) == len(rows)
    for verdict, count in counts.items():
        assert sum(str(cell["verdict"]).endswith(f" {verdict}") for cell in cells) == count
    lead = re.match(r"The candidate is (\w+) in (\d+) of (\d+) figures?, most in (\w+)", part.sentences[0].text)
    changed = "regressed" if "regressed" in counts else "improved"
    assert (lead is None) == (changed not in counts)
    if lead is not None:
        assert (int(lead[2]), int(lead[3])) == (counts[changed], len(rows))
        (row,) = (cell for cell in cells if cell["metric"] == lead[4])
        assert f"{row['change']:+.3g} % ({row['low']:+.3g} to {row['high']:+.3g} %)" in part.sentences[0].text


@pytest.mark.parametrize("seed", range(5))
def test_histories(seed: int) -> None:
    """The medians of the latest change are in the table of changes, which has as many rows as the sentence counts."""
    chance = Random(seed)
    levels = [10 ** chance.uniform(0, 2) for _ in range(chance.randint(1, 3))]
    values = [level * chance.uniform(0.99, 1.01) for level in levels for _ in range(chance.randint(5, 9))]
    found = history(tables_over_days(SAMPLES, values), history_metric("e2e.p99"))
    made = history_page(found, workload="w", generated="")
    assert_true(made)
    _, minute = opening(made, "history")
    assert minute.headline is not None
    told = " ".join(sentence.text for sentence in minute.sentences)
    rows = minute.headline.rows
    assert (f"{words.plural(len(rows), 'change')} found." in told) == bool(rows)
    for row in rows:
        assert all(words.latency(float(cell or 0)) in told for cell in row[3:5]), row
    days = {str(row[2]).partition(" ")[0] for row in rows}
    assert not rows or minute.sentences[0].text.partition("since ")[2].partition(":")[0] == max(days)


def test_the_range_of_a_setting_names_its_ends() -> None:
    """Of rates that rise and fall again: the factor lies between the lowest and the highest, not the first and last."""
    rates = {1: 100.0, 20: 15_500.0, 1000: 9_000.0}
    found = [SAMPLES.Step(setting=setting, rate=rate, p50_ns=1e6) for setting, rate in rates.items()]
    (run,) = page(SAMPLES.tables(sample(1, found)), generated="").runs
    (factors,) = (chart for chart in run.factors if "One setting at a time" in chart.title)
    assert "155 times between in-flight limit 1 and in-flight limit 20" in factors.finding


def test_only_the_first_step_starts_from_idle() -> None:
    """Steps without a settled p99 are no reason to call the next one the first."""
    tables = SAMPLES.tables(sample(1, list(SAMPLES.IN_FLIGHT)))
    few = tables.timeline["step"] < 3
    tables = replace(tables, timeline=tables.timeline[~few])
    (run,) = page(tables, generated="").runs
    charts = [chart for chart in run.factors if chart.anchor == "settling"]
    told = json.dumps([chart.table.rows for chart in charts])
    assert "from idle" not in told
