"""A policy is committed before any queue follows it, so what no queue could follow must be refused at the door."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord, with_policy
from reference_broker.machines.config import NO_LIMIT, Overflow
from reference_broker.node.links.peer_requests import RequestError
from reference_broker.node.operations.policy_check import read_policy, without_effect
from reference_broker.queues.settings import config_of
from reference_broker.types import GroupId, NodeId

RECORD = QueueRecord(name="orders", group=GroupId(1), members=(NodeId(1),))
MOST = {
    "max-length": 2**63 - 1, "max-length-bytes": 0, "overflow": "reject-publish", "message-ttl": 0, "expires": 1,
    "delivery-limit": 5, "dead-letter-exchange": "", "dead-letter-routing-key": "k" * 255,
    "dead-letter-strategy": "at-least-once",
}  # fmt: skip


def request(**definition: Any) -> dict[str, Any]:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    return {"op": "set-policy", "name": "p", "pattern": "^orders$", "definition": keys}


def test_what_is_accepted_can_be_followed() -> None:
    """Every key at once, at the ends of what is allowed: the settings are made and go through the log."""
    policy = read_policy({**request(), "definition": MOST, "priority": 3})
    config = config_of(with_policy(RECORD, [policy]))
    assert (config.max_length, config.delivery_limit, config.expires_ms) == (2**63 - 1, 5, 1)
    assert type(config).decode(config.encode()) == config
    assert config_of(RECORD).max_length == NO_LIMIT


@pytest.mark.parametrize(
    ("asked", "what", "fix"),
    [
        (request(overflow="nonsense"), "overflow = 'nonsense'", "one of drop-head, reject-publish"),
        (request(overflow=1), "overflow = 1", "one of drop-head, reject-publish"),
        (request(dead_letter_strategy="twice"), "dead-letter-strategy = 'twice'", "at-least-once"),
        (request(max_length=2**63), f"max-length = {2**63}", f"from 0 to {2**63 - 1}"),
        (request(max_length=-1), "max-length = -1", "from 0"),
        (request(max_length=True), "max-length = True", "from 0"),
        (request(max_length=1.5), "max-length = 1.5", "from 0"),
        (request(expires=0), "expires = 0", "from 1"),
        (request(message_ttl=2**40), f"message-ttl = {2**40}", "from 0"),
        (request(dead_letter_routing_key="k" * 256), "dead-letter-routing-key", "255 octets"),
        (request(dead_letter_exchange=[]), "dead-letter-exchange = []", "255 octets"),
        (request(max_size=1), "'max-size' is nothing", "max-length"),
        (request(), "empty", "set some of"),
        ({**request(expires=1), "pattern": "("}, "no regular expression", "orders"),
        ({**request(expires=1), "name": ""}, "needs a name", "limits"),
        ({**request(expires=1), "priority": "high"}, "priority 'high'", "whole number"),
    ],
)
def test_what_is_refused_says_which_key_and_what_instead(asked: dict[str, Any], what: str, fix: str) -> None:
    """Once committed it would stop the leader of every queue that it fits, again and again."""
    with pytest.raises(RequestError) as refused:
        read_policy(asked)
    assert "policy" in str(refused.value) and what in str(refused.value)
    assert fix in refused.value.fix


def test_operators_set_upper_limits_only() -> None:
    """An operator's policy must not turn a queue into another kind of queue."""
    policy = read_policy(request(max_length=5), operator=True)
    assert policy.operator and policy.key != read_policy(request(max_length=5)).key
    with pytest.raises(RequestError, match="nothing that an operator's policy can set"):
        read_policy(request(overflow="drop-head"), operator=True)


OF_RABBITMQ = {
    "alternate-exchange": "lost", "queue-mode": "lazy", "queue-version": 2, "queue-master-locator": "min-masters",
    "queue-leader-locator": "balanced", "max-in-memory-length": 0, "max-in-memory-bytes": 5, "max-age": "1D",
    "stream-max-segment-size-bytes": 5, "initial-cluster-size": 3, "overflow": "reject-publish-dlx",
}  # fmt: skip
IDLE = {
    "queue-version", "max-in-memory-length", "max-in-memory-bytes", "max-age", "stream-max-segment-size-bytes",
    "initial-cluster-size", "overflow",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["quorum", "classic", "keyed"])
def test_settings_that_only_rabbitmq_follows_are_taken_and_do_nothing(kind: str) -> None:
    """A policy of RabbitMQ moves here with its queues, and no queue stops at what it cannot follow."""
    policy = read_policy({**request(), "definition": OF_RABBITMQ})
    assert set(without_effect(dict(policy.definition))) == IDLE
    config = config_of(with_policy(replace(RECORD, kind=kind), [policy]))
    if kind == "classic":
        assert config.overflow is Overflow.REJECT_PUBLISH_DLX
        config = replace(config, overflow=Overflow.DROP_HEAD)
    assert config == config_of(replace(RECORD, kind=kind))


@pytest.mark.parametrize(
    "wrong",
    [
        {"alternate-exchange": 5}, {"queue-mode": "eager"}, {"queue-version": 3}, {"queue-master-locator": "any"},
        {"max-in-memory-length": -1}, {"max-age": 5}, {"initial-cluster-size": 0}, {"max-priority": 5},
    ],
)  # fmt: skip
def test_what_rabbitmq_refuses_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        read_policy({**request(), "definition": wrong})


def test_a_policy_for_exchanges_is_none_for_queues() -> None:
    asked = {**request(max_length=5), "apply_to": "exchanges"}
    assert with_policy(RECORD, [read_policy(asked)]) == RECORD
    with pytest.raises(RequestError, match="cannot apply to 'topics'"):
        read_policy({**asked, "apply_to": "topics"})


def test_operators_set_the_limits_that_they_set_in_rabbitmq() -> None:
    limits = {"max-in-memory-length": 1, "max-in-memory-bytes": 1, "delivery-limit": 1, "max-length": 1, "expires": 1}
    assert dict(read_policy({**request(), "definition": limits}, operator=True).definition) == limits
    for key in ("queue-version", "initial-cluster-size", "alternate-exchange", "queue-mode"):
        with pytest.raises(RequestError):
            read_policy({**request(), "definition": {key: OF_RABBITMQ[key]}}, operator=True)
