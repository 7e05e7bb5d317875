"""The ``cluster:`` section of a workload: the file alone says what is measured, and options have the last word."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import local_cluster
from infra.layout import PlacedDrive, PlacedLayout
from perftest.measuring.asked_cluster import layout_for
from perftest.spec.check import check
from perftest.spec.cluster import ClusterSpec
from perftest.spec.codec import plan_digest, plan_from_json, plan_to_json
from perftest.spec.condense import workload_of
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.problem import SpecError

Call = Callable[..., tuple[int, str, str]]
WORKLOAD = """\
schema: 1
name: w
title: a workload with a cluster of its own
queues: [{name: q}]
step: {duration: 2s, warmup: 1s}
sweep: {setting: in_flight, values: [1, 2]}
"""
SECTION = """\
cluster:
  nodes: 5
  layout: drives/two.yaml
  settings: {wal_file_bytes: 16000000, wal_files_waiting: 2}
"""
LAYOUT = """\
title: two modelled drives
drives: {disk: {profile: hdd7200}, fast: {profile: nvme}}
roles: {data: disk, logs: disk, segment: disk, wal: fast}
"""


INLINE = """\
cluster:
  nodes: 1
  layout:
    title: drives of its own
    drives:
      disk: {figures: {latency: 1ms, octets_per_second: 100MB}}
      fast: {profile: nvme}
    roles: {data: disk, logs: disk, segment: disk, wal: fast}
    io: {pool: 4}
    octets_per_second: 250MB
"""


@dataclass
class Asked:
    """What a cluster was asked for."""

    nodes: int
    layout: PlacedLayout | None
    limits: dict[str, int]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The clusters that would have been started."""
    found: list[Asked] = []

    def start(_parent: Path, *, nodes: int = 3, layout: PlacedLayout | None = None, limits: Any = None) -> None:
        found.append(Asked(nodes, layout, dict(limits or {})))
        raise local_cluster.ClusterError("stop here", "the test", "none")

    monkeypatch.setattr(local_cluster, "temporary", start)
    return found


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """A workload with a cluster section, and the layout that it names from its folder."""
    (tmp_path / "drives").mkdir()
    (tmp_path / "drives" / "two.yaml").write_text(LAYOUT)
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD + SECTION)
    return file


@pytest.mark.parametrize("command", [("sweep",), ("search", "--slo", "loss==0", "--workload")])
def test_the_file_says_which_cluster_is_started(
    call: Call, workload: Path, asked: list[Asked], tmp_path: Path, command: tuple[str, ...]
) -> None:
    code, _out, err = call(*command, str(workload), "--out", str(tmp_path / "runs"))
    assert code == 1 and "stop here" in err
    (found,) = asked
    assert found.nodes == 5 and found.limits == {"wal_file_bytes": 16_000_000, "wal_files_waiting": 2}
    assert found.layout is not None and found.layout.name == "two modelled drives"
    assert "starting 5 reference nodes" in err and "limits wal_file_bytes 16000000, wal_files_waiting 2" in err


@pytest.mark.parametrize("command", [("sweep",), ("search", "--slo", "loss==0", "--workload")])
def test_a_layout_that_was_typed_wins(
    call: Call, workload: Path, asked: list[Asked], tmp_path: Path, command: tuple[str, ...]
) -> None:
    _code, _out, err = call(*command, str(workload), "--layout", "disks/one_ssd", "--out", str(tmp_path / "runs"))
    (found,) = asked
    assert found.nodes == 5 and found.layout is not None and found.layout.name == "one_ssd"
    assert "--layout disks/one_ssd stands in for the workload's layout" in err


def test_a_broker_that_was_named_is_measured_instead(call: Call, workload: Path, asked: list[Asked]) -> None:
    code, _out, err = call("sweep", str(workload), "-h", "amqp://127.0.0.1:1", "--dry-run")
    assert code == 0 and asked == []
    assert "the cluster of the workload is not started: a broker was named" in err


@pytest.mark.parametrize(
    ("changed", "by", "rules"),
    [
        ("nodes: 5", "nodes: 4", ["a cluster of 4 nodes is not started", "w.yaml:8: cluster.nodes"]),
        ("wal_file_bytes: 16000000, wal_files_waiting: 2", "wal_bytes: 1, heartbeat_ms: 9000, tick_ms: 0",
         ["a node has no limit 'wal_bytes'", "must allow two heartbeats to be missed", "tick_ms", "must be positive"]),
        ("drives/two.yaml", "drives/three.yaml", ["the layout file cannot be read"]),
        ("nodes: 5", "knots: 5", ["unknown key 'knots'"]),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_before_anything_starts(
    call: Call, workload: Path, asked: list[Asked], changed: str, by: str, rules: list[str]
) -> None:
    workload.write_text(workload.read_text().replace(changed, by))
    code, _out, err = call("sweep", str(workload))
    assert code == 2 and asked == []
    assert [rule for rule in rules if rule not in err] == []


@pytest.mark.parametrize("command", [("sweep",), ("search", "--slo", "loss==0", "--workload")])
def test_a_layout_may_stand_in_the_workload(
    call: Call, workload: Path, asked: list[Asked], tmp_path: Path, command: tuple[str, ...]
) -> None:
    """One file says what is measured and on which drives."""
    workload.write_text(WORKLOAD + INLINE)
    code, _out, err = call(*command, str(workload), "--out", str(tmp_path / "runs"))
    assert code == 1 and "stop here" in err
    (found,) = asked
    assert found.layout is not None and found.nodes == 1
    assert (found.layout.name, found.layout.io, found.layout.octets_per_second) == (
        "drives of its own", "pool:4", 250_000_000,
    )  # fmt: skip
    assert found.layout.drives == (
        PlacedDrive(name="disk", profile={"latency_ns": 1_000_000, "octets_per_second": 100_000_000, "channels": 1}),
        PlacedDrive(name="fast", profile="nvme"),
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([("fast: {profile", "fast: {profil"), ("io: {pool: 4}", "io: {pool: 0}"), ("latency: 1ms", "latency: soon")],
         ["w.yaml:13: cluster.layout.drives.fast.profil\n  fix  did you mean 'profile'?",
          "w.yaml:15: cluster.layout.io", "w.yaml:12: cluster.layout.drives.disk.figures.latency"]),
        ([("wal: fast", "wal: slow"), ("octets_per_second: 100MB", "octets_per_second: 0")],
         ["there is no drive 'slow'\n  at   {file}:14: cluster.layout.roles.wal",
          "w.yaml:13: cluster.layout.drives.fast", "w.yaml:12: cluster.layout.drives.disk.figures.octets_per_second"]),
        ([("profile: nvme", "profile: floppy"), ("1ms", "1ms, seek_full: 9ms")],
         ["there is no profile 'floppy'\n  at   {file}:13: cluster.layout.drives.fast.profile",
          "impossible figures: seek_full_ns: 9000000: needs revolution_ns, too\n  at   {file}:12: "]),
        ([("{profile: nvme}", "{mount: /nowhere/at/all}"), ("disk: {figures", "disk: {directory: /proc/x, figures")],
         ["drive disk: directory and figures are given"]),
        ([("{profile: nvme}", "{mount: /nowhere/at/all}")],
         ["there is no /nowhere/at/all\n  at   {file}:13: cluster.layout.drives.fast.mount"]),
        ([("layout:\n", "layout: 7\nseed: 1\nbackground:\n")], ["w.yaml:9: cluster.layout"]),
    ],
    ids=["keys", "relations", "profiles", "kinds", "machine", "number"],
)  # fmt: skip
@pytest.mark.parametrize("command", [("sweep",), ("search", "--slo", "loss==0", "--workload")])
def test_all_problems_of_a_layout_in_a_workload_have_its_lines(
    call: Call, workload: Path, asked: list[Asked], changes: list[tuple[str, str]], told: list[str],
    command: tuple[str, ...],
) -> None:  # fmt: skip
    text = WORKLOAD + INLINE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    workload.write_text(text)
    code, _out, err = call(*command, str(workload))
    assert code == 2 and asked == []
    assert [each for each in told if each.replace("{file}", str(workload)) not in err] == [], err


def test_a_flag_that_breaks_the_layout_of_a_workload_is_blamed(call: Call, workload: Path, asked: list[Asked]) -> None:
    workload.write_text(WORKLOAD + INLINE)
    code, _out, err = call("sweep", str(workload), "--set", "cluster.layout.drives.fast.profile=floppy")
    assert code == 2 and asked == []
    assert "at   --set cluster.layout.drives.fast.profile=floppy: cluster.layout.drives.fast.profile" in err


def test_a_layout_in_a_workload_is_simulated_and_refused_as_a_file_is(
    call: Call, workload: Path, tmp_path: Path
) -> None:
    workload.write_text(WORKLOAD + INLINE.replace("    title: drives of its own\n", ""))
    times = ("--steady", "0.2s", "--warmup", "0.1s", "--settle", "0", "--out", str(tmp_path / "o"))
    code, out, err = call("simulate", str(workload), *times)
    assert code == 0, err
    assert "layout w: disk (modelled with figures of its own) data, logs, segment, classic; fast (modelled nvme)" in out
    code, out, err = call("simulate", str(workload), "--layout", "disks/one_ssd", *times)
    assert code == 0 and "layout one_ssd: " in out, err
    workload.write_text(workload.read_text().replace("{profile: nvme}", "{mount: /mnt}"))
    code, _out, err = call("simulate", str(workload), *times)
    assert code == 2 and f"{workload}:12: cluster.layout.drives.fast.mount" in err


def test_a_layout_in_a_workload_is_kept_with_the_run(call: Call, workload: Path, asked: list[Asked]) -> None:
    """A continued sweep has the same drives, also when the file has changed or is gone."""
    read, document = parse_workload(WORKLOAD + INLINE, "w.yaml")
    assert check(read, document) == []
    plan = expand(read, ())
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    again, _ = parse_workload(yaml.safe_dump(workload_of(plan)), "again.yaml")
    assert expand(again, ()) == plan
    assert plan_digest(plan) == plan_digest(expand(parse_workload(WORKLOAD, "w.yaml")[0], ()))
    layout = layout_for(plan, None)
    assert layout is not None and layout.name == "drives of its own"
    with pytest.raises(SpecError) as wrong:
        layout_for(replace(plan, cluster=replace(plan.cluster, layout={"drives": {"d": {"profile": "floppy"}}})), None)
    assert "'roles' is missing\n  at   w: cluster.layout.roles" in wrong.value.lines()


def test_a_timeline_knows_the_nodes_of_the_section(call: Call, workload: Path, asked: list[Asked]) -> None:
    """Five nodes are asked for, so the fifth can be killed, and the sixth cannot."""
    assert call("sweep", str(workload), "--at", "1s kill node5")[0] == 1 and len(asked) == 1
    code, _out, err = call("sweep", str(workload), "--at", "1s kill node6")
    assert code == 2 and "there is no node 'node6'" in err


def test_a_simulation_has_the_cluster_of_the_section(call: Call, workload: Path, tmp_path: Path) -> None:
    """The same file, so the same cluster, at virtual time."""
    text = workload.read_text().replace("nodes: 5", "nodes: 1")
    workload.write_text(text)
    code, out, err = call(
        "simulate", str(workload), "--steady", "0.2s", "--warmup", "0.1s", "--settle", "0", "--out", str(tmp_path / "o")
    )
    assert code == 0, err
    assert "two modelled drives: disk (modelled hdd7200) data, logs, segment" in out


def test_the_section_survives_file_and_json_and_is_no_part_of_the_digest() -> None:
    """The same load against two clusters is what a comparison is about."""
    read, document = parse_workload(WORKLOAD + SECTION, "w.yaml")
    assert check(read, document) == []
    plan, plain = expand(read, ()), expand(parse_workload(WORKLOAD, "w.yaml")[0], ())
    settings = {"wal_file_bytes": 16_000_000, "wal_files_waiting": 2}
    assert plan.cluster == ClusterSpec(nodes=5, layout="drives/two.yaml", settings=settings)
    assert plan_from_json(plan_to_json(plan)) == plan
    again, _ = parse_workload(yaml.safe_dump(workload_of(plan)), "again.yaml")
    assert expand(again, ()) == plan
    assert plan_digest(plan) == plan_digest(plain)
