"""The key and the delays of a message, as clients of many languages write them."""

from __future__ import annotations

from itertools import chain, repeat
from random import Random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.amqp.properties import HEADERS, Fields, long, text, write_properties, write_table
from reference_broker.machines.commands import NO_LABEL, Label, Labels
from reference_broker.message_run import MessageRun
from reference_broker.queues.keyed_labels import cut_labels, labels_of
from reference_broker.types import TTL_MS_MAX

SOURCE = "header:x-group-key"
KEY, DELAY, RETRY = b"x-group-key", b"x-delay", b"x-retry-delay"
ROUTE = b"\x02ex\x05queue"


def content(fields: Fields | None, *, before: bytes = b"") -> bytes:
    """A message of one octet. ``fields`` None: without headers; ``before``: a content type before the headers."""
    chosen = {0x8000: bytes((len(before),)) + before, 0x1000: b"\x02"} if before else {0x1000: b"\x02"}
    if fields is not None:
        chosen[HEADERS] = write_table(fields)
    payload = write_properties(b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big"), chosen)
    header = b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    return header + b"\x03\x00\x01\x00\x00\x00\x01.\xce"


def label(*fields: tuple[bytes, bytes], source: str = SOURCE) -> Label:
    """The label of one message with these headers."""
    ((count, found),) = labels_of(MessageRun.of(ROUTE, [content(list(fields), before=b"text/plain")]), source)
    assert count == 1
    return found


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (text("a"), b"a"),
        (text(""), b""),
        (text("ü"), "ü".encode()),
        (b"x\x00\x00\x00\x02\xff\x00", b"\xff\x00"),
        (text("5"), b"5"),
        (b"b\x05", b"5"),
        (b"B\x05", b"5"),
        (b"s\x00\x05", b"5"),
        (b"u\x00\x05", b"5"),
        (b"I\x00\x00\x00\x05", b"5"),
        (b"i\x00\x00\x00\x05", b"5"),
        (long(5), b"5"),
        (b"L" + bytes(7) + b"\x05", b"5"),
        (b"b\xff", b"-1"),
        (b"B\xff", b"255"),
        (b"I\xff\xff\xff\xfe", b"-2"),
        (b"t\x01", b"t\x01"),
        (b"d" + pack(">d", 1.5), b"d" + pack(">d", 1.5)),
        (b"V", None),
    ],
)
def test_a_key_of_any_type(value: bytes, key: bytes | None) -> None:
    """One publisher in Go and one in Python write the same number in different types, and mean one order."""
    assert label((b"other", text("z")), (KEY, value)) == Label(key)


def test_a_long_key_is_known_by_its_hash() -> None:
    """A publisher must not decide how much memory a key takes, nor bring two keys together."""
    keys = {label((KEY, text("k" * 300 + end))).key for end in "abc"}
    assert len(keys) == 3
    assert all(key is not None and len(key) == 32 for key in keys)
    assert label((KEY, text("k" * 255))).key == b"k" * 255


@pytest.mark.parametrize(
    ("value", "delay_ms", "retry_ms"),
    [
        (long(70), 70, 70),
        (b"s\x00\x07", 7, 7),
        (long(0), 0, 0),
        (long(-1), 0, -1),
        (text("70"), 0, -1),
        (b"d" + pack(">d", 7.0), 0, -1),
        (b"V", 0, -1),
        (long(2**62), TTL_MS_MAX, TTL_MS_MAX),
    ],
)
def test_delays(value: bytes, delay_ms: int, retry_ms: int) -> None:
    """A queue cannot refuse a message for its headers: what is no time is no delay."""
    assert label((DELAY, value)) == Label(None, delay_ms=delay_ms)
    assert label((RETRY, value)) == Label(None, retry_ms=retry_ms)
    assert label((KEY, text("k")), (DELAY, value), (RETRY, value)) == Label(b"k", delay_ms, retry_ms)


def test_other_sources_of_the_key() -> None:
    """Another header, or the routing key, whatever the headers say."""
    fields = ((KEY, text("a")), (b"customer", text("b")), (DELAY, long(3)))
    assert label(*fields, source="header:customer") == Label(b"b", 3)
    assert label(*fields, source="routing-key") == Label(b"queue", 3)
    run = MessageRun.of(ROUTE, [content(None)] * 3)
    assert labels_of(run, "routing-key") == ((3, Label(b"queue")),)
    assert labels_of(run, SOURCE) == ((3, NO_LABEL),)


def test_octets_without_a_header_have_no_key() -> None:
    """Tools that make runs of their own need no header."""
    assert labels_of(MessageRun(2, ROUTE, b"\x02\x00" * 2, 2), SOURCE) == ((2, NO_LABEL),)


def unrolled(labels: Labels) -> list[Label]:
    return [*chain.from_iterable(repeat(each, count) for count, each in labels)]


@given(st.builds(Random, st.integers(0, 2**32)))
def test_any_run_has_the_labels_of_its_messages(random: Random) -> None:
    """The label of a neighbour breaks the order of two keys."""
    choices: list[Fields | None] = [None, [], [(KEY, text("a"))], [(KEY, long(7)), (DELAY, long(9))]]
    contents = [content(random.choice(choices), before=b"t" * random.randint(0, 3)) for _ in range(9)]
    whole = labels_of(MessageRun.of(ROUTE, contents), SOURCE)
    one_by_one = [labels_of(MessageRun.of(ROUTE, [each]), SOURCE)[0][1] for each in contents]
    assert unrolled(whole) == one_by_one
    uniform = MessageRun(4, ROUTE, contents[0] * 4, len(contents[0]))
    assert labels_of(uniform, SOURCE) == ((4, one_by_one[0]),)
    start = random.randint(0, 8)
    count = random.randint(0, 9 - start)
    assert unrolled(cut_labels(whole, start, count)) == one_by_one[start : start + count]
