"""Publishers stop before the node falls over, and go on by themselves when it is well again."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_broker.node.alarms import NO_ALARM, Alarm, Alarms, Room, free_bytes, resident_bytes
from reference_broker.node.config import Limits
from reference_broker.types import NodeId

LIMITS = Limits(disk_free_bytes_min=100, memory_bytes_max=1000)
DATA, WAL = Path("data"), Path("wal")


@pytest.mark.parametrize(
    ("free", "memory", "reason"),
    [
        ({DATA: 100, WAL: 100}, 1000, ""),
        ({DATA: 100, WAL: 99}, 1000, "low on disk"),
        ({DATA: 99, WAL: 100}, 1001, "low on disk & memory"),
        ({DATA: 100, WAL: 100}, 1001, "low on memory"),
    ],
)
def test_each_limit_raises_its_alarm_and_clears_it(free: dict[Path, int], memory: int, reason: str) -> None:
    held = {"memory": memory}
    alarms = Alarms(LIMITS, [DATA, WAL], Room(lambda: held["memory"], free.__getitem__))
    assert (alarms.check(), alarms.reason) == (bool(reason), reason)
    assert not alarms.check(), "nothing has changed"
    free.update({DATA: 100, WAL: 100})
    held["memory"] = 0
    assert (alarms.check(), alarms.reason) == (bool(reason), "")


def test_the_alarms_of_all_nodes_count_together() -> None:
    """What is published here may end on the drive that is full there; who is gone needs nobody to wait for it."""
    free = {DATA: 100}
    alarms = Alarms(LIMITS, [DATA], Room(lambda: 0, free.__getitem__))
    assert alarms.told(NodeId(2), Alarm.DISK) and not alarms.told(NodeId(2), Alarm.DISK)
    assert alarms.told(NodeId(3), Alarm.MEMORY)
    assert (alarms.reason, alarms.own) == ("low on disk & memory", NO_ALARM)
    assert alarms.told(NodeId(3), NO_ALARM)
    assert alarms.reason == "low on disk"
    free[DATA] = 99
    assert alarms.check() and alarms.told(NodeId(2), NO_ALARM)
    assert (alarms.reason, alarms.own) == ("low on disk", Alarm.DISK)
    free[DATA] = 100
    assert alarms.check() and not alarms.told(NodeId(2), NO_ALARM)
    assert alarms.reason == ""


def test_a_drive_that_cannot_be_asked_raises_none() -> None:
    """Whether writing works is for the log to say: publishers must not stop for a drive that has room."""

    def gone(_directory: Path) -> int:
        raise OSError("no such device")

    assert not Alarms(LIMITS, [DATA], Room(lambda: 0, gone)).check()


def test_the_real_measures_measure_something(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    assert resident_bytes() > 1 << 20


def test_memory_that_nobody_uses_raises_no_alarm() -> None:
    """Garbage that is not collected yet, and what the C library keeps: publishers must not stop for either."""
    held = [1500, 900]
    given_back: list[int] = []
    room = Room(lambda: held[len(given_back)], lambda _directory: 1000, lambda: given_back.append(1))
    alarms = Alarms(LIMITS, [DATA], room)
    assert not alarms.check()
    assert (given_back, alarms.reason, alarms.is_critical) == ([1], "", False)


def test_giving_memory_back_is_not_tried_at_each_look() -> None:
    """It takes tens of milliseconds, in which nobody is served."""
    given_back: list[int] = []
    held = {"memory": 1050}
    room = Room(lambda: held["memory"], lambda _directory: 1000, lambda: given_back.append(1))
    alarms = Alarms(LIMITS, [DATA], room)
    for _ in range(18):
        alarms.check()
    assert (len(given_back), alarms.reason, alarms.is_critical) == (2, "low on memory", False)
    held["memory"] = 1101
    alarms.check()
    assert alarms.is_critical, "a tenth too much: no new connections and channels"
    held["memory"] = 1000
    alarms.check()
    assert (alarms.reason, alarms.is_critical) == ("", False)


def test_a_system_that_does_not_tell_the_memory_stops_nobody() -> None:
    """To ask takes an open file, and there may be none left: what was told before counts."""
    told = iter([1001, OSError("too many open files")])

    def held() -> int:
        found = next(told)
        if isinstance(found, OSError):
            raise found
        return found

    alarms = Alarms(Limits(memory_bytes_max=2000), [], Room(held))
    assert not alarms.check() and not alarms.check()
    assert alarms.own == NO_ALARM
