"""Definitions for those who have proved the secret of the cluster on the control port."""

from __future__ import annotations

from typing import Any

from reference_broker.management.cluster import ManagedCluster
from reference_broker.management.definitions import export
from reference_broker.management.errors import ApiError
from reference_broker.management.importing import import_definitions
from reference_broker.node.links.peer_requests import Answer, failure
from reference_broker.node.shard import Shard


async def answer(shard: Shard, request: Answer) -> Answer:
    """Export or import definitions."""
    cluster = ManagedCluster(shard)
    if request["op"] == "definitions":
        return {"ok": True, "definitions": export(cluster.machine)}
    given: Any = request.get("definitions")
    try:
        _code, said = await import_definitions(cluster, {}, given)
    except ApiError as refused:
        return failure(refused.reason, "mend the file and import it again")
    return {"ok": True, **(said or {})}
