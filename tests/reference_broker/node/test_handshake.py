"""Who lacks the secret of a cluster is believed nothing, whatever it has recorded, changes on the way or sends back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.node.config import FRAME_BYTES_MIN
from reference_broker.node.links.handshake import Handshake, HandshakeError, Introduction, LinkSide
from reference_broker.types import NodeId

SECRET = b"s" * 32
NODES = {NodeId(1), NodeId(2), NodeId(3)}
BOOTS = {1: (4, 400), 2: (7, 700), 3: (9, 900)}
KNOWN = {1: (3, 300), 2: (6, 600), 3: None}
NONCES = count(1)


def side(node: int, **changes: Any) -> LinkSide:
    made = LinkSide(
        cluster="c",
        node=NodeId(node),
        peers=NODES - {NodeId(node)},
        secret=SECRET,
        boot=BOOTS[node],
        frame_max=FRAME_BYTES_MIN + node,
        known=KNOWN.get,  # type: ignore[arg-type]
    )
    return replace(made, **changes)


def listener(of: LinkSide) -> Handshake:
    return Handshake(of, next(NONCES).to_bytes(32, "big"), None)


def dialler(of: LinkSide, to: int = 1) -> Handshake:
    return Handshake(of, next(NONCES).to_bytes(32, "big"), NodeId(to))


def run(dials: LinkSide, listens: LinkSide, to: int = 1, changed: Any = None) -> list[Introduction]:
    """Whom each side believes, the dialler first; ``changed`` alters the messages on their way, by their number."""
    change = changed or (lambda _number, message: message)
    here, there = dialler(dials, to), listener(listens)
    believed: list[Introduction] = []
    answer, _ = there.take(change(0, here.open()))
    closing, introduction = here.take(change(1, answer))
    believed += [introduction] if introduction else []
    _, introduction = there.take(change(2, closing))
    return [*believed, *([introduction] if introduction else [])]


def refusal(call: Callable[[], object]) -> str:
    """Why a message is refused; empty if it is not."""
    try:
        call()
    except HandshakeError as error:
        return str(error)
    return ""


def test_both_learn_who_the_other_is_its_lives_and_the_frames_it_takes() -> None:
    believed = run(side(2), side(1))
    assert believed == [
        Introduction(NodeId(1), [4, 400], [6, 600], FRAME_BYTES_MIN + 1),
        Introduction(NodeId(2), [7, 700], [3, 300], FRAME_BYTES_MIN + 2),
    ]
    assert run(side(3), side(1))[0].known is None


@pytest.mark.parametrize("wrong", [0, 1], ids=["dialler", "listener"])
def test_another_secret_is_refused(wrong: int) -> None:
    """Two clusters of one name on one network, or a node whose file was not copied."""
    sides = [side(2), side(1)]
    sides[wrong] = replace(sides[wrong], secret=b"t" * 32)
    with pytest.raises(HandshakeError, match="another secret: give all nodes of a cluster the same `secret_file`"):
        run(*sides)


def test_the_dialler_is_not_believed_without_the_secret_either() -> None:
    """It has seen the answer, and may say what it wants to."""
    there = listener(side(1))
    forger = dialler(side(2, secret=b"t" * 32, boot=(1000, 1)))
    answer, _ = there.take(forger.open())
    told = json.dumps({"life": [1000, 1], "known": None, "frame_max": 9999}).encode()
    for closing in (told, bytes(32) + told, answer, answer[:32] + told):
        with pytest.raises(HandshakeError):
            there.take(closing)


@given(message=st.integers(0, 2), at=st.integers(0, FRAME_BYTES_MIN - 1), bit=st.integers(0, 7))
def test_no_octet_can_be_changed_on_the_way(message: int, at: int, bit: int) -> None:
    """A boot above all: it is written down, and shuts out whoever has a lower one."""

    def changed(number: int, octets: bytes) -> bytes:
        place = at % len(octets)
        flipped = octets[:place] + bytes((octets[place] ^ 1 << bit,)) + octets[place + 1 :]
        return flipped if number == message else octets

    believed: list[Introduction] = []
    with contextlib.suppress(HandshakeError):
        believed = run(side(2), side(1), changed=changed)
    assert believed == []


def test_a_recording_proves_nothing_later() -> None:
    """Of either side: the nonce of the other is new."""
    recorded: dict[int, bytes] = {}
    run(side(2), side(1), changed=lambda number, message: recorded.setdefault(number, message))
    there = listener(side(1))
    there.take(recorded[0])
    with pytest.raises(HandshakeError):
        there.take(recorded[2])
    here = dialler(side(2))
    here.open()
    with pytest.raises(HandshakeError):
        here.take(recorded[1])


def test_what_a_node_said_proves_nothing_to_that_node() -> None:
    """Sent back to where it came from, to the same side or to the other."""
    here = dialler(side(2))
    opening = here.open()
    with pytest.raises(HandshakeError):
        here.take(opening)
    with pytest.raises(HandshakeError, match="node 2 is not a member"):
        listener(side(2)).take(opening)
    there = listener(side(1))
    answer, _ = there.take(dialler(side(2)).open())
    with pytest.raises(HandshakeError):
        there.take(answer)


def test_a_node_with_the_secret_is_not_another_node() -> None:
    """Hosts or ports are mixed up: a member that is not the one that was dialled must not take its place."""
    assert "node 3 takes this node for node 1" in refusal(lambda: run(side(3), side(2), to=1))
    there, here = listener(side(2)), dialler(side(3), 1)
    here.open()
    answer, _ = there.take(dialler(side(3), 2).open())
    assert "node 2 is where node 1 should be" in refusal(lambda: here.take(answer))
    assert "node 1 dialled node 2: of a pair only" in refusal(lambda: run(side(1), side(2), to=2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "node 2 speaks version 2 of the links, this node 3: run the same release on all nodes"),
        ({"version": 4}, "node 2 speaks version 4 of the links"),
        ({"cluster": "d"}, "another cluster"),
        ({"node": 4}, "node 4 is not a member"),
        ({"node": True}, "node True is not a member"),
        ({"node": "2\n" * 99}, "is not a member"),
        ({"to": 3}, "node 2 takes this node for node 3"),
    ],
)
def test_who_does_not_belong_here_is_told_apart(change: dict[str, Any], says: str) -> None:
    with pytest.raises(HandshakeError, match=says) as refused:
        listener(side(1)).take(json.dumps(json.loads(dialler(side(2)).open()) | change).encode())
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_a_node_of_the_first_version_is_refused_by_a_sentence() -> None:
    """It said all at once, and proved nothing."""
    hello = {"cluster": "c", "node": 2, "incarnation": 7, "life": [7, 700], "known": None}
    with pytest.raises(HandshakeError, match="node 2 speaks version 1 of the links"):
        listener(side(1)).take(json.dumps(hello).encode())


@given(st.binary(max_size=200), st.booleans())
def test_noise_is_refused_and_nothing_else(noise: bytes, dials: bool) -> None:
    handshake = dialler(side(2)) if dials else listener(side(1))
    if dials:
        handshake.open()
    with pytest.raises(HandshakeError):
        handshake.take(noise)


def test_deeply_nested_noise_is_refused_too() -> None:
    with pytest.raises(HandshakeError, match="does not say who it is"):
        listener(side(1)).take(b"[" * FRAME_BYTES_MIN)
