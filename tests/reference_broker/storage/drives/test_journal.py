"""What a file system with a journal makes of files, by cases worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reference_broker.storage.drives.journal import CHUNK, JournalModel
from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import HDD7200, PROFILES, ST1_1T

MS = 1_000_000
SECOND = 1000 * MS
TOKENS = replace(ST1_1T, burst_ns=0, latency_ns=0, octets_per_second=10**12)
"""4 ms for each small operation, and nothing else."""


def system(profile=TOKENS) -> JournalModel:
    return JournalModel(DriveModel(profile))


def settled(journal: JournalModel, octets: int = 0) -> tuple[int, object]:
    """A file that is durable with its name, and the time by then."""
    file = journal.create(SECOND)
    journal.write(SECOND, file, 0, octets)
    return journal.sync_dir(journal.datasync(SECOND, file)), file


def test_a_sync_of_a_file_that_grew_takes_three_writes() -> None:
    """Data, journal, commit record: 12 ms with a budget of 4 ms each, as measured on a real ext4."""
    journal = system()
    now, file = settled(journal)
    journal.write(now, file, 0, 4096)
    assert round((journal.datasync(now, file) - now) / MS) == 12


def test_a_sync_over_allocated_octets_takes_one_write() -> None:
    """That is why the WAL fills its files beforehand."""
    journal = system()
    now, file = settled(journal, 1 << 20)
    journal.write(now, file, 8192, 4096)
    assert round((journal.datasync(now, file) - now) / MS) == 4


def test_a_write_waits_for_no_drive_and_a_clean_sync_only_flushes() -> None:
    journal = system()
    now, file = settled(journal, 4096)
    assert journal.datasync(now, file) == now
    assert journal.sync_dir(now) == now


def test_many_writes_are_one_piece_on_the_drive() -> None:
    """Pages that lie together go as one operation: 64 writes of 1 KiB cost one token, not 64."""
    journal = system()
    now, file = settled(journal, 1 << 20)
    for index in range(64):
        journal.write(now, file, index * 1024, 1024)
    assert journal.datasync(now, file) - now < 5 * MS


def test_one_commit_serves_all_who_changed_before_it_began() -> None:
    """One commit at a time: two files that grew before it began share it, three that grow later share the next."""
    journal, files = system(), []
    for _ in range(5):
        now, file = settled(journal)
        files.append(file)
    before = journal.commits
    for file in files[:2]:
        journal.write(now, file, 0, 4096)
    first, second = (journal.datasync(now + index, file) for index, file in enumerate(files[:2]))
    assert journal.commits - before == 1
    later = now + 6 * MS  # the commit began when the first file's page was written, after 4 ms
    for file in files[2:]:
        journal.write(later, file, 0, 4096)
    overs = [journal.datasync(later + index, file) for index, file in enumerate(files[2:])]
    assert journal.commits - before == 2
    assert first <= second < min(overs)


def test_a_file_that_grows_slows_a_neighbour_that_does_not() -> None:
    """Background load and the WAL on one drive: the WAL's overwrite waits behind data and journal of the other."""
    journal = system()
    _, wal = settled(journal, 1 << 20)
    now, other = settled(journal)
    journal.write(now, other, 0, 4096)
    journal.datasync(now, other)
    journal.write(now, wal, 0, 4096)
    assert round((journal.datasync(now, wal) - now) / MS) == 16


def test_names_are_durable_with_one_commit() -> None:
    journal = system()
    now, _ = settled(journal)
    before = journal.commits
    journal.change_names(now)
    journal.change_names(now)
    over = journal.sync_dir(now + 1)
    assert journal.commits - before == 1
    assert round((over - now) / MS) == 8
    assert journal.sync_dir(over) == over


def test_what_was_written_lately_is_read_from_memory() -> None:
    journal = JournalModel(DriveModel(TOKENS), cached=1 << 20)
    now, file = settled(journal, 512 << 10)
    assert journal.read(now, file, 0, 4096) == now
    for offset in range(0, 4 << 20, 1 << 20):
        journal.write(now, file, offset, 1 << 20)
    assert journal.read(now, file, 0, 4096) > now


def test_a_file_from_before_is_read_from_the_drive_once() -> None:
    journal = system()
    file = journal.known(1 << 20)
    over = journal.read(SECOND, file, 0, 4096)
    assert over > SECOND
    assert journal.read(over, file, 0, 4096) == over
    assert journal.read(over, file, 1 << 20, 4096) == over, "there is nothing behind the end of a file"


def test_a_removed_file_gives_its_room_back() -> None:
    journal = system()
    for _ in range(100):
        _, file = settled(journal, CHUNK)
        assert journal.allocated == CHUNK
        journal.remove(SECOND, file)
        assert journal.allocated == 0


def test_a_sync_on_a_disk_takes_whole_revolutions() -> None:
    """At the end of a file two or three of 8.3 ms each, for data with journal and for the record; one over what is
    there, as measured on a real ext4 on an emulated disk."""
    journal = system(HDD7200)
    now, file = settled(journal)
    began = now
    for index in range(20):
        journal.write(now, file, index * 4096, 4096)
        now = journal.datasync(now, file)
    assert 15 < (now - began) / 20 / MS < 27
    began = now
    for index in range(20):
        journal.write(now, file, index * 4096, 4096)
        now = journal.datasync(now, file)
    assert 7 < (now - began) / 20 / MS < 10


@pytest.mark.parametrize("name", sorted(PROFILES))
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_over_before_it_was_asked_for(name: str, seed: int) -> None:
    chance, journal, now = random.Random(seed), system(PROFILES[name]), SECOND
    files = [journal.create(now) for _ in range(5)]
    for _ in range(500):
        now += chance.randrange(5 * MS)
        file = chance.choice(files)
        kind = chance.randrange(5)
        if kind == 0:
            assert journal.datasync(now, file) >= now, f"seed {seed}"
        elif kind == 1:
            assert journal.read(now, file, chance.randrange(1 << 20), 4096) >= now, f"seed {seed}"
        elif kind == 2:
            journal.change_names(now)
            assert journal.sync_dir(now) >= now, f"seed {seed}"
        else:
            journal.write(now, file, chance.randrange(1 << 20), chance.randrange(1, 1 << 16))
    assert journal.allocated == sum(file.allocated for file in files)
