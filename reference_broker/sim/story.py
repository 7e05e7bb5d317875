"""The story of a run, in the words of Raft and of queues: who leads, what is appended and committed, where messages go.

Nodes and clients tell the story of each event before the checkers see the event. The story keeps references only, and
turns them into words when somebody reads them (:meth:`~reference_broker.sim.trace.Trace.lines`). So a run that ends
well pays next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from reference_broker.classic.writer import Notice as ClassicNotice
from reference_broker.log.notices import (
    GroupCreated,
    GroupDeleted,
    HardStateSynced,
    Notice,
    SnapshotInstalled,
    SnapshotTaken,
    Written,
)
from reference_broker.log.opening import RecoveredGroup
from reference_broker.machines.batch import decode_batch
from reference_broker.machines.cluster import metadata
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    NodeDown,
    NodeUp,
    Return,
    Settle,
)
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import RunSlice
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.node.replication.proposals import unseal
from reference_broker.queues.port import DeadMessage
from reference_broker.raft import wire
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.messages import TimeoutNow, VoteReply, VoteRequest
from reference_broker.raft.roles import Role
from reference_broker.sim.loop import Scheduler
from reference_broker.types import METADATA_GROUP, NOBODY, ChannelId, ConsumerId, Entry, EntryKind, GroupId, NodeId

_NUMBER: Final = re.compile(rb"<(\d+) \d+>")
_ABOUT_VOTES: Final = (wire._K_VOTE_REQUEST, wire._K_VOTE_REPLY, wire._K_TIMEOUT_NOW)


class Story:
    """The story that all nodes and clients of a world tell."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._names: dict[int, str] = {METADATA_GROUP: "metadata"}

    def _tell(self, node: int, what: str, group: int, words: Callable[..., str], *about: object) -> None:
        self._scheduler.trace.tell(self._scheduler.now, f"n{node}", what, self._of_group, group, words, about)

    def _of_group(self, group: int, words: Callable[..., str], about: Sequence[object]) -> str:
        return f"{self._names.get(group, format(group, 'x'))}: {words(*about)}"

    def client(self, host: str, words: Callable[..., str], *about: object) -> None:
        """A client did or heard something that is not about messages."""
        self._of_client(host, words, *about)

    def _of_client(self, host: str, words: Callable[..., str], *about: object) -> None:
        self._scheduler.trace.tell(self._scheduler.now, host, "client", words, *about)

    def publishes(self, host: str, queue: str, first: int, count: int) -> None:
        """A client publishes messages. ``queue`` is the name of a queue, or the fan."""
        self._of_client(host, "publishes {} messages to {}, from {} on".format, count, queue, first)

    def hears(self, host: str, queue: str, number: int, answer: str) -> None:
        """A client hears of a message that it published. ``answer`` is ``confirms`` or ``refuses``."""
        self._of_client(host, "hears: {} {} message {}".format, queue, answer, number)

    def gets(self, host: str, queue: str, body: bytes, tag: int, channel: int, *, again: bool) -> None:
        """A client gets a message. ``again``: it is flagged as redelivered."""
        words = "gets {} as tag {} of channel {} ({}){}".format
        self._of_client(host, words, body[:20], tag, channel, queue, " again" * again)

    def settles(self, host: str, queue: str, words: str, number: int, tag: int, channel: int) -> None:
        """A client settles a message of a queue. ``words`` say how."""
        self._of_client(host, "{} message {}, tag {} of channel {}".format, words, number, tag, channel)

    # Links

    def linked(self, node: NodeId, peer: NodeId, *, up: bool) -> None:
        """A link with another node stands, or is gone."""
        words = "has a link with n{}" if up else "has lost its link with n{}"
        self._scheduler.trace.tell(self._scheduler.now, f"n{node}", "link", words.format, peer)

    # Raft

    def begins(self, node: NodeId, runner: GroupRunner, name: str, state: RecoveredGroup | None) -> None:
        """A member begins with the log that was found on its disk."""
        self._names[runner.group] = name
        log = runner.core.log
        found = "nothing" if state is None else f"term {state.term}, vote for {_node(state.voted_for)}"
        voters = runner.core.configuration
        text = f"begins with {found}; snapshot at {log.snapshot_index}, log up to {log.last_index}, members {voters}"
        self._tell(node, "raft", runner.group, str, text)

    def stands(self, node: NodeId, runner: GroupRunner) -> None:
        """The role, leader or term of a member has changed."""
        core = runner.core
        self._tell(node, "raft", runner.group, _standing, core.role, core.leader, core.term, core.configuration)

    def appended(self, node: NodeId, group: GroupId, entries: Sequence[Entry]) -> None:
        """Entries were handed to a member's log."""
        self._tell(node, "raft", group, _appended, entries)

    def truncated(self, node: NodeId, group: GroupId, index: int) -> None:
        """A member drops the end of its log."""
        self._tell(node, "raft", group, "drops its log from {} on".format, index)

    def reset(self, node: NodeId, group: GroupId, index: int, term: int) -> None:
        """A snapshot replaced a member's log."""
        self._tell(node, "raft", group, "goes on behind the snapshot at {} of term {}".format, index, term)

    def left(self, node: NodeId, group: GroupId) -> None:
        """A node deletes its member."""
        self._tell(node, "raft", group, "deletes its replica".format)

    def noticed(self, node: NodeId, notices: Sequence[Notice]) -> None:
        """The log says that something is on disk."""
        for notice in notices:
            if (group := getattr(notice, "group", None)) is not None:
                self._tell(node, "disk", group, _noticed, notice)

    def reached(self, node: NodeId, runner: GroupRunner, before: int) -> None:
        """A member may have come further. ``before`` is the commit index at the last look."""
        commit = runner.core.commit_index
        if commit != before:
            self._tell(node, "raft", runner.group, "commit index {} -> {}".format, before, commit)

    def sends(self, node: NodeId, to: NodeId, kind: FrameKind, head: bytes | memoryview) -> None:
        """A frame leaves a node. Only messages about votes are told."""
        if kind is FrameKind.RAFT and head[0] in _ABOUT_VOTES:
            self._tell(node, "raft", int.from_bytes(head[1:9], "big"), _message, to, bytes(head))

    def frames(self, _node: NodeId, take: Callable[..., Any]) -> Callable[..., Any]:
        """How a node is to take frames of other nodes: as it would without a story."""
        return take

    # Queues

    def owns(self, node: NodeId, record: QueueRecord) -> None:
        """A node owns a classic queue."""
        self._names[record.group] = record.name
        self._tell(node, "queue", record.group, "begins on its owner".format)

    def applies_at_once(self, node: NodeId, group: GroupId, commands: Sequence[Command]) -> None:
        """The owner of a classic queue applies commands."""
        self._tell(node, "queue", group, _applies_at_once, commands)

    def classic_noticed(self, node: NodeId, notices: Sequence[ClassicNotice]) -> None:
        """The store of classic queues tells something."""
        for notice in notices:
            self._tell(node, "disk", getattr(notice, "group", METADATA_GROUP), str, notice)

    def applies(self, node: NodeId, group: GroupId, entry: Entry) -> None:
        """A member applies an entry."""
        self._tell(node, "queue" if group else "metadata", group, _applies, entry, group)

    def installs(self, node: NodeId, group: GroupId, index: int) -> None:
        """A member takes over the state of another member."""
        self._tell(node, "queue", group, "takes over the state at {}".format, index)

    def delivers(
        self, node: NodeId, _group: GroupId, consumer: ConsumerId, first: int, pieces: list[RunSlice], count: int
    ) -> None:
        """A node hands messages to one of its channels."""
        self._scheduler.trace.tell(
            self._scheduler.now, f"n{node}", "queue", _delivers, consumer, first, pieces, count
        )  # fmt: skip

    def buries(self, node: NodeId, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """A leader routes dead letters."""
        self._tell(node, "queue", group, _buries, letters, contents)


# The words. These functions run only if somebody reads the story.


def _node(node: int) -> str:
    return f"n{node}" if node != NOBODY else "nobody"


def _range(first: int, last: int) -> str:
    return f"{first}-{last}" if first != last else f"{first}"


def _channel(channel: ChannelId) -> str:
    """Node, boot id, connection and channel."""
    return f"n{channel.node}/{channel.boot_id}.{channel.connection}.{channel.channel}"


def _standing(role: Role, leader: NodeId, term: int, members: Configuration) -> str:
    if role is Role.LEADER:
        return f"LEADS term {term}, members {members}"
    if role is Role.FOLLOWER:
        return f"follows {_node(leader)} in term {term}"
    return f"is {role.name.lower().replace('_', '-')} in term {term}, members {members}"


def _appended(entries: Sequence[Entry]) -> str:
    return "appends " + ", ".join(f"{entry.index} of term {entry.term} ({_kind(entry)})" for entry in entries)


def _kind(entry: Entry) -> str:
    if entry.kind is EntryKind.CONFIG:
        return f"members {Configuration.decode(entry.payload)}"
    return "no-op" if entry.kind is EntryKind.NOOP else f"{len(entry.payload)} octets"


def _noticed(notice: Notice) -> str:
    match notice:
        case Written(_, index, term):
            return f"has its log up to {index} of term {term} on disk"
        case HardStateSynced(_, term, voted_for):
            return f"has term {term}, vote for {_node(voted_for)} on disk"
        case SnapshotTaken(_, index, term):
            return f"has its snapshot at {index} of term {term} on disk"
        case SnapshotInstalled(_, index, term):
            return f"has the leader's snapshot at {index} of term {term} on disk"
        case GroupCreated():
            return "is created on disk"
        case GroupDeleted():
            return "is deleted on disk"
        case _:
            return str(notice)


def _message(to: NodeId, head: bytes) -> str:
    match wire.decode(head)[1]:
        case VoteRequest(term=term, last_index=index, last_term=last_term):
            return f"asks {_node(to)} for its vote in term {term}, with a log up to {index} of term {last_term}"
        case VoteReply(term=term, granted=granted):
            return f"{'grants' if granted else 'refuses'} {_node(to)} its vote in term {term}"
        case TimeoutNow(term=term):
            return f"makes {_node(to)} stand for the term after {term}"
        case message:
            return f"sends {_node(to)} {message}"


def _applies(entry: Entry, group: GroupId) -> str:
    end, _segments = unseal(entry.payload)
    if group == METADATA_GROUP:
        words = [str(command) for command in metadata.decode(entry.payload[:end])]
    else:
        words = [_command(command) for _, command in decode_batch(entry.payload, end)[1]]
    return f"applies {entry.index}: {'; '.join(words)}"


def _applies_at_once(commands: Sequence[Command]) -> str:
    return f"applies {'; '.join(map(_command, commands))}"


def _command(command: Command) -> str:
    match command:
        case Enqueue(channel, first, run):
            numbers = _numbers(bytes(run.data))
            return f"enqueue {numbers} as {_channel(channel)} #{_range(first, first + run.count - 1)}"
        case Settle(consumer, ranges) | Return(consumer, ranges) | Discard(consumer, ranges):
            ids = ", ".join(_range(*each) for each in ranges)
            return f"{type(command).__name__.lower()} ids {ids} of {_consumer(consumer)}"
        case Checkout(consumer) | Cancel(consumer) | Get(consumer):
            return f"{type(command).__name__.lower()} by {_consumer(consumer)}"
        case NodeUp(node):
            return f"{_node(node)} is up"
        case NodeDown(node):
            return f"{_node(node)} is down"
        case ChannelDown(channel):
            return f"{_channel(channel)} is gone"
        case DeadLetterSettled(ranges):
            return f"letters {', '.join(_range(*each) for each in ranges)} are settled"
        case _:
            return str(command)


def _consumer(consumer: ConsumerId) -> str:
    return f"{consumer.tag or 'get'} on {_channel(consumer.channel)}"


def _numbers(octets: bytes) -> str:
    """The messages in these octets, by the numbers that their publishers gave them."""
    return " ".join(number.decode() for number in _NUMBER.findall(octets)) or "no message"


def octets_of(pieces: list[RunSlice]) -> bytes:
    """The messages of slices of runs, back to back."""
    return b"".join(
        run.content(at) for run, start, number, step in pieces for at in range(start, start + number * step, step)
    )


def _delivers(consumer: ConsumerId, first: int, pieces: list[RunSlice], count: int) -> str:
    octets = octets_of(pieces)
    ids = _range(first, first + sum(piece[2] for piece in pieces) - 1)
    again = f", returned {count} times" if count else ""
    return f"delivers {_numbers(octets)} as ids {ids} to {_consumer(consumer)}{again}"


def _buries(letters: DeadLetter, contents: list[DeadMessage]) -> str:
    numbers = _numbers(b"".join(content for _route, content in contents))
    ids = f" as letters from {letters.first_id} on" if letters.first_id else ""
    return f"dead ({letters.reason.name.lower()}): {numbers}{ids}"
