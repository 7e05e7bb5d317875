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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from reference_broker.sim.world import World
from reference_broker.types import NodeId


def anything(_world: World) -> bool:
    """Any world will do."""
    return True


def _member_changes(world: World) -> bool:
    return world.operator.changes_members and len(world.nodes) > 1


def _policies(world: World) -> bool:
    return world.operator.changes_policies


def _kept_letters(world: World) -> bool:
    return any(plan.keeps_letters for plan in world.queues) and len(world.nodes) > 1


def _new_queues(world: World) -> bool:
    return len(world.nodes) > 1 and any(client.founds for client in world.clients)


def _fleeting_queues(world: World) -> bool:
    return any(client.zeal for client in world.clients) and any(not plan.is_kept for plan in world.queues)


def _several_nodes(world: World) -> bool:
    return len(world.nodes) > 1


def _long_pauses(world: World) -> bool:
    """Longer than the patience of others, and often."""
    nemesis, limits = world.nemesis, world.nodes[NodeId(1)]._config.limits
    often = dict(zip(nemesis._kinds, nemesis._weights, strict=True)).get(nemesis.pause, 0) * 5 > sum(nemesis._weights)
    return len(world.nodes) > 1 and often and nemesis._outage_s * 1000 > limits.suspect_after_ms


def _mirrored_queues(world: World) -> bool:
    return len(world.nodes) > 1 and any(plan.is_mirrored and plan.is_kept for plan in world.queues)


def _fan(world: World) -> bool:
    """Messages go to several queues through an exchange."""
    return world.clients[0].crowd.fan_share > 0


def _slow_readers(world: World) -> bool:
    """Clients leave more unread than their nodes keep for them."""
    return world.nodes[NodeId(1)]._config.limits.unread_bytes_max < 1000


def _losing_drives(world: World) -> bool:
    """The drive of one node at a time loses the end of its WAL."""
    return world.nemesis.lose_end in world.nemesis._kinds


def _large_messages(world: World) -> bool:
    return world.large_bytes > 0 and len(world.nodes) > 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """In ``where`` (module:Class.function), ``text`` becomes ``instead``."""

    name: str
    where: str
    text: str
    instead: str
    steps: int = 20_000
    """How long a world must be for it to be likely to show."""
    needs: Callable[[World], bool] = anything
    """Without that in a world the bug cannot show, and the world need not be run."""
    shown_by: str = ""
    """A test of the broker that fails with the bug, for one that worlds seldom show: module:function, or
    module:function(argument)."""


def _keyed_queues(world: World) -> bool:
    return any(plan.has_keys and not plan.is_classic for plan in world.queues)


def _classic_queues(world: World) -> bool:
    return any(plan.is_classic for plan in world.queues)


def _in_classic_worlds(*mutants: Mutant) -> tuple[Mutant, ...]:
    """The bugs, hunted only where there are classic queues."""
    return tuple(replace(mutant, needs=_classic_queues) for mutant in mutants)


def _in_mirrored_worlds(*mutants: Mutant) -> tuple[Mutant, ...]:
    """The bugs, hunted only where there is a mirrored queue from which nothing may be lost."""
    return tuple(replace(mutant, needs=_mirrored_queues) for mutant in mutants)


_BROKER = "reference_broker"
_STORM = "raft.test_raft_cluster_random:test_no_storm_breaks_raft_and_every_storm_ends"
MUTANTS = (
    Mutant("a forgetful member votes", "raft.core:RaftCore.may_vote", "not self.forgetful and ", "",
           needs=_losing_drives, shown_by=f"{_STORM}(8, 3)"),
    Mutant("a forgetful member leads", "raft.core:RaftCore._stand", "self.forgetful or ", "",
           needs=_losing_drives, shown_by=f"{_STORM}(3, 3)"),
    Mutant("a member remembers before its leader has committed in its own term", "raft.core:RaftCore._remember",
           " and log.term_at(log.commit_index) == self.term", "", needs=_losing_drives, shown_by=f"{_STORM}(8, 3)"),
    Mutant("the end of the WAL is not compared with what was synced", "log.recovery:WalRecovery.judge_end",
           "if self.last_batch < noted_batch:", "if False:", needs=_losing_drives),
    Mutant("a forgetful member begins in its old term", "log.opening:_Opening._make_agree",
           "_FIRST_TERM, *terms) + 1", "_FIRST_TERM, *terms)", needs=_losing_drives),
    Mutant("messages do not wait for term and vote to be on disk",
           "node.replication.group_runner:GroupRunner._carry_out",
           "if self._hard_state_writes:", "if False:"),
    Mutant("the short way does not ask where entries belong", "raft.steady:take",
           "message.prev_index == last == follower.verified and ", ""),
    Mutant("the short way commits what the follower does not have", "raft.steady:take",
           "max(log.commit_index, min(message.commit, last))", "max(log.commit_index, message.commit)"),
    Mutant("a follower answers at once what it has not written", "node.replication.group_runner:GroupRunner.step",
           "self._stamp(message.entries)",
           "self._node.send(sender, FrameKind.RAFT, wire.encode(self.group, AppendReply(self.core.term, True, "
           "message.entries[-1].index + 1, message.entries[-1].index, self.core.term)))"),
    Mutant("nobody tells of a commit for which no client waits", "node.replication.sender:Sender.tell_commit",
           "self._tell_later()", "pass"),
    Mutant("a new entry says that it is committed", "node.replication.sender:Sender._entry",
           "commit=self._core.log.commit_index", "commit=entry.index"),
    Mutant("the leader's short way counts an entry as sent twice", "raft.steady:propose",
           "progress.next_index = LogIndex(index + 1)", "progress.next_index = LogIndex(index + 2)"),
    Mutant("the leader's short way applies before a majority has the entry", "raft.steady:take_commit",
           "next_ready.committed = False",
           "next_ready.committed = False; core.log.commit_index = core.log.last_index"),
    Mutant("the end of a round brings no turn", "node.replication.batcher:Batcher._leave_round",
           "self._commands.held = False", "pass"),
    Mutant("who waits for a round is forgotten", "node.replication.batcher:Rounds._release",
           "self._wake(runner)", "pass"),
    Mutant("a follower knows by itself while a change of members is under way", "raft.follower:Follower.know",
           " or log.configurations.latest_index > log.commit_index", "",
           shown_by="raft.test_raft_knowledge:test_a_change_of_members_is_for_the_leader_to_count()"),
    Mutant("a follower knows by itself of entries of older terms", "raft.follower:Follower.know",
           " and log.term_at(index) == term", "",
           shown_by="raft.test_raft_knowledge:test_entries_of_an_older_term_wait_for_one_of_this_term()"),
    Mutant("a follower knows by itself before its own disk has it", "raft.follower:Follower.common",
           "self._synced()", "self.verified"),
    Mutant("a follower knows by itself while the link to its leader is down", "raft.core:RaftCore.node_down",
           "self.follower.leader_synced = LogIndex(0)", "pass",
           shown_by="raft.test_raft_knowledge:test_a_link_that_broke_ends_it()"),
    Mutant("a follower and its leader pass for a majority of five", "raft.follower:Follower.know",
           "majority(len(voters)) == PAIR", "True",
           shown_by="raft.test_raft_knowledge:test_two_are_no_majority_of_more_than_three()"),
    Mutant("a leader tells followers of entries that are not on its disk", "raft.leadership:Leadership.tell_synced",
           "index = log.synced_index", "index = log.last_index"),
    Mutant("a read does not cover what followers know by themselves", "raft.leadership:Leadership._begin_reads",
           "max(log.commit_index, self._told)", "log.commit_index"),
    Mutant("a notice goes to a follower whose next entry is gone", "raft.progress:Progress.notice",
           "self.next_index <= log.snapshot_index", "False",
           shown_by="raft.test_raft_progress:test_no_notice_goes_to_a_follower_whose_next_entry_is_gone()"),
    Mutant("who has missed a delivery is not remembered", "node.clients.consuming:Consuming.missed",
           "self._ports.fell_behind(self._number)", "pass", needs=_slow_readers),
    Mutant("what comes behind a missed delivery is delivered", "node.clients.consuming:Consuming.takes",
           "known.missed_up_to == NOTHING_MISSED and ", "", needs=_slow_readers),
    Mutant("what was missed begins behind its first message", "machines.subscriptions:get_checked_out",
           "command.first_id - held", "command.first_id + 1 - held", needs=_slow_readers),
    Mutant("entries of old terms are committed by counting", "raft.leadership:Leadership.advance_commit",
           " and log.term_at(index) == self.term", ""),
    Mutant("a majority is one member too small", "raft.leadership:Leadership.advance_commit",
           "committed_index(synced)", "sorted(synced)[-1]"),
    Mutant("the leader counts what it has not synced", "raft.leadership:Leadership.advance_commit",
           "log.synced_index", "log.last_index"),
    Mutant("entries of old terms are committed by counting in the short way", "raft.steady:_count",
           " and index >= leadership.first_index", ""),
    Mutant("a majority is one member too small in the short way", "raft.steady:_count",
           "on_disk[-leadership.majority]", "on_disk[-1]"),
    Mutant("the leader counts what it has not synced in the short way", "raft.steady:_count",
           "log.synced_index", "log.last_index"),
    Mutant("a follower claims what it has not synced", "raft.follower:Follower._synced",
           "self._log.synced_index", "self._log.last_index"),
    Mutant("a vote is forgotten by a restart", "node.hosting.hosted_queues:Hosting._run",
           "voted_for=state.voted_for", "voted_for=NOBODY"),
    Mutant("whom a declaration elected leads the first term in each life", "node.hosting.hosted_queues:Hosting._run",
           "blank=state is None", "blank=True",
           shown_by="node.test_many_queues:test_a_restart_knows_whom_the_declaration_elected(1)"),
    Mutant("a founder forgets in a restart whom the declaration elected", "node.hosting.hosted_queues:Hosting._run",
           "if elected != NOBODY:", "if elected != NOBODY and state is None:",
           shown_by="node.test_many_queues:test_a_restart_knows_whom_the_declaration_elected(2)"),
    Mutant("votes go to candidates that lack entries", "raft.log_view:LogView.is_up_to_date",
           "return last_term >", "return True or last_term >"),
    Mutant("the WAL is not synced", "log.wal:Wal.append",
           "if self._sync:", "if False:"),
    Mutant("batches of an earlier use of a WAL file count", "log.wal_codec:read_head",
           "head[:MARK_SIZE] != mark or ", "",
           shown_by="log.test_wal_recovery:test_stale_octets_of_a_recycled_file_never_replay(0)"),
    Mutant("news of the disk overtakes older news", "node.hosting.log_notices:LogNotices.notify",
           "self._guarded(self._take_notices)",
           "self._notices.appendleft(self._notices.pop()); self._guarded(self._take_notices)",
           shown_by="node.test_log_notices:test_what_the_loop_writes_itself_is_told_at_once_and_in_order"),
    Mutant("what is asked of the log while the loop writes is forgotten", "storage.executor:DedicatedThread.go",
           "operations, self._pending = self._pending, []\n    self._handle(operations)",
           "operations = self._pending\n    self._handle(operations[:])\n    operations.clear()",
           shown_by="storage.test_executor:test_what_is_handed_over_while_the_owner_does_it_comes_next"),
    Mutant("one entry too few is truncated", "raft.follower:Follower._make_room",
           "log.truncate(index)", "index = LogIndex(min(index + 1, log.last_index)); log.truncate(index)"),
    Mutant("a group that waits is not ticked", "node.turns:Turns._pass",
           "self.stirred.update(dict.fromkeys(dirty))", "pass",
           shown_by="node.test_many_queues:test_a_group_that_waits_gets_its_ticks"),
    Mutant("elections that come to nothing keep the others waiting", "node.replication.ticks:Campaigns.tick",
           "del self._under_way[group]", "pass",
           shown_by="node.test_ticks:test_an_election_that_comes_to_nothing_does_not_keep_the_others_waiting"),
    Mutant("WAL files go while they are needed", "log.state:LogState.needed_files",
           "if file > KEPT_FILE", "if file < KEPT_FILE"),
    Mutant("an entry is applied twice", "node.replication.group_runner:GroupRunner._apply",
           "self.applied = entry.index", "self.applied = LogIndex(entry.index - (entry.index % 50 == 0))"),
    Mutant("a leader that loses its place confirms what it holds",
           "node.replication.group_runner:GroupRunner._notice_standing",
           "self._standing = standing",
           "self._standing = standing\n    if was_leader and standing[0] is not Role.LEADER:"
           " self._apply(self.core.log.last_index)"),
    Mutant("a snapshot lacks what consumers hold", "machines.fifo_snapshot:_encode_consumer",
           "for held in consumer.held", "for held in consumer.held[1:]"),
    Mutant("a settle is lost", "machines.settlement:settle",
           "consumer = state.consumer(command.consumer)",
           "consumer = state.consumer(command.consumer) if command.ranges[0][0] % 8 != 5 else None"),
    Mutant("returned messages vanish", "machines.subscriptions:channel_down",
           "take_back(state, outbox, consumer.release_all())", "consumer.release_all()"),
    Mutant("the redelivered flag is not set", "queues.effect_runner:EffectRunner._deliver",
           "slices, effect.delivery_count)", "slices, 0)"),
    Mutant("a purge is done by the leader only", "queues.quorum_member:QuorumMember.apply",
           "end, skip)", "end, skip | {at for at, (_, each) in enumerate(decode_batch(entry.payload, end)[1])"
           " if type(each) is Purge and not self.leading})"),
    Mutant("a learner is counted for the majority", "raft.leadership:Leadership._configured",
           "for node in configuration.voters if", "for node in configuration.members if", needs=_member_changes),
    Mutant("a configuration is in effect once it is committed", "raft.log_view:LogView.configuration",
           "self.configurations.latest", "self.configurations.at(max(self.commit_index, self.snapshot_index))",
           needs=_member_changes),
    Mutant("two changes of members at once", "raft.log_view:LogView.change_under_way",
           "return self.configurations.latest_index > self.commit_index or", "return", needs=_member_changes),
    Mutant("a replica that left begins again from an old line of the log",
           "node.replication.known_groups:Groups.__init__",
           "self.is_current = False", "self.is_current = True", needs=_member_changes),
    Mutant("the state of a node as a deposed leader saw it is the last word", "machines.subscriptions:node_down",
           "outbox.monitor(node)", "pass", steps=60_000),
    Mutant("the end of a channel overtakes its subscriptions", "node.replication.pipeline:CommandQueue.cut",
           "if low and messages_max and not normal:", "if low and messages_max:", steps=60_000),
    Mutant("a dead letter is settled before its new home has it", "node.hosting.dead_letters:Mailer._publish",
           "    self._owner.counts",
           "    settled = DeadLetterSettled(((ids[0], ids[-1]),))\n"
           "    self._propose(self._record.group, settled, Priority.NORMAL)\n    self._owner.counts",
           needs=_kept_letters),
    Mutant("who lost the lead goes on to send dead letters", "node.hosting.queue_services:QueueServices.lead_lost",
           "self._dead_letters.lead_lost(group)", "pass", needs=_kept_letters),
    Mutant("a leader sends dead letters again that an earlier one has sent",
           "node.replication.group_runner:GroupRunner._notice_standing",
           "self.core.log.term_at(self.applied) == self.core.term", "True"),
    Mutant("dead letters are under way without a bound on their octets", "machines.dead_letters:_room",
           "min(room, (WINDOW_OCTETS - octets) // max(size, 1))", "room",
           shown_by="machines.test_dead_letters:test_few_large_letters_are_a_window"),
    Mutant("who has a tag now settles what was delivered under it before", "amqp.unacked:Unacked.rename",
           "held.consumer_tag = name", "pass",
           shown_by="node.test_subscribing_again:test_what_was_delivered_before_is_settled_in_its_own_queue"),
    Mutant("who has a tag now gets what another queue tells again", "node.clients.consuming:Consuming.deliver",
           "or known.group != group", "",
           shown_by="node.test_subscribing_again:test_what_the_former_queue_tells_again_is_no_delivery_of_the_next"),
    Mutant("a mailer keeps what it sent", "node.hosting.dead_letters:Mailer.close", "self._open.clear()", "pass",
           shown_by="node.test_dead_letter_mailers:test_who_lost_the_lead_sends_nothing_more_and_keeps_nothing"),
    Mutant("the end of a mailer overtakes its letters", "queues.fifo_queue:FifoQueue.channel_closed",
           "SMALL_COMMAND_BYTES)", "SMALL_COMMAND_BYTES, Priority.NORMAL)", needs=_kept_letters,
           shown_by="node.test_dead_letter_mailers:test_a_mailers_channel_ends_behind_what_it_published"),
    Mutant("dead letters are sent once, whatever the queue was declared with", "machines.burial:bury",
           "if not config.keeps_dead_letters:", "if True:", needs=_kept_letters),
    Mutant("two single active consumers", "machines.single_active:elect",
           "        _put(state, active, Status.WAITING)\n        active = challenger", "        active = challenger"),
    Mutant("a message to several queues is confirmed once the first of them has it", "amqp.fan_out:FanOut._count",
           "if queues > 1:", "if queues > 9:", needs=_fan),
    Mutant("a message to several queues goes to the first of them", "node.clients.publishing:_publish_by",
           "publishing.publish_to(reached, event)", "publishing.publish_to(reached[:1], event)", needs=_fan),
    Mutant("a refused publish is confirmed", "queues.effect_runner:EffectRunner.answer",
           "channels.rejected(channel, self._group, answer.first, answer.last)",
           "channels.confirm(channel, self._group, answer.last)"),
    Mutant("what a consumer holds expires never once the backlog has no time to live",
           "machines.fifo_state:State.refresh_flags",
           "any(expires != NEVER for expires in chain(returned, held))", "False",
           shown_by="machines.test_expiry_is_over:test_a_message_that_comes_back_too_late_expires"),
    Mutant("a full queue never takes publishes again", "machines.limits:enforce",
           "refusing and not _is_well_below(state)", "refusing"),
    Mutant("a message may return once more than its limit says", "machines.delivery_limit:take_back",
           "origin.delivery_count:", "origin.delivery_count - 1:"),
    Mutant("who cannot prove that it has the secret is believed", "node.links.handshake:Handshake._proved",
           "if not hmac.compare_digest(shown, self._proof(name, text)):", "if False:",
           needs=lambda world: len(world.nodes) > 1),
    Mutant("a node obeys an operator without the secret", "node.endpoints.control_handshake:ControlHandshake.close",
           "not hmac.compare_digest", "hmac is None and hmac.compare_digest",
           shown_by="node.test_control_handshake:test_a_recorded_proof_proves_nothing"),
    Mutant("lives are told without a proof", "node.links.handshake:Handshake._proof",
           "*self._passed, text", "*self._passed",
           shown_by="node.test_handshake:test_no_octet_can_be_changed_on_the_way"),
    Mutant("each handshake has the same nonce", "node.links.peers:Peers.handshake",
           "self._random_bits(8 * NONCE_OCTETS)", "(1)",
           shown_by="node.test_peers:test_a_recorded_handshake_opens_nothing"),
    Mutant("whoever answers is taken for the node that was dialled", "node.links.handshake:Handshake._check",
           "node != self._dialled", "False",
           shown_by="node.test_handshake:test_a_node_with_the_secret_is_not_another_node"),
    Mutant("a member also delivers for channels of another node or start", "queues.effect_runner:is_on",
           "channel.node == channels.node and channel.boot_id == channels.boot_id", "True"),
    Mutant("batches are counted from 1 again", "log.opening:_Opening.read",
           "recovery.last_batch = max(recovery.last_batch, *(record.since for record in records.values()), 0)", "pass",
           steps=60_000),
    Mutant("a member that is to leave before it ever ran does not begin",
           "machines.cluster.metadata:QueueRecord.has_replica",
           " or node in self.leaving", "", needs=_member_changes,
           shown_by="node.test_group_storm:test_a_member_that_is_removed_before_it_ever_ran_can_still_be_counted_on(1)"),
    Mutant("a read waits for voters that were removed", "raft.leadership:Leadership._configured",
           "self._answer_reads()", "pass", needs=_member_changes,
           shown_by="raft.test_raft_transcripts:test_cluster_does_what_was_recorded(read_while_shrinking.txt)"),
    Mutant("a snapshot overtakes another one on its way to the disk",
           "node.replication.group_runner:GroupRunner._store",
           "if self._storing:", "if False:",
           shown_by="node.test_group_storm:"
           "test_the_snapshot_of_the_next_leader_does_not_overtake_the_one_that_is_written"),
    Mutant("a replica that leaves takes those with it who ask for the leader",
           "node.hosting.hosted_queues:Hosting._leave",
           "runner.stop()", "runner.stop(); self._non_members.pop(record.group, None)", needs=_member_changes,
           shown_by="node.test_group_storm:test_a_non_member_is_not_forgotten_with_the_replica_that_left"),
    Mutant("who was just removed is not told that its leader is none", "raft.elections:Elections._asked",
           "if self._is_pre_vote:", "if False:", needs=_member_changes,
           shown_by="raft.test_raft_transcripts:test_cluster_does_what_was_recorded(member_remove_trust.txt)"),
    Mutant("a leader that began to remove itself takes itself for out after a restart",
           "raft.log_view:LogView.may_need", "LogIndex(newest - 1)", "self.commit_index", needs=_member_changes,
           shown_by="raft.test_raft_paper:"
           "test_a_server_that_joined_late_campaigns_after_a_restart_in_the_middle_of_its_removal"),
    Mutant("a member is removed on news of a former one", "node.hosting.reconciliation:Reconciliation._remove",
           "core.configuration.replica_id_of(node) == record.membership_epoch(node) and ", "", needs=_member_changes,
           shown_by="node.test_reconciliation:"
           "test_a_member_that_came_back_is_not_removed_on_the_news_that_it_is_to_leave"),
    Mutant("a member is removed that the others cannot do without",
           "node.hosting.reconciliation:Reconciliation._remove",
           " and core.can_do_without(node)", " and core.configuration.voters != (node,)", needs=_member_changes,
           shown_by="node.test_reconciliation:test_no_member_is_removed_while_too_few_would_be_left"),
    Mutant("policies of long ago hold again after a start", "node.hosting.reconciliation:Reconciliation.reconcile",
           "if not self._groups.is_current:", "if False:", needs=_policies,
           shown_by="node.test_reconciliation:test_a_node_that_starts_does_not_follow_policies_of_long_ago"),
    Mutant("a policy that is taken back at once stays", "machines.fifo:FifoMachine._update_config",
           "self._outbox.settings_changed()", "pass", needs=_policies,
           shown_by="node.test_reconciliation:test_a_policy_that_is_taken_back_at_once_does_not_stay"),
    Mutant("a publish to a queue that is new elsewhere has no route",
           "node.clients.publishing:publish",
           "if publishing.answers.knows_queues is None:",
           "if publishing.answers.knows_queues is None and publishing.unroutable(event, is_sure=True):",
           needs=_new_queues),
    Mutant("what is sent behind a request is done before it", "amqp.connection:ServerConnection.hold",
           "self.unread.hold(found)", "found.takes_runs = True"),
    Mutant("who waits for the answer of a queue that goes is told nothing",
           "node.clients.answers:Answers.queue_gone", "awaited.group == group", "False",
           needs=_fleeting_queues),
    Mutant("a link sends larger frames than its peer takes", "node.links.peers:PeerLink._waits",
           "size <= self._frame_max and not", "not", needs=_large_messages),
    Mutant("a small frame passes a large one of its group", "node.links.peers:PeerLink._waits",
           "self._backlog.holds(stream)", "False", needs=_large_messages,
           shown_by="node.test_parts:test_small_frames_of_others_pass_a_large_message"),
    Mutant("a message holds all entries that the core counted", "node.replication.sender:Sender._send_some",
           "self._octets_max)", "1 << 40)",
           shown_by="node.test_octets_to_followers:"
                    "test_a_message_holds_as_many_entries_as_fit_into_a_frame"),
    Mutant("the window in octets is never full", "node.replication.sender:Sender._may_go",
           "return False", "pass",
           shown_by="node.test_octets_to_followers:"
                    "test_a_follower_with_a_slow_disk_is_sent_no_more_than_the_window"),
    Mutant("what was lost on the way fills the window for ever", "node.replication.sender:Sender._is_held_back",
           "flow.lost(send.first)", "pass", needs=_large_messages,
           shown_by="node.test_octets_to_followers:test_entries_that_were_lost_are_not_under_way"),
    Mutant("a member reads all that is committed to apply it", "node.replication.group_runner:GroupRunner._apply",
           "_APPLY_BYTES", "1 << 40",
           shown_by="node.test_applying:test_a_member_that_is_far_behind_reads_a_little_at_a_time"),
    Mutant("who waits for a link is forgotten", "node.turns:Turns.when_writable",
           "self._waiting_to_send.setdefault(node, {})[runner] = None", "pass",
           shown_by="node.test_waiting_for_links:test_one_goes_on_at_a_time_until_the_link_is_congested_again"),
    Mutant("who was suspended delivers late what is somebody else's",
           "node.replication.group_runner:GroupRunner.was_suspended",
           "self._doubt()", "pass", needs=_long_pauses,
           shown_by="node.test_suspension:"
                    "test_what_others_got_while_a_node_was_suspended_is_not_delivered_there(leader)"),
    Mutant("who was cut off delivers late what is somebody else's", "node.replication.group_runner:GroupRunner.peer_up",
           "self._doubt()", "pass", needs=_several_nodes,
           shown_by="node.test_suspension:test_what_others_got_while_the_link_was_down_is_not_delivered_late"),
    Mutant("under another leader a member delivers late what is somebody else's",
           "node.replication.group_runner:GroupRunner._carry_out",
           "self._doubt()", "pass", needs=_several_nodes),
    Mutant("a non-member that was suspended believes what it finds unread",
           "node.replication.proxy:Proxy.was_suspended",
           "self.peer_down(self.leader)", "pass", needs=_several_nodes,
           shown_by="node.test_suspension:"
                    "test_what_others_got_while_a_non_member_was_suspended_is_not_delivered_there"),
    Mutant("a deposed leader says whom it cannot reach", "queues.quorum_member:QuorumMember.reproposed",
           "Tick() if isinstance(command, NodeDown | NodeUp) else command", "command", needs=_several_nodes,
           shown_by="node.test_suspension:test_a_leader_that_was_away_takes_nothing_from_those_who_were_not"),
    Mutant("an answer of before the last doubt ends it", "queues.quorum_member:QuorumMember._doubt_over",
           "if number != self._doubt.number:", "if False:", needs=_several_nodes,
           shown_by="queues.test_quorum_effects:test_an_answer_from_before_the_last_doubt_does_not_end_it"),
    Mutant("an answer that waited while the node was suspended ends its doubt",
           "node.hosting.queue_services:QueueServices.when_current",
           "self._check_suspension()", "pass", needs=_several_nodes,
           shown_by="node.test_suspension:test_an_answer_that_waited_meanwhile_is_too_old"),
    Mutant("the classic queues of a lost node keep their names",
           "node.hosting.replacement:Replacement._step_lost_queues",
           "self._metadata.delete(record, lambda _gone: None)", "pass", needs=_several_nodes,
           shown_by="node.test_replacement:test_classic_queues_of_the_lost_node_are_deleted_and_named"),
    Mutant("what was taken back is delivered after the doubt", "queues.quorum_member:QuorumMember._doubt_over",
           "self.machine.still_held(delivery) if isinstance(delivery, Deliver) else []",
           "[delivery] if isinstance(delivery, Deliver) else []", needs=_several_nodes,
           shown_by="queues.test_quorum_effects:test_what_was_taken_back_meanwhile_is_not_delivered"),
)  # fmt: skip

_RULES = "machines.test_rule_transcripts:test_the_transcript"
KEYED_MUTANTS = tuple(replace(mutant, needs=_keyed_queues) for mutant in (
    Mutant("a key whose message is out is free", "machines.keyed:KeyedReady._hold",
           "reservation.key.reserved = self", "self"),
    Mutant("a push shortens the delay of the head", "machines.keyed:KeyedReady.add",
           "if len(key.waiting) == 1", "key.waiting[0] = key.waiting[0]._replace(at_ms=message.at_ms)\n"
           "    if key.waiting", shown_by=f"{_RULES}(keyed_defects)"),
    Mutant("a message that comes back goes behind the others of its key", "machines.keyed:KeyedReady.put_back",
           "key.waiting.appendleft(message)", "key.waiting.append(message)", shown_by=f"{_RULES}(keyed_order)"),
    Mutant("a message that comes back has never been tried", "machines.keyed:KeyedReady.put_back",
           "origin, at_ms,", "origin._replace(delivery_count=0), at_ms,", shown_by=f"{_RULES}(keyed_defects)"),
    Mutant("a key stays blocked by a message that was rejected", "machines.settlement:discard",
           "if state.keyed is not None:", "if False:"),
    Mutant("a key stays blocked by a message that was tried too often", "machines.delivery_limit:take_back",
           "if state.keyed is not None:", "if False:"),
    Mutant("an empty key is kept", "machines.keyed:KeyedReady._forget",
           "if key.name is not None:", "if False:"),
    Mutant("a snapshot forgets which keys are out", "machines.keyed_snapshot:_encode",
           "out = key.name or b\"\", key.reserved", "out = key.name or b\"\", None"),
    Mutant("the end of a delay wakes nobody", "machines.keyed:KeyedReady.due_ms",
           "if is_wanted and head.at_ms > self.now_ms:", "if False:", shown_by=f"{_RULES}(keyed_delay)"),
    Mutant("the end of a reservation wakes nobody", "machines.keyed:KeyedReady.due_ms",
           "due = reservation.until_ms", "pass", shown_by=f"{_RULES}(keyed_defects)"),
    Mutant("a queue's time stands still under a leader whose clock is behind",
           "queues.onward_clock:OnwardClock.now_ms", "self.ahead_ms += reached_ms - now_ms", "pass",
           shown_by="queues.test_onward_clock:"
           "test_a_leader_whose_clock_is_an_hour_behind_goes_on_where_the_last_one_was"),
))  # fmt: skip

_CRASHES = "classic.test_store_crashes"
_DAMAGE = "classic.test_store_damage"
STORE_MUTANTS = _in_classic_worlds(
    Mutant("a message is told to be stored before its sync", "classic.writer:StoreWriter._commit",
           "queue.sync_messages()", "pass",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(publish_and_take)"),
    Mutant("a large message is told to be stored before its sync", "classic.writer:StoreWriter._commit",
           "self.shared.sync()", "pass",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(fill_shared_files)"),
    Mutant("new files of a queue have no name after a loss of power", "classic.queue_files:QueueFiles.sync_index",
           "self._files.sync_dir(self.directory)", "pass",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(publish_and_take)"),
    Mutant("a record without its whole message is believed", "classic.part_codec:decode_part",
           "if found != check or header.check != check:", "if False:",
           shown_by=f"{_CRASHES}:test_a_message_that_has_changed_is_dropped"),
    Mutant("a message without its record is told to be stored", "classic.writer:StoreWriter._commit",
           "queue.write_index()", "pass",
           shown_by=f"{_DAMAGE}:test_a_file_that_is_missing_is_told_after_a_loss_of_power('.rdq')"),
    Mutant("the record of a large message is not synced", "classic.queue_files:QueueFiles.stage",
           "segment.must_sync_index |= is_kept and part.is_large", "pass",
           shown_by=f"{_DAMAGE}:test_a_file_that_is_missing_is_told_after_a_loss_of_power('.rdq')"),
    Mutant("a start forgets a message without its record", "classic.recovery:_Queue._complete",
           "if self._is_whole(segment, parts[at]):", "if False:",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(publish_and_take)"),
    Mutant("a damaged record brings back what is gone", "classic.index_codec:may_be_made_again",
           '(records["state"] == STORED) & ', "",
           shown_by=f"{_CRASHES}:test_a_flipped_bit_brings_nothing_back_that_was_acknowledged(0, False)"),
    Mutant("a record is not checked", "classic.index_codec:live_records",
           "is_live &= is_sound(records, first)", "pass",
           shown_by=f"{_DAMAGE}:test_garbage_in_an_index_is_no_message"),
    Mutant("transient messages come back", "classic.index_codec:live_records",
           '& (records["flags"] & PERSISTENT != 0)', "",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_kill_at_each_call(be_lazy)"),
    Mutant("a shared file goes with the first of its messages", "classic.queue_files:QueueFiles.take",
           "self._released[file] += len(gone)", "self._released[file] += 1 << 30",
           shown_by="classic.test_store:test_a_shared_file_goes_with_the_last_message_in_it"),
    Mutant("a shared file never goes", "classic.queue_files:QueueFiles.take",
           "self._released[file] += len(gone)", "pass",
           shown_by="classic.test_store:test_a_shared_file_goes_with_the_last_message_in_it"),
    Mutant("a shared file goes while more is written to it", "classic.shared:SharedStore.create",
           "self._references[number] = 1", "self._references[number] = 0",
           shown_by="classic.test_store:test_a_shared_file_stays_while_its_writer_may_append"),
    Mutant("recovery counts no references to shared files", "classic.recovery:_Queue._read_segment",
           "self._shared.refer(file, end - begin)", "pass",
           shown_by="classic.test_store:test_shared_files_stay_over_a_restart"),
    Mutant("after a kill what was found lives in the kernel's memory only", "classic.recovery:_Queue._keep",
           "segment.must_sync = segment.must_sync_index = True", "pass",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_kill_at_each_call(publish_and_take)"),
    Mutant("a segment goes while messages are in it", "classic.queue_files:QueueFiles.sweep",
           "if not self.segments[number].live", "if True",
           shown_by="classic.test_store:test_a_segment_goes_when_its_messages_are_gone"),
    Mutant("a deleted queue leaves its directory", "classic.queue_files:QueueFiles.delete",
           "remove_directory(self._files, self.directory)", "pass",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(delete)"),
    Mutant("a store goes on after a failed call", "classic.writer:StoreWriter.handle",
           "self._health.has_failed = True", "pass",
           shown_by=f"{_CRASHES}:test_a_failed_store_writes_nothing_more"),
    Mutant("a deleted lazy queue is written first", "classic.writer:StoreWriter._add",
           "queue.group in self.deleted or ", "",
           shown_by="classic.test_store:test_what_a_deleted_lazy_queue_has_not_written_is_never_written"),
    Mutant("a lazy queue does not write what is gone", "classic.writer:StoreWriter._add",
           "part.left or queue.is_lazy", "part.left",
           shown_by="classic.test_store:test_a_lazy_queue_writes_what_is_gone_already(True)"),
    Mutant("a clean stop counts for ever", "classic.clean_stop:CleanStops.take",
           'self._files.rename(f"{self._root}/{CLEAN}", f"{self._root}/{TAKEN}")', "pass",
           shown_by="classic.test_store:test_what_was_delivered_is_known_after_a_clean_stop(True)"),
    Mutant("a record is written before its part is synced", "classic.writer:StoreWriter._commit",
           "queue.write_messages()", "queue.write_messages(); queue.write_index()",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(publish_and_take)"),
    Mutant("a shared file goes without a name that says so", "classic.shared:SharedStore.release",
           "self._removed.add(number)", "pass",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_loss_of_power_at_each_call(fill_shared_files)"),
    Mutant("a segment goes without a name that says so", "classic.queue_files:remove_segment",
           "files.rename(path + INDEX, path + LEFT)", "files.remove(path + INDEX)",
           shown_by=f"{_CRASHES}:test_every_promise_survives_a_kill_at_each_call(cross_segments)"),
    Mutant("a start removes what it did not understand", "classic.recovery:_Queue._read_segment",
           "if is_damaged or (has_strangers and not segment.live):", "if False:",
           shown_by=f"{_DAMAGE}:test_what_is_set_aside_is_never_replaced"),
    Mutant("nobody counts what a clean stop left", "classic.recovery:_Queue._tell_lost",
           "if missing > 0:", "if False:",
           shown_by=f"{_DAMAGE}:test_a_segment_of_which_nothing_is_left_is_told_after_a_clean_stop"),
    Mutant("an old file of a clean stop counts", "classic.clean_stop:CleanStops.take",
           "if self._number != expected:", "if False:",
           shown_by=f"{_DAMAGE}:test_an_old_file_of_a_clean_stop_does_not_count"),
    Mutant("an older copy of the store counts as the store", "classic.openings:Openings.older",
           "if inside >= beside:", "if True:",
           shown_by=f"{_DAMAGE}:test_an_older_copy_of_the_directory_is_told_once(True)"),
    Mutant("lost messages are not told", "classic.recovery:_Queue._read_segment",
           "lost[file] += end - begin", "pass",
           shown_by=f"{_CRASHES}:test_a_message_that_has_changed_is_dropped"),
)  # fmt: skip
"""Bugs in the store of classic queues. Its crash tests find all of them, worlds with classic queues find most."""

_EFFECTS = "queues.test_classic_effects"
CLASSIC_MUTANTS = _in_classic_worlds(
    Mutant("requeue out of order", "machines.messages.ready:Ready.put_back",
           "(held.number, held.count", "((1 << 62) - held.number, held.count",
           shown_by=f"{_EFFECTS}:test_requeued_messages_come_back_in_their_old_order((0, 1, 2, 3))"),
    Mutant("a requeue goes to the end", "machines.messages.ready:Ready.put_back",
           "self.returned_count += held.count",
           "return self.backlog.push((*origin[:2], held.start, held.count, *origin[-2:]))",
           shown_by=f"{_EFFECTS}:test_requeued_messages_come_back_in_their_old_order((0, 1, 2, 3))"),
    Mutant("a confirm does not wait for the store", "queues.classic_member:ClassicMember._keep_answer",
           "if channel in self._late_channels:", "if False:",
           shown_by=f"{_EFFECTS}:test_only_what_must_survive_is_confirmed_late(True, True, False)"),
    Mutant("a later confirm overtakes one that waits", "queues.classic_member:ClassicMember._keep_answer",
           "self._answers if end is None else", "self._answers if channel not in self._late_channels else",
           shown_by=f"{_EFFECTS}:test_answers_to_a_channel_keep_their_order_and_others_do_not_wait"),
    Mutant("a confirm waits for an earlier message only", "queues.classic_member:ClassicMember.stored",
           "(end := next(iter(self._late))) <= seq_end", "(end := next(iter(self._late)))",
           shown_by=f"{_EFFECTS}:test_a_confirm_waits_for_its_own_messages"),
    Mutant("a persistent message counts as transient", "queues.message_properties:_sort",
           "properties[at] == _PERSISTENT", "False",
           shown_by=f"{_EFFECTS}:test_only_what_must_survive_is_confirmed_late(True, True, False)"),
    Mutant("a settled message stays in the store", "queues.classic_member:ClassicMember._run_batches",
           "self._store.take(entry, start, count, step)", "pass",
           shown_by=f"{_EFFECTS}:test_a_purge_empties_the_store"),
    Mutant("all parts are read in one turn", "queues.classic_member:_Reads._may_read",
           "if self._has_read:", "if False:",
           shown_by=f"{_EFFECTS}:test_a_part_that_is_read_back_is_one_read_in_a_turn"),
    Mutant("after a restart nothing is redelivered", "queues.classic_member:ClassicMember._found",
           "found.positions + part.seq < delivered_end", "found.positions < 0",
           shown_by=f"{_EFFECTS}:test_after_a_kill_the_confirmed_messages_are_there_in_order(False)"),
    Mutant("nobody notes what was delivered", "queues.classic_member:ClassicMember._run",
           "self._store.delivered(_end_of(effect))", "pass",
           shown_by=f"{_EFFECTS}:test_what_was_never_delivered_is_not_flagged_after_a_clean_stop"),
    Mutant("times to live are forgotten at a stop", "queues.classic_member:ClassicMember._enqueues",
           "self._store.add(run, persistent, expires)", "self._store.add(run, persistent)",
           shown_by=f"{_EFFECTS}:test_messages_keep_their_time_to_live_over_a_restart"),
    Mutant("a returned message loses its priority", "machines.messages.priorities:PriorityReady.put_back",
           "self._level(origin.offset)", "self._level(0)",
           shown_by=f"{_EFFECTS}:test_priorities_are_served_highest_first_and_survive"),
    Mutant("of two confirms the later one counts", "queues.effect_runner:add_answer",
           "if answer.last > answers[-1].last:", "if True:",
           shown_by=f"{_EFFECTS}:test_a_confirm_for_a_run_that_came_again_does_not_hide_a_later_one"),
    Mutant("an answer outlives the link of its channel", "queues.classic_member:ClassicMember.ends_of",
           "del waiting[channel]", "pass",
           shown_by=f"{_EFFECTS}:test_a_channel_behind_a_link_that_broke_gets_no_answer_of_before(False)"),
    Mutant("a deleted classic queue keeps its files", "queues.classic_member:ClassicMember.delete",
           "self._store.delete()", "pass",
           shown_by=f"{_EFFECTS}:test_a_deleted_queue_leaves_nothing(True)"),
)  # fmt: skip
"""Bugs in the member of classic queues."""


_PAIR = "mirroring.test_mirror:test_a_mirror_has_the_masters_messages_at_the_same_batch"
_DOUBTS = "node.test_owner_doubts"
_CUT = "node.test_mirrors_in_partitions:test_confirms_go_on_while_two_mirrors_do_not_reach_each_other"
MIRROR_MUTANTS = _in_mirrored_worlds(
    Mutant("the master confirms before its mirrors", "mirroring.master:Confirmations.end",
           "min(own_end, self._end) if self._ends else own_end", "own_end"),
    Mutant("a confirm waits for one mirror only", "mirroring.master:Confirmations.everywhere", "min(", "max(",
           shown_by="mirroring.test_mirror:test_a_confirm_needs_all_mirrors"),
    Mutant("a mirror confirms what it has not stored", "mirroring.mirror:MirrorCopy.confirm",
           "self._unconfirmed[0][1] <= end and ", "",
           shown_by="mirroring.test_mirror:test_what_must_survive_is_confirmed_when_it_is_stored"),
    Mutant("a new mirror counts as synchronised at once", "node.owned.master_ring:MasterRing._welcome",
           "if is_full or self._log.oldest() >= next_seq:", "if True:", shown_by="node.test_mirrors_in_partitions:"
           "test_a_master_stays_that_only_the_leader_of_the_metadata_does_not_reach(False)"),
    Mutant("a new mirror is not waited for", "node.owned.master_ring:MasterRing.is_blocked",
           "self._filling is not None or any(self._is_copy(*each) for each in self._joining)", "False"),
    Mutant("a mirror goes on with an empty copy after a restart", "node.owned.mirrors_here:Mirrors.record_is",
           "if mirror is not None and mirror.boot_id != node.boot_id:", "if False:"),
    Mutant("the elder mirrors follow a younger one", "machines.cluster.mirror_records:_moved",
           "record.mirrors[record.mirrors.index(mirror) + 1 :]",
           "tuple(each for each in record.mirrors if each is not mirror)",
           shown_by="machines.test_mirror_changes:test_the_younger_mirrors_follow_a_promoted_one"),
    Mutant("a mirror keeps nothing for the next one", "mirroring.ring:RingMember.take",
           "self._kept.append((number, payload))", "pass"),
    Mutant("a node that starts deletes the copies of its former process",
           "node.hosting.hosted_queues:Hosting.became_current",
           "self._ports.owned.became_current(self.mirrors.left_behind())", "self._ports.owned.became_current(())"),
    Mutant("a node that missed other masters goes on with its former copy",
           "node.hosting.hosted_queues:Hosting._owner_changed",
           "(record.leader, record.owner_since) != (former.leader, former.owner_since)",
           "record.leader != former.leader",
           shown_by="node.test_jump_over_masters:test_the_queue_has_come_back_as_another_copy"),
    Mutant("a master that has started again keeps its mirrors", "machines.cluster.mirror_records:changed",
           "mirrors=(), epoch=epoch + 1", "epoch=epoch + 1"),
    Mutant("messages that were gone come back with a new mirror", "node.owned.master_ring:MasterRing._fill",
           "buffers += Take(part.seq, start, count, step).buffers()", "pass"),
    Mutant("a master delivers what its mirrors do not know of", "mirroring.master:Deliveries.allow",
           "end <= self._end or self.is_free", "True", shown_by=f"{_PAIR}(4)"),
    Mutant("effects go on while a mirror is filled", "node.owned.owner:OwnerRunner._keeps_effects",
           "self.ring is not None and self.ring.filling is not None", "False",
           shown_by=f"{_DOUBTS}:test_nothing_leaves_the_queue_while_a_mirror_is_filled()"),
    Mutant("an announcement counts before it has been round the ring", "mirroring.master:Deliveries.heard",
           "self._under_way and self._under_way[0][0] <= number", "self._under_way", shown_by=f"{_PAIR}(4)"),
    Mutant("a new mirror hears of no announcement before it came", "mirroring.master:Deliveries.begin_anew",
           "self._end = self._announced = 0", "pass",
           shown_by=f"{_PAIR}(3)"),
    Mutant("what only publishers sent to a mirror comes as new", "queues.classic_member:ClassicMember._is_taken_over",
           "bool(known)", "False", shown_by="node.test_mirrors_in_partitions:"
           "test_what_a_master_delivered_that_nobody_hears_comes_as_redelivered_from_the_next(0)"),
    Mutant("a master doubts nothing when a link breaks",
           "node.owned.owner:OwnerRunner.peer_down", "self.doubt()", "pass",
           shown_by=f"{_DOUBTS}:test_a_doubt_lasts_until_the_metadata_have_answered(broken link)"),
    Mutant("a channel whose first commands wait outlives its link", "node.owned.owner:OwnerRunner.peer_down",
           "self._gone.append((len(self._waiting), node))", "pass", shown_by=f"{_DOUBTS}:"
           "test_channels_end_with_their_link_though_nobody_has_applied_their_commands_yet(known0)"),
    Mutant("a node is told of channels that have ended", "node.owned.owner:OwnerRunner.catch_up",
           "if not any(gone == node for _waiting, gone in self._gone):", "if True:", shown_by=f"{_DOUBTS}:"
           "test_a_node_is_told_nothing_of_the_channels_that_its_broken_link_has_ended()"),
    Mutant("a master doubts nothing after a suspension",
           "node.owned.owner:OwnerRunner.was_suspended", "self.doubt()", "pass",
           shown_by=f"{_DOUBTS}:test_a_doubt_lasts_until_the_metadata_have_answered(suspension)"),
    Mutant("an earlier answer ends a doubt", "node.owned.owner:OwnerRunner._certain", "number == self._doubts", "True",
           shown_by=f"{_DOUBTS}:test_an_answer_to_an_earlier_question_ends_no_doubt()"),
    Mutant("the ring stays where two mirrors have no link", "mirroring.placement:out_of_ring",
           "if not reaches(elder.node, younger.node):", "if False:", shown_by=f"{_CUT}(1, 2, 3, 'master')"),
    Mutant("a mirror stays that does not hear who is in the ring", "mirroring.placement:out_of_ring",
           "not reaches(mirror.node, decider)", "False",
           shown_by="mirroring.test_placement:test_a_ring_goes_where_there_are_links((2, 3), 3, 2, True)"),
    Mutant("a mirror comes back to a ring without a link", "mirroring.placement:fits_in_ring",
           "return reaches(elder, node) and", "return", shown_by=f"{_CUT}(1, 2, 3, 'master')"),
    Mutant("what a suspended node finds unread comes as new", "node.replication.proxy:Proxy.effects",
           "are_late=self._is_late", "are_late=False",
           shown_by="node.test_mirrors_in_partitions:test_what_a_suspended_node_finds_unread_comes_as_redelivered"
           "(2, False)"),
)  # fmt: skip
"""Bugs in mirrored queues."""


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
    source = textwrap.dedent(inspect.getsource(original.fget if isinstance(original, property) else original))
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
