"""What consumers get is what publishers sent: read back with pamqp, for every shape of run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, header

from reference_broker.amqp.events import Publish, Settled
from reference_broker.message_run import MessageRun, decode
from reference_broker.types import Outcome
from tests.reference_broker.amqp.testing import Heard, ScriptedClient, publish

Basic = commands.Basic
Properties = Basic.Properties
Message = tuple[str, bytes, dict[str, object]]


def run_of(payloads: list[bytes], ids: list[str], step: int = 0, channel: int = 1) -> MessageRun:
    """A run as the publisher's connection makes it, then stored and read back as the log does it."""
    client = ScriptedClient()
    client.open(channels=channel)
    octets = [
        publish(channel, "q", payload, Properties(delivery_mode=2, message_id=each or None), step)
        for payload, each in zip(payloads, ids, strict=True)
    ]
    (event,) = client.raw(b"".join(octets))
    assert isinstance(event, Publish)
    return decode(b"log" + b"".join(event.run.buffers()), 3)


def messages(heard: list[tuple[int, Heard]], channel: int, largest: int) -> list[tuple[Basic.Deliver, str, bytes]]:
    """Method, message id and body of each delivery; every frame must be on ``channel`` and within ``largest``."""
    found: list[tuple[Basic.Deliver, str, bytes]] = []
    frames = iter(heard)
    for number, method in frames:
        assert isinstance(method, Basic.Deliver)
        assert number == channel
        number, head = next(frames)
        assert isinstance(head, header.ContentHeader)
        assert number == channel
        assert head.properties.delivery_mode == 2
        payload = b""
        while len(payload) < head.body_size:
            number, part = next(frames)
            assert isinstance(part, body.ContentBody)
            assert number == channel
            assert 0 < len(part.value or b"") <= largest - 8
            payload += part.value or b""
        assert len(payload) == head.body_size
        found.append((method, head.properties.message_id or "", payload))
    return found


@given(
    data=st.data(),
    sizes=st.one_of(
        st.tuples(st.sampled_from([0, 1, 100, 5000]), st.integers(1, 40)).map(lambda pair: [pair[0]] * pair[1]),
        st.lists(st.sampled_from([0, 1, 2, 100, 4080, 4088, 4089, 9000]), min_size=1, max_size=20),
    ),
    same_properties=st.booleans(),
    step=st.sampled_from([0, 0, 4088, 50]),
    channel=st.integers(1, 3),
    frame_max=st.sampled_from([131_072, 4096]),
    delivery_count=st.sampled_from([0, 0, 1, 3]),
)
def test_deliveries_read_back_as_published(
    data: st.DataObject,
    sizes: list[int],
    same_properties: bool,
    step: int,
    channel: int,
    frame_max: int,
    delivery_count: int,
) -> None:
    """Whatever the layout of the run, the consumer's channel and its frame size: the same bodies and properties."""
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    ids = ["" if same_properties else str(number) for number in range(len(sizes))]
    run = run_of(payloads, ids, step, channel=2)
    start = data.draw(st.integers(0, len(sizes) - 1))
    stride = data.draw(st.integers(1, 3))
    count = data.draw(st.integers(1, (len(sizes) - 1 - start) // stride + 1))
    client = ScriptedClient()
    client.open(channels=3, frame_max=frame_max)
    client.consume(channel, "tag-ß")
    for round_number in range(2):
        assert client.server.deliver(channel, "tag-ß", 0, [(run, start, count, stride)], delivery_count)
        found = messages(client.heard(), channel, frame_max)
        positions = range(start, start + count * stride, stride)
        assert [(each, payload) for _, each, payload in found] == [(ids[at], payloads[at]) for at in positions]
        tags = range(1 + round_number * count, 1 + (round_number + 1) * count)
        assert [method.delivery_tag for method, _, _ in found] == list(tags)
        for method, _, _ in found:
            assert (method.consumer_tag, method.exchange, method.routing_key) == ("tag-ß", "", "q")
            assert method.redelivered is (delivery_count > 0)
    assert client.server.unacked(channel) == 2 * count


def test_a_template_is_not_used_for_another_route_or_flag() -> None:
    """Consumers of one queue get messages of many routes in turn, some of them redelivered."""
    publisher = ScriptedClient()
    publisher.open()
    first, second = publisher.raw(
        publish(1, "q", b"x", Properties(delivery_mode=2)) + publish(1, "longer-key", b"x", Properties(delivery_mode=2))
    )
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    client = ScriptedClient()
    client.open()
    client.consume()
    for event, delivery_count in [(first, 0), (first, 1), (second, 1), (first, 0)]:
        client.server.deliver(1, "c", 0, [(event.run, 0, 1, 1)], delivery_count)
    found = [(method.routing_key, method.redelivered) for method, _, _ in messages(client.heard(), 1, 131_072)]
    assert found == [("q", False), ("q", True), ("longer-key", True), ("q", False)]


def test_a_template_is_not_used_for_another_size_or_property() -> None:
    """Consecutive runs of one route may differ in anything but the route."""
    client = ScriptedClient()
    client.open()
    client.consume()
    sent = [(b"x" * 10, "a"), (b"y" * 11, "a"), (b"z" * 11, "b"), (b"x" * 10, "a")]
    for payload, each in sent:
        client.server.deliver(1, "c", 0, [(run_of([payload] * 10, [each] * 10), 0, 10, 1)], 0)
    found = [(payload, each) for _, each, payload in messages(client.heard(), 1, 131_072)]
    assert found == [message for message in sent for _ in range(10)]


@pytest.mark.parametrize(("size", "frames"), [(4088, 1), (4089, 2), (8176, 2), (8177, 3)])
@pytest.mark.parametrize("count", [1, 20])
def test_body_frames_fit_exactly(size: int, frames: int, count: int) -> None:
    """One octet beyond frame_max and the client closes the connection; one frame too many is a waste."""
    client = ScriptedClient()
    client.open(frame_max=4096)
    client.consume()
    client.server.deliver(1, "c", 0, [(run_of([b"x" * size] * count, [""] * count), 0, count, 1)], 0)
    heard = client.heard()
    assert len(messages(heard, 1, 4096)) == count
    assert len([each for _, each in heard if isinstance(each, body.ContentBody)]) == count * frames


def test_several_pieces_number_on() -> None:
    """One delivery effect may draw on many log entries."""
    client = ScriptedClient()
    client.open()
    client.consume()
    run = run_of([b"abc"] * 30, [""] * 30)
    client.server.deliver(1, "c", 5, [(run, 0, 10, 3), (run, 1, 2, 1), (run, 29, 1, 1)], 0)
    assert [method.delivery_tag for method, _, _ in messages(client.heard(), 1, 131_072)] == list(range(1, 14))
    (event,) = client.send(1, Basic.Ack(0, True))
    assert event == Settled(1, "c", Outcome.SETTLE, ((5, 17),))


def test_consumers_without_acknowledgements_leave_nothing_behind() -> None:
    """no-ack deliveries take delivery tags but cannot be acknowledged."""
    client = ScriptedClient()
    client.open()
    client.consume(tag="n", no_ack=True)
    client.consume(tag="c")
    run = run_of([b"abc"] * 3, [""] * 3)
    client.server.deliver(1, "n", 0, [(run, 0, 3, 1)], 0)
    client.server.deliver(1, "c", 0, [(run, 0, 3, 1)], 0)
    assert client.server.unacked(1) == 3
    assert client.send(1, Basic.Ack(5, True)) == [Settled(1, "c", Outcome.SETTLE, ((0, 1),))]
    client.send(1, Basic.Ack(2, False))
    assert isinstance(client.heard()[-1][1], commands.Channel.Close)


def test_nothing_is_delivered_to_a_consumer_that_is_gone() -> None:
    """The broker must learn that these messages belong back in their queue."""
    client = ScriptedClient()
    client.open()
    client.consume()
    run = run_of([b"abc"], [""])
    client.send(1, Basic.Cancel("c"))
    assert client.server.deliver(1, "c", 0, [(run, 0, 1, 1)], 0), "until the cancellation is answered it is there"
    client.server.cancel_ok(1, "c")
    client.output()
    assert not client.server.deliver(1, "c", 1, [(run, 0, 1, 1)], 0)
    assert not client.server.deliver(9, "c", 1, [(run, 0, 1, 1)], 0)
    assert client.output() == b""
    assert client.send(1, Basic.Ack(1)) == [Settled(1, "c", Outcome.SETTLE, ((0, 0),))], "what it holds stays its own"


@pytest.mark.parametrize(
    ("method", "outcome", "ranges"),
    [
        (Basic.Ack(3, False), Outcome.SETTLE, ((2, 2),)),
        (Basic.Ack(3, True), Outcome.SETTLE, ((0, 2),)),
        (Basic.Ack(0, True), Outcome.SETTLE, ((0, 9),)),
        (Basic.Nack(3, False, True), Outcome.RETURN, ((2, 2),)),
        (Basic.Nack(3, True, False), Outcome.DISCARD, ((0, 2),)),
        (Basic.Nack(0, True, True), Outcome.RETURN, ((0, 9),)),
        (Basic.Reject(3, True), Outcome.RETURN, ((2, 2),)),
        (Basic.Reject(3, False), Outcome.DISCARD, ((2, 2),)),
    ],
)
def test_ways_to_settle(method: commands.base.Frame, outcome: Outcome, ranges: tuple[tuple[int, int], ...]) -> None:
    """Each bit of the three methods means what the specification says."""
    client = ScriptedClient()
    client.open()
    client.consume()
    client.server.deliver(1, "c", 0, [(run_of([b"abc"] * 10, [""] * 10), 0, 10, 1)], 0)
    assert client.send(1, method) == [Settled(1, "c", outcome, ranges)]


def test_settlements_of_one_read_are_one_event_a_consumer() -> None:
    """Each event becomes a command in the log: a hundred single acks must be one."""
    client = ScriptedClient()
    client.open()
    for tag in "ab":
        client.consume(tag=tag)
    run = run_of([b"abc"] * 40, [""] * 40)
    for at in range(0, 40, 2):
        client.server.deliver(1, "a", at, [(run, at, 2, 1)], 0)
        client.server.deliver(1, "b", at, [(run, at, 2, 1)], 0)
    order = [*range(80, 40, -1), *range(1, 41)]
    events = client.send(1, *[Basic.Ack(tag) for tag in order])
    assert events == [Settled(1, "b", Outcome.SETTLE, ((0, 39),)), Settled(1, "a", Outcome.SETTLE, ((0, 39),))]


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_returned_messages_come_back_whole_and_before_their_confirm(frame_max: int) -> None:
    """A publisher that hears the confirm first takes an unroutable message for delivered."""
    client = ScriptedClient()
    client.open(frame_max=frame_max)
    client.send(1, commands.Confirm.Select())
    client.output()
    payload = b"x" * 6000
    (event,) = client.raw(publish(1, "nowhere", payload, step=frame_max - 8, mandatory=True) * 2)
    assert isinstance(event, Publish)
    assert (event.mandatory, event.first_seq) == (True, 1)
    client.server.confirm(1, 1, 2)
    client.server.returned(1, 312, "NO_ROUTE", "", "nowhere", event.run)
    client.server.flush_confirms()
    heard = [each for _, each in client.heard()]
    returns = [each for each in heard if isinstance(each, Basic.Return)]
    assert [(each.reply_code, each.reply_text, each.exchange, each.routing_key) for each in returns] == [
        (312, "NO_ROUTE", "", "nowhere")
    ] * 2
    assert b"".join(each.value or b"" for each in heard if isinstance(each, body.ContentBody)) == payload * 2
    assert isinstance(heard[-1], Basic.Ack)
    assert (heard[-1].delivery_tag, heard[-1].multiple) == (2, True)


@pytest.mark.parametrize("count", [1, 20])
def test_what_waits_to_be_written_can_be_marked_redelivered(count: int) -> None:
    """Everything else stays to the octet, frames of other kinds between deliveries included."""
    said: list[list[tuple[int, Heard]]] = []
    for mark in (False, True):
        client = ScriptedClient()
        client.open()
        client.consume(tag="a")
        client.consume(tag="another")
        piece = (run_of([b"x" * 30] * count, [""] * count), 0, count, 1)
        client.server.deliver(1, "a", 0, [piece], 0)
        client.send(1, Basic.Qos(0, 10, False))
        client.server.deliver(1, "another", 0, [piece], 3)
        client.server.get_ok(1, "", 99, piece, 0, 5, True)
        if mark:
            client.server.mark_redelivered()
        said.append(client.heard())
    plain, marked = said
    deliveries = [each for _, each in marked if isinstance(each, Basic.Deliver | Basic.GetOk)]
    assert [each.redelivered for each in deliveries] == [True] * (2 * count + 1)
    for (_, before), (_, after) in zip(plain, marked, strict=True):
        if isinstance(before, Basic.Deliver | Basic.GetOk):
            before.redelivered = True
        assert before.marshal() == after.marshal()
    client.server.mark_redelivered()
    assert client.output() == b""
