"""Clients on nodes without a member of the queue, as the queue's leader sees them, and the frames that reach them.

A *non-member* is a node that has clients of a queue and no member of the queue's group. The leader executes the effects
for the channels of a non-member as it does for its own clients. A :class:`NonMember` stands in for the clients there:
every call becomes a few octets of a frame, and the non-member's :mod:`~reference_broker.node.replication.proxy` turns
these octets into the same call.

Frames, after the kind (docs/internals/node.md draws them): the group, and then

    ATTACH     1: I have clients of this group, tell me if you lead it; 0: I no longer have clients of it
    LEADING    I lead in this term, and have applied your commands up to these numbers
    CATCH_UP   I know that you lead in this term, and have applied my commands up to these numbers; these of my commands
               await an answer
    EFFECTS    calls for your clients
    APPLIED    your commands are applied up to these numbers

Links deliver in order or break, and a non-member that has not caught up gets no effects. So the effects that a
non-member gets have no gaps. The next CATCH_UP repeats everything that a broken link or a change of leader swallowed.
If the leader has applied more of the non-member's commands in the meantime, it sends LEADING again, and the non-member
asks for the missing replies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Set
from struct import Struct
from typing import Final, Protocol

from reference_broker import message_run
from reference_broker.message_run import MessageRun, RunSlice
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.queues.port import Channels
from reference_broker.types import CHANNEL_ID_SIZE, GET_TAG, UNCOUNTED, ChannelId, ConsumerId, GroupId, NodeId, Term

_GROUP: Final = Struct(">Q")
_ATTACH: Final = Struct(">Q?")
_LEADING: Final = Struct(">QQQQ")
_CATCH_UP: Final = Struct(">QQIQQ")
_APPLIED: Final = Struct(">QQQ")
_PAIR: Final = Struct(">QQ")
_DELIVER: Final = Struct(">QQHI")  # delivery count, first message id, octets of the tag, runs
_MISSED_LAST: Final = Struct(">QH")  # last message id, octets of the tag
_CONFIRMED, _REJECTED, _REPLIED, _DELIVERED, _MISSED = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
_FRAME_BYTES: Final = 1024 * 1024
"""Size at which a frame of effects is sent, so that no frame grows with a consumer's credit."""


class Links(Protocol):
    """The port of the leader's node for non-members."""

    @property
    def congested(self) -> Set[NodeId]:
        """The peers that should not be sent much now."""

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        """Queue a message for a peer; returns its octets, 0 while the peer is down."""


class Clients(Channels, Protocol):
    """The clients of this node, if it is the non-member."""

    def missed(self, group: GroupId, consumer: ConsumerId, last: int) -> None:
        """The link had no room for messages of a consumer, up to id ``last``: its channel is to ask for them."""


class NonMember:
    """The channels of one start of another node (:class:`reference_broker.queues.port.Channels`)."""

    def __init__(self, group: GroupId, node: NodeId, boot_id: int, links: Links) -> None:
        self.node = node
        self.boot_id = boot_id
        self._group = group
        self._links = links
        self._frame: list[bytes | memoryview] = []
        self._octets = 0

    def deliver(
        self, group: GroupId, consumer: ConsumerId, first_message_id: int, slices: list[RunSlice], delivery_count: int
    ) -> None:
        """Send messages to a consumer of the non-member."""
        tag = consumer.tag.encode()
        for run_slice in slices:
            for run, start, count, step in _parts(run_slice):
                head = _DELIVER.pack(delivery_count, first_message_id, len(tag), 1)
                part = extract(run, start, count, step)
                self._add(_DELIVERED, consumer.channel.pack(), head, tag, *part.buffers())
                first_message_id += count

    def takes(self, group: GroupId, consumer: ConsumerId, last: int) -> bool:
        """Whether the link has room. The non-member itself checks whether its clients read (:func:`call_channels`). The
        news of deliveries left out goes behind the frames on the link, so the non-member does not ask for them too
        early."""
        if self.node not in self._links.congested or consumer.tag == GET_TAG:
            return True
        tag = consumer.tag.encode()
        self._add(_MISSED, consumer.channel.pack(), _MISSED_LAST.pack(last, len(tag)), tag)
        return False

    def confirm(self, channel: ChannelId, group: GroupId, last: int) -> None:
        """Enqueues are committed."""
        self._add(_CONFIRMED, channel.pack(), _PAIR.pack(0, last))

    def rejected(self, channel: ChannelId, group: GroupId, first: int, last: int) -> None:
        """Enqueues were refused."""
        self._add(_REJECTED, channel.pack(), _PAIR.pack(first, last))

    def reply(self, channel: ChannelId, correlation: int, value: int) -> None:
        """A command was applied."""
        self._add(_REPLIED, channel.pack(), _PAIR.pack(correlation, value))

    def flush(self) -> None:
        """Send the gathered calls."""
        if self._frame:
            frame, self._frame, self._octets = self._frame, [], 0
            self._links.send(self.node, FrameKind.EFFECTS, [_GROUP.pack(self._group), *frame])

    def applied(self, normal: int, low: int) -> None:
        """Commands are applied up to these numbers; their effects were sent before."""
        self._links.send(self.node, FrameKind.APPLIED, [_APPLIED.pack(self._group, normal, low)])

    def leading(self, term: Term, normal: int, low: int) -> None:
        """Tell the non-member how far its commands are applied, so that it asks for missing replies."""
        self._links.send(self.node, FrameKind.LEADING, [pack_leading(self._group, term, normal, low)])

    def _add(self, *buffers: bytes | memoryview) -> None:
        self._frame += buffers
        self._octets += sum(map(len, buffers))
        if self._octets >= _FRAME_BYTES:
            self.flush()


def _parts(run_slice: RunSlice) -> Iterator[RunSlice]:
    """The slice, cut into slices of at most a frame's octets, or of one message."""
    run, start, count, step = run_slice
    if len(run.data) <= _FRAME_BYTES:
        yield run_slice
        return
    first, octets = 0, 0
    for number in range(count):
        size = run.content_size(start + number * step)
        if number > first and octets + size > _FRAME_BYTES:
            yield run, start + first * step, number - first, step
            first, octets = number, 0
        octets += size
    yield run, start + first * step, count - first, step


def extract(run: MessageRun, start: int, count: int, step: int) -> MessageRun:
    """The messages ``start, start + step, ...`` of a run as a run of their own."""
    if run.ends is None:
        data = run.rows(start, start + (count - 1) * step + 1, step).tobytes()
        return MessageRun(count, run.route, data, run.stride)
    if step == 1 or count == 1:
        before = int(run.ends[start - 1]) if start else 0
        ends = run.ends[start : start + count] - before
        return MessageRun(count, run.route, run.data[before : before + int(ends[-1])], 0, ends)
    return MessageRun.of(run.route, [run.content(start + step * number) for number in range(count)])


def call_channels(
    clients: Clients, group: GroupId, effects: memoryview, *, are_late: bool = False
) -> list[tuple[ChannelId, int]]:
    """Make the calls that a frame of EFFECTS stands for. Late deliveries go as redelivered: others may have had the
    messages by now. Returns channel and correlation of each reply. Raises ValueError where the frame is damaged."""
    at, replies = 0, []
    try:
        while at < len(effects):
            if effects[at] == _REPLIED[0]:
                replies.append(_question(effects, at + 1))
            at = _call_one(clients, group, effects, at, UNCOUNTED if are_late else 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"effects for group {group:x} are damaged at octet {at}: {error}") from error
    return replies


def _question(effects: memoryview, at: int) -> tuple[ChannelId, int]:
    return ChannelId.unpack(effects, at), _PAIR.unpack_from(effects, at + CHANNEL_ID_SIZE)[0]


def _call_one(clients: Clients, group: GroupId, effects: memoryview, at: int, first_count: int) -> int:
    """``first_count``: the delivery count of messages that were not delivered before."""
    kind, channel = bytes(effects[at : at + 1]), ChannelId.unpack(effects, at + 1)
    at += 1 + CHANNEL_ID_SIZE
    if kind == _DELIVERED:
        return _call_deliver(clients, group, channel, effects, at, first_count)
    if kind == _MISSED:
        last, tag_size = _MISSED_LAST.unpack_from(effects, at)
        at += _MISSED_LAST.size + tag_size
        clients.missed(group, ConsumerId(channel, bytes(effects[at - tag_size : at]).decode()), last)
        return at
    first, last = _PAIR.unpack_from(effects, at)
    if kind == _CONFIRMED:
        clients.confirm(channel, group, last)
    elif kind == _REPLIED:
        clients.reply(channel, first, last)
    elif kind == _REJECTED:
        clients.rejected(channel, group, first, last)
    else:
        raise ValueError(f"effect of unknown kind {kind.hex()}")
    return at + _PAIR.size


def _call_deliver(
    clients: Clients, group: GroupId, channel: ChannelId, effects: memoryview, at: int, first_count: int
) -> int:
    delivery_count, first_id, tag_size, runs = _DELIVER.unpack_from(effects, at)
    at += _DELIVER.size
    tag = bytes(effects[at : at + tag_size]).decode()
    at += tag_size
    slices: list[RunSlice] = []
    for _ in range(runs):
        end = at + message_run.encoded_size(effects, at)
        run = message_run.decode(bytes(effects[at:end]), 0)
        slices.append((run, 0, run.count, 1))
        at = end
    consumer = ConsumerId(channel, tag)
    if clients.takes(group, consumer, first_id + sum(each[2] for each in slices) - 1):
        clients.deliver(group, consumer, first_id, slices, delivery_count or first_count)
    return at


# The small frames. Reading raises ValueError for a frame of another size.


def pack_attach(group: GroupId, has_clients: bool) -> bytes:
    """An ATTACH."""
    return _ATTACH.pack(group, has_clients)


def unpack_attach(body: memoryview) -> tuple[GroupId, bool]:
    """The group, and whether the non-member still has clients."""
    group, has_clients = _exactly(_ATTACH, body)
    return GroupId(group), bool(has_clients)


def pack_leading(group: GroupId, term: Term, normal: int, low: int) -> bytes:
    """LEADING."""
    return _LEADING.pack(group, term, normal, low)


def unpack_leading(body: memoryview) -> tuple[GroupId, Term, int, int]:
    """Group, term, and the highest numbers applied of normal and of low priority."""
    group, term, normal, low = _exactly(_LEADING, body)
    return GroupId(group), Term(term), normal, low


def pack_catch_up(group: GroupId, term: Term, boot_id: int, normal: int, low: int) -> bytes:
    """CATCH_UP; a batch of commands follows, or nothing."""
    return _CATCH_UP.pack(group, term, boot_id, normal, low)


def unpack_catch_up(body: memoryview) -> tuple[GroupId, Term, int, tuple[int, int], bytes]:
    """Group, term, the boot id of the non-member, the numbers that the non-member knows of, and the batch."""
    group, term, boot_id, normal, low = _exactly(_CATCH_UP, body[: _CATCH_UP.size])
    return GroupId(group), Term(term), boot_id, (normal, low), bytes(body[_CATCH_UP.size :])


def unpack_applied(body: memoryview) -> tuple[GroupId, int, int]:
    """Group and numbers of an APPLIED."""
    group, normal, low = _exactly(_APPLIED, body)
    return GroupId(group), normal, low


def unpack_effects(body: memoryview) -> tuple[GroupId, memoryview]:
    """Group of an EFFECTS, and the rest for :func:`call_channels`."""
    (group,) = _exactly(_GROUP, body[: _GROUP.size])
    return GroupId(group), body[_GROUP.size :]


def _exactly(form: Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) != form.size:
        raise ValueError(f"a frame of {len(body)} octets where {form.size} belong")
    return form.unpack(body)
