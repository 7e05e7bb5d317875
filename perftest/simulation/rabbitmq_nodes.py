"""The model of RabbitMQ as a cluster of a simulated world: it speaks AMQP with the production generator.

The octets of a client go through the protocol core of the bundled broker, which costs nothing here: what RabbitMQ's
processes cost is in the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from perftest.rabbitmq_model.channel import ModelledChannel
from perftest.rabbitmq_model.cluster import RabbitCluster
from perftest.rabbitmq_model.consumer import Subscriber
from perftest.rabbitmq_model.costs import RabbitCosts
from perftest.rabbitmq_model.messages import MessageLot
from perftest.rabbitmq_model.node import ModelledNode
from perftest.rabbitmq_model.processes import Cores
from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.events import (
    BindingChange,
    Cancel,
    ChannelClosed,
    ConnectionClosed,
    Consume,
    Event,
    ExchangeDeclare,
    ExchangeDelete,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Settled,
)
from reference_broker.amqp.product import Product
from reference_broker.virtual.cluster import AMQP_PORT, ProcessState
from reference_broker.virtual.files import VirtualDrive
from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.network import VirtualNetwork
from reference_broker.virtual.world import Machine, Process, VirtualWorld

VERSION: Final = "3.10"
_PRODUCT: Final = Product("RabbitMQ", VERSION, "model")
_UNREAD_MAX: Final = 2000
"""Messages beyond the reader's credit that a socket's buffers hold. Then the client has to wait."""
_LOOK_AGAIN_S: Final = 0.001
_NOT_IMPLEMENTED: Final = 540
KINDS: Final = ("reader", "channel", "writer", "leader", "follower", "classic", "wal")
"""Kinds of processes of a node."""


class RabbitConnection(asyncio.Protocol):
    """One client's connection (:class:`perftest.rabbitmq_model.channel.Client`)."""

    def __init__(self, node: RabbitNode) -> None:
        self._node = node
        self._loop = node.loop
        self._core = ServerConnection(ConnectionConfig(product=_PRODUCT, node_properties={"node": node.name}))
        self._channels: dict[int, ModelledChannel] = {}
        self._consumers: dict[tuple[int, str], Subscriber] = {}
        self._ids: dict[tuple[int, str], int] = {}
        self._transport: Any = None
        self._flush_asked = False
        self._is_paused = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client dialled."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle all events in these octets."""
        events = self._core.receive(data, self._loop.time())
        while events:
            for event in events:
                self._handle(event)
            events = self._core.go_on()
        self._flush()
        self._regulate()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client is gone."""
        for (number, _), consumer in self._consumers.items():
            self._channel(number).cancel(consumer)
        self._consumers.clear()

    def pause_writing(self) -> None:
        """The client reads slowly: the socket keeps what is written."""

    def resume_writing(self) -> None:
        """The client reads."""

    # The model's side

    def confirm(self, channel: ModelledChannel, first_seq: int, last_seq: int) -> None:
        """Publishes are safe."""
        self._core.confirm(channel.number, first_seq, last_seq)
        self._ask_to_flush()

    def deliver(self, consumer: Subscriber, lot: MessageLot) -> None:
        """Messages leave for a consumer."""
        key = (consumer.channel.number, consumer.tag)
        if self._core.deliver(*key, self._ids[key], [(lot.run, lot.start, lot.count, 1)], 0):
            self._ids[key] += lot.count
        self._ask_to_flush()

    def _ask_to_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_asked = False
        self._core.flush_confirms()
        if output := self._core.take_output():
            self._transport.writelines(output)

    def _regulate(self) -> None:
        """Read no more while the reader is too far behind."""
        is_behind = any(channel.unread > _UNREAD_MAX for channel in self._channels.values())
        if is_behind != self._is_paused:
            self._is_paused = is_behind
            (self._transport.pause_reading if is_behind else self._transport.resume_reading)()
        if is_behind:
            self._loop.call_later(_LOOK_AGAIN_S, self._regulate)

    # Events

    def _handle(self, event: Event) -> None:
        match event:
            case Publish():
                self._publish(event)
            case Settled():
                settled = sum(last - first + 1 for first, last in event.ranges)
                self._channel(event.channel).acknowledge(self._consumers[event.channel, event.consumer_tag], settled)
            case Consume():
                self._consume(event)
            case Cancel():
                if (consumer := self._consumers.pop((event.channel, event.consumer_tag), None)) is not None:
                    self._channel(event.channel).cancel(consumer)
                self._core.cancel_ok(event.channel, event.consumer_tag)
            case QueueDeclare() | QueueDelete() | QueuePurge() | ExchangeDeclare() | ExchangeDelete() | BindingChange():
                self._declare(event)
            case ConnectionClosed():
                self._flush()
                self._transport.close()
            case ChannelClosed():
                self._leave(event)
            case _:
                text = f"the model of RabbitMQ has no {type(event).__name__}"
                if (channel := getattr(event, "channel", 0)) != 0:
                    self._core.channel_error(channel, _NOT_IMPLEMENTED, text)

    def _channel(self, number: int) -> ModelledChannel:
        if number not in self._channels:
            self._channels[number] = self._node.new_channel(self, number)
        return self._channels[number]

    def _publish(self, event: Publish) -> None:
        key, run = self._node.cluster.route(event.exchange, event.routing_key), event.run
        octets, channel = len(run.data) // run.count, self._channel(event.channel)
        channel.publish(MessageLot(channel, key, run, 0, run.count, octets, event.first_seq))

    def _consume(self, event: Consume) -> None:
        key = (event.channel, event.consumer_tag)
        queue = self._node.cluster.queues[event.queue]
        consumer = Subscriber(self._channel(event.channel), event.consumer_tag, queue, event.prefetch, event.no_ack)
        self._consumers[key], self._ids[key] = consumer, 1
        self._core.consume_ok(*key)
        self._channel(event.channel).subscribe(consumer)

    def _declare(self, event: Any) -> None:
        cluster, number = self._node.cluster, event.channel
        match event:
            case QueueDeclare():
                name = event.queue or self._node.new_name()
                kind = str(event.arguments.get("x-queue-type", "classic"))
                queue = cluster.declare(name, kind, self._node.model)
                self._core.queue_declare_ok(number, name, queue.ready.count, len(queue.ready.consumers))
            case QueueDelete():
                self._core.queue_delete_ok(number, cluster.delete(event.queue))
            case QueuePurge():
                self._core.queue_purge_ok(number, cluster.queues[event.queue].ready.purge())
            case BindingChange():
                if event.adds and not event.destination.is_exchange:
                    cluster.bind(event.source, event.routing_key, event.destination.name)
                self._core.exchange_ok(number, event.method)
            case _:
                self._core.exchange_ok(number, event.method)

    def _leave(self, event: ChannelClosed) -> None:
        for key in [key for key in self._consumers if key[0] == event.channel]:
            self._channel(event.channel).cancel(self._consumers.pop(key))


class RabbitNode:
    """One node of the model, with its port for clients."""

    failure = ""
    boot_id = 1
    state = ProcessState.RUNNING
    answers = True

    def __init__(
        self, cluster: RabbitCluster, model: ModelledNode, network: VirtualNetwork, port: int, costs: Any
    ) -> None:
        self.name = model.name
        self.cluster = cluster
        self.model = model
        self.loop = VirtualLoop(network.world, Process(Machine(model.host, 1), costs), network)  # type: ignore[abstract]
        self._channels: list[ModelledChannel] = []
        self._names = count(1)
        network.listen(self.loop, port, lambda: RabbitConnection(self))

    def new_channel(self, client: RabbitConnection, number: int) -> ModelledChannel:
        """A channel of a client of this node."""
        self._channels.append(ModelledChannel(self.model, client, number, self.cluster.queues))
        return self._channels[-1]

    def new_name(self) -> str:
        """A name for a queue whose client left the name to the broker."""
        return f"amq.gen-{self.name}-{next(self._names)}"

    def cpu_by_kind(self) -> dict[str, int]:
        """CPU time so far of the node's processes, in ns, by their kinds."""
        found = dict.fromkeys(KINDS, 0)
        for channel in self._channels:
            for kind, process in zip(("reader", "channel", "writer"), channel.processes, strict=True):
                found[kind] += process.cpu_ns
        for queue in self.cluster.all_queues:
            for kind, node, process in queue.processes:
                found[kind] += process.cpu_ns if node is self.model else 0
        return found | {"wal": self.model.logger.cpu_ns}

    @property
    def cpu_ns(self) -> int:
        """CPU time of all processes of the node so far."""
        return sum(self.cpu_by_kind().values())

    def sample(self) -> dict[str, Any]:
        """What ``broker.jsonl`` says of the node."""
        wal, io = self.model.wal, self.model.io
        metrics = {
            "wal_batches": wal.batches, "wal_bytes": wal.octets, "wal_files_emptied": wal.files_emptied,
            "segment_bytes": wal.segment_octets, "segments_written": wal.segments_written,
            "snapshots": self.model.snapshots,
            "io_calls": io.calls, "io_waited_ns_total": io.waited_ns,
        }  # fmt: skip
        metrics |= {f"cpu_{kind}_ns": cpu_ns for kind, cpu_ns in self.cpu_by_kind().items()}
        return {"node": self.name, "pid": self.boot_id, "cpu_ns": self.cpu_ns, "metrics": metrics}

    def anatomy(self) -> dict[str, Any]:
        """RabbitMQ does not tell where the time of a message goes."""
        return {}

    def end(self) -> None:
        """End all tasks."""
        self.loop.kill()


class RabbitNodes:
    """All nodes (as :class:`reference_broker.virtual.cluster.VirtualCluster`)."""

    failure = ""

    def __init__(
        self, world: VirtualWorld, network: VirtualNetwork, machines: list[Machine], costs: RabbitCosts,
        drives: list[Mapping[str, VirtualDrive]], free: Any,
    ) -> None:  # fmt: skip
        """``machines`` and ``drives`` by role have an entry for each node; ``free`` are costs of nothing."""
        cores = {machine.name: Cores(len(machine.free_ns)) for machine in machines}
        models = [
            ModelledNode(
                f"node{number}", machine.name, world, cores[machine.name], costs,
                {role: drive.journal for role, drive in by_role.items()},
                lambda here, there, octets: network.pass_link((here, there), octets),
                0.5 + world.chance.random() / 2,
            )
            for number, (machine, by_role) in enumerate(zip(machines, drives, strict=True), start=1)
        ]  # fmt: skip
        cluster = RabbitCluster(models)
        ports = [AMQP_PORT + number for number in range(1, len(models) + 1)]
        self.nodes = [
            RabbitNode(cluster, model, network, port, free) for model, port in zip(models, ports, strict=True)
        ]
        self.uris = tuple(
            f"amqp://guest:guest@{model.host}:{port}" for model, port in zip(models, ports, strict=True)
        )  # fmt: skip

    def is_ready(self) -> bool:
        """At once."""
        return True

    def end(self) -> None:
        """End all tasks."""
        for node in self.nodes:
            node.end()
