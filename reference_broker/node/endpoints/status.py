"""The status of a node for the control port."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

from reference_broker.node.hosting.hosted_queues import Hosting
from reference_broker.node.replication.queue_runner import QueueRunner
from reference_broker.queues.port import Queue
from reference_broker.storage.findings import rows
from reference_broker.types import METADATA_GROUP, NOBODY

if TYPE_CHECKING:
    from reference_broker.node.config import NodeConfig
    from reference_broker.node.shard import Shard


def summary(shard: Shard, *, listening: bool, serves_http: bool) -> dict[str, Any]:
    """A node's summary of itself. It covers only the few queues that have committed most, so it is cheap with any
    number of queues. ``listening``: clients can connect; ``serves_http``: so can clients of the metrics port, if the
    node has one. Counters are cumulative since the node's start."""
    config, hosting = shard.config, shard.hosting
    metadata = shard.runners[METADATA_GROUP]
    return {
        "name": config.name,
        "node": config.node,
        "pid": os.getpid(),
        "ready": metadata.core.leader != NOBODY and listening,
        "serves_http": serves_http,
        "queue_count": len(hosting.by_group),
        "leading": len(hosting.census.leading),
        "leaderless": len(hosting.census.leaderless),
        "electing": shard.electing(),
        "forgetful": len(hosting.forgetful),
        "metadata_applied": metadata.applied,
        "role": role(hosting),
        "leader": metadata.core.leader,
        "term": metadata.core.term,
        "incarnation": shard.boot_id,
        "amqp_port": config.me.amqp_port,
        "metrics_port": config.me.metrics_port,
        "data_dir": str(config.data_dir),
        "wal_dir": str(config.wal_dir),
        "segment_dir": str(config.segment_dir),
        "classic_dir": str(config.classic_dir),
        "durability": _durability(config),
        "connections": len(shard.clients.connections),
        "busiest": busiest(hosting),
        "metrics": {**counters(shard), **usage()},
        "links": links(shard),
        "findings": rows(shard.findings.all()),
        **({"drives": shard.drives.status()} if config.drives else {}),
    }


def role(hosting: Hosting) -> str:
    """``leader`` or ``follower``."""
    return "leader" if _leads(hosting) else "follower"


def busiest(hosting: Hosting) -> list[dict[str, Any]]:
    """The node's standing with the few queues that have committed most."""
    return [queue_row(hosting.by_group[group], hosting.hosted.get(group)) for group in hosting.busiest.groups()]


def counters(shard: Shard) -> dict[str, int]:
    """All counters of the node except its process's use of the machine."""
    return {
        **shard.log.counters(),
        **shard.owned.counters(),
        "delivered": shard.clients.delivered,
        "redelivered": shard.clients.redelivered,
    }


def links(shard: Shard) -> dict[str, dict[str, int]]:
    """Octets that the node sent to each peer since its start, by purpose."""
    return {shard.nodes.name(node): sent for node, sent in shard.link_octets.by_purpose().items()}


def _leads(hosting: Hosting) -> bool:
    """Whether the node leads any queue; without a member of one, whether it leads the metadata."""
    of_queues = any(group != METADATA_GROUP for group in hosting.hosted)
    return any(not of_queues or group != METADATA_GROUP for group in hosting.census.leading)


def status(shard: Shard, *, listening: bool, serves_http: bool) -> dict[str, Any]:
    """The summary, and where the node stands with each of its queues."""
    rows = [queue_row(queue, shard.hosting.hosted.get(queue.record.group)) for queue in shard.queues.values()]
    return {**summary(shard, listening=listening, serves_http=serves_http), "queues": rows}


def usage() -> dict[str, int]:
    """The CPU time and memory that the process took so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_ns": int((used.ru_utime + used.ru_stime) * 1e9), "rss_max_bytes": used.ru_maxrss * 1024}


def queue_row(queue: Queue, runner: QueueRunner | None) -> dict[str, Any]:
    """This node's standing with one queue, which ``runner`` runs here."""
    record = queue.record
    named = {"name": record.short_name, "vhost": record.vhost}
    if runner is None or queue.member is None:
        return {**named, "role": "proxy", "leader": queue.proposer.leader, "members": record.members}
    standing, counts = runner.standing(), queue.member.counts()
    behind = {"behind": standing.pop("behind")} if "behind" in standing else {}
    return {
        **named,
        "role": standing.pop("role"),
        "leader": standing.pop("leader"),
        "members": record.members,
        **standing,
        "ready": counts.ready,
        "unacked": counts.unacked,
        "consumers": counts.consumers,
        **behind,
    }


def _durability(config: NodeConfig) -> str:
    members = len(config.members)
    if any("wal" in drive.roles for drive in config.drives):
        return "none: the drive of the WAL is modelled, so its syncs last as long as on that drive, and sync nothing"
    if not config.sync:
        return "none: this node does not sync its WAL"
    if members == 1:
        return "fdatasync before each confirm"
    return "fdatasync on a majority of a queue's members before each confirm"
