"""The section of the page with the findings of the source: the judge of the terminal, over all runs of a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from reports.html.render import render
from reports.html.write import summary
from reports.pages.kinds import articles
from reports.pages.page import page
from reports.stats.reproduction import judge
from reports.stats.validity import steps_of, with_noise
from reports.store.tables import Tables

RISES = {"trend": "rises", "metric": "rate", "says": "The rate <grows>.", "place": "figure 1"}
FLAT = {"trend": "flat", "metric": "e2e.p99", "says": "The latency stays."}


def with_findings(tables: Tables, *findings: dict[str, Any]) -> Tables:
    """The runs as if their workload stated these findings, about all steps."""
    for at, text in enumerate(tables.runs["manifest"]):
        manifest = json.loads(text)
        labels = [step["label"] for step in manifest["plan"]["steps"]]
        manifest["plan"]["findings"] = [{**each, "steps": labels[:1] + labels[-1:]} for each in findings]
        tables.runs.loc[at, "manifest"] = json.dumps(manifest)
    return tables


def test_a_run_has_a_section_with_each_finding(sample_tables: ModuleType) -> None:
    tables = with_findings(sample_tables.tables(sample_tables.Sample()), RISES, FLAT)
    made = page(tables, generated="")
    (article,) = articles(made)
    (section,) = [each for each in article.sections if each.title == "Findings of the source"]
    assert ("findings", "Findings of the source") in article.links
    text = render(made)
    assert "The rate &lt;grows&gt;." in text and "figure 1" in text and "The latency stays." in text
    assert section.anchor == "findings"


def test_the_page_says_what_the_terminal_says(sample_tables: ModuleType) -> None:
    """The rows of the tables and those of result.json are judged by one function."""
    tables = with_findings(sample_tables.tables(sample_tables.Sample()), RISES, FLAT)
    (verdicts,) = page(tables, generated="").verdicts
    plan = json.loads(tables.runs["manifest"].iloc[0])["plan"]
    judged = judge(plan, [with_noise(tables, steps_of(tables.steps))])
    assert judged is not None
    assert list(verdicts.lines) == judged.lines()
    assert verdicts.record == judged.to_json()
    latencies = judged.findings[1].claims[0].claim
    assert latencies.base == (min(tables.steps["e2e_p99_ns"].iloc[0], tables.steps["e2e_max_ns"].iloc[0]),)
    found = summary(page(tables, generated=""), tables, {})["findings"]
    assert [(each["verdict"], each["rounds"]) for each in found] == [(str(judged.outcome), 1)]


def test_runs_of_one_plan_are_repetitions(sample_tables: ModuleType) -> None:
    runs = [sample_tables.Sample(run_id=f"20261121-10150{number}-x-{number}{number}ab") for number in range(3)]
    tables = with_findings(sample_tables.tables(*runs), RISES)
    made = page(tables, generated="")
    (verdicts,) = made.verdicts
    assert verdicts.record["rounds"] == 3
    titles = [section.title for article in articles(made) for section in article.sections]
    assert titles.count("Findings of the source") == 1


def test_each_broker_is_judged_by_itself(sample_tables: ModuleType) -> None:
    """A finding compares steps and layouts. A round of one broker is no repetition of another broker's."""
    runs = [
        sample_tables.Sample(run_id=f"20261121-10150{number}-x-{number}{number}ab", product=product)
        for number, product in enumerate(("RabbitMQ", "reference_broker", "RabbitMQ"))
    ]
    made = page(with_findings(sample_tables.tables(*runs), RISES), generated="")
    names = {verdicts.name: verdicts.record["rounds"] for verdicts in made.verdicts}
    assert [name.partition(" on ")[2].split()[0] for name in names] == ["RabbitMQ", "reference_broker"]
    assert list(names.values()) == [2, 1]
    anchors = [verdicts.chart.anchor for verdicts in made.verdicts]
    assert len(set(anchors)) == 2 and not any(" " in anchor for anchor in anchors)


@pytest.mark.parametrize("count", [1, 2])
def test_without_findings_there_is_no_section(sample_tables: ModuleType, count: int) -> None:
    runs = [sample_tables.Sample(run_id=f"20261121-10150{number}-x-{number}{number}ab") for number in range(count)]
    made = page(sample_tables.tables(*runs), generated="")
    assert "Findings of the source" not in render(made)
    assert made.verdicts == ()


def test_runs_on_different_layouts_are_no_repetitions(sample_tables: ModuleType) -> None:
    """Layouts are compared; they used to be taken as rounds of each other."""
    layouts = [{"name": name, "drives": {"d": {"profile": "st1-1t"}}, "roles": {"wal": "d"}} for name in ("a", "b")]
    runs = [
        sample_tables.Sample(
            run_id=f"20261121-10150{number}-x-{number}{number}ab",
            layout=layouts[number % 2],
            steps=tuple(replace(step, rate=step.rate * (1 + number % 2)) for step in sample_tables.IN_FLIGHT[2:4]),
        )
        for number in range(6)
    ]
    ratio = {"trend": "ratio", "metric": "rate", "layouts": ["a", "b"], "at_least": 1.5, "says": "Twice as fast."}
    tables = with_findings(sample_tables.tables(*runs), RISES, ratio)
    made = page(tables, generated="")
    (verdicts,) = made.verdicts
    assert (verdicts.record["rounds"], verdicts.record["layouts"]) == (3, ["a", "b"])
    assert "over 3 rounds on each of 2 layouts" in verdicts.lines[0]
    assert verdicts.record["findings"][1]["verdict"] == "reproduced"
    assert "Twice as fast." in render(made) and "a → b" in render(made)


def test_the_only_step_of_a_run_needs_no_label(sample_tables: ModuleType) -> None:
    """Without a sweep the step has no label in the plan, and the tables call it "step 1"."""
    layouts = [{"name": name, "drives": {"d": {"profile": "st1-1t"}}, "roles": {"wal": "d"}} for name in ("a", "b")]
    runs = [
        sample_tables.Sample(run_id=f"run-{number}", layout=layout, steps=sample_tables.IN_FLIGHT[2:3])
        for number, layout in enumerate(layouts)
    ]
    ratio = {"trend": "ratio", "metric": "rate", "layouts": ["a", "b"], "at_least": 0.1, "says": "Alike."}
    tables = with_findings(sample_tables.tables(*runs), ratio)
    for at, text in enumerate(tables.runs["manifest"]):
        manifest = json.loads(text)
        manifest["plan"]["steps"][0]["label"] = ""
        manifest["plan"]["findings"][0]["steps"] = [""]
        tables.runs.loc[at, "manifest"] = json.dumps(manifest)
    tables.steps["label"] = "step 1"
    (verdicts,) = page(tables, generated="").verdicts
    assert verdicts.verdict == "reproduced", verdicts.lines
