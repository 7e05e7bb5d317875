"""The handshake of a link: each node proves that it has the cluster's secret before the other believes what it says.

Three messages pass, each the body of a HELLO frame. The dialler opens:

    open    dialler to listener   version, cluster, node, to, nonce
    answer  listener to dialler   proof; version, cluster, node, to, nonce, life, known, frame_max
    close   dialler to listener   proof; life, known, frame_max

A proof is HMAC-SHA256 under the secret, over the name of its message, all messages before it and the message itself. So
a proof vouches for both nonces, both nodes, the cluster, the version and every boot that is told. A recorded message
proves nothing in a later handshake, because the nonces are fresh. A message that is sent back to its sender proves
nothing either: the names of the messages differ, and of a pair of nodes only the higher id dials.

Frames after the handshake carry no proof, and nothing is encrypted. Somebody who can change octets of a connection can
change these frames.

Pure: octets in, octets out; the nonce is given.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from reference_broker.types import NodeId

VERSION: Final = 3
"""The version of the links between nodes. The first version had no proofs and told no version."""
NONCE_OCTETS: Final = 32
_PROOF_OCTETS: Final = 32
_SHOWN_MAX: Final = 40


class HandshakeError(ValueError):
    """The other side is not let in. The text is the reason, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSide:
    """One node's side of a handshake. ``peers`` are the other nodes of the cluster, ``known`` gives the newest boot
    that this node has seen of one of them, ``frame_max`` is the largest frame that this node takes."""

    cluster: str
    node: NodeId
    peers: Collection[NodeId]
    secret: bytes
    boot: tuple[int, int]
    frame_max: int
    known: Callable[[NodeId], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Introduction:
    """A peer's proved words: who it is, its boot, the newest boot of this node that it has seen, and the largest frame
    that it takes. Only the sender is checked, not the values."""

    node: NodeId
    boot: Any
    known: Any
    frame_max: Any


class Handshake:
    """One side of one handshake. ``dialled`` is the node that should be at the other end, None for the listener."""

    def __init__(self, side: LinkSide, nonce: bytes, dialled: NodeId | None) -> None:
        self._side = side
        self._nonce = nonce
        self._dialled = dialled
        self._passed: list[bytes] = []
        self.node = dialled
        """The node that the other side should be, or says that it is. Nothing is proved yet."""

    def open(self) -> bytes:
        """The dialler's first message."""
        assert self._dialled is not None
        self._passed = [_encode(self._introduce(self._dialled))]
        return self._passed[0]

    def take(self, message: bytes) -> tuple[bytes, Introduction | None]:
        """The next message to send, empty if there is none, and the other side's proved introduction, which ends the
        handshake. Raises :class:`HandshakeError`."""
        if self._dialled is not None:
            return self._take_answer(message, self._dialled)
        if self.node is None:
            return self._take_open(message), None
        return b"", self._introduction(self.node, self._proved(b"close", message))

    def _take_open(self, message: bytes) -> bytes:
        told = _decode(message)
        self._check(told)
        self.node = NodeId(told["node"])
        self._passed = [message]
        return self._prove(b"answer", self._introduce(self.node) | self._tell(self.node))

    def _take_answer(self, message: bytes, dialled: NodeId) -> tuple[bytes, Introduction]:
        self._check(_decode(message[_PROOF_OCTETS:]))
        told = self._proved(b"answer", message)
        return self._prove(b"close", self._tell(dialled)), self._introduction(dialled, told)

    def _introduce(self, to: NodeId) -> dict[str, Any]:
        side = self._side
        return {"version": VERSION, "cluster": side.cluster, "node": side.node, "to": to, "nonce": self._nonce.hex()}

    def _tell(self, to: NodeId) -> dict[str, Any]:
        return {"life": self._side.boot, "known": self._side.known(to), "frame_max": self._side.frame_max}

    def _introduction(self, node: NodeId, told: dict[str, Any]) -> Introduction:
        return Introduction(node, told.get("life"), told.get("known"), told.get("frame_max"))

    def _check(self, told: dict[str, Any]) -> None:
        """Raise :class:`HandshakeError` unless the other side speaks this version and is the node that belongs
        there."""
        version, node, to, side = told.get("version", 1), told.get("node"), told.get("to"), self._side
        if version != VERSION:
            fix = "run the same release on all nodes"
            _refuse(f"node {_shown(node)} speaks version {_shown(version)} of the links, this node {VERSION}: {fix}")
        if told.get("cluster") != side.cluster:
            _refuse("the other side belongs to another cluster")
        if type(node) is not int or node not in side.peers:
            _refuse(f"node {_shown(node)} is not a member of this cluster")
        if to != side.node:
            _refuse(f"node {node} takes this node for node {_shown(to)}: mend hosts and ports of `nodes` there")
        if self._dialled is None and node < side.node:
            _refuse(f"node {node} dialled node {side.node}: of a pair only the higher id dials")
        if self._dialled is not None and node != self._dialled:
            _refuse(f"node {node} is where node {self._dialled} should be: mend hosts and ports of `nodes` here")

    def _prove(self, name: bytes, told: dict[str, Any]) -> bytes:
        text = _encode(told)
        message = self._proof(name, text) + text
        self._passed.append(message)
        return message

    def _proved(self, name: bytes, message: bytes) -> dict[str, Any]:
        shown, text = message[:_PROOF_OCTETS], message[_PROOF_OCTETS:]
        if not hmac.compare_digest(shown, self._proof(name, text)):
            _refuse(f"node {self.node} has another secret: give all nodes of a cluster the same `secret_file`")
        self._passed.append(message)
        return _decode(text)

    def _proof(self, name: bytes, text: bytes) -> bytes:
        return proof(self._side.secret, name, *self._passed, text)


def proof(secret: bytes, *parts: bytes) -> bytes:
    """The proof of these parts, 32 octets, which needs the secret. No two lists of parts share a proof."""
    found = hmac.new(secret, digestmod="sha256")
    for part in parts:
        found.update(len(part).to_bytes(4, "big"))
        found.update(part)
    return found.digest()


def _refuse(reason: str) -> NoReturn:
    raise HandshakeError(reason)


def _encode(told: dict[str, Any]) -> bytes:
    return json.dumps(told).encode()


def _decode(text: bytes) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        _refuse("the other side does not say who it is: it is no node, or one of another release")
    return told


def _shown(value: object) -> str:
    """A stranger's octets, on one short line."""
    return repr(value)[:_SHOWN_MAX]
