"""Consumers that come and go: subscriptions and their ends, gets, and what happens when a channel or a node is gone.

A consumer belongs to a channel, a channel to one start of a node. A channel that ends takes its consumers with it, and
what they held goes back to the queue. A node that cannot be reached may live on out of sight: its consumers stay and go
on with their ids when it is back, but hold nothing meanwhile (RabbitMQ: ``suspected_down``). A node that comes back in
another start ends the channels of all earlier starts.

Every node with a channel here is monitored, and again with each change that may rest on old news: whoever leads then
says how things stand.

Invariant (I20): message ids of a consumer are given +1 and never again, as long as its channel lives.
"""

from __future__ import annotations

from reference_broker.machines import single_active
from reference_broker.machines.commands import Cancel, Checkout, Get
from reference_broker.machines.consumers import IN_SERVICE, Consumer, Status
from reference_broker.machines.fifo_state import ChannelState, State
from reference_broker.machines.outbox import Outbox
from reference_broker.machines.settlement import credited, take_back
from reference_broker.types import ChannelId, ConsumerId, NodeId


def checkout(state: State, outbox: Outbox, command: Checkout) -> None:
    """Subscribe. The reply carries the id of the next message, so that a channel sees if it misses one."""
    channel_id = command.consumer.channel
    if state.is_of_earlier_boot(channel_id):
        return
    consumer = _find_or_create(state, outbox, command.consumer)
    status = consumer.status
    if consumer.priority != command.priority:
        state.service.remove(consumer)
    if status in (Status.GETTING, Status.CANCELLED):
        state.arrivals += 1
        consumer.arrival = state.arrivals
    consumer.subscribe(command.credit, command.auto_settle, command.priority)
    if state.config.single_active and status not in (Status.UP, Status.QUIESCING):
        consumer.status = Status.WAITING
    if not consumer.credit:
        state.service.remove(consumer)
    state.service.add(consumer)
    _consumers_changed(state)
    outbox.reply(channel_id, command.correlation, consumer.next_id, command.consumer)


def cancel(state: State, outbox: Outbox, command: Cancel) -> None:
    """Out of service. What it holds stays until it is settled or the channel ends."""
    consumer = state.consumer(command.consumer)
    if consumer is not None:
        consumer.status = Status.CANCELLED
        state.service.remove(consumer)
        credited(state, consumer)
        _consumers_changed(state)
    outbox.reply(command.consumer.channel, command.correlation, 0, command.consumer)


def get(state: State, outbox: Outbox, command: Get) -> None:
    """One message, whatever the credit. A single active consumer has all messages, so there is none."""
    channel_id = command.consumer.channel
    if state.is_of_earlier_boot(channel_id):
        return
    state.last_used_ms = state.now_ms
    consumer = _find_or_create(state, outbox, command.consumer)
    value = 0
    if state.ready and not state.config.single_active:
        _count, start, _step, origin = state.ready.head()
        state.ready.take(1)
        message_id = consumer.hold_one(command.auto_settle, start, origin)
        state.totals.settled += command.auto_settle
        if not consumer.credit:
            state.service.remove(consumer)
        outbox.deliver(consumer.id, message_id, start, 1, 1, origin)
        value = 1 + state.ready.count
    outbox.reply(channel_id, command.correlation, value, command.consumer)


def channel_down(state: State, outbox: Outbox, channel_id: ChannelId) -> None:
    """The channel has ended: its consumers with it, and its sequence numbers."""
    channel = state.channels.pop(channel_id, None)
    if channel is None:
        return
    for _tag, consumer in sorted(channel.consumers.items()):  # dead letters are numbered as they come
        state.service.remove(consumer)
        take_back(state, outbox, consumer.release_all())
    if channel.consumers:
        _consumers_changed(state)


def node_down(state: State, outbox: Outbox, node: NodeId) -> None:
    """Its consumers may live on out of sight, so they stay and go on with their ids, but hold nothing.

    This may be old news, told by a leader that was deposed meanwhile: if it changes anything, whoever leads now
    says how things stand.
    """
    for consumer in state.consumers():
        if consumer.id.channel.node == node:
            state.service.remove(consumer)
            consumer.lost_messages |= bool(consumer.unacked)
            take_back(state, outbox, consumer.release_all())
            if consumer.status in IN_SERVICE:
                consumer.status = Status.SUSPECTED
                outbox.monitor(node)
    _consumers_changed(state)


def node_up(state: State, outbox: Outbox, node: NodeId, boot_id: int) -> None:
    """Channels of this start of the node go on where they were; the channels of earlier starts are gone."""
    state.boot_ids[node] = max(boot_id, state.boot_ids.get(node, 0))
    for channel_id in sorted(state.channels):
        if channel_id.node != node:
            continue
        if channel_id.boot_id < boot_id:
            channel_down(state, outbox, channel_id)
        elif channel_id.boot_id == boot_id:
            _resume(state, outbox, channel_id)
    _consumers_changed(state)


def _resume(state: State, outbox: Outbox, channel_id: ChannelId) -> None:
    channel = state.channels[channel_id]
    for tag in sorted(channel.consumers):
        consumer = channel.consumers[tag]
        if consumer.status is Status.SUSPECTED:
            consumer.status = Status.WAITING if state.config.single_active else Status.UP
            state.service.add(consumer)
            outbox.monitor(channel_id.node)  # old news, perhaps: as when a node goes


def _find_or_create(state: State, outbox: Outbox, consumer_id: ConsumerId) -> Consumer:
    """The consumer of this name, made if need be."""
    channel_id = consumer_id.channel
    # Also for a node that is known: if it is away, the leader must hear of this consumer, and say so again.
    outbox.monitor(channel_id.node)
    channel = state.channels.setdefault(channel_id, ChannelState())
    consumer = channel.consumers.get(consumer_id.tag)
    if consumer is None:
        consumer = channel.consumers[consumer_id.tag] = Consumer(consumer_id)
        consumer.next_id = channel.first_id
        consumer.status = Status.GETTING
    return consumer


def _consumers_changed(state: State) -> None:
    state.last_used_ms = state.now_ms
    if state.config.single_active:
        single_active.elect(state)
