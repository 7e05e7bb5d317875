"""Who watches a node costs nothing where nobody does."""

from __future__ import annotations

from reference_broker.node.links.peers import Peers
from reference_broker.node.observer import NO_OBSERVER
from tests.reference_broker.node.quiet_cluster import NODES, quiet_cluster


def test_a_node_that_nobody_watches_makes_the_calls_of_its_parts_themselves() -> None:
    """An observer in between would be a call more for each message, and a message's way is counted in calls."""
    with quiet_cluster() as cluster:
        cluster.declare(["q"])
        shard = cluster.shards[NODES[0]]
        assert shard.send == shard.peers.send and shard.peers.send.__func__ is Peers.send  # type: ignore[attr-defined]
        assert shard.clients.deliver == shard.clients._deliver
        for runner in shard.runners.values():
            assert (runner._apply_entry, runner._install_state) == (runner.host.apply, runner.host.install)
        assert NO_OBSERVER.log(shard.log) is shard.log
