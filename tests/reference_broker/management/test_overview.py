"""The overview of a cluster with very many channels: everybody's page asks for it every few seconds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from reference_broker.management.reading import overview


def test_channels_are_counted_without_a_look_at_each() -> None:
    """With 40,800 channels, their rows took the nodes 12 s."""

    async def rows(*_: object) -> list[dict[str, Any]]:
        return []

    async def connections() -> list[dict[str, Any]]:
        return [{"user": "guest", "vhost": "/", "channels": 1700}, {"user": "guest", "vhost": "/", "channels": 3}]

    shard = SimpleNamespace(config=SimpleNamespace(cluster="c", name="n"), alarms=SimpleNamespace(reason=""))
    cluster: Any = SimpleNamespace(
        shard=shard, queues=rows, node_rows=rows, exchanges=list, connections=connections,
        rates=SimpleNamespace(beside=lambda told, *_: told),
    )  # fmt: skip
    found = asyncio.run(overview(cluster, {"user": "guest", "monitors": True}))
    assert (found["object_totals"]["connections"], found["object_totals"]["channels"]) == (2, 1703)
