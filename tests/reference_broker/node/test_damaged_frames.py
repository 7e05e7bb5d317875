"""Whatever a peer sends in the place of a frame, reading it raises ValueError and nothing else: the link is closed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.node.replication import non_members
from reference_broker.node.replication.group_runner import GroupSnapshot
from reference_broker.node.replication.proposals import DedupTable, Proposal, unseal
from reference_broker.raft.configuration import Configuration
from reference_broker.types import GroupId, NodeId

READERS = [
    Proposal.unpack,
    non_members.unpack_attach,
    non_members.unpack_leading,
    non_members.unpack_catch_up,
    non_members.unpack_applied,
    non_members.unpack_effects,
]


class Nobody:
    """Channels that are told anything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_arguments: None


@pytest.mark.parametrize("reader", READERS)
@given(body=st.binary(max_size=60))
def test_small_frames(reader: Any, body: bytes) -> None:
    with contextlib.suppress(ValueError):
        reader(memoryview(body))


@given(st.binary(max_size=80))
def test_effects(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        non_members.call_channels(Nobody(), GroupId(1), memoryview(body))  # type: ignore[arg-type]


@given(st.binary(max_size=80))
def test_sealed_batches(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        unseal(body)


def test_snapshots_of_the_first_format_can_still_be_read() -> None:
    snapshot = GroupSnapshot(Configuration((NodeId(1), NodeId(2))), 3, DedupTable(), b"state")
    assert GroupSnapshot.unpack(snapshot.pack()).configuration == snapshot.configuration
    assert GroupSnapshot.unpack(snapshot.pack()).state == b"state"
    old = GroupSnapshot.unpack(DedupTable().pack() + b"state")
    assert (old.configuration, old.state) == (None, b"state")
    with pytest.raises(ValueError, match="format 9"):
        GroupSnapshot.unpack(b"QGS\x09" + bytes(20))
