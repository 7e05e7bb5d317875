"""Where a member stands: what all parts of the core read, and the few changes that must happen together.

The parts (``elections``, ``follower``, ``leadership``) share one :class:`Standing`. It owns the rules that would break
if two places knew them: a new term clears the vote, an entry in the log and the configuration it brings come and go
together, and the commit index only rises.
"""

from __future__ import annotations

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.configuration import Configuration, History
from reference_broker.raft.log_view import LogView
from reference_broker.raft.machine_version import noop_version
from reference_broker.raft.outbox import Outbox
from reference_broker.raft.ready import HardState, Role
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term


class Standing:
    """Term, vote, role, log and membership of one member of one group."""

    __slots__ = (
        "commit_index",
        "config",
        "configurations",
        "down",
        "leader",
        "log",
        "machine_version",
        "node",
        "outbox",
        "pending",
        "replica_id",
        "role",
        "term",
        "versions",
        "voted_for",
    )

    def __init__(
        self,
        node: NodeId,
        members: tuple[NodeId, ...],
        log: LogView,
        hard_state: HardState,
        config: RaftConfig,
        machine_version: int,
        replica_id: int,
    ) -> None:
        self.replica_id = replica_id
        self.node, self.log, self.config, self.machine_version = node, log, config, machine_version
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        self.commit_index = log.snapshot_index
        self.term, self.voted_for = hard_state.term, hard_state.voted_for
        self.configurations = History(Configuration(members))
        self.versions = History(0)
        self.down: set[NodeId] = set()
        self.outbox = Outbox()
        self.pending = False

    # Questions

    @property
    def configuration(self) -> Configuration:
        """The configuration in effect: the latest in the log, committed or not (section 6)."""
        return self.configurations.latest

    @property
    def machine_version_in_effect(self) -> int:
        """The version of the newest no-op in the log; 0 if none is known."""
        return self.versions.latest

    @property
    def is_voter(self) -> bool:
        """Whether the configuration in effect counts this member."""
        return self._is_voter_of(self.configurations.latest)

    def _is_voter_of(self, configuration: Configuration) -> bool:
        return self.node in configuration.voters and (
            not (configuration.replica_ids or self.replica_id)
            or configuration.replica_id_of(self.node) == self.replica_id
        )

    @property
    def may_campaign(self) -> bool:
        """Whether this member may ask for votes.

        One whose removal may not be committed yet may (thesis 4.2.2): the others may need it to get that far. The
        configuration before the newest is the one to look at, for it must be committed, or there would be none after
        it; the commit index knows of less after a restart.
        """
        newest = self.configurations.latest_index
        return self.is_voter or (
            newest > self.commit_index and self._is_voter_of(self.configurations.at(LogIndex(newest - 1)))
        )

    @property
    def may_vote(self) -> bool:
        """Whether this member's log ever named it, under its present replica id. That of a joining member does not yet.

        A learner votes if asked: who asks holds the entry that promotes it, and may need the vote to send it.
        """
        return any(
            self.node in configuration.members and configuration.replica_id_of(self.node) == self.replica_id
            for configuration in self.configurations.all()
        )

    @property
    def is_superseded(self) -> bool:
        """Whether the log names a later replica of this node. What this one has on disk goes when the node hears of
        that, so it claims nothing any more: the leader would count it for the later one."""
        return self.configurations.latest.replica_id_of(self.node) > self.replica_id

    @property
    def trusts_leader(self) -> bool:
        """A leader is known, it is somebody else, nobody suspects its node, and it is not being removed."""
        leader = self.leader
        return leader not in (NOBODY, self.node) and leader not in self.down and leader in self.configuration.voters

    @property
    def change_under_way(self) -> bool:
        """Whether a configuration change has to wait: for the one before, or for the leader's first entry.

        The second is the correction of thesis 4.1 (Ongaro, raft-dev, July 2015): until an entry of the own term is
        committed, a change of an earlier leader may still replace the newest one in this log.
        """
        commit = self.commit_index
        return self.configurations.latest_index > commit or self.log.term_at(commit) != self.term

    # Changes

    def raise_term(self, term: Term) -> None:
        """A new term and its cleared vote are one change: a crash between the two could vote twice."""
        if term > self.term:
            self.term, self.voted_for = term, NOBODY
            self.outbox.hard_state_changed = True

    def vote_for(self, node: NodeId) -> None:
        """The vote of the current term is given."""
        if self.voted_for != node:
            self.voted_for = node
            self.outbox.hard_state_changed = True

    def raise_commit(self, index: LogIndex) -> None:
        """Everything up to ``index`` is committed."""
        if index > self.commit_index:
            self.commit_index = index
            self.pending = True

    def append(self, entry: Entry) -> None:
        """The next entry of the log."""
        self.log.append(entry.term)
        self.outbox.entries.append(entry)
        if entry.kind is not EntryKind.COMMAND:
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """What an entry that is in the log means to Raft itself."""
        if entry.kind is EntryKind.CONFIG:
            self.configurations.append(entry.index, Configuration.decode(entry.payload))
        elif entry.kind is EntryKind.NOOP:
            self.versions.append(entry.index, max(self.versions.latest, noop_version(entry.payload)))

    def truncate(self, index: LogIndex) -> None:
        """Entries at or above ``index`` are another leader's now, and what they said of members is void."""
        self.log.truncate(index)
        self.outbox.truncate(index)
        self.configurations.truncate(index)
        self.versions.truncate(index)

    def compact(self, index: LogIndex, term: Term) -> None:
        """A durable snapshot covers the log up to ``index``."""
        self.log.compact(index, term)
        self.configurations.compact(index)
        self.versions.compact(index)

    def reset(self, index: LogIndex, term: Term, configuration: Configuration, version: int) -> None:
        """A snapshot that another member took replaces the log."""
        self.log.reset(index, term)
        self.outbox.reset(index)
        self.configurations.reset(configuration)
        self.versions.reset(max(version, self.versions.at(self.commit_index)))
        self.commit_index = index
