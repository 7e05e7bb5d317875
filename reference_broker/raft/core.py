"""One member of one Raft group: messages, ticks, proposals and notices of the disk in, a :class:`Ready` out.

Theory of operation
-------------------
The core holds no entries and does no I/O. It knows the term of each entry, and each change of members (``log_view``).
The shell calls one input or several, then takes :meth:`RaftCore.ready` and carries it out in the order that ``ready``
documents.

:class:`RaftCore` is the whole member: its term, vote, role and leader, and what each message does to them. Four parts
do the rest. ``elections`` asks for votes and counts them, ``follower`` writes what a leader sends, ``installation``
receives the leader's snapshot, and ``leadership``, made anew for each term, replicates as the leader. The role changes
in one place, by the table in ``roles``.

As in the paper: terms, the vote and its log comparison, log matching, commitment by counting for entries of the own
term only, membership by one-at-a-time changes. As in Ra:

* Every member, the leader too, counts for what it has on *disk*. The leader's write runs beside the followers' writes,
  and an entry may be committed before the leader itself has it on disk (thesis 10.2.1).
* No heartbeats. The shell tells all groups at once whether a node is up (``node_down``, ``node_up``). The timer of a
  follower stands still while the follower knows a leader on an unsuspected node. A leader that hears a pre-vote of its
  own term or an older term says that it is there.
* Pre-vote (thesis 9.6) before each election, with a token, so that a member that comes back never disturbs. Only an
  election that the leader asked for (``transfer``) has none.
* AppendEntries are made when the Ready is taken: many inputs, one message a follower.

Beyond both: a member whose drive may have lost entries is *forgetful* and neither votes nor leads (decision 22). It
begins in a term that no other member knows. So each leader that it follows was elected without it after the loss, and
has every committed entry. The member recovers once it has on disk what such a leader has committed in its own term.

Invariants: term, commit index and vote within a term never go back; at most one vote a term, durable before it is told;
a message says only what the hard state of the same or an earlier Ready covers; a leadership exists exactly while the
role is leader; a leader never overwrites its own log; a second leader in one term is never followed but stops the node;
the commit index covers only what a majority has on disk.

Back of the envelope: the leader of three pays about 15 us for an entry (propose, two answers, its own notice, two
Readys). At 1,000 entries/s, a batch of commands each, that is 1.5 % of a core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reference_broker.checksum import crc32
from reference_broker.raft.config import Jitter, RaftConfig
from reference_broker.raft.configuration import Configuration, noop_payload
from reference_broker.raft.elections import Elections, ElectionTimer
from reference_broker.raft.errors import NotLeaderError, SafetyViolationError
from reference_broker.raft.follower import Follower
from reference_broker.raft.installation import Installation
from reference_broker.raft.leadership import Leadership
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    LeaderSynced,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.quorum import VoteResult, majority
from reference_broker.raft.ready import HardState, NextReady, Ready
from reference_broker.raft.roles import NEXT_ROLE, Role, RoleEvent
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term

FIRST_TERM: Final = Term(1)
_TOKEN_MAX: Final = 2**31


class RaftCore:
    """The Raft state machine of one member. Not thread-safe: one owner calls it.

    The owner may read ``term``, ``voted_for``, ``role``, ``leader``, ``leadership`` (None if this member does not
    lead), ``log`` and ``down`` (the suspected nodes). :mod:`~reference_broker.raft.steady` has short ways for the most
    frequent inputs.
    """

    __slots__ = (
        "_elections",
        "_installation",
        "_machine_version",
        "_replica_id",
        "config",
        "down",
        "follower",
        "forgetful",
        "leader",
        "leadership",
        "log",
        "next_ready",
        "node",
        "role",
        "term",
        "timer",
        "voted_for",
    )

    def __init__(
        self,
        node: NodeId,
        members: tuple[NodeId, ...],
        log: LogView,
        hard_state: HardState,
        config: RaftConfig,
        jitter: Jitter,
        machine_version: int = 1,
        replica_id: int = 0,
    ) -> None:
        """Recovery found ``log`` and ``hard_state``; ``jitter`` is the only source of chance.

        ``members`` are the voters that the group was created with; none for a member that joins a group, which knows
        of no configuration before it receives one. ``replica_id`` tells this replica from an earlier replica of the
        same node in this group, which was removed and deleted. It is a number that the node never used in this group
        before, the number that :meth:`add` was given, and it stays the same over restarts. If the log is not empty,
        :meth:`restored` and :meth:`recovered` follow before any other input.
        Raises ValueError if ``node`` is not one of ``members`` or the settings are unsound.
        """
        problems = config.validate()
        if members and (node not in members or len(set(members)) != len(members)):
            problems.append(f"raft.members: node {node} must be one of {members}, and each member named once")
        if problems:
            raise ValueError("\n".join(problems))
        self.node, self._replica_id, self.config, self._machine_version = node, replica_id, config, machine_version
        self.term, self.voted_for, self.forgetful = hard_state.term, hard_state.voted_for, hard_state.forgetful
        self.role, self.leader = Role.FOLLOWER, NOBODY
        self.log = log
        log.configurations.reset(Configuration(members))
        self.down: dict[NodeId, None] = {}
        self.next_ready = NextReady()
        self.follower = Follower(log, self.next_ready)
        self._installation = Installation(log, self.follower)
        self.leadership: Leadership | None = None
        self.timer = ElectionTimer(config, jitter)
        self._elections = Elections(node, log, self.next_ready, machine_version, jitter(0, _TOKEN_MAX))
        # Entries and hard state are written side by side, so a crash may leave an entry of a higher term than that of
        # the hard state. No message of that term has left, so the member treats the term as if it came now.
        self._raise_term(max(hard_state.term, log.last_term))
        self._reconsider_timer()

    # Recovery

    def restored(self, configuration: Configuration, machine_version: int = 0) -> None:
        """The member's own snapshot was restored; its last entry had this configuration and machine version."""
        self.log.configurations.reset(configuration)
        self.log.versions.reset(machine_version)
        self._reconfigured()

    def recovered(self, entry: Entry) -> None:
        """Recovery found this NOOP or CONFIG entry above the snapshot. Call in the order of the log."""
        if self.log.snapshot_index < entry.index <= self.log.last_index:
            self.log.note(entry)
            self._reconfigured()

    def founded(self, leader: NodeId, *, blank: bool) -> None:
        """The decision that created the group has elected the leader of the first term: every founder gives its vote in
        that term to ``leader``. Call this on each founder after each start, before any input.

        All founders begin in that term, so no other member can stand for it, and ``leader`` needs no votes. The leader
        leads at once if it is ``blank``, that is, if nothing of this replica was found on disk: no message leaves
        before the term is on disk, so no other member knows the replica. Otherwise it may have led that term before,
        and waits for an election like the other founders.
        """
        if self.term > FIRST_TERM:
            return
        self._raise_term(FIRST_TERM)
        if self.voted_for == NOBODY:
            self._vote_for(leader)
        if blank and leader == self.node:
            self._lead(RoleEvent.ELECTED_BY_THE_FOUNDING)

    def _reconfigured(self) -> None:
        """Another configuration is in effect: a timer that was drawn under the former configuration is drawn anew."""
        self.timer.stop()
        self._reconsider_timer()

    # Inputs

    def step(self, sender: NodeId, message: Message) -> None:
        """Take a message. A request of a node that is not a member is heard (section 6: "servers accept [them] ... from
        a leader that is not part of the server's latest configuration"); an answer of such a node counts nothing.

        Raises SafetyViolationError if it contradicts a commit, or claims a second leader for a term.
        """
        answered = _ANSWERS.get(type(message))
        if answered is None:
            _HANDLERS[type(message)](self, sender, message)
        elif message.term > self.term:
            self._become_follower(RoleEvent.HIGHER_TERM, message.term)
        elif self.leadership is not None and message.term == self.term:
            answered(self.leadership, sender, message)

    def tick(self) -> None:
        """One unit of time has passed."""
        if self.leadership is not None:
            self.leadership.tick()
        elif self.timer.tick():
            self.campaign()

    def propose(self, kind: EntryKind, payload: bytes, crc: int) -> LogIndex:
        """Append an entry and replicate it. Returns its index; the entry is committed once ``commit_index`` reaches
        that index while this member still leads in the same term.

        Raises NotLeaderError, naming the leader if one is known, and TransferUnderWayError unless :attr:`accepting`.
        """
        return self._led().propose(kind, payload, crc)

    def synced(self, index: LogIndex, term: Term) -> None:
        """The WAL has entries up to ``index``, the last of them of ``term``, on disk. A late notice is ignored."""
        if not self.log.mark_synced(index, term):
            return
        if self.leadership is not None:
            self.leadership.advance_commit()
        elif self.leader != NOBODY:
            self.follower.synced()
            self._know()
            self._remember()

    def node_down(self, node: NodeId) -> None:
        """``node`` is suspected. A follower of it starts its timer, a leader stops sending to it."""
        self.down[node] = None
        if self.leadership is not None:
            self.leadership.node_down(node)
        elif node == self.leader:
            self.follower.leader_synced = LogIndex(0)  # this member knows the node's later syncs only from the node
            self._reconsider_timer()

    def node_up(self, node: NodeId) -> None:
        """``node`` answers over a new link: whatever was under way may be lost. Call it for each new link."""
        self.down.pop(node, None)
        if self.leadership is not None:
            self.leadership.node_up(node)
        elif node == self.leader:
            self.follower.leader_synced = LogIndex(0)
            self._reconsider_timer()
        else:
            self._elections.ask(node)

    def campaign(self) -> None:
        """Ask for votes now instead of when the timer ends, as the node does that has just created a group. Nothing
        happens if this member leads, or may not campaign."""
        if self.leadership is not None or not self.may_campaign:
            return
        self._follow_anew()
        if self.configuration.voters == (self.node,):
            self._stand(RoleEvent.TIMEOUT_OF_THE_ONLY_VOTER)
        else:
            self._ask_pre_votes()

    # Inputs for the leader

    def _led(self) -> Leadership:
        if self.leadership is None:
            raise NotLeaderError(self.leader)
        return self.leadership

    @property
    def accepting(self) -> bool:
        """Whether :meth:`propose` takes entries: this member leads, and is not handing over."""
        return self.leadership is not None and self.leadership.accepting

    def add(self, node: NodeId, replica_id: int = 0) -> LogIndex:
        """Let ``node`` join: a learner at once, a voter by itself as soon as it has caught up (thesis 4.2.1).

        The node runs a core with ``members=()`` and the same ``replica_id``. Returns the index of the learner's entry.
        Raises NotLeaderError, ChangeUnderWayError, TransferUnderWayError, and ValueError if it is a member already.
        """
        return self._led().add(node, replica_id)

    def remove(self, node: NodeId) -> LogIndex:
        """Go on without ``node``, voter or learner; a leader that removes itself steps down once that is committed.

        Returns the index of the entry that removes the node. Once that entry is committed, the log of the removed
        member may go, and the node may be added again; not before. Raises as :meth:`add`, and ValueError if the node is
        no member, or the last voter.
        """
        return self._led().remove(node)

    def can_do_without(self, node: NodeId) -> bool:
        """Whether the voters that are left without ``node`` could commit its removal now: a majority is not suspected.

        :meth:`remove` does not ask. But if a leader is lost after a removal that reached no other member, the group may
        have no majority for the removal, and none against it.
        """
        left = self.configuration.without(node).voters
        return sum(other not in self.down for other in left) >= majority(len(left))

    def transfer(self, to: NodeId) -> None:
        """Hand the leadership over to ``to`` (thesis 3.10): no proposals are taken until it leads or an election time
        is over, after which this member goes on as leader.

        Raises NotLeaderError, and ValueError if ``to`` is no voter or this member itself.
        """
        self._led().transfer(to)

    def read(self, token: int) -> None:
        """Ask for a consistent read. ``token`` comes back in ``Ready.reads``, with an index that covers everything
        committed before this call, or in ``Ready.reads_refused``. Raises NotLeaderError."""
        self._led().read(token)

    # Snapshots

    def snapshot_taken(self, index: LogIndex, term: Term) -> None:
        """An own snapshot up to ``index`` is durable: the log up to there may go. A snapshot older than the newest
        known is ignored.

        Raises ValueError for a snapshot of entries that are not committed.
        """
        if index > self.log.commit_index:
            raise ValueError(f"snapshot up to {index}, but only {self.log.commit_index} is committed")
        if index > self.log.snapshot_index:
            self.log.compact(index, term)

    def accepts(self, sender: NodeId, message: InstallSnapshot) -> bool:
        """Whether the shell must store this chunk, *before* it passes the message to :meth:`step`.

        Chunk 1 begins a new file and discards the rest of an earlier transfer. After the last chunk the shell checks
        the whole, makes it durable and calls :meth:`installed`, or :meth:`install_failed`.
        """
        if message.term < self.term or self._installation.covers(message.index, message.index_term):
            return False
        known = message.term == self.term and self.leader == message.leader
        return self._installation.wants(message) if known else message.number == 1

    def installed(self, index: LogIndex, term: Term, configuration: Configuration, machine_version: int = 0) -> None:
        """A snapshot received from the leader is durable. ``Ready.reset_to`` says whether it replaces the log.

        ``configuration`` was in effect at the snapshot's last entry, as the sender's :meth:`configuration_at` said.
        If the log came to hold the same entries meanwhile, nothing is reset, because entries on disk may have been
        counted.
        """
        replaces = not self._installation.covers(index, term)
        if replaces:
            self._replace_log(index, term, configuration, machine_version)
        else:
            self._installation.adopt(index, term)
        self._answer_install(index, done=True)
        if replaces:
            self._reconsider_timer()
        self.next_ready.pending = True

    def install_failed(self, index: LogIndex) -> None:
        """The received snapshot up to ``index`` is unsound: ask for it again."""
        self._answer_install(index, done=False)

    def _replace_log(self, index: LogIndex, term: Term, configuration: Configuration, machine_version: int) -> None:
        if self.role is Role.LEADER:
            raise SafetyViolationError(f"entry {index} of term {term} is committed, but this leader does not have it")
        if self.role is not Role.FOLLOWER:
            self._become_follower(RoleEvent.LOG_REPLACED, self.term)
        self.log.reset(index, term, configuration, machine_version)
        self.next_ready.reset(index)
        self.follower.start_over_at(index)

    def _answer_install(self, index: LogIndex, *, done: bool) -> None:
        if self._installation.over() and self.leader not in (NOBODY, self.node):
            self.next_ready.send(self.leader, InstallReply(term=self.term, index=index, number=0, done=done))

    def pinned_snapshots(self) -> set[LogIndex]:
        """Snapshots that are being sent and must stay readable."""
        followers = self.leadership.progress.values() if self.leadership is not None else ()
        return {progress.snapshot_index for progress in followers if progress.chunk}

    # Output

    @property
    def has_ready(self) -> bool:
        """Whether :meth:`ready` may hold anything. Cheap; a true now and then for nothing is possible."""
        return self.next_ready.pending or self.next_ready.committed or self.follower.answer_due

    def ready(self) -> Ready:
        """Take everything that the inputs made necessary; an empty Ready if that is nothing."""
        next_ready = self.next_ready
        if self.leadership is not None:
            self.leadership.collect()
        elif self.follower.answer_due:
            answer = self.follower.answer(self.term)
            if not self.is_superseded:
                next_ready.send(self.leader, answer)
        hard_state = None
        if next_ready.hard_state_changed:
            hard_state = HardState(term=self.term, voted_for=self.voted_for, forgetful=self.forgetful)
        ready = Ready(
            hard_state=hard_state,
            truncate_from=next_ready.truncate_from,
            append=tuple(next_ready.entries),
            messages=tuple(next_ready.messages),
            commit=self.log.commit_index,
            role=self.role,
            leader=self.leader,
            reset_to=next_ready.reset_to,
            reads=tuple(next_ready.reads),
            reads_refused=tuple(next_ready.reads_refused),
        )
        next_ready.clear()
        return ready

    # Questions

    @property
    def needs_tick(self) -> bool:
        """False when a tick would do nothing, so that hundreds of idle groups cost nothing."""
        return self.timer.left > 0 if self.leadership is None else self.leadership.needs_tick

    @property
    def commit_index(self) -> LogIndex:
        """Everything up to here is committed."""
        return self.log.commit_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in effect: the latest in the log, committed or not (section 6)."""
        return self.log.configuration

    def configuration_at(self, index: LogIndex) -> Configuration:
        """The configuration in effect right after the entry at ``index``: it belongs into a snapshot up to there."""
        return self.log.configurations.at(index)

    @property
    def change_under_way(self) -> bool:
        """Whether :meth:`add` and :meth:`remove` have to wait: for the change before, or for the leader's first
        entry."""
        return self.log.change_under_way(self.term)

    @property
    def machine_version_in_effect(self) -> int:
        """The version of the newest no-op in the log; 0 if none is known."""
        return self.log.versions.latest

    def machine_version_at(self, index: LogIndex) -> int:
        """The version of the newest no-op up to ``index``; 0 if none is known."""
        return self.log.versions.at(index)

    @property
    def is_voter(self) -> bool:
        """Whether the configuration in effect counts this member."""
        return self.configuration.has_voter(self.node, self._replica_id)

    @property
    def may_campaign(self) -> bool:
        """Whether this member may ask for votes. A forgetful member asks for pre-votes, too: so others hear that it
        leads no more, and a leader hears that it is there."""
        return self.log.may_need(self.node, self._replica_id)

    @property
    def may_vote(self) -> bool:
        """Whether this member's log ever named it, under its present replica id. The log of a joining member does not.

        A learner votes if asked: the candidate holds the entry that promotes the learner, and may need the vote to send
        it.
        """
        return not self.forgetful and self.log.names(self.node, self._replica_id)

    @property
    def is_superseded(self) -> bool:
        """Whether the log names a later replica of this node. This replica's log is deleted when the node learns so,
        and the replica claims nothing any more: the leader would count the claim for the later replica."""
        return self.log.configurations.latest.replica_id_of(self.node) > self._replica_id

    @property
    def trusts_leader(self) -> bool:
        """A leader is known on another node, the node is not suspected, and the leader is not being removed."""
        leader = self.leader
        return leader not in (NOBODY, self.node) and leader not in self.down and leader in self.configuration.voters

    # Term, vote and role

    def _raise_term(self, term: Term) -> None:
        """A new term and its cleared vote are one change: a crash between the two could vote twice."""
        if term > self.term:
            self.term, self.voted_for = term, NOBODY
            self.next_ready.hard_state_changed = self.next_ready.pending = True

    def _vote_for(self, node: NodeId) -> None:
        """The vote of the current term is given."""
        if self.voted_for != node:
            self.voted_for = node
            self.next_ready.hard_state_changed = self.next_ready.pending = True

    def _enter(self, event: RoleEvent, leader: NodeId = NOBODY) -> None:
        """Change the role: the table says which role follows. Nothing else writes ``role`` or ``leader``."""
        self.role, self.leader = NEXT_ROLE[self.role][event], leader

    def _become_follower(self, event: RoleEvent, term: Term, leader: NodeId = NOBODY) -> None:
        if self.leadership is not None:
            self.next_ready.reads_refused += self.leadership.refused()
            self.leadership = None
        self._raise_term(term)
        if leader != NOBODY and self.voted_for == NOBODY and not self.is_voter:
            # A former replica, removed and added again within this term, might have voted; this replica forgot it.
            self._vote_for(leader)
        self._enter(event, leader)
        self._follow_anew()
        self._end_round()
        self.next_ready.pending = True

    def _follow_anew(self) -> None:
        """The promises to a former leader are void."""
        self.follower.follow()
        self._installation.over()

    def _end_round(self) -> None:
        """No round is under way; the timer of a follower starts over or stands still."""
        self._elections.end()
        self.timer.stop()
        self._reconsider_timer()

    def _reconsider_timer(self) -> None:
        """Trust in the leader, or the configuration, has changed: start or stop the timer of a follower."""
        if self.role is not Role.FOLLOWER:
            return
        if self.trusts_leader or not self.may_campaign:
            self.timer.stop()
        elif not self.timer.left:
            if self.configuration.voters == (self.node,) and not self.forgetful:
                self.timer.hurry()
            else:
                self.timer.wind()

    def _lead(self, event: RoleEvent) -> None:
        self._end_round()
        self._enter(event, self.node)
        self.leadership = Leadership(
            node=self.node,
            replica_id=self._replica_id,
            term=self.term,
            log=self.log,
            down=self.down,
            config=self.config,
            next_ready=self.next_ready,
            step_down=self._become_follower,
        )
        payload = noop_payload(self._machine_version)
        self.leadership.propose(EntryKind.NOOP, payload, crc32(payload))

    # Asking for votes

    def _ask_pre_votes(self) -> None:
        """Ask whether votes would be granted (thesis 9.6)."""
        self._enter(RoleEvent.TIMEOUT)
        self.timer.wind()
        self._elections.begin(self.term, is_pre_vote=True)

    def _stand(self, event: RoleEvent) -> None:
        """Raise the term and ask for votes.

        A forgetful member gives up, and so does a member whose machine is older than the log's: it could not apply the
        entries that it would have to commit.
        """
        if self.forgetful or self._machine_version < self.machine_version_in_effect:
            self._become_follower(RoleEvent.UNFIT, self.term)
            return
        self._raise_term(Term(self.term + 1))
        self._vote_for(self.node)
        self._enter(event)
        self.timer.wind()
        is_wished = event is RoleEvent.TIMEOUT_NOW
        if self._elections.begin(self.term, is_pre_vote=False, transfer=is_wished) is VoteResult.WON:
            self._lead(RoleEvent.VOTES_GRANTED)

    def _on_pre_vote_reply(self, sender: NodeId, message: PreVoteReply) -> None:
        """An answer to this round or to an older round."""
        if message.term > self.term:
            self._become_follower(RoleEvent.HIGHER_TERM, message.term)
        elif self.role is Role.PRE_CANDIDATE:
            result = self._elections.pre_vote_answered(sender, message)
            if result is VoteResult.WON:
                self._stand(RoleEvent.PRE_VOTES_GRANTED)
            elif result is VoteResult.LOST:
                self._become_follower(RoleEvent.VOTES_REFUSED, self.term)

    def _on_vote_reply(self, sender: NodeId, message: VoteReply) -> None:
        """An answer to this candidacy or to an older candidacy."""
        if message.term > self.term:
            self._become_follower(RoleEvent.HIGHER_TERM, message.term)
        elif self.role is Role.CANDIDATE:
            result = self._elections.vote_answered(sender, message)
            if result is VoteResult.WON:
                self._lead(RoleEvent.VOTES_GRANTED)
            elif result is VoteResult.LOST:
                self._become_follower(RoleEvent.VOTES_REFUSED, self.term)

    def _on_timeout_now(self, sender: NodeId, message: TimeoutNow) -> None:
        """Only the leader of the present term may ask for it, and only a voter."""
        if message.term == self.term and sender == self.leader and self.role is Role.FOLLOWER and self.is_voter:
            self._follow_anew()
            self._stand(RoleEvent.TIMEOUT_NOW)

    # Granting votes

    def _on_pre_vote_request(self, sender: NodeId, message: PreVoteRequest) -> None:
        """Would this member vote for the sender? The question raises the term of this member only if it is behind."""
        leadership = self.leadership
        if leadership is not None and message.term <= self.term and sender in leadership.progress:
            leadership.progress[sender].announce()
            self.next_ready.pending = True
            return
        if leadership is not None and sender not in leadership.progress:
            self.next_ready.send(sender, PreVoteReply(term=self.term, token=message.token, granted=False))
            return
        if message.term >= self.term and sender == self.leader:
            self._become_follower(RoleEvent.LEADER_ASKED_FOR_VOTES, message.term)
        elif message.term > self.term and not self.trusts_leader:
            self._become_follower(RoleEvent.HIGHER_TERM, message.term)
        granted = (
            message.term >= self.term
            and self.may_vote
            and not self.trusts_leader
            and message.machine_version >= self.machine_version_in_effect
            and self.log.is_up_to_date(message.last_index, message.last_term)
        )
        self.next_ready.send(sender, PreVoteReply(term=self.term, token=message.token, granted=granted))

    def _on_vote_request(self, sender: NodeId, message: VoteRequest) -> None:
        """RequestVote. A member that trusts its leader neither votes nor takes the term, unless the leader wished it.

        A leader refuses a removed server that does not know of its removal, and must not unseat a leader that works
        (thesis 4.2.3).
        """
        if self.leadership is not None and sender not in self.leadership.progress:
            self.next_ready.send(sender, VoteReply(term=self.term, granted=False))
            return
        if message.term > self.term and (message.transfer or sender == self.leader or not self.trusts_leader):
            self._become_follower(RoleEvent.HIGHER_TERM, message.term)
        granted = (
            message.term == self.term
            and self.may_vote
            and self.voted_for in (NOBODY, message.candidate)
            and self.leader == NOBODY
            and self.log.is_up_to_date(message.last_index, message.last_term)
        )
        if granted:
            self._vote_for(message.candidate)
            if self.role is not Role.FOLLOWER:
                self._become_follower(RoleEvent.VOTE_GIVEN, self.term)
            if self.may_campaign:
                self.timer.wind()
        self.next_ready.send(sender, VoteReply(term=self.term, granted=granted))

    # Following a leader

    def _follow(self, message: AppendEntries | InstallSnapshot | Heartbeat) -> None:
        """The sender leads ``message.term``, which is not below the own term."""
        if message.term == self.term and self.role is Role.LEADER:
            raise SafetyViolationError(f"node {message.leader} claims to lead term {self.term}, and so does this one")
        if message.term > self.term or self.role is not Role.FOLLOWER or self.leader == NOBODY:
            self._become_follower(RoleEvent.LEADER_SPOKE, message.term, message.leader)
        elif self.leader != message.leader:
            raise SafetyViolationError(f"nodes {self.leader} and {message.leader} both lead term {self.term}")
        elif self.timer.left:
            self.timer.wind()

    def _on_append(self, sender: NodeId, message: AppendEntries) -> None:
        if message.term < self.term:  # the sender learns the term and steps down; the rest of the answer says nothing
            none, no_term = LogIndex(0), Term(0)
            stale = AppendReply(term=self.term, success=False, next_index=none, synced_index=none, synced_term=no_term)
            self.next_ready.send(sender, stale)
            return
        self._follow(message)
        follower, configurations = self.follower, self.log.configurations
        before = configurations.latest
        rejection = follower.append(message)
        if configurations.latest is not before:
            self._reconsider_timer()
        if rejection is not None:
            self.next_ready.send(sender, rejection)
        else:
            follower.commit(LogIndex(min(message.commit, follower.verified)))
            self._remember()
            if self.timer.left:  # this member's own removal may be committed now
                self._reconsider_timer()

    def _remember(self) -> None:
        """End forgetfulness: this member has every entry that was ever committed on disk (5.4.3)."""
        log = self.log
        if self.forgetful and log.synced_index >= log.commit_index and log.term_at(log.commit_index) == self.term:
            self.forgetful = False
            self.next_ready.hard_state_changed = self.next_ready.pending = True
            self._reconsider_timer()

    def _on_leader_synced(self, sender: NodeId, message: LeaderSynced) -> None:
        if message.term == self.term and sender == self.leader != self.node:
            self.follower.leader_synced = max(self.follower.leader_synced, message.index)
            self._know()

    def _know(self) -> None:
        if self.is_voter:
            self.follower.know(self.term, self.leader)

    def _on_install(self, sender: NodeId, message: InstallSnapshot) -> None:
        reply: InstallReply | None
        if message.term < self.term:
            reply = InstallReply(term=self.term, index=message.index, number=0, done=False)
        else:
            self._follow(message)
            reply = self._installation.chunk(message)
        if reply is not None:
            self.next_ready.send(sender, reply)

    def _on_heartbeat(self, sender: NodeId, message: Heartbeat) -> None:
        if message.term >= self.term:
            self._follow(message)
        self.next_ready.send(sender, HeartbeatReply(term=self.term, round=message.round))


_HANDLERS: Final[dict[type, Callable[[RaftCore, NodeId, Any], None]]] = {
    AppendEntries: RaftCore._on_append,
    PreVoteRequest: RaftCore._on_pre_vote_request,
    PreVoteReply: RaftCore._on_pre_vote_reply,
    VoteRequest: RaftCore._on_vote_request,
    VoteReply: RaftCore._on_vote_reply,
    InstallSnapshot: RaftCore._on_install,
    Heartbeat: RaftCore._on_heartbeat,
    TimeoutNow: RaftCore._on_timeout_now,
    LeaderSynced: RaftCore._on_leader_synced,
}
_ANSWERS: Final[dict[type, Callable[[Leadership, NodeId, Any], None]]] = {
    AppendReply: Leadership.append_answered,
    InstallReply: Leadership.install_answered,
    HeartbeatReply: Leadership.heartbeat_answered,
}
