"""A broker whose nodes live in the namespaces of a network, and its clients there."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pamqp import commands

from infra.cluster import Cluster, Directories, Node, make_secret, plan
from infra.control import change, summary_of
from infra.node_process import end_children, spawn, start_time, wait
from tests.integration.storm_clients import Clients, Connection, Load, LoadedQueue, Place
from tests.partitions.network import SIDES, Network, address

_PORTS = (5691, 5791, 5891, 5991)
_LOAD = Load(burst=5, every_s=0.1, window=200, prefetch=50)
_START_S = 60.0
HOME = "node1"
"""Where the classic queue is declared, and the mirrored queue too."""
KINDS = {
    "quorum": LoadedQueue("quorum", {"x-queue-type": "quorum"}),
    "mirrored": LoadedQueue("mirrored", {"x-queue-type": "classic"}),
    "classic": LoadedQueue("classic", {"x-queue-type": "classic"}),
}
_POLICY = {"op": "set-policy", "name": "mirrors", "pattern": "^mirrored$", "priority": 0, "vhost": "/",
           "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}  # fmt: skip

T = TypeVar("T")


class Broker:
    """Three nodes, one in each namespace."""

    def __init__(self, network: Network, directory: Path) -> None:
        self._network = network
        ports = [_PORTS for _ in SIDES]
        planned = plan(directory, "partitions", ports, Directories())
        nodes = tuple(replace(node, host=address(node.name)) for node in planned.nodes)
        self.cluster: Cluster = replace(planned, nodes=nodes)

    def inside(self, side: str, task: Callable[[], T]) -> T:
        """The result of a task that a thread does in the namespace of a side. Raises what the task raises."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self._network.enter(side)
                results.append(task())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def summary(self, side: str) -> dict[str, Any]:
        """What a node says of itself."""
        return self.inside(side, lambda: summary_of(self.cluster, self.cluster.node(side)))

    def log(self, side: str) -> str:
        """Everything that a node has logged."""
        return Path(self.cluster.node(side).log_file).read_text(errors="replace")

    def victim(self, role: str) -> str:
        """The node that plays a role now: the leader of the quorum queue, the home of the others, or the named one."""
        if role in SIDES:
            return role
        if role == "leader":
            rows = [(side, row) for side in SIDES for row in self.summary(side).get("busiest", ())]
            leaders = [(row["term"], side) for side, row in rows if row["name"] == "quorum" and row["role"] == "leader"]
            return max(leaders)[1] if leaders else HOME
        return HOME

    def clients(self, kind: str, seed: int) -> Clients:
        """A publisher and a consumer on each node, which stay there."""
        places = [Place(node.amqp_port, node.host, partial(self._network.enter, node.name)) for node in self.nodes]
        return Clients(places, seed, _LOAD, queue=KINDS[kind], pinned=True)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes."""
        return self.cluster.nodes


@contextlib.contextmanager
def running(network: Network, directory: Path) -> Iterator[Broker]:
    """A broker that serves, with a policy for mirrored queues and all queues declared at their home. No node is left
    afterwards."""
    broker = Broker(network, directory)
    make_secret(broker.cluster)
    children: list[subprocess.Popen[bytes]] = []
    try:
        for node in broker.nodes:
            start = partial(spawn, broker.cluster, node, exit_with_stdin=True)
            children.append(broker.inside(node.name, start))
        own = [
            replace(node, pid=child.pid, start_time=start_time(child.pid) or 0)
            for node, child in zip(broker.nodes, children, strict=True)
        ]
        broker.cluster = replace(broker.cluster, nodes=tuple(own))
        assert wait(lambda: all(broker.summary(side).get("ready") for side in SIDES), _START_S), broker.log(HOME)
        broker.inside(HOME, lambda: change(broker.cluster, _POLICY))
        broker.inside(HOME, partial(_declare, broker.nodes[0]))
        yield broker
    finally:
        end_children(children)


def _declare(home: Node) -> None:
    for queue in KINDS.values():
        with Connection(home.amqp_port, "declaring", home.host) as connection:
            connection.call(commands.Queue.Declare(queue=queue.name, durable=True, arguments=dict(queue.arguments)))
