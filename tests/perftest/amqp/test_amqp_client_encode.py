"""Bulk octets must be the very octets of the general encoder."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from pamqp import body, commands, frame, header

from perftest.amqp.encode import AckEncoder, PublishTemplate
from perftest.engine import stamp


def template(size: int, *, rows_max: int = 64, frame_max: int = 131072) -> PublishTemplate:
    return PublishTemplate(
        channel=7,
        exchange="",
        routing_key="a queue",
        mandatory=True,
        persistent=True,
        source=0xABCD0001,
        filler=stamp.filler(size - stamp.SIZE),
        frame_max=frame_max,
        rows_max=rows_max,
    )


def by_pamqp(size: int, sequence: int, intended: int, sent: int, frame_max: int = 131072) -> bytes:
    octets = struct.pack(">IQQQ", 0xABCD0001, sequence, intended, sent) + stamp.filler(size - stamp.SIZE)
    properties = commands.Basic.Properties(delivery_mode=2)
    pieces = [octets[at : at + frame_max - 8] for at in range(0, size, frame_max - 8)]
    return b"".join(
        [
            frame.marshal(commands.Basic.Publish(exchange="", routing_key="a queue", mandatory=True), 7),
            frame.marshal(header.ContentHeader(body_size=size, properties=properties), 7),
            *(frame.marshal(body.ContentBody(piece), 7) for piece in pieces),
        ]
    )


@pytest.mark.parametrize("size", [28, 29, 1000, 5000, 300_000])
def test_a_burst_is_what_pamqp_would_send(size: int) -> None:
    made = template(size, frame_max=4096)
    count = min(made.burst_max, 9)
    intended = np.arange(1000, 1000 + count, dtype=np.int64)
    burst = made.burst(17, count, intended_ns=intended, sent_ns=5000)
    assert burst == b"".join(by_pamqp(size, 17 + i, 1000 + i, 5000, 4096) for i in range(count))
    assert made.single(3, intended_ns=4, sent_ns=5) == by_pamqp(size, 3, 4, 5, 4096)


def test_a_burst_of_chosen_sequences_keeps_them() -> None:
    """After a lost connection exactly the unconfirmed ones go out again."""
    burst = template(100).burst(np.array([3, 9, 4]), 3, intended_ns=None, sent_ns=8)
    assert burst == b"".join(by_pamqp(100, sequence, 8, 8) for sequence in (3, 9, 4))


def test_bursts_are_bounded_by_window_and_octets() -> None:
    assert template(1000, rows_max=5).burst_max == 5
    assert 200 <= template(1000, rows_max=1 << 30).burst_max <= 260
    assert template(1_000_000).burst_max == 1


@pytest.mark.parametrize("tags", [range(1, 2), range(5, 305), range(10, 100, 10)])
@pytest.mark.parametrize("multiple", [False, True])
def test_acks_are_what_pamqp_would_send(tags: range, multiple: bool) -> None:
    expected = b"".join(frame.marshal(commands.Basic.Ack(tag, multiple), 3) for tag in tags)
    assert AckEncoder(3).many(tags, multiple=multiple) == expected


@pytest.mark.parametrize("tags", [range(1, 2), range(5, 105)])
@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("requeue", [False, True])
def test_nacks_are_what_pamqp_would_send(tags: range, multiple: bool, requeue: bool) -> None:
    expected = b"".join(frame.marshal(commands.Basic.Nack(tag, multiple, requeue), 3) for tag in tags)
    assert AckEncoder(3, nack=True, requeue=requeue).many(tags, multiple=multiple) == expected
