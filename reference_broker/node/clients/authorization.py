"""The rights of users on this node: the gate of a connection, and the guard of its channels.

A user who may do everything has no guard, so its requests cost nothing more. The guard of any other user stands before
the handlers of the core's events. A run of publishes is one event. A guard remembers what it has allowed; when
permissions change, each connection gets a new guard.

Reply codes and texts are RabbitMQ's. Which permission an operation needs is RabbitMQ's table, too ("Access Control",
"How Authorisation Works").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol

from reference_broker.access.records import IMPERSONATOR, NO_LIMIT, Access
from reference_broker.access.table import AccessTable
from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import (
    BindingChange,
    Consume,
    ExchangeDeclare,
    ExchangeDelete,
    Get,
    Publish,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from reference_broker.routing.records import ALTERNATE, ExchangeType
from reference_broker.routing.table import RoutingTable
from reference_broker.types import REPLY_TO

OPERATOR: Final = "\0operator"
"""The name of an operator, who has proved the cluster's secret on the control port and may do everything. No client can
have this name."""
_DEFAULT_EXCHANGE: Final = "amq.default"
_SERVER_NAMED: Final = "amq.gen-"
REPLY_QUEUE: Final = REPLY_TO.decode()
_REMEMBERED_MAX: Final = 1000
Handler = Callable[[Any, Any], None]
"""Handles an event of the core on a channel."""
CONFIGURE, WRITE, READ = Access.CONFIGURE, Access.WRITE, Access.READ


class Refusing(Protocol):
    """The answers of a channel."""

    def refuse(self, code: int, text: str, method: str) -> None:
        """Close the channel."""


class RefusingPublishes(Protocol):
    """The publishes of a channel."""

    def refuse(self, code: int, text: str) -> None:
        """Close the channel: the client must not publish this."""


class GuardedChannel(Protocol):
    """A channel as its guard uses it."""

    @property
    def answers(self) -> Refusing:
        """The part that refuses requests."""

    @property
    def publishing(self) -> RefusingPublishes:
        """The part that refuses publishes."""


class Need(NamedTuple):
    """A permission that an operation needs. With ``key``, the routing key at a topic exchange, too."""

    access: Access
    what: str
    """*queue* or *exchange*."""
    name: str
    key: str | None = None


class LoggedIn(Protocol):
    """A connection, as limits count it. Before connection.open, user and virtual host are empty."""

    user: str
    vhost: str

    @property
    def channel_count(self) -> int:
        """The channels that are open on it."""


class NodeAccess:
    """The users of one node: the cluster's, and the users in the node's own configuration, who may do everything."""

    def __init__(
        self,
        table: Callable[[], AccessTable],
        routing: Callable[[str], RoutingTable],
        file_users: Mapping[str, str],
        loopback_users: Iterable[str],
        connections: Callable[[], Iterable[LoggedIn]],
        lacks_memory: Callable[[], bool] = lambda: False,
    ) -> None:
        """``table`` and ``routing``, of a virtual host: as they are now. ``connections``: this node's."""
        self.lacks_memory = lacks_memory
        self.table = table
        self.loopback_users = frozenset(loopback_users)
        self._routing = routing
        self._file_users = file_users
        self._connections = connections

    def exists(self, user: str) -> bool:
        """Whether there is such a user."""
        return user == OPERATOR or user in self._file_users or user in self.table().users

    def is_password(self, user: str, password: bytes) -> bool:
        """Whether the user has this password."""
        own = self._file_users.get(user)
        if own is not None and compare_digest(own.encode(), password):
            return True
        return self.table().is_password(user, password)

    def why_not_open(self, user: str, vhost: str) -> str:
        """Why the user may not open the virtual host now, in RabbitMQ's words; empty if the user may."""
        table = self.table()
        if vhost not in table.vhosts:
            return f"vhost {vhost} not found"
        refused = f"access to vhost '{vhost}' refused for user '{user}'"
        if user == OPERATOR or user in self._file_users:
            return ""
        if not table.may_open(user, vhost):
            return refused
        limit = table.vhosts[vhost].max_connections
        if self._is_reached(limit, lambda other: other.vhost == vhost):
            return f"{refused}: connection limit ({limit}) is reached"
        limit = table.users[user].max_connections
        if self._is_reached(limit, lambda other: other.user == user):
            return f"connection refused for user '{user}': user connection limit ({limit}) is reached"
        return ""

    def why_no_channel(self, user: str) -> str:
        """Why the user may not open one more channel, in RabbitMQ's words; empty if the user may."""
        known = self.table().users.get(user)
        limit = known.max_channels if known else NO_LIMIT
        if limit == NO_LIMIT or sum(each.channel_count for each in self._connections() if each.user == user) < limit:
            return ""
        return f"number of channels opened for user '{user}' has reached the maximum allowed user limit of ({limit})"

    def has_tag(self, user: str, tag: str) -> bool:
        """Whether a user of the cluster has this tag."""
        known = self.table().users.get(user)
        return known is not None and tag in known.tags

    def why_end(self, user: str, vhost: str) -> str:
        """Why a connection of this user must end, in RabbitMQ's words; empty if it may go on."""
        if not self.exists(user):
            return f"user '{user}' was deleted"
        return "" if vhost in self.table().vhosts else f"vhost '{vhost}' was deleted"

    def guard(self, user: str, vhost: str) -> Guard | None:
        """The guard for a user's channels; None for a user who may do everything."""
        if user == OPERATOR or user in self._file_users or self.table().may_do_everything(user, vhost):
            return None
        return Guard(user, vhost, self.table, self._routing)

    def _is_reached(self, limit: int, counts: Callable[[LoggedIn], bool]) -> bool:
        return limit != NO_LIMIT and sum(counts(each) for each in self._connections()) >= limit


class ClientGate:
    """The gate of one connection (:class:`reference_broker.amqp.gate.Gate`)."""

    def __init__(self, access: NodeAccess) -> None:
        self._access = access
        self.is_local = True
        """Whether the client is on this machine."""
        self.certificate_user = ""

    def meet(self, peer: object, certificate: object) -> None:
        """A client dialled: ``peer`` is its address, ``certificate`` its certificate, both as asyncio has them; None if
        there is none."""
        self.is_local = is_loopback(peer)
        self.certificate_user = _common_name(certificate)

    def is_password(self, user: str, password: bytes) -> bool:
        """Whether the user may log in with this password, from where the client is."""
        return self._access.is_password(user, password) and self._may_come_from_here(user)

    def is_external(self, user: str) -> bool:
        """Whether the user of a certificate may log in."""
        return self._access.exists(user) and self._may_come_from_here(user)

    def why_not_open(self, user: str, vhost: str) -> str:
        """Why the user may not open the virtual host."""
        return self._access.why_not_open(user, vhost)

    def why_no_channel(self, user: str) -> str:
        """Why the user may not open one more channel."""
        if self._access.lacks_memory():
            return "the node holds much more memory than it should: no more channels are opened"
        return self._access.why_no_channel(user)

    def may_impersonate(self, user: str) -> bool:
        """Whether the user has the tag for it."""
        return self._access.has_tag(user, IMPERSONATOR)

    def _may_come_from_here(self, user: str) -> bool:
        return self.is_local or user not in self._access.loopback_users


class Guard:
    """The rights of one user in one virtual host."""

    def __init__(
        self, user: str, vhost: str, table: Callable[[], AccessTable], routing: Callable[[str], RoutingTable]
    ) -> None:
        self._user = user
        self._vhost = vhost
        self._table = table
        self._routing = routing
        self._allowed: set[Need] = set()

    def around(self, handlers: Mapping[type, Handler]) -> Mapping[type, Handler]:
        """The handlers of events, each behind this guard."""
        return {kind: self._guarded(handler) if kind in _NEEDS else handler for kind, handler in handlers.items()}

    def _guarded(self, handler: Handler) -> Handler:
        def handle(channel: Any, event: Any) -> None:
            if self._permits(channel, event):
                handler(channel, event)

        return handle

    def _permits(self, channel: GuardedChannel, event: Any) -> bool:
        """Whether the user may do this. If not, the channel is closed with 403."""
        refused = next((need for need in _NEEDS[type(event)](event) if not self._may(need)), None)
        if refused is None:
            return True
        text = self._refusal(refused)
        if isinstance(event, Publish):
            channel.publishing.refuse(ReplyCode.ACCESS_REFUSED, text)
        else:
            channel.answers.refuse(ReplyCode.ACCESS_REFUSED, text, _method(event))
        return False

    def _may(self, need: Need) -> bool:
        if need in self._allowed:
            return True
        table = self._table()
        may = table.may(self._user, self._vhost, need.access, need.name) and self._may_use_key(table, need)
        if may and len(self._allowed) < _REMEMBERED_MAX:
            self._allowed.add(need)
        return may

    def _may_use_key(self, table: AccessTable, need: Need) -> bool:
        if need.key is None or not self._is_topic(need.name):
            return True
        return table.may_use_key(self._user, self._vhost, need.access, need.name, need.key)

    def _is_topic(self, exchange: str) -> bool:
        known = self._routing(self._vhost).exchange(exchange)
        return known is not None and known.type is ExchangeType.TOPIC

    def _refusal(self, need: Need) -> str:
        what = f"{need.what} '{need.name or _DEFAULT_EXCHANGE}' in vhost '{self._vhost}'"
        if self._table().may(self._user, self._vhost, need.access, need.name):
            return f"access to topic '{need.key}' in {what} refused for user '{self._user}'"
        return f"access to {what} refused for user '{self._user}'"


def is_loopback(peer: object) -> bool:
    """Whether the address is one of this machine's own."""
    if not isinstance(peer, tuple):  # no network at all
        return True
    try:
        address = ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _common_name(certificate: object) -> str:
    """The common name of a certificate's subject, as ``getpeercert`` has it; empty if there is none."""
    if not isinstance(certificate, Mapping):
        return ""
    fields = (field for group in certificate.get("subject", ()) for field in group)
    name = next((str(value) for name, value in fields if name == "commonName"), "")
    return "" if "\0" in name else name


def _declare_queue(event: QueueDeclare) -> Iterator[Need]:
    if event.passive:
        return
    name = event.queue or _SERVER_NAMED
    yield Need(CONFIGURE, "queue", name)
    target = event.arguments.get("x-dead-letter-exchange")
    if isinstance(target, str):
        yield Need(READ, "queue", name)
        yield Need(WRITE, "exchange", target)


def _declare_exchange(event: ExchangeDeclare) -> Iterator[Need]:
    if event.passive:
        return
    yield Need(CONFIGURE, "exchange", event.exchange)
    alternate = event.arguments.get(ALTERNATE.decode())
    if isinstance(alternate, str):
        yield Need(READ, "exchange", event.exchange)
        yield Need(WRITE, "exchange", alternate)


def _change_binding(event: BindingChange) -> Iterator[Need]:
    to = event.destination
    yield Need(WRITE, "exchange" if to.is_exchange else "queue", to.name)
    yield Need(READ, "exchange", event.source, event.routing_key)


_NEEDS: Final[dict[type, Callable[[Any], Iterable[Need]]]] = {
    Publish: lambda event: (Need(WRITE, "exchange", event.exchange, event.routing_key),),
    QueueDeclare: _declare_queue,
    QueueDelete: lambda event: (Need(CONFIGURE, "queue", event.queue),),
    QueuePurge: lambda event: (Need(READ, "queue", event.queue),),
    Consume: lambda event: (Need(READ, "queue", event.queue),) if event.queue != REPLY_QUEUE else (),
    Get: lambda event: (Need(READ, "queue", event.queue),),
    ExchangeDeclare: _declare_exchange,
    ExchangeDelete: lambda event: (Need(CONFIGURE, "exchange", event.exchange),),
    BindingChange: _change_binding,
}
"""The permissions that each operation needs, in the order in which they are checked."""
_METHODS: Final[dict[type, str]] = {
    QueueDeclare: "queue.declare", QueueDelete: "queue.delete", QueuePurge: "queue.purge",
    Consume: "basic.consume", Get: "basic.get",
}  # fmt: skip


def _method(event: Any) -> str:
    return _METHODS.get(type(event)) or str(event.method)
