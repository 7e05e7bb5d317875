"""The steady way: the steps of a member while nothing is unusual, in few calls.

Theory of operation
-------------------
Nearly always a group stands like this: one member leads, the other members follow it, all logs end alike, and no
election, change of members, transfer or read is under way. Then the result of the general way
(:class:`~reference_broker.raft.core.RaftCore` and its parts) is known beforehand, and each function here produces it
directly. If anything is unusual, the function changes nothing and says so, and the caller goes the general way.

The way of an entry: the leader *proposes* it and gets the news of its own disk (:func:`synced`) and of the followers'
(:func:`answered`), until a majority has the entry; then the leader *takes the commit*. A follower *takes* the entry and
*answers* when its disk has it.

Invariant: a function refuses and changes nothing, or leads to the same state and the same messages as the general way.
``tests/reference_broker/raft/testing/steady.py`` compares the two in storms.

Back of the envelope: for the leader of three, an entry is some ten calls here, instead of fifty.
"""

from __future__ import annotations

from reference_broker.raft.core import RaftCore
from reference_broker.raft.leadership import Leadership
from reference_broker.raft.messages import AppendEntries, AppendReply
from reference_broker.raft.progress import Flow
from reference_broker.types import Entry, EntryKind, LogIndex, NodeId, Term

# The leader


def propose(leadership: Leadership, payload: bytes, crc: int) -> tuple[Entry, list[NodeId]] | None:
    """Append a command, if every follower in reach has been sent the whole log, which ends in this term. Returns the
    entry and the followers that get it now, with the commit index. Hand the entry to the WAL and send it. The general
    way: :meth:`RaftCore.propose`, and a Ready."""
    log, term = leadership.log, leadership.term
    last, commit = log.last_index, log.commit_index
    if leadership.next_ready.pending or leadership.transferring or leadership.watching or leadership.change:
        return None
    if leadership.reads.waiting or log.last_term != term:
        return None
    window = leadership.config.max_pipeline_entries
    reached = []
    for progress in leadership.progress.values():
        if progress.announced:
            return None
        if progress.reachable:
            if progress.flow is not Flow.PIPELINE or progress.next_index != last + 1:
                return None
            if last >= progress.match_index + window:
                return None
            reached.append(progress)
    index = LogIndex(last + 1)
    if log.terms:
        log.last_index = index
    else:
        log.append(term)
    nodes = []
    for progress in reached:
        progress.next_index = LogIndex(index + 1)
        progress.commit_sent = commit
        progress.unanswered_notice = False
        nodes.append(progress.node)
    return Entry(index, term, EntryKind.COMMAND, crc, payload), nodes


def synced(core: RaftCore, index: LogIndex, term: Term) -> bool:
    """The leader's WAL has entries up to ``index``, of its own term, on disk. The general way:
    :meth:`RaftCore.synced`."""
    leadership, log = core.leadership, core.log
    if leadership is None or term != core.term or not log.synced_index < index <= log.last_index:
        return False
    if index < leadership.first_index or leadership.watching or leadership.change or leadership.reads.asked:
        return False
    log.synced_index = index
    _count(leadership)
    return True


def answered(core: RaftCore, sender: NodeId, message: AppendReply) -> bool:
    """A follower has more entries of this term on its disk, or repeats its last answer. The general way:
    :meth:`RaftCore.step`."""
    leadership = core.leadership
    if leadership is None or message.term != core.term or not message.success:
        return False
    if leadership.watching or leadership.change or leadership.reads.asked:
        return False
    progress = leadership.progress.get(sender)
    if progress is None or progress.flow is not Flow.PIPELINE or progress.repeated:
        return False
    last, index = leadership.log.last_index, message.synced_index
    if index > progress.match_index:
        if message.synced_term != message.term or not leadership.first_index <= index <= last:
            return False
        progress.match_index = index
        _count(leadership)
    progress.quiet_ticks = 0
    if progress.next_index <= last:
        leadership.next_ready.pending = True
    return True


def _count(leadership: Leadership) -> None:
    """Section 5.4.2: an entry of the own term is committed if a majority of the voters has it on disk."""
    log = leadership.log
    on_disk = []
    for progress in leadership.voting:
        on_disk.append(progress.match_index)
    if leadership.is_voter:
        on_disk.append(log.synced_index)
    on_disk.sort()
    index = on_disk[-leadership.majority]
    if index > log.commit_index and index >= leadership.first_index:
        log.commit_index = index
        leadership.next_ready.committed = True


def take_commit(core: RaftCore) -> bool:
    """Take a Ready that would only say that more is committed: apply up to the commit index. A leader's shell sees that
    followers get a :meth:`Leadership.notice` in time. The general way: :meth:`RaftCore.ready`."""
    next_ready, leadership = core.next_ready, core.leadership
    if next_ready.pending or not next_ready.committed:
        return False
    if core.follower.answer_due if leadership is None else leadership.reads.waiting:
        return False
    next_ready.committed = False
    return True


# A follower


def take(core: RaftCore, message: AppendEntries) -> bool:
    """Take a message of the leader that the member trusts. Commands of the leader's own term follow the end of the log,
    and the whole log is known to equal the leader's; or the message only commits. Hand the entries to the WAL, as a
    Ready would say; the commit index may have risen. The general way: :meth:`RaftCore.step`, and a Ready."""
    term, follower, log = message.term, core.follower, core.log
    if term != core.term or not message.leader == core.leader != core.node:
        return False
    if core.timer.left or core.next_ready.pending or core.forgetful or follower.blocked_at is not None:
        return False
    entries, last = message.entries, log.last_index
    if not (message.prev_index == last == follower.verified and message.prev_term == term == log.last_term):
        return False
    for entry in entries:
        if entry.term != term or entry.kind is not EntryKind.COMMAND:
            return False
    if entries:
        if log.terms:
            log.last_index = LogIndex(last + len(entries))
        else:
            log.append(term, len(entries))
        last = follower.verified = log.last_index
    elif min(message.commit, last) <= log.commit_index or follower.told != min(log.synced_index, last):
        return False
    follower.rejected = None
    log.commit_index = max(log.commit_index, min(message.commit, last))
    return True


def answer(core: RaftCore) -> AppendReply | None:
    """The answer to the leader that is due, if a Ready would hold nothing else."""
    follower = core.follower
    if not follower.answer_due or core.next_ready.pending or follower.blocked_at is not None:
        return None
    return follower.answer(core.term) if core.leadership is None and not core.is_superseded else None
