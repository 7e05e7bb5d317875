"""``kill -9`` of the leader under load: how long nothing is confirmed; and nothing confirmed may be lost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.bench.context import Context, free_base_port
from tests.bench.figures import REFERENCE, BenchError
from tests.integration.storm_clients import Account, Clients

_SEED = 20
_TIMEOUT_S = 60.0
_POLL_S = 0.02
_CONFIRMS = 500
"""More than can have been on their way when the leader died: after so many, somebody else leads."""


def measure(context: Context, _names: list[str]) -> None:
    """Kill the leader so many times, each time bringing it back; three publishers and consumers go on all the while."""
    with tempfile.TemporaryDirectory(dir=context.directory) as temporary:
        directory = Path(temporary) / "cluster"
        cluster = local_cluster.start(directory, base_port=free_base_port())
        try:
            with Clients([node.amqp_port for node in cluster.nodes], _SEED) as clients:
                _until(lambda: len(clients.account.delivered) > _CONFIRMS, "the load")
                for _ in range(context.lengths.kills):
                    cluster, gap_s = kill_leader(cluster, clients.account)
                    context.note("kills", REFERENCE, {"gap_s": gap_s})
                _nothing_is_lost(clients)
        finally:
            local_cluster.stop(local_cluster.load(directory))


def kill_leader(cluster: Cluster, account: Account) -> tuple[Cluster, float]:
    """Kill the leader of the queue, see the others go on, bring it back; the longest time without a confirm."""
    _until(lambda: bool(_leader(cluster)), "a leader")
    victim = _leader(cluster)
    began = time.monotonic()
    local_cluster.kill(cluster, victim)
    _until(lambda: _leader(cluster) not in ("", victim), f"another leader than {victim}")
    _until_more(account, "the election")
    cluster = local_cluster.start_node(cluster, victim)
    _until(lambda: all(row.get("ready") for row in local_cluster.status(cluster)), f"the return of {victim}")
    _until_more(account, f"the return of {victim}")
    return cluster, account.longest_gap_s(began, time.monotonic())


def _leader(cluster: Cluster) -> str:
    """The node that leads the queue in the highest term, empty when there is none."""
    rows = local_cluster.status(cluster)
    held = [
        (queue["term"], row["name"]) for row in rows for queue in row.get("queues", ()) if queue["role"] == "leader"
    ]
    return str(max(held)[1]) if held else ""


def _until_more(account: Account, after: str) -> None:
    enough = len(account.confirmed) + _CONFIRMS
    _until(lambda: len(account.confirmed) > enough, f"{_CONFIRMS} confirms after {after}")


def _until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise BenchError(f"{what} did not come within {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _nothing_is_lost(clients: Clients) -> None:
    clients.stop_publishing()
    _until(lambda: not clients.account.lost(), "the delivery of everything that was confirmed")
    if clients.account.wrong:
        raise BenchError(f"{len(clients.account.wrong)} wrong deliveries, the first {clients.account.wrong[0]}")
