"""The events of a connection: the client's wishes, as the protocol core tells them to the shell.

:class:`~reference_broker.amqp.connection.ServerConnection` answers methods by itself if they need no broker (handshake,
heartbeats, channels, qos, confirm.select). Every other method becomes one of these events. Publishes and
acknowledgements arrive as runs.
"""

from __future__ import annotations

from dataclasses import field

from reference_broker.message_run import MessageRun
from reference_broker.records import record
from reference_broker.routing.records import Arguments, Destination
from reference_broker.types import NO_TTL, IdRange, Outcome

FieldValue = object
"""A value of an AMQP field table, as pamqp decodes it."""


@record
class ConnectionOpened:
    """connection.open was answered: the client is authenticated and in its virtual host."""

    user: str
    vhost: str
    client_properties: dict[str, FieldValue]


@record
class ConnectionClosed:
    """The connection is over. Write the rest of ``take_output()``, then close the socket."""

    reason: str


@record
class ConnectionClosing:
    """The client closes the connection, which the broker has said to :meth:`close late
    <reference_broker.amqp.connection.ServerConnection.close_late>`. Its channels are gone. Answer with ``close_ok``."""


@record
class ChannelClosed:
    """The channel is gone, by the client's wish or after an error. Forget its consumers and its enqueuer. If the client
    waits (``owes_ok``), answer with ``channel_close_ok``."""

    channel: int
    owes_ok: bool = False


@record
class QueueDeclare:
    """queue.declare. An empty name asks the broker to make a name. Answer with ``queue_declare_ok`` or
    ``channel_error``."""

    channel: int
    queue: str
    passive: bool
    durable: bool
    exclusive: bool
    auto_delete: bool
    nowait: bool
    arguments: dict[str, FieldValue] = field(default_factory=dict)


@record
class QueueDelete:
    """queue.delete. Answer with ``queue_delete_ok`` or ``channel_error``."""

    channel: int
    queue: str
    if_unused: bool
    if_empty: bool
    nowait: bool


@record
class QueuePurge:
    """queue.purge. Answer with ``queue_purge_ok`` or ``channel_error``."""

    channel: int
    queue: str
    nowait: bool


@record
class ExchangeDeclare:
    """exchange.declare. The type is one of the four, unless the declaration is passive. ``fields`` are the arguments as
    raw fields. Answer with ``exchange_ok`` or ``channel_error``."""

    channel: int
    exchange: str
    type: str
    passive: bool
    durable: bool
    auto_delete: bool
    internal: bool
    nowait: bool
    arguments: dict[str, FieldValue]
    fields: Arguments
    method = "exchange.declare"


@record
class ExchangeDelete:
    """exchange.delete. Answer with ``exchange_ok`` or ``channel_error``."""

    channel: int
    exchange: str
    if_unused: bool
    nowait: bool
    method = "exchange.delete"


@record
class BindingChange:
    """exchange.bind, exchange.unbind, queue.bind or queue.unbind. Answer with ``exchange_ok`` or ``channel_error``."""

    channel: int
    adds: bool
    """Whether the binding is made; else it is removed."""
    source: str
    destination: Destination
    routing_key: str
    fields: Arguments
    nowait: bool

    @property
    def method(self) -> str:
        """The name of the method."""
        return ("exchange." if self.destination.is_exchange else "queue.") + ("bind" if self.adds else "unbind")


ExchangeEvent = ExchangeDeclare | ExchangeDelete | BindingChange
"""Events that change exchanges and bindings."""


@record
class Publish:
    """A run of basic.publish with one method frame and one time to live.

    ``first_seq`` is the channel's publish sequence number of the first message when the channel is in confirm mode,
    else 0. ``ttl_ms`` is the expiration of the messages, or ``NO_TTL``; it is ``COPIES`` if the messages have CC or BCC
    headers, still unread, or ask for a direct reply. In confirm mode, answer with ``confirm`` or ``reject``; before
    that, send a mandatory unroutable run back with ``returned``.
    """

    channel: int
    exchange: str
    routing_key: str
    mandatory: bool
    first_seq: int
    run: MessageRun
    ttl_ms: int = NO_TTL


@record
class Consume:
    """basic.consume. The consumer tag is already made if the client left it out. ``prefetch`` is the channel's qos at
    this moment (0: unlimited). Answer with ``consume_ok`` or ``channel_error``."""

    channel: int
    queue: str
    consumer_tag: str
    no_ack: bool
    exclusive: bool
    nowait: bool
    prefetch: int
    arguments: dict[str, FieldValue] = field(default_factory=dict)


@record
class Get:
    """basic.get. Answer with ``get_ok``, ``get_empty`` or ``channel_error``. When the message is settled later,
    :class:`Settled` names it by this ``consumer_tag``, which no consumer can have."""

    channel: int
    queue: str
    consumer_tag: str
    no_ack: bool


@record
class Cancel:
    """basic.cancel of a consumer that exists. Answer with ``cancel_ok``."""

    channel: int
    consumer_tag: str
    nowait: bool


@record
class Settled:
    """Acknowledgements of one consumer's messages. ``ranges`` are message ids, not delivery tags, in ascending
    order."""

    channel: int
    consumer_tag: str
    outcome: Outcome
    ranges: tuple[IdRange, ...]


@record
class Recovered(Settled):
    """basic.recover: the messages go back to their queues at once, also while a transaction is open."""


@record
class GlobalQos:
    """basic.qos with global: the most unacknowledged deliveries of all consumers of the channel; 0: any number."""

    channel: int
    prefetch: int


@record
class TxSelect:
    """tx.select of a channel that is not in tx mode. Answer with ``tx_selected``."""

    channel: int


@record
class TxCommit:
    """tx.commit. Answer with ``tx_ended`` or ``channel_error``."""

    channel: int


@record
class TxRollback:
    """tx.rollback. Answer with ``tx_ended``."""

    channel: int


Event = (
    ConnectionOpened
    | ConnectionClosing
    | ConnectionClosed
    | ChannelClosed
    | QueueDeclare
    | QueueDelete
    | QueuePurge
    | ExchangeEvent
    | Publish
    | Consume
    | Get
    | Cancel
    | Settled
    | GlobalQos
    | TxSelect
    | TxCommit
    | TxRollback
)
