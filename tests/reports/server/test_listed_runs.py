"""Rows of the list: the verdict and the figures of a run, from its records."""

from __future__ import annotations

from typing import Any

import pytest

from reports.server.listed_run import REASON_MAX, ListedRun, ListedVerdict, checks_of, listed_run


def check(name: str, status: str) -> dict[str, str]:
    return {"check": name, "status": status, "text": f"about {name}"}


def step(rate: float, p99_ns: int | None, **more: Any) -> dict[str, Any]:
    latency = {} if p99_ns is None else {"e2e": {"count": 9, "p99_ns": p99_ns}}
    return {"delivered_per_s": rate, "latency": latency, "loop": "closed", **more}


def row(result: Any = None, *, trust: Any = None, state: str = "finished", **more: Any) -> ListedRun:
    manifest = {"id": "r1", "started_ns": 1, "state": state, "plan": {"name": "w"}}
    manifest |= {} if trust is None else {"trust": trust}
    return listed_run("r1", manifest, result, checks_of(manifest, result), state=state, **more)


RESULT = {"valid": True, "steps": [step(10.0, 7)], "trust": [check("finished", "pass")]}
BAD = [check("steal", "fail"), check("generator_cpu", "fail"), check("loopback", "warn")]


@pytest.mark.parametrize(
    ("made", "verdict", "reason"),
    [
        (row(RESULT, trust=[check("finished", "pass")]), "valid", ""),
        (row(RESULT, trust=[check("loopback", "warn")]), "valid", "1 warning"),
        (row(RESULT, trust=BAD), "invalid", "steal: about steal; generator CPU: about generator_cpu"),
        (row(RESULT, trust=[check("ledger", "fail")], violated=True), "unsafe", "ledger: about ledger"),
        (row(RESULT, trust=[check("ledger", "fail")]), "invalid", "ledger: about ledger"),
        (row(RESULT, trust=BAD, damage="result.json has changed"), "damaged", "result.json has changed"),
        (row({"steps": 3}, trust=[]), "damaged", "result.json has no usable figures"),
        (row({"steps": [{}]}, trust=[]), "damaged", "result.json has no usable figures"),
        (row({"steps": ["x"]}, trust=[]), "damaged", "result.json has no usable figures"),
        (row(None, state="killed"), "killed", "the end of the run is missing"),
        (row(None, state="running"), "running", ""),
        (row(None), "unjudged", "the page of the run has its checks"),
        (row({"steps": []}, trust="nonsense"), "unjudged", "the page of the run has its checks"),
        # a run of an earlier version has its list in the result, in part
        (row(RESULT), "valid", ""),
        (row({"steps": [step(1.0, 7, trust=BAD)], "trust": []}), "invalid", "steal: about steal; generator CPU: about"),
    ],
)
def test_the_gravest_is_said_and_why(made: ListedRun, verdict: str, reason: str) -> None:
    assert made.verdict == verdict
    assert made.reason.startswith(reason) and bool(reason) == bool(made.reason)


@pytest.mark.parametrize(
    ("steps", "rate", "p99_ns"),
    [
        ([], None, None),
        ([step(5.0, 7), step(10.0, 9), step(8.0, 3)], 10.0, 9.0),
        ([step(10.0, None)], 10.0, None),
        ([step(0.0, None)], None, None),
        ([step(float("inf"), 7)], None, None),
        ([step(10.0, 7, loop="open")], 10.0, None),
        ([step(10.0, 7) | {"latency": {"e2e_sched": {"count": 3, "p99_ns": 8}}, "loop": "open"}], 10.0, 8.0),
        ([step(10.0, 7) | {"latency": {"e2e": {"count": 0, "p99_ns": 0}}}], 10.0, None),
    ],
)
def test_figures_are_those_of_the_step_that_delivered_most(
    steps: list[Any], rate: float | None, p99_ns: float | None
) -> None:
    made = row({"steps": steps}, trust=[])
    assert (made.delivered_per_s, made.p99_ns) == (rate, p99_ns)


def test_every_verdict_has_a_word_and_a_weight() -> None:
    for verdict in ListedVerdict:
        assert verdict.words and verdict.status
    assert len({verdict.words for verdict in ListedVerdict}) == len(ListedVerdict)


def test_an_endless_reason_is_cut() -> None:
    assert len(row(RESULT, trust=[check("x" * 1_000, "fail")]).reason) == REASON_MAX


@pytest.mark.parametrize(
    ("plan", "queues"),
    [
        ({}, ()),
        ({"queues": [{"type": "quorum"}, {"type": "classic"}, {"type": "quorum"}, 3, {}]}, ("classic", "quorum")),
        ({"queues": 3, "groups": [{"queues": [{"type": "lazy"}]}, 3]}, ("lazy",)),
        ({"groups": 3}, ()),
    ],
)
def test_plans_of_any_form_have_a_row(plan: dict[str, Any], queues: tuple[str, ...]) -> None:
    manifest = {"id": "r", "started_ns": 2**63 - 1, "state": "finished", "plan": plan, "broker": 3, "ended": []}
    made = listed_run("r", manifest, None, None, state="finished")
    assert made.queues == queues and made.broker == "" and made.exit_code is None
    assert made.day == "2262-04-11"
