"""A connection to the control port of a node, on which both sides have proved themselves.

Three lines pass before the first request (``docs/internals/node.md``, "The handshake of the control port"). The node
proves first that it has the cluster's secret. Nothing is sent to a node that cannot.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import ssl
from collections.abc import Iterator
from io import BufferedRWPair
from typing import Final

from infra.cluster import Cluster, Node

OPERATOR: Final = "operator"
"""The name in the certificate of an operator, who runs no node."""
_VERSION: Final = 1
_NONCE_OCTETS: Final = 32
_PROOF_DIGITS: Final = 64
_LINE_BYTES_MAX: Final = 4096


class NoConnectionError(OSError):
    """Nobody could be reached, so nothing was sent."""


class ProofError(ValueError):
    """This side or the other side cannot prove that it belongs to the cluster. No request was sent. The text is a
    sentence."""


@contextlib.contextmanager
def connected(cluster: Cluster, node: Node, timeout_s: float) -> Iterator[BufferedRWPair]:
    """A file of lines to and from the node's control port. Raises :class:`NoConnectionError` if nobody listens,
    :class:`ProofError` if a side lacks its proof, OSError if the connection breaks."""
    secret = cluster.secret()
    address = node.control_address
    try:
        plain = socket.create_connection(address, timeout=timeout_s)
    except OSError as error:
        raise NoConnectionError(error.errno, error.strerror or str(error)) from error
    with _encrypted(cluster, node, plain) as connection, connection.makefile("rwb") as lines:
        _prove(cluster, node, secret, lines)
        yield lines


def _encrypted(cluster: Cluster, node: Node, plain: socket.socket) -> socket.socket:
    """The connection with TLS, if the cluster has TLS. Both sides show certificates. Raises :class:`ProofError`."""
    if not cluster.tls:
        return plain
    own = next((each.name for each in cluster.nodes if each.is_here), OPERATOR)
    files = cluster.tls_files(own)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(files["certificate"], files["key"])
        context.load_verify_locations(files["ca"])
        return context.wrap_socket(plain, server_hostname=node.name)
    except OSError as error:
        plain.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise ProofError(f"its certificate is not accepted: {error.verify_message}") from error
        if isinstance(error, FileNotFoundError):
            raise ProofError(f"the certificate of {own} is missing: {files['certificate']}") from error
        raise ProofError(f"TLS failed: {error.strerror or error}") from error


def _prove(cluster: Cluster, node: Node, secret: bytes, lines: BufferedRWPair) -> None:
    """Check the node's proof, and send one of our own. The first request may follow at once."""
    nonce = secrets.token_hex(_NONCE_OCTETS)
    told = {"control": _VERSION, "cluster": cluster.cluster, "node": node.name, "nonce": nonce}
    opening = json.dumps(told).encode()
    lines.write(opening + b"\n")
    lines.flush()
    answer = lines.readline(_LINE_BYTES_MAX).rstrip(b"\n")
    shown, _, text = answer.partition(b" ")
    expected = _proof(secret, b"control answer", opening, text)
    if not hmac.compare_digest(shown, expected):
        raise ProofError(_reason(answer))
    lines.write(_proof(secret, b"control close", opening, answer) + b"\n")


def _proof(secret: bytes, *parts: bytes) -> bytes:
    """The proof of these parts, in hexadecimal, which needs the secret."""
    found = hmac.new(secret, digestmod="sha256")
    for part in parts:
        found.update(len(part).to_bytes(4, "big"))
        found.update(part)
    return found.hexdigest().encode()


def _reason(answer: bytes) -> str:
    """Why an answer is no proof: the other side's reason, or else a likely one."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return f"refused: {json.loads(answer)['error']}"
    if not answer:
        return "closed the connection in the handshake: another program may listen there, or the node's log says why"
    if len(answer.partition(b" ")[0]) == _PROOF_DIGITS:
        return (
            "has another secret than this cluster: the same `secret` must lie in the cluster's directory on all hosts"
        )
    return "is no control port of this version"
