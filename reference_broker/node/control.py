"""The control port: one JSON object per line in, one out. For the operator's commands, on loopback.

Requests: ``{"op": "status"}``, ``{"op": "anatomy"}``. An unknown or damaged request gets ``{"error": ...}``; the port
never takes the node down.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
from typing import TYPE_CHECKING, Any, Final

from reference_broker.types import METADATA_GROUP, NOBODY

if TYPE_CHECKING:
    from reference_broker.node.server import Node

_REQUEST_MAX: Final = 65_536


async def serve(node: Node) -> asyncio.Server:
    """Listen on the node's control port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await respond(node, line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # gone, or a line without end: nothing to answer
        finally:
            writer.close()

    me = node.config.me
    return await asyncio.start_server(handle, me.host, me.control_port, limit=_REQUEST_MAX)


async def respond(node: Node, line: bytes) -> dict[str, Any]:
    """The answer to one request, also to one whose answer takes time."""
    answered = answer(node, line)
    if (snapshot := answered.pop("snapshot", None)) is not None:
        answered |= await asyncio.to_thread(snapshot.to_json)  # milliseconds that must not delay a message
    return answered


def answer(node: Node, line: bytes) -> dict[str, Any]:
    """The answer to one request."""
    try:
        request = json.loads(line)
    except ValueError:
        return {"error": "not a JSON object"}
    if isinstance(request, dict) and request.get("op") == "status":
        return status(node)
    if isinstance(request, dict) and request.get("op") == "anatomy":
        return anatomy(node)
    return {"error": 'unknown request; this node answers {"op": "status"} and {"op": "anatomy"}'}


def anatomy(node: Node) -> dict[str, Any]:
    """The latency anatomy since the start of this life of the node; :func:`respond` encodes the snapshot."""
    identity = {"name": node.config.name, "node": node.config.node, "incarnation": node.shard.incarnation}
    return {**identity, "snapshot": node.shard.anatomy.snapshot()}


def status(node: Node) -> dict[str, Any]:
    """Where this node stands. Counters are cumulative since its start."""
    shard, config = node.shard, node.config
    queues = [
        {
            "name": queue.record.name,
            "role": str(queue.runner.core.role),
            "leader": queue.runner.core.leader,
            "term": queue.runner.core.term,
            "last_index": queue.runner.core.log.last_index,
            "synced_index": queue.runner.core.log.synced_index,
            "commit_index": queue.runner.core.commit_index,
            "applied_index": queue.runner.applied,
            "snapshot_index": queue.runner.core.log.snapshot_index,
            **_counts(queue.host.machine.counts()),
        }
        for queue in shard.queues.values()
    ]
    metadata = shard.runners[METADATA_GROUP].core
    leads = any(queue["role"] == "leader" for queue in queues) if queues else metadata.role == "leader"
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "name": config.name,
        "node": config.node,
        "pid": os.getpid(),
        "ready": metadata.leader != NOBODY and node.listening,
        "role": "leader" if leads else "follower",
        "leader": metadata.leader,
        "term": metadata.term,
        "incarnation": shard.incarnation,
        "amqp_port": config.me.amqp_port,
        "data_dir": str(config.data_dir),
        "wal_dir": str(config.wal_dir),
        "durability": _durability(node),
        "connections": len(shard.clients),
        "queues": queues,
        "metrics": {
            **shard.log.counters(),
            "delivered": shard.delivered,
            "redelivered": shard.redelivered,
            "cpu_ns": int((usage.ru_utime + usage.ru_stime) * 1e9),
            "rss_max_bytes": usage.ru_maxrss * 1024,
        },
    }


def _counts(counts: Any) -> dict[str, int]:
    return {"ready": counts.ready, "unacked": counts.unacked, "consumers": counts.consumers}


def _durability(node: Node) -> str:
    members = len(node.config.members)
    if not node.config.sync:
        return "none: this node does not sync its WAL"
    if members == 1:
        return "fdatasync before each confirm"
    return f"fdatasync on a majority of {members} before each confirm"
