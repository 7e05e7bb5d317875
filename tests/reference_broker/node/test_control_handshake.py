"""The node's side of the control port's handshake, against an operator who knows how proofs are made."""

from __future__ import annotations

import json

import pytest

from reference_broker.node.endpoints.control_handshake import ControlHandshake
from reference_broker.node.links.handshake import HandshakeError, proof

SECRET = b"s" * 32
OPENING = {"control": 1, "cluster": "c", "node": "node1", "nonce": "00" * 32}


def node(nonce: int = 1) -> ControlHandshake:
    return ControlHandshake("c", "node1", SECRET, bytes((nonce,)) * 32)


def close(secret: bytes, name: bytes, opening: bytes, answer: bytes) -> bytes:
    return proof(secret, name, opening, answer).hex().encode()


def refusal(found: ControlHandshake, line: bytes) -> str:
    """Why the node takes this for no proof; empty if the node takes it."""
    try:
        found.close(line)
    except HandshakeError as error:
        return str(error)
    return ""


def opening(**changes: object) -> bytes:
    return json.dumps(OPENING | changes).encode()


def test_who_has_the_secret_is_let_in_and_sees_the_nodes_proof() -> None:
    found = node()
    answer = found.answer(opening())
    shown, _, text = answer.partition(b" ")
    assert shown == proof(SECRET, b"control answer", opening(), text).hex().encode()
    assert json.loads(text) == {"cluster": "c", "node": "node1", "nonce": "01" * 32}
    found.close(close(SECRET, b"control close", opening(), answer))


def test_a_recorded_proof_proves_nothing() -> None:
    """The operator says the very same again; the node's nonce is another."""
    recorded = close(SECRET, b"control close", opening(), node(1).answer(opening()))
    again = node(2)
    again.answer(opening())
    assert "another secret" in refusal(again, recorded)


@pytest.mark.parametrize(
    ("secret", "name"),
    [(b"x" * 32, b"control close"), (SECRET, b"control answer"), (SECRET, b"close")],
    ids=["another secret", "the node's own proof", "a proof of the links"],
)
def test_any_other_proof_is_refused(secret: bytes, name: bytes) -> None:
    found = node()
    answer = found.answer(opening())
    assert "another secret" in refusal(found, close(secret, name, opening(), answer))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"GET / HTTP/1.1", "only from those who prove"),
        (b"[" * 5000, "only from those who prove"),
        (b'{"op": "status"}', "only from those who prove"),
        (opening(control=2), "another version"),
        (opening(cluster="other"), "one of another cluster"),
        (opening(node="node2"), "takes node1 for another node"),
        (opening(pad="x" * 5000), "only from those who prove"),
    ],
    ids=["HTTP", "too deep", "a request", "version", "cluster", "node", "too long"],
)
def test_what_opens_no_handshake_gets_no_proof(line: bytes, reason: str) -> None:
    with pytest.raises(HandshakeError, match=reason):
        node().answer(line)
