"""A small AMQP 0-9-1 server on loopback that does what a test tells it to, right or wrong.

It speaks the protocol through pamqp only, so it shares no code with the client under test. By default it is an honest
broker with in-memory queues, confirms, prefetch and redelivery; a :class:`Script` makes it lie.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import cast

from pamqp import body, commands, exceptions, frame, header

STAMP_SEQUENCE_AT = 4


class Fate(Enum):
    """What becomes of a published message."""

    DELIVER = auto()
    LOSE = auto()  # confirmed, and gone
    DUPLICATE = auto()  # delivered twice, neither flagged
    DELAY = auto()  # enqueued behind the next message
    DAMAGE = auto()  # an octet of the filler is changed
    RENUMBER = auto()  # the sequence number becomes one nobody used
    NACK = auto()
    IGNORE = auto()  # neither confirmed nor delivered
    RETURN = auto()  # basic.return, then confirmed


@dataclass
class Script:
    """How the broker behaves. ``fate`` is asked with the number of the message, counted over all connections."""

    fate: Callable[[int], Fate] = lambda number: Fate.DELIVER
    password: str = "guest"
    vhosts: tuple[str, ...] = ("/",)
    host: str = "127.0.0.1"
    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat_s: int = 60
    mechanisms: str = "PLAIN EXTERNAL"
    greeting: Callable[[ServerConnection], None] | None = None
    """In place of connection.start."""
    instead: dict[str, Callable[[ServerConnection, int], None]] = field(default_factory=dict)
    """What is done in place of answering a method, by its name (``Basic.Consume``), with the channel."""
    tls: ssl.SSLContext | None = None
    confirm_each: bool = False
    confirm_backwards: bool = False
    refuse_declare: list[tuple[int, str]] = field(default_factory=list)
    """channel.close codes for the next declarations, one each; the empty list accepts all."""
    server_properties: dict[str, object] = field(
        default_factory=lambda: {"product": "Stub", "version": "1", "platform": "test", "cluster_name": "stub"}
    )


@dataclass
class Message:
    content: bytes
    size: int
    redelivered: bool = False


@dataclass
class Queue:
    ready: deque[Message] = field(default_factory=deque)
    late: list[Message] = field(default_factory=list)
    declared: commands.Queue.Declare | None = None
    owner: ServerConnection | None = None


@dataclass
class Exchange:
    declared: commands.Exchange.Declare
    bindings: list[tuple[str, str]] = field(default_factory=list)
    """Queue and key."""

    def route(self, key: str) -> list[str]:
        every = self.declared.exchange_type == "fanout"
        return list(dict.fromkeys(queue for queue, bound in self.bindings if every or bound == key))


@dataclass
class Consumer:
    channel: int
    tag: str
    queue: str
    prefetch: int
    no_ack: bool
    arguments: dict[str, object] = field(default_factory=dict)
    cancelled: bool = False


@dataclass
class Channel:
    """What AMQP numbers per channel: publishes that are confirmed, and deliveries."""

    number: int
    prefetch: int = 0
    channel_prefetch: int = 0
    transaction: list[tuple[int, bool, bool | None]] | None = None
    confirming: bool = False
    gathered: list[tuple[commands.Basic.Publish, int, bytes, bytes]] = field(default_factory=list)
    """Published in the transaction."""
    publish_seq: int = 0
    delivery_tag: int = 0
    unacked: dict[int, tuple[Consumer, Message]] = field(default_factory=dict)
    content: tuple[int, commands.Basic.Publish, int, bytes, bytes] | None = None
    confirmed: list[int] = field(default_factory=list)


class StubBroker:
    """Start with ``async with StubBroker(script) as broker``; connect to ``broker.uri``."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.logins: list[tuple[str, str]] = []
        self.tuned: list[commands.Connection.TuneOk] = []
        self.declared_at: list[tuple[str, str]] = []
        """Name of the client's connection, and of the queue."""
        self.connections: dict[ServerConnection, None] = {}  # the oldest first, in every run alike
        self.published = 0
        self.keep_published = False
        self.kept: list[tuple[commands.Basic.Publish, header.ContentHeader, bytes]] = []
        """What was published, in order, if ``keep_published`` is set."""
        self.hold_commits = False
        self.held_commits: deque[tuple[ServerConnection, int]] = deque()
        """Connection and channel of each commit that came while ``hold_commits`` was set."""
        self.acks: list[tuple[int, bool]] = []
        self.nacks: list[tuple[int, bool, bool]] = []
        self.commits: list[int] = []
        """How many acknowledgements each commit took effect of."""
        self.dropped = 0
        self.polls = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self.stalled = False
        self.hold_confirms = False

    async def __aenter__(self) -> StubBroker:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    @property
    def uri(self) -> str:
        scheme = "amqps" if self.script.tls else "amqp"
        return f"{scheme}://guest:guest@127.0.0.1:{self.port}/%2f"

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerConnection(self), self.script.host, self.port, ssl=self.script.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Stop listening and drop everybody, as a killed node does."""
        self.shut_now()
        assert self._server is not None
        await self._server.wait_closed()

    def shut_now(self) -> None:
        """The same, for those who cannot wait."""
        assert self._server is not None
        self._server.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for connection in tuple(self.connections):
            connection.transport.abort()

    def stall(self) -> None:
        """Read and deliver nothing."""
        self.stalled = True
        for connection in self.connections:
            connection.transport.pause_reading()

    def resume(self) -> None:
        self.stalled = False
        for connection in tuple(self.connections):
            connection.transport.resume_reading()
        self.deal()

    def tell_all(self, method: object) -> None:
        """Send a connection-level method to everybody."""
        for connection in tuple(self.connections):
            connection.send(0, method)

    def cancel_consumers(self) -> None:
        for connection in tuple(self.connections):
            for consumer in connection.consumers:
                consumer.cancelled = True
                connection.send(consumer.channel, commands.Basic.Cancel(consumer.tag, True))

    def release_commit(self) -> None:
        """Carry out the commit that is held for the longest time, if there is one."""
        if self.held_commits:
            connection, channel = self.held_commits.popleft()
            connection.commit(channel, connection.channels[channel])

    def drop_queue(self, name: str) -> int:
        """Delete it with its bindings; how many messages were in it."""
        for exchange in self.exchanges.values():
            exchange.bindings = [binding for binding in exchange.bindings if binding[0] != name]
        return len(self.queues.pop(name, Queue()).ready)

    def delete_abandoned(self, names: set[str]) -> None:
        """Those that delete themselves when their last consumer leaves."""
        told = (self.queues[name].declared for name in names if name in self.queues)
        if not any(declared is not None and declared.auto_delete for declared in told):
            return  # with thousands of connections the look at all of them takes long
        everybody = [consumer for connection in self.connections for consumer in connection.consumers]
        held = {consumer.queue for consumer in everybody if not consumer.cancelled}
        for name in names - held:
            declared = self.queues[name].declared if name in self.queues else None
            if declared is not None and declared.auto_delete:
                self.drop_queue(name)

    def enqueue(self, queue: str, message: Message, fate: Fate) -> None:
        there = self.queues.setdefault(queue, Queue())
        if fate is Fate.DELAY:
            there.late.append(message)
            return
        there.ready.append(message)
        if fate is Fate.DUPLICATE:
            there.ready.append(Message(message.content, message.size))
        there.ready.extend(there.late)
        there.late.clear()

    def deal(self) -> None:
        if not self.stalled:
            for connection in tuple(self.connections):
                connection.deliver()


class ServerConnection(asyncio.Protocol):
    def __init__(self, broker: StubBroker) -> None:
        self.broker = broker
        self.buffer = b""
        self.raw = b""
        self.consumers: list[Consumer] = []
        self.channels: dict[int, Channel] = {}
        self.name = ""
        self.frame_max = 131072
        self.answers: list[bytes] = []
        self.closed = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self.broker.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.connections.pop(self, None)
        for number in tuple(self.channels):
            self.end_channel(number)
        for name in [name for name, queue in self.broker.queues.items() if queue.owner is self]:
            self.broker.drop_queue(name)
        self.broker.deal()

    def end_channel(self, number: int) -> None:
        """Its consumers are gone; what they held goes back to its queue."""
        channel = self.channels.pop(number, Channel(number))
        gone = [consumer for consumer in self.consumers if consumer.channel == number]
        self.consumers = [consumer for consumer in self.consumers if consumer.channel != number]
        for consumer, message in reversed(channel.unacked.values()):
            message.redelivered = True
            if consumer.queue in self.broker.queues:
                self.broker.queues[consumer.queue].ready.appendleft(message)
        self.broker.delete_abandoned({consumer.queue for consumer in gone})

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        at = 0
        if self.buffer.startswith(b"AMQP"):
            at = 8
            if self.broker.script.greeting is not None:
                self.broker.script.greeting(self)
                return
            start = commands.Connection.Start(
                0, 9, self.broker.script.server_properties, self.broker.script.mechanisms, "en_US"
            )
            self.send(0, start)
        elif not self.name and self.buffer.startswith(b"\x16\x03"):  # TLS where none is spoken
            self.transport.write(b"AMQP\0\0\x09\x01")
            self.transport.close()
            return
        while len(self.buffer) - at >= 8:
            size = struct.unpack_from(">I", self.buffer, at + 3)[0]
            if len(self.buffer) - at < size + 8:
                break
            try:
                self.raw = self.buffer[at : at + size + 8]
                _, channel, value = frame.unmarshal(self.raw)
            except exceptions.UnmarshalingException:
                self.transport.abort()
                return
            at += size + 8
            self.on_frame(channel, value)
        self.buffer = self.buffer[at:]
        self.flush_confirms()
        self.broker.deal()

    # Frames

    def send(self, channel: int, method: object) -> None:
        if not self.transport.is_closing():
            self.transport.write(frame.marshal(method, channel))

    def send_octets(self, octets: bytes) -> None:
        """Whatever a test wants the client to read."""
        self.transport.write(octets)

    def on_frame(self, channel: int, value: object) -> None:
        state = self.channels.get(channel, Channel(channel))
        if isinstance(value, (header.ContentHeader, body.ContentBody)) and state.content is None:
            return  # of a channel that was closed meanwhile
        if isinstance(value, header.ContentHeader):
            assert state.content is not None
            properties = self.raw[3:]  # as it came, without its type and channel
            state.content = (*state.content[:2], value.body_size, properties, b"")
        elif isinstance(value, body.ContentBody):
            assert state.content is not None
            state.content = (*state.content[:4], state.content[4] + value.value)
        elif (instead := self.broker.script.instead.get(value.name)) is not None:  # type: ignore[attr-defined]
            instead(self, channel)
        else:
            handler = getattr(self, f"on_{value.name.replace('.', '_').lower()}", None)  # type: ignore[attr-defined]
            if handler is not None:
                handler(channel, value)
        if state.content is not None and 0 <= state.content[2] == len(state.content[4]):
            self.on_message(channel, *state.content[1:])
            state.content = None

    def on_connection_startok(self, channel: int, method: commands.Connection.StartOk) -> None:
        script = self.broker.script
        self.name = str(method.client_properties["connection_name"])
        self.broker.logins.append((method.mechanism, method.response))
        if method.mechanism == "PLAIN" and method.response.split("\0")[2] != script.password:
            self.send(0, commands.Connection.Close(403, "ACCESS_REFUSED - Login was refused", 0, 0))
        else:
            self.send(0, commands.Connection.Tune(script.channel_max, script.frame_max, script.heartbeat_s))

    def on_connection_tuneok(self, channel: int, method: commands.Connection.TuneOk) -> None:
        self.broker.tuned.append(method)
        self.frame_max = method.frame_max

    def on_connection_open(self, channel: int, method: commands.Connection.Open) -> None:
        if method.virtual_host not in self.broker.script.vhosts:
            text = f"NOT_ALLOWED - vhost {method.virtual_host} not found"
            self.send(0, commands.Connection.Close(530, text, 10, 40))
        else:
            self.send(0, commands.Connection.OpenOk())

    def on_connection_close(self, channel: int, method: commands.Connection.Close) -> None:
        self.send(0, commands.Connection.CloseOk())
        self.transport.close()

    def on_connection_closeok(self, channel: int, method: object) -> None:
        self.transport.close()

    def on_channel_open(self, channel: int, method: object) -> None:
        assert channel not in self.channels, f"channel {channel} is open already"
        self.channels[channel] = Channel(channel)
        self.send(channel, commands.Channel.OpenOk())

    def on_channel_close(self, channel: int, method: object) -> None:
        self.send(channel, commands.Channel.CloseOk())
        self.end_channel(channel)

    def close_channel(self, channel: int, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """A channel exception."""
        self.send(channel, commands.Channel.Close(code, text, class_id, method_id))
        self.end_channel(channel)

    def on_confirm_select(self, channel: int, method: object) -> None:
        self.channels[channel].confirming = True
        self.send(channel, commands.Confirm.SelectOk())

    def on_queue_declare(self, channel: int, method: commands.Queue.Declare) -> None:
        if self.broker.script.refuse_declare:
            code, text = self.broker.script.refuse_declare.pop(0)
            self.close_channel(channel, code, text, 50, 10)
            return
        broker = self.broker
        name = method.queue or f"amq.gen-{len(broker.declared_at)}"
        broker.declared_at.append((self.name, name))
        there = broker.queues.get(name)
        if there is None and method.passive:
            self.close_channel(channel, 404, f"NOT_FOUND - no queue '{name}' in vhost '/'", 50, 10)
        elif there is not None and there.owner not in (None, self):
            self.close_channel(channel, 405, f"RESOURCE_LOCKED - queue '{name}'", 50, 10)
        else:
            queue = broker.queues.setdefault(name, Queue(declared=method, owner=self if method.exclusive else None))
            everybody = broker.connections if method.passive else ()  # of thousands a look at all takes long
            theirs = (consumer for connection in everybody for consumer in connection.consumers)
            consumers = sum(1 for each in theirs if each.queue == name and not each.cancelled)
            self.send(channel, commands.Queue.DeclareOk(name, len(queue.ready), consumers))

    def on_queue_bind(self, channel: int, method: commands.Queue.Bind) -> None:
        exchange = self.broker.exchanges.get(method.exchange)
        if exchange is None:
            self.close_channel(channel, 404, f"NOT_FOUND - no exchange '{method.exchange}' in vhost '/'", 50, 20)
            return
        if (method.queue, method.routing_key) not in exchange.bindings:
            exchange.bindings.append((method.queue, method.routing_key))
        self.send(channel, commands.Queue.BindOk())

    def on_queue_delete(self, channel: int, method: commands.Queue.Delete) -> None:
        self.send(channel, commands.Queue.DeleteOk(self.broker.drop_queue(method.queue)))

    def on_exchange_declare(self, channel: int, method: commands.Exchange.Declare) -> None:
        there = self.broker.exchanges.get(method.exchange)
        if method.passive and there is None:
            self.close_channel(channel, 404, f"NOT_FOUND - no exchange '{method.exchange}' in vhost '/'", 40, 10)
        elif not method.passive and there is not None and there.declared.exchange_type != method.exchange_type:
            text = f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{method.exchange}' in vhost '/'"
            self.close_channel(channel, 406, text, 40, 10)
        else:
            self.broker.exchanges.setdefault(method.exchange, Exchange(method))
            self.send(channel, commands.Exchange.DeclareOk())

    def on_exchange_delete(self, channel: int, method: commands.Exchange.Delete) -> None:
        there = self.broker.exchanges.get(method.exchange)
        if there is not None and there.bindings and method.if_unused:
            self.close_channel(channel, 406, f"PRECONDITION_FAILED - exchange '{method.exchange}' in use", 40, 20)
            return
        self.broker.exchanges.pop(method.exchange, None)
        self.send(channel, commands.Exchange.DeleteOk())

    def on_queue_purge(self, channel: int, method: commands.Queue.Purge) -> None:
        queue = self.broker.queues[method.queue]
        self.send(channel, commands.Queue.PurgeOk(len(queue.ready)))
        queue.ready.clear()

    def on_basic_qos(self, channel: int, method: commands.Basic.Qos) -> None:
        if method.global_:
            self.channels[channel].channel_prefetch = method.prefetch_count
        else:
            self.channels[channel].prefetch = method.prefetch_count
        self.send(channel, commands.Basic.QosOk())

    def on_basic_consume(self, channel: int, method: commands.Basic.Consume) -> None:
        tag = method.consumer_tag
        state = self.channels[channel]
        arguments = dict(method.arguments or {})
        self.consumers.append(Consumer(channel, tag, method.queue, state.prefetch, method.no_ack, arguments))
        self.send(channel, commands.Basic.ConsumeOk(tag))

    def on_basic_cancel(self, channel: int, method: commands.Basic.Cancel) -> None:
        for consumer in self.consumers:
            consumer.cancelled |= consumer.tag == method.consumer_tag and consumer.channel == channel
        self.send(channel, commands.Basic.CancelOk(method.consumer_tag))
        self.broker.delete_abandoned({each.queue for each in self.consumers if each.cancelled})

    def on_basic_ack(self, channel: int, method: commands.Basic.Ack) -> None:
        self.broker.acks.append((method.delivery_tag, method.multiple))
        self.on_settle(channel, (method.delivery_tag, method.multiple, None))

    def on_basic_nack(self, channel: int, method: commands.Basic.Nack) -> None:
        self.broker.nacks.append((method.delivery_tag, method.multiple, method.requeue))
        self.on_settle(channel, (method.delivery_tag, method.multiple, method.requeue))

    def on_settle(self, channel: int, what: tuple[int, bool, bool | None]) -> None:
        if (state := self.channels.get(channel)) is None:
            return  # it was closed meanwhile
        if state.transaction is None:
            self.settle(channel, *what)
        else:
            state.transaction.append(what)

    def settle(self, channel: int, tag: int, multiple: bool, requeue: bool | None) -> None:
        unacked = self.channels[channel].unacked
        for one in [each for each in unacked if each <= tag] if multiple else [tag]:
            held = unacked.pop(one, None)
            if held is None:
                self.close_channel(channel, 406, f"unknown delivery tag {tag}", 60, 80)
                return
            if requeue:
                held[1].redelivered = True
                self.broker.queues[held[0].queue].ready.append(held[1])
            self.broker.dropped += requeue is False

    def on_tx_select(self, channel: int, method: object) -> None:
        self.channels[channel].transaction = []
        self.send(channel, commands.Tx.SelectOk())

    def on_tx_commit(self, channel: int, method: object) -> None:
        state = self.channels[channel]
        if state.transaction is None:
            self.close_channel(channel, 406, "channel is not transactional", 90, 20)
            return
        if self.broker.hold_commits:
            self.broker.held_commits.append((self, channel))
        else:
            self.commit(channel, state)

    def commit(self, channel: int, state: Channel) -> None:
        taken, state.transaction = state.transaction, []
        gathered, state.gathered = state.gathered, []
        self.broker.commits.append(len(taken) + len(gathered))
        for message in gathered:
            self.accept(channel, *message)
        for what in taken:
            self.settle(channel, *what)
        self.send(channel, commands.Tx.CommitOk())

    def on_basic_get(self, channel: int, method: commands.Basic.Get) -> None:
        self.broker.polls += 1
        queue, state = self.broker.queues.get(method.queue, Queue()), self.channels[channel]
        if not queue.ready:
            self.send(channel, commands.Basic.GetEmpty())
            return
        message = queue.ready.popleft()
        state.delivery_tag += 1
        if not method.no_ack:
            nobody = Consumer(channel, "", method.queue, 0, no_ack=False, cancelled=True)
            state.unacked[state.delivery_tag] = (nobody, message)
        answer = commands.Basic.GetOk(state.delivery_tag, message.redelivered, "", method.queue, len(queue.ready))
        self.send(channel, answer)
        self.write_content(channel, message.content[: message.size], message.content[message.size :])

    def on_basic_publish(self, channel: int, method: commands.Basic.Publish) -> None:
        if channel in self.channels:
            self.channels[channel].content = (channel, method, -1, b"", b"")

    # Messages

    def on_message(self, channel: int, method: commands.Basic.Publish, size: int, head: bytes, octets: bytes) -> None:
        if self.broker.keep_published:
            value = frame.unmarshal(struct.pack(">BH", 2, channel) + head)[2]
            assert isinstance(value, header.ContentHeader)
            self.broker.kept.append((method, value, octets))
        if self.channels[channel].transaction is not None:
            self.channels[channel].gathered.append((method, size, head, octets))
        else:
            self.accept(channel, method, size, head, octets)

    def accept(self, channel: int, method: commands.Basic.Publish, size: int, head: bytes, octets: bytes) -> None:
        broker, state = self.broker, self.channels[channel]
        fate = broker.script.fate(broker.published)
        broker.published += 1
        state.publish_seq += 1
        if fate is Fate.IGNORE:
            return
        if fate is Fate.NACK:
            self.flush_confirms()
            self.send(channel, commands.Basic.Nack(state.publish_seq))
            return
        if fate is Fate.RETURN:
            self.send(channel, commands.Basic.Return(312, "NO_ROUTE", "", method.routing_key))
            self.write_content(channel, head, octets)
        elif fate is not Fate.LOSE:
            queues = self.route(channel, method)
            if not queues and method.mandatory and channel in self.channels:
                self.send(channel, commands.Basic.Return(312, "NO_ROUTE", method.exchange, method.routing_key))
                self.write_content(channel, head, octets)
            for queue in queues:
                broker.enqueue(queue, Message(head + _altered(octets, fate), len(head)), fate)
        if state.confirming:
            state.confirmed.append(state.publish_seq)

    def route(self, channel: int, method: commands.Basic.Publish) -> list[str]:
        """The queues a message goes to. There is no telling queue from typing error with the default exchange: it makes
        the queue."""
        if not method.exchange:
            return [method.routing_key]
        if method.exchange not in self.broker.exchanges:
            self.close_channel(channel, 404, f"NOT_FOUND - no exchange '{method.exchange}' in vhost '/'", 60, 40)
            return []
        return self.broker.exchanges[method.exchange].route(method.routing_key)

    def flush_confirms(self) -> None:
        for channel in self.channels.values():
            if channel.confirmed and not self.broker.hold_confirms:
                self.confirm(channel)

    def confirm(self, channel: Channel) -> None:
        tags, channel.confirmed = channel.confirmed, []
        script = self.broker.script
        if script.confirm_backwards:
            tags.reverse()
        each = script.confirm_each or script.confirm_backwards or len(tags) != tags[-1] - tags[0] + 1
        if each:
            self.transport.write(b"".join(frame.marshal(commands.Basic.Ack(tag), channel.number) for tag in tags))
        else:
            self.send(channel.number, commands.Basic.Ack(tags[-1], True))

    def write_content(self, channel: int, head: bytes, octets: bytes) -> None:
        most = self.frame_max - 8
        pieces = [octets[at : at + most] for at in range(0, len(octets), most)]
        bodies = b"".join(frame.marshal(body.ContentBody(piece), channel) for piece in pieces)
        self.transport.write(struct.pack(">BH", 2, channel) + head + bodies)

    def deliver(self) -> None:
        if self.transport.is_closing():
            return
        for consumer in self.consumers:
            state = self.channels[consumer.channel]
            unacked, most = state.unacked, state.channel_prefetch
            queue = self.broker.queues.get(consumer.queue)
            while queue is not None and queue.ready and not consumer.cancelled:
                held = sum(1 for other, _ in unacked.values() if other is consumer)
                if consumer.prefetch and not consumer.no_ack and held >= consumer.prefetch:
                    break
                if most and not consumer.no_ack and len(unacked) >= most:
                    break
                self.deliver_one(consumer, queue.ready.popleft())

    def deliver_one(self, consumer: Consumer, message: Message) -> None:
        channel = self.channels[consumer.channel]
        channel.delivery_tag += 1
        if not consumer.no_ack:
            channel.unacked[channel.delivery_tag] = (consumer, message)
        deliver = commands.Basic.Deliver(consumer.tag, channel.delivery_tag, message.redelivered, "", consumer.queue)
        self.send(consumer.channel, deliver)
        self.write_content(consumer.channel, message.content[: message.size], message.content[message.size :])


def _altered(octets: bytes, fate: Fate) -> bytes:
    if fate is Fate.DAMAGE:
        return octets[:-1] + bytes([octets[-1] ^ 1])
    if fate is Fate.RENUMBER:
        return octets[:STAMP_SEQUENCE_AT] + struct.pack(">Q", 1 << 40) + octets[STAMP_SEQUENCE_AT + 8 :]
    return octets
