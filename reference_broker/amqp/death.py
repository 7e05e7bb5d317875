"""The headers of a dead letter: the history of its deaths in ``x-death``, and whether it goes round in circles.

This follows RabbitMQ 3.10 (rabbit_dead_letter.erl). ``x-death`` is an array of tables, the latest death first. There is
one table per queue and reason, with a count. The first death of all has three headers of its own:
``x-first-death-reason``, ``-queue`` and ``-exchange``. The expiration property is removed, or the message would expire
again in its next queue; the table of the death keeps it as ``original-expiration``.

RabbitMQ does not mark letters that it may have sent twice. Here such a letter carries ``x-dead-letter-repeat``, and
keeps it: its other copy may go the same way.

The functions are pure: octets in, octets out. Everything else in the message stays as its publisher wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_broker.amqp.frames import FRAME_HEAD, HEADER, reframe
from reference_broker.amqp.properties import (
    EXPIRATION,
    HEADERS,
    Fields,
    array,
    header_size,
    long,
    read_array,
    read_properties,
    read_table,
    set_field,
    table,
    text,
    timestamp,
    write_properties,
    write_table,
)

REJECTED = "rejected"
_DEATHS = b"x-death"
_COUNT = b"count"
_COPIES = b"CC"
_REPEAT = b"x-dead-letter-repeat"
_TRUE = b"t\x01"


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a message in ``queue``, for ``reason`` (rejected, expired, maxlen, delivery_limit), at ``time_s``
    seconds since 1970. The message was published to ``exchange`` with ``routing_key``. ``is_repeat``: the letter may
    have been sent before."""

    queue: str
    reason: str
    exchange: str
    routing_key: str
    time_s: int
    is_repeat: bool = False


def dead_letter(content: bytes, death: Death, channel: int = 1) -> bytes:
    """The content (raw frames) to publish again, on ``channel``, with its body in one frame."""
    size = header_size(content)
    payload = content[FRAME_HEAD.size : size - 1]
    properties = read_properties(payload)
    headers = read_table(properties[HEADERS]) if HEADERS in properties else []
    expiration = properties.pop(EXPIRATION, None)
    headers = _with_death(headers, death, expiration)
    if death.is_repeat:
        headers = set_field(headers, _REPEAT, _TRUE)
    properties[HEADERS] = write_table(headers)
    payload = write_properties(payload, properties)
    head = FRAME_HEAD.pack(HEADER, channel, len(payload)) + payload + b"\xce"
    return reframe(head + content[size:], channel, 0)


def is_cycle(content: bytes, queue: str) -> bool:
    """Whether a dead letter was in ``queue`` before, and no consumer has rejected it since. Such a letter would go
    round for ever."""
    properties = read_properties(content[FRAME_HEAD.size : header_size(content) - 1])
    round_trip = []
    for death in _deaths(read_table(properties.get(HEADERS, bytes(4)))):
        fields = dict(death)
        round_trip.append(fields.get(b"reason"))
        if fields.get(b"queue") == text(queue):
            return text(REJECTED) not in round_trip
    return False


def _with_death(headers: Fields, death: Death, expiration: bytes | None) -> Fields:
    deaths = _grouped(_deaths(headers))
    same = [fields for fields in deaths if _is_of(fields, death)]
    if same:
        latest = set_field(same[0], _COUNT, long(_count(same[0]) + 1))
    else:
        latest = [(_COUNT, long(1)), *_fields(death, expiration, _copies(headers))]
    others = [fields for fields in deaths if not _is_of(fields, death)]
    if not deaths:
        for name, value in (("reason", death.reason), ("queue", death.queue), ("exchange", death.exchange)):
            headers = set_field(headers, f"x-first-death-{name}".encode(), text(value))
    return set_field(headers, _DEATHS, array(table(fields) for fields in (latest, *others)))


def _grouped(deaths: list[Fields]) -> list[Fields]:
    """One table for each queue and reason, the first, with a count. Old brokers wrote one for each death, and without
    a count the number of tables is the count. A table that is alone stays as it is."""
    if len(deaths) < 2:
        return deaths
    groups: dict[tuple[bytes | None, bytes | None], list[Fields]] = {}
    for fields in deaths:
        known = dict(fields)
        groups.setdefault((known.get(b"queue"), known.get(b"reason")), []).append(fields)
    return [same[0] if _COUNT in dict(same[0]) else set_field(same[0], _COUNT, long(len(same)))
            for same in groups.values()]  # fmt: skip


def _fields(death: Death, expiration: bytes | None, copies: list[bytes]) -> Fields:
    fields = [
        (b"reason", text(death.reason)),
        (b"queue", text(death.queue)),
        (b"time", timestamp(death.time_s)),
        (b"exchange", text(death.exchange)),
        (b"routing-keys", array([text(death.routing_key), *copies])),
    ]
    if expiration is not None:
        fields.append((b"original-expiration", text(expiration[1:].decode("utf-8", "replace"))))
    return fields


def _copies(headers: Fields) -> list[bytes]:
    """The keys of a ``CC`` header: the message was published under them, too."""
    return [value for value in read_array(dict(headers).get(_COPIES, b"")) if value[:1] == b"S"]


def _deaths(headers: Fields) -> list[Fields]:
    """The tables of an ``x-death`` header. Values of other types, which only a publisher can have made, do not
    count."""
    return [read_table(value[1:]) for value in read_array(dict(headers).get(_DEATHS, b"")) if value[:1] == b"F"]


def _is_of(fields: Fields, death: Death) -> bool:
    known = dict(fields)
    return known.get(b"queue") == text(death.queue) and known.get(b"reason") == text(death.reason)


def _count(fields: Fields) -> int:
    value = dict(fields).get(_COUNT, b"")
    return int.from_bytes(value[1:], "big", signed=True) if value[:1] in (b"l", b"I", b"s", b"b") else 0
