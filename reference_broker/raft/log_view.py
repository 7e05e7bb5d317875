"""Raft's view of its log: the term of each entry, members and machine version, the ends of disk and commit.

Theory of operation
-------------------
Payloads belong to the log layer. Consecutive entries nearly always share their term, so the view keeps one pair (first
index, term) for each run of equal terms: a log of a million entries under three leaders takes three pairs, and a
look-up of the newest entries, the usual case, is one comparison.

An entry that concerns Raft itself (see ``configuration``) comes and goes together with the configuration or machine
version that it brings.

The view changes at once when the core decides to append; the disk follows. ``synced_index`` is the part of the view
that is known to be on disk, told by notices of the WAL. A notice travels between threads and may be late, so it
counts only if the view still has its term at its index.

That check is not enough by itself. An entry that was written, overwritten and then written *again* could count because
of its first writing, although a crash would bring back the entry that overwrote it. So the log is truncated only while
every entry in it is known to be on disk: then no notice is under way, and no notice can be mistaken for a later notice.
(Tried before: to ignore notices of terms below the term of the leader that truncated. It is safe, but a follower whose
window is full of such entries never gets to the entry that would count.)

Invariants: ``snapshot_index <= synced_index <= last_index``; ``snapshot_index <= commit_index``; the commit index only
rises; runs are ascending in index and in term; the first run starts at ``snapshot_index + 1``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

from reference_broker.raft.configuration import Configuration, History, noop_version
from reference_broker.types import Entry, EntryKind, LogIndex, NodeId, Term

_NONE: Final = LogIndex(0)
_NO_TERM: Final = Term(0)
_NO_MEMBERS: Final = Configuration(())


class SnapshotPoint(Protocol):
    """The end of a snapshot: its last included entry."""

    @property
    def index(self) -> LogIndex:
        """The last included entry."""

    @property
    def term(self) -> Term:
        """Its term."""


class LogView:
    """Terms by index. A recovered log is on disk, so all of it counts as synced."""

    __slots__ = (
        "_starts",
        "commit_index",
        "configurations",
        "last_index",
        "last_term",
        "snapshot_index",
        "snapshot_term",
        "synced_index",
        "terms",
        "versions",
    )

    def __init__(
        self,
        *,
        snapshot_index: LogIndex = _NONE,
        snapshot_term: Term = _NO_TERM,
        runs: Sequence[tuple[LogIndex, Term]] = (),
        last_index: LogIndex | None = None,
    ) -> None:
        """``runs`` are (first index, term) of the recovered entries, ascending, starting after the snapshot.

        Raises ValueError when the runs leave a gap or go back: a log like that must not take part in elections.
        """
        self.snapshot_index = snapshot_index
        self.snapshot_term = snapshot_term
        self.last_index = last_index if last_index is not None else snapshot_index
        self._starts = [start for start, _ in runs]
        self.terms = [term for _, term in runs]
        """Of the runs. While there is one, an entry of the last term changes :attr:`last_index` alone."""
        self._check(runs)
        self.last_term = self.terms[-1] if self.terms else snapshot_term
        self.synced_index = self.last_index
        self.commit_index = snapshot_index
        self.configurations = History(_NO_MEMBERS)
        self.versions = History(0)

    @classmethod
    def recovered(
        cls, snapshot: SnapshotPoint | None, runs: Sequence[tuple[LogIndex, Term]], last_index: LogIndex
    ) -> LogView:
        """The view of the log that was found on disk. Entries that the snapshot covers, too, are left out.

        A log that has *another* entry where the snapshot ends is left out whole. In that case the node crashed after it
        took over its leader's snapshot and before it dropped the log that the snapshot replaces. The shell sees this by
        ``last_index``, and must reset the log on disk before it appends to the log.
        Raises ValueError as the constructor does.
        """
        if snapshot is None:
            return cls(runs=runs, last_index=last_index)
        base = snapshot.index
        if last_index <= base:
            return cls(snapshot_index=base, snapshot_term=snapshot.term)
        at_base = [term for start, term in runs if start <= base]
        if at_base and at_base[-1] != snapshot.term:
            return cls(snapshot_index=base, snapshot_term=snapshot.term)
        covered = sum(start <= base + 1 for start, _ in runs)
        head = [(LogIndex(base + 1), runs[covered - 1][1])] if covered else []
        return cls(
            snapshot_index=base, snapshot_term=snapshot.term, runs=[*head, *runs[covered:]], last_index=last_index
        )

    def _check(self, runs: Sequence[tuple[LogIndex, Term]]) -> None:
        starts, terms = self._starts, self.terms
        sound = self.last_index >= starts[-1] if starts else self.last_index == self.snapshot_index
        sound = sound and (not starts or starts[0] == self.snapshot_index + 1)
        sound = (
            sound
            and starts == sorted(set(starts))
            and [self.snapshot_term, *terms] == sorted([self.snapshot_term, *terms])
        )
        if not sound:
            raise ValueError(
                f"recovered log has a gap or goes back: snapshot {self.snapshot_index}@{self.snapshot_term},"
                f" runs {list(runs)}, last index {self.last_index}"
            )

    @property
    def configuration(self) -> Configuration:
        """The configuration in effect: the latest in the log, committed or not (section 6)."""
        return self.configurations.latest

    def names(self, node: NodeId, replica_id: int) -> bool:
        """Whether any configuration that may be in effect names this replica of a node."""
        return any(
            node in configuration.members and configuration.replica_id_of(node) == replica_id
            for configuration in self.configurations.all()
        )

    def may_need(self, node: NodeId, replica_id: int) -> bool:
        """Whether this replica of a node is a voter, or its removal may not be committed yet (thesis 4.2.2): the others
        may need it to commit the removal. The configuration before the newest decides, for it must be committed, or
        there would be no newer one; the commit index knows of less after a restart."""
        newest = self.configurations.latest_index
        return self.configuration.has_voter(node, replica_id) or (
            newest > self.commit_index and self.configurations.at(LogIndex(newest - 1)).has_voter(node, replica_id)
        )

    def change_under_way(self, term: Term) -> bool:
        """Whether a leader of ``term`` must wait with a change of the configuration: for the change before, or for its
        own first entry.

        The second is the correction of thesis 4.1 (Ongaro, raft-dev, July 2015): until an entry of the own term is
        committed, a change of an earlier leader may still replace the newest change in this log.
        """
        return self.configurations.latest_index > self.commit_index or self.term_at(self.commit_index) != term

    @property
    def first_index(self) -> LogIndex:
        """The first entry that can still be read; ``last_index + 1`` when the log is empty."""
        return LogIndex(self.snapshot_index + 1)

    def term_at(self, index: LogIndex) -> Term | None:
        """The term of an entry or of the snapshot's end; None outside the log. Index 0 has term 0."""
        if index > self.last_index or index < self.snapshot_index:
            return None
        if index == self.snapshot_index:
            return self.snapshot_term
        if index >= self._starts[-1]:
            return self.last_term
        return self.terms[bisect_right(self._starts, index) - 1]

    def run_start(self, index: LogIndex) -> LogIndex:
        """The first entry of the run of equal terms that ``index`` belongs to. ``index`` must be in the log."""
        assert self.snapshot_index < index <= self.last_index
        return self._starts[bisect_right(self._starts, index) - 1]

    def is_up_to_date(self, last_index: LogIndex, last_term: Term) -> bool:
        """Section 5.4.1: whether a log that ends like this holds everything that this one may hold committed."""
        return last_term > self.last_term or (last_term == self.last_term and last_index >= self.last_index)

    def append(self, term: Term, count: int = 1) -> LogIndex:
        """Add ``count`` entries of one term. Returns the index of the last one."""
        assert term >= self.last_term, "terms in a log never go back"
        if not self.terms or term != self.last_term:
            self._starts.append(LogIndex(self.last_index + 1))
            self.terms.append(term)
            self.last_term = term
        self.last_index = LogIndex(self.last_index + count)
        return self.last_index

    def append_entry(self, entry: Entry) -> None:
        """Add the next entry, and the configuration or machine version that it brings."""
        self.append(entry.term)
        if entry.kind is not EntryKind.COMMAND:
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """Take in the configuration or machine version that an entry of the log brings."""
        if entry.kind is EntryKind.CONFIG:
            self.configurations.append(entry.index, Configuration.decode(entry.payload))
        elif entry.kind is EntryKind.NOOP:
            self.versions.append(entry.index, max(self.versions.latest, noop_version(entry.payload)))

    @property
    def is_synced(self) -> bool:
        """Whether all of the log is on disk, and no notice is under way."""
        return self.synced_index == self.last_index

    def truncate(self, index: LogIndex) -> None:
        """Drop every entry at or above ``index``: the leader has others there. Only while :attr:`is_synced`."""
        assert self.snapshot_index < index <= self.last_index
        assert self.is_synced, "a late notice could be mistaken for one of the entries that replace these"
        self.last_index = LogIndex(index - 1)
        while self._starts and self._starts[-1] >= index:
            self._starts.pop()
            self.terms.pop()
        self.last_term = self.terms[-1] if self.terms else self.snapshot_term
        self.synced_index = self.last_index
        self.configurations.truncate(index)
        self.versions.truncate(index)

    def mark_synced(self, index: LogIndex, term: Term) -> bool:
        """The WAL has entries up to ``index``, of ``term``, on disk. False for a notice that no longer counts."""
        if index <= self.synced_index or self.term_at(index) != term:
            return False
        self.synced_index = index
        return True

    def compact(self, index: LogIndex, term: Term) -> None:
        """A durable snapshot covers entries up to ``index``: forget them. ``index`` must be in the log."""
        assert self.snapshot_index <= index <= self.last_index
        runs = bisect_right(self._starts, index)
        if runs:
            del self._starts[: runs - 1], self.terms[: runs - 1]
            self._starts[0] = LogIndex(index + 1)
        if index == self.last_index:
            self._starts.clear()
            self.terms.clear()
        self.snapshot_index = index
        self.snapshot_term = term
        self.synced_index = max(self.synced_index, index)
        self.configurations.compact(index)
        self.versions.compact(index)

    def reset(
        self, index: LogIndex, term: Term, configuration: Configuration = _NO_MEMBERS, machine_version: int = 0
    ) -> None:
        """A durable snapshot of another member replaces the whole log."""
        self.versions.reset(max(machine_version, self.versions.at(self.commit_index)))
        self.configurations.reset(configuration)
        self.commit_index = index
        self._starts.clear()
        self.terms.clear()
        self.snapshot_index = self.last_index = self.synced_index = index
        self.snapshot_term = self.last_term = term

    def describe(self) -> str:
        """The log in one line, for transcripts and status: ``snap 4@1 | 5..7@2 8..9@3 | synced 8``."""
        ends = [*(start - 1 for start in self._starts[1:]), self.last_index]
        runs = [f"{a}..{b}@{term}" for a, b, term in zip(self._starts, ends, self.terms, strict=False)]
        return f"snap {self.snapshot_index}@{self.snapshot_term} | {' '.join(runs) or '-'} | synced {self.synced_index}"
