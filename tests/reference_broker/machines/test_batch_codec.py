"""A batch of commands and its octets."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker import message_run
from reference_broker.machines.batch import BATCH_VERSION, DamagedBatchError, decode_batch, encode_batch
from reference_broker.machines.commands import (
    Cancel,
    ChannelDown,
    Checkout,
    Command,
    DeadLetterSettled,
    Discard,
    Enqueue,
    Get,
    GetCheckedOut,
    Label,
    NodeDown,
    NodeUp,
    Purge,
    Return,
    Settle,
    Tick,
    UpdateConfig,
)
from reference_broker.machines.config import DamagedConfigError, DeadLetterStrategy, FifoConfig, KeyedConfig, Overflow
from reference_broker.message_run import MessageRun
from reference_broker.types import TTL_MS_MAX, ChannelId, ConsumerId, NodeId

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
CHANNELS = st.builds(ChannelId, U16.map(NodeId), U32, U32, U16)
TAGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
CONSUMERS = st.builds(ConsumerId, CHANNELS, TAGS)
RANGES = st.lists(st.tuples(U64, U64), max_size=5).map(tuple)
RAGGED = st.builds(MessageRun.of, st.binary(max_size=80), st.lists(st.binary(max_size=20), min_size=1, max_size=5))
UNIFORM = st.builds(
    lambda route, count, stride: MessageRun(count, route, bytes(range(stride)) * count, stride),
    st.binary(max_size=80),
    st.integers(1, 20),
    st.integers(1, 40),
)
NUMBERS = st.integers(-1, 2**63 - 1)
CONFIGS = st.builds(
    FifoConfig,
    name=TAGS,
    delivery_limit=NUMBERS,
    max_length=NUMBERS,
    max_length_bytes=NUMBERS,
    overflow=st.sampled_from(Overflow),
    message_ttl_ms=NUMBERS,
    expires_ms=NUMBERS,
    single_active=st.booleans(),
    dead_letter=st.none() | st.sampled_from(DeadLetterStrategy),
    keyed=st.none() | st.builds(KeyedConfig, retry_delay_ms=st.integers(0, TTL_MS_MAX), reserve_ms=NUMBERS),
)
LABELS = st.builds(Label, st.none() | st.binary(max_size=255), st.integers(0, TTL_MS_MAX), st.integers(-1, TTL_MS_MAX))


@st.composite
def keyed_enqueues(draw: st.DrawFn) -> Enqueue:
    """Labels for all messages of the run."""
    run, labels = draw(RAGGED | UNIFORM), list[tuple[int, Label]]()
    while (left := run.count - sum(count for count, _ in labels)) > 0:
        labels.append((draw(st.integers(1, left)), draw(LABELS)))
    return Enqueue(draw(CHANNELS), draw(U64), run, draw(st.integers(-1, TTL_MS_MAX)), tuple(labels))


COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Enqueue, CHANNELS, U64, RAGGED | UNIFORM, st.integers(-1, TTL_MS_MAX)),
    keyed_enqueues(),
    st.builds(Get, CONSUMERS, st.booleans(), U64),
    st.builds(UpdateConfig, CONFIGS),
    st.builds(Tick),
    st.builds(DeadLetterSettled, RANGES),
    st.builds(Checkout, CONSUMERS, U32, st.booleans(), st.integers(-(2**31), 2**31 - 1), U64),
    st.builds(Settle, CONSUMERS, RANGES),
    st.builds(Return, CONSUMERS, RANGES),
    st.builds(Discard, CONSUMERS, RANGES),
    st.builds(Cancel, CONSUMERS, U64),
    st.builds(ChannelDown, CHANNELS),
    st.builds(NodeDown, U16.map(NodeId)),
    st.builds(NodeUp, U16.map(NodeId), U32),
    st.builds(Purge, CHANNELS, U64),
)

ALICE = ChannelId(NodeId(2), 7, 300, 1)
RUN = MessageRun(2, b"\x00\x01q", b"aabb", 2)
ONE_OF_EACH: list[Command] = [
    Enqueue(ALICE, 5, RUN),
    Checkout(ConsumerId(ALICE, "c"), 20, True, -1, 9),
    Checkout(ConsumerId(ALICE, "d"), 20, False, 0, 9, exclusive=True),
    Settle(ConsumerId(ALICE, "c"), ((0, 3),)),
    Return(ConsumerId(ALICE, "c"), ((4, 4), (6, 7))),
    Discard(ConsumerId(ALICE, "c"), ((5, 5),)),
    Cancel(ConsumerId(ALICE, "c"), 10),
    ChannelDown(ALICE),
    NodeDown(NodeId(2)),
    NodeUp(NodeId(2), 8),
    Purge(ALICE, 11),
    Enqueue(ALICE, 7, RUN, 60_000),
    Get(ConsumerId(ALICE, "g"), True, 12),
    GetCheckedOut(ConsumerId(ALICE, "c"), 3, 13),
    UpdateConfig(FifoConfig(name="q", max_length=5, overflow=Overflow.REJECT_PUBLISH, single_active=True)),
    Tick(),
    DeadLetterSettled(((1, 4), (6, 6))),
    Enqueue(ALICE, 9, RUN, -1, ((1, Label(b"k", 5, 7)), (1, Label()))),
    UpdateConfig(FifoConfig(name="q", keyed=KeyedConfig(retry_delay_ms=5, reserve_ms=70))),
]


def comparable(command: Command) -> object:
    """Runs hold views and arrays, which do not compare; their octets do."""
    if isinstance(command, Enqueue):
        return (
            Enqueue,
            command.channel,
            command.first_seq,
            command.ttl_ms,
            command.labels,
            b"".join(command.run.buffers()),
        )
    return command


@given(U64, st.lists(COMMANDS, max_size=6))
def test_a_batch_comes_back_as_it_went(time_ms: int, commands: list[Command]) -> None:
    """A command that changes on its way through the log would differ between the leader and everybody else."""
    payload = b"".join(encode_batch(time_ms, commands))
    time_back, decoded = decode_batch(payload)
    assert time_back == time_ms
    assert [comparable(command) for _, command in decoded] == [comparable(command) for command in commands]


@given(st.lists(COMMANDS, max_size=6))
def test_the_offset_of_an_enqueue_is_where_its_run_is(commands: list[Command]) -> None:
    """Deliveries are positions: one octet off, and consumers get garbage."""
    payload = b"".join(encode_batch(0, commands))
    for offset, command in decode_batch(payload)[1]:
        if isinstance(command, Enqueue):
            assert message_run.encoded_size(payload, offset) == len(b"".join(command.run.buffers()))
            run = message_run.decode(payload, offset)
            for position in range(run.count):
                assert run.content(position) == command.run.content(position)
        else:
            assert offset == 0


def test_the_contents_of_a_run_are_not_copied() -> None:
    """One copy per message and hop is the budget; a second one here would be paid on every message."""
    run = MessageRun(1000, b"\x00\x01q", bytes(1_024_000), 1024)
    buffers = encode_batch(0, [Enqueue(ALICE, 1, run)])
    assert any(buffer is run.data for buffer in buffers)
    payload = b"".join(buffers)
    [(_, command)] = decode_batch(payload)[1]
    assert isinstance(command, Enqueue)
    assert np.shares_memory(np.frombuffer(command.run.data, np.uint8), np.frombuffer(payload, np.uint8))


def test_any_prefix_and_any_addition_is_refused() -> None:
    """A short entry must never pass for a smaller batch: its last commands would be lost on this member only."""
    payload = b"".join(encode_batch(1, ONE_OF_EACH))
    for end in range(len(payload)):
        with pytest.raises(DamagedBatchError):
            decode_batch(payload[:end])
    with pytest.raises(DamagedBatchError, match="end at octet"):
        decode_batch(payload + b"\x00")


@pytest.mark.parametrize("seed", range(5))
def test_damaged_octets_raise_only_the_typed_error(seed: int) -> None:
    """Whatever a drive or a peer hands over, the answer is one error with an offset, not a traceback from inside."""
    random = Random(seed)
    payload = b"".join(encode_batch(1, ONE_OF_EACH))
    for _ in range(1000):
        damaged = bytearray(payload)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            _, commands = decode_batch(bytes(damaged))
        except DamagedBatchError:
            continue
        assert all(isinstance(command, Command) for _, command in commands)


@pytest.mark.parametrize(
    ("octet", "value", "said"),
    [(0, BATCH_VERSION + 1, "version"), (13, 0, "command at octet 13"), (13, 99, "command at octet 13")],
)
def test_an_unknown_version_or_command_is_named(octet: int, value: int, said: str) -> None:
    """Somebody who runs an old broker on a new log must learn so from the message."""
    payload = bytearray(b"".join(encode_batch(1, ONE_OF_EACH)))
    payload[octet] = value
    with pytest.raises(DamagedBatchError, match=said):
        decode_batch(bytes(payload))


def test_a_tag_that_is_not_utf8_survives() -> None:
    """Clients may send any octets as a consumer tag; that must not stop a queue."""
    consumer = ConsumerId(ALICE, b"\xff\xfe".decode("utf-8", "surrogateescape"))
    [(_, command)] = decode_batch(b"".join(encode_batch(0, [Cancel(consumer, 1)])))[1]
    assert command == Cancel(consumer, 1)


def test_the_example_in_the_documentation() -> None:
    """Who writes a tool after docs/internals/commands.md must be able to trust its example."""
    page = (Path(__file__).parents[3] / "docs" / "internals" / "commands.md").read_text()
    example = page.split("## An example")[1].split("```")[1]
    octets = bytes.fromhex("".join(re.split(" {3,}", line.strip())[0] for line in example.splitlines()))
    settle = Settle(ConsumerId(ALICE, "c"), ((0, 3),))
    assert octets == b"".join(encode_batch(1, [Enqueue(ALICE, 5, RUN), settle]))


def test_the_octets_of_each_command() -> None:
    """They are in logs on disks: a change needs a new version, not a surprise."""
    channel = "0002 00000007 0000012c 0001"
    consumer = channel + "01 63"
    expected = bytes.fromhex(
        "03 0000000000000001 00000013"
        f"01 {channel} 0000000000000005  01 00000002 00000002 0003 00000004"
        f" {20 * '00'} 000171 61616262"
        f"02 {consumer} 00000014 01 ffffffff 0000000000000009"
        f"02 {channel} 01 64 00000014 02 00000000 0000000000000009"
        f"03 {consumer} 00000001 0000000000000000 0000000000000003"
        f"04 {consumer} 00000002 0000000000000004 0000000000000004 0000000000000006 0000000000000007"
        f"05 {consumer} 00000001 0000000000000005 0000000000000005"
        f"06 {consumer} 000000000000000a"
        f"07 {channel}"
        "08 0002"
        "09 0002 00000008"
        f"0a {channel} 000000000000000b"
        f"0b {channel} 0000000000000007 000000000000ea60  01 00000002 00000002 0003 00000004"
        f" {20 * '00'} 000171 61616262"
        f"0c {channel} 01 67 01 000000000000000c"
        f"11 {consumer} 0000000000000003 000000000000000d"
        "0d 0000002e ffffffffffffffff 0000000000000005 ffffffffffffffff ffffffffffffffff ffffffffffffffff"
        "   02 01 00 0001 71"
        "0e"
        "0f 00000002 0000000000000001 0000000000000004 0000000000000006 0000000000000006"
        f"10 {channel} 0000000000000009 ffffffffffffffff 00000002"
        "   00000001 0000000000000005 0000000000000007 01 0001 6b"
        "   00000001 0000000000000000 ffffffffffffffff 00 0000"
        f"   01 00000002 00000002 0003 00000004 {20 * '00'} 000171 61616262"
        f"0d 0000003e {5 * 'ffffffffffffffff'} 01 00 00 0001 71 0000000000000005 0000000000000046"
    )
    assert b"".join(encode_batch(1, ONE_OF_EACH)) == expected


def test_labels_of_other_messages_than_those_of_the_run_are_damage() -> None:
    """A message with the label of its neighbour would be worked on beside the others of its key."""
    for labels in (((1, Label()),), ((2, Label()), (1, Label(b"k")))):
        with pytest.raises(DamagedBatchError, match="labels of"):
            decode_batch(b"".join(encode_batch(1, [Enqueue(ALICE, 9, RUN, -1, labels)])))


def test_damaged_settings_are_named() -> None:
    """A policy that cannot be read must not become another one."""
    octets = FifoConfig(name="q").encode()
    for end in range(len(octets)):
        with pytest.raises(DamagedConfigError):
            FifoConfig.decode(octets[:end])
    with pytest.raises(DamagedConfigError):
        FifoConfig.decode(octets + b"\x00")
    with pytest.raises(DamagedConfigError, match="make no sense"):
        FifoConfig.decode(b"\x80" + octets[1:])
    keyed = FifoConfig(name="q", keyed=KeyedConfig()).encode()
    for end in range(len(octets) + 1, len(keyed)):
        with pytest.raises(DamagedConfigError):
            FifoConfig.decode(keyed[:end])
    with pytest.raises(DamagedConfigError, match="a retry after -1 ms"):
        FifoConfig.decode(octets + b"\xff" * 16)
