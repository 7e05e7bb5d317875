"""Who watches a node hears first, and costs nothing where nobody does."""

from __future__ import annotations

from reference_broker.node.links.peers import Peers
from reference_broker.node.observer import NO_OBSERVER, NodeObserver, before
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


def test_an_observer_is_told_before_the_call_is_made() -> None:
    """A checker that heard of a thing after its consequences would blame the wrong one."""
    happened: list[object] = []

    class Watch(NodeObserver):
        def looked_up(self, found: bool) -> None:
            happened.append(("told", found))

    before(Watch().looked_up, happened.append)(True)
    assert happened == [("told", True), True]
    assert before(NO_OBSERVER.looked_up, happened.append) == happened.append
