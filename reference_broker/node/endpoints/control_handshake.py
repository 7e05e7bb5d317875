"""The handshake of the control port: a line each, before the first request.

    open    operator to node   {"control": 1, "cluster": c, "node": name, "nonce": hexadecimal}
    answer  node to operator   proof, a space, {"cluster": c, "node": name, "nonce": hexadecimal}
    close   operator to node   proof

A proof is 64 hexadecimal digits: HMAC-SHA256 under the cluster's secret, as in the handshake of the links
(:mod:`reference_broker.node.links.handshake`), over the name of the message and all lines so far. The names differ from
those of the links, so what passes on a link proves nothing here. Both nonces are fresh, so a recording proves nothing.

The node proves first. An operator who reached another cluster or another node learns so, and sends nothing more.

Pure: octets in, octets out; the nonce is given.
"""

from __future__ import annotations

import hmac
import json
from typing import Final

from reference_broker.node.links.handshake import HandshakeError, proof

VERSION: Final = 1
_LINE_MAX: Final = 4096


class ControlHandshake:
    """The node's side of one handshake."""

    def __init__(self, cluster: str, node: str, secret: bytes, nonce: bytes) -> None:
        self._cluster = cluster
        self._node = node
        self._secret = secret
        self._nonce = nonce
        self._passed: tuple[bytes, bytes] = (b"", b"")

    def answer(self, opening: bytes) -> bytes:
        """The answer to the operator's first line. Raises HandshakeError if the line opens no handshake, or one with
        another node."""
        self._check(opening)
        text = json.dumps({"cluster": self._cluster, "node": self._node, "nonce": self._nonce.hex()}).encode()
        line = proof(self._secret, b"control answer", opening, text).hex().encode() + b" " + text
        self._passed = opening, line
        return line

    def close(self, line: bytes) -> None:
        """Check the operator's proof. Raises HandshakeError unless the operator has the secret."""
        if not hmac.compare_digest(line, proof(self._secret, b"control close", *self._passed).hex().encode()):
            raise HandshakeError("the other side has another secret than this cluster")

    def _check(self, opening: bytes) -> None:
        try:
            told = json.loads(opening) if len(opening) <= _LINE_MAX else None
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict) or "control" not in told:
            raise HandshakeError("the control port takes requests only from those who prove that they have the secret")
        if told["control"] != VERSION:
            raise HandshakeError(f"the other side speaks another version of the control port than {VERSION}")
        if told.get("cluster") != self._cluster:
            raise HandshakeError("the other side takes this node for one of another cluster")
        if told.get("node") != self._node:
            raise HandshakeError(f"the other side takes {self._node} for another node")
