"""A client's connection: the socket on one side, the protocol core and its channels on the other.

The core turns octets into events, and each event is for one channel (:mod:`~reference_broker.node.client_channel`).
Nothing here is per message: events carry runs and ranges.

Two valves bound memory. The socket is not read while publishes of more than ``publish_bytes_max`` octets or in more
than ``publish_commands_max`` commands await their commit, while too much waits behind busy channels, or after a publish
during an alarm of any node. And consumers without acknowledgement get their credit back only when the socket takes what
it was given.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import ChannelClosed, ConnectionClosed, ConnectionOpened, Event
from reference_broker.amqp.state import Phase
from reference_broker.machines.metadata import QueueRecord
from reference_broker.node.client_channel import HANDLERS, ClientChannel, ClientPorts

log = logging.getLogger(__name__)

_HELD_OCTETS_MAX: Final = 1 << 20
"""Behind the busy channels of one connection."""


class ClientConnection(asyncio.Protocol):
    """One AMQP connection, from accept to close."""

    def __init__(self, node: ClientPorts, config: ConnectionConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self.core = ServerConnection(config, self._loop.time())
        self.channels: dict[int, ClientChannel] = {}
        self.unconfirmed_bytes = 0
        self.unconfirmed_commands = 0
        self.read_ns = 0
        """When the octets came that are being handled."""
        self.is_writable = True
        """Whether the client reads fast enough."""
        self._node = node
        self._transport: asyncio.Transport | None = None
        self._blocked = False
        """It published while an alarm of a node was on: it is not read until the alarm is over."""
        self._reading = True
        self._is_handling = False
        """Events are being handled, and the core reads on when that is done."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client dialled."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not its subclasses
        self._node.clients.connections[self] = None

    def data_received(self, data: bytes) -> None:
        """Octets in, whatever they are. A defect of ours costs this connection, not the node."""
        self.read_ns = self._node.now_ns()
        try:
            self._handle_all(self.core.receive(data, self._loop.time()))
        except Exception:
            log.exception("defect while serving a client")
            self.handle(self.core.connection_error(ReplyCode.INTERNAL_ERROR, "defect in the broker, see its log"))
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, politely or not: so are its channels."""
        self._node.clients.connections.pop(self, None)
        self.handle(self.core.connection_lost("the client is gone" if exc is None else str(exc)))
        self._end_channels()

    def pause_writing(self) -> None:
        """The client does not read fast enough."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The client reads again: consumers without acknowledgement get their credit back."""
        self.is_writable = True
        for channel in list(self.channels.values()):
            channel.pay_credit()

    # local_clients.Connection

    def stood_still(self) -> None:
        """This process did, in the middle of a turn: what the core was told to deliver before that goes as redelivered,
        for others may have it since."""
        self.core.mark_redelivered()

    def tick(self) -> None:
        """Called now and then: heartbeats and time-outs. A client that is not read is not silent."""
        if not self._reading:
            self.core.not_reading(self._loop.time())
        self.handle(self.core.tick(self._loop.time()))
        self.flush()

    def close(self, text: str) -> None:
        """The node stops: tell the client."""
        self.handle(self.core.connection_error(ReplyCode.CONNECTION_FORCED, text))
        self.flush()

    def queue_removed(self, record: QueueRecord) -> None:
        """A queue is gone: the channels that dealt with it are told."""
        for channel in list(self.channels.values()):
            channel.queue_removed(record)

    def flush(self) -> None:
        """Write what the core has to say; close when it has said its last; open or shut the valve."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.core.flush_confirms()
        if self._blocked and not self._node.alarms.reason:
            self._blocked = False
            self.core.unblocked()
        if output := self.core.take_output():
            transport.writelines(output)
        if self.core.phase is Phase.CLOSED:
            transport.close()
            return
        self._regulate(transport)

    # client_channel.ConnectionPorts

    def touch(self) -> None:
        """Have what the core says written at the end of this turn."""
        self._node.clients.touch(self)

    def handle(self, events: list[Event]) -> None:
        """Do what the core tells."""
        for event in events:
            self._handle_one(event)

    def read_on(self) -> None:
        """Have the core read what waited for answers, unless that comes about by itself."""
        if self.core.has_more and not self._is_handling:
            self._handle_all(self.core.go_on())

    def published(self) -> None:
        """Something was published: the client is told, and is not read, while an alarm of any node is on."""
        if self._node.alarms.reason and not self._blocked:
            self._blocked = True
            self.core.blocked(self._node.alarms.reason)

    # Events

    def _handle_all(self, events: list[Event]) -> None:
        """Do what the core tells, and have it read on."""
        self._is_handling = True
        try:
            self.handle(events)
            while self.core.has_more:
                self.handle(self.core.go_on())
        finally:
            self._is_handling = False

    def _handle_one(self, event: Event) -> None:
        if isinstance(event, ConnectionOpened):
            return
        if isinstance(event, ConnectionClosed):
            self._end_channels()
            return
        channel = self.channels.get(event.channel)
        if isinstance(event, ChannelClosed):
            if channel is not None:
                channel.end()
            return
        if channel is None:
            channel = self.channels[event.channel] = ClientChannel(self, self._node, event.channel)
        if channel.awaited is not None:
            channel.waiting.append(event)
        else:
            HANDLERS[type(event)](channel, event)

    def _end_channels(self) -> None:
        for channel in list(self.channels.values()):
            channel.end()

    # The valve

    def _regulate(self, transport: asyncio.Transport) -> None:
        """Open or shut the valve. It opens again at half of what shut it, or it would flutter."""
        wanted = not (self._is_full() or self._blocked or self.core.held_octets > _HELD_OCTETS_MAX)
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _is_full(self) -> bool:
        limits, share = self._node.limits, 1 if self._reading else 2
        return (
            self.unconfirmed_bytes > limits.publish_bytes_max // share
            or self.unconfirmed_commands > limits.publish_commands_max // share
        )
