"""The modelled drives of a node: which files lie on them, and what an operator can make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reference_broker.node.alarms import Alarms, Room
from reference_broker.node.config import ConfigError, Limits, load
from reference_broker.node.drives import NodeDrives
from reference_broker.storage.files import RealFiles
from tests.reference_broker.node.test_config_problems import GOOD

FAST = {"latency_ns": 1000, "octets_per_second": 10**10}
WAL = {"name": "w", "profile": "nvme-plp", "roles": ["wal"]}
REST = {"name": "r", "profile": FAST, "roles": ["segment", "data"]}


def node_drives(directory: Path, *drives: dict[str, Any]) -> NodeDrives:
    file = directory / "node.json"
    file.write_text(json.dumps({**GOOD, "data_dir": str(directory / "data"), "drives": list(drives)}))
    return NodeDrives(load(file))


@pytest.mark.parametrize(
    ("drives", "says"),
    [
        ([{**WAL, "profile": "hdd720"}], "drives[0].profile: 'hdd720': unknown profile; hdd7200?"),
        ([{**WAL, "profile": {"latency_ns": -1}}], "drives[0].profile.latency_ns: -1: must be a whole number"),
        ([{**WAL, "profile": {"latency_ns": 1}}], "drives[0].profile.octets_per_second: is missing"),
        ([{**WAL, "roles": ["wals"]}], "drives[0].roles: 'wals': must be one of wal, segment, data, classic"),
        ([{**WAL, "roles": []}], "drives[0].roles: []: must be a list"),
        ([{**WAL, "size": 1}], "drives[0].size: unknown key"),
        ([{"profile": "nvme", "roles": ["wal"]}], "drives[0].name: None: must be a string"),
        ([7], "drives[0]: 7: must be an object"),
        ([WAL, {**REST, "name": "w"}], "drives: 'w': already names a drive"),
        ([WAL, {**REST, "roles": ["wal"]}], "drives: 'wal': already lies on a drive"),
    ],
)
def test_bad_sections_are_told_before_the_start(tmp_path: Path, drives: list[Any], says: str) -> None:
    file = tmp_path / "node.json"
    file.write_text(json.dumps({**GOOD, "drives": drives}))
    with pytest.raises(ConfigError) as wrong:
        load(file)
    assert says in str(wrong.value)


def test_a_node_without_drives_has_the_files_of_the_machine(tmp_path: Path) -> None:
    """Nothing may stand between a node and its drive where nothing is modelled."""
    drives = node_drives(tmp_path)
    assert type(drives.files) is RealFiles
    assert drives.status() == []
    assert drives.free_bytes(tmp_path, lambda _place: 7) == 7


def test_each_role_lies_on_its_drive(tmp_path: Path) -> None:
    drives = node_drives(tmp_path, WAL, REST)
    for place, purpose, drive in (("wal", "wal", "w"), ("segments/a", "segment", "r"), (".", "data", "r")):
        directory = tmp_path / "data" / place
        directory.mkdir(parents=True, exist_ok=True)
        file = drives.files.create(str(directory / "f"))
        file.write([b"abc"], 0)
        file.datasync()
        counts = drives.drives[drive].status()["purposes"][purpose]
        assert (counts["syncs"], counts["write_octets"]) == (1, 3), place


def test_a_full_drive_has_no_room_for_any_directory_on_it(tmp_path: Path) -> None:
    drives = node_drives(tmp_path, WAL, REST)
    data = tmp_path / "data"
    assert drives.answer({"op": "drive", "drive": "r", "do": "fill"})["drive"]["full"]
    rooms = [drives.free_bytes(place, lambda _place: 7) for place in (data, data / "segments", data / "wal", tmp_path)]
    assert rooms == [0, 0, 7, 7]
    assert not drives.answer({"op": "drive", "drive": "r", "do": "free"})["drive"]["full"]
    assert drives.free_bytes(data, lambda _place: 7) == 7


@pytest.mark.parametrize("apart", [False, True], ids=["below the data", "elsewhere"])
def test_a_full_drive_of_classic_queues_raises_the_alarm(tmp_path: Path, apart: bool) -> None:
    """Publishers must be stopped before a write fails, which would stop the node."""
    place = {"classic_dir": str(tmp_path / "own")} if apart else {}
    drive = {"name": "c", "profile": FAST, "roles": ["classic"]}
    file = tmp_path / "node.json"
    file.write_text(json.dumps({**GOOD, "data_dir": str(tmp_path / "data"), "drives": [drive], **place}))
    config = load(file)
    drives = NodeDrives(config)
    alarms = Alarms(Limits(), config.watched_directories(), Room(
        lambda: 0, lambda place: drives.free_bytes(place, lambda _place: 1 << 40)))  # fmt: skip
    assert not alarms.check()
    drives.answer({"op": "drive", "drive": "c", "do": "fill"})
    assert alarms.check() and alarms.reason == "low on disk"
    drives.answer({"op": "drive", "drive": "c", "do": "free"})
    assert alarms.check() and alarms.reason == ""


def test_only_directories_that_are_there_are_watched(tmp_path: Path) -> None:
    """Without a place of their own, the directory of classic queues is made with the first of these queues."""
    file = tmp_path / "node.json"
    file.write_text(json.dumps({**GOOD, "data_dir": "/d", "wal_dir": "/w", "segment_dir": "/s"}))
    assert load(file).watched_directories() == (Path("/d"), Path("/w"), Path("/s"))


def test_operators_change_and_break_a_drive(tmp_path: Path) -> None:
    drives = node_drives(tmp_path, WAL)

    def told(**request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = drives.answer({"op": "drive", "drive": "w", **request})["drive"]
        return answer

    assert told(do="slow", factor=4)["profile"] == "nvme-plp, 4 times slower"
    assert told(do="slow", factor=1)["profile"] == "nvme-plp"
    assert told(do="profile", profile="hdd7200")["profile"] == "hdd7200"
    assert told(do="profile", profile={**FAST, "name": "fast"})["profile"] == "fast"
    assert told(do="fail")["failing"]
    assert not told(do="heal")["failing"]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"drive": "x", "do": "fill"}, "no modelled drive 'x'"),
        ({"do": "fill"}, "no modelled drive None"),
        ({"drive": "w", "do": "burn"}, "a drive cannot 'burn'"),
        ({"drive": "w", "do": "slow"}, "factor: None cannot"),
        ({"drive": "w", "do": "slow", "factor": 0}, "factor: 0 cannot"),
        ({"drive": "w", "do": "slow", "factor": "4"}, "factor: '4' cannot"),
        ({"drive": "w", "do": "profile"}, "profile: None: unknown profile"),
        ({"drive": "w", "do": "profile", "profile": {"latency_ns": 0}}, "octets_per_second: is missing"),
    ],
)
def test_an_impossible_request_is_refused_and_changes_nothing(
    tmp_path: Path, request_: dict[str, Any], says: str
) -> None:
    drives = node_drives(tmp_path, WAL)
    before = drives.status()
    answer = drives.answer({"op": "drive", **request_})
    assert says in answer["error"] and answer["fix"]
    assert drives.status() == before


def test_a_node_without_drives_says_how_to_get_them(tmp_path: Path) -> None:
    answer = node_drives(tmp_path).answer({"op": "drive", "drive": "d", "do": "fill"})
    assert "node.json" in answer["fix"]
