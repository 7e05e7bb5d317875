"""Who comes in from where, and what a guard remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from reference_broker.access.records import Permission, TopicPermission, User, Vhost
from reference_broker.access.table import AccessTable
from reference_broker.amqp.events import Publish, QueuePurge
from reference_broker.message_run import MessageRun
from reference_broker.node.clients.authorization import ClientGate, NodeAccess
from reference_broker.routing.table import RoutingTable
from tests.reference_broker.amqp.testing import content


@dataclass
class Connected:
    user: str
    vhost: str = "/"
    channel_count: int = 1


class Channel:
    """Remembers what it was refused, and what reached its handlers."""

    def __init__(self) -> None:
        self.refused: list[tuple[int, str, str]] = []
        self.handled: list[Any] = []
        self.answers = self.publishing = self

    def refuse(self, code: int, text: str, method: str = "basic.publish") -> None:
        self.refused.append((code, text, method))


class Node:
    """The users of one node."""

    def __init__(self, **file_users: str) -> None:
        self.table = AccessTable.of_a_new_cluster()
        self.table.put_user(User(name="ann"))
        self.table.put_permission(Permission(user="ann", vhost="/", configure="", write="", read="^q$"))
        self.routing = RoutingTable()
        self.connections: list[Connected] = []
        self.access = NodeAccess(
            lambda: self.table, lambda _vhost: self.routing, file_users, ("guest",), lambda: self.connections
        )


def certificate(name: str) -> dict[str, Any]:
    return {"subject": ((("organizationName", "o"),), (("commonName", name),))}


@pytest.mark.parametrize(
    ("peer", "may"),
    [
        (("127.0.0.1", 5), True), (("127.3.4.5", 5), True), (("::1", 5, 0, 0), True), (("::ffff:127.0.0.1", 5), True),
        (("fe80::1%lo", 5, 0, 0), False), (("10.0.0.1", 5), False), (("::ffff:10.0.0.1", 5), False), ("", True),
        (None, True), (("no address", 5), False),
    ],
)  # fmt: skip
def test_guest_comes_from_this_machine_only(peer: Any, may: bool) -> None:
    gate = ClientGate(Node(other="secret").access)
    gate.meet(peer, None)
    assert gate.is_password("guest", b"guest") is may
    assert gate.is_password("other", b"secret") and not gate.is_password("guest", b"wrong")


def test_a_certificate_names_its_user() -> None:
    gate = ClientGate(Node().access)
    gate.meet(("10.0.0.1", 5), certificate("ann"))
    assert gate.certificate_user == "ann" and gate.is_external("ann")
    gate.meet(("10.0.0.1", 5), certificate("guest"))
    assert not gate.is_external("guest"), "guest, from elsewhere"
    gate.meet(("10.0.0.1", 5), {})
    assert gate.certificate_user == "" and not gate.is_external("nobody")


def test_users_of_the_nodes_own_file_may_do_everything() -> None:
    access = Node(own="secret").access
    assert access.is_password("own", b"secret") and not access.is_password("own", b"") and access.exists("own")
    assert access.why_not_open("own", "/") == "" and access.guard("own", "/") is None
    assert access.why_not_open("own", "v") == "vhost v not found"


def test_limits_of_a_virtual_host_and_of_a_user() -> None:
    node = Node()
    node.table.put_vhost(Vhost(name="/", max_connections=2))
    node.connections = [Connected("x"), Connected("y")]
    expected = "access to vhost '/' refused for user 'ann': connection limit (2) is reached"
    assert node.access.why_not_open("ann", "/") == expected
    node.table.put_vhost(Vhost(name="/"))
    node.table.put_user(User(name="ann", max_connections=0, max_channels=3))
    assert node.access.why_not_open("ann", "/").endswith("user connection limit (0) is reached")
    node.connections = [Connected("ann", channel_count=2), Connected("x", channel_count=9)]
    assert node.access.why_no_channel("ann") == ""
    node.connections.append(Connected("ann"))
    assert node.access.why_no_channel("ann").endswith("limit of (3)")


def purge(queue: str) -> QueuePurge:
    return QueuePurge(1, queue, nowait=False)


def test_a_guard_stands_before_the_handlers() -> None:
    node, channel = Node(), Channel()
    guard = node.access.guard("ann", "/")
    assert guard is not None
    handlers = guard.around({QueuePurge: lambda at, event: at.handled.append(event), str: lambda at, event: None})
    handlers[QueuePurge](channel, purge("q"))
    handlers[QueuePurge](channel, purge("other"))
    assert [event.queue for event in channel.handled] == ["q"]
    refused = "access to queue 'other' in vhost '/' refused for user 'ann'"
    assert channel.refused == [(403, refused, "queue.purge")]


def test_what_was_allowed_is_allowed_by_the_same_guard_only() -> None:
    """Permissions that change make a new guard."""
    node, channel = Node(), Channel()
    first = node.access.guard("ann", "/")
    assert first is not None
    first.around({QueuePurge: lambda at, event: at.handled.append(event)})[QueuePurge](channel, purge("q"))
    node.table.put_permission(Permission(user="ann", vhost="/", configure="", write="", read=""))
    second = node.access.guard("ann", "/")
    assert second is not None
    second.around({QueuePurge: lambda at, event: at.handled.append(event)})[QueuePurge](channel, purge("q"))
    assert len(channel.handled) == 1 and len(channel.refused) == 1


def test_keys_are_asked_for_at_topic_exchanges_only() -> None:
    node = Node()
    node.table.put_permission(Permission(user="ann", vhost="/", configure="", write=".*", read=""))
    for exchange in ("amq.topic", "amq.direct"):
        node.table.put_topic_permission(TopicPermission(user="ann", vhost="/", exchange=exchange, write="^a$", read=""))
    guard, channel = node.access.guard("ann", "/"), Channel()
    assert guard is not None
    handlers = guard.around({Publish: lambda at, event: at.handled.append(event)})
    for exchange, key in (("amq.topic", "a"), ("amq.topic", "b"), ("amq.direct", "b"), ("none", "b")):
        run = MessageRun.of(b"\0\1q", [content(1, b"m")])
        handlers[Publish](channel, Publish(1, exchange, key, run=run, mandatory=False, first_seq=0, ttl_ms=-1))
    assert [(event.exchange, event.routing_key) for event in channel.handled] == [
        ("amq.topic", "a"), ("amq.direct", "b"), ("none", "b"),
    ]  # fmt: skip
    assert channel.refused == [
        (403, "access to topic 'b' in exchange 'amq.topic' in vhost '/' refused for user 'ann'", "basic.publish")
    ]


def test_a_connection_ends_with_its_user() -> None:
    node = Node()
    assert node.access.why_end("ann", "/") == ""
    node.table.delete_user("ann")
    assert node.access.why_end("ann", "/") == "user 'ann' was deleted"
    assert node.access.why_end("guest", "v") == "vhost 'v' was deleted"
