"""Bugs to plant: one line of production code each, as text that is replaced by other text.

A function's source is taken, changed, compiled in its own module and put in its place, so that a mutant reads like the
diff that somebody might really make. A mutant whose text is no longer there says so.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """In ``where`` (module:Class.function), ``text`` becomes ``instead``."""

    name: str
    where: str
    text: str
    instead: str


_BROKER = "reference_broker"
MUTANTS = (
    Mutant("messages do not wait for term and vote to be on disk", "node.group:GroupRunner._carry_out",
           "if self._hard_state_writes:", "if False:"),
    Mutant("entries of old terms are committed by counting", "raft.leadership:Leadership.advance_commit",
           " and at.log.term_at(index) == at.term", ""),
    Mutant("a majority is one member too small", "raft.leadership:Leadership.advance_commit",
           "committed_index(synced)", "sorted(synced)[-1]"),
    Mutant("the leader counts what it has not synced", "raft.leadership:Leadership.advance_commit",
           "at.log.synced_index", "at.log.last_index"),
    Mutant("a follower claims what it has not synced", "raft.follower:Follower._synced",
           "self._log.synced_index", "self._log.last_index"),
    Mutant("a vote is forgotten by a restart", "node.hosting:Hosting._run",
           "voted_for=state.voted_for", "voted_for=NOBODY"),
    Mutant("votes go to candidates that lack entries", "raft.log_view:LogView.is_up_to_date",
           "return last_term >", "return True or last_term >"),
    Mutant("the WAL is not synced", "log.wal:Wal.append",
           "if self._sync:", "if False:"),
    Mutant("one entry too few is truncated", "raft.follower:Follower._make_room",
           "self._at.truncate(index)", "self._at.truncate(LogIndex(min(index + 1, log.last_index)))"),
    Mutant("WAL files go while they are needed", "log.state:LogState.needed_files",
           "if file > KEPT_FILE", "if file < KEPT_FILE"),
    Mutant("an entry is applied twice", "node.group:GroupRunner._apply",
           "self.applied = entry.index", "self.applied = LogIndex(entry.index - (entry.index % 50 == 0))"),
    Mutant("a leader that loses its place confirms what it holds", "node.group:GroupRunner._notice_standing",
           "self._standing = standing",
           "self._standing = standing\n    if was_leader and standing[0] is not Role.LEADER:"
           " self._apply(self.core.log.last_index)"),
    Mutant("a snapshot lacks what consumers hold", "machines.fifo_snapshot:_encode_consumer",
           "for held in consumer.held", "for held in consumer.held[1:]"),
    Mutant("a settle is lost", "machines.fifo:FifoMachine._settle",
           "consumer = self._consumer(command.consumer)",
           "consumer = self._consumer(command.consumer) if command.ranges[0][0] % 8 != 5 else None"),
    Mutant("returned messages vanish", "machines.fifo:FifoMachine._channel_down",
           "self._take_back(consumer.release_all())", "consumer.release_all()"),
    Mutant("the redelivered flag is not set", "queues.quorum:QuorumQueue._run",
           "pieces, effect.delivery_count)", "pieces, 0)"),
    Mutant("a purge is done by one member only", "machines.fifo:FifoMachine._purge",
           "purged = self._state.ready.clear()", "purged = self._state.ready.clear() if (id(self) >> 8) % 2 else 0"),
)  # fmt: skip


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Production code with the bug in it."""
    module_name, _, path = mutant.where.partition(":")
    module = importlib.import_module(f"{_BROKER}.{module_name}")
    *owners, name = path.split(".")
    owner = module
    for each in owners:
        owner = getattr(owner, each)
    original = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    assert mutant.text in source, f"{mutant.where} no longer holds {mutant.text!r}: adapt the mutant"
    namespace = module.__dict__ | {}
    code = compile(
        source.replace(mutant.text, mutant.instead), mutant.where, "exec", __future__.annotations.compiler_flag
    )
    exec(code, namespace)
    holders = [owner] if owners else [each for each in _modules() if getattr(each, name, None) is original]
    for holder in holders:
        setattr(holder, name, namespace[name])
    try:
        yield
    finally:
        for holder in holders:
            setattr(holder, name, original)


def _modules() -> list[object]:
    """Those that may have imported a function by name."""
    return [module for name, module in sys.modules.items() if name.startswith(_BROKER)]
