"""The octets of Raft messages: everything comes back, and nothing damaged gets through."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.raft.configuration import Configuration, noop_payload
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.ready import SendEntries
from reference_broker.raft.wire import EntryDamagedError, WireError, decode, encode, encode_append
from reference_broker.types import Entry, EntryKind, GroupId, LogIndex, NodeId, Term

U64 = st.integers(0, 2**62)
NODE = st.integers(1, 2**31)


@st.composite
def configurations(draw: Any) -> Configuration:
    nodes = draw(st.lists(NODE, max_size=9, unique=True))
    voters = draw(st.integers(0, len(nodes)))
    replica_ids = tuple((NodeId(node), draw(U64)) for node in nodes[::2])
    return Configuration(tuple(nodes[:voters]), tuple(nodes[voters:]), replica_ids)


@st.composite
def appends(draw: Any) -> AppendEntries:
    prev = draw(U64)
    entries = []
    payloads = {
        EntryKind.COMMAND: st.binary(max_size=40),
        EntryKind.NOOP: st.builds(noop_payload, st.integers(0, 2**32 - 1)),
        EntryKind.CONFIG: configurations().map(Configuration.encode),
    }
    for index, kind in enumerate(draw(st.lists(st.sampled_from(EntryKind), max_size=5)), prev + 1):
        payload = draw(payloads[kind])
        entries.append(Entry(LogIndex(index), draw(U64), kind, crc32(payload), payload))
    return AppendEntries(
        term=draw(U64),
        leader=draw(NODE),
        prev_index=prev,
        prev_term=draw(U64),
        commit=draw(U64),
        entries=tuple(entries),
    )


MESSAGES = st.one_of(
    appends(),
    st.builds(
        PreVoteRequest,
        term=U64,
        token=U64,
        candidate=NODE,
        last_index=U64,
        last_term=U64,
        machine_version=st.integers(0, 2**31),
    ),
    st.builds(PreVoteReply, term=U64, token=U64, granted=st.booleans()),
    st.builds(VoteRequest, term=U64, candidate=NODE, last_index=U64, last_term=U64, transfer=st.booleans()),
    st.builds(VoteReply, term=U64, granted=st.booleans()),
    st.builds(AppendReply, term=U64, success=st.booleans(), next_index=U64, synced_index=U64, synced_term=U64),
    st.builds(
        InstallSnapshot,
        term=U64,
        leader=NODE,
        index=U64,
        index_term=U64,
        number=st.integers(1, 2**31),
        last=st.booleans(),
        data=st.binary(max_size=60),
    ),
    st.builds(Heartbeat, term=U64, leader=NODE, round=U64),
    st.builds(HeartbeatReply, term=U64, round=U64),
    st.builds(TimeoutNow, term=U64, leader=NODE),
    st.builds(InstallReply, term=U64, index=U64, number=st.integers(0, 2**31), done=st.booleans()),
)


@given(st.integers(0, 2**64 - 1), MESSAGES)
def test_every_message_comes_back(group: int, message: Message) -> None:
    """A field lost on the wire is a vote counted twice or an entry at the wrong index."""
    body = b"".join(encode(GroupId(group), message))
    assert decode(body) == (group, message)
    assert decode(memoryview(body)) == (group, message)


@given(MESSAGES, st.data())
def test_a_body_cut_short_or_too_long_is_refused(message: Message, data: st.DataObject) -> None:
    """A frame of the wrong length must close the link, not become another message. Only snapshot chunks have no
    length of their own: there the frame is the length, and the snapshot has a checksum."""
    body = b"".join(encode(GroupId(1), message))
    cut = data.draw(st.integers(0, len(body) - 1))
    if isinstance(message, InstallSnapshot) and cut >= len(body) - len(message.data):
        return
    with pytest.raises(WireError):
        decode(body[:cut])
    if not isinstance(message, InstallSnapshot):
        with pytest.raises(WireError):
            decode(body + b"\0")


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=4), st.data())
def test_any_damage_to_a_payload_is_found_and_named(payloads: list[bytes], data: st.DataObject) -> None:
    """Else one flipped bit would be replicated, confirmed and delivered."""
    entries = [Entry(LogIndex(i), Term(1), EntryKind.COMMAND, crc32(p), p) for i, p in enumerate(payloads, 8)]
    head, *rest = encode_append(GroupId(1), send(entries), NodeId(1), entries)
    octets = bytearray(b"".join(rest))
    at = data.draw(st.integers(0, len(octets) - 1))
    octets[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(EntryDamagedError) as refused:
        decode(bytes(head) + octets)
    ends = [sum(map(len, payloads[: i + 1])) for i in range(len(payloads))]
    assert refused.value.index == 8 + next(i for i, end in enumerate(ends) if at < end)
    assert str(refused.value.index) in str(refused.value)


@given(st.binary(max_size=200))
def test_noise_is_refused_with_a_typed_error(noise: bytes) -> None:
    """Whatever arrives, the node answers with a closed link and not with a traceback."""
    try:
        decode(noise)
    except WireError:
        pass
    else:
        assert noise[0] in range(1, 9)


def send(entries: list[Entry]) -> SendEntries:
    first = entries[0].index
    return SendEntries(
        to=NodeId(2),
        term=Term(3),
        prev_index=LogIndex(first - 1),
        prev_term=Term(1),
        commit=LogIndex(4),
        first=first,
        last=entries[-1].index,
    )


def test_payloads_are_handed_on_without_a_copy() -> None:
    """A copy of each 500 KB entry for each follower would cost more than everything else."""
    payload = b"x" * 100_000
    entries = [Entry(LogIndex(5), Term(1), EntryKind.COMMAND, crc32(payload), payload)]
    buffers = encode_append(GroupId(1), send(entries), NodeId(1), entries)
    assert buffers[1] is payload
    assert len(buffers[0]) < 100


def test_a_range_encodes_as_the_message_that_it_stands_for() -> None:
    """The leader's short cut must put the very octets on the wire that the general encoder does."""
    entries = [Entry(LogIndex(i), Term(1), EntryKind.COMMAND, crc32(b"ab"), b"ab") for i in (5, 6)]
    message = AppendEntries(
        term=Term(3),
        leader=NodeId(1),
        prev_index=LogIndex(4),
        prev_term=Term(1),
        commit=LogIndex(4),
        entries=tuple(entries),
    )
    assert b"".join(encode_append(GroupId(9), send(entries), NodeId(1), entries)) == b"".join(
        encode(GroupId(9), message)
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"\x63" + bytes(40), "unknown Raft message of kind 99"),
        (b"\x01\x00", "kind 1 has 2 octets"),
    ],
)
def test_errors_say_what_came(body: bytes, says: str) -> None:
    """Who reads the log of a node must see whether versions differ or a cable is broken."""
    with pytest.raises(WireError, match=says):
        decode(body)


def test_an_unknown_kind_of_entry_is_refused() -> None:
    """A newer leader's new kind of entry must not be applied as something else."""
    entries = [Entry(LogIndex(5), Term(1), EntryKind.COMMAND, crc32(b""), b"")]
    body = bytearray(b"".join(encode_append(GroupId(1), send(entries), NodeId(1), entries)))
    body[-9] = 77  # kind, before the checksum and the length of the only, empty entry
    with pytest.raises(WireError, match="entry 5 is of unknown kind 77"):
        decode(bytes(body))


@given(configurations(), st.data())
def test_a_configuration_comes_back_and_no_other_octets_pass_for_one(
    configuration: Configuration, data: st.DataObject
) -> None:
    """Members that read one entry differently count different majorities."""
    octets = configuration.encode()
    assert Configuration.decode(octets) == configuration
    cut = data.draw(st.integers(0, len(octets) - 1))
    for damaged in (octets[:cut], octets + b"\0", b"\2" + octets[1:]):
        with pytest.raises(ValueError, match="configuration"):
            Configuration.decode(damaged)


@pytest.mark.parametrize(("kind", "payload"), [(EntryKind.CONFIG, b"\1\0\1"), (EntryKind.NOOP, b"1")])
def test_entries_that_raft_cannot_read_close_the_link(kind: EntryKind, payload: bytes) -> None:
    """In the log they would stop each member that reads them."""
    entries = [Entry(LogIndex(8), Term(1), kind, crc32(payload), payload)]
    with pytest.raises(WireError, match="entry 8"):
        decode(b"".join(encode_append(GroupId(1), send(entries), NodeId(1), entries)))
