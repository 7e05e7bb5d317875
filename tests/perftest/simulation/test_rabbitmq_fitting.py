"""The calibration of the model of RabbitMQ: figures in, costs out. The measurement itself needs a RabbitMQ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra import rabbitmq_cluster
from perftest.simulation import rabbitmq_fitting
from perftest.simulation.rabbitmq_calibration import SHIPPED, read
from perftest.simulation.rabbitmq_fitting import LOADS, LoadFigures, calibrate, corrected, kinds_of, simulated

COSTS = read(SHIPPED).costs
KINDS = dict.fromkeys(("reader", "channel", "writer", "leader", "wal", "classic"), 10.0)
FIGURES = dict.fromkeys(LOADS, LoadFigures(kinds_us=KINDS, other_us=30.0, confirm_ns=2_000_000, rate=1000.0))


def test_the_time_of_processes_that_call_files_is_told_by_their_reductions() -> None:
    """On a scheduler the log waits for its drive."""
    found = kinds_of(
        "rabbit_reader 100 1000\nrabbit_reader 100 1000\nra_server_proc 400 4000\nra_log_wal 99999 500\n"
        "rabbit_channel -1 0\n"
    )
    assert found == {"reader": 200, "channel": 0, "writer": 0, "leader": 400, "wal": 50, "classic": 0}


def test_costs_that_fit_stay() -> None:
    assert corrected(COSTS, FIGURES, FIGURES) == COSTS


@pytest.mark.parametrize(
    ("load", "kind", "raised"),
    [
        ("many", "leader", {"leader_enqueue_ns", "leader_settle_ns"}),
        ("many", "wal", {"wal_entry_ns"}),
        ("one", "channel", {"wake_cpu_ns"}),
        ("one", "leader", {"leader_event_ns"}),
        ("one", "wal", {"wal_batch_ns"}),
        ("lazy", "classic", {"classic_publish_ns", "classic_ack_ns"}),
    ],
)
def test_a_kind_that_takes_longer_raises_its_own_costs(load: str, kind: str, raised: set[str]) -> None:
    longer = replace(FIGURES[load], kinds_us={**KINDS, kind: 15.0})
    found = corrected(COSTS, {**FIGURES, load: longer}, FIGURES)
    changed = {name for name in COSTS.__dataclass_fields__ if getattr(found, name) != getattr(COSTS, name)}
    assert changed == raised
    assert all(getattr(found, name) > getattr(COSTS, name) for name in raised)


def test_latency_that_is_missing_is_time_of_wake_ups() -> None:
    slower = replace(FIGURES["one"], confirm_ns=2_800_000)
    assert corrected(COSTS, {**FIGURES, "one": slower}, FIGURES).wake_ns == COSTS.wake_ns + 100_000


def test_the_shipped_calibration_fits_what_was_measured() -> None:
    """CPU time a message, with many in flight: the figure that other work on a machine changes least."""
    fit = read(SHIPPED).fit
    for kind in ("reader", "channel", "writer", "leader"):
        real, found = (fit[side]["many"]["kinds_us"][kind] for side in ("real", "simulated"))
        assert found == pytest.approx(real, rel=0.15), kind


def test_the_model_gives_the_figures_of_the_shipped_calibration_again() -> None:
    """A change of the model needs another calibration, or an explanation."""
    found, expected = simulated(COSTS, "one"), read(SHIPPED).fit["simulated"]["one"]
    assert found.rate == expected["rate"] and found.confirm_ns == expected["confirm_ns"]


@pytest.mark.rabbitmq
@pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed")
def test_a_real_rabbitmq_can_be_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_fitting, "ROUNDS", 1)
    monkeypatch.setattr(rabbitmq_fitting, "MEASURED", 1)
    said: list[str] = []
    found = calibrate(tmp_path, COSTS, said.append)
    assert found.costs.leader_enqueue_ns > 0 and set(found.fit["real"]) == set(LOADS)
    assert said[-1].startswith("fitted: many: rate ")
