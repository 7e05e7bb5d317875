"""Keyed queues of three real processes, spoken to by pika: replicated on Raft, and on the store of one node."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster
from infra.local_cluster import Cluster
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until

pytestmark = pytest.mark.processes

ON_RAFT = {"x-queue-type": "keyed"}
ON_STORE = {"x-key": "header:x-group-key"}
KINDS = pytest.mark.parametrize("kind", [ON_RAFT, ON_STORE], ids=["raft", "store"])
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
WAIT_S = 30


def push(channel: BlockingChannel, queue: str, *bodies: str, **headers: Any) -> None:
    """Publish bodies such as ``a1``, whose first letter is the key; each is confirmed before the next."""
    for body in bodies:
        properties = pika.BasicProperties(delivery_mode=2, headers={"x-group-key": body[0], **headers})
        channel.basic_publish("", queue, body.encode(), properties, mandatory=True)


@dataclass
class Worker:
    """A consumer on a connection of its own. ``held`` is what it has and has not settled, by delivery tag."""

    connection: pika.BlockingConnection
    queue: str
    prefetch: int = 10
    held: dict[int, str] = field(default_factory=dict)
    seen: list[tuple[str, int]] = field(default_factory=list)
    """Body and delivery count of each delivery."""

    def __post_init__(self) -> None:
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=self.prefetch)
        self.tag = self.channel.basic_consume(self.queue, self._delivered)

    def _delivered(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.held[method.delivery_tag] = body.decode()
        self.seen.append((body.decode(), (properties.headers or {}).get("x-delivery-count", 0)))

    def settle(self, body: str, requeue: bool | None = None) -> None:
        """Acknowledge a message that is held; or return it, or reject it."""
        tag = next(tag for tag, held in self.held.items() if held == body)
        del self.held[tag]
        if requeue is None:
            self.channel.basic_ack(tag)
        else:
            self.channel.basic_nack(tag, requeue=requeue)


def run_until(workers: list[Worker], is_done: Callable[[], bool]) -> None:
    """Let the workers receive until something is so."""
    end = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < end, [worker.seen for worker in workers]
        for worker in workers:
            worker.connection.process_data_events(0.01)


def held(workers: list[Worker]) -> list[str]:
    return sorted(body for worker in workers for body in worker.held.values())


@KINDS
def test_one_message_of_a_key_at_a_time_over_all_consumers(
    cluster: Cluster, request: pytest.FixtureRequest, kind: dict[str, Any]
) -> None:
    """Two workers on two nodes: never two messages of one customer at once, and each customer's in order."""
    name, first = request.node.name, cluster.nodes[0]
    numbers = range(40)
    with connect(first) as publisher, connect(cluster.nodes[1]) as one, connect(cluster.nodes[2]) as other:
        channel = publisher.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=kind)
        push(channel, name, *(f"{key}{number}" for number in numbers for key in "abc"))
        workers, done = [Worker(one, name), Worker(other, name)], defaultdict[str, list[str]](list)
        while sum(map(len, done.values())) < 3 * len(numbers):
            run_until(workers, lambda: bool(held(workers)))
            keys = [body[0] for body in held(workers)]
            assert len(keys) == len(set(keys))
            worker = max(workers, key=lambda each: len(each.held))
            for body in list(worker.held.values()):
                done[body[0]].append(body)
                worker.settle(body)
        assert done == {key: [f"{key}{number}" for number in numbers] for key in "abc"}
        assert channel.queue_declare(name, passive=True).method.message_count == 0


@KINDS
def test_a_message_that_comes_back_holds_up_its_key_alone(
    cluster: Cluster, request: pytest.FixtureRequest, kind: dict[str, Any]
) -> None:
    """It comes again before all others of its key; after three tries it is a dead letter, and the key goes on."""
    name = request.node.name
    with connect(cluster.nodes[0]) as publisher, connect(cluster.nodes[1]) as one:
        channel = publisher.channel()
        channel.confirm_delivery()
        channel.queue_declare("dead", durable=True)
        channel.queue_declare(name, durable=True, arguments={**kind, "x-max-tries": 3, **DEAD})
        push(channel, name, "a0", "a1", "b0", "b1")
        worker = Worker(one, name)
        for tries in range(3):
            run_until([worker], lambda: "a0" in worker.held.values())
            assert ("a0", tries) in worker.seen
            assert "a1" not in worker.held.values()
            worker.settle("a0", requeue=True)
        run_until([worker], lambda: held([worker]) == ["a1", "b0"])
        api = Api(f"http://127.0.0.1:{cluster.nodes[2].metrics_port}")
        until(api.is_there)  # its port opens a little later than that of AMQP
        seen = api.call("GET", f"queues/%2F/{quote(name)}")[1]
        assert (seen["keys"], seen["keys_reserved"], seen["messages_unacknowledged"]) == (2, 2, 2)
        worker.settle("b0", requeue=False)
        run_until([worker], lambda: held([worker]) == ["a1", "b1"])
        letters = [body for _method, _properties, body in dead_letters(channel, 2)]
        assert letters == [b"a0", b"b0"]


def dead_letters(channel: BlockingChannel, count: int) -> list[Any]:
    taken = []
    for message in channel.consume("dead", auto_ack=True, inactivity_timeout=WAIT_S):
        taken.append(message)
        if len(taken) == count:
            break
    channel.cancel()
    return taken


@KINDS
def test_delays_hold_their_key_up_and_no_other(
    cluster: Cluster, request: pytest.FixtureRequest, kind: dict[str, Any]
) -> None:
    """A late message first, then the next of its key at once; a returned message after the delay that it names."""
    name, clock = request.node.name, time.monotonic
    with connect(cluster.nodes[0]) as publisher, connect(cluster.nodes[2]) as one:
        channel = publisher.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=kind)
        worker, began = Worker(one, name), clock()
        push(channel, name, "a0", **{"x-delay": 700})
        push(channel, name, "a1", **{"x-delay": 1})
        push(channel, name, "b0", **{"x-retry-delay": 500})
        run_until([worker], lambda: bool(worker.held))
        assert held([worker]) == ["b0"]
        worker.settle("b0", requeue=True)
        returned = clock()
        run_until([worker], lambda: ("b0", 1) in worker.seen)
        assert clock() - returned >= 0.5
        run_until([worker], lambda: "a0" in worker.held.values())
        assert clock() - began >= 0.7
        worker.settle("a0")
        run_until([worker], lambda: "a1" in worker.held.values())


@KINDS
def test_a_worker_that_hangs_loses_its_message_and_harms_nobody(
    cluster: Cluster, request: pytest.FixtureRequest, kind: dict[str, Any]
) -> None:
    """Its message goes to another worker, which goes on with the next. What the first worker says then comes too late:
    it neither settles nor frees a message of the other."""
    name = request.node.name
    with connect(cluster.nodes[0]) as publisher, connect(cluster.nodes[1]) as one, connect(cluster.nodes[2]) as other:
        channel = publisher.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments={**kind, "x-reserve-timeout": 2000})
        push(channel, name, "a0", "a1")
        hanging = Worker(one, name)
        run_until([hanging], lambda: held([hanging]) == ["a0"])
        hanging.channel.basic_cancel(hanging.tag)  # it keeps the message
        good = Worker(other, name)
        run_until([good], lambda: held([good]) == ["a0"])
        good.settle("a0")
        run_until([good], lambda: held([good]) == ["a1"])
        hanging.settle("a0", requeue=True)
        assert hanging.channel.queue_declare(name, passive=True).method.message_count == 0
        push(channel, name, "b0")
        run_until([good], lambda: held([good]) == ["a1", "b0"])
        assert good.seen == [("a0", 1), ("a1", 0), ("b0", 0)]
        good.settle("a1")
        good.settle("b0")


@pytest.mark.slow
def test_any_of_three_nodes_may_die_with_a_key_out(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """The leader is killed while a worker holds the head of a key: nothing confirmed is lost, nothing overtakes."""
    name = request.node.name
    with local_cluster.temporary(tmp_path_factory.mktemp("cluster")) as cluster:
        doomed = connect(cluster.nodes[0])
        channel = doomed.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=ON_RAFT)
        push(channel, name, *(f"{key}{number}" for number in range(5) for key in "ab"))
        holder = Worker(doomed, name)
        run_until([holder], lambda: held([holder]) == ["a0", "b0"])
        holder.settle("b0")
        run_until([holder], lambda: held([holder]) == ["a0", "b1"])
        local_cluster.kill(cluster, cluster.nodes[0].name)
        with contextlib.suppress(pika.exceptions.AMQPError):
            doomed.close()
        with connect(cluster.nodes[1]) as survivor:
            worker = Worker(survivor, name, prefetch=1)
            order = [f"{key}{number}" for key, first in (("a", 0), ("b", 1)) for number in range(first, 5)]
            done = list[str]()
            while len(done) < len(order):
                run_until([worker], lambda: bool(worker.held))
                (body,) = worker.held.values()
                done.append(body)
                worker.settle(body)
        for key in "ab":
            assert [body for body in done if body[0] == key] == [body for body in order if body[0] == key]


@pytest.mark.slow
def test_the_store_keeps_the_keys_over_a_restart(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """A classic queue with keys reads them again from its messages."""
    name = request.node.name
    with local_cluster.temporary(tmp_path_factory.mktemp("cluster"), nodes=1) as cluster:
        (node,) = cluster.nodes
        doomed = connect(node)
        channel = doomed.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=ON_STORE)
        push(channel, name, "a0", "b0", "a1", "a2", "b1")
        local_cluster.kill(cluster, node.name)
        with contextlib.suppress(pika.exceptions.AMQPError):
            doomed.close()
        local_cluster.start_node(cluster, node.name, until_ready=True)
        with connect(node) as again:
            worker = Worker(again, name)
            for expected in (["a0", "b0"], ["a1", "b1"], ["a2"]):
                run_until([worker], lambda expected=expected: held([worker]) == expected)
                for body in expected:
                    worker.settle(body)
