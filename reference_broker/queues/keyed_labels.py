"""The labels of messages for a keyed queue: the key and the delays, as publishers write them. Pure.

The *source* of the key is an argument of the queue, ``x-key``: ``header:NAME``, or ``routing-key``. Delays are the
headers ``x-delay`` and ``x-retry-delay``, in milliseconds.

Clients write the same number in different types, so the decimal digits of a whole number are its key: the number 5 in
any type and the text "5" are one key. A missing or void header is no key. A delay that is no whole number, or below
zero, is none: a queue cannot refuse a message for its headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Final

from reference_broker.amqp.properties import read_table
from reference_broker.machines.commands import NO_LABEL, Label, Labels
from reference_broker.machines.config import NO_LIMIT
from reference_broker.message_run import MessageRun
from reference_broker.queues.arguments import HEADER_PREFIX, ROUTING_KEY
from reference_broker.queues.message_properties import headers_of
from reference_broker.types import TTL_MS_MAX

_DELAY: Final = b"x-delay"
_RETRY: Final = b"x-retry-delay"

_KEY_OCTETS: Final = 255
"""The longest key that is kept as it is. A longer key is known by its hash: a publisher must not decide the memory of a
key."""
_CACHE_TABLES: Final = 8192
_UNSIGNED: Final = b"Bui"
_SIGNED: Final = b"bsIlL"
_STRINGS: Final = b"Sx"
_TEXT_AT: Final = 5  # behind the type and the length


def labels_of(run: MessageRun, source: str) -> Labels:
    """The labels of all messages of a run, from the source of the queue's keys."""
    key = _short(bytes(run.route[1 + run.route[0] + 1 :])) if source == ROUTING_KEY else None
    name = source.removeprefix(HEADER_PREFIX).encode("utf-8", "surrogateescape")
    if run.ends is None:
        return ((run.count, _label(headers_of(run)[0], name, key)),)
    return _counted(_label(table, name, key) for table in headers_of(run))


def _counted(labels: Iterable[Label]) -> Labels:
    return tuple((sum(1 for _ in same), label) for label, same in groupby(labels))


def cut_labels(labels: Labels, start: int, count: int) -> Labels:
    """The labels of the messages ``start``, +1, ..."""
    found, end, at = [], start + count, 0
    for length, label in labels:
        here = min(at + length, end) - max(at, start)
        if here > 0:
            found.append((here, label))
        at += length
    return tuple(found)


@lru_cache(_CACHE_TABLES)
def _label(table: bytes, name: bytes, routing_key: bytes | None) -> Label:
    if not table:
        return Label(routing_key) if routing_key is not None else NO_LABEL
    fields = dict(read_table(table))
    key = routing_key if routing_key is not None else _key(fields.get(name, b"V"))
    delay_ms, retry_ms = _milliseconds(fields.get(_DELAY, b"V")), _milliseconds(fields.get(_RETRY, b"V"))
    return Label(key, max(delay_ms, 0), retry_ms)


def _key(value: bytes) -> bytes | None:
    """A field as a key. Fields of other types are keys by their octets."""
    kind = value[:1]
    if kind == b"V":
        return None
    if kind in _STRINGS:
        return _short(value[_TEXT_AT:])
    number = _number(value)
    return _short(value) if number is None else str(number).encode()


def _short(key: bytes) -> bytes:
    return key if len(key) <= _KEY_OCTETS else blake2b(key, digest_size=32).digest()


def _number(value: bytes) -> int | None:
    """A field as a whole number; None for a field of another type."""
    kind = value[:1]
    if kind in _UNSIGNED or kind in _SIGNED:
        return int.from_bytes(value[1:], "big", signed=kind in _SIGNED)
    return None


def _milliseconds(value: bytes) -> int:
    """A field as a time; :data:`~reference_broker.machines.config.NO_LIMIT` if it is none."""
    number = _number(value)
    return NO_LIMIT if number is None or number < 0 else min(number, TTL_MS_MAX)
