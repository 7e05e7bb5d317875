"""Consumers whose client, or link, takes no more for now: what they miss, and how they catch up.

Theory of operation
-------------------
Octets that a client does not read stay in the buffer of its socket, in this node's memory. A consumer may hold
thousands of messages, and messages may be large. So a connection with more than ``unread_bytes_max`` unread octets gets
no deliveries for its consumers: the queue has these messages in its log, and they count against the consumer's credit
as before. Once the client has read, the channel asks the queue for the consumer's messages from its next message id on.
Messages for a consumer on another node than the queue's leader or owner are left out, too, while the link to that node
is congested. The other node learns of the gap over the same link, behind the waiting frames, and its channel asks as
above.

The order of the messages, their delivery counts and their flags are those of a client that reads at once.

Deliveries to a consumer that has missed one are left out until the queue has answered, because they would leave a gap.
The queue's answer comes right before the missed deliveries, in the same order on each node. So no message is left out
for good, or delivered twice.

A consumer that is cancelled while it is behind returns its missed messages
(:meth:`~reference_broker.node.clients.consuming.Consuming.give_back`).

Invariant: if ``missed_up_to`` is set, the client gets nothing more until the queue has answered; the channel asks then,
or waits for the client to read.
"""

from __future__ import annotations

from reference_broker.node.clients.consuming import Consuming
from reference_broker.queues.session import NOTHING_MISSED, ConsumeSession


def catch_up(consuming: Consuming) -> None:
    """The client reads again: ask for the missed deliveries of the channel's consumers."""
    for consumer in consuming.consumers.values():
        if consumer.missed_up_to != NOTHING_MISSED and not consumer.is_asking:
            _ask(consuming, consumer)


def _ask(consuming: Consuming, consumer: ConsumeSession) -> None:
    def answered(_value: int) -> None:
        """The missed deliveries come next."""
        consumer.is_asking, consumer.missed_up_to = False, NOTHING_MISSED

    consumer.is_asking = True
    consuming.context.used[consumer.group].get_checked_out(consumer, consuming.answers.aside(answered))
