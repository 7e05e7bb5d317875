"""The short ways of followers and leaders beside the general way: each is tried on the member, and compared with a copy
of the member that goes the general way."""

from __future__ import annotations

import copy
from typing import Any

from reference_broker.raft import steady, wire
from reference_broker.raft.core import RaftCore
from reference_broker.raft.messages import AppendEntries, AppendReply
from reference_broker.raft.ready import Ready, Send, SendEntries
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term
from tests.reference_broker.raft.testing.checker import Violation


def take(core: RaftCore, sender: NodeId, message: AppendEntries) -> bool:
    """``steady.take`` of a follower, compared."""
    before, twin = state(core), copy.deepcopy(core)
    if not steady.take(core, message):
        _same(before, state(core), f"{message} was not taken, and changed the member")
        return False
    twin.step(sender, message)
    general, short = _all(twin), _all(copy.deepcopy(core))
    _same(general[0], tuple(message.entries), "entries")
    _same(general[1:], short[1:], "answers and commit index")
    _same(state(twin), state(_drained(core)), "state")
    return True


def answer(core: RaftCore) -> AppendReply | None:
    """``steady.answer``, compared."""
    if core.leader == core.node:
        assert steady.answer(core) is None
        return None
    before, twin = state(core), copy.deepcopy(core)
    reply = steady.answer(core)
    if reply is None:
        _same(before, state(core), "no answer, and the member changed")
        return None
    entries, messages, _commit = _all(twin)
    _same(entries, (), "an answer alone")
    _same(messages, [b"".join(wire.encode(GroupId(1), reply))], "octets of the answer")
    _same(state(twin), state(core), "state")
    return reply


def propose(core: RaftCore, payload: bytes, crc: int) -> tuple[Entry, list[SendEntries]] | None:
    """``steady.propose`` of a leader, compared: the entry, and the messages that take it to followers."""
    assert core.leadership is not None
    before, twin = state(core), copy.deepcopy(core)
    made = steady.propose(core.leadership, payload, crc)
    if made is None:
        _same(before, state(core), "nothing was proposed, and the leader changed")
        return None
    entry, nodes = made
    sends = [
        SendEntries(
            to=node, term=entry.term, prev_index=LogIndex(entry.index - 1), prev_term=entry.term,
            commit=core.commit_index, first=entry.index, last=entry.index,
        )
        for node in nodes
    ]  # fmt: skip
    twin.propose(EntryKind.COMMAND, payload, crc)
    ready = twin.ready()
    _same(_only(ready), ((entry,), tuple(sends), core.commit_index), "proposal")
    _same(state(twin), state(core), "state")
    return entry, sends


def take_commit(core: RaftCore) -> list[SendEntries] | None:
    """``steady.take_commit`` of a leader and the notices that follow, compared."""
    leadership = core.leadership
    assert leadership is not None
    before, twin = state(core), copy.deepcopy(core)
    if not steady.take_commit(core):
        _same(before, state(core), "no commit was taken, and the leader changed")
        return None
    notices = [send for node in leadership.progress if (send := leadership.notice(node)) is not None]
    _same(_only(twin.ready()), ((), tuple(notices), core.commit_index), "notices")
    _same(state(twin), state(core), "state")
    return notices


def synced(core: RaftCore, index: LogIndex, term: Term) -> bool:
    """``steady.synced`` of a leader, compared."""
    before, twin = state(core), copy.deepcopy(core)
    if not steady.synced(core, index, term):
        _same(before, state(core), "a notice was not taken, and changed the member")
        return False
    twin.synced(index, term)
    _same(state(twin), state(core), "state")
    _same(twin.next_ready.committed, core.next_ready.committed, "whether more is committed")
    return True


def answered(core: RaftCore, sender: NodeId, message: AppendReply) -> bool:
    """``steady.answered`` of a leader, compared."""
    before, twin = state(core), copy.deepcopy(core)
    if not steady.answered(core, sender, message):
        _same(before, state(core), f"{message} was not taken, and changed the member")
        return False
    twin.step(sender, message)
    _same(state(twin), state(core), "state")
    _same(twin.next_ready.committed, core.next_ready.committed, "whether more is committed")
    return True


def _only(ready: Ready) -> tuple[Any, ...]:
    """Entries, messages and commit index; nothing else may be there."""
    rest = (ready.hard_state, ready.truncate_from, ready.reset_to, ready.reads, ready.reads_refused)
    if rest != (None, None, None, (), ()):
        raise Violation(f"the short way left out {ready}")
    return ready.append, ready.messages, ready.commit


def state(core: RaftCore) -> dict[str, Any]:
    """All that the next step of a member depends on."""
    log, follower, leadership = core.log, core.follower, core.leadership
    followers = leadership.progress.values() if leadership is not None else ()
    return {
        "followers": [{name: getattr(each, name) for name in each.__slots__} for each in followers],
        "core": (core.term, core.voted_for, core.role, core.leader, core.timer.left, core.next_ready.pending),
        "log": log.describe(),
        "indexes": (log.last_index, log.last_term, log.synced_index, log.commit_index, log.snapshot_index),
        "follower": {name: getattr(follower, name) for name in follower.__slots__ if name not in ("_log", "_next")},
    }


def _drained(core: RaftCore) -> RaftCore:
    twin = copy.deepcopy(core)
    _all(twin)
    return twin


def _all(core: RaftCore) -> tuple[tuple[Any, ...], list[bytes], int]:
    """Entries, octets of messages, and commit index of all that is ready."""
    entries: list[Any] = []
    messages: list[bytes] = []
    while core.has_ready:
        ready: Ready = core.ready()
        if ready.hard_state is not None or ready.truncate_from is not None or ready.reset_to is not None:
            raise Violation(f"the short way left out {ready}")
        entries += ready.append
        for outgoing in ready.messages:
            if not isinstance(outgoing, Send) or outgoing.to != core.leader:
                raise Violation(f"the short way left out {outgoing}")
            messages.append(b"".join(wire.encode(GroupId(1), outgoing.message)))
    return tuple(entries), messages, core.commit_index


def _same(general: object, short: object, what: str) -> None:
    if general != short:
        raise Violation(f"{what}: the general way {general}, the short way {short}")
