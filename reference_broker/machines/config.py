"""The settings of a queue: limits, times to live, kind of consuming, strategy for dead letters.

The settings come from the queue's declaration. A policy changes them by a command, so every member changes them at the
same place in the log. The settings are part of the queue's state and of its snapshots.

The target of dead letters (exchange and routing key) is not a setting of the machine: the machine only says which
messages are dead, and the leader's node routes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

NO_LIMIT: Final = -1
""""Not set", in every limit and time of :class:`FifoConfig`."""

_LAYOUT: Final = Struct(">qqqqqBBB")  # the limits and times, then overflow, single active, dead letters
_NAME_SIZE: Final = Struct(">H")
_KEYED: Final = Struct(">qq")  # behind the name of a keyed queue: delay of a retry, time of a reservation


class Overflow(IntEnum):
    """The messages that give way when a queue is full."""

    DROP_HEAD = 1
    """The oldest ready messages, returned messages first."""
    REJECT_PUBLISH = 2
    """The publishers: the queue refuses their messages. A queue in a log does so until it is down to four fifths of its
    limits."""
    REJECT_PUBLISH_DLX = 3
    """The publishers, and refused messages become dead letters. Only for queues beside a store."""


class DeadLetterStrategy(IntEnum):
    """How safely a dead message reaches its target."""

    AT_MOST_ONCE = 1
    """The leader sends the message once. The message is lost if the leader dies in between."""
    AT_LEAST_ONCE = 2
    """The message stays in the queue's state until its target has confirmed it. As in RabbitMQ, this needs
    :attr:`Overflow.REJECT_PUBLISH`; with another overflow it works like :attr:`AT_MOST_ONCE`."""


class DamagedConfigError(ValueError):
    """The octets are not the settings of a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedConfig:
    """The settings of a keyed queue alone: the wait of a message after a return, and the time for which a consumer may
    hold a message (-1: no limit)."""

    retry_delay_ms: int = 0
    reserve_ms: int = NO_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoConfig:
    """The settings of a queue in a log or beside a store. A number of -1 is not set.

    ``delivery_limit`` N allows N returns, so N + 1 deliveries. ``max_length`` counts ready messages,
    ``max_length_bytes`` the octets of their bodies. ``message_ttl_ms`` is the longest time for which a message is
    ready, ``expires_ms`` for which the queue is unused. ``single_active``: one consumer at a time. ``dead_letter``
    None: drop dead messages. ``keyed`` None: the queue knows no keys.
    """

    name: str
    delivery_limit: int = NO_LIMIT
    max_length: int = NO_LIMIT
    max_length_bytes: int = NO_LIMIT
    overflow: Overflow = Overflow.DROP_HEAD
    message_ttl_ms: int = NO_LIMIT
    expires_ms: int = NO_LIMIT
    single_active: bool = False
    dead_letter: DeadLetterStrategy | None = None
    keyed: KeyedConfig | None = None

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether dead letters stay until their target has confirmed them."""
        return self.dead_letter is DeadLetterStrategy.AT_LEAST_ONCE and self.overflow is Overflow.REJECT_PUBLISH

    def encode(self) -> bytes:
        """The settings as octets, for a command and for snapshots."""
        numbers = (
            self.delivery_limit,
            self.max_length,
            self.max_length_bytes,
            self.message_ttl_ms,
            self.expires_ms,
            self.overflow,
            self.single_active,
            self.dead_letter or 0,
        )
        name = self.name.encode("utf-8", "surrogateescape")
        keyed = _KEYED.pack(self.keyed.retry_delay_ms, self.keyed.reserve_ms) if self.keyed is not None else b""
        return _LAYOUT.pack(*numbers) + _NAME_SIZE.pack(len(name)) + name + keyed

    @classmethod
    def decode(cls, octets: bytes) -> FifoConfig:
        """Read back what :meth:`encode` wrote. Raises :class:`DamagedConfigError` for anything else."""
        try:
            *numbers, overflow, single_active, dead_letter = _LAYOUT.unpack_from(octets)
            (size,) = _NAME_SIZE.unpack_from(octets, _LAYOUT.size)
            name_at = _LAYOUT.size + _NAME_SIZE.size
            name, rest = octets[name_at : name_at + size], octets[name_at + size :]
            if len(name) != size or single_active > 1 or min(numbers) < NO_LIMIT:
                raise DamagedConfigError(f"settings of {len(octets)} octets make no sense")
            delivery_limit, max_length, max_length_bytes, message_ttl_ms, expires_ms = numbers
            return cls(
                name=name.decode("utf-8", "surrogateescape"),
                delivery_limit=delivery_limit,
                max_length=max_length,
                max_length_bytes=max_length_bytes,
                overflow=Overflow(overflow),
                message_ttl_ms=message_ttl_ms,
                expires_ms=expires_ms,
                single_active=bool(single_active),
                dead_letter=DeadLetterStrategy(dead_letter) if dead_letter else None,
                keyed=_keyed(rest) if rest else None,
            )
        except (struct.error, ValueError) as error:
            raise DamagedConfigError(f"settings of {len(octets)} octets: {error}") from error


def _keyed(octets: bytes) -> KeyedConfig:
    retry_delay_ms, reserve_ms = _KEYED.unpack(octets)
    if retry_delay_ms < 0 or reserve_ms < NO_LIMIT:
        raise DamagedConfigError(f"a keyed queue with a retry after {retry_delay_ms} ms, taken back after {reserve_ms}")
    return KeyedConfig(retry_delay_ms=retry_delay_ms, reserve_ms=reserve_ms)
