"""The log as the node shell uses it: reading, overwriting, identity, rolling over, limits, failures."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reference_broker.log.config import LogConfig
from reference_broker.log.counters import COUNTERS
from reference_broker.log.errors import (
    AppendGapError,
    DamagedLogError,
    EntryGoneError,
    ForeignDirectoryError,
    InvalidLogConfigError,
    UnknownGroupError,
)
from reference_broker.log.notices import (
    Failed,
    GroupCreated,
    GroupDeleted,
    HardStateSynced,
    RolledOver,
    SnapshotTaken,
    Synced,
    Written,
)
from reference_broker.log.system import LogSystem
from reference_broker.log.wal_codec import FIRST_BATCH, HEAD_SIZE, ROW_SIZE
from reference_broker.storage.executor import OwnersThread
from reference_broker.types import LogIndex, NodeId, Term


def test_one_notice_a_group_and_batch(world: Any) -> None:
    """One wake-up of the event loop per sync is what makes group commit cheap."""
    group, other = world.create(1), world.create(2)
    world.hard_state(group, 3, 2)
    world.append(group, 1, 3)
    world.append(group, 4)
    world.append(other, 1)
    assert world.step() == [
        GroupCreated(group),
        GroupCreated(other),
        HardStateSynced(group, Term(3), NodeId(2)),
        Written(group, LogIndex(4), Term(1)),
        Written(other, LogIndex(1), Term(1)),
    ]
    figures = world.log.counters()
    assert (figures["wal_writes"], figures["wal_syncs"], figures["wal_entries"]) == (1, 1, 5)
    assert figures["wal_batch_entries_max"] == 5


def test_entries_are_readable_at_once_and_shared(world: Any) -> None:
    """The leader sends an entry to its peers while the disk still writes it, without a copy."""
    group = world.create(1)
    world.append(group, 1, 5)
    expected = list(world.models[group].states[-1].log.values())
    found = world.log.entries(group, LogIndex(1), LogIndex(5), 1 << 20)
    assert all(entry is other for entry, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("memtable_bytes", [0, 1 << 20], ids=["on disk", "in memory"])
def test_entries_fit_into_max_bytes_but_one_always_comes(make_world: Callable[..., Any], memtable_bytes: int) -> None:
    """AppendEntries must fit into a frame, and must still carry an entry that is larger. What does not fit is not even
    read: a follower that catches up would cost each large entry twice."""
    world = make_world(memtable_bytes=memtable_bytes).open()
    group = world.create(1)
    world.append(group, 1, 5, size=1000)
    world.step()
    for limit, count in ((1, 1), (1000, 1), (1999, 1), (2000, 2), (2500, 2), (10**6, 5)):
        before = world.log.counters()["disk_reads"]
        assert len(world.log.entries(group, LogIndex(1), LogIndex(5), limit)) == count
        assert world.log.counters()["disk_reads"] - before == (0 if memtable_bytes else count)


def test_entries_come_back_from_disk_unchanged(make_world: Callable[..., Any]) -> None:
    """A slow follower needs entries that left memory long ago: index, term, kind, CRC and payload."""
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    for turn in range(6):
        world.append(group, 5 * turn + 1, 5, term=turn + 1, size=900)
        world.step()
    assert world.log.counters()["memtable_bytes"] == 0
    world.check_readable()
    assert world.log.counters()["disk_reads"] == 30
    world.restart()
    world.check_readable()


@pytest.mark.parametrize("index", [0, 6, 7])
def test_what_was_never_appended_is_gone(index: int, world: Any) -> None:
    """The caller must be able to tell "send a snapshot" from a bug."""
    group = world.create(1)
    world.append(group, 1, 5)
    with pytest.raises(EntryGoneError, match=f"entry {index} of group"):
        world.log.payload(group, LogIndex(index))


def test_a_gap_is_refused_and_changes_nothing(world: Any, entry: Callable[..., Any]) -> None:
    """I9, at the door."""
    group = world.create(1)
    world.append(group, 1, 5)
    with pytest.raises(AppendGapError, match="holds 1 to 5"):
        world.log.append(group, [entry(7)])
    world.append(group, 6)
    assert Written(group, LogIndex(6), Term(1)) in world.step()


def test_an_overwrite_in_flight_reports_the_old_term(world: Any) -> None:
    """The core ignores a notice for an entry that it overwrote, by its term; so the term must be the written one."""
    group = world.create(1)
    world.append(group, 1, 5, term=1)
    world.step()
    world.append(group, 3, 1, term=2)
    assert world.step() == [Written(group, LogIndex(3), Term(2))]
    with pytest.raises(EntryGoneError):
        world.log.payload(group, LogIndex(4))
    world.restart()
    assert world.recovered[group].terms == [(1, 1), (3, 2)]


def test_truncation_stops_at_the_snapshot(world: Any) -> None:
    """What is applied and snapshotted is committed: dropping it is a bug of the core, and must be loud."""
    group = world.create(1)
    world.append(group, 1, 5)
    world.snapshot(group, 3, 1)
    with pytest.raises(ValueError, match="entry 3 is covered by a snapshot"):
        world.log.truncate_from(group, LogIndex(3))
    world.log.truncate_from(group, LogIndex(6))
    assert world.log.payload(group, LogIndex(5))


def test_a_group_that_is_not_there_has_a_typed_error(world: Any) -> None:
    """Late callbacks for a deleted queue are normal; a KeyError would look like a bug."""
    group = world.create(1)
    world.delete(group)
    with pytest.raises(UnknownGroupError, match="does not exist"):
        world.log.drop_payloads(group, LogIndex(1))


def test_truncation_survives_a_restart(world: Any) -> None:
    """Entries that a new leader removed must not come back."""
    group = world.create(1)
    world.append(group, 1, 5)
    world.step()
    world.truncate(group, 3)
    world.restart()
    assert world.recovered[group].last_index == 2


def test_batch_numbers_never_go_back(world: Any) -> None:
    """Everything is in snapshots and the node starts twice: no WAL file holds a batch. New ones that counted from 1
    again would pass for older than their groups, and the start after that would drop what was confirmed."""
    group, other = world.create(1), world.create(2)
    world.append(other, 1)
    for index in range(1, 20):
        world.append(group, index)
        world.step()
    third = world.create(3)
    world.append(third, 1)
    world.step()
    for id_, last in ((group, 19), (other, 1), (third, 1)):
        world.snapshot(id_, last, 1)
    world.step()
    for _start in range(2):
        world.restart()
        world.step()
    for id_, first in ((group, 20), (other, 2), (third, 2)):
        world.append(id_, first, 3)
    world.step()
    world.crash()
    assert [world.recovered[id_].last_index for id_ in (group, other, third)] == [22, 4, 4]


def test_rolling_over_asks_for_snapshots_and_frees_files(world: Any) -> None:
    """Without this the WAL grows until the drive is full."""
    group, idle = world.create(1), world.create(2)
    world.append(idle, 1)
    world.step()
    world.snapshot(idle, 1, 1)
    world.step()
    notices = []
    for turn in range(12):
        world.append(group, 2 * turn + 1, 2, size=2000)
        notices += world.step()
    rolled = [notice.file for notice in notices if isinstance(notice, RolledOver)]
    assert rolled == sorted(set(rolled)) and len(rolled) >= 2
    assert world.log.snapshot_due() == [group]
    before = world.log.counters()["wal_files"]
    world.snapshot(group, 24, 1)
    assert SnapshotTaken(group, LogIndex(24), Term(1)) in world.step()
    assert world.log.snapshot_due() == []
    assert world.log.counters()["wal_files"] < before
    assert len([name for name in world.files.names("/disk/wal") if name.endswith(".spare")]) <= 2


def test_a_steady_load_lives_in_recycled_files(world: Any) -> None:
    """A new file costs a fill with zeros; a steady queue should need none."""
    group = world.create(1)
    warm = 0
    for turn in range(60):
        world.append(group, 4 * turn + 1, 4, size=1000)
        if any(isinstance(notice, RolledOver) for notice in world.step()):
            world.snapshot(group, 4 * turn + 4, 1)
            world.step()
        warm = len(world.files.trace) if turn == 30 else warm
    created = [name == "create" and path.startswith("/disk/wal/") for name, path in world.files.trace]
    assert any(created[:warm]) and not any(created[warm:])
    assert world.log.counters()["wal_files_recycled"] >= 5
    assert len(world.files.names("/disk/wal")) <= 6
    world.restart()


def test_an_entry_larger_than_a_file_fits(world: Any) -> None:
    """A message may be larger than wal_file_bytes: the file grows for once."""
    group = world.create(1)
    world.append(group, 1, size=50)
    world.append(group, 2, size=100_000)
    world.step()
    world.append(group, 3, size=100_000)
    world.step()
    world.crash()
    assert world.recovered[group].last_index == 3


def test_a_late_next_file_does_not_stop_the_writer(world: Any) -> None:
    """Appends go on in the current file while the next one is still being filled."""
    group = world.create(1)
    for index in range(1, 30):
        world.append(group, index, size=1500)  # all in one turn: housekeeping cannot come in between
    assert world.step()[-1] == Written(group, LogIndex(29), Term(1))
    world.crash()
    assert world.recovered[group].last_index == 29


def test_large_turns_are_cut_into_batches(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sync must not cover an unbounded queue."""
    monkeypatch.setattr("reference_broker.log.group_commit.BATCH_BYTES", 5000)
    group = world.create(1)
    for index in range(1, 21):
        world.append(group, index, size=1000)
    world.step()
    assert world.log.counters()["wal_writes"] == 4
    assert world.log.counters()["backlog_bytes"] == 0


def test_a_deleted_group_leaves_nothing(world: Any) -> None:
    """Queues come and go by the thousand."""
    group, other = world.create(1), world.create(2)
    world.append(group, 1, 3)
    world.append(other, 1, 3)
    world.step()
    world.snapshot(group, 2, 1, [(1, 1)])
    world.step()
    assert f"{group:016x}" in world.files.names("/disk/data")
    world.delete(group)
    assert GroupDeleted(group) in world.step()
    assert f"{group:016x}" not in world.files.names("/disk/data")
    world.restart()
    assert list(world.recovered) == [other]


def test_what_a_deleted_group_had_to_write_waits_no_longer(world: Any) -> None:
    """The event loop writes small batches itself as long as little waits to be written: octets that are counted and
    never written would take that from all queues of the node, for good."""
    group, other = world.create(1), world.create(2)
    world.append(group, 1, 3, size=700)
    world.append(other, 1, 3, size=500)
    assert world.log.counters()["backlog_bytes"] == 3 * 700 + 3 * 500
    world.delete(group)
    world.step()
    assert world.log.counters()["backlog_bytes"] == 0
    world.append(other, 4, size=500)
    world.delete(other)
    world.step()
    assert world.log.counters()["backlog_bytes"] == 0
    assert world.log.counters()["memtable_bytes"] == 0


def test_a_deleted_group_keeps_its_files_until_its_deletion_is_on_disk(make_world: Callable[..., Any]) -> None:
    """The housekeeper is faster than the writer, and then power fails: a start would find the group and a hole."""
    world = make_world().open()
    group = world.create(1)
    for first in range(1, 40, 4):
        world.append(group, first, 4, size=1500)
        world.step()
    writing, housekeeping = world.log.executors
    world.append(world.create(2), 1)
    writing.run_pending()
    world.snapshot(2, 1, 1)  # any housekeeping
    writing.run_pending()
    before = world.log.counters()["wal_files"]
    world.delete(group)
    housekeeping.run_pending()
    assert world.log.counters()["wal_files"] >= before > 2
    world.crash()
    assert world.recovered[group].last_index == 40
    world.delete(group)
    world.step()
    assert world.log.counters()["wal_files"] <= 2


def test_a_group_id_is_used_once(world: Any) -> None:
    """Two queues under one id would mix their entries."""
    world.create(1)
    with pytest.raises(ValueError, match="exists"):
        world.log.create_group(1, b"")


def test_the_meta_log_is_rewritten_when_full(world: Any) -> None:
    """A thousand elections must not fill a drive, and must not lose one vote."""
    group = world.create(1)
    for term in range(1, 1200):
        world.hard_state(group, term, term % 4)
        world.step()
    assert world.log.counters()["meta_compactions"] >= 3
    assert len(world.files.names("/disk/data/meta")) == 1
    world.crash()
    assert (world.recovered[group].term, world.recovered[group].voted_for) == (1199, 1199 % 4)


def test_counters_are_the_table(world: Any) -> None:
    """Documentation, metrics endpoint and report read the table."""
    assert list(world.log.counters()) == [spec.name for spec in COUNTERS]


def test_syncs_of_every_role_are_counted_and_noticed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow drive shows in the figures of what it is used for, whichever of the directories stands on it."""
    noticed: list[Synced] = []
    notify = world.log._state.notify
    monkeypatch.setattr(
        world.log._state,
        "notify",
        lambda notices: (noticed.extend(notice for notice in notices if isinstance(notice, Synced)), notify(notices)),
    )
    group = world.create(1)
    world.append(group, 1, 5)
    world.snapshot(group, 2, 1)
    world.step()
    world.roll()
    figures = world.log.counters()
    for role in ("meta", "snapshot", "segment"):
        times = [notice.ns for notice in noticed if notice.role == role]
        assert len(times) == figures[f"{role}_syncs"] > 0
        assert sum(times) == figures[f"{role}_sync_ns_total"] > 0


# Whose directory is this?


@pytest.mark.parametrize("change", [{"node": 2}, {"cluster": "another"}])
def test_another_nodes_directories_are_refused(change: dict[str, Any], world: Any) -> None:
    """Started on another node's disk, a member would vote twice in one term."""
    world.log.close()
    world.config = replace(world.config, **change)
    with pytest.raises(
        ForeignDirectoryError, match=r"(?s)/disk/wal: holds 'cluster=default node=1'.*use this node's own"
    ):
        world.open()


@pytest.mark.parametrize(
    ("lost", "advice"),
    [
        ("wal", "WAL's drive mounted"),
        ("data", "data drive mounted"),
        ("segment", "segment directory's drive mounted"),
    ],
)
def test_a_drive_that_is_not_mounted_is_noticed(lost: str, advice: str, world: Any) -> None:
    """An empty mount point beside the other directory means lost messages, not a fresh start."""
    world.create(1)
    world.step()
    world.log.close()
    world.config = replace(world.config, **{f"{lost}_dir": f"/mnt/empty/{lost}"})
    with pytest.raises(ForeignDirectoryError, match=advice):
        world.open()


def test_directories_of_two_logs_are_not_mixed(make_world: Callable[..., Any], world: Any) -> None:
    """A WAL from a backup beside newer data would silently lose what lies between."""
    world.log.close()
    second = replace(world.config, wal_dir="/other/wal", data_dir="/other/data")
    log, _ = LogSystem.open(
        second, world.files, lambda _: None, policy=OwnersThread, new_store=lambda: b"another store id"
    )
    log.close()
    mixed = replace(world.config, data_dir="/other/data")
    with pytest.raises(ForeignDirectoryError, match="used together"):
        LogSystem.open(mixed, world.files, lambda _: None, policy=OwnersThread)


def test_all_problems_of_a_config_at_once() -> None:
    """Nobody wants to mend a configuration one error at a time."""
    bad = LogConfig(
        wal_dir="",
        data_dir="",
        node=0,
        cluster="",
        wal_file_bytes=1,
        memtable_bytes=-1,
        recycle_files=-1,
        segment_bytes=1,
    )
    assert {problem.key for problem in bad.validate()} == {
        "wal_dir", "data_dir", "node", "cluster", "wal_file_bytes", "memtable_bytes", "recycle_files", "segment_bytes",
    }  # fmt: skip
    assert all(str(problem).startswith(problem.key) and problem.fix for problem in bad.validate())


def test_a_bad_config_does_not_open(world: Any) -> None:
    """It is refused before a directory is made."""
    world.config = replace(world.config, wal_file_bytes=10, wal_dir="/new")
    with pytest.raises(InvalidLogConfigError, match="wal_file_bytes = 10"):
        world.open()
    assert world.files.names("/new") == []


# Failing drives


def busy(world: Any) -> None:
    """Everything that writes, over and over."""
    group, other = world.create(1), world.create(2)
    for turn in range(8):
        world.append(group, 3 * turn + 1, 3, size=1500)
        world.append(other, turn + 1)
        world.hard_state(group, turn + 1, 1)
        world.step()
        if turn % 3 == 2:
            world.snapshot(group, 3 * turn + 2, 1, [(3 * turn + 1, 3 * turn + 1)])
            world.step()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_one_failed_call_stops_the_log_for_good(error: int, make_world: Callable[..., Any]) -> None:
    """After a failed sync the kernel may have dropped the page: a retry that succeeds confirms a lost message."""
    clean = make_world().open()
    opened = clean.files.calls
    busy(clean)
    for call in range(1, clean.files.calls - opened + 1):
        world = make_world().open()
        world.faulty = True
        world.files.fail_at(call, error)
        busy(world)
        failures = [notice for notice in world.notices if isinstance(notice, Failed)]
        assert len(failures) == 1 and world.notices[-1] is failures[0], f"call {call}"
        assert "the node stops and confirms nothing more" in failures[0].error
        assert ("ulimit -n" in failures[0].error, "drive" in failures[0].error) == (
            error == errno.EMFILE, error != errno.EMFILE,
        )  # fmt: skip
        calls = world.files.calls
        world.append(1, max(world.models[1].states[-1].log) + 1)
        assert world.step() == []
        assert world.files.calls == calls, "something was written after the failure"
        world.crash()


def test_a_full_drive_stops_the_log_and_a_larger_one_goes_on(world: Any) -> None:
    """The node says what to do; done, it starts again with everything it confirmed."""
    group = world.create(1)
    world.append(group, 1, 3)
    world.step()
    world.faulty = True
    world.files.fill_up(20_000)
    index = 4
    while not any(isinstance(notice, Failed) for notice in world.step()):
        world.append(group, index, size=3000)
        index += 1
    assert "No space left" in world.notices[-1].error and "free space" in world.notices[-1].error
    confirmed = [notice.index for notice in world.notices if isinstance(notice, Written)][-1]
    world.kill()
    assert world.recovered[group].last_index >= confirmed > 3
    world.append(group, world.recovered[group].last_index + 1)
    assert world.step()


def test_a_bug_in_a_thread_stops_the_node_too(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer thread that dies in silence would leave publishers waiting for ever."""
    monkeypatch.setattr("reference_broker.log.group_commit.pack_row", lambda *_: 1 / 0)
    group = world.create(1)
    world.faulty = True
    world.append(group, 1)
    [created, failed] = world.step()
    assert isinstance(created, GroupCreated)
    assert "ZeroDivisionError" in failed.error and "bug" in failed.error


def test_rot_under_a_running_node_is_found_on_reading(make_world: Callable[..., Any]) -> None:
    """Whatever the drive returns, no follower and no consumer gets other octets than were published."""
    world = make_world(memtable_bytes=0).open()
    group = world.create(1)
    world.append(group, 1, 3, size=500)
    world.step()
    world.files.flip("/disk/wal/00000001.wal", FIRST_BATCH + HEAD_SIZE + 3 * ROW_SIZE + 700)
    assert world.log.payload(group, LogIndex(1))
    with pytest.raises(DamagedLogError, match="an entry fails its check"):
        world.log.payload(group, LogIndex(2))


def test_a_group_that_is_created_again_starts_empty(world: Any) -> None:
    """A log that is applied again after a restart may create a group that had been deleted. What the first one left in
    the WAL, most of it recycled since, is not the second one's: a hole there would keep the node from starting."""
    group, other = world.create(1), world.create(2)
    for first in range(1, 400, 20):
        world.append(group, first, 20, size=200)
        world.append(other, first, 20, size=200)
        world.step()
        if world.log.snapshot_due():
            world.snapshot(group, first + 19, 1)
            world.step()
    world.delete(group)
    world.step()
    world.create(1)
    world.step()
    world.crash()
    assert world.recovered[group].last_index == 0
    world.append(group, 1, 3)
    world.step()
    world.crash()
    assert world.recovered[group].last_index == 3
