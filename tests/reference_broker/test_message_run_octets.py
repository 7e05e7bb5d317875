"""A run of messages and its octets."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.message_run import DamagedRunError, MessageRun, decode, encoded_size

ROUTES = st.binary(max_size=300)
CONTENTS = st.lists(st.binary(max_size=30), min_size=1, max_size=9)
BEFORE = st.binary(max_size=9)

UNIFORM = MessageRun(3, b"\x00\x01q", b"aabbcc", 2)
RAGGED = MessageRun.of(b"\x00\x01q", [b"a", b"", b"bcd"])


@given(ROUTES, CONTENTS, BEFORE, BEFORE)
def test_a_ragged_run_comes_back_content_by_content(
    route: bytes, contents: list[bytes], before: bytes, after: bytes
) -> None:
    """Differing sizes are the rule with real clients; a shifted end mixes two messages."""
    run = MessageRun.of(route, contents)
    octets = b"".join(run.buffers())
    payload = before + octets + after
    back = decode(payload, len(before))
    assert (back.count, back.route, back.stride) == (len(contents), route, 0)
    assert [back.content(position) for position in range(back.count)] == contents
    assert encoded_size(payload, len(before)) == len(octets)


@given(ROUTES, st.integers(1, 50), st.integers(1, 9), BEFORE, BEFORE)
def test_a_uniform_run_comes_back_content_by_content(
    route: bytes, stride: int, count: int, before: bytes, after: bytes
) -> None:
    """The layout of every benchmark, and the fast one."""
    data = Random(stride * count).randbytes(stride * count)
    run = MessageRun(count, route, data, stride)
    octets = b"".join(run.buffers())
    payload = before + octets + after
    back = decode(payload, len(before))
    assert (back.count, back.route, back.stride, back.ends) == (count, route, stride, None)
    assert [back.content(position) for position in range(count)] == [
        data[at : at + stride] for at in range(0, len(data), stride)
    ]
    assert encoded_size(payload, len(before)) == len(octets)


def test_rows_take_every_third_message() -> None:
    """With three consumers, each gets a strided part of a run; numpy must cut the same messages as content()."""
    run = MessageRun(7, b"", bytes(range(14)), 2)
    assert [bytes(row) for row in run.rows(1, 7, 3)] == [run.content(1), run.content(4)]


def test_bodies_are_views_into_the_entry() -> None:
    """A copy per delivery and consumer would cost more than all the rest."""
    payload = b"".join(MessageRun(4, b"", bytes(4096), 1024).buffers())
    back = decode(payload, 0)
    assert np.shares_memory(np.frombuffer(back.data, np.uint8), np.frombuffer(payload, np.uint8))


@pytest.mark.parametrize("run", [UNIFORM, RAGGED], ids=["uniform", "ragged"])
def test_every_cut_off_run_is_refused(run: MessageRun) -> None:
    """A short view would deliver a message with its end missing."""
    octets = b"".join(run.buffers())
    for end in range(len(octets)):
        with pytest.raises(DamagedRunError):
            decode(octets[:end], 0)


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        ("01 00000000 00000002 0000 00000000", "no message"),
        ("01 00000002 00000000 0000 00000000", "uniform without a stride"),
        ("01 00000002 00000002 0000 00000003 616161", "count and stride do not give the data"),
        ("02 00000001 00000003 0000 00000003 00000003 616161", "ragged with a stride"),
        ("02 00000001 00000000 0000 00000003 00000002 616161", "the last content does not end with the data"),
        ("03 00000001 00000001 0000 00000001 61", "unknown layout"),
    ],
)
def test_a_head_that_contradicts_itself_is_refused(octets: str, why: str) -> None:
    """Such octets come from a bug or a bad drive; to guess would hide it."""
    with pytest.raises(DamagedRunError):
        decode(bytes.fromhex(octets), 0)


@given(ROUTES, CONTENTS, st.integers(1, 5))
def test_parts_of_a_ragged_run_are_its_messages_in_order(route: bytes, contents: list[bytes], size: int) -> None:
    """A run is cut where a consumer must not wait for all of it; a shifted cut mixes two messages."""
    parts = list(MessageRun.of(route, contents).parts(size))
    assert [part.content(position) for part in parts for position in range(part.count)] == contents
    assert all(part.count <= size and part.route == route for part in parts)
    for part in parts:
        assert decode(b"".join(part.buffers()), 0).content(part.count - 1) == part.content(part.count - 1)


@given(st.integers(1, 50), st.integers(1, 9), st.integers(1, 20))
def test_parts_of_a_uniform_run_are_its_messages_in_order(count: int, stride: int, size: int) -> None:
    run = MessageRun(count, b"\x00\x01q", bytes(range(256))[: count * stride].ljust(count * stride, b"z"), stride)
    parts = list(run.parts(size))
    assert b"".join(bytes(part.data) for part in parts) == run.data
    assert [part.stride for part in parts] == [stride] * -(-count // size)
