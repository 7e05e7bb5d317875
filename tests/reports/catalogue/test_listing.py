"""Finding runs by what they were."""

from __future__ import annotations

from typing import Any

import pytest

from reports.catalogue.annotations import Annotation
from reports.catalogue.listing import COLUMNS, CatalogueEntry, RunVerdict, Wanted, entries, parse_setting, select
from reports.errors import SettingError

DAY_NS = 86_400 * 1_000_000_000


def row(table: str, **values: Any) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS[table]) | values


def run(run_id: str, day: int, **values: Any) -> dict[str, Any]:
    texts = dict.fromkeys(COLUMNS["runs"], "")
    return texts | {"run_id": run_id, "started_ns": day * DAY_NS, "length_s": 60.0, "exit_code": 0} | values


RUNS = [
    run("old", 1, name="flow_control/in_flight", product="RabbitMQ", broker_version="3.10.8", state="finished"),
    run("new", 3, name="disks/pure", product="reference_broker", state="finished", exit_code=4),
    run("dead", 2, name="flow_control/prefetch", product="RabbitMQ", broker_version="4.0.1", state="running"),
]
STEPS = [
    row("steps", run_id="old", step=1, in_flight=1, delivered_per_s=500.0, e2e_series="e2e", e2e_p99_ns=9_000),
    row("steps", run_id="old", step=2, in_flight=200, delivered_per_s=9_000.0, e2e_series="e2e", e2e_p99_ns=20_000),
    row("steps", run_id="new", step=1, rate=100.0, persistent=True, delivered_per_s=100.0, e2e_series="e2e_sched",
        e2e_p99_ns=1, e2e_sched_p99_ns=7_000),
]  # fmt: skip
HOSTS = [row("hosts", run_id="old", host=f"load{number}", hostname=f"rack7-{number}") for number in (1, 2)]


@pytest.fixture(scope="module")
def found() -> list[CatalogueEntry]:
    return entries(RUNS, STEPS, HOSTS, {"new": Annotation(tags=("base", "nightly"), note="x")})


def test_the_newest_run_comes_first(found: list[CatalogueEntry]) -> None:
    assert [each.run_id for each in found] == ["new", "dead", "old"]


def test_figures_are_those_of_the_step_that_delivered_most(found: list[CatalogueEntry]) -> None:
    new, dead, old = found
    assert (old.delivered_per_s, old.e2e_p99_ns, old.steps) == (9_000.0, 20_000, 2)
    assert (new.delivered_per_s, new.e2e_p99_ns) == (100.0, 7_000), "with a schedule, latency counts from it"
    assert (dead.delivered_per_s, dead.e2e_p99_ns, dead.verdict) == (None, None, RunVerdict.KILLED)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Wanted(), ["new", "dead", "old"]),
        (Wanted(workload="flow_control/*"), ["dead", "old"]),
        (Wanted(broker="rabbitmq"), ["dead", "old"]),
        (Wanted(broker="RabbitMQ 4"), ["dead"]),
        (Wanted(broker="4."), ["dead"]),
        (Wanted(host="load?"), ["old"]),
        (Wanted(host="rack7-*"), ["old"]),
        (Wanted(settings={"in_flight": 1.0}), ["old"]),
        (Wanted(settings={"persistent": 1.0, "rate": 100.0}), ["new"]),
        (Wanted(settings={"in_flight": 2.0}), []),
        (Wanted(since_ns=2 * DAY_NS, before_ns=3 * DAY_NS), ["dead"]),
        (Wanted(verdicts=frozenset({RunVerdict.MISSED, RunVerdict.PASSED})), ["new", "old"]),
        (Wanted(tags=("nightly",)), ["new"]),
        (Wanted(tags=("nightly", "release")), []),
    ],
)
def test_filters(found: list[CatalogueEntry], wanted: Wanted, ids: list[str]) -> None:
    assert [each.run_id for each in select(found, wanted)] == ids


def test_settings_are_written_as_in_workload_files() -> None:
    assert parse_setting("in_flight=200") == ("in_flight", 200.0)
    assert parse_setting("in_flight=unlimited") == ("in_flight", 2.0**30)
    assert parse_setting("ack_interval=automatic") == ("ack_interval", 0.0)
    assert parse_setting("persistent=true") == ("persistent", 1.0)


@pytest.mark.parametrize("text", ["in_flight", "in_flight=many", "colour=red", "=", ""])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_setting(text)
