"""``perftest simulate``: the same seed gives the same files, and slower parts give slower figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perftest.cli import calibration
from perftest.cli.simulated_run import Limits, shortened
from perftest.cli.simulated_verification import line_of
from perftest.cli.sweep import swept_plan

Call = Callable[..., tuple[int, str, str]]
ONE = ("--vary", "in_flight=1", "--set", "step={duration: 300ms, warmup: 100ms}", "--jobs", "1")
MANY = ("--vary", "in_flight=200", *ONE[2:])


def rows_of(call: Call, out: Path, *options: str) -> dict[str, Any]:
    """The only row of a simulated run."""
    code, said, err = call("simulate", *options, "--out", str(out), "--json")
    assert code == 0, (said, err)
    found = json.loads(said)
    assert found["simulated"] is True
    (row,) = found["steps"]
    assert isinstance(row, dict)
    return row


def confirm_ns(row: dict[str, Any]) -> int:
    return int(row["latency"]["confirm"]["p50_ns"])


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    """A figure that cannot be had again cannot be looked into. Hash seeds differ between processes, on purpose."""
    found = []
    for name, seed, hashing in (("a", "7", "1"), ("b", "7", "2"), ("c", "8", "1")):
        line = [sys.executable, "-m", "perftest", "simulate", *MANY, "--seed", seed, "--out", str(tmp_path / name)]
        subprocess.run(
            line, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hashing}, timeout=300
        )
        found.append(files_of(tmp_path / name))
    first, second, other = found
    assert len(first) >= 9 and first == second
    assert other != first


def test_a_simulation_that_was_made_before_is_not_made_again(call: Call, tmp_path: Path) -> None:
    """The files would be the same; a second directory of the same name cannot be."""
    rows_of(call, tmp_path, *ONE)
    code, _, err = call("simulate", *ONE, "--out", str(tmp_path))
    assert code == 2 and "made before" in err and "--out" in err


def test_the_run_directory_says_that_it_is_simulated(call: Call, tmp_path: Path) -> None:
    """Whoever finds the directory later must not take its figures for measured ones."""
    code, said, _ = call("simulate", *ONE, "--drive", "nvme", "--drive", "wal=nvme-plp", "--out", str(tmp_path))
    assert code == 0 and said.startswith("SIMULATED: ") and "calibration" in said
    (path,) = tmp_path.iterdir()
    manifest = json.loads((path / "manifest.json").read_text())
    simulated = manifest["simulated"]
    assert path.name.startswith("simulated-") and manifest["state"] == "finished"
    assert simulated["calibration"]["id"] == calibration.read(calibration.SHIPPED).id
    assert simulated["roles"] == {"data": "main", "segment": "main", "wal": "wal"}
    assert {name: drive["name"] for name, drive in simulated["drives"].items()} == {"main": "nvme", "wal": "nvme-plp"}
    assert "modelled" in manifest["broker"]["durability"]


def test_a_slower_drive_makes_slower_confirms(call: Call, tmp_path: Path) -> None:
    """A sync of a hard disk waits for a revolution; of a drive with power-loss protection it waits for nothing."""
    names = ("nvme-plp", "nvme", "st1-1t", "hdd7200")
    found = [confirm_ns(rows_of(call, tmp_path / name, *ONE, "--drive", name)) for name in names]
    assert found[0] < found[1] < found[3] and found[1] < found[2]
    assert found[1] - found[0] > 500_000, "the flush of nvme takes 0.99 ms longer"


def test_a_longer_link_makes_slower_confirms(call: Call, tmp_path: Path) -> None:
    """A publisher, its leader and a follower are four ways apart if the publisher is not on the leader's machine."""
    ways = ("100us", "5ms")
    options = (*ONE, "--hosts", "each", "--drive", "nvme-plp")
    near, far = (confirm_ns(rows_of(call, tmp_path / way, *options, "--latency", way)) for way in ways)
    assert far - near >= 4 * 4_900_000 * 0.99


def test_one_core_carries_less_than_four(call: Call, tmp_path: Path) -> None:
    """All processes of one machine share its cores."""
    options = ("--vary", "in_flight=1000", *ONE[2:], "--drive", "nvme-plp")
    few, many = (rows_of(call, tmp_path / cores, *options, "--cores", cores)["confirmed_per_s"] for cores in ("1", "4"))
    assert few < many


def test_a_pool_of_one_thread_writes_no_faster(call: Call, tmp_path: Path) -> None:
    """With a pool the event loop never writes by itself, and all file work of a node waits in one line."""
    own, pool = (
        rows_of(call, tmp_path / count, *MANY, "--drive", "nvme-plp", "--io-threads", count)["confirmed_per_s"]
        for count in ("0", "1")
    )
    assert pool < own


def test_several_workloads_run_side_by_side(call: Call, tmp_path: Path) -> None:
    """A sweep over workloads uses all cores; results come in the order that was asked for."""
    names = ("disks/pure_one_queue", "disks/pure_four_queues")
    options = ("--steady", "100ms", "--warmup", "100ms", "--jobs", "2", "--out", str(tmp_path))
    code, said, err = call("simulate", *names, *options)
    assert code in (0, 5), err
    assert said.index("simulated-pure_one_queue") < said.index("simulated-pure_four_queues")
    assert {path.name.rsplit("-", 1)[0] for path in tmp_path.iterdir()} == {
        "simulated-pure_one_queue",
        "simulated-pure_four_queues",
    }


def test_all_that_is_wrong_is_told_at_once(call: Call, tmp_path: Path) -> None:
    """Nobody should mend options one run at a time."""
    code, _, err = call("simulate", *ONE, "--nodes", "4", "--cores", "0", "--bandwidth", "0", "--out", str(tmp_path))
    assert code == 2 and all(word in err for word in ("--nodes 4", "--cores 0", "--bandwidth 0"))
    code, _, err = call("simulate", *ONE, "--drive", "floppy", "--drive", "tape=nvme", "--out", str(tmp_path))
    assert code == 2 and "floppy: no such profile" in err and "tape: no such role" in err and "hdd7200" in err
    assert not list(tmp_path.iterdir())


def test_a_calibration_that_is_none_is_refused(call: Call, tmp_path: Path) -> None:
    """A file with a hole would give figures of no machine."""
    file = tmp_path / "mine.json"
    plain = json.loads(calibration.SHIPPED.read_text())
    plain["node"]["turn_ns"] = -1
    del plain["drive"]["latency_ns"]
    plain["colour"] = "red"
    file.write_text(json.dumps(plain))
    code, _, err = call("simulate", *ONE, "--calibration", str(file), "--out", str(tmp_path / "out"))
    assert code == 2 and all(word in err for word in ("node.turn_ns", "drive.latency_ns", "colour", str(file)))
    code, _, err = call("simulate", *ONE, "--calibration", str(tmp_path / "none.json"))
    assert code == 2 and "cannot be read" in err


def test_the_shipped_calibration_says_where_it_comes_from() -> None:
    """A figure of no known machine is no figure."""
    known = calibration.read(calibration.SHIPPED)
    assert {"cpu", "cores", "date", "perftest", "python", "filesystem"} <= set(known.measured_on)
    assert len(known.fit["real"]) == len(known.fit["simulated"]) == len(known.fit["in_flight"])


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("{duration: 60s, warmup: 10s}", (7.0, 2.0)),
        ("{duration: 3s, warmup: 1s}", (3.0, 1.0)),
        ("{duration: 20s, warmup: 1s}", (6.0, 1.0)),
    ],
)
def test_long_steps_are_shortened_and_short_steps_kept(times: str, expected: tuple[float, float]) -> None:
    """A steady state need not last for minutes, and a warm-up keeps its share of the truth."""
    asked = {"overrides": [f"step={times}"], "varied": ["in_flight=1"], "isolated": False, "in_random_order": False}
    plan = shortened(swept_plan(None, asked | {"quick": False}), Limits(steady_s=5.0, warmup_s=2.0))
    assert (plan.steps[0].duration_s, plan.steps[0].warmup_s) == expected


@pytest.mark.parametrize(
    ("rate", "p99", "near"),
    [(1000, 10, True), (1149, 12.4, True), (1151, 10, False), (1000, 12.6, False), (800, 8, False)],
)
def test_figures_too_far_from_the_real_ones_are_named(rate: float, p99: float, near: bool) -> None:
    """15 % for a rate and 25 % for a p99, in both directions."""

    def row(per_s: float, ms: float) -> dict[str, Any]:
        return {"label": "x", "confirmed_per_s": per_s, "latency": {"confirm": {"p99_ns": round(ms * 1e6)}}}

    assert line_of("w", row(1000, 10), row(rate, p99))["near"] is near
