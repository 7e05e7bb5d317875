"""The metadata group on one node: declares and deletes of queues go in, groups start and stop here as they commit.

Exchanges and bindings are changed in the same way. Nothing starts or stops with them: a channel routes by the table of
the machine, as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol, TypedDict

from reference_broker.machines.cluster import access, exchanges, metadata
from reference_broker.machines.cluster.access import AccessAnswer, AccessCommand
from reference_broker.machines.cluster.exchanges import (
    Bind,
    DeclareExchange,
    DeleteExchange,
    ExchangeAnswer,
    ExchangeOutcome,
    Unbind,
)
from reference_broker.machines.cluster.metadata import (
    AccessChanged,
    AddMember,
    Answer,
    ClearPolicy,
    DeclareQueue,
    DeleteQueue,
    LookUp,
    MemberChange,
    MemberLeft,
    MembersChanged,
    MetadataCommand,
    MetadataEffect,
    MetadataMachine,
    PoliciesChanged,
    QueueAdded,
    QueueCommand,
    QueueRecord,
    QueueRemoved,
    RemoveMember,
    ReplaceMember,
    ReplicaGone,
    SetPolicy,
)
from reference_broker.machines.cluster.mirror_records import (
    AddMirror,
    DropMirror,
    MirrorChange,
    MirrorSynchronised,
    MoveMaster,
    StartMaster,
)
from reference_broker.machines.cluster.policies import Policy
from reference_broker.machines.cluster.stored_patterns import UnusablePattern
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.routing.records import Arguments, Binding, Exchange
from reference_broker.types import METADATA_GROUP, Entry, NodeId, Term

Answered = Callable[[QueueRecord | None], None]
ExchangeAnswered = Callable[[ExchangeOutcome], None]
AccessAnswered = Callable[[str], None]
"""Gets the name of what is missing, such as ``user 'u'``; empty if the command was done."""

_COMMAND_BYTES: Final = 256
log = logging.getLogger(__name__)


class _Asker(TypedDict):
    node: NodeId
    correlation: int


class QueueStarter(Protocol):
    """The node's part: it runs the groups of its queues."""

    node: NodeId
    boot_id: int

    def queue_added(self, record: QueueRecord) -> None:
        """Run the queue's group here, unless it already runs."""

    def queue_removed(self, record: QueueRecord) -> None:
        """Stop the queue's group and remove its data, if it is here."""

    def members_changed(self, record: QueueRecord) -> None:
        """Members are wanted on other nodes than before."""

    def replica_gone(self, record: QueueRecord, membership_epoch: int) -> None:
        """This node is no member any more: delete the replica of that membership epoch, if it is here."""

    def policies_changed(self) -> None:
        """Another policy may hold for a queue."""

    def queues_replaced(self, records: Sequence[QueueRecord]) -> None:
        """These are all the queues there are: stop the groups of all others."""


class MetadataHost:
    """A :class:`~reference_broker.queues.port.HostedMachine`: the metadata on one node, and how the node asks for it.

    ``member`` takes the commands; it is set when the group starts on this node. Each ``answered`` is called once, when
    the command is applied here.
    """

    member: GroupRunner
    client_nodes: Final = range(1 << 32)
    """All: everybody may want to use a new queue at once."""

    def __init__(self, starter: QueueStarter) -> None:
        self.version = metadata.VERSION
        self.machine = MetadataMachine()
        self.access_changed: Callable[[], None] = lambda: None
        """Called when users may do other things than before."""
        self._starter = starter
        self._effects: list[MetadataEffect] = []
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._only_now: set[int] = set()
        """The correlations of deletions that only the leader of their time may do."""
        self._told: set[UnusablePattern] = set()
        self._next_correlation = (starter.boot_id << 32) + 1  # answers replayed from before this start match no caller

    def declare(self, record: QueueRecord, answered: Answered) -> None:
        """Create the queue if its name is free; ``answered`` gets the record of that name."""
        self._propose(DeclareQueue(record=record, **self._asker(answered)))

    def delete(self, record: QueueRecord, answered: Answered, *, only_now: bool = False) -> None:
        """Delete the queue of this record; a later queue of the same name stays. ``answered`` gets None. With
        ``only_now``, only the present leader is asked; if it does not do it, ``answered`` gets the record."""
        command = DeleteQueue(name=record.name, group=record.group, **self._asker(answered))
        if only_now:
            self._only_now.add(command.correlation)
        self._propose(command)

    def change(self, kind: type[MemberChange], record: QueueRecord, member: NodeId, answered: Answered) -> None:
        """Change a queue's members; ``answered`` gets the record as it is then, None if the queue is gone."""
        self._propose(kind(name=record.name, group=record.group, member=member, **self._asker(answered)))

    def left(self, record: QueueRecord, member: NodeId, answered: Answered) -> None:
        """Report that a member left for good."""
        epoch = record.membership_epoch(member)
        report = MemberLeft(
            name=record.name, group=record.group, member=member, membership_epoch=epoch, **self._asker(answered)
        )
        self._propose(report)

    def change_mirrors(
        self, command: Callable[..., MirrorChange], record: QueueRecord, answered: Answered, **values: Any
    ) -> None:
        """Change a queue's mirrors: ``values`` are the command's own. ``answered`` gets the record as it is then, None
        if the queue is gone."""
        self._propose(command(name=record.name, group=record.group, **values, **self._asker(answered)))

    def look_up(self, record: QueueRecord, answered: Answered) -> None:
        """``answered`` gets the record as it is now, None if the queue is gone."""
        self._propose(LookUp(name=record.name, group=record.group, **self._asker(answered)))

    def when_current(self, call: Callable[[], None]) -> None:
        """Call when everything that is committed now has been applied here."""
        self._propose(LookUp(name="", group=METADATA_GROUP, **self._asker(lambda _none: call())))

    def set_policy(self, policy: Policy, answered: Answered) -> None:
        """Set or replace a policy; ``answered`` gets None."""
        self._propose(SetPolicy(policy=policy, **self._asker(answered)))

    def clear_policy(self, name: str, vhost: str, answered: Answered, *, operator: bool) -> None:
        """Remove the policy of this name, if it is there; ``answered`` gets None."""
        self._propose(ClearPolicy(name=name, operator=operator, vhost_name=vhost, **self._asker(answered)))

    def declare_exchange(self, vhost: str, exchange: Exchange, answered: ExchangeAnswered) -> None:
        """Create the exchange if its name is free; ``answered`` gets the exchange of that name."""
        command = DeclareExchange(exchange=exchange, vhost_name=vhost, **self._asker(answered))
        self._propose(command, _octets(exchange.arguments))

    def delete_exchange(self, vhost: str, name: str, answered: ExchangeAnswered, *, if_unused: bool) -> None:
        """Delete the exchange and its bindings, with ``if_unused`` only if it has none."""
        self._propose(DeleteExchange(name=name, if_unused=if_unused, vhost_name=vhost, **self._asker(answered)))

    def change_binding(
        self, kind: type[Bind | Unbind], vhost: str, binding: Binding, answered: ExchangeAnswered
    ) -> None:
        """Add or remove a binding."""
        self._propose(kind(binding=binding, vhost_name=vhost, **self._asker(answered)), _octets(binding.arguments))

    def change_access(self, command: Callable[..., AccessCommand], answered: AccessAnswered, **values: Any) -> None:
        """Change users, virtual hosts or permissions: ``values`` are the command's own."""
        self._propose(command(**values, **self._asker(answered)))

    def _propose(self, command: MetadataCommand, octets: int = 0) -> None:
        """Propose a command, with ``octets`` of arguments."""
        self.member.propose(command, _COMMAND_BYTES + octets)

    def _asker(self, answered: Callable[[Any], None]) -> _Asker:
        """The receiver of the answer."""
        correlation = self._next_correlation
        self._next_correlation += 1
        self._waiting[correlation] = answered
        return {"node": self._starter.node, "correlation": correlation}

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """One batch."""
        return [metadata.encode(commands)]

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a forwarded batch."""
        return [(command, _COMMAND_BYTES) for command in metadata.decode(sealed[:end])]

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry and keep its effects."""
        self._effects.extend(self.machine.apply(entry.payload[:end], skip))

    def run_effects(self, non_members: Collection[object] = ()) -> None:
        """Start and stop groups, answer the waiting clients of this node."""
        effects, self._effects = self._effects, []
        for effect in effects:
            match effect:
                case QueueAdded(record):
                    self._starter.queue_added(record)
                case QueueRemoved(record):
                    self._starter.queue_removed(record)
                case MembersChanged(record):
                    self._starter.members_changed(record)
                case ReplicaGone(record, member, epoch) if member == self._starter.node:
                    self._starter.replica_gone(record, epoch)
                case PoliciesChanged():
                    self._starter.policies_changed()
                case AccessChanged():
                    self.access_changed()
                case UnusablePattern():
                    self._tell(effect)
                case Answer(node, correlation, record) if node == self._starter.node:
                    self._answer(correlation, record)
                case ExchangeAnswer(node, correlation, outcome) if node == self._starter.node:
                    self._answer(correlation, outcome)
                case AccessAnswer(node, correlation, missing) if node == self._starter.node:
                    self._answer(correlation, missing)

    def _tell(self, found: UnusablePattern) -> None:
        """Say once that a pattern finds nothing. Entries of the log may repeat what a snapshot has."""
        if found not in self._told:
            self._told.add(found)
            log.warning(
                "%s: the regular expression %r finds no name: %s; set it again with another expression",
                found.where,
                found.pattern,
                found.problem,
            )

    def _answer(self, correlation: int, value: Any) -> None:
        """Answer the caller that waits under this correlation, if there is one."""
        self._only_now.discard(correlation)
        if (answered := self._waiting.pop(correlation, None)) is not None:
            answered(value)

    def catch_up(self, channels: object, asked: Sequence[Any]) -> None:
        """Every node has a member, so there is no non-member to tell."""

    def pace(self) -> int | None:
        """No consumers here."""
        return None

    def became_leader(self, term: Term) -> None:
        """Leading the metadata asks for nothing more."""

    def reproposed(self, command: Any) -> Any:
        """The same, except for a deletion that only the former leader was asked for: it becomes a question."""
        if command.correlation not in self._only_now:
            return command
        return LookUp(name=command.name, group=command.group, node=command.node, correlation=command.correlation)

    def doubt(self) -> None:
        """Nothing to doubt: everybody may read the metadata."""

    def after_doubt(self, call: Callable[[], None]) -> None:
        """That is now."""
        call()

    def stop(self) -> None:
        """The metadata stays for as long as the node."""

    def lost_leadership(self) -> None:
        """Nor does following."""

    def snapshot(self) -> bytes:
        """The machine's state."""
        return self.machine.snapshot()

    def restore(self, state: bytes) -> None:
        """Take over this member's own snapshot. A queue that it lacks may exist: the log goes on."""
        self._take_over(state)
        for record in self.machine.queues.values():
            self._starter.queue_added(record)

    def _take_over(self, state: bytes) -> None:
        self.machine = MetadataMachine.restore(state)
        for found in self.machine.unusable_patterns():
            self._tell(found)

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Take over a newer state: a queue it lacks is gone. Answer the clients that wait for a skipped command."""
        self._take_over(state)
        self._effects.clear()
        records = list(self.machine.queues.values())
        self._starter.queues_replaced(records)
        for record in records:
            self._starter.queue_added(record)
        for command in skipped:
            self._answer(command.correlation, self._present(command))
        self._starter.policies_changed()
        self.access_changed()

    def _present(self, command: MetadataCommand) -> QueueRecord | ExchangeOutcome | str | None:
        """The state's present answer to a command that was applied elsewhere."""
        match command:
            case SetPolicy() | ClearPolicy():
                return None
            case DeclareExchange() | DeleteExchange() | Bind() | Unbind():
                table = self.machine.routing(command.vhost_name)
                return exchanges.present_outcome(table, self.machine.queues, command)
            case (
                DeclareQueue()
                | DeleteQueue()
                | AddMember()
                | RemoveMember()
                | ReplaceMember()
                | MemberLeft()
                | AddMirror()
                | DropMirror()
                | MirrorSynchronised()
                | MoveMaster()
                | StartMaster()
                | LookUp()
            ):
                return self.machine.queues.get(_queue_of(command))
            case _:
                return access.present_lack(self.machine.access, command)

    def live_entries(self) -> list[tuple[int, int]]:
        """None: the state stands on its own."""
        return []

    def lowest_live_entry(self) -> int | None:
        """None."""
        return None


def _queue_of(command: QueueCommand) -> str:
    """The name of the queue that a command is about."""
    return command.record.name if isinstance(command, DeclareQueue) else command.name


def _octets(arguments: Arguments) -> int:
    """About the octets that arguments take in JSON."""
    return sum(len(name) + 2 * len(value) for name, value in arguments)
