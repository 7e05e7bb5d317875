"""The control port: one JSON object per line in, one JSON object per line out. Operators' commands come this way.

Before the first request both sides prove that they have the cluster's secret
(:mod:`reference_broker.node.endpoints.control_handshake`). Only a node without a secret obeys anybody who can connect,
and such a node listens on loopback only.

Requests have an ``op``: ``summary``, ``status``, ``metrics``, ``anatomy`` and ``drive`` are about this node, the others
(:mod:`reference_broker.node.operations.cluster_requests`) about the cluster. The answer is ``{"ok": true, ...}``, or
``{"error": what and where, "fix": what to do}``, in the order of the requests. The port never takes the node down.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from reference_broker.node.endpoints.control_handshake import ControlHandshake
from reference_broker.node.endpoints.status import status, summary
from reference_broker.node.links import open_files
from reference_broker.node.links.handshake import NONCE_OCTETS, HandshakeError
from reference_broker.node.links.peer_requests import failure, read_object
from reference_broker.node.links.strangers import Complaints, Strangers
from reference_broker.node.links.tls import TlsDoor, server_context
from reference_broker.node.operations.cluster_requests import Operations
from reference_broker.node.start_problems import listening

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from reference_broker.node.shard import Shard

log = logging.getLogger(__name__)

_REQUEST_MAX: Final = 65_536
"""The most octets of a line. A client that has not yet proved the secret may not send more."""
_LONG_REQUEST_MAX: Final = 16 << 20
"""Octets of a request whose length a line such as ``{"octets": 70000}`` announces."""


class ControlledNode(Protocol):
    """The node that the port is for."""

    shard: Shard
    listening: bool
    """Whether clients can connect."""

    @property
    def serves_http(self) -> bool:
        """Whether the metrics port answers, if the node has one."""

    @property
    def metrics(self) -> CollectorRegistry:
        """The node's figures, made when first asked for."""

    async def manage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request about definitions."""


async def serve(node: ControlledNode) -> asyncio.Server:
    """Listen on the node's control port."""
    me, port = node.shard.config.me, _Port(node)
    with listening(me, "control_port") as (host, number):
        return await asyncio.get_running_loop().create_server(port.accepted, host, number)


@dataclass(frozen=True, slots=True, eq=False)
class _Visitor:
    """One connection to the control port."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Drop the connection without waiting for unsent octets."""
        self.writer.transport.abort()

    def say(self, answer: dict[str, Any]) -> None:
        """Send one line."""
        self.writer.write(json.dumps(answer).encode() + b"\n")

    @property
    def address(self) -> str:
        """The address of the other side."""
        address = self.writer.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else "an unknown address"


class _Port:
    """The connections to the control port of a node."""

    def __init__(self, node: ControlledNode) -> None:
        self._node = node
        self._limits = node.shard.config.limits
        self._tls = server_context(tls) if (tls := node.shard.config.tls) else None
        self._complaints = Complaints(asyncio.get_running_loop().time)
        self._strangers = Strangers(
            open_files.strangers_max(self._limits), lambda text: self._complain(f"control port: {text}")
        )
        self._door = open_files.Door("a client of the control port", lambda: "", self._complaints)

    def accepted(self) -> asyncio.Protocol:
        """The handler of the next connection. Without a secret no client is a stranger, so clients get no file that is
        kept back."""
        if not self._node.shard.config.secret and (turned_away := self._door.turns_away()) is not None:
            return turned_away
        if self._tls is None:
            return self._visitor()
        timeout_s = self._limits.handshake_ms / 1000
        return TlsDoor(
            self._tls, timeout_s, self._visitor, self._strangers, lambda text: self._complain(f"control {text}")
        )

    def _visitor(self) -> asyncio.Protocol:
        reader = asyncio.StreamReader(limit=_REQUEST_MAX)
        return asyncio.StreamReaderProtocol(reader, self.visit)

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        visitor = _Visitor(reader, writer)
        try:
            if await self._is_let_in(visitor):
                while line := await reader.readline():
                    if 0 < (octets := _announced(line)) <= _LONG_REQUEST_MAX:
                        line = await reader.readexactly(octets)
                    visitor.say(await respond(self._node, line))
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # gone: there is no receiver
        except ValueError:
            visitor.say(failure(f"a request of more than {_REQUEST_MAX} octets", "end each request with a line feed"))
        finally:
            writer.close()

    async def _is_let_in(self, visitor: _Visitor) -> bool:
        """Whether the other side has proved that it has the secret. If not, both the other side and the log hear
        why."""
        config = self._node.shard.config
        if not config.secret:
            return True
        handshake = ControlHandshake(config.cluster, config.name, config.secret, secrets.token_bytes(NONCE_OCTETS))
        self._strangers.add(visitor)
        try:
            async with asyncio.timeout(self._limits.handshake_ms / 1000):
                visitor.writer.write(handshake.answer(await _line(visitor)) + b"\n")
                handshake.close(await _line(visitor))
            return True
        except TimeoutError:
            self._refuse(visitor, f"no proof of the cluster's secret within {self._limits.handshake_ms} ms")
        except HandshakeError as error:
            self._refuse(visitor, str(error))
        finally:
            self._strangers.remove(visitor)
        return False

    def _refuse(self, visitor: _Visitor, reason: str) -> None:
        self._complain(f"control connection from {visitor.address} refused: {reason}")
        visitor.say(
            failure(reason, "use the `secret` in the cluster's directory, as all `perftest broker` commands do")
        )

    def _complain(self, text: str) -> None:
        self._complaints.say("control", text)


def _announced(line: bytes) -> int:
    """The octets of a long request that the line announces; 0 if the line is a request itself."""
    found = read_object(line)
    octets = found.get("octets") if found is not None and "op" not in found else None
    return octets if type(octets) is int else 0


async def _line(visitor: _Visitor) -> bytes:
    """A line of the handshake, without its line feed."""
    try:
        return (await visitor.reader.readuntil(b"\n"))[:-1]
    except asyncio.LimitOverrunError as error:
        raise HandshakeError("what was sent is no handshake") from error


_OWN: Final = ("summary", "status", "metrics", "anatomy", "drive", "definitions", "import-definitions")


async def respond(node: ControlledNode, line: bytes) -> dict[str, Any]:
    """The answer to one request."""
    if (request := read_object(line)) is None:
        return failure("the request is no JSON object", 'send one a line, such as {"op": "status"}')
    try:
        match request.get("op"):
            case "summary":
                return summary(node.shard, listening=node.listening, serves_http=node.serves_http)
            case "status":
                return status(node.shard, listening=node.listening, serves_http=node.serves_http)
            case "metrics":
                from reference_broker.node.endpoints import metrics

                return {"ok": True, "metrics": metrics.as_json(node.metrics)}
            case "anatomy":
                # The latency anatomy since the start of the node.
                snapshot = node.shard.anatomy.snapshot()
                config = node.shard.config
                identity = {"name": config.name, "node": config.node, "incarnation": node.shard.boot_id}
                return identity | await asyncio.to_thread(snapshot.to_json)  # milliseconds that must delay no message
            case "drive":
                answer = node.shard.drives.answer(request)
                node.shard.check_alarms()  # a drive that is full stops publishers at once
                return answer
            case "definitions" | "import-definitions":
                return await node.manage(request)
            case op if op in node.shard.operations.names:
                return await _ask(node.shard.operations, request)
            case op:
                known = ", ".join([*_OWN, *node.shard.operations.names])
                return failure(f"unknown operation {op!r}", f"use one of {known}")
    except Exception as error:
        log.exception("defect while answering %r", request)
        return failure(f"defect while answering {request.get('op')!r}: {error!r}", "see the node's log")


async def _ask(operations: Operations, request: dict[str, Any]) -> dict[str, Any]:
    answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def answer_once(answer: dict[str, Any]) -> None:
        if not answered.done():
            answered.set_result(answer)

    operations.answer(request, answer_once)
    return await answered
