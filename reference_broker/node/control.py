"""The control port: one JSON object per line in, one JSON object per line out. Operators' commands come this way.

Requests have an ``op``: ``summary``, ``status``, ``metrics``, ``anatomy`` and ``drive`` are about this node, the others
(:mod:`reference_broker.node.operations`) about the cluster. The answer is ``{"ok": true, ...}``, or
``{"error": what and where, "fix": what to do}``, in the order of the requests. The port never takes the node down.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from reference_broker.node.operations import Operations
from reference_broker.node.requests import failure, read_object
from reference_broker.node.start_problems import listening
from reference_broker.node.status import status, summary

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from reference_broker.node.shard import Shard

log = logging.getLogger(__name__)

_REQUEST_MAX: Final = 65_536


class ControlledNode(Protocol):
    """The node that the port is for."""

    shard: Shard
    listening: bool
    """Whether clients can connect."""

    @property
    def metrics(self) -> CollectorRegistry:
        """The node's figures, made when first asked for."""


async def serve(node: ControlledNode) -> asyncio.Server:
    """Listen on the node's control port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await respond(node, line)).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # gone: nobody to answer
        except ValueError:
            refusal = failure(f"a request of more than {_REQUEST_MAX} octets", "end each request with a line feed")
            writer.write(json.dumps(refusal).encode() + b"\n")
        finally:
            writer.close()

    me = node.shard.config.me
    with listening(me, "control_port"):
        return await asyncio.start_server(handle, me.host, me.control_port, limit=_REQUEST_MAX)


async def respond(node: ControlledNode, line: bytes) -> dict[str, Any]:
    """The answer to one request."""
    if (request := read_object(line)) is None:
        return failure("the request is no JSON object", 'send one a line, such as {"op": "status"}')
    try:
        match request.get("op"):
            case "summary":
                return summary(node.shard, listening=node.listening)
            case "status":
                return status(node.shard, listening=node.listening)
            case "metrics":
                from reference_broker.node import metrics

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
            case op if op in node.shard.operations.names:
                return await _ask(node.shard.operations, request)
            case op:
                known = ", ".join(["summary", "status", "metrics", "anatomy", "drive", *node.shard.operations.names])
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
