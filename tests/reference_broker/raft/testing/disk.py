"""The disk of one member, and what a crash leaves of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from reference_broker.raft.configuration import Configuration
from reference_broker.raft.log_view import LogView
from reference_broker.raft.ready import HardState
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, Term

COMMAND: Final = EntryKind.COMMAND

State = tuple[tuple[Term, int], ...]
"""(term, CRC) of entries 1, 2, ...: what a machine that applied them must have seen."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state and the last entry in it."""

    index: LogIndex
    term: Term
    state: State
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Write:
    """One write to the WAL: what it drops, then what it adds; or a snapshot."""

    truncate_from: LogIndex | None = None
    reset_to: LogIndex | None = None
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None
    installs: bool = False


@dataclass
class Disk:
    """The durable state of one member, and its writes that are not synced. Hard states have a file of their own."""

    hard_state: HardState = field(default_factory=lambda: HardState(term=Term(0), voted_for=NOBODY))
    snapshot: Snapshot | None = None
    entries: dict[LogIndex, Entry] = field(default_factory=dict)
    lost: dict[LogIndex, Entry] = field(default_factory=dict)
    """The entries that were on the medium, and that a damage took."""
    writes: deque[Write] = field(default_factory=deque)
    hard_states: deque[HardState] = field(default_factory=deque)

    def sync(self, count: int) -> list[Write]:
        """Make the oldest ``count`` writes durable and return them."""
        done = [self.writes.popleft() for _ in range(min(count, len(self.writes)))]
        for write in done:
            self._apply(write)
        return done

    def _apply(self, write: Write) -> None:
        if write.snapshot is not None:
            if self.snapshot is None or write.snapshot.index > self.snapshot.index:
                self.snapshot = write.snapshot
            return
        if write.reset_to is not None:
            self.entries.clear()
        if write.truncate_from is not None:
            self._truncate(write.truncate_from)
        if write.entries:
            self._truncate(write.entries[0].index)
            self.entries.update((entry.index, entry) for entry in write.entries)

    def _truncate(self, index: LogIndex) -> None:
        for at in [at for at in self.entries if at >= index]:
            del self.entries[at]

    def crash(self, surviving_writes: int) -> None:
        """Power fails: of the unsynced writes the oldest few may have reached the medium, the rest is gone."""
        self.sync(surviving_writes)
        self.writes.clear()
        self.hard_states.clear()

    def lose(self, count: int) -> None:
        """The last ``count`` entries are gone from the medium, and the log notices."""
        for index in sorted(self.entries)[-count:]:
            self.lost[index] = self.entries.pop(index)
        terms = [self.hard_state.term, Term(1), *(entry.term for entry in self.entries.values())]
        terms += [self.snapshot.term] if self.snapshot is not None else []
        self.hard_state = HardState(term=Term(max(terms) + 1), voted_for=NOBODY, forgetful=True)

    def sync_hard_state(self) -> None:
        """Make the oldest hard state durable."""
        self.hard_state = self.hard_states.popleft()
        if not self.hard_state.forgetful:
            self.lost.clear()

    def wipe(self) -> None:
        """Everything is deleted."""
        self.hard_state, self.snapshot = HardState(term=Term(0), voted_for=NOBODY), None
        for part in (self.entries, self.lost, self.writes, self.hard_states):
            part.clear()

    def has(self, index: LogIndex, term: Term) -> bool:
        """Whether an entry would survive a crash now."""
        if self.snapshot is not None and index <= self.snapshot.index:
            return self.snapshot.state[index - 1][0] == term
        entry = self.entries.get(index)
        return entry is not None and entry.term == term

    def had(self, index: LogIndex, term: Term) -> bool:
        """Whether an entry would survive a crash now, or was lost and nobody may count on this member."""
        entry = self.lost.get(index)
        return self.has(index, term) or (entry is not None and entry.term == term)

    def special(self) -> list[Entry]:
        """The no-ops and configurations above the snapshot: Raft must know of them at the start."""
        above = self.snapshot.index if self.snapshot is not None else 0
        return [self.entries[at] for at in sorted(self.entries) if at > above and self.entries[at].kind is not COMMAND]

    def configurations(self, created_with: Configuration, above: int) -> list[Configuration]:
        """The configuration in effect at index ``above`` and those of the entries behind it; none if the log is
        shorter."""
        if max(self.entries, default=0) < above and (self.snapshot is None or self.snapshot.index < above):
            return []
        found = [self.snapshot.configuration if self.snapshot is not None else created_with]
        for entry in self.special():
            if entry.kind is EntryKind.CONFIG:
                found = found if entry.index > above else []
                found.append(Configuration.decode(entry.payload))
        return found

    def recover(self) -> LogView:
        """The view of the log that a restart finds, trimmed as the log layer would trim it."""
        indexes = sorted(self.entries)
        runs = [(at, self.entries[at].term) for at in indexes]
        starts = [run for before, run in zip([None, *runs], runs, strict=False) if not before or before[1] != run[1]]
        view = LogView.recovered(self.snapshot, starts, indexes[-1] if indexes else LogIndex(0))
        for at in [at for at in indexes if not view.snapshot_index < at <= view.last_index]:
            del self.entries[at]
        return view
