"""Users are the same on all nodes, or a client that was locked out comes in by another door."""

from __future__ import annotations

import json
from typing import Any

from reference_broker.access.records import Permission, TopicPermission, User, Vhost
from reference_broker.machines.cluster.access import (
    AccessAnswer,
    AccessCommand,
    DeletePermission,
    DeleteTopicPermissions,
    DeleteUser,
    PutPermission,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from reference_broker.machines.cluster.metadata import AccessChanged, MetadataMachine, decode, encode
from reference_broker.types import NodeId

ASKER: dict[str, Any] = {"node": NodeId(1), "correlation": 7}
ANN = User(name="ann", password_hash="h", tags=("monitoring",), max_channels=3)
RIGHTS = Permission(user="ann", vhost="v", configure="", write=".*", read="^q")
TOPICS = TopicPermission(user="ann", vhost="v", exchange="x", write="", read="")
EVERYTHING: list[AccessCommand] = [
    PutUser(user=ANN, **ASKER),
    PutVhost(vhost=Vhost(name="v", tags=("a",), max_queues=5), **ASKER),
    PutPermission(permission=RIGHTS, **ASKER),
    PutTopicPermission(topic_permission=TOPICS, **ASKER),
]
CHANGES: list[AccessCommand] = [
    DeletePermission(user_name="ann", vhost_name="v", **ASKER),
    DeleteTopicPermissions(user_name="ann", vhost_name="v", exchange_name=None, **ASKER),
    DeleteUser(name="guest", **ASKER),
]


def test_commands_survive_the_log() -> None:
    assert decode(encode(EVERYTHING + CHANGES)) == EVERYTHING + CHANGES


def test_a_snapshot_is_the_state() -> None:
    machine = MetadataMachine()
    machine.apply(encode(EVERYTHING))
    restored = MetadataMachine.restore(machine.snapshot())
    assert restored.access.users["ann"] == ANN and restored.access.vhosts["v"].max_queues == 5
    assert restored.access.permissions["ann", "v"] == RIGHTS
    assert restored.access.topic_permissions["ann", "v", "x"] == TOPICS
    assert restored.snapshot() == machine.snapshot()


def test_deletions_stay_deleted() -> None:
    """Guest, above all: a restart must not bring guest back."""
    machine = MetadataMachine()
    machine.apply(encode(EVERYTHING + CHANGES))
    restored = MetadataMachine.restore(machine.snapshot())
    assert {*restored.access.users} == {"ann"}
    assert not restored.access.permissions and not restored.access.topic_permissions


def test_a_permission_needs_its_user_and_its_virtual_host() -> None:
    machine = MetadataMachine()
    for given, missing in ((EVERYTHING[2:3], "user 'ann'"), (EVERYTHING[:1] + EVERYTHING[3:], "virtual host 'v'")):
        assert machine.apply(encode(given))[-2:] == [AccessChanged(), AccessAnswer(NodeId(1), 7, missing)]
    assert {*machine.access.permissions} == {("guest", "/")}


def test_the_metadata_of_an_older_program_has_a_guest() -> None:
    older = json.loads(MetadataMachine().snapshot())
    del older["access"]
    older["version"] = 6
    assert MetadataMachine.restore(json.dumps(older).encode()).access.is_password("guest", b"guest")
