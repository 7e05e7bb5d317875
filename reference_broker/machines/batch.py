"""The octets of a batch of commands: what one log entry of a queue holds.

Theory of operation
-------------------
The commands that gather for a queue while the previous entry is being written become one entry. Encoding yields
*buffers*, so the contents of a run go from the socket into the entry with one copy (the join). Decoding yields views
into the entry and copies only routes and tags. docs/internals/commands.md draws the octets.

Back of the envelope: 1-2 us per command to encode, and as much to decode, for any number of messages in a run.
Identities of channels and consumers repeat from entry to entry, so their objects are cached by their octets.

Invariant: ``decode_batch(b"".join(encode_batch(t, commands)))`` gives ``t`` and equal commands. Other octets raise
:class:`DamagedBatchError` or decode to *some* commands, and never raise another error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final, assert_never

from reference_broker import message_run
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    GetCheckedOut,
    Label,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import DamagedConfigError, FifoConfig
from reference_broker.message_run import DamagedRunError
from reference_broker.types import CHANNEL_ID_FORMAT, CHANNEL_ID_SIZE, ChannelId, ConsumerId, IdRange, NodeId

BATCH_VERSION: Final = 3
KEY_SIZE_MAX: Final = 2**16 - 1
TAG_SIZE_MAX: Final = 255
"""The longest consumer tag in octets: a tag is an AMQP short string."""

_HEAD: Final = Struct(">BQI")  # version, time in ms, number of commands
_ENQUEUE: Final = Struct(f">B{CHANNEL_ID_SIZE}sQ")  # kind, channel, first sequence number
_ENQUEUE_BY: Final = Struct(f">B{CHANNEL_ID_FORMAT}Q")  # the same, from the fields of the channel
_CHECKOUT: Final = Struct(">IBiQ")  # credit, flags, priority, correlation
_CORRELATION: Final = Struct(">Q")
_RANGE_COUNT: Final = Struct(">I")
_RANGE: Final = Struct(">QQ")  # first and last message id
_NODE_DOWN: Final = Struct(">BH")  # kind, node
_NODE_UP: Final = Struct(">BHI")  # kind, node, boot id
_PURGE: Final = Struct(f">B{CHANNEL_ID_SIZE}sQ")  # kind, channel, correlation
_EXPIRING: Final = Struct(f">B{CHANNEL_ID_SIZE}sQQ")  # as an enqueue, then time to live in ms
_KEYED: Final = Struct(f">B{CHANNEL_ID_SIZE}sQqI")  # as an enqueue, then time to live or -1, number of labels
_LABEL: Final = Struct(">IqqBH")  # messages, delay and retry in ms, whether there is a key, octets of the key
_GET: Final = Struct(">BQ")  # flags, correlation
_GET_CHECKED_OUT: Final = Struct(">QQ")  # first message id, correlation
_CONFIG: Final = Struct(">BI")  # kind, octets of settings
_SETTLED: Final = Struct(">BI")  # kind, number of ranges
_AUTO_SETTLE: Final = 1  # flag of a checkout and of a get
_EXCLUSIVE: Final = 2  # flag of a checkout
_CACHE_ENTRIES: Final = 4096


class CommandKind(IntEnum):
    """The octet that opens a command. A number is never reused for another command."""

    ENQUEUE = 1
    CHECKOUT = 2
    SETTLE = 3
    RETURN = 4
    DISCARD = 5
    CANCEL = 6
    CHANNEL_DOWN = 7
    NODE_DOWN = 8
    NODE_UP = 9
    PURGE = 10
    ENQUEUE_EXPIRING = 11
    GET = 12
    UPDATE_CONFIG = 13
    TICK = 14
    DEAD_LETTER_SETTLED = 15
    ENQUEUE_KEYED = 16
    GET_CHECKED_OUT = 17


class DamagedBatchError(ValueError):
    """The octets are not a batch of commands, or a batch of a version that this broker does not know."""


Buffers = list[bytes | memoryview]


def encode_batch(time_ms: int, commands: Sequence[Command]) -> Buffers:
    """The batch as buffers to be joined into one log entry. The data of a run is not copied.

    ``time_ms`` is the leader's clock, milliseconds since 1970.
    """
    buffers: Buffers = [_HEAD.pack(BATCH_VERSION, time_ms, len(commands))]
    for command in commands:
        if type(command) is Enqueue:
            if command.ttl_ms < 0 and not command.labels:  # by far the most
                buffers.append(_ENQUEUE_BY.pack(CommandKind.ENQUEUE, *command.channel, command.first_seq))
            else:
                buffers.append(_encode_special_enqueue(command))
            buffers += command.run.buffers()
        else:
            buffers.append(_encode_small(command))
    return buffers


def _encode_special_enqueue(command: Enqueue) -> bytes:
    """The octets of an enqueue with labels or a time to live, without its run."""
    channel = command.channel.pack()
    if command.labels:
        head = CommandKind.ENQUEUE_KEYED, channel, command.first_seq, command.ttl_ms, len(command.labels)
        return _KEYED.pack(*head) + b"".join([_encode_label(*each) for each in command.labels])
    return _EXPIRING.pack(CommandKind.ENQUEUE_EXPIRING, channel, command.first_seq, command.ttl_ms)


def _encode_label(count: int, label: Label) -> bytes:
    key = label.key or b""
    assert len(key) <= KEY_SIZE_MAX, f"a key of {len(key)} octets passed the channel"
    return _LABEL.pack(count, label.delay_ms, label.retry_ms, label.key is not None, len(key)) + key


def _encode_small(command: Command) -> bytes:
    """The octets of a command other than an enqueue: small, so one string."""
    match command:
        case Settle():
            return _encode_ranges(CommandKind.SETTLE, command.consumer, command.ranges)
        case Return():
            return _encode_ranges(CommandKind.RETURN, command.consumer, command.ranges)
        case Discard():
            return _encode_ranges(CommandKind.DISCARD, command.consumer, command.ranges)
        case Checkout():
            flags = _AUTO_SETTLE * command.auto_settle | _EXCLUSIVE * command.exclusive
            rest = _CHECKOUT.pack(command.credit, flags, command.priority, command.correlation)
            return _encode_consumer(CommandKind.CHECKOUT, command.consumer) + rest
        case Cancel():
            return _encode_consumer(CommandKind.CANCEL, command.consumer) + _CORRELATION.pack(command.correlation)
        case ChannelDown():
            return bytes((CommandKind.CHANNEL_DOWN,)) + command.channel.pack()
        case NodeDown():
            return _NODE_DOWN.pack(CommandKind.NODE_DOWN, command.node)
        case NodeUp():
            return _NODE_UP.pack(CommandKind.NODE_UP, command.node, command.boot_id)
        case Purge():
            return _PURGE.pack(CommandKind.PURGE, command.channel.pack(), command.correlation)
        case Get():
            rest = _GET.pack(_AUTO_SETTLE if command.auto_settle else 0, command.correlation)
            return _encode_consumer(CommandKind.GET, command.consumer) + rest
        case GetCheckedOut():
            rest = _GET_CHECKED_OUT.pack(command.first_id, command.correlation)
            return _encode_consumer(CommandKind.GET_CHECKED_OUT, command.consumer) + rest
        case UpdateConfig():
            settings = command.config.encode()
            return _CONFIG.pack(CommandKind.UPDATE_CONFIG, len(settings)) + settings
        case Tick():
            return bytes((CommandKind.TICK,))
        case DeadLetterSettled():
            ranges = [_RANGE.pack(first, last) for first, last in command.ranges]
            return _SETTLED.pack(CommandKind.DEAD_LETTER_SETTLED, len(ranges)) + b"".join(ranges)
        case Enqueue():
            return b"".join(encode_batch(0, (command,)))[_HEAD.size :]
        case _:
            assert_never(command)


@lru_cache(_CACHE_ENTRIES)
def _encode_consumer(kind: CommandKind, consumer: ConsumerId) -> bytes:
    tag = consumer.tag.encode("utf-8", "surrogateescape")
    assert len(tag) <= TAG_SIZE_MAX, f"consumer tag of {len(tag)} octets passed the channel"
    return bytes((kind,)) + consumer.channel.pack() + bytes((len(tag),)) + tag


def _encode_ranges(kind: CommandKind, consumer: ConsumerId, ranges: tuple[IdRange, ...]) -> bytes:
    octets = _encode_consumer(kind, consumer) + _RANGE_COUNT.pack(len(ranges))
    if len(ranges) == 1:
        return octets + _RANGE.pack(*ranges[0])
    return octets + b"".join([_RANGE.pack(first, last) for first, last in ranges])


def decode_batch(payload: bytes, end: int | None = None) -> tuple[int, list[tuple[int, Command]]]:
    """The time and the commands of a batch. Each enqueue comes with the octet where its run starts, others with 0.

    ``end`` is where the batch ends, if other octets follow in ``payload``.

    Raises :class:`DamagedBatchError` with the offset of the first wrong octets.
    """
    at = 0
    try:
        version, time_ms, count = _HEAD.unpack_from(payload, 0)
        if version != BATCH_VERSION:
            raise DamagedBatchError(f"batch of version {version}: this broker reads version {BATCH_VERSION}")
        at = _HEAD.size
        commands: list[tuple[int, Command]] = []
        for _ in range(count):
            run_offset, command, at = _DECODERS[payload[at]](payload, at)
            commands.append((run_offset, command))
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, DamagedRunError, DamagedConfigError) as error:
        raise DamagedBatchError(f"batch of {len(payload)} octets, command at octet {at}: {error!r}") from error
    if at != (len(payload) if end is None else end):
        raise DamagedBatchError(f"batch of {len(payload)} octets: its commands end at octet {at}")
    return time_ms, commands


_Decoded = tuple[int, Command, int]
"""Offset of the run or 0, the command, and where the next command starts."""


def _decode_enqueue(payload: bytes, at: int) -> _Decoded:
    _kind, channel, first_seq = _ENQUEUE.unpack_from(payload, at)
    run_offset = at + _ENQUEUE.size
    run, end = message_run.decode_to_end(payload, run_offset)
    return run_offset, Enqueue(_channel(channel), first_seq, run), end


def _decode_expiring(payload: bytes, at: int) -> _Decoded:
    _kind, channel, first_seq, ttl_ms = _EXPIRING.unpack_from(payload, at)
    run_offset = at + _EXPIRING.size
    run, end = message_run.decode_to_end(payload, run_offset)
    return run_offset, Enqueue(_channel(channel), first_seq, run, ttl_ms), end


def _decode_keyed(payload: bytes, at: int) -> _Decoded:
    _kind, channel, first_seq, ttl_ms, labels_count = _KEYED.unpack_from(payload, at)
    at += _KEYED.size
    labels = []
    for _ in range(labels_count):
        count, delay_ms, retry_ms, has_key, size = _LABEL.unpack_from(payload, at)
        at += _LABEL.size
        key = bytes(payload[at : at + size]) if has_key else None
        at += size
        labels.append((count, Label(key, delay_ms, retry_ms)))
    run, end = message_run.decode_to_end(payload, at)
    if sum([count for count, _ in labels]) != run.count:
        raise DamagedRunError(f"labels of {sum(count for count, _ in labels)} messages for a run of {run.count}")
    return at, Enqueue(_channel(channel), first_seq, run, ttl_ms, tuple(labels)), end


@lru_cache(_CACHE_ENTRIES)
def _channel(octets: bytes) -> ChannelId:
    return ChannelId.unpack(octets)


@lru_cache(_CACHE_ENTRIES)
def _consumer(octets: bytes) -> ConsumerId:
    tag = octets[CHANNEL_ID_SIZE + 1 :].decode("utf-8", "surrogateescape")
    return ConsumerId(ChannelId.unpack(octets), tag)


def _decode_consumer(payload: bytes, at: int) -> tuple[ConsumerId, int]:
    """The consumer of a command that starts at ``at``, and the offset behind it.

    This function accepts a tag that is cut off. The caller notices: every command has fields behind its consumer.
    """
    at += 1
    end = at + CHANNEL_ID_SIZE + 1 + payload[at + CHANNEL_ID_SIZE]
    return _consumer(payload[at:end]), end


def _decode_checkout(payload: bytes, at: int) -> _Decoded:
    consumer, at = _decode_consumer(payload, at)
    credit, flags, priority, correlation = _CHECKOUT.unpack_from(payload, at)
    auto_settle, exclusive = bool(flags & _AUTO_SETTLE), bool(flags & _EXCLUSIVE)
    return 0, Checkout(consumer, credit, auto_settle, priority, correlation, exclusive), at + _CHECKOUT.size


def _decode_ranges(payload: bytes, at: int) -> tuple[ConsumerId, tuple[IdRange, ...], int]:
    consumer, at = _decode_consumer(payload, at)
    (count,) = _RANGE_COUNT.unpack_from(payload, at)
    at += _RANGE_COUNT.size
    if count == 1:
        return consumer, (_RANGE.unpack_from(payload, at),), at + _RANGE.size
    ranges, end = _decode_many_ranges(payload, at, count)
    return consumer, ranges, end


def _decode_many_ranges(payload: bytes, at: int, count: int) -> tuple[tuple[IdRange, ...], int]:
    end = at + count * _RANGE.size
    if end > len(payload):
        raise IndexError("message id ranges are cut off")
    return tuple(_RANGE.iter_unpack(payload[at:end])), end


def _ranges_decoder(command: type[Settle | Return | Discard]) -> Callable[[bytes, int], _Decoded]:
    def decode(payload: bytes, at: int) -> _Decoded:
        consumer, ranges, end = _decode_ranges(payload, at)
        return 0, command(consumer, ranges), end

    return decode


def _decode_cancel(payload: bytes, at: int) -> _Decoded:
    consumer, at = _decode_consumer(payload, at)
    (correlation,) = _CORRELATION.unpack_from(payload, at)
    return 0, Cancel(consumer, correlation), at + _CORRELATION.size


def _decode_channel_down(payload: bytes, at: int) -> _Decoded:
    end = at + 1 + CHANNEL_ID_SIZE
    return 0, ChannelDown(_channel(payload[at + 1 : end])), end


def _decode_node_down(payload: bytes, at: int) -> _Decoded:
    _kind, node = _NODE_DOWN.unpack_from(payload, at)
    return 0, NodeDown(NodeId(node)), at + _NODE_DOWN.size


def _decode_node_up(payload: bytes, at: int) -> _Decoded:
    _kind, node, boot_id = _NODE_UP.unpack_from(payload, at)
    return 0, NodeUp(NodeId(node), boot_id), at + _NODE_UP.size


def _decode_purge(payload: bytes, at: int) -> _Decoded:
    _kind, channel, correlation = _PURGE.unpack_from(payload, at)
    return 0, Purge(_channel(channel), correlation), at + _PURGE.size


def _decode_get(payload: bytes, at: int) -> _Decoded:
    consumer, at = _decode_consumer(payload, at)
    flags, correlation = _GET.unpack_from(payload, at)
    return 0, Get(consumer, bool(flags & _AUTO_SETTLE), correlation), at + _GET.size


def _decode_get_checked_out(payload: bytes, at: int) -> _Decoded:
    consumer, at = _decode_consumer(payload, at)
    first_id, correlation = _GET_CHECKED_OUT.unpack_from(payload, at)
    return 0, GetCheckedOut(consumer, first_id, correlation), at + _GET_CHECKED_OUT.size


def _decode_update_config(payload: bytes, at: int) -> _Decoded:
    _kind, size = _CONFIG.unpack_from(payload, at)
    at += _CONFIG.size
    if at + size > len(payload):
        raise IndexError("settings are cut off")
    return 0, UpdateConfig(FifoConfig.decode(payload[at : at + size])), at + size


def _decode_tick(_payload: bytes, at: int) -> _Decoded:
    return 0, Tick(), at + 1


def _decode_dead_letter_settled(payload: bytes, at: int) -> _Decoded:
    _kind, count = _SETTLED.unpack_from(payload, at)
    ranges, end = _decode_many_ranges(payload, at + _SETTLED.size, count)
    return 0, DeadLetterSettled(ranges), end


_DECODERS: Final[dict[int, Callable[[bytes, int], _Decoded]]] = {
    CommandKind.ENQUEUE: _decode_enqueue,
    CommandKind.CHECKOUT: _decode_checkout,
    CommandKind.SETTLE: _ranges_decoder(Settle),
    CommandKind.RETURN: _ranges_decoder(Return),
    CommandKind.DISCARD: _ranges_decoder(Discard),
    CommandKind.CANCEL: _decode_cancel,
    CommandKind.CHANNEL_DOWN: _decode_channel_down,
    CommandKind.NODE_DOWN: _decode_node_down,
    CommandKind.NODE_UP: _decode_node_up,
    CommandKind.PURGE: _decode_purge,
    CommandKind.ENQUEUE_EXPIRING: _decode_expiring,
    CommandKind.ENQUEUE_KEYED: _decode_keyed,
    CommandKind.GET: _decode_get,
    CommandKind.GET_CHECKED_OUT: _decode_get_checked_out,
    CommandKind.UPDATE_CONFIG: _decode_update_config,
    CommandKind.TICK: _decode_tick,
    CommandKind.DEAD_LETTER_SETTLED: _decode_dead_letter_settled,
}
