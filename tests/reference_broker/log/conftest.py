"""A log on files in memory, with a slow obvious model beside it that knows what a crash may take."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from reference_broker.log.config import LogConfig
from reference_broker.log.memtable import ENTRY_OVERHEAD
from reference_broker.log.notices import (
    Failed,
    GroupCreated,
    GroupDeleted,
    HardStateSynced,
    Notice,
    SnapshotInstalled,
    SnapshotTaken,
    Synced,
    Written,
)
from reference_broker.log.system import LogSystem, RecoveredGroup
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term

WAL, DATA = "/disk/wal", "/disk/data"


def make_entry(index: int, term: int = 1, size: int = 40, kind: EntryKind = EntryKind.COMMAND) -> Entry:
    """An entry whose payload is its own and can be made again from index, term and size."""
    payload = (f"{index}/{term} ".encode() * (size // 4 + 1))[:size]
    return Entry(LogIndex(index), Term(term), kind, zlib.crc32(payload), payload)


Log = dict[int, Entry]


@dataclass(frozen=True)
class State:
    """What one group's log is after one operation: the entries by index, and where it starts."""

    log: Log
    base: int = 0


@dataclass
class Model:
    """All states a group went through, which of them a crash may go back to, and what was promised.

    ``former`` is the group of the same id before it, as long as its end was not noticed.
    """

    meta: bytes = b""
    former: Model | None = None
    states: list[State] = field(default_factory=lambda: [State({})])
    confirmed: int = 0
    snapshots: dict[tuple[int, int], tuple[bytes, tuple[tuple[int, int], ...], bool]] = field(default_factory=dict)
    snapshot_confirmed: int = 0
    hard: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    hard_confirmed: int = 0
    created: bool = False
    deleting: bool = False
    deleted: bool = False
    tails: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Last index and term appended by each operation: what a Written for it says."""
    kept: Log = field(default_factory=dict)

    def push(self, state: State, tail: tuple[int, int] = (0, 0)) -> None:
        self.states.append(state)
        self.tails.append(tail)


class World:
    """Drives a :class:`LogSystem` step by step, notes what it promised, and checks it after a crash."""

    def __init__(
        self,
        *,
        wal_file_bytes: int = 16384,
        memtable_bytes: int = 1 << 20,
        recycle_files: int = 2,
        segment_bytes: int = 16384,
    ) -> None:
        self.files = MemoryFiles()
        self.config = LogConfig(
            wal_dir=WAL,
            data_dir=DATA,
            wal_file_bytes=wal_file_bytes,
            memtable_bytes=memtable_bytes,
            recycle_files=recycle_files,
            segment_bytes=segment_bytes,
        )
        self.notices: list[Notice] = []
        self.models: dict[GroupId, Model] = {}
        self.recovered: dict[GroupId, RecoveredGroup] = {}
        self.faulty = False
        self.log: LogSystem

    # Running

    def open(self) -> World:
        self.log, self.recovered = LogSystem.open(
            self.config, self.files, self._notify, policy=OwnersThread, new_store=lambda: b"the-same-store!!"
        )
        return self

    def step(self) -> list[Notice]:
        """Do all that waits; returns what was noticed."""
        before = len(self.notices)
        self.log.run_pending()
        failures = [notice.error for notice in self.notices[before:] if isinstance(notice, Failed)]
        assert self.faulty or not failures, failures
        if not any(isinstance(notice, Failed) for notice in self.notices):
            self._check_counts()
        return self.notices[before:]

    def _check_counts(self) -> None:
        """Nothing waits to be written, and what counts as held in memory is held there."""
        counters = self.log.counters()
        held = [entry for group in self.log._state.groups.values() for entry in group.table.memory.values()]
        assert counters["backlog_bytes"] == 0
        assert counters["memtable_bytes"] == sum(len(entry.payload) + ENTRY_OVERHEAD for entry in held)

    def stop_at(self, call: int) -> None:
        """The node stops at its ``call``-th changing call from now: that one and all later ones fail."""
        self.faulty = True
        self.files.fail_at(call, sticky=True)

    def roll(self, files: int = 4) -> None:
        """Let the WAL go on by so many files, with entries of a group of its own of which nothing stays."""
        group = next((id_ for id_, model in self.models.items() if id_ == 99), None) or self.create(99)
        for _file in range(files):
            before = self.log.counters()["wal_rolls"]
            while self.log.counters()["wal_rolls"] == before:
                if any(isinstance(notice, Failed) for notice in self.notices):
                    return
                last = max(self.models[group].states[-1].log, default=self.models[group].states[-1].base)
                self.append(group, last + 1, size=self.config.wal_file_bytes // 3)
                self.step()
            self.snapshot(group, last + 1, 1)
            self.step()

    def restart(self) -> None:
        """Stop and start in good order."""
        self.step()
        self.log.close()
        self.open()
        self.check_recovered()

    def crash(self, chance: Random | None = None) -> None:
        """Lose power, start again, and check every promise."""
        self.files.crash(chance)
        self._start_over()

    def kill(self) -> None:
        """The process dies, the machine does not: what was written is there, synced or not."""
        self.files.heal()
        self._start_over()

    def _start_over(self) -> None:
        self.faulty = False
        self.notices.clear()
        self.open()
        self.check_recovered()
        forgetful = [id_ for id_, found in self.recovered.items() if found.forgetful]
        assert not forgetful, f"a crash passes for damage: {self.log.findings}"

    def _notify(self, notices: list[Notice]) -> None:
        assert not any(isinstance(notice, Failed) for notice in self.notices), "a notice after Failed"
        self.notices += [notice for notice in notices if not isinstance(notice, Synced)]
        for notice in notices:
            self._promise(notice)

    def _promise(self, notice: Notice) -> None:
        match notice:
            case Written(group, index, term):
                model = self._model(group)
                numbers = [at for at, tail in enumerate(model.tails) if tail == (index, term)]
                model.confirmed = max(model.confirmed, numbers[-1])
                model.created = True
            case HardStateSynced(group, term, voted_for):
                model = self._model(group)
                model.hard_confirmed = model.hard.index((term, voted_for))
                model.created = True
            case GroupCreated(group):
                self._model(group).created = True
            case GroupDeleted(group):
                self._model(group).deleted = True
            case SnapshotTaken(group, index, _term) | SnapshotInstalled(group, index, _term):
                model = self._model(group)
                model.snapshot_confirmed = max(model.snapshot_confirmed, index)
            case _:
                pass

    def _model(self, group: GroupId) -> Model:
        """Whom a notice means: what was asked of a group is noticed before its end, what was asked later after it."""
        model = self.models[group]
        while model.former is not None and not model.former.deleted:
            model = model.former
        return model

    # Operations, each with its effect on the model

    def create(self, group: int) -> GroupId:
        """A new group; one that was deleted before may have had its id."""
        id_ = GroupId(group)
        former = self.models.get(id_)
        meta = former.meta + b", again" if former else b"meta of %d" % group
        self.models[id_] = Model(meta=meta, former=former)
        self.log.create_group(id_, meta)
        return id_

    def delete(self, group: GroupId) -> None:
        self.models[group].deleting = True
        self.log.delete_group(group)

    def append(self, group: GroupId, first: int, count: int = 1, term: int = 1, size: int = 40) -> None:
        kinds = (EntryKind.COMMAND, EntryKind.NOOP, EntryKind.COMMAND, EntryKind.CONFIG)
        entries = [make_entry(index, term, size, kinds[index * 3 % 4]) for index in range(first, first + count)]
        model = self.models[group]
        state = model.states[-1]
        log = {index: entry for index, entry in state.log.items() if index < first}
        log |= {entry.index: entry for entry in entries}
        model.push(replace(state, log=log), (entries[-1].index, entries[-1].term))
        self.log.append(group, entries)

    def truncate(self, group: GroupId, index: int) -> None:
        model = self.models[group]
        state = model.states[-1]
        model.push(replace(state, log={at: entry for at, entry in state.log.items() if at < index}))
        self.log.truncate_from(group, LogIndex(index))

    def hard_state(self, group: GroupId, term: int, voted_for: int) -> None:
        self.models[group].hard.append((term, voted_for))
        self.log.store_hard_state(group, Term(term), NodeId(voted_for))

    def snapshot(self, group: GroupId, index: int, term: int, live: list[tuple[int, int]] | None = None) -> None:
        state = b"state at %d " % index * 20
        self.models[group].snapshots[(index, term)] = (state, tuple(live or ()), False)
        self.log.take_snapshot(group, LogIndex(index), Term(term), state, live or [])

    def install(self, group: GroupId, chunks: list[tuple[int, int, bytes, bool]], kept: Log) -> None:
        """Receive a snapshot; ``kept`` are the live entries in it."""
        index, term = chunks[0][:2]
        model = self.models[group]
        model.snapshots[(index, term)] = (b"", (), True)
        model.kept |= kept
        for number, (_index, _term, data, last) in enumerate(chunks, 1):
            assert self.log.receive_chunk(group, LogIndex(index), Term(term), number, last, data)

    def reset(self, group: GroupId, index: int, term: int) -> None:
        self.models[group].push(State({}, index))
        self.log.reset(group, LogIndex(index), Term(term))

    # Checking

    def check_readable(self) -> None:
        """Everything that is in the log now can be read now, wherever it is."""
        for id_, model in self.models.items():
            if not model.deleting:
                floor = max((index for index, _term in model.snapshots), default=0)
                for index, entry in model.states[-1].log.items():
                    if index > floor:
                        assert self.log.entries(id_, LogIndex(index), LogIndex(index), 1) == [entry]

    def check_recovered(self) -> None:
        """Each group is as one of the states that its promises allow; then that is the model's only state."""
        for id_, model in list(self.models.items()):
            found = self.recovered.get(id_)
            while found is not None and model.former is not None and found.meta != model.meta:
                assert not model.created and not model.deleted, f"group {id_} is the former one again"
                model = self.models[id_] = model.former
            model.former = None
            if found is None:
                assert model.deleting or not model.created, f"group {id_} is lost"
                del self.models[id_]
                continue
            assert not model.deleted, f"group {id_} came back"
            assert found.meta == model.meta
            self._check_hard_state(model, found)
            assert list(found.special) == [
                entry for entry in self.read_all(id_, found).values() if entry.kind != EntryKind.COMMAND
            ]
            self._check_log(id_, model, found)
            model.created, model.deleting = True, False
        assert set(self.recovered) == set(self.models)

    def _check_hard_state(self, model: Model, found: RecoveredGroup) -> None:
        pair = (found.term, found.voted_for)
        assert pair in model.hard[model.hard_confirmed :], f"hard state {pair} was superseded or never stored"
        model.hard, model.hard_confirmed = [(found.term, int(found.voted_for))], 0

    def _check_log(self, id_: GroupId, model: Model, found: RecoveredGroup) -> None:
        floor = found.snapshot.index if found.snapshot else 0
        assert floor >= model.snapshot_confirmed, "a confirmed snapshot is lost"
        installed = False
        if found.snapshot:
            state, live, installed = model.snapshots[(found.snapshot.index, found.snapshot.term)]
            assert installed or (found.state, found.live) == (state, live)
        actual = self.read_all(id_, found)
        allowed = [
            above(state, floor, found.snapshot.term if found.snapshot else 0, installed)
            for state in model.states[model.confirmed :]
        ]
        assert actual in allowed, f"log {summary(actual)} is none of {[summary(log) for log in allowed]}"
        self._check_live(id_, model, found)
        model.snapshots = {key: value for key, value in model.snapshots.items() if key[0] == floor}
        model.states, model.tails, model.confirmed = [State(self._readable(id_, found), floor)], [(0, 0)], 0
        model.snapshot_confirmed = floor

    def _check_live(self, id_: GroupId, model: Model, found: RecoveredGroup) -> None:
        known: Log = {}
        for state in model.states:
            known |= state.log
        known |= model.kept
        for first, last in found.live:
            for index in range(first, last + 1):
                assert self.log.payload(id_, LogIndex(index)) == known[index].payload

    def read_all(self, id_: GroupId, found: RecoveredGroup) -> Log:
        """Every entry from the first to the last, one by one, checked against what recovery said of them."""
        log: Log = {}
        for index in range(found.first_index, found.last_index + 1):
            [entry] = self.log.entries(id_, LogIndex(index), LogIndex(index), 1)
            assert entry.term == [term for first, term in found.terms if first <= index][-1]
            assert zlib.crc32(entry.payload) == entry.crc
            log[index] = entry
        return log

    def _readable(self, id_: GroupId, found: RecoveredGroup) -> Log:
        log = self.read_all(id_, found)
        for first, last in found.live:
            for index in range(first, last + 1):
                log |= {index: self.log.entries(id_, LogIndex(index), LogIndex(index), 1)[0]}
        return log


def above(state: State, floor: int, floor_term: int, installed: bool) -> Log:
    """What a log that was in ``state`` holds above a snapshot, by Figure 13 where the snapshot was installed."""
    if installed and state.base < floor:
        at = state.log.get(floor)
        if at is None or at.term != floor_term:
            return {}
    return {index: entry for index, entry in state.log.items() if index > floor}


def summary(log: Log) -> str:
    """Indexes and terms, for a failure message."""
    return " ".join(f"{index}:{entry.term}" for index, entry in sorted(log.items())) or "(empty)"


@pytest.fixture(scope="session")
def make_world() -> Callable[..., World]:
    """A world that has not been opened."""
    return World


@pytest.fixture
def world() -> World:
    """An open world with small files."""
    return World().open()


@pytest.fixture(scope="session")
def entry() -> Callable[..., Entry]:
    """Makes entries."""
    return make_entry
