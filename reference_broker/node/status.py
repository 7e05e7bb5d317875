"""What a node says of itself on the control port."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

from reference_broker.node.hosting import Queue
from reference_broker.node.proxy import Proxy
from reference_broker.types import METADATA_GROUP, NOBODY

if TYPE_CHECKING:
    from reference_broker.node.server import Node


def status(node: Node) -> dict[str, Any]:
    """Where this node stands. Counters are cumulative since its start."""
    shard, config = node.shard, node.config
    queues = [queue_row(queue) for queue in shard.queues.values()]
    here = [queue for queue in queues if queue["role"] != "proxy"]
    metadata = shard.runners[METADATA_GROUP].core
    leads = any(queue["role"] == "leader" for queue in here) if here else metadata.role == "leader"
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
        "metrics_port": config.me.metrics_port,
        "data_dir": str(config.data_dir),
        "wal_dir": str(config.wal_dir),
        "segment_dir": str(config.segment_dir),
        "durability": _durability(node),
        "connections": len(shard.clients),
        "queues": queues,
        "metrics": {
            **shard.log.counters(),
            "delivered": shard.delivered,
            "redelivered": shard.redelivered,
            **usage(),
        },
    }


def usage() -> dict[str, int]:
    """What the process took so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_ns": int((used.ru_utime + used.ru_stime) * 1e9), "rss_max_bytes": used.ru_maxrss * 1024}


def queue_row(queue: Queue) -> dict[str, Any]:
    """Where this node stands with one queue; ``behind`` says why its member applies nothing, if it does not."""
    runner = queue.runner
    if isinstance(runner, Proxy) or queue.host is None:
        return {"name": queue.record.name, "role": "proxy", "leader": runner.leader, "members": queue.record.members}
    core, counts = runner.core, queue.host.machine.counts()
    row = {
        "name": queue.record.name,
        "role": str(core.role),
        "leader": core.leader,
        "members": queue.record.members,
        "term": core.term,
        "last_index": core.log.last_index,
        "synced_index": core.log.synced_index,
        "commit_index": core.commit_index,
        "applied_index": runner.applied,
        "snapshot_index": core.log.snapshot_index,
        "ready": counts.ready,
        "unacked": counts.unacked,
        "consumers": counts.consumers,
    }
    if runner.newer_machine:
        row["behind"] = f"machine version {runner.newer_machine} is in effect, this node has {runner.host.version}"
    return row


def _durability(node: Node) -> str:
    members = len(node.config.members)
    if not node.config.sync:
        return "none: this node does not sync its WAL"
    if members == 1:
        return "fdatasync before each confirm"
    return "fdatasync on a majority of a queue's members before each confirm"
