"""basic.ack, basic.nack and basic.reject, read many at a time: all three are frames of 21 octets.

The reader turns delivery tags into ranges of message ids. The reader consumes whole frames or nothing. It leaves frames
that it does not know to the general path.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

import numpy as np

from reference_broker.amqp.channel import Channel
from reference_broker.amqp.errors import ReplyCode, SoftError
from reference_broker.amqp.events import Outcome
from reference_broker.amqp.frames import BASIC_CLASS, FRAME_END, METHOD
from reference_broker.amqp.runs import NUMPY_FROM, RunBuilder

_SETTLE: Final = Struct(">BHIHHQBB")
_SETTLE_OCTETS: Final = _SETTLE.size
_SETTLE_PREFIX_OCTETS: Final = 11
_METHOD_NUMBERS: Final = {
    b"\x00\x00\x00\x0d\x00\x3c\x00\x50": 80,
    b"\x00\x00\x00\x0d\x00\x3c\x00\x5a": 90,
    b"\x00\x00\x00\x0d\x00\x3c\x00\x78": 120,
}
"""The method number of basic.ack, basic.reject and basic.nack, by the octets of length, class and method."""
_ACK: Final = 80
_REJECT: Final = 90


class SettleReader:
    """Reads basic.ack, basic.nack and basic.reject off the front of a buffer."""

    __slots__ = ("_channels", "_runs")

    def __init__(self, channels: Mapping[int, Channel], runs: RunBuilder) -> None:
        self._channels = channels
        self._runs = runs

    def take(self, buffer: bytes, at: int) -> int:
        """Consume acknowledgements from ``at`` on. Returns the position after them, ``at`` itself if there was none.

        Raises SoftError 406 for a delivery tag that is not unacknowledged on its channel; the tags before it count.
        """
        method = _METHOD_NUMBERS.get(buffer[at + 3 : at + _SETTLE_PREFIX_OCTETS])
        if method is None or len(buffer) - at < _SETTLE_OCTETS:
            return at
        kind, number, _length, _class, _method, tag, bits, end = _SETTLE.unpack_from(buffer, at)
        channel = self._channels.get(number)
        if kind != METHOD or end != FRAME_END or channel is None or not channel.takes_runs:
            return at
        if method != _REJECT and bits & 1:
            self._settle_multiple(channel, tag, method, bits)
            return at + _SETTLE_OCTETS
        far = at + _SETTLE_OCTETS * (NUMPY_FROM - 1)
        if buffer[far : far + _SETTLE_PREFIX_OCTETS] == buffer[at : at + _SETTLE_PREFIX_OCTETS]:
            return self._take_rows(buffer, at, channel, method, bits)
        self._settle(channel, tag, tag, method, bits)
        return at + _SETTLE_OCTETS

    def _take_rows(self, buffer: bytes, at: int, channel: Channel, method: int, bits: int) -> int:
        """Consume many frames that differ in their delivery tags alone."""
        limit = (len(buffer) - at) // _SETTLE_OCTETS
        rows = np.frombuffer(buffer, np.uint8, limit * _SETTLE_OCTETS, at).reshape(limit, _SETTLE_OCTETS)
        equal = (rows[:, :_SETTLE_PREFIX_OCTETS] == rows[0, :_SETTLE_PREFIX_OCTETS]).all(axis=1)
        equal &= (rows[:, -2] == bits) & (rows[:, -1] == FRAME_END)
        count = limit if equal.all() else int(equal.argmin())
        tags = rows[:count, _SETTLE_PREFIX_OCTETS:-2].copy().view(">u8").ravel().astype(np.uint64)
        # Neighbours are compared, not subtracted: a client may well send 2**64 - 1 and then 0.
        breaks = np.flatnonzero((tags[1:] != tags[:-1] + np.uint64(1)) | (tags[1:] == 0)).tolist()
        for first, last in zip([0, *(b + 1 for b in breaks)], [*breaks, count - 1], strict=True):
            self._settle(channel, int(tags[first]), int(tags[last]), method, bits)
        return at + count * _SETTLE_OCTETS

    def _settle(self, channel: Channel, first: int, last: int, method: int, bits: int) -> None:
        taken, missing = channel.unacked.take(first, last)
        self._runs.add_settled(channel, _outcome(method, bits), taken)
        if missing is not None:
            raise _unknown_tag(missing, method)

    def _settle_multiple(self, channel: Channel, tag: int, method: int, bits: int) -> None:
        """Settle every tag up to this one. Tag 0 stands for all tags; any other tag must itself be unacknowledged."""
        if tag and not channel.unacked.holds(tag):
            raise _unknown_tag(tag, method)
        taken = channel.unacked.take_up_to(tag) if tag else channel.unacked.take_all()
        self._runs.add_settled(channel, _outcome(method, bits), taken)


def _unknown_tag(tag: int, method: int) -> SoftError:
    return SoftError(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}", (BASIC_CLASS, method))


def _outcome(method: int, bits: int) -> Outcome:
    if method == _ACK:
        return Outcome.SETTLE
    requeue = bits & 1 if method == _REJECT else bits & 2
    return Outcome.RETURN if requeue else Outcome.DISCARD
