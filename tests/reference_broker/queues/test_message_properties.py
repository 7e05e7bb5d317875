"""The properties by which classic queues sort messages: read from raw octets as the general reader reads them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.amqp.properties import read_properties, table, write_properties
from reference_broker.message_run import MessageRun
from reference_broker.queues.message_properties import Sort, Stretch, sort_of, stretches

ROUTE = b"\x00\x01q"
DELIVERY_MODE, PRIORITY = 0x1000, 0x0800
CHOICES = {
    0x8000: (b"\x00", b"\x0atext/plain"),
    0x4000: (b"\x04gzip",),
    0x2000: (table([])[1:], table([(b"x-a", b"t\x01")])[1:]),
    DELIVERY_MODE: (b"\x01", b"\x02"),
    PRIORITY: (b"\x00", b"\x05", b"\xff"),
    0x0400: (b"\x02id",),
    0x0040: (bytes(8),),
}


def any_content(random: Random) -> bytes:
    """A message with any properties. The body is one octet."""
    chosen = {bit: random.choice(values) for bit, values in CHOICES.items() if random.random() < 0.5}
    payload = write_properties(b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big"), chosen)
    assert read_properties(payload) == chosen
    header = b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    return header + b"\x03\x00\x01\x00\x00\x00\x01.\xce"


def slow_sort(one: bytes) -> Sort:
    found = read_properties(one[7 : 7 + int.from_bytes(one[3:7], "big")])
    return Sort(found.get(DELIVERY_MODE) == b"\x02", found.get(PRIORITY, b"\x00")[0])


@given(st.builds(Random, st.integers(0, 2**32)))
def test_any_run_is_cut_where_the_properties_change(random: Random) -> None:
    """A persistent message that is taken for a transient one is lost."""
    contents = [any_content(random)] * random.randint(1, 3) + [any_content(random) for _ in range(random.randint(0, 5))]
    found = stretches(MessageRun.of(ROUTE, contents))
    assert [each.sort for each in found for _ in range(each.count)] == [slow_sort(one) for one in contents]
    assert all(before.sort != after.sort for before, after in pairwise(found))
    assert [each.start for each in found] == [sum(each.count for each in found[:at]) for at in range(len(found))]
    uniform = MessageRun(3, ROUTE, contents[0] * 3, len(contents[0]))
    assert stretches(uniform) == [Stretch(0, 3, slow_sort(contents[0]))]


def test_octets_without_a_header_are_a_plain_message() -> None:
    """Tools that make runs of their own need no header."""
    assert sort_of(b"\x02\x00", 0) == Sort(False, 0)
