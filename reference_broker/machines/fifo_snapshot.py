"""The octets of a queue's state: a snapshot, and what members are compared by.

All big-endian. A head of magic, version and CRC-32 of everything behind it; then, each table with its length in front:

    figures      applied, enqueued, settled, discarded, dead-lettered, purged, number of the backlog's head
    lives        node, newest incarnation                      ascending
    channels     channel, next sequence number                 ascending
    consumers    channel, tag, settings, next id, held ranges  ascending
    service      positions in the table of consumers           by turn
    returned     stretches                                     by message number
    backlog      records                                       in order

What follows from the rest (credit, counts, who is queued) is not written, so it cannot contradict it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final, TypeVar
from zlib import crc32

from reference_broker.machines.backlog import RECORD, Backlog
from reference_broker.machines.consumers import Consumer, HeldRange, Status
from reference_broker.machines.fifo_state import Channel, Returned, State, Totals
from reference_broker.machines.origins import Origin
from reference_broker.types import CHANNEL_ID_SIZE, ChannelId, ConsumerId, NodeId

SNAPSHOT_MAGIC: Final = b"FIFO"
SNAPSHOT_VERSION: Final = 1

_HEAD: Final = Struct(">4sHI")  # magic, version, CRC-32 of the rest
_FIGURES: Final = Struct(">QQQQQQQ")
_COUNT: Final = Struct(">Q")
_LIFE: Final = Struct(">HI")
_CHANNEL: Final = Struct(f">{CHANNEL_ID_SIZE}sQ")
_CONSUMER: Final = Struct(">BBiIQ")  # status, flags, priority, prefetch, next id
_AUTO_SETTLE: Final = 1
_ESTRANGED: Final = 2
_HELD: Final = Struct(">QIIIQIqI")  # first id, count, start, step, then the origin: index, offset, base, delivery count
_TURN: Final = Struct(">I")
_RETURNED: Final = Struct(">IIIQIqI")  # count, start, step, then the origin

T = TypeVar("T")


class DamagedSnapshotError(ValueError):
    """The octets are not the snapshot of a queue, or one of a version this broker does not know."""


def encode_state(state: State) -> bytes:
    """The state as octets; equal states give equal octets."""
    consumers = list(state.consumers())
    positions = {consumer.id: position for position, consumer in enumerate(consumers)}
    body = b"".join(
        (
            _encode_figures(state),
            _encode_table(_LIFE.pack(node, state.lives[node]) for node in sorted(state.lives)),
            _encode_table(_CHANNEL.pack(key.pack(), state.channels[key].next_seq) for key in sorted(state.channels)),
            _encode_table(map(_encode_consumer, consumers)),
            _encode_table(_TURN.pack(positions[consumer.id]) for consumer in state.service.order()),
            _encode_table(
                _RETURNED.pack(count, start, step, *origin)
                for _number, count, start, step, origin in sorted(state.returned)
            ),
            state.backlog.dump(),
        )
    )
    return _HEAD.pack(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, crc32(body)) + body


def _encode_figures(state: State) -> bytes:
    totals = state.totals
    return _FIGURES.pack(
        state.applied,
        totals.enqueued,
        totals.settled,
        totals.discarded,
        totals.dead_lettered,
        totals.purged,
        state.backlog.first_number,
    )


def _encode_table(rows: Iterable[bytes]) -> bytes:
    packed = list(rows)
    return _COUNT.pack(len(packed)) + b"".join(packed)


def _encode_consumer(consumer: Consumer) -> bytes:
    tag = consumer.id.tag.encode("utf-8", "surrogateescape")
    flags = _AUTO_SETTLE * consumer.auto_settle | _ESTRANGED * consumer.estranged
    settings = _CONSUMER.pack(consumer.status, flags, consumer.priority, consumer.prefetch, consumer.next_id)
    held = _encode_table(
        _HELD.pack(held.first_id, held.count, held.start, held.step, *held.origin) for held in consumer.held
    )
    return consumer.id.channel.pack() + bytes((len(tag),)) + tag + settings + held


def decode_state(snapshot: bytes) -> State:
    """Read back a state. Raises :class:`DamagedSnapshotError`, with the reason, for anything but a whole snapshot."""
    if len(snapshot) < _HEAD.size:
        raise DamagedSnapshotError(f"snapshot of {len(snapshot)} octets: shorter than its head")
    magic, version, crc = _HEAD.unpack_from(snapshot)
    if magic != SNAPSHOT_MAGIC or version != SNAPSHOT_VERSION:
        raise DamagedSnapshotError(f"snapshot begins with {magic!r} version {version}, not a version this broker reads")
    if crc32(memoryview(snapshot)[_HEAD.size :]) != crc:
        raise DamagedSnapshotError(f"snapshot of {len(snapshot)} octets: its checksum does not match")
    try:
        return _Reader(snapshot, _HEAD.size).state()
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise DamagedSnapshotError(
            f"snapshot of {len(snapshot)} octets has a checksum but no sense: {error}"
        ) from error


class _Reader:
    """Reads a snapshot front to back."""

    def __init__(self, octets: bytes, at: int) -> None:
        self._octets = octets
        self._at = at

    def state(self) -> State:
        """Everything, in the order it was written."""
        state = State()
        first_number = self._figures(state)
        state.lives = {NodeId(node): incarnation for node, incarnation in self._table(lambda: self._unpack(_LIFE))}
        state.channels = dict(self._table(self._channel))
        consumers = self._table(self._consumer)
        for consumer in consumers:
            state.channels[consumer.id.channel].consumers[consumer.id.tag] = consumer
        for (position,) in self._table(lambda: self._unpack(_TURN)):
            state.service.add(consumers[position])
        state.returned = self._table(self._returned)
        state.returned_count = sum(stretch[1] for stretch in state.returned)
        records = self._octets[self._at :]
        if len(records) % RECORD.size:
            raise ValueError(f"{len(records)} octets of backlog are no whole number of records")
        state.backlog = Backlog.load(first_number, records)
        return state

    def _unpack(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self._octets, self._at)
        self._at += layout.size
        return values

    def _table(self, row: Callable[[], T]) -> list[T]:
        (count,) = self._unpack(_COUNT)
        return [row() for _ in range(count)]

    def _figures(self, state: State) -> int:
        totals = state.totals = Totals()
        state.applied, totals.enqueued, totals.settled, *others = self._unpack(_FIGURES)
        totals.discarded, totals.dead_lettered, totals.purged, first_number = others
        return int(first_number)

    def _channel(self) -> tuple[ChannelId, Channel]:
        octets, next_seq = self._unpack(_CHANNEL)
        channel = Channel()
        channel.next_seq = next_seq
        return ChannelId.unpack(octets), channel

    def _consumer(self) -> Consumer:
        channel_id = ChannelId.unpack(self._octets, self._at)
        tag_at = self._at + CHANNEL_ID_SIZE + 1
        self._at = tag_at + self._octets[tag_at - 1]
        consumer = Consumer(ConsumerId(channel_id, self._octets[tag_at : self._at].decode("utf-8", "surrogateescape")))
        status, flags, priority, prefetch, next_id = self._unpack(_CONSUMER)
        consumer.next_id = next_id
        consumer.held = self._table(self._held)
        consumer.unacked = sum(held.count for held in consumer.held)
        consumer.estranged = bool(flags & _ESTRANGED)
        consumer.subscribe(prefetch, bool(flags & _AUTO_SETTLE), priority)
        consumer.status = Status(status)
        return consumer

    def _held(self) -> HeldRange:
        first_id, count, start, step, *origin = self._unpack(_HELD)
        return HeldRange(first_id, count, start, step, Origin(*origin))

    def _returned(self) -> Returned:
        count, start, step, *place = self._unpack(_RETURNED)
        origin = Origin(*place)
        return origin.base + start, count, start, step, origin
