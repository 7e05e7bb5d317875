"""``perftest simulate --broker rabbitmq-3.10``: runs of a model of RabbitMQ are records like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perftest.simulation import rabbitmq_calibration
from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import ST1_1T

Call = Callable[..., tuple[int, str, str]]
MODEL = ("simulate", "--broker", "rabbitmq-3.10", "--settle", "0", "--jobs", "1", "--hosts", "each", "--cores", "4")
SHORT = ("--set", "step={duration: 400ms, warmup: 100ms}")
MIXED = """\
schema: 1
name: mixed
title: A quorum queue beside a lazy one
cluster: {broker: rabbitmq}
queues: [{name: q}, {name: lazy, type: classic, arguments: {x-queue-mode: lazy}}]
load: {in_flight: 50, publishers: 2, consumers: 2, prefetch: 20}
step: {duration: 400ms, warmup: 100ms}
"""


def run_in(root: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The only run directory, its manifest and its only step."""
    (path,) = root.iterdir()
    (step,) = json.loads((path / "result.json").read_text())["steps"]
    return path, json.loads((path / "manifest.json").read_text()), step


def test_the_same_seed_gives_the_same_files_and_loses_nothing(call: Call, tmp_path: Path) -> None:
    file, found = tmp_path / "mixed.yaml", []
    file.write_text(MIXED)
    for name in ("a", "b"):
        code, out, err = call(*MODEL, str(file), "--layout", "disks/one_ssd", "--out", str(tmp_path / name))
        assert code == 0, (out, err)
        assert "with a model of RabbitMQ" in out
        path, manifest, step = run_in(tmp_path / name)
        found.append({each.name: each.read_bytes() for each in path.iterdir() if each.is_file()})
    assert found[0] == found[1]
    assert manifest["simulated"]["broker"] == "model of RabbitMQ 3.10"
    assert (
        manifest["simulated"]["broker_calibration"]["id"] == rabbitmq_calibration.read(rabbitmq_calibration.SHIPPED).id
    )
    ledger = json.loads((path / "ledger.json").read_text())
    assert step["confirmed"] > 100 and ledger["lost"] == ledger["duplicated"] == 0
    samples = [json.loads(line) for line in (path / "broker.jsonl").read_text().splitlines()]
    assert {sample["node"] for sample in samples} == {"node1", "node2", "node3"}
    assert all(sample["metrics"]["wal_batches"] > 0 for sample in samples[-3:])


def test_a_hard_disk_makes_fewer_confirms_and_longer_latencies(call: Call, tmp_path: Path) -> None:
    rates = []
    for layout in ("disks/one_ssd", "disks/one_hdd"):
        options = ("--vary", "in_flight=20", *SHORT, "--layout", layout, "--out", str(tmp_path / layout))
        code, out, err = call(*MODEL, *options)
        assert code == 0, (out, err)
        rates.append(run_in(tmp_path / layout)[2]["confirmed_per_s"])
    assert rates[0] > 2 * rates[1] > 0


def test_a_drive_may_begin_without_burst_credits(call: Call, tmp_path: Path) -> None:
    """A drive of 40 operations a second, after a long day, instead of 250."""
    drive = DriveModel(ST1_1T)
    drive.spend_credits(0, 1000)
    assert drive.credits(0) == 1000
    rates = {}
    for percent in ("100", "0"):
        options = ("--vary", "in_flight=20", *SHORT, "--layout", "disks/one_hdd", "--credits", percent)
        code, out, err = call(*MODEL, *options, "--out", str(tmp_path / percent))
        assert code == 0, (out, err)
        _, manifest, step = run_in(tmp_path / percent)
        rates[percent] = step["confirmed_per_s"]
        assert manifest["simulated"].get("credits", 1) == int(percent) / 100
    assert rates["100"] > 3 * rates["0"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--at", "100ms kill node1"), "has no timeline"),
        (("--verify",), "has no --verify"),
        (("--calibration", "{here}/none.json"), "the calibration cannot be read"),
        (("--calibration", "{here}/other.json"), "not a calibration of RabbitMQ"),
    ],
)
def test_what_the_model_cannot_do_is_refused(call: Call, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    (tmp_path / "other.json").write_text('{"costs": {"turn_ns": 1}}')
    given = [option.format(here=tmp_path) for option in options]
    code, _, err = call(*MODEL, "--vary", "in_flight=1", *SHORT, *given, "--out", str(tmp_path / "runs"))
    assert code == 2 and says in err, err


def test_the_cost_of_long_simulations_is_told_first(call: Call, tmp_path: Path) -> None:
    """A step of a saturated cluster takes longer than the virtual time; here, no message is ever sent."""
    options = ("--vary", "in_flight=1", "--set", "load.publishers=0", "--set", "step={duration: 31s, warmup: 1s}")
    code, _, err = call(*MODEL, *options, "--drive", "nvme", "--out", str(tmp_path / "runs"))
    assert "one simulation: 31 s of virtual time, and up to 0 s more until rates are steady" in err, (code, err)
    assert "at most about 2 min" in err
