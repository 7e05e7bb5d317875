"""What monitoring asks: whether a node and its cluster fare well. 503 says why not."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pamqp import commands

from reference_broker.access.names import listed
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.management import certificates
from reference_broker.management.cluster import ManagedCluster
from reference_broker.management.errors import BAD_REQUEST, NOT_FOUND, ApiError
from reference_broker.management.session import method
from reference_broker.management.shapes import Row
from reference_broker.node.config import NodeConfig
from reference_broker.node.operations.listeners import listeners_of
from reference_broker.types import METADATA_GROUP

_ALIVE: Final = "aliveness-test"
"""The queue of the liveness test, and its message. Both are RabbitMQ's, so permissions for that test hold for this
one."""
_ALIVE_BODY: Final = b"test_message"
_PROTOCOLS: Final = {
    "amqp091": "amqp", "amqp0.9.1": "amqp", "amqp-0-9-1": "amqp", "amqps": "amqp/ssl", "amqp/tls": "amqp/ssl",
    "https": "https", "distribution": "clustering",
}  # fmt: skip
"""Other names of protocols."""
_DAYS: Final = {"day": 1.0, "week": 7.0, "month": 365 / 12, "year": 365.0}
_WITHIN_MAX: Final = 10_000
Reason = str | None


async def alarms(cluster: ManagedCluster, _at: Row) -> Row:
    """Whether an alarm stops publishers. 503 if one does."""
    return _healthy(not cluster.shard.alarms.reason, f"resource alarms: {cluster.shard.alarms.reason}")


async def local_alarms(cluster: ManagedCluster, _at: Row) -> Row:
    """The same for this node."""
    return _healthy(not cluster.shard.alarms.own, "this node has a resource alarm")


async def virtual_hosts(cluster: ManagedCluster, _at: Row) -> Row:
    """Whether the virtual hosts can be used: whether the metadata has a leader."""
    return _healthy(_has_leader(cluster), "the metadata has no leader")


async def is_quorum_critical(cluster: ManagedCluster, _at: Row) -> Row:
    """Whether this node may stop: no quorum queue would lose its majority. 503 if one would."""
    nodes, here = cluster.nodes, cluster.shard.node
    critical = [
        listed(record.name)
        for record in cluster.machine.queues.values()
        if record.kind != "classic" and here in record.members and len(record.members) > 1
        and 2 * (sum(nodes[each][1] for each in record.members if each in nodes) - 1) <= len(record.members)
    ]  # fmt: skip
    reason = f"{len(critical)} quorum queues would lose their majority, such as {', '.join(critical[:10])}"
    return _healthy(not critical, reason)


async def is_mirror_sync_critical(cluster: ManagedCluster, _at: Row) -> Row:
    """Whether this node may stop: each mirrored queue of it has a mirror with every message. 503 if one has none."""
    here = cluster.shard.node
    critical = [
        listed(record.name)
        for record in cluster.machine.queues.values()
        if record.mirrors and record.leader == here and not _has_copy(cluster, record)
    ]
    reason = f"{len(critical)} queues have no synchronised mirror elsewhere, such as {', '.join(critical[:10])}"
    return _healthy(not critical, reason)


def _has_copy(cluster: ManagedCluster, record: QueueRecord) -> bool:
    nodes = cluster.nodes
    return any(mirror.is_synchronised and nodes.get(mirror.node, ("", False))[1] for mirror in record.mirrors)


async def port_listener(cluster: ManagedCluster, at: Row) -> Row:
    """Whether this node listens on a port."""
    if not re.fullmatch("[0-9]{1,5}", at["port"]):
        raise ApiError(BAD_REQUEST, "Invalid port")
    port, ports = int(at["port"]), [row["port"] for row in listeners_of(cluster.shard.config)]
    return {**_healthy(port in ports, "No active listener", missing=port, ports=ports), "port": port}


async def protocol_listener(cluster: ManagedCluster, at: Row) -> Row:
    """Whether this node listens for a protocol."""
    asked = at["protocol"].lower()
    protocol = _PROTOCOLS.get(asked, asked)
    protocols = [row["protocol"] for row in listeners_of(cluster.shard.config)]
    well = _healthy(protocol in protocols, "No active listener", missing=protocol, protocols=protocols)
    return {**well, "protocol": protocol}


async def certificate_expiration(cluster: ManagedCluster, at: Row) -> Row:
    """Whether the certificates of this node hold for so long yet. 503 if one does not."""
    if not re.fullmatch("[0-9]{1,5}", at["within"]) or int(at["within"]) > _WITHIN_MAX:
        raise ApiError(BAD_REQUEST, "Invalid expiration value.")
    days = _DAYS.get(at["unit"].removesuffix("s"))
    if days is None:
        raise ApiError(BAD_REQUEST, "Time unit not recognised. Supported units: days, weeks, months, years.")
    until = datetime.now(UTC) + timedelta(days=days * int(at["within"]))
    rows = await asyncio.to_thread(_ends, cluster.shard.config)
    late = [row | {"certfile_expires_on": str(row["certfile_expires_on"])} for row in rows if _ends_by(row, until)]
    return _healthy(not late, "Certificates expiring", expired=late)


def _ends(config: NodeConfig) -> list[Row]:
    """Each certificate of the node and its end; the reason why that cannot be read, if so."""
    found: list[Row] = []
    for protocol, tls in (("amqp/ssl", config.client_tls), ("clustering", config.tls)):
        if tls is not None:
            try:
                end: datetime | str = certificates.end_of(Path(tls.certificate))
            except (OSError, ValueError) as error:
                end = f"it cannot be read: {error}"
            row = {"node": config.name, "protocol": protocol, "certfile": tls.certificate}
            found.append(row | {"certfile_expires_on": end})
    return found


def _ends_by(row: Row, until: datetime) -> bool:
    end = row["certfile_expires_on"]
    return not isinstance(end, datetime) or end <= until


async def node(cluster: ManagedCluster, _at: Row) -> Row:
    """RabbitMQ's older check of a node, which tells of what is wrong with 200."""
    return _told(_wrong_here(cluster))


async def node_of_name(cluster: ManagedCluster, at: Row) -> Row:
    """The same for a node of the cluster."""
    row = next((each for each in await cluster.node_rows() if each["name"] == at["name"]), None)
    if row is None:
        raise ApiError(NOT_FOUND, "Not Found")
    if not row["running"]:
        return _told(f"node {at['name']} is down, or out of reach")
    has_alarm = row["mem_alarm"] or row["disk_free_alarm"]
    return _told(f"node {at['name']} has a resource alarm" if has_alarm else None)


def _wrong_here(cluster: ManagedCluster) -> Reason:
    if cluster.shard.alarms.own:
        return "this node has a resource alarm"
    return None if _has_leader(cluster) else "the metadata has no leader"


def _told(wrong: Reason) -> Row:
    return {"status": "ok"} if wrong is None else {"status": "failed", "reason": wrong}


async def aliveness(cluster: ManagedCluster, at: Row) -> Row:
    """Whether a message goes in and comes out, as the user who asks. The queue of the test stays, as RabbitMQ's."""
    async with cluster.session(at) as session:
        declared = method(commands.Queue.Declare, queue=_ALIVE, arguments={})
        await session.call(declared, commands.Queue.DeclareOk)
        await session.publish("", _ALIVE, commands.Basic.Properties(), _ALIVE_BODY)
        got = await session.get(_ALIVE, no_ack=True)
    return _told(None if got is not None and got[2] == _ALIVE_BODY else "the message of the test did not come out")


def _has_leader(cluster: ManagedCluster) -> bool:
    return bool(cluster.shard.runners[METADATA_GROUP].core.leader)


def _healthy(is_well: bool, reason: str, **more: Any) -> Row:
    if not is_well:
        raise ApiError(503, reason, **more)
    return {"status": "ok"}
