"""The octets of the keys of a keyed queue, in its snapshot: one row per key, by the oldest message.

    flags, octets of the name, number of waiting messages, the name
    if a message is out:  its number, its times (:class:`~reference_broker.machines.keyed.Reservation`)
    each waiting message: position, times, origin

Which consumer holds a message that is out stands with the consumer.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from reference_broker.machines.consumers import Consumer
from reference_broker.machines.keyed import Key, KeyedReady, Reservation, Waiting
from reference_broker.machines.messages.origins import Origin
from reference_broker.types import ConsumerId

_KEY: Final = Struct(">BHI")  # flags, octets of the name, waiting messages
_NAMED: Final = 1
_RESERVED: Final = 2
_OUT: Final = Struct(">QQqQ")  # number, time, delay of a retry, end
_WAITING: Final = Struct(">IQqQIqIQI")  # position, time, delay of a retry, origin

Holders = dict[int, tuple[ConsumerId, int]]
"""By message number: the consumer that holds the message, and the id under which it does."""


def encode_keys(keyed: KeyedReady) -> bytes:
    """All keys with their messages."""
    return b"".join([_encode(key) for key in keyed.by_age()])


def _encode(key: Key) -> bytes:
    name, out = key.name or b"", key.reserved
    flags = _NAMED * (key.name is not None) | _RESERVED * (out is not None)
    row = _KEY.pack(flags, len(name), len(key.waiting)) + name
    if out is not None:
        row += _OUT.pack(out.number, out.at_ms, out.retry_ms, out.until_ms)
    return row + b"".join(
        [_WAITING.pack(each.position, each.at_ms, each.retry_ms, *each.origin) for each in key.waiting]
    )


def decode_keys(octets: bytes, consumers: Iterable[Consumer]) -> list[Key]:
    """The keys. Raises ValueError, KeyError or struct.error for octets that are no keys, or that name a message as out
    that no consumer holds."""
    consumers = list(consumers)
    held = sum([held.count for consumer in consumers for held in consumer.held])
    if held * _OUT.size > len(octets):
        raise ValueError(f"consumers hold {held} messages, more than {len(octets)} octets of keys can name")
    holders, keys, at = _holders(consumers), [], 0
    while at < len(octets):
        key, at = _decode(octets, at, holders)
        keys.append(key)
    return keys


def _holders(consumers: Iterable[Consumer]) -> Holders:
    return {
        held.number + turn * held.step: (consumer.id, held.first_id + turn)
        for consumer in consumers
        for held in consumer.held
        for turn in range(held.count)
    }


def _decode(octets: bytes, at: int, holders: Holders) -> tuple[Key, int]:
    flags, size, count = _KEY.unpack_from(octets, at)
    at += _KEY.size
    key = Key(octets[at : at + size] if flags & _NAMED else None)
    at += size
    if flags & _RESERVED:
        number, at_ms, retry_ms, until_ms = _OUT.unpack_from(octets, at)
        at += _OUT.size
        key.reserved = Reservation(key, number, at_ms, retry_ms, until_ms, *holders[number])
    elif not count:
        raise ValueError(f"key {key.name!r} has no message")
    for _ in range(count):
        position, ready_ms, retry_ms, *origin = _WAITING.unpack_from(octets, at)
        key.waiting.append(Waiting(position, Origin(*origin), ready_ms, retry_ms))
        at += _WAITING.size
    return key, at
