"""A client's connection: the socket on one side, the protocol core and its channels on the other.

The core turns octets into events, and each event is for one channel
(:mod:`~reference_broker.node.clients.client_channel`). Events carry runs and ranges, so the connection does no work per
message.

Three valves bound memory. First, :mod:`~reference_broker.node.clients.flow_control` stops reading a client that
publishes more than the queues commit. Second, consumers without acknowledgement get their credit back only while the
client reads fast enough. Third, a client that leaves more than ``unread_bytes_max`` octets unread gets no deliveries
until it has read them (:mod:`~reference_broker.node.clients.behind`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast

from reference_broker.access.names import shown
from reference_broker.access.records import DEFAULT_VHOST
from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.connection import ServerConnection
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import ChannelClosed, ConnectionClosed, ConnectionClosing, ConnectionOpened, Event
from reference_broker.amqp.state import Phase
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.alarms import Alarm
from reference_broker.node.clients.authorization import ClientGate, Guard, Handler
from reference_broker.node.clients.client_channel import ClientChannel
from reference_broker.node.clients.client_ports import ClientPorts
from reference_broker.node.clients.flow_control import FlowControl
from reference_broker.node.clients.tcp_info import tcp_info
from reference_broker.node.hosting.slices import Input
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
"""The time between two ticks of a connection."""
_REST_S: Final = 5.0
"""Longest rest of a connection that waits for nothing."""
LINGER_TICKS: Final = 4
"""Ticks that a client may take to close its socket after its close-ok."""
_ELSEWHERE_MS: Final = 2500
"""Time for which a client waits for a leader that its node cannot reach but another node can."""
_MEMORY_PARTS: Final = 32
_UNREAD_MEMORY_PART: Final = 8
_UNREAD_ALWAYS: Final = 64 * 1024
"""Octets that may always wait for a client to read them, even when all clients together leave more unread than their
part of the node's memory."""


class ClientConnection(asyncio.Protocol):
    """One AMQP connection, from accept to close."""

    def __init__(self, node: ClientPorts, config: ConnectionConfig, gate: ClientGate | None = None) -> None:
        """``gate``: the gate of ``config``, if it needs the client's address."""
        self.peer = self.own = ("", 0)
        """The addresses of the client and of this end."""
        self.is_encrypted = False
        self.connected_at_ms = node.now_ms()
        self._gate = gate
        self._guard: Guard | None = None
        self.user = self.vhost = ""
        self.virtual_host = node.virtual_host(DEFAULT_VHOST)
        """The client's virtual host, once it is logged in."""
        self._loop = asyncio.get_running_loop()
        self.core = ServerConnection(config, self._loop.time())
        self._input = Input(node.clients.slices, self._handle_octets)
        self.channels: dict[int, ClientChannel] = {}
        self.number = node.clients.new_connection()
        self.flow = FlowControl(self.core, self._input, node.alarms, node.limits)
        self.read_ns = 0
        """The time at which the present octets were read."""
        self.is_writable = True
        """Whether the client reads fast enough."""
        self._unread = 0
        """Octets in the socket's buffer after the last write, 0 while the client reads fast enough."""
        self._behind: dict[int, None] = {}
        """Numbers of channels with consumers that have missed deliveries because the client did not read."""
        self._node = node
        self._own: dict[GroupId, Queue] = {}
        """The exclusive queues of this connection."""
        self._left: list[Queue] = []
        """The auto-delete queues that its channels have left, since the connection is closing."""
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self.rests_until_s = 0.0
        """The connection waits for nothing but its client, so it needs no tick before that time (of the loop)."""
        self._ticks_lingered = self._ticks_kept = 0
        self._is_handling = False
        """Events are being handled; the core reads on afterwards."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client dialled."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not its subclasses
        peer = transport.get_extra_info("peername")
        self.peer, self.own = _address(peer), _address(transport.get_extra_info("sockname"))
        self.is_encrypted = transport.get_extra_info("cipher") is not None
        if self._gate is not None:
            self._gate.meet(peer, transport.get_extra_info("peercert"))
        self._node.clients.connections[self] = None
        self._node.clients.logging_in += 1

    def data_received(self, data: bytes) -> None:
        """Handle octets from the client, now or in turns with other clients' octets."""
        if len(data) <= self._input.few:
            self._handle_octets(data)
            return
        self._input.came(data)
        if self._input.waits and self._transport is not None:
            self.flow.regulate(self._transport)

    def _handle_octets(self, data: bytes) -> None:
        """Handle octets. A defect of the broker closes this connection, not the node."""
        node = self._node
        self.read_ns = node.now_ns()
        self.rests_until_s = 0.0
        clients = node.clients
        clients.octets_come += len(data)
        if clients.octets_come > node.limits.memory_bytes_max // _MEMORY_PARTS or self.read_ns > clients.look_again_ns:
            self._look_at_memory()
        try:
            self._handle_all(self.core.receive(data, self._loop.time()))
        except Exception:
            log.exception("defect while serving a client")
            self.handle(self.core.connection_error(ReplyCode.INTERNAL_ERROR, "defect in the broker, see its log"))
        self.flush()

    def _look_at_memory(self) -> None:
        """Have the node look at its memory before clients can have filled much of it: between two looks of its own, a
        busy node may read very much."""
        node = self._node
        node.clients.octets_come = 0
        node.clients.look_again_ns = self.read_ns + node.limits.alarm_check_ms * 1_000_000
        node.check_alarms()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and so are its channels."""
        if self._node.clients.connections.pop(self, self) is None and not self.user:
            self._node.clients.logging_in -= 1
        self._note_unread(0)
        self._input.finish()
        self.handle(self.core.connection_lost("the client is gone" if exc is None else str(exc)))
        self._end_channels(_do_nothing)

    def pause_writing(self) -> None:
        """The client does not read fast enough."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The client reads again: consumers without acknowledgement get their credit back."""
        self.is_writable = True
        self._note_unread(0)
        for channel in list(self.channels.values()):
            channel.consuming.pay_credit()
        self._let_catch_up()

    # local_clients.Connection

    def was_suspended(self) -> None:
        """The process was suspended. Deliveries that are not written yet go as redelivered, because other consumers may
        have the messages by now."""
        self.core.mark_redelivered()

    def tick(self) -> None:
        """Handle heartbeats and time-outs. A client whose socket is not read is not silent."""
        if not self.flow.is_reading:
            self.core.not_reading(self._loop.time())
            self.flow.has_hung_up = self._has_client_closed()
        if self.core.phase is Phase.CLOSED:
            self._ticks_lingered += 1
        self.handle(self.core.tick(self._loop.time()))
        self._give_up_waiting()
        self._give_back_memory()
        if self._is_busy:
            self.flush()
        elif not any(channel.answers.awaited for channel in self.channels.values()):
            self.rests_until_s = min(self.core.due_s, self._loop.time() + _REST_S)

    @property
    def _is_busy(self) -> bool:
        """Whether the connection may have something to say, or its valve may have to move: an idle one has not."""
        core = self.core
        return (
            core.has_output or not self.flow.is_reading or self._node.alarms.reason != "" or core.phase is Phase.CLOSED
        )

    def _give_back_memory(self) -> None:
        """Close the connection if it has kept half a message, or a transaction, for long while this node is low on
        memory: a client that cannot go on, or is gone, must not stop all publishers for ever."""
        keeps = self.flow.is_blocked and Alarm.MEMORY in self._node.alarms.own and self._keeps_memory
        self._ticks_kept = self._ticks_kept + 1 if keeps else 0
        limit_ms = self._node.limits.incomplete_ms
        if self._ticks_kept * TICK_S * 1000 > limit_ms:
            text = f"low on memory, and for {limit_ms} ms messages of this connection have not become complete"
            self.handle(self.core.connection_error(ReplyCode.CONNECTION_FORCED, text))

    @property
    def _keeps_memory(self) -> bool:
        return self.core.receives_content or any(
            channel.transaction is not None and channel.transaction.octets for channel in self.channels.values()
        )

    def _give_up_waiting(self) -> None:
        """Close the connection if a channel has waited for too long, for nodes that are out of reach."""
        waiting = [(number, channel) for number, channel in self.channels.items() if channel.tick()]
        for number, channel in waiting:
            patience, timeout_ms = channel.answers.patience, self._node.limits.answer_timeout_ms
            waited_ms = round(patience.ticks * TICK_S * 1000)
            if isinstance(patience.waits_for, Queue):
                code, text = ReplyCode.CONNECTION_FORCED, self._why_leave(patience.waits_for, waited_ms)
            else:
                code, text = ReplyCode.INTERNAL_ERROR, ""
                if waited_ms >= timeout_ms:
                    text = f"the nodes that it takes did not answer the request on channel {number} within "
                    text += f"{timeout_ms} ms; what was asked for may still be done"
            if text:
                self.handle(self.core.connection_error(code, text))
                return

    def _why_leave(self, queue: Queue, waited_ms: int) -> str:
        """Why the client should leave this node, which cannot reach the leader of a queue; empty: it should not."""
        timeout_ms = self._node.limits.answer_timeout_ms
        where = "another node" if waited_ms >= timeout_ms else ""
        if not where and waited_ms >= min(_ELSEWHERE_MS, timeout_ms):
            where = self._node.who_reaches(queue.record) or ""
        if not where:
            return ""
        text = f"no leader of queue {shown(queue.record.name)} was within reach of this node for {waited_ms} ms: "
        return text + f"use {where}; what is not confirmed may still be stored"

    def close(self, text: str) -> None:
        """Tell the client that the node stops."""
        self._ticks_lingered = LINGER_TICKS
        self.rests_until_s = 0.0
        self.handle(self.core.connection_error(ReplyCode.CONNECTION_FORCED, text))
        self.flush()

    def queue_removed(self, record: QueueRecord) -> None:
        """Tell the channels that a queue is gone. A connection may have thousands that never heard of the queue."""
        self._own.pop(record.group, None)
        for channel in [channel for channel in self.channels.values() if channel.uses(record.group)]:
            channel.queue_removed(record)

    def queue_lost(self, record: QueueRecord) -> None:
        """Tell the channels that the node of a queue is out of reach."""
        self.rests_until_s = 0.0
        for channel in [channel for channel in self.channels.values() if channel.uses(record.group)]:
            channel.queue_lost(record)

    def flush(self) -> None:
        """Write the core's output. Close the socket after the last output, and open or shut the valve."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        core = self.core
        if core.confirming:
            core.flush_confirms()
        flow = self.flow
        if flow.is_blocked or self._node.alarms.reason:
            flow.alarms_changed()
        if core.output:
            self._node.check_suspension()  # right before the write: the marked deliveries have not left yet
            transport.writelines(core.take_output())
            if not self.is_writable:
                self._note_unread(transport.get_write_buffer_size())
        if core.phase is Phase.CLOSED:
            self._leave(transport)
            return
        if self._behind and self.is_writable:
            self._let_catch_up()
        flow.regulate(transport)

    def _leave(self, transport: asyncio.Transport) -> None:
        """Close the socket. A client that has its close-ok closes the socket itself: octets that it still sends to a
        closed socket would cost it the close-ok, and an error."""
        if not self.core.client_closes or self._ticks_lingered >= LINGER_TICKS:
            transport.close()
        elif not self.flow.is_reading:
            self.flow.is_reading = True
            transport.resume_reading()

    @property
    def state(self) -> str:
        """RabbitMQ's word for how the connection fares."""
        return self.flow.state

    @property
    def channel_count(self) -> int:
        """The channels that are open on the connection."""
        return len(self.core.open_channels)

    def octets(self) -> tuple[int, int]:
        """Read from the client and sent to it, as the kernel counts: so counting costs the connection nothing."""
        told = tcp_info(self._transport)
        return (told.received, told.acknowledged) if told is not None else (0, 0)

    def _has_client_closed(self) -> bool:
        """Whether the client has closed the socket; the node must look, because it does not read."""
        told = tcp_info(self._transport)
        return told is not None and told.is_closed_by_peer

    def access_changed(self) -> None:
        """Get another guard, or end: with its user, a connection ends."""
        if not self.user or self._gate is None:
            return
        access = self._node.access
        if end := access.why_end(self.user, self.vhost):
            self.close(end)
            return
        self._guard = access.guard(self.user, self.vhost)
        for channel in list(self.channels.values()):
            channel.guard()

    # client_channel.ConnectionPorts

    def guarded(self, handlers: Mapping[type, Handler]) -> Mapping[type, Handler]:
        """The handlers of events, behind the guard of the user, if the user has one."""
        return handlers if self._guard is None else self._guard.around(handlers)

    def touch(self) -> None:
        """Have the core's output written at the end of this turn."""
        self._node.clients.touch(self)

    def handle(self, events: list[Event]) -> None:
        """Handle the core's events."""
        for event in events:
            self._handle_one(event)

    @property
    def is_unread_full(self) -> bool:
        """Whether too many octets wait for the client to read them. If all clients' unread octets take much of the
        node's memory, each may have few."""
        octets, limits = self._unread + self.core.delivering_octets, self._node.limits
        if octets > _UNREAD_ALWAYS and self._node.clients.unread > limits.memory_bytes_max // _UNREAD_MEMORY_PART:
            return True
        return octets > limits.unread_bytes_max

    def _note_unread(self, octets: int) -> None:
        self._node.clients.unread += octets - self._unread
        self._unread = octets

    def fell_behind(self, number: int) -> None:
        """Have the channel of this number catch up once the client has read."""
        self._behind[number] = None

    def _let_catch_up(self) -> None:
        behind, self._behind = self._behind, {}
        for number in behind:
            if (channel := self.channels.get(number)) is not None:
                channel.catch_up()

    def read_on(self) -> None:
        """Have the core read the octets that waited for answers, unless events are being handled anyway."""
        if self.core.has_more and not self._is_handling:
            self._handle_all(self.core.go_on())

    def owns(self, queue: Queue) -> None:
        """Delete the queue with the connection: at once, if the connection ended while the queue was declared."""
        if self._is_over:
            self._node.when_left((), (queue,), _do_nothing)
        else:
            self._own[queue.record.group] = queue
            self.core.close_late()

    # Events

    def _handle_all(self, events: list[Event]) -> None:
        """Handle the core's events, and have the core read on."""
        self._is_handling = True
        try:
            for event in events:
                self._handle_one(event)
            while self.core.has_more:
                self.handle(self.core.go_on())
        finally:
            self._is_handling = False

    def _handle_one(self, event: Event) -> None:
        if isinstance(event, ConnectionOpened):
            self.user, self.vhost = event.user, event.vhost
            self.virtual_host = self._node.virtual_host(event.vhost)
            self._node.clients.logging_in -= 1
            self.access_changed()
            return
        if isinstance(event, ConnectionClosed | ConnectionClosing):
            self._end_channels(self._close_ok if isinstance(event, ConnectionClosing) else _do_nothing)
            return
        channel = self.channels.get(event.channel)
        if isinstance(event, ChannelClosed):
            self._channel_closed(event, channel)
            return
        if channel is None:
            if not self.core.has_open(event.channel):
                return  # it was read before the channel was closed with an exception
            channel = self.channels[event.channel] = ClientChannel(self, self._node, event.channel)
        if channel.answers.awaited is not None:
            channel.answers.waiting.append(event)
        else:
            channel.handlers[type(event)](channel, event)

    def _channel_closed(self, event: ChannelClosed, channel: ClientChannel | None) -> None:
        left = channel.end() if channel is not None else []
        if event.owes_ok:
            self._node.when_left(left, (), partial(self._channel_close_ok, event.channel))
        else:
            self._left += left

    def _channel_close_ok(self, number: int) -> None:
        self.core.channel_close_ok(number)
        self.read_on()
        self.touch()

    def _end_channels(self, ended: Callable[[], None]) -> None:
        """The connection is over: call when its queues are gone."""
        for channel in list(self.channels.values()):
            self._left += channel.end()
        self._is_over = True
        left, self._left, own, self._own = self._left, [], self._own, {}
        self._node.when_left(left, list(own.values()), ended)

    def _close_ok(self) -> None:
        self.core.close_ok()
        self.flush()


def _do_nothing() -> None:
    """Nobody waits."""


def _address(name: object) -> tuple[str, int]:
    """Host and port of a socket's name."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)
