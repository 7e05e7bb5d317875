"""A master's operations on its messages, as octets of a batch: its mirrors repeat them on theirs. Pure.

An operation is an octet of its kind and a fixed head; a published run follows its head::

    ADD        sequence number of the first message, expiry, and whether all messages are persistent, none, or some;
               then the run, and a bit for each message if some are
    TAKE       messages of one part are gone: its sequence number, first position, count, step
    DELIVERED  messages below this sequence number have been delivered
    APPLIED    a node's publishes are in the queue up to this number: node, boot id, number

RabbitMQ's master broadcasts publish, fetch, ack, drop and requeue. Here a mirror need not know who holds a message: a
message that is not gone is in the queue, and comes back as redelivered if it was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

import numpy as np
import numpy.typing as npt

from reference_broker import message_run
from reference_broker.message_run import MessageRun
from reference_broker.records import record
from reference_broker.types import NodeId

_ADD: Final = Struct(">BQqB")
_TAKE: Final = Struct(">BQIII")
_DELIVERED: Final = Struct(">BQ")
_APPLIED: Final = Struct(">BHIQ")
_ADDED, _TAKEN, _WAS_DELIVERED, _WAS_APPLIED = 1, 2, 3, 4
_NONE, _ALL, _SOME = 0, 1, 2

Persistent = bool | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """A run has entered the queue; its first message has the sequence number ``seq``."""

    seq: int
    run: MessageRun
    persistent: Persistent
    """All messages, or each."""
    expires: int

    def buffers(self) -> list[bytes | memoryview]:
        """The octets."""
        mask = self.persistent
        if isinstance(mask, np.ndarray):
            head = _ADD.pack(_ADDED, self.seq, self.expires, _SOME)
            return [head, *self.run.buffers(), np.packbits(mask).tobytes()]
        return [_ADD.pack(_ADDED, self.seq, self.expires, _ALL if mask else _NONE), *self.run.buffers()]


@record
class Take:
    """Messages are gone: positions ``start, start + step, ...`` of the part that begins at ``seq``."""

    seq: int
    start: int
    count: int
    step: int

    def buffers(self) -> list[bytes | memoryview]:
        """The octets."""
        return [_TAKE.pack(_TAKEN, self.seq, self.start, self.count, self.step)]


@record
class Delivered:
    """Messages below ``seq_end`` have been delivered."""

    seq_end: int

    def buffers(self) -> list[bytes | memoryview]:
        """The octets."""
        return [_DELIVERED.pack(_WAS_DELIVERED, self.seq_end)]


@record
class AppliedPublishes:
    """The publishes of a process of a node are in the queue up to ``number``."""

    node: NodeId
    boot_id: int
    number: int

    def buffers(self) -> list[bytes | memoryview]:
        """The octets."""
        return [_APPLIED.pack(_WAS_APPLIED, self.node, self.boot_id, self.number)]


Operation = Add | Take | Delivered | AppliedPublishes


def decode(octets: bytes) -> Iterator[Operation]:
    """The operations of a batch. Raises ValueError where it is damaged."""
    at = 0
    try:
        while at < len(octets):
            operation, at = _read(octets, at)
            yield operation
    except error as damage:
        raise ValueError(f"a batch for a mirror is damaged at octet {at}: {damage}") from damage


def _read(octets: bytes, at: int) -> tuple[Operation, int]:
    kind = octets[at]
    if kind == _ADDED:
        return _read_add(octets, at)
    if kind == _TAKEN:
        return Take(*_TAKE.unpack_from(octets, at)[1:]), at + _TAKE.size
    if kind == _WAS_DELIVERED:
        return Delivered(_DELIVERED.unpack_from(octets, at)[1]), at + _DELIVERED.size
    if kind == _WAS_APPLIED:
        _kind, node, boot_id, number = _APPLIED.unpack_from(octets, at)
        return AppliedPublishes(NodeId(node), boot_id, number), at + _APPLIED.size
    raise ValueError(f"operation of unknown kind {kind} at octet {at}")


def _read_add(octets: bytes, at: int) -> tuple[Add, int]:
    _kind, seq, expires, which = _ADD.unpack_from(octets, at)
    at += _ADD.size
    run, at = message_run.decode_to_end(octets, at)
    if which != _SOME:
        return Add(seq, run, which == _ALL, expires), at
    end = at + (run.count + 7) // 8
    if end > len(octets):
        raise ValueError(f"a batch for a mirror is cut off at octet {len(octets)}")
    mask = np.unpackbits(np.frombuffer(octets[at:end], np.uint8), count=run.count).astype(np.bool_)
    return Add(seq, run, mask, expires), end
