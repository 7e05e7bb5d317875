"""The octets of a queue's state: its snapshot.

All numbers are big-endian. The head is magic, version and the CRC-32 of the rest. The tables come behind it, each with
its length in front:

    settings     octets of a :class:`~reference_broker.machines.config.FifoConfig`
    figures      applied, times, totals, next numbers
    boot ids     node, newest boot id                      ascending
    channels     channel, next sequence number, refused ranges ascending
    consumers    channel, tag, settings, next id, held ranges  ascending
    service      positions in the table of consumers           by turn
    dead letters ids, stretches, reasons                       by id
    returned     stretches                                     by message number
    backlog      records                                       in order

A keyed queue has a table of keys in the place of the last two (:mod:`~reference_broker.machines.keyed_snapshot`).

Values that follow from the rest (credit, counts, queued consumers) are not written, so they cannot contradict it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final, TypeVar

import numpy as np

from reference_broker.checksum import crc32
from reference_broker.machines.config import FifoConfig
from reference_broker.machines.consumers import Consumer, Status
from reference_broker.machines.dead_letters import DEAD_LETTER, DEAD_LETTER_COLUMNS
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import ChannelState, State, Totals
from reference_broker.machines.keyed_snapshot import decode_keys, encode_keys
from reference_broker.machines.messages.backlog import RECORD, Backlog
from reference_broker.machines.messages.held_ranges import HeldRange
from reference_broker.machines.messages.origins import NEVER, Origin
from reference_broker.machines.messages.ready import Ready, Returned
from reference_broker.machines.messages.records import Columns
from reference_broker.types import CHANNEL_ID_SIZE, ChannelId, ConsumerId, NodeId

SNAPSHOT_MAGIC: Final = b"FIFO"
SNAPSHOT_VERSION: Final = 3

_HEAD: Final = Struct(">4sHI")  # magic, version, CRC-32 of the rest
_TOTALS: Final = (
    "enqueued",
    "settled",
    "discarded",
    "delivery_limited",
    "expired",
    "dropped",
    "purged",
    "refused",
    "dead_lettered",
)
_FIGURES: Final = Struct(f">{7 + len(_TOTALS)}QB")  # the last octet: whether publishes are refused
_COUNT: Final = Struct(">Q")
_NO_ROWS: Final = _COUNT.pack(0)
_BOOT_ID: Final = Struct(">HI")
_CHANNEL: Final = Struct(f">{CHANNEL_ID_SIZE}sQQ")
_REFUSED: Final = Struct(">QQ")
_CONSUMER: Final = Struct(">BBiIQQ")  # status, flags, priority, prefetch, next id, arrival
_AUTO_SETTLE: Final = 1
_LOST_MESSAGES: Final = 2
_ORIGIN: Final = "QIqIQI"  # index, offset, base, delivery count, expiry, octets of a body
_HELD: Final = Struct(">QIII" + _ORIGIN)  # first id, count, start, step
_TURN: Final = Struct(">I")
_RETURNED: Final = Struct(">III" + _ORIGIN)  # count, start, step

T = TypeVar("T")


class DamagedSnapshotError(ValueError):
    """The octets are not the snapshot of a queue, or a snapshot of a version that this broker does not know."""


def encode_state(state: State) -> bytes:
    """The state as octets. Equal states give equal octets."""
    channels = sorted(state.channels.items())  # no two have the same key, so the values are not compared
    consumers = [channel.consumers[tag] for _key, channel in channels for tag in sorted(channel.consumers)]
    positions = {consumer.id: position for position, consumer in enumerate(consumers)}
    settings = state.config.encode()
    body = b"".join(
        (
            _COUNT.pack(len(settings)),
            settings,
            _encode_figures(state),
            _encode_table(_BOOT_ID.pack(node, state.boot_ids[node]) for node in sorted(state.boot_ids)),
            _encode_table(_encode_channel(key, channel) for key, channel in channels),
            _encode_table(map(_encode_consumer, consumers)),
            _encode_table(_TURN.pack(positions[consumer.id]) for consumer in state.service.order()),
            _encode_dead_letters(state.dead_letters.dump()),
            _encode_ready(state.ready_in_log) if state.keyed is None else encode_keys(state.keyed),
        )
    )
    return _HEAD.pack(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, crc32(body)) + body


def _encode_ready(ready: Ready) -> bytes:
    returned = _encode_table(
        _RETURNED.pack(count, start, step, *origin) for _number, count, start, step, origin in sorted(ready.returned)
    )
    return returned + ready.backlog.dump()


def _encode_figures(state: State) -> bytes:
    return _FIGURES.pack(
        state.applied,
        state.now_ms,
        state.last_used_ms,
        state.arrivals,
        state.dead_letters.next_id,
        state.dead_letters.announced,
        state.ready_in_log.backlog.first_number if state.keyed is None else state.keyed.next_number,
        *(getattr(state.totals, name) for name in _TOTALS),
        state.refusing,
    )


def _encode_channel(key: ChannelId, channel: ChannelState) -> bytes:
    head = _CHANNEL.pack(key.pack(), channel.next_seq, channel.first_id)
    if not channel.refused:  # as for most of the many channels that a queue may have
        return head + _NO_ROWS
    return head + _encode_table(_REFUSED.pack(first, last) for first, last in channel.refused)


def _encode_dead_letters(packed: bytes) -> bytes:
    return _COUNT.pack(len(packed) // DEAD_LETTER.size) + packed


def _encode_table(rows: Iterable[bytes]) -> bytes:
    packed = list(rows)
    return _COUNT.pack(len(packed)) + b"".join(packed)


def _encode_consumer(consumer: Consumer) -> bytes:
    tag = consumer.id.tag.encode("utf-8", "surrogateescape")
    flags = _AUTO_SETTLE * consumer.auto_settle | _LOST_MESSAGES * consumer.lost_messages
    settings = _CONSUMER.pack(
        consumer.status, flags, consumer.priority, consumer.prefetch, consumer.next_id, consumer.arrival
    )
    held = _encode_table(
        _HELD.pack(held.first_id, held.count, held.start, held.step, *held.origin) for held in consumer.held
    )
    return consumer.id.channel.pack() + bytes((len(tag),)) + tag + settings + held


def decode_state(snapshot: bytes) -> State:
    """The state of a snapshot. Raises :class:`DamagedSnapshotError`, with the reason, for damaged octets."""
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
            f"snapshot of {len(snapshot)} octets: its checksum matches, its content is wrong: {error}"
        ) from error


class _Reader:
    """Reads a snapshot front to back."""

    def __init__(self, octets: bytes, at: int) -> None:
        self._octets = octets
        self._at = at

    def state(self) -> State:
        """The state, read in the order of writing."""
        state = State(self._config())
        number = self._figures(state)
        state.boot_ids = {NodeId(node): boot_id for node, boot_id in self._table(lambda: self._unpack(_BOOT_ID))}
        state.channels = dict(self._table(self._channel))
        consumers = self._table(self._consumer)
        for consumer in consumers:
            state.channels[consumer.id.channel].consumers[consumer.id.tag] = consumer
        state.suspected = {each.id.channel for each in consumers if each.status is Status.SUSPECTED}
        for (position,) in self._table(lambda: self._unpack(_TURN)):
            state.service.add(consumers[position])
        state.dead_letters.load(self._dead_letters())
        if state.keyed is None:
            self._ready(state.ready_in_log, number)
        else:
            state.keyed.now_ms = state.now_ms
            state.keyed.load(decode_keys(self._octets[self._at :], consumers), number)
        if state.ready.expires_ever() or any(
            held.origin.expires != NEVER for consumer in consumers for held in consumer.held
        ):
            state.expect_expiry()
        state.configure(state.config)
        return state

    def _ready(self, ready: Ready, first_number: int) -> None:
        """Read the ready messages; the backlog begins with the message of this number."""
        ready.load_returned(self._table(self._returned))
        records = self._octets[self._at :]
        if len(records) % RECORD.size:
            raise ValueError(f"{len(records)} octets of backlog are not a whole number of records")
        ready.backlog = Backlog.loaded(first_number, records)

    def _config(self) -> FifoConfig:
        (size,) = self._unpack(_COUNT)
        self._at += size
        return FifoConfig.decode(self._octets[self._at - size : self._at])

    def _unpack(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self._octets, self._at)
        self._at += layout.size
        return values

    def _table(self, row: Callable[[], T]) -> list[T]:
        (count,) = self._unpack(_COUNT)
        return [row() for _ in range(count)]

    def _figures(self, state: State) -> int:
        """Read the figures. Returns the message number of the backlog's head; in a keyed queue, of the next message."""
        state.applied, state.now_ms, state.last_used_ms, state.arrivals, *others = self._unpack(_FIGURES)
        state.dead_letters.next_id, state.dead_letters.announced, first_number, *totals, refusing = others
        state.totals = Totals()
        for name, total in zip(_TOTALS, totals, strict=True):
            setattr(state.totals, name, total)
        state.refusing = bool(refusing)
        return int(first_number)

    def _channel(self) -> tuple[ChannelId, ChannelState]:
        channel = ChannelState()
        octets, channel.next_seq, channel.first_id = self._unpack(_CHANNEL)
        channel.refused = [(first, last) for first, last in self._table(lambda: self._unpack(_REFUSED))]
        return ChannelId.unpack(octets), channel

    def _consumer(self) -> Consumer:
        channel_id = ChannelId.unpack(self._octets, self._at)
        tag_at = self._at + CHANNEL_ID_SIZE + 1
        self._at = tag_at + self._octets[tag_at - 1]
        consumer = Consumer(ConsumerId(channel_id, self._octets[tag_at : self._at].decode("utf-8", "surrogateescape")))
        status, flags, priority, prefetch, consumer.next_id, consumer.arrival = self._unpack(_CONSUMER)
        consumer.held = self._table(self._held)
        consumer.unacked = sum(held.count for held in consumer.held)
        consumer.lost_messages = bool(flags & _LOST_MESSAGES)
        consumer.subscribe(prefetch, bool(flags & _AUTO_SETTLE), priority)
        consumer.status = Status(status)
        return consumer

    def _held(self) -> HeldRange:
        first_id, count, start, step, *origin = self._unpack(_HELD)
        return HeldRange(first_id, count, start, step, Origin(*origin))

    def _dead_letters(self) -> Columns:
        (count,) = self._unpack(_COUNT)
        begin, self._at = self._at, self._at + count * DEAD_LETTER.size
        if self._at > len(self._octets):
            raise ValueError(f"{count} dead letters in {len(self._octets) - begin} octets")
        letters = np.frombuffer(self._octets[begin : self._at], DEAD_LETTER_COLUMNS)
        if not np.isin(letters["reason"], list(DeadLetterReason)).all():
            raise ValueError("dead letters without a known reason")
        return letters

    def _returned(self) -> Returned:
        count, start, step, *place = self._unpack(_RETURNED)
        origin = Origin(*place)
        return origin.base + start, count, start, step, origin
