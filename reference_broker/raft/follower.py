"""The follower's side of replication: which entries to write and commit, and what to answer when.

Theory of operation
-------------------
A follower knows its log to equal its leader's log only up to ``verified``, the end of the last AppendEntries that
fitted. Everything that the follower tells the leader or commits stays at or below ``verified``, because the entries
behind it are not compared yet, and may be a former leader's.

The follower answers success after a sync of its disk: one answer a sync, however many messages the sync covers. It
answers at once when there was nothing to write, and not at all when the message was only a new commit index (see
``progress``). It answers a rejection at once, but only the first of a row, because the entries pipelined behind the
first fail for the same reason. A probe has no entries and is always answered, so a lost rejection does no lasting harm.

Entries are overwritten only once the disk has caught up with the log (``log_view`` tells why). Until then the follower
does not answer about entries that do not fit; then it rejects them, and the leader sends again.

Invariants: ``commit <= verified`` from the moment a leader of the term is known; nothing at or below the commit index
is ever truncated.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_broker.raft.errors import SafetyViolationError
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import AppendEntries, AppendReply
from reference_broker.raft.quorum import PAIR, majority
from reference_broker.raft.ready import NextReady
from reference_broker.types import Entry, LogIndex, NodeId, Term


class Follower:
    """Lives as long as the member; :meth:`follow` starts over under another leader."""

    __slots__ = ("_log", "_next", "answer_due", "blocked_at", "leader_synced", "rejected", "told", "verified")

    def __init__(self, log: LogView, next_ready: NextReady) -> None:
        self._log = log
        self._next = next_ready
        self.follow()

    def follow(self) -> None:
        """Another leader or term. Committed entries are in every later leader's log (5.4.3), so they need no proof."""
        self.verified = self._log.commit_index
        self.leader_synced = LogIndex(0)
        """The leader has said that it has entries up to this one on disk."""
        self.answer_due = False
        self.told = LogIndex(-1)
        """The entry up to which the last answer said that the disk has come."""
        self.rejected: tuple[LogIndex, LogIndex] | None = None
        self.blocked_at: LogIndex | None = None
        """The index at which entries must be overwritten once the disk has caught up."""

    def start_over_at(self, index: LogIndex) -> None:
        """The log was replaced by a snapshot that ends at ``index``."""
        self.verified = index
        self.blocked_at = self.rejected = None

    def commit(self, index: LogIndex) -> None:
        """Everything up to ``index`` is committed."""
        if index > self._log.commit_index:
            self._log.commit_index = index
            self._next.pending = True

    # AppendEntries

    def append(self, message: AppendEntries) -> AppendReply | None:
        """Take the entries that fit. Returns a rejection to send, or None.

        After None, :attr:`verified` says how far the leader's commit index may be believed.
        """
        if not self.fits(message):
            return self._reject(message)
        self.rejected = None
        entries = message.entries
        new = self._first_new(entries) if entries else LogIndex(0)
        if not new:
            self.verified = max(self.verified, LogIndex(message.prev_index + len(entries)))
            is_notice = not entries and min(message.commit, self.verified) > self._log.commit_index
            self.answer_due = self.answer_due or not is_notice or self.told != self._synced()
        elif self._make_room(new, message.term):
            self._store(entries[new - entries[0].index :], message.term)
            self.verified = self._log.last_index
        return None

    def fits(self, message: AppendEntries) -> bool:
        """Figure 2, AppendEntries, receiver step 2. Entries that a snapshot covers are committed, so they fit."""
        prev = message.prev_index
        return prev < self._log.snapshot_index or self._log.term_at(prev) == message.prev_term

    def _first_new(self, entries: Sequence[Entry]) -> LogIndex:
        """The first entry that the log does not have; 0 if it has them all."""
        log = self._log
        if entries[0].index > log.last_index:
            return entries[0].index
        for entry in entries:
            if entry.index > log.snapshot_index and log.term_at(entry.index) != entry.term:
                return entry.index
        return LogIndex(0)

    def _make_room(self, index: LogIndex, by: Term) -> bool:
        """Figure 2, step 3: drop the entries that conflict. False if that has to wait for the disk."""
        log = self._log
        if index > log.last_index:
            return True
        if index <= log.commit_index:
            raise SafetyViolationError(f"the leader of term {by} has another entry at {index}, which is committed here")
        if not log.is_synced:
            self.blocked_at = index
            return False
        log.truncate(index)
        self._next.truncate(index)
        return True

    def _store(self, entries: Sequence[Entry], by: Term) -> None:
        """Figure 2, step 4."""
        log = self._log
        for entry in entries:
            if not log.last_term <= entry.term <= by:
                raise SafetyViolationError(f"entry {entry.index}@{entry.term} after term {log.last_term}, under {by}")
            log.append_entry(entry)
        self._next.entries += entries
        self._next.pending = True
        self.blocked_at = None

    def _reject(self, message: AppendEntries) -> AppendReply | None:
        prev = message.prev_index
        wanted = self._wanted(prev)
        if self.blocked_at is not None:
            return None
        if message.entries and self.rejected is not None and self.rejected[0] == wanted and prev > self.rejected[1]:
            return None
        self.rejected = (wanted, prev)
        return self._reply(message.term, success=False, next_index=wanted)

    def _wanted(self, prev: LogIndex) -> LogIndex:
        """The leader's next place to try: behind our log, or at the start of the term that differs (end of 5.3)."""
        commit = self._log.commit_index
        if prev > self._log.last_index:
            return LogIndex(self._log.last_index + 1)
        if prev <= commit:
            raise SafetyViolationError(f"the leader has another entry at {prev}, which is committed here")
        return LogIndex(max(commit + 1, self._log.run_start(prev)))

    # Answers

    def synced(self) -> None:
        """The disk has come further. The leader wants to know, if verified entries are among the newly synced."""
        if self._synced() > self.told or (self.blocked_at is not None and self._log.is_synced):
            self.answer_due = True

    def know(self, term: Term, leader: NodeId) -> None:
        """Entries on the disks of this voter and its leader are committed, if the two are a majority. For entries of an
        older term, and while a change of members is not committed here, the leader alone counts."""
        log, index = self._log, self.common
        if index <= log.commit_index or log.configurations.latest_index > log.commit_index:
            return
        voters = log.configuration.voters
        if leader in voters and majority(len(voters)) == PAIR and log.term_at(index) == term:
            log.commit_index = index
            self._next.committed = True

    @property
    def common(self) -> LogIndex:
        """The last entry that both the leader and this follower have on disk, as far as the follower knows."""
        return min(self._synced(), self.leader_synced)

    def answer(self, term: Term) -> AppendReply:
        """The answer that is due, with the state of now."""
        self.answer_due = False
        if self.blocked_at is not None and self._log.is_synced:
            wanted, self.blocked_at = self.blocked_at, None
            return self._reply(term, success=False, next_index=wanted)
        self.told = self._synced()
        return self._reply(term, success=True, next_index=LogIndex(self.verified + 1))

    def _synced(self) -> LogIndex:
        return min(self._log.synced_index, self.verified)

    def _reply(self, term: Term, *, success: bool, next_index: LogIndex) -> AppendReply:
        synced = self._synced()
        synced_term = self._log.term_at(synced)
        assert synced_term is not None, "the synced part of the log can be read"
        return AppendReply(
            term=term, success=success, next_index=next_index, synced_index=synced, synced_term=synced_term
        )
