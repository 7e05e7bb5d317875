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

from hdr_buckets import BUCKET_HIGHEST_NS
from infra.layout import PlacedLayout
from perftest.metrics.histogram import decode
from perftest.metrics.interval import Phase
from perftest.results.hlog import HlogLine, parse_line
from perftest.results.schema import STAGE_PREFIX
from perftest.series.sweep_plan import SweepRequest, swept_plan
from perftest.simulation import calibration
from perftest.simulation import fitting as calibrate
from perftest.simulation import verification as simulated_verification
from perftest.simulation.simulated_run import StepLimits, shortened
from perftest.simulation.verification import line_of
from perftest.spec.plan import Plan

Call = Callable[..., tuple[int, str, str]]
ONE = ("--vary", "in_flight=1", "--set", "step={duration: 300ms, warmup: 100ms}", "--settle", "0", "--jobs", "1")
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


HURT = (
    "700ms kill leader", "1100ms restart killed", "1700ms pause node2", "2000ms resume paused",
    "2300ms transfer-leader node3", "2500ms remove-member node1", "2800ms add-member node1",
    "3200ms slow node3 drive_2 20", "3400ms profile node3 drive_2 nvme", "3600ms fill node1 drive_1",
    "3900ms free node1 drive_1", "4100ms fail node1 drive_2", "4300ms heal node1 drive_2",
)  # fmt: skip
"""Every action there is."""
HURTING = (
    "--vary", "in_flight=20", "--set", "step={duration: 6500ms, warmup: 100ms}", "--jobs", "1",
    "--layout", "disks/two_ssd", *(word for action in HURT for word in ("--at", action)),
)  # fmt: skip


@pytest.mark.slow
def test_every_action_takes_place_at_virtual_time(tmp_path: Path) -> None:
    """A recovery that cannot be had again cannot be looked into: the same seed gives the same files. And nothing that
    was confirmed is lost, whatever happens to a minority."""
    found = []
    for name, hashing in (("a", "1"), ("b", "2")):
        line = [sys.executable, "-m", "perftest", "simulate", *HURTING, "--out", str(tmp_path / name)]
        done = subprocess.run(
            line, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hashing}, timeout=300, text=True
        )
        assert done.returncode == 0 and not done.stderr, (done.stdout, done.stderr)
        found.append(files_of(tmp_path / name))
    assert found[0] == found[1]
    path, manifest = simulated_in(tmp_path / "a")
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    told = [event for event in events if event["kind"] in ("action", "action_failed")]
    expected = [action.split()[1] for action in HURT]
    assert [event["action"] for event in told] == [*expected, "restore"], told
    assert all(event["kind"] == "action" for event in told), told
    of_run = [round(event["t_ns"] / 1e9 - 1_735_689_600, 1) for event in told[:2]]
    assert of_run[1] - of_run[0] == pytest.approx(0.4, abs=0.05)
    recovered = {event["action"]: event for event in events if event["kind"] == "recovery"}
    assert set(recovered) == set(expected) and recovered["kill"]["outage_s"] > 0
    blocked = [event["blocked_ns"] for event in events if event["kind"] == "unblocked"]
    assert len(blocked) == 1 and blocked[0] > 250_000_000, "a full drive stops publishers until it is free"
    killed = told[0]["node"]
    changes = [(event["kind"], event["node"]) for event in events if event["kind"] in ("node_lost", "node_back")]
    assert [kind for kind, node in changes if node == killed][:2] == ["node_lost", "node_back"]
    assert f"after kill {killed}: first confirm after" in done.stdout
    assert manifest["state"] == "finished"


def test_the_leader_of_a_classic_queue_is_the_node_that_has_it(call: Call, tmp_path: Path) -> None:
    """The figures of a kill would otherwise be those of a kill that did not happen."""
    file = tmp_path / "lazy.yaml"
    file.write_text(LAZY.replace("duration: 300ms", "duration: 3s"))
    out = tmp_path / "runs"
    call(
        "simulate", str(file), "--drive", "nvme", "--at", "1s kill", "--at", "1200ms restart killed", "--out", str(out)
    )
    path, _ = simulated_in(out)
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    told = [event for event in events if str(event["kind"]).startswith("action")]
    assert [(event["kind"], event["action"]) for event in told] == [("action", "kill"), ("action", "restart")], told
    recovery = next(event for event in events if event["kind"] == "recovery" and event["action"] == "restart")
    assert recovery["first_confirm_s"] is not None, "a durable queue serves again once its node is back"


def test_actions_that_cannot_be_are_refused_before_the_start(call: Call, tmp_path: Path) -> None:
    """All of them at once, with the reason; nodes of one machine share its drives."""
    typed = ("--at", "100ms kill node4", "--at", "1h pause", "--at", "100ms slow node1 main 4")
    code, _, err = call("simulate", *ONE, *typed, "--out", str(tmp_path))
    assert code == 2 and not list(tmp_path.iterdir())
    for words in ("no node 'node4'", "the run is over after", "the nodes of one machine share its drives"):
        assert words in err, err
    code, _, err = call("simulate", *ONE, "--hosts", "each", "--at", "100ms slow node1 d9 4", "--out", str(tmp_path))
    assert code == 2 and "no modelled drive 'd9'" in err and "use one of main" in err


@pytest.mark.parametrize(("slo", "expected"), [("confirm.p99<1s", 0), ("confirm.p99<1us", 4)])
def test_objectives_are_judged_as_those_of_a_sweep(call: Call, tmp_path: Path, slo: str, expected: int) -> None:
    code, said, err = call("simulate", *ONE, "--set", f"slo=[{slo}]", "--out", str(tmp_path), "--json")
    assert code == expected, (said, err)
    (objective,) = json.loads(said)["objectives"]
    assert objective["slo"] == slo and objective["met"] is (expected == 0)


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
    assert simulated["roles"] == {"data": "main", "segment": "main", "wal": "wal", "classic": "main"}
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


@pytest.mark.slow
def test_one_core_carries_less_than_four(call: Call, tmp_path: Path) -> None:
    """All processes of one machine share its cores."""
    options = ("--vary", "in_flight=1000", *ONE[2:], "--drive", "nvme-plp")
    few, many = (rows_of(call, tmp_path / cores, *options, "--cores", cores)["confirmed_per_s"] for cores in ("1", "4"))
    assert few < many


@pytest.mark.slow
def test_a_pool_of_one_thread_writes_no_faster(call: Call, tmp_path: Path) -> None:
    """All file work of a node waits in one line, and the event loop writes by itself only if nobody waits there."""
    options = (*MANY, "--set", "load.size=4KiB", "--drive", "nvme")
    own, pool = (
        rows_of(call, tmp_path / count, *options, "--io-threads", count)["confirmed_per_s"] for count in ("0", "1")
    )
    assert pool < own


@pytest.mark.slow
def test_several_workloads_run_side_by_side(call: Call, tmp_path: Path) -> None:
    """A sweep over workloads uses all cores; results come in the order that was asked for."""
    names = ("disks/pure_one_queue", "disks/pure_four_queues")
    options = ("--steady", "100ms", "--warmup", "100ms", "--settle", "0", "--jobs", "2", "--out", str(tmp_path))
    code, said, err = call("simulate", *names, *options)
    assert code in (0, 5), err
    assert said.index("simulated-pure_one_queue") < said.index("simulated-pure_four_queues")
    assert {path.name.rsplit("-", 1)[0] for path in tmp_path.iterdir()} == {
        "simulated-pure_one_queue",
        "simulated-pure_four_queues",
    }


LAZY = """\
schema: 1
name: lazy
title: One lazy queue
queues: [{name: lazy, type: classic, arguments: {x-queue-mode: lazy}}]
load: {in_flight: 100, size: 28 B}
step: {duration: 300ms, warmup: 100ms}
"""
OWN = """\
title: own
drives:
  disk: {profile: nvme}
  fast: {figures: {latency: 50us, octets_per_second: 500MB}}
  text: {profile: hdd7200}
roles: {data: disk, logs: text, segment: disk, wal: fast}
io: {pool: 2}
octets_per_second: 400MB
"""


def simulated_in(root: Path) -> tuple[Path, dict[str, Any]]:
    """The only run directory, and its manifest."""
    (path,) = root.iterdir()
    return path, json.loads((path / "manifest.json").read_text())


SETTLING = """\
schema: 1
name: settling
title: A rate that is steady
queues: [{name: q}]
load: {in_flight: 1}
step: {duration: 1500ms, warmup: 500ms}
"""


def test_a_warm_up_goes_on_until_rates_are_steady_and_says_so(call: Call, tmp_path: Path) -> None:
    """Its intervals are no part of the step, whose steady time stays as long as asked for."""
    (tmp_path / "settling.yaml").write_text(SETTLING)
    asked = ("simulate", str(tmp_path / "settling.yaml"), "--drive", "nvme-plp", "--set", "interval=500ms")
    for name, settle, said in (
        ("met", "9s", "warm-up of 0.5 s and of 1.5 s more is over: rates are steady"),
        ("cut", "1s", "warm-up of 0.5 s and of 1 s more is over: rates are not steady yet"),
        ("off", "0", "warm-up of 0.5 s is over"),
    ):
        code, out, err = call(*asked, "--settle", settle, "--out", str(tmp_path / name))
        assert code == 0, (out, err)
        path, _ = simulated_in(tmp_path / name)
        events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
        assert [event["text"] for event in events if event["kind"] == "steady"] == [said]
        (step,) = json.loads((path / "result.json").read_text())["steps"]
        assert step["length_ns"] == pytest.approx(1e9, rel=1e-3)


NVME_FLUSH_NS = 1_000_000


def last_sample(path: Path) -> dict[str, int]:
    """The counters of all nodes, at the end of the run."""
    samples = [json.loads(line) for line in (path / "broker.jsonl").read_text().splitlines()]
    last = {sample["node"]: sample["metrics"] for sample in samples}
    return {name: sum(metrics[name] for metrics in last.values()) for name in next(iter(last.values()))}


def test_a_lazy_queue_stays_one_and_writes_its_own_files(call: Call, tmp_path: Path) -> None:
    """A comparison of kinds of queues must not turn one kind into another, and the files must be the same again."""
    file, found = tmp_path / "lazy.yaml", []
    file.write_text(LAZY)
    for name in ("a", "b"):
        code, said, err = call(
            "simulate", str(file), "--drive", "nvme", "--settle", "0", "--jobs", "1", "--out", str(tmp_path / name)
        )
        assert code == 0, (said, err)
        path, manifest = simulated_in(tmp_path / name)
        assert manifest["plan"]["queues"][0]["type"] == "classic"
        counters, result = last_sample(path), json.loads((path / "result.json").read_text())
        assert counters["classic_messages_written"] >= result["steps"][0]["confirmed"] > 0
        assert counters["classic_sync_ns_total"] >= counters["classic_queue_syncs"] * NVME_FLUSH_NS > 0
        found.append(files_of(tmp_path / name))
    assert found[0] == found[1]


@pytest.mark.slow
def test_classic_queues_wait_for_the_drive_of_their_role(call: Call, tmp_path: Path) -> None:
    """Whoever gives classic queues a slow drive wants to see that they are slower, and that nothing else is."""
    file = tmp_path / "lazy.yaml"
    file.write_text(LAZY)
    found = {}
    for name in ("nvme-plp", "hdd7200"):
        drives = ("--drive", "nvme-plp", "--drive", f"classic={name}")
        for kind, load in {"classic": (str(file), "--jobs", "1"), "quorum": ONE}.items():
            found[kind, name] = confirm_ns(rows_of(call, tmp_path / kind / name, *load, *drives))
    assert found["classic", "hdd7200"] > found["classic", "nvme-plp"] + 4_000_000
    assert found["quorum", "hdd7200"] == found["quorum", "nvme-plp"]


def test_a_layout_gives_each_node_its_drives(call: Call, tmp_path: Path) -> None:
    """What a layout file says must be in the run directory, or the figures are those of unknown drives."""
    file = tmp_path / "own.yaml"
    file.write_text(OWN)
    code, said, err = call("simulate", *ONE, "--layout", str(file), "--out", str(tmp_path / "runs"))
    assert code == 0, err
    assert "layout own: disk (modelled nvme) data, segment, classic; fast (modelled with figures" in said
    _, manifest = simulated_in(tmp_path / "runs")
    simulated = manifest["simulated"]
    assert simulated["roles"] == {"data": "disk", "segment": "disk", "wal": "fast", "classic": "disk"}
    assert sorted(simulated["drives"]) == ["disk", "fast"], "no drive is modelled for the log file of a node"
    assert simulated["drives"]["fast"]["octets_per_second"] == 500_000_000
    assert (simulated["io_threads"], simulated["drives_of"]) == (2, "each node")
    assert simulated["octets_per_second"] == 400_000_000
    assert manifest["broker"]["layout"].startswith("own: disk (modelled nvme) ")


@pytest.mark.slow
def test_nodes_of_one_machine_do_not_share_the_drives_of_a_layout(call: Call, tmp_path: Path) -> None:
    """On a local cluster every node models its own drives, so three logs never wait for each other. What they write
    must be much: of little, a head that turns makes one log wait as long as three."""
    file = tmp_path / "own.yaml"
    file.write_text("drives: {disk: {profile: hdd7200}}\nroles: {data: disk, logs: disk, segment: disk, wal: disk}\n")
    much = (*MANY, "--set", "load.size=16KiB", "--set", "step={duration: 1s, warmup: 200ms}")
    shared = rows_of(call, tmp_path / "shared", *much, "--drive", "hdd7200")["confirmed_per_s"]
    own = rows_of(call, tmp_path / "own", *much, "--layout", str(file))["confirmed_per_s"]
    assert own > 1.4 * shared, (own, shared)


@pytest.mark.slow
def test_drives_of_a_layout_share_the_bandwidth_of_their_node(call: Call, tmp_path: Path) -> None:
    """A machine cannot carry more than its link, however many drives it has."""
    found = []
    for limit in ("400MB", "1MB"):
        file = tmp_path / f"{limit}.yaml"
        file.write_text(OWN.replace("400MB", limit))
        found.append(rows_of(call, tmp_path / limit, *MANY, "--layout", str(file))["confirmed_per_s"])
    assert found[1] < found[0] / 2, "200 messages of 12 octets and a page for each entry need more than 1 MB/s"


def test_the_time_of_messages_and_the_lengths_of_syncs_are_recorded_as_in_a_measured_run(
    call: Call, tmp_path: Path
) -> None:
    """The page says where the time went. On a drive with a head, that is the sync."""
    found = {}
    for name in ("nvme-plp", "hdd7200"):
        row = rows_of(call, tmp_path / name, *ONE, "--drive", "nvme-plp", "--drive", f"wal={name}")
        path, _ = simulated_in(tmp_path / name)
        texts = [parse_line(line, 0) for line in (path / "latency.hlog").read_text().splitlines()]
        stages = [line for line in texts if line is not None and line.series.startswith(STAGE_PREFIX)]
        assert {line.phase for line in stages} == {Phase.STEADY} and {line.step for line in stages} == {1}
        syncs = {line.worker: line for line in stages if line.series == f"{STAGE_PREFIX}fsync.wal"}
        assert sorted(syncs) == ["node1", "node2", "node3"], "followers sync, too"
        (whole,) = [line for line in stages if line.series == f"{STAGE_PREFIX}confirm.total"]
        counted = decode(whole.payload).sum()
        assert abs(counted - row["confirmed"]) <= 1 and median_ns(whole) <= confirm_ns(row)
        found[name] = min(median_ns(line) for line in syncs.values())
    assert found["nvme-plp"] < 1_000_000 and found["hdd7200"] > 3_000_000, found


def median_ns(line: HlogLine) -> int:
    """The highest value of the bucket with the median."""
    counts = decode(line.payload)
    return int(BUCKET_HIGHEST_NS[int((counts.cumsum() * 2 >= counts.sum()).argmax())])


@pytest.mark.slow
def test_every_workload_is_simulated_on_every_layout(call: Call, tmp_path: Path) -> None:
    """One command for a published comparison; bundled layouts by their names."""
    names, layouts = ("disks/pure_one_queue", "disks/light_one_queue"), ("disks/one_ssd", "disks/three_hdd")
    named = [word for layout in layouts for word in ("--layout", layout)]
    times = ("--steady", "100ms", "--warmup", "100ms", "--settle", "0", "--jobs", "2")
    code, said, err = call("simulate", *names, *named, *times, "--out", str(tmp_path))
    assert code in (0, 5), err
    manifests = [json.loads((path / "manifest.json").read_text()) for path in tmp_path.iterdir()]
    cells = {(each["plan"]["name"], each["broker"]["layout"].partition(":")[0]) for each in manifests}
    assert cells == {(name, layout.partition("/")[2]) for name in names for layout in layouts}
    assert said.count("SIMULATED: ") == 4 and said.index("three_hdd:") < said.index("simulated-light_one_queue")


def test_drives_of_this_machine_are_refused_with_the_reason(call: Call, tmp_path: Path) -> None:
    """Real drives keep to real time. Whoever names some is told why that cannot be, for all of them, in all files."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    odd = "{figures: {latency: 1ms, octets_per_second: 1MB, seek_full: 9ms}}"
    first.write_text(
        f"drives:\n  disk: {{directory: {tmp_path}/never}}\n  fast: {{mount: /mnt/none}}\n  odd: {odd}\n"
        "roles: {data: disk, logs: disk, segment: odd, wal: fast}\n"
    )
    second.write_text(
        "drives:\n  disk: {fuse: {profile: nvme, size: 1GB}}\n  odd: {profile: floppy}\n"
        "roles: {data: disk, logs: disk, segment: odd, wal: disk}\n"
    )
    out = tmp_path / "runs"
    code, _, err = call("simulate", *ONE, "--layout", str(first), "--layout", str(second), "--out", str(out))
    assert code == 2 and err.count("error: ") == 5 and not out.exists() and not (tmp_path / "never").exists()
    for words, where in (
        ("drive disk is a directory of this machine", "first.yaml:2: drives.disk.directory"),
        ("drive fast is a mount point of this machine", "first.yaml:3: drives.fast.mount"),
        ("impossible figures: seek_full_ns", "first.yaml:4: drives.odd.figures"),
        ("drive disk is a FUSE drive of this machine", "second.yaml:2: drives.disk.fuse"),
        ("there is no profile 'floppy'", "second.yaml:3: drives.odd.profile"),
    ):
        assert words in err and where in err
    assert "keep to real time" in err and "write profile: or figures:" in err


def test_a_layout_says_all_about_drives(call: Call, tmp_path: Path) -> None:
    """Two answers to one question would make figures of neither."""
    layout = ("--layout", "disks/one_ssd")
    beside = ("--drive", "nvme", "--io-threads", "2")
    code, _, err = call("simulate", *ONE, *layout, *layout, *beside, "--out", str(tmp_path))
    assert code == 2 and not list(tmp_path.iterdir())
    assert all(words in err for words in ("--drive beside --layout", "--io-threads beside", "named twice"))


def test_a_verification_measures_on_the_layout_that_it_simulates(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of other drives would say nothing of the model."""
    asked: list[PlacedLayout | None] = []

    def measured(plan: Plan, out: Path, layout: PlacedLayout | None) -> list[dict[str, Any]]:
        asked.append(layout)
        figures = {"label": "in_flight=1", "confirmed_per_s": 1.0, "latency": {"confirm": {"p99_ns": 1}}}
        return [figures for _ in plan.steps]

    monkeypatch.setattr(simulated_verification, "real_rows", measured)
    monkeypatch.setattr(simulated_verification, "tell_of_other_work", lambda _tell: None)
    code, _, err = call("simulate", *ONE, "--layout", "disks/two_ssd", "--verify", "--out", str(tmp_path))
    assert code == 4, err
    assert len(asked) == calibrate.MEASURED
    assert all(layout is not None and layout.name == "two_ssd" for layout in asked)


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
    asked = SweepRequest(overrides=(f"step={times}",), varied=("in_flight=1",))
    plan = shortened(swept_plan(asked)[0], StepLimits(steady_s=5.0, warmup_s=2.0))
    assert (plan.steps[0].duration_s, plan.steps[0].warmup_s) == expected


@pytest.mark.parametrize(
    ("rate", "p99", "near"),
    [(1000, 10, True), (1149, 12.4, True), (1151, 10, False), (1000, 12.6, False), (800, 8, False)],
)
def test_figures_too_far_from_the_real_ones_are_named(rate: float, p99: float, near: bool) -> None:
    """15 % for a rate and 25 % for a p99, in both directions."""

    def row(per_s: float, ms: float) -> dict[str, Any]:
        return {"label": "x", "confirmed_per_s": per_s, "latency": {"confirm": {"p99_ns": round(ms * 1e6)}}}

    disturbed = row(100, 90)
    assert line_of("w", [row(1000, 10), disturbed, row(1000, 10)], row(rate, p99))["near"] is near


COMPARED = """\
schema: 1
name: compared
title: Compared
queues: [{name: q}]
load: {in_flight: 1}
findings:
  - {trend: falls, metric: confirm.p50, layouts: [hard, quick], factor: FACTOR, says: A quick drive confirms sooner.}
step: {duration: 300ms, warmup: 100ms}
"""
DRIVE = "title: TITLE\ndrives: {d: {profile: PROFILE}}\nroles: {data: d, logs: d, segment: d, wal: d}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "code", "verdict"), [(3, 0, "reproduced"), (500, 4, "not reproduced")])
def test_findings_are_judged_over_layouts_and_seeds(
    call: Call, tmp_path: Path, factor: int, code: int, verdict: str
) -> None:
    """Layouts are compared in each seed; seeds are repetitions."""
    workload = tmp_path / "compared.yaml"
    workload.write_text(COMPARED.replace("FACTOR", str(factor)))
    for title, profile in (("hard", "hdd7200"), ("quick", "nvme-plp")):
        (tmp_path / f"{title}.yaml").write_text(DRIVE.replace("TITLE", title).replace("PROFILE", profile))
    layouts = [word for title in ("hard", "quick") for word in ("--layout", str(tmp_path / f"{title}.yaml"))]
    asked = ("simulate", str(workload), *layouts, "--settle", "0", "--jobs", "1", "--out", str(tmp_path / "runs"))
    found, out, err = call(*asked, "--repeats", "3", "--assert")
    assert found == code, (out, err)
    assert f"compared: The source's findings: {verdict}, " in out and "over 3 rounds on each of 2 layouts" in out
    runs = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/manifest.json")]
    assert sorted(run["simulated"]["seed"] for run in runs) == [1, 1, 2, 2, 3, 3]
    assert len({run["plan"]["digest"] for run in runs}) == 1, "the page takes these runs as repetitions"


def test_verdicts_of_a_simulation_as_json(call: Call, tmp_path: Path) -> None:
    options = (
        "--vary",
        "in_flight=1,5",
        "--steady",
        "200ms",
        "--warmup",
        "100ms",
        "--settle",
        "0",
        "--out",
        str(tmp_path),
        "--json",
    )
    _, said, _ = call("simulate", "flow_control/in_flight", *options, "--jobs", "1")
    *_, last = map(json.loads, said.splitlines())
    assert (last["record"], last["workload"], last["rounds"]) == ("findings", "flow_control/in_flight", 1)
    assert last["findings"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("disks/pure_one_queue", "--repeats", "0"), "--repeats 0"),
        (("--vary", "in_flight=1", "--assert"), "the workload sweep states no findings"),
        (
            ("--vary", "in_flight=1", "--verify", "--repeats", "2", "--assert"),
            "not go with --repeats and --assert",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(call: Call, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    code, _, err = call("simulate", *options, "--out", str(tmp_path / "runs"))
    assert code == 2 and says in err and not (tmp_path / "runs").exists()
