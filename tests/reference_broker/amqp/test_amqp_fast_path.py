"""The fast paths against a slow reader: the same messages, settlements and numbers, however the octets are cut."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from reference_broker.amqp.events import Event, Publish, Settled
from reference_broker.amqp.fastpath import RUN_MESSAGES_MAX, RUN_OCTETS_MAX
from tests.reference_broker.amqp.testing import ScriptedClient, content, method, publish

Properties = commands.Basic.Properties
CONSUMERS = ("a", "b")
DELIVERED = 120  # messages that each channel holds unacknowledged before the stream begins

PROPERTIES: list[Properties] = [
    Properties(),
    Properties(delivery_mode=2),
    Properties(
        content_type="text/plain",
        headers={"x": 1, "nested": {"list": [1, "two", None]}},
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=datetime(2024, 1, 1, tzinfo=UTC),
        message_type="t",
        user_id="guest",
        app_id="a",
    ),
    Properties(delivery_mode=2, expiration="60000"),
    Properties(delivery_mode=2, expiration="5"),
    Properties(delivery_mode=2, expiration="5184000000"),
]

Fact = tuple[object, ...]


class Stream:
    """Octets of a client, and what they mean, written down message by message as they are made."""

    def __init__(self, confirming: bool) -> None:
        self.octets: list[bytes] = []
        self.facts: list[Fact] = []
        self.confirming = confirming
        self.seq = {1: 1, 2: 1}
        # Deliveries go to consumers a and b in turns of seven: tag to consumer and message id.
        turns = list(itertools.islice(itertools.cycle("a" * 7 + "b" * 7), DELIVERED))
        self.unacked = {
            channel: {tag + 1: (name, turns[:tag].count(name)) for tag, name in enumerate(turns)} for channel in (1, 2)
        }

    def publish(self, channel: int, key: str, payload: bytes, properties: Properties, step: int) -> None:
        self.octets.append(publish(channel, key, payload, properties, step))
        seq = self.seq[channel] if self.confirming else 0
        self.seq[channel] += 1
        stored = content(channel, payload, properties, step)
        self.facts.append(("publish", channel, key, seq, stored, int(properties.expiration or -1)))

    def settle(self, channel: int, nth: int, what: str, multiple: bool) -> None:
        unacked = self.unacked[channel]
        if not unacked:
            return
        tag = sorted(unacked)[nth % len(unacked)]
        requeue = what == "return"
        if what == "settle":
            self.octets.append(method(channel, commands.Basic.Ack(tag, multiple)))
        elif multiple or nth % 2:
            self.octets.append(method(channel, commands.Basic.Nack(tag, multiple, requeue)))
        else:
            self.octets.append(method(channel, commands.Basic.Reject(tag, requeue)))
        for each in [known for known in sorted(unacked) if known == tag or (multiple and known < tag)]:
            self.facts.append((what, channel, *unacked.pop(each)))

    def other(self, channel: int) -> None:
        self.octets.append(b"\x08\x00\x00\x00\x00\x00\x00\xce" + method(channel, commands.Basic.Qos(0, 7, False)))


PUBLISH = st.tuples(
    st.just("publish"),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(["q", "other"]),
    st.sampled_from([0, 1, 40, 40, 300]),
    st.integers(0, len(PROPERTIES) - 1),
    st.sampled_from([0, 0, 0, 17]),
    st.sampled_from([1, 1, 2, 3, 20, 40]),
)
SETTLE = st.tuples(
    st.just("settle"),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 200),
    st.sampled_from(["settle", "settle", "return", "discard"]),
    st.booleans(),
    st.sampled_from([1, 1, 5, 30]),
)
OTHER = st.tuples(st.just("other"), st.sampled_from([1, 2]))
STEPS = st.lists(st.one_of(PUBLISH, SETTLE, OTHER), max_size=12)


def build(steps: list[tuple[object, ...]], confirming: bool) -> Stream:
    stream = Stream(confirming)
    for step in steps:
        match step:
            case ("publish", int(channel), str(key), int(size), int(kind), int(cut), int(times)):
                for number in range(times):
                    payload = bytes([number % 251]) * size
                    stream.publish(channel, key, payload, PROPERTIES[kind], cut)
            case ("settle", int(channel), int(nth), str(what), bool(multiple), int(times)):
                for _ in range(1 if multiple else times):
                    stream.settle(channel, nth, what, multiple)
            case ("other", int(channel)):
                stream.other(channel)
    return stream


def facts(events: list[Event]) -> list[Fact]:
    """Events message by message, as the stream wrote its own."""
    found: list[Fact] = []
    for event in events:
        if isinstance(event, Publish):
            assert event.exchange == ""
            assert event.run.route == b"\x00" + bytes([len(event.routing_key)]) + event.routing_key.encode()
            seqs = itertools.count(event.first_seq) if event.first_seq else itertools.repeat(0)
            for position, seq in zip(range(event.run.count), seqs, strict=False):
                found.append(
                    ("publish", event.channel, event.routing_key, seq, event.run.content(position), event.ttl_ms)
                )
        else:
            assert isinstance(event, Settled)
            assert list(event.ranges) == sorted(event.ranges)
            for first, last in event.ranges:
                found += [
                    (event.outcome.value, event.channel, event.consumer_tag, each) for each in range(first, last + 1)
                ]
    return found


def in_groups(found: list[Fact]) -> list[list[Fact]]:
    """Neighbouring settlements of one kind on one channel commute: their order depends on where reads end."""
    groups = itertools.groupby(found, key=lambda fact: fact[:2])
    return [list(group) if kind[0] == "publish" else sorted(group, key=str) for kind, group in groups]


def prepared(confirming: bool) -> ScriptedClient:
    client = ScriptedClient()
    client.open(channels=2)
    (event,) = client.raw(publish(1, "q", b"x") * DELIVERED)
    assert isinstance(event, Publish)
    for channel in (1, 2):
        if confirming:
            client.send(channel, commands.Confirm.Select())
        for tag in CONSUMERS:
            client.consume(channel, tag)
        given_out = {"a": 0, "b": 0}
        for at in range(0, DELIVERED, 7):
            tag = CONSUMERS[at // 7 % 2]
            count = min(7, DELIVERED - at)
            assert client.server.deliver(channel, tag, given_out[tag], [(event.run, at, count, 1)], 0)
            given_out[tag] += count
    client.output()
    client.events.clear()
    return client


def cuts(size: int, seed: int) -> Iterator[int]:
    """Sizes of reads: sometimes a few octets, sometimes many."""
    chance = random.Random(seed)
    while size > 0:
        cut = min(size, chance.choice([1, 2, 3, 7, 8, 20, 60, 500, 5000]))
        yield cut
        size -= cut


@given(STEPS, st.booleans(), st.integers(0, 1000))
def test_events_are_what_was_sent_however_it_was_cut(
    steps: list[tuple[object, ...]], confirming: bool, seed: int
) -> None:
    """A message that the fast path cuts one octet short is a message destroyed."""
    stream = build(steps, confirming)
    octets = b"".join(stream.octets)
    whole, cut, single = prepared(confirming), prepared(confirming), prepared(confirming)
    whole.raw(octets)
    at = 0
    for size in cuts(len(octets), seed):
        cut.raw(octets[at : at + size])
        at += size
    for at in range(min(len(octets), 4000)):
        single.raw(octets[at : at + 1])
    single.raw(octets[4000:])
    expected = in_groups(stream.facts)
    assert in_groups(facts(whole.events)) == expected
    assert in_groups(facts(cut.events)) == expected
    assert in_groups(facts(single.events)) == expected
    assert whole.output() == cut.output() == single.output()
    for client in (whole, cut, single):
        assert [client.server.unacked(channel) for channel in (1, 2)] == [len(stream.unacked[n]) for n in (1, 2)]


def calls_during(action: Callable[[], object]) -> int:
    """Python functions entered while ``action`` runs."""
    entered = 0

    def count(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal entered
        entered += what == "call"

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize("what", ["publish", "ack", "deliver"])
def test_no_python_call_per_message(what: str) -> None:
    """The speed of the broker rests on this: work per run, not per message."""
    client = ScriptedClient()
    client.open()
    client.consume()
    (event,) = client.raw(publish(1, "q", b"x" * 100) * 1000)
    assert isinstance(event, Publish)
    tags = itertools.count(1)
    client.server.deliver(1, "c", 0, [(event.run, 0, 1000, 1)], 0)

    def action(count: int) -> Callable[[], object]:
        if what == "publish":
            octets = publish(1, "q", b"x" * 100) * count
            return lambda: client.raw(octets)
        if what == "ack":
            octets = b"".join(method(1, commands.Basic.Ack(next(tags))) for _ in range(count))
            return lambda: client.raw(octets)
        return lambda: client.server.deliver(1, "c", 0, [(event.run, 0, count, 1)], 0)

    calls_during(action(50))
    few, many = calls_during(action(50)), calls_during(action(400))
    assert 0 < many <= few + 3


def test_runs_are_one_event_up_to_their_limits() -> None:
    """Too many events waste the batch; too large a run blocks the log."""
    client = ScriptedClient()
    client.open()
    events = client.raw(publish(1, "q", b"x" * 10) * (RUN_MESSAGES_MAX + 5))
    assert [event.run.count for event in events if isinstance(event, Publish)] == [RUN_MESSAGES_MAX, 5]
    large = publish(1, "q", b"x" * 100_000)
    events = client.raw(large * 25)
    sizes = [len(event.run.data) for event in events if isinstance(event, Publish)]
    assert sum(sizes) == 25 * len(content(1, b"x" * 100_000))
    assert max(sizes) <= RUN_OCTETS_MAX
    assert len(sizes) == 3


def test_equal_contents_make_a_uniform_run_and_others_a_ragged_one() -> None:
    """Uniform runs are what everything behind is quick with; a ragged one taken for uniform would be garbage."""
    client = ScriptedClient()
    client.open()
    same = publish(1, "q", b"x" * 64, PROPERTIES[1])
    (uniform,) = client.raw(same * 3)
    (ragged,) = client.raw(same + publish(1, "q", b"x" * 65, PROPERTIES[1]) + same)
    (properties,) = client.raw(same + publish(1, "q", b"x" * 64, PROPERTIES[2]))
    (empty,) = client.raw(publish(1, "q", b""))
    (split,) = client.raw(publish(1, "q", b"x" * 64, step=32) * 2)
    strides = [event.run.stride for event in (uniform, ragged, properties, empty, split) if isinstance(event, Publish)]
    assert strides == [len(content(1, b"x" * 64, PROPERTIES[1])), 0, 0, 0, 0]


@pytest.mark.parametrize("broken", ["header", "body"])
@pytest.mark.parametrize("varied", [False, True], ids=["uniform", "varied"])
@pytest.mark.parametrize(("good", "after"), [(0, 0), (1, 0), (3, 2), (30, 20)])
def test_a_frame_without_its_end_is_found_in_the_middle_of_a_run(
    broken: str, varied: bool, good: int, after: int
) -> None:
    """A lost octet shifts all that follows: nothing behind it may pass for a message."""
    client = ScriptedClient()
    client.open()
    parts = [
        publish(1, "q", b"x" * 50, Properties(message_id=str(each) if varied else "m"))
        for each in range(good + after + 1)
    ]
    client.raw(publish(1, "q", b"x" * 50, Properties(message_id="m" if not varied else "first")))
    client.events.clear()
    bad = bytearray(parts[good])
    bad[-1 if broken == "body" else -59] = 0xCD
    client.raw(b"".join([*parts[:good], bytes(bad), *parts[good + 1 :]]))
    assert sum(event.run.count for event in client.events if isinstance(event, Publish)) == good
    assert [each.reply_code for _, each in client.heard() if isinstance(each, commands.Connection.Close)] == [501]


def test_outcomes_in_one_run_are_told_apart() -> None:
    """A nack that returns and one that discards differ in one bit of their 21 octets."""
    client = prepared(False)
    octets = [method(1, commands.Basic.Nack(tag, False, tag > 20)) for tag in range(1, 41)]
    found = facts(client.raw(b"".join(octets)))
    assert [what for what, *_ in found].count("discard") == 20
    assert [what for what, *_ in found].count("return") == 20


def test_an_unfinished_frame_is_joined_once() -> None:
    """Joining on every read would copy a frame of 128 KiB that trickles in thousands of times."""
    client = ScriptedClient()
    client.open()
    octets = publish(1, "q", b"x" * 100_000)
    reads = [octets[at : at + 100] for at in range(0, len(octets), 100)]
    for read in reads[:-1]:
        assert client.raw(read) == []
    assert len(client.server._inbox.chunks) >= len(reads) - 5
    assert [type(event) for event in client.raw(reads[-1])] == [Publish]
    assert client.server._inbox.chunks == []


def test_confirm_select_counts_from_the_next_publish() -> None:
    """Publishes before confirm.select have no number, in whatever read they came."""
    client = ScriptedClient()
    client.open()
    one = publish(1, "q", b"x")
    client.raw(one * 3 + method(1, commands.Confirm.Select()) + one * 2 + publish(1, "other", b"x"))
    found = [(event.run.count, event.first_seq) for event in client.events if isinstance(event, Publish)]
    assert found == [(3, 0), (2, 1), (1, 3)]


def test_route_of_a_reopened_channel_is_learned_anew() -> None:
    """A route kept from a closed channel would publish into a channel that does not exist any more."""
    client = ScriptedClient()
    client.open()
    client.send(1, commands.Confirm.Select())
    one = publish(1, "q", b"x")
    client.raw(one * 2)
    client.send(1, commands.Channel.Close(200, "", 0, 0))
    client.send(1, commands.Channel.Open())
    client.events.clear()
    client.raw(one)
    (event,) = client.events
    assert isinstance(event, Publish)
    assert event.first_seq == 0


def test_more_routes_than_are_kept() -> None:
    """A publisher with a key per message must neither fill the memory nor lose a message."""
    client = ScriptedClient()
    client.open()
    client.raw(b"".join(publish(1, f"key-{number}", b"x") for number in range(3000)))
    keys = [event.routing_key for event in client.events if isinstance(event, Publish)]
    assert keys == [f"key-{number}" for number in range(3000)]
    assert len(client.server._publishes._routes) <= 1024


@given(
    STEPS,
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.lists(st.integers(0, 10**6), max_size=2),
)
def test_no_octets_make_it_raise_or_fall_silent(
    steps: list[tuple[object, ...]], changes: list[tuple[int, int]], deletions: list[int]
) -> None:
    """One client with a broken library, or a malicious one, must not take the node down."""
    octets = bytearray(b"".join(build(steps, False).octets))
    for at, value in changes:
        if octets:
            octets[at % len(octets)] = value
    for at in deletions:
        if octets:
            del octets[at % len(octets)]
    whole, single = prepared(False), prepared(False)
    whole.raw(bytes(octets))
    for at in range(min(len(octets), 3000)):
        single.raw(bytes(octets[at : at + 1]))
    single.raw(bytes(octets[3000:]))
    said, said_single = whole.heard(), single.heard()
    assert sum(isinstance(each, commands.Connection.Close) for _, each in said) == (not whole.server.is_open)
    assert [frame.marshal(each, number) for number, each in said] == [  # type: ignore[arg-type]
        frame.marshal(each, number)
        for number, each in said_single  # type: ignore[arg-type]
    ]
    assert whole.server.phase is single.server.phase
