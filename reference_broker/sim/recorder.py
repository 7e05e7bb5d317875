"""The recorder of a world: it takes down what the story tells, as events that a page can draw.

The format is that of :mod:`reference_broker.worldpage.events`. A world without a recorder has a plain
:class:`~reference_broker.sim.story.Story`, and makes no additional call.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from reference_broker.log.notices import HardStateSynced, Notice, SnapshotInstalled, SnapshotTaken, Written
from reference_broker.log.opening import RecoveredGroup
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Command, Enqueue
from reference_broker.machines.effects import DeadLetter
from reference_broker.message_run import RunSlice
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.queues.port import DeadMessage
from reference_broker.raft import wire
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.messages import AppendReply, PreVoteReply, VoteReply
from reference_broker.sim import story
from reference_broker.sim.checks import ledger
from reference_broker.sim.checks.invariants import INVARIANTS
from reference_broker.sim.loop import Scheduler
from reference_broker.types import NOBODY, ConsumerId, Entry, EntryKind, GroupId, NodeId
from reference_broker.worldpage.events import WorldEvent

_ACTS: Final = {"kill": "kill", "power": "power", "heal": "healed"}
_SILENT: Final = ("kill", "power", "pause")
"""Acts of the nemesis whose effects are events of their own."""
_GROUP: Final = re.compile(r"\bgroup ([0-9a-f]+)")
_LATE_S: Final = 0.1
"""Time after which a message that has not arrived counts as lost, when the world has ended."""
_OWN_WORDS: Final = 200
"""Longest words of an entry, in characters."""


class WorldRecorder:
    """The events of a world in their order."""

    def __init__(self) -> None:
        self.events: list[WorldEvent] = []
        self.now: Callable[[], float] = float
        """The virtual seconds, once the world is there."""
        self._under_way: dict[tuple[str, str], deque[tuple[bytes, WorldEvent]]] = {}
        """The messages between two hosts that have not arrived, in their order."""
        self.labels: dict[int, str] = {}
        """The name of each group in the events."""

    def add(self, at: str, what: str, **fields: Any) -> WorldEvent:
        """Take an event down."""
        event = WorldEvent(self.now(), at, what, fields)
        self.events.append(event)
        return event

    def noted(self, host: str, what: str, detail: str | int) -> None:
        """Something of the world outside the nodes' code has happened."""
        if what == "start":
            self.add(host, "start", boot=detail)
        elif what == "nemesis" and detail not in _SILENT:
            self.add(host, "trouble", name=str(detail).replace("_", " "))
        elif what in _ACTS:
            self.add(host, _ACTS[what])
            if what != "heal":
                self.lose(host)

    def leaves(self, octets: bytes, message: WorldEvent) -> None:
        """A message that begins with these octets is on its way."""
        self._under_way.setdefault((message.at, message.fields["to"]), deque()).append((octets, message))

    def arrives(self, sender: str, host: str, body: memoryview) -> None:
        """A message has arrived. Those before it were lost, for a link keeps their order."""
        waiting = self._under_way.get((sender, host), deque())
        for place, (octets, message) in enumerate(waiting):
            if body[: len(octets)] == octets:
                for _ in range(place):
                    waiting.popleft()[1].fields["lost"] = True
                waiting.popleft()
                message.fields.update(got=self.now(), lost=False)
                return

    def lose(self, host: str, sender: str = "", before: float = math.inf) -> None:
        """What is on its way to a host, from one sender or from all, and left before a time, does not arrive."""
        for (source, target), waiting in self._under_way.items():
            if target == host and sender in ("", source):
                while waiting and waiting[0][1].t < before:
                    waiting.popleft()[1].fields["lost"] = True

    def close(self) -> None:
        """The world has ended. A message that is late by much does not arrive."""
        for _source, target in list(self._under_way):
            self.lose(target, before=self.now() - _LATE_S)

    def direction(self, source: str, target: str, is_blocked: bool) -> None:
        """A direction between two hosts is held up, or free again."""
        if source != target:
            self.add(source, "cut" if is_blocked else "free", to=target)

    def broken(self, number: str, what: str) -> None:
        """The world has ended because an invariant does not hold (``number``), or because of a defect of its own."""
        statement = INVARIANTS[number].statement if number else "a world runs to its end"
        seen = _GROUP.sub(self._named, what.partition("\n")[2].strip() or what)
        self.add("", "broken", number=number, statement=statement, seen=seen)

    def _named(self, group: re.Match[str]) -> str:
        label = self.labels.get(int(group[1], 16))
        return f"queue {label}" if label is not None else group[0]


class RecordedStory(story.Story):
    """A story that is recorded while it is told."""

    def __init__(self, scheduler: Scheduler, recorder: WorldRecorder) -> None:
        super().__init__(scheduler)
        self._recorder = recorder
        self._add = recorder.add
        recorder.now = lambda: scheduler.now
        self._labels = recorder.labels
        self._words: dict[tuple[int, int, int], tuple[str, list[int]]] = {}
        """Words and messages of an entry, by group, index and CRC: every member appends the same entry."""
        self._commits: dict[tuple[int, int], int] = {}
        """The commit index of each member, as it was recorded last."""
        self._applied: dict[tuple[int, int], int] = {}
        """The applied index of each member, as it was recorded last."""
        self._voters: dict[tuple[int, int], str] = {}
        """The list of members that each member goes by, as it was recorded last."""

    def _label(self, group: int) -> str:
        """The name of a group. A queue that was deleted and declared again has another name than before."""
        if group not in self._labels:
            if group not in self._names:
                return format(group, "x")
            name, taken = self._names[group], set(self._labels.values())
            ways = (f"{name}~{number}" for number in range(2, len(taken) + 3))
            self._labels[group] = name if name not in taken else next(way for way in ways if way not in taken)
        return self._labels[group]

    def linked(self, node: NodeId, peer: NodeId, *, up: bool) -> None:
        """A link with another node stands, or is gone."""
        super().linked(node, peer, up=up)
        if not up:
            self._recorder.lose(f"n{node}", f"n{peer}")
        self._add(f"n{node}", "link", to=f"n{peer}", up=up)

    # Raft

    def begins(self, node: NodeId, runner: GroupRunner, name: str, state: RecoveredGroup | None) -> None:
        """A member begins with the log that was found on its disk."""
        super().begins(node, runner, name, state)
        core, key = runner.core, (node, runner.group)
        log = core.log
        self._commits[key], self._applied[key] = log.commit_index, runner.applied
        self._voters[key] = members = _members(core.configuration)
        found = max(state.last_index, log.snapshot_index) if state is not None else 0
        self._add(
            f"n{node}", "member", group=self._label(runner.group), begins=True, role=str(core.role),
            leader=_node(core.leader), term=core.term, members=members,
            snapshot=log.snapshot_index, last=log.last_index,
            log=[[*run] for run in zip(log._starts, log.terms, strict=True)],
            disk=min(log.last_index, found), commit=log.commit_index, applied=runner.applied,
        )  # fmt: skip

    def stands(self, node: NodeId, runner: GroupRunner) -> None:
        """The role, leader or term of a member has changed."""
        super().stands(node, runner)
        core = runner.core
        self._voters[node, runner.group] = members = _members(core.configuration)
        self._add(
            f"n{node}", "role", group=self._label(runner.group), role=str(core.role), leader=_node(core.leader),
            term=core.term, members=members,
        )  # fmt: skip

    def appended(self, node: NodeId, group: GroupId, entries: Sequence[Entry]) -> None:
        """Entries were handed to a member's log."""
        super().appended(node, group, entries)
        label = self._label(group)
        for entry in entries:
            words, messages = self._of_entry(group, entry)
            self._add(
                f"n{node}", "append", group=label, index=entry.index, term=entry.term, words=words, messages=messages
            )

    def _of_entry(self, group: GroupId, entry: Entry) -> tuple[str, list[int]]:
        key = (group, entry.index, entry.crc)
        if key not in self._words:
            is_command = entry.kind is EntryKind.COMMAND
            words = story._applies(entry, group).partition(": ")[2] if is_command else _of_raft(entry)
            self._words[key] = (_short(words), _numbers(entry.payload))
        return self._words[key]

    def truncated(self, node: NodeId, group: GroupId, index: int) -> None:
        """A member drops the end of its log."""
        super().truncated(node, group, index)
        self._add(f"n{node}", "drop", group=self._label(group), index=index)

    def reset(self, node: NodeId, group: GroupId, index: int, term: int) -> None:
        """A snapshot replaced a member's log."""
        super().reset(node, group, index, term)
        self._add(f"n{node}", "reset", group=self._label(group), index=index, term=term)

    def left(self, node: NodeId, group: GroupId) -> None:
        """A node deletes its member."""
        super().left(node, group)
        self._add(f"n{node}", "leave", group=self._label(group))

    def noticed(self, node: NodeId, notices: Sequence[Notice]) -> None:
        """The log says that something is on disk."""
        super().noticed(node, notices)
        for notice in notices:
            match notice:
                case Written(group, index, term):
                    self._add(f"n{node}", "disk", group=self._label(group), index=index, term=term)
                case HardStateSynced(group, term, vote):
                    self._add(f"n{node}", "vote", group=self._label(group), term=term, vote=_node(vote))
                case SnapshotTaken(group, index, term):
                    self._add(f"n{node}", "snapshot", group=self._label(group), index=index, term=term)
                case SnapshotInstalled(group, index, term):
                    self._add(f"n{node}", "install", group=self._label(group), index=index, term=term)

    def reached(self, node: NodeId, runner: GroupRunner, before: int) -> None:
        """A member may have come further. Entries of Raft itself are applied without the machine."""
        super().reached(node, runner, before)
        if self._voters.get((node, runner.group)) not in (None, _members(runner.core.configuration)):
            self.stands(node, runner)
        self._commits_up_to(node, runner.group, runner.core.commit_index)
        self._applies_up_to(node, runner.group, runner.applied, runner.core.log.term_at(runner.applied) or 0)

    def _commits_up_to(self, node: NodeId, group: GroupId, index: int) -> None:
        if self._commits.get((node, group), 0) < index:
            self._commits[node, group] = index
            self._add(f"n{node}", "commit", group=self._label(group), index=index)

    def _applies_up_to(self, node: NodeId, group: GroupId, index: int, term: int) -> None:
        if self._applied.get((node, group), 0) < index:
            self._applied[node, group] = index
            self._add(f"n{node}", "apply", group=self._label(group), index=index, term=term)

    # Messages between nodes

    def sends(self, node: NodeId, to: NodeId, kind: FrameKind, head: bytes | memoryview) -> None:
        """A frame leaves a node."""
        super().sends(node, to, kind, head)
        octets = bytes(head)
        fields = self._of_message(octets) if kind is FrameKind.RAFT else {"kind": kind.name.lower()}
        group, rest = fields.pop("group", None), {"term": None, "first": None, "last": None, "ok": None}
        event = self._add(f"n{node}", "message", to=f"n{to}", group=group, **{**rest, **fields}, got=None, lost=None)
        self._recorder.leaves(octets, event)

    def frames(self, node: NodeId, take: Callable[..., Any]) -> Callable[..., Any]:
        """How a node is to take frames: each ends the way of a message."""

        def taken(sender: NodeId, kind: int, body: memoryview) -> None:
            self._recorder.arrives(f"n{sender}", f"n{node}", body)
            take(sender, kind, body)

        return taken

    def _of_message(self, head: bytes) -> dict[str, Any]:
        """Kind, group, term, entries and answer of a Raft message that begins with these octets."""
        group, term = int.from_bytes(head[1:9], "big"), int.from_bytes(head[9:17], "big")
        known = {"group": self._label(group), "term": term}
        if head[0] == wire._K_APPEND:
            _, _, _, _, before, _, commit, count = wire._APPEND.unpack_from(head)
            return {**known, "kind": "AppendEntries", "first": before + 1, "last": before + count if count else commit,
                    "ok": count > 0}  # fmt: skip
        if head[0] == wire._K_INSTALL:
            return {**known, "kind": "InstallSnapshot", "last": wire._INSTALL.unpack_from(head)[4]}
        message = wire.decode(head)[1]
        known["kind"] = type(message).__name__
        if isinstance(message, AppendReply):
            return {**known, "ok": message.success, "first": message.next_index, "last": message.synced_index}
        if isinstance(message, VoteReply | PreVoteReply):
            return {**known, "ok": message.granted}
        return {**known, "last": getattr(message, "last_index", getattr(message, "index", None))}

    # Queues

    def owns(self, node: NodeId, record: QueueRecord) -> None:
        """A node owns a classic queue."""
        super().owns(node, record)
        self._add(f"n{node}", "owner", group=self._label(record.group))

    def applies_at_once(self, node: NodeId, group: GroupId, commands: Sequence[Command]) -> None:
        """The owner of a classic queue applies commands."""
        super().applies_at_once(node, group, commands)
        words = story._applies_at_once(commands)
        messages = _numbers(b"".join(bytes(each.run.data) for each in commands if isinstance(each, Enqueue)))
        self._add(f"n{node}", "command", group=self._label(group), words=_short(words), messages=messages)

    def applies(self, node: NodeId, group: GroupId, entry: Entry) -> None:
        """A member applies an entry."""
        super().applies(node, group, entry)
        self._commits_up_to(node, group, entry.index)  # the node hears of the commit and applies in one step
        self._applies_up_to(node, group, entry.index, entry.term)

    def installs(self, node: NodeId, group: GroupId, index: int) -> None:
        """A member takes over the state of another member."""
        super().installs(node, group, index)
        self._applied[node, group] = index
        self._add(f"n{node}", "take", group=self._label(group), index=index)

    def delivers(
        self, node: NodeId, group: GroupId, consumer: ConsumerId, first: int, pieces: list[RunSlice], count: int
    ) -> None:
        """A node hands messages to one of its channels."""
        super().delivers(node, group, consumer, first, pieces, count)
        to, messages = consumer.tag or "get", _numbers(story.octets_of(pieces))
        self._add(f"n{node}", "deliver", group=self._label(group), to=to, messages=messages, again=count > 0)

    def buries(self, node: NodeId, group: GroupId, letters: DeadLetter, contents: list[DeadMessage]) -> None:
        """A leader routes dead letters."""
        super().buries(node, group, letters, contents)
        messages = _numbers(b"".join(content for _route, content in contents))
        self._add(
            f"n{node}", "bury", group=self._label(group), words=letters.reason.name.lower(), messages=messages
        )  # fmt: skip

    # Clients

    def client(self, host: str, words: Callable[..., str], *about: object) -> None:
        """A client did or heard something that is not about messages."""
        super().client(host, words, *about)
        self._add(host, "client", words=_short(words(*about)))

    def publishes(self, host: str, queue: str, first: int, count: int) -> None:
        """A client publishes messages."""
        super().publishes(host, queue, first, count)
        self._add(host, "publish", queue=queue, messages=[*range(first, first + count)])

    def hears(self, host: str, queue: str, number: int, answer: str) -> None:
        """A client hears of a message that it published."""
        super().hears(host, queue, number, answer)
        self._one_more(host, "confirm" if answer == "confirms" else "refuse", number, queue=queue)

    def gets(self, host: str, queue: str, body: bytes, tag: int, channel: int, *, again: bool) -> None:
        """A client gets a message."""
        super().gets(host, queue, body, tag, channel, again=again)
        self._add(host, "get", queue=queue, messages=_numbers(body), again=again)

    def settles(self, host: str, queue: str, words: str, number: int, tag: int, channel: int) -> None:
        """A client settles a message."""
        super().settles(host, queue, words, number, tag, channel)
        self._one_more(host, "settle", number & ledger._ORDER, queue=queue, words=words)

    def _one_more(self, host: str, what: str, number: int, **fields: Any) -> None:
        """Take down what happened to a message. An answer to many messages is one event."""
        before = self._recorder.events[-1]
        same = {**before.fields, "messages": None} == {**fields, "messages": None}
        if same and (before.t, before.at, before.what) == (self._recorder.now(), host, what):
            before.fields["messages"].append(number)
        else:
            self._add(host, what, messages=[number], **fields)


def _numbers(octets: bytes | memoryview) -> list[int]:
    """The messages in these octets, by the numbers that their publishers gave them."""
    return [int(number) for number in story._NUMBER.findall(octets)]


def _members(configuration: Configuration) -> str:
    """The voters, and behind a space the learners."""
    voters, learners = (",".join(map(_node, each)) for each in (configuration.voters, configuration.learners))
    return f"{voters} learning {learners}" if learners else voters


def _of_raft(entry: Entry) -> str:
    """The words of an entry that the machine does not see."""
    is_config = entry.kind is EntryKind.CONFIG
    return f"members {_members(Configuration.decode(entry.payload))}" if is_config else story._kind(entry)


def _node(node: NodeId) -> str:
    return f"n{node}" if node != NOBODY else ""


def _short(words: str) -> str:
    return words if len(words) <= _OWN_WORDS else f"{words[: _OWN_WORDS - 1]}…"
