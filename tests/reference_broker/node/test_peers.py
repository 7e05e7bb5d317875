"""Peer links cut a stream into frames: a wrong cut would feed one group's entries to another."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.node.peers import FrameReader


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.lists(st.integers(1, 700), max_size=30))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
    reader, seen = FrameReader(1000), []
    at = 0
    for cut in [*cuts, len(stream)]:
        if at < len(stream):
            reader.feed(stream[at : at + cut], lambda body: seen.append(bytes(body)))
            at += cut
    assert seen == bodies


@pytest.mark.parametrize("length", [0, 1001, 0xFFFFFFFF])
def test_an_absurd_length_is_refused_before_anything_is_allocated(length: int) -> None:
    with pytest.raises(ValueError, match="announced"):
        FrameReader(1000).feed(struct.pack(">I", length) + b"x", lambda body: None)
