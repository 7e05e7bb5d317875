"""The leader's knowledge of one follower, and which messages the leader may send it next.

Theory of operation
-------------------
``PROBE``
    The leader does not know where the logs differ. It sends one empty AppendEntries and waits for the answer; a
    rejection names an earlier index, and the leader asks again. With one question at a time a divergence costs a few
    small messages.
``PIPELINE``
    The logs agree up to ``next_index - 1``. Entries go out as they come, ``next_index`` moves when they are *sent*;
    ``match_index`` moves when the follower has them *on disk*. The window bounds the difference.
``SNAPSHOT``
    The next entry is compacted away. The leader sends one chunk of the snapshot at a time, and the next chunk after the
    answer.

A probe carries a commit index of zero. So an empty AppendEntries that *raises* a follower's commit index is always a
commit notice, which a follower need not answer: that spares two messages a commit on a quiet queue. A lost commit
notice would stay unnoticed, because none is answered. So ``tick`` repeats the last notice once, and a follower that
already knew the commit index answers.

Invariants: ``match_index < next_index``; ``match_index`` counts only entries that the follower said are on its disk and
whose term is the term in the leader's log; in PROBE and SNAPSHOT at most one message is unanswered.
"""

from __future__ import annotations

from enum import StrEnum

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import AppendReply, InstallReply
from reference_broker.raft.ready import Outgoing, SendEntries, SendSnapshot
from reference_broker.types import LogIndex, NodeId, Term


class Flow(StrEnum):
    """How entries flow to a follower."""

    PROBE = "probe"
    PIPELINE = "pipeline"
    SNAPSHOT = "snapshot"


class Progress:
    """The leader's view of one follower. Lives for one term."""

    __slots__ = (
        "_asked",
        "announced",
        "chunk",
        "commit_sent",
        "flow",
        "match_index",
        "next_index",
        "node",
        "quiet_ticks",
        "reachable",
        "repeated",
        "snapshot_index",
        "told_synced",
        "unanswered_notice",
    )

    def __init__(self, node: NodeId, next_index: LogIndex, reachable: bool) -> None:
        self.node = node
        self.next_index = next_index
        self.match_index = LogIndex(0)
        self.reachable = reachable
        self.snapshot_index = LogIndex(0)
        self.quiet_ticks = 0
        self.probe(next_index)

    # Changes of flow

    def probe(self, next_index: LogIndex) -> None:
        """Ask whether the logs agree before ``next_index``."""
        self.flow = Flow.PROBE
        self.next_index = next_index
        self._asked = False
        self.announced = False
        """The follower is to hear from its leader, whatever there is to say."""
        self.commit_sent = LogIndex(0)
        self.unanswered_notice = False
        self.repeated = False
        self.told_synced = LogIndex(0)
        """The last entry on the leader's disk that the follower was told."""
        self.chunk = 0

    def reconnect(self) -> None:
        """The link is new: messages under way may be lost, and so may the follower's disk. To count too little is
        safe."""
        self.reachable = True
        self.match_index = LogIndex(0)
        self.quiet_ticks = 0
        self.probe(self.next_index)

    def announce(self) -> None:
        """Let the follower hear from its leader, whatever else there is to say."""
        self.announced = True
        self._asked = False

    def _begin_snapshot(self, index: LogIndex) -> None:
        self.flow = Flow.SNAPSHOT
        self.snapshot_index = index
        self.chunk = 1
        self._asked = False

    # Sending

    def collect(self, log: LogView, term: Term, commit: LogIndex, config: RaftConfig, out: list[Outgoing]) -> None:
        """Add to ``out`` the messages that may be sent now, and count them as sent."""
        if not self.reachable and not self.announced:
            return
        if self.flow is Flow.PIPELINE and self.next_index <= log.snapshot_index:
            self._begin_snapshot(log.snapshot_index)
        if self.flow is Flow.PIPELINE:
            self._collect_pipeline(log, term, commit, config, out)
        elif not self._asked:
            self._asked = True
            self.announced = False
            self._ask(log, term, out)

    def _ask(self, log: LogView, term: Term, out: list[Outgoing]) -> None:
        if self.flow is Flow.PROBE and log.term_at(LogIndex(self.next_index - 1)) is None:
            self._begin_snapshot(log.snapshot_index)
            self._asked = True
        if self.flow is Flow.SNAPSHOT:
            out.append(SendSnapshot(to=self.node, term=term, index=self.snapshot_index, number=self.chunk))
        else:
            out.append(self._entries(log, term, LogIndex(0), LogIndex(self.next_index - 1)))

    def _collect_pipeline(
        self, log: LogView, term: Term, commit: LogIndex, config: RaftConfig, out: list[Outgoing]
    ) -> None:
        last = min(log.last_index, self.match_index + config.max_pipeline_entries)
        if self.next_index <= last:
            self._collect_entries(log, term, commit, LogIndex(last), config.max_entries_per_append, out)
        elif self.announced or self._has_notice(commit):
            self.repeated = self.repeated and not self._has_notice(commit)
            if self.announced or not self._knows(commit):
                out.append(self._entries(log, term, commit, LogIndex(self.next_index - 1)))
            self.commit_sent = commit
            self.unanswered_notice = True
        self.announced = False

    def _has_notice(self, commit: LogIndex) -> bool:
        return min(commit, self.next_index - 1) > self.commit_sent

    def _knows(self, commit: LogIndex) -> bool:
        """Whether the follower needs no notice: it has the entries on disk, and was told that the leader has them, too.
        That message may be lost, as a notice may: ``tick`` sends a real notice."""
        return min(commit, self.next_index - 1) <= min(self.told_synced, self.match_index)

    def may_know(self, synced: LogIndex, change: LogIndex) -> bool:
        """Whether the follower gains from the news that the leader has entries up to ``synced`` on disk: they were sent
        to it, it has not confirmed them, and it was told that the newest ``change`` of members is committed."""
        is_sent = self.flow is Flow.PIPELINE and self.reachable and self.match_index < synced < self.next_index
        return is_sent and synced > self.told_synced and self.commit_sent >= change

    def lacks_entries(self, last: LogIndex) -> bool:
        """Whether there is an entry that the follower was not sent."""
        return self.next_index <= last

    def lacks_commit(self, commit: LogIndex) -> bool:
        """Whether the follower was not sent the commit index."""
        return self._has_notice(commit)

    def _collect_entries(
        self, log: LogView, term: Term, commit: LogIndex, last: LogIndex, per_message: int, out: list[Outgoing]
    ) -> None:
        while self.next_index <= last:
            end = LogIndex(min(last, self.next_index + per_message - 1))
            out.append(self._entries(log, term, commit, end))
            self.next_index = LogIndex(end + 1)
        self.commit_sent = commit
        self.unanswered_notice = False

    def _entries(self, log: LogView, term: Term, commit: LogIndex, last: LogIndex) -> SendEntries:
        prev = LogIndex(self.next_index - 1)
        prev_term = log.term_at(prev)
        assert prev_term is not None, "entries are sent only from where the log can be read"
        return SendEntries(
            to=self.node,
            term=term,
            prev_index=prev,
            prev_term=prev_term,
            commit=commit,
            first=self.next_index,
            last=last,
        )

    def notice(self, log: LogView, term: Term) -> SendEntries | None:
        """A notice of the commit index, counted as sent, if the follower lacks it and can be told now."""
        commit = log.commit_index
        if self.flow is not Flow.PIPELINE or not self.reachable or not self._has_notice(commit):
            return None
        if self.next_index <= log.snapshot_index:
            return None  # it gets a snapshot, as soon as it has answered the message under way
        self.repeated = False
        self.commit_sent = commit
        self.unanswered_notice = True
        if self._knows(commit):
            return None
        return self._entries(log, term, commit, LogIndex(self.next_index - 1))

    # Answers

    def accepted(self, reply: AppendReply, log: LogView) -> bool:
        """The follower's log agrees. True when more of it is known to be on its disk."""
        self.quiet_ticks = 0
        if self.repeated:
            self.unanswered_notice = self.repeated = False
        advanced = reply.synced_index > self.match_index and self._is_ours(reply, log)
        if advanced:
            self.match_index = reply.synced_index
        if self.flow is Flow.PROBE:
            self.probe(LogIndex(min(max(reply.next_index, self.match_index + 1), log.last_index + 1)))
            self.flow = Flow.PIPELINE
        return advanced

    @staticmethod
    def _is_ours(reply: AppendReply, log: LogView) -> bool:
        """By log matching (5.3) the same term at the same index means the same log up to there."""
        return reply.synced_index <= log.snapshot_index or log.term_at(reply.synced_index) == reply.synced_term

    def rejected(self, wanted: LogIndex) -> bool:
        """The logs differ before the entries that were sent; the follower wants ``wanted``. True for a new probe.

        A rejection answers an earlier message, so a real rejection wants less than ``next_index``. Any other rejection
        is an echo: of messages pipelined behind the first rejected message, or of a network that reorders.
        """
        if self.flow is Flow.SNAPSHOT or not self.match_index < wanted < self.next_index:
            return False
        self.quiet_ticks = 0
        self.probe(wanted)
        return True

    def chunk_answered(self, reply: InstallReply, log: LogView) -> bool:
        """A chunk arrived, or the follower has all of it. True when there is something to send.

        The shell may have sent chunk 1 of a newer snapshot than the one named here; then that one counts.
        """
        if self.flow is not Flow.SNAPSHOT:
            return False
        if reply.done:
            self.probe(LogIndex(reply.index + 1))
        elif reply.number == 0:
            self._begin_snapshot(log.snapshot_index)
        elif (reply.index, reply.number) == (self.snapshot_index, self.chunk) or (
            reply.index > self.snapshot_index and reply.number == 1
        ):
            self._begin_snapshot(reply.index)
            self.chunk = reply.number + 1
        else:
            return False
        self.quiet_ticks = 0
        return True

    # Time

    @property
    def waits(self) -> bool:
        """Whether something is unanswered, so that ticks matter."""
        return self.reachable and (
            self.flow is not Flow.PIPELINE or self.unanswered_notice or self.match_index < self.next_index - 1
        )

    def tick(self, resend_ticks: int) -> bool:
        """One tick without an answer. True when the follower was silent too long and there is something to send
        again."""
        if not self.waits:
            return False
        self.quiet_ticks += 1
        if self.quiet_ticks < resend_ticks:
            return False
        self.quiet_ticks = 0
        if self.flow is not Flow.PIPELINE:
            self._asked = False
        elif self.match_index < self.next_index - 1:
            self.probe(self.next_index)
        else:
            self.announced = self.repeated = True
        return True

    def describe(self) -> str:
        """One line for transcripts and status."""
        chunk = f" snapshot {self.snapshot_index} chunk {self.chunk}" if self.flow is Flow.SNAPSHOT else ""
        away = "" if self.reachable else " unreachable"
        return f"{self.flow} match {self.match_index} next {self.next_index}{chunk}{away}"
