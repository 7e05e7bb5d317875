"""How a queue's leader brings the queue's members and settings in line with what is wanted.

The metadata record says which members are wanted and which are leaving. The group's configuration says which members
there are. On each election, each change of the record and each committed change of the configuration the leader takes
the next step. A step that cannot be taken at once is tried again now and then.

    leaving, and not in the configuration    report it: the node may delete its replica
    wanted, and not in the configuration     look the record up; if it still is wanted, add it
    leaving, and in the configuration        remove it, once the others can commit the removal

The look-up makes adding safe. A leader that has not heard that a node left would add the node again, while the node
deletes the replica that the other members count on: votes and acknowledged entries would be forgotten. The answer to a
question that was asked after the election is no older than the election. If another leader has acted since, nothing
that this leader appends will be committed.

Removing needs no look-up: a membership that was to end once is to end for good. But only the replica of that membership
epoch goes: the record may be old, and the node may have come back since.

A removal is in effect on the leader before any member has agreed. So the leader begins no removal that the reachable
remaining members could not commit now. If one of the lost ones never came back, the others could not go on either: the
leader's log would keep them from being elected, and the leader itself could commit nothing. etcd refuses such a
removal, too (strict-reconfig-check). If several members leave, one that the others can do without goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reference_broker.machines.cluster.metadata import QueueRecord, with_policy
from reference_broker.node.hosting.mirror_steps import MirrorSteps
from reference_broker.node.owned.owner import OwnerRunner
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.queues.port import Queue
from reference_broker.raft.roles import Role
from reference_broker.types import METADATA_GROUP, GroupId, NodeId, Term

_COMMAND_BYTES: Final = 128


class Reconciliation:
    """The steps that this node takes for the queues that it leads."""

    def __init__(
        self, groups: Groups, metadata: MetadataHost, mirror_steps: MirrorSteps, wake: Callable[[GroupRunner], None]
    ) -> None:
        self._groups = groups
        self._mirror_steps = mirror_steps
        self._metadata = metadata
        self._wake = wake
        self._unfinished: set[GroupId] = set()
        self._asked: set[tuple[GroupId, Term, int, NodeId]] = set()
        """Questions and reports to the metadata group that are under way."""
        self._proposed: dict[GroupId, tuple[Term, object]] = {}
        """The term and the change of settings that were last proposed to each queue: once is enough."""

    def retry(self) -> None:
        """Try again the steps that could not be taken. Without such steps this costs nothing."""
        unfinished, self._unfinished = self._unfinished, set()
        for group in sorted(unfinished):
            if (runner := self._groups.hosted.get(group)) is not None:
                self.reconcile(runner)
        self._mirror_steps.look_again()

    def reconcile(self, runner: QueueRunner) -> None:
        """Take the next step, if this node leads the queue and a step is due."""
        queue = self._groups.by_group.get(runner.group)
        if queue is None or runner.group == METADATA_GROUP or not runner.leads:
            return
        if not self._groups.is_current:
            return  # at the start the log tells again of members and policies of long ago
        self._follow_policy(runner, queue)
        if (member := self._groups.runners.get(runner.group)) is not None:
            self._reconcile_members(member, queue.record)
        elif isinstance(runner, OwnerRunner) and self._mirror_steps.step(runner, queue.record):
            self._unfinished.add(runner.group)

    def _reconcile_members(self, runner: GroupRunner, record: QueueRecord) -> None:
        core = runner.core
        missing = set(record.members) - set(core.configuration.members)
        if not missing and not record.leaving:
            return
        self._unfinished.add(runner.group)
        if core.change_under_way or not core.accepting:
            return
        gone = set(record.leaving) - set(core.configuration.members)
        if gone:
            self._report(runner, record, min(gone))
        elif missing:  # before others are removed: the group must not become empty
            self._look_up(runner, record, min(missing))
        else:
            self._remove(runner, record)

    def settings_changed(self, runner: QueueRunner) -> None:
        """The settings of a queue that this node leads are others now. They may be late: proposed before a policy was
        taken back, by this leader or one that has lost its place. What is wanted now has the last word."""
        self._proposed.pop(runner.group, None)
        self.reconcile(runner)

    def _follow_policy(self, runner: QueueRunner, queue: Queue) -> None:
        """Have the queue take the settings that its arguments and the policies make together."""
        if queue.member is None:
            return
        change = queue.member.settings_change(with_policy(queue.record, self._metadata.machine.policies.values()))
        if change is not None and self._proposed.get(runner.group) != (runner.term, change):
            self._proposed[runner.group] = (runner.term, change)
            runner.propose(change, _COMMAND_BYTES)

    def _remove(self, runner: GroupRunner, record: QueueRecord) -> None:
        core = runner.core
        for node in record.leaving:
            if core.configuration.replica_id_of(node) == record.membership_epoch(node) and core.can_do_without(node):
                core.remove(node)
                self._wake(runner)
                return

    def _report(self, runner: GroupRunner, record: QueueRecord, member: NodeId) -> None:
        question = (runner.group, runner.core.term, record.changes, member)
        if question not in self._asked:
            self._asked.add(question)
            self._metadata.left(record, member, lambda _record: self._asked.discard(question))

    def _look_up(self, runner: GroupRunner, record: QueueRecord, member: NodeId) -> None:
        question = (runner.group, runner.core.term, record.changes, member)
        if question in self._asked:
            return
        self._asked.add(question)

        def answered(now: QueueRecord | None) -> None:
            self._asked.discard(question)
            core = runner.core
            leads = core.role is Role.LEADER and core.term == question[1]
            can = leads and core.accepting and not core.change_under_way
            wanted = now is not None and now.changes == record.changes and member in now.members
            if now is not None and wanted and can and member not in core.configuration.members:
                core.add(member, now.membership_epoch(member))
                self._wake(runner)

        self._metadata.look_up(record, answered)
