"""Patterns of an earlier version that cannot be used: the node starts, and says once what finds nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.access.records import Access, Permission, TopicPermission
from reference_broker.machines.cluster.access import PutPermission, PutTopicPermission
from reference_broker.machines.cluster.metadata import MetadataCommand, SetPolicy, encode
from reference_broker.machines.cluster.policies import Policy, in_force
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.types import Entry, EntryKind, LogIndex, NodeId, Term

ASKER: dict[str, Any] = {"node": NodeId(1), "correlation": 7}
LIMIT = (("max-length", 1),)
STORED: list[MetadataCommand] = [
    SetPolicy(policy=Policy(name="p", pattern="^(?!amq).*", definition=LIMIT), **ASKER),
    SetPolicy(policy=Policy(name="o", pattern="(q)\\1", definition=LIMIT, operator=True), **ASKER),
    SetPolicy(policy=Policy(name="good", pattern="(q+)+$", definition=LIMIT, priority=-1), **ASKER),
    PutPermission(permission=Permission(user="guest", vhost="/", configure=".*", write="q(?=q)", read=".*"), **ASKER),
    PutTopicPermission(
        topic_permission=TopicPermission(user="guest", vhost="/", exchange="x", write="k++", read=".*"), **ASKER
    ),
]
SAID = [
    "policy 'p' of virtual host '/': the regular expression '^(?!amq).*' finds no name",
    "operator policy 'o' of virtual host '/': the regular expression '(q)\\\\1' finds no name",
    "permission of user 'guest' in virtual host '/': the regular expression 'q(?=q)' finds no name",
    "topic permission of user 'guest' in virtual host '/' for 'x': the regular expression 'k++' finds no name",
]


def host() -> MetadataHost:
    starter = SimpleNamespace(node=NodeId(1), boot_id=1)
    starter.policies_changed = starter.queues_replaced = lambda *_: None
    return MetadataHost(starter)  # type: ignore[arg-type]


def replay(metadata: MetadataHost) -> None:
    payload = encode(STORED)
    metadata.apply(Entry(LogIndex(1), Term(1), EntryKind.COMMAND, 0, payload), len(payload), frozenset())
    metadata.run_effects()


def check_state(metadata: MetadataHost) -> None:
    machine = metadata.machine
    policies = list(machine.policies.values())
    holds = in_force(policies, "qq")
    assert holds is not None and holds.name == "good", "the policy of higher priority finds nothing"
    assert in_force(policies, "qq", operator=True) is None
    assert not machine.access.may("guest", "/", Access.WRITE, "qq")
    assert machine.access.may("guest", "/", Access.READ, "qq")
    assert not machine.access.may_use_key("guest", "/", Access.WRITE, "x", "k")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_log_with_patterns_that_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    metadata = host()
    replay(metadata)
    check_state(metadata)
    assert [line.partition(": i")[0].partition(": bad")[0] for line in said(caplog)] == SAID
    assert all(line.endswith("; set it again with another expression") for line in said(caplog))


@pytest.mark.parametrize("taken", ["restore", "install"])
def test_a_snapshot_with_patterns_that_cannot_be_used(taken: str, caplog: pytest.LogCaptureFixture) -> None:
    """The entries after the snapshot repeat them, and nothing is said twice."""
    first = host()
    replay(first)
    state = first.snapshot()
    caplog.clear()
    metadata = host()
    metadata.restore(state) if taken == "restore" else metadata.install(state, ())
    replay(metadata)
    check_state(metadata)
    assert metadata.snapshot() == state
    assert sorted(line.partition(": i")[0].partition(": bad")[0] for line in said(caplog)) == sorted(SAID)
