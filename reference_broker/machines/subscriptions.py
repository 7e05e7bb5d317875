"""The beginnings and ends of consumers: subscriptions, cancels, gets, and the ends of channels and nodes.

A consumer belongs to a channel, and a channel to one start of a node. When a channel ends, its consumers end, and their
messages return to the queue. A node that cannot be reached may still be alive. So its consumers stay and continue their
ids when the node is back, but hold no messages in between (RabbitMQ: ``suspected_down``). When a node comes back in a
new start, the channels of its earlier starts end.

The leader watches every node with a channel here. A change that may rest on outdated news asks for the watch again, so
that the present leader reports the node's true state.

Invariant (I20): message ids of a consumer go up by 1 and are never reused while its channel lives.
"""

from __future__ import annotations

from typing import Final

from reference_broker.machines import expiry, keyed_rules, single_active
from reference_broker.machines.commands import Cancel, Checkout, Get, GetCheckedOut
from reference_broker.machines.consumers import IN_SERVICE, Consumer, Status
from reference_broker.machines.delivery_limit import take_back
from reference_broker.machines.fifo_state import ChannelState, State
from reference_broker.machines.outbox import Outbox
from reference_broker.machines.settlement import credited
from reference_broker.types import IN_EXCLUSIVE_USE, ChannelId, ConsumerId, NodeId

_SUBSCRIBED: Final = IN_SERVICE | {Status.SUSPECTED}


def checkout(state: State, outbox: Outbox, command: Checkout) -> None:
    """Subscribe. The reply carries the id of the next message, so the channel notices a missed message."""
    channel_id = command.consumer.channel
    if state.is_of_earlier_boot(channel_id):
        return
    if _is_in_exclusive_use(state, command):
        outbox.reply(channel_id, command.correlation, IN_EXCLUSIVE_USE, command.consumer)
        return
    consumer = _find_or_create(state, outbox, command.consumer)
    if command.exclusive:
        state.exclusive = consumer
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


def _is_in_exclusive_use(state: State, command: Checkout) -> bool:
    """Whether another consumer is alone, or this one wants to be alone and cannot."""
    holder = state.exclusive
    if holder is not None and holder.status in _SUBSCRIBED and state.consumer(holder.id) is holder:
        if holder.id == command.consumer and not command.exclusive:
            state.exclusive = None
        return holder.id != command.consumer  # the prefetch of the holder may change
    state.exclusive = None
    if not command.exclusive:
        return False
    return state.config.single_active or any(other.status in _SUBSCRIBED for other in state.all_consumers())


def cancel(state: State, outbox: Outbox, command: Cancel) -> None:
    """End a subscription. The consumer keeps its messages until it settles them or its channel ends."""
    consumer = state.consumer(command.consumer)
    if consumer is not None:
        consumer.status = Status.CANCELLED
        state.service.remove(consumer)
        credited(state, consumer)
        _consumers_changed(state)
    outbox.reply(command.consumer.channel, command.correlation, 0, command.consumer)


def get(state: State, outbox: Outbox, command: Get) -> None:
    """Deal one message, whatever the credit. A quorum queue with a single active consumer deals none."""
    channel_id = command.consumer.channel
    if state.is_of_earlier_boot(channel_id):
        return
    state.last_used_ms = state.now_ms
    consumer = _find_or_create(state, outbox, command.consumer)
    value = 0
    if state.ready and (state.gets_beside_single_active or not state.config.single_active):
        _count, start, _step, origin = state.ready.head()
        message_id = consumer.hold_one(command.auto_settle, start, origin)
        if state.keyed is None:
            state.ready.take(1)
        else:
            keyed_rules.dealt(state.keyed, state, consumer, message_id, is_settled=command.auto_settle)
        state.totals.settled += command.auto_settle
        if command.auto_settle:
            state.departures.stretch(1, start, 1, origin)
        if not consumer.credit:
            state.service.remove(consumer)
        outbox.deliver(consumer.id, message_id, start, 1, 1, origin)
        if state.is_expiring:
            expiry.expire_heads(state, outbox)  # a message behind may have expired long ago, and is not left
        value = 1 + state.ready.count
    outbox.reply(channel_id, command.correlation, value, command.consumer)


def get_checked_out(state: State, outbox: Outbox, command: GetCheckedOut) -> None:
    """Deliver a consumer's messages once more. The reply goes first: the consumer's node leaves deliveries out until
    then."""
    consumer = state.consumer(command.consumer)
    if consumer is None:
        return
    outbox.reply(command.consumer.channel, command.correlation, 0, command.consumer)
    for held in consumer.held:
        skipped = max(command.first_id - held.first_id, 0)
        if skipped < held.count:
            start, count = held.start + skipped * held.step, held.count - skipped
            outbox.deliver(consumer.id, held.first_id + skipped, start, count, held.step, held.origin)


def channel_down(state: State, outbox: Outbox, channel_id: ChannelId) -> None:
    """End a channel, with its consumers and its sequence numbers."""
    channel = state.channels.pop(channel_id, None)
    if channel is None:
        return
    state.suspected.discard(channel_id)
    for _tag, consumer in sorted(channel.consumers.items()):  # sorted: returns may number dead letters
        state.service.remove(consumer)
        take_back(state, outbox, consumer.release_all())
    if channel.consumers:
        _consumers_changed(state)


def node_down(state: State, outbox: Outbox, node: NodeId) -> None:
    """Suspect the consumers of a node: they keep their ids and lose their messages.

    A deposed leader may have sent this news. So if it changes a consumer, the present leader is asked to watch the
    node, and reports its true state.
    """
    is_news = False
    for consumer in state.consumers():
        if consumer.id.channel.node == node:
            state.service.remove(consumer)
            consumer.lost_messages |= bool(consumer.unacked)
            take_back(state, outbox, consumer.release_all())
            if consumer.status in IN_SERVICE:
                consumer.status = Status.SUSPECTED
                state.suspected.add(consumer.id.channel)
                outbox.monitor(node)
                is_news = True
    if is_news:
        _consumers_changed(state)


def node_up(state: State, outbox: Outbox, node: NodeId, boot_id: int) -> None:
    """Resume the channels of this start of the node, and end the channels of earlier starts. A queue is not used by the
    news alone, which comes with each new publisher."""
    if boot_id > state.boot_ids.get(node, 0):
        state.boot_ids[node] = boot_id
        for channel_id in sorted(each for each in state.channels if each.node == node and each.boot_id < boot_id):
            channel_down(state, outbox, channel_id)
    is_news = False
    for channel_id in sorted(each for each in state.suspected if (each.node, each.boot_id) == (node, boot_id)):
        is_news |= _resume(state, outbox, channel_id)
    if is_news:
        _consumers_changed(state)


def _resume(state: State, outbox: Outbox, channel_id: ChannelId) -> bool:
    """Serve the channel's suspected consumers again. Returns whether there were any."""
    channel, is_news = state.channels[channel_id], False
    state.suspected.discard(channel_id)
    for tag in sorted(channel.consumers):
        consumer = channel.consumers[tag]
        if consumer.status is Status.SUSPECTED:
            consumer.status = Status.WAITING if state.config.single_active else Status.UP
            state.service.add(consumer)
            outbox.monitor(channel_id.node)  # the news may be outdated, as in node_down
            is_news = True
    return is_news


def _find_or_create(state: State, outbox: Outbox, consumer_id: ConsumerId) -> Consumer:
    """The consumer with this identity; a new consumer if there is none."""
    channel_id = consumer_id.channel
    # Also for a known node: if the node is away, the leader must report that again, for this consumer.
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
