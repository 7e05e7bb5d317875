"""Declarations are refused as RabbitMQ refuses them: clients match on the reply code and on the sentence.

The sentences are RabbitMQ 3.10's; ``tests/integration/test_same_answers_as_rabbitmq.py`` asks a real one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.amqp.events import Consume, QueueDeclare
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.config import FifoConfig, KeyedConfig, Overflow
from reference_broker.node.hosting.declaration import DeclarationError, check, consumer_priority, new_record
from reference_broker.queues.kinds import KINDS
from reference_broker.queues.quorum import QUORUM as QUORUM_KIND
from reference_broker.queues.settings import classic_config_of, config_of, key_source_of
from reference_broker.types import NodeId

NODES = [NodeId(1), NodeId(2), NodeId(3)]
QUORUM = {"x-queue-type": "quorum"}
ME = (NodeId(1), 7, 42)


def declare(name: str = "q", **changes: Any) -> QueueDeclare:
    fields: dict[str, Any] = {
        "passive": False,
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
        "nowait": False,
        "arguments": QUORUM,
    }
    return QueueDeclare(1, name, **{**fields, **changes})


def with_argument(key: str, value: object, **more: object) -> QueueDeclare:
    return declare(arguments={**QUORUM, key: value, **more})


def record_of(event: QueueDeclare) -> Any:
    return new_record(event, event.queue, NODES, secrets.randbits, KINDS, ME)


WRONG_KIND = [
    (declare(""), 406, "Cannot declare a server-named queue for type rabbit_quorum_queue"),
    (
        declare("", arguments={"x-queue-type": "keyed"}, durable=False),
        406,
        "Cannot declare a server-named queue for type rabbit_keyed_queue",
    ),
    (declare("amq.mine"), 403, "queue name 'amq.mine' contains reserved prefix 'amq.*'"),
    (
        declare(arguments={"x-queue-type": "stream"}),
        406,
        "queue type 'stream' is not available here; declare 'q' with x-queue-type=classic or quorum or keyed",
    ),
    (declare(durable=False), 406, "invalid property 'non-durable' for queue 'q' in vhost '/'"),
    (declare(exclusive=True), 406, "invalid property 'exclusive-owner' for queue 'q' in vhost '/'"),
    (declare(durable=False, exclusive=True, auto_delete=True), 406, "invalid property 'auto-delete' for queue 'q'"),
]


@pytest.mark.parametrize(("event", "code", "text"), WRONG_KIND, ids=[text for _, _, text in WRONG_KIND])
def test_what_a_quorum_queue_cannot_be(event: QueueDeclare, code: int, text: str) -> None:
    """A durable queue on three nodes that silently were a transient one on one node would lose messages."""
    with pytest.raises(DeclarationError) as refused:
        record_of(event)
    assert refused.value.code == code
    assert refused.value.text.startswith(text)


WRONG_ARGUMENTS = [
    ("x-max-priority", 5, " of queue type rabbit_quorum_queue"),
    ("x-queue-mode", "lazy", " of queue type rabbit_quorum_queue"),
    ("x-queue-type", "moon", ": \"unsupported queue type 'moon'\""),
    ("x-queue-type", 1, ": {unacceptable_type,signedint}"),
    ("x-expires", 0, ": {value_zero,0}"),
    ("x-expires", -1, ": {value_negative,-1}"),
    ("x-expires", 315_360_000_001, ": {value_too_large,315360000001}"),
    ("x-message-ttl", -1, ": {value_negative,-1}"),
    ("x-message-ttl", True, ': "expected integer, got bool"'),
    ("x-message-ttl", 1.5, ': "expected integer, got double"'),
    ("x-message-ttl", None, ': "expected integer, got void"'),
    ("x-max-length", -1, ": {value_negative,-1}"),
    ("x-max-length", "5", ': "expected integer, got longstr"'),
    ("x-max-length-bytes", -1, ": {value_negative,-1}"),
    ("x-overflow", "explode", ": invalid_overflow"),
    ("x-overflow", "reject-publish-dlx", ": invalid_overflow"),
    ("x-overflow", 1, ": {unacceptable_type,signedint}"),
    ("x-delivery-limit", "no", ': "expected integer, got longstr"'),
    ("x-dead-letter-routing-key", "k", ": routing_key_but_no_dlx_defined"),
    ("x-dead-letter-strategy", "never", ": invalid_dlx_strategy"),
    ("x-single-active-consumer", 1, ": {unacceptable_type,signedint}"),
    ("x-queue-leader-locator", "moon", ": invalid_queue_locator_arg"),
    ("x-quorum-initial-group-size", 0, ": {value_zero,0}"),
    ("x-max-in-memory-length", -5, ": {value_negative,-5}"),
    ("x-key", "routing-key", " of queue type rabbit_quorum_queue"),
]


@pytest.mark.parametrize(("key", "value", "text"), WRONG_ARGUMENTS, ids=lambda part: str(part)[:30])
def test_an_argument_with_a_wrong_value_is_named_with_the_reason(key: str, value: object, text: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        record_of(with_argument(key, value))
    assert (refused.value.code, refused.value.text) == (406, f"invalid arg '{key}' for queue 'q' in vhost '/'{text}")


UNSUPPORTED = ": \"unsupported key '{}': use header:NAME or routing-key\""
WRONG_KEYS = [
    ({"x-queue-type": "keyed"}, "x-key", "headers", UNSUPPORTED.format("headers")),
    ({"x-queue-type": "keyed"}, "x-key", "header:", UNSUPPORTED.format("header:")),
    ({"x-queue-type": "keyed"}, "x-key", "header:" + "n" * 256, UNSUPPORTED.format("header:" + "n" * 256)),
    ({"x-queue-type": "keyed"}, "x-key", 5, ": {unacceptable_type,signedint}"),
    ({"x-queue-type": "keyed"}, "x-overflow", "drop-head", ": invalid_overflow"),
    ({"x-queue-type": "keyed"}, "x-max-priority", 5, " of queue type rabbit_keyed_queue"),
    ({"x-queue-type": "keyed"}, "x-max-tries", 0, ": {value_zero,0}"),
    ({"x-queue-type": "keyed", "x-delivery-limit": 2}, "x-max-tries", 3, ': "x-delivery-limit says the same"'),
    ({"x-queue-type": "keyed"}, "x-retry-delay", -1, ": {value_negative,-1}"),
    ({"x-queue-type": "keyed"}, "x-reserve-timeout", 0, ": {value_zero,0}"),
    ({}, "x-key", "nothing", UNSUPPORTED.format("nothing")),
    ({}, "x-retry-delay", 5, ': "only a queue with x-key has keys"'),
    ({}, "x-max-tries", 5, ': "only a queue with x-key has keys"'),
    ({"x-max-priority": 5}, "x-key", "routing-key", ': "a queue with keys has no priorities"'),
    (
        {"x-overflow": "drop-head"},
        "x-key",
        "routing-key",
        ': "a queue with keys can only overflow by reject-publish"',
    ),
]


@pytest.mark.parametrize(("others", "key", "value", "text"), WRONG_KEYS, ids=lambda part: str(part)[:30])
def test_what_a_queue_with_keys_cannot_be(others: dict[str, object], key: str, value: object, text: str) -> None:
    """Who asks for an order and does not get it finds out when the order is broken."""
    with pytest.raises(DeclarationError) as refused:
        record_of(declare(arguments={**others, key: value}))
    assert (refused.value.code, refused.value.text) == (406, f"invalid arg '{key}' for queue 'q' in vhost '/'{text}")


KEYED = {"x-retry-delay": 5, "x-reserve-timeout": 70, "x-max-tries": 3}


@pytest.mark.parametrize(
    ("arguments", "source", "config_of"),
    [
        ({"x-queue-type": "keyed", **KEYED}, "header:x-group-key", config_of),
        ({"x-queue-type": "keyed", "x-key": "header:customer", **KEYED}, "header:customer", config_of),
        ({"x-queue-type": "classic", "x-key": "routing-key", **KEYED}, "routing-key", classic_config_of),
    ],
)
def test_the_settings_of_a_queue_with_keys(
    arguments: dict[str, object], source: str, config_of: Callable[[QueueRecord], FifoConfig]
) -> None:
    """Three tries are two returns. A full queue refuses what is new."""
    record = record_of(declare(arguments=arguments))
    keyed = KeyedConfig(retry_delay_ms=5, reserve_ms=70)
    assert key_source_of(record) == source
    wanted = FifoConfig(name="q", keyed=keyed, delivery_limit=2, overflow=Overflow.REJECT_PUBLISH)
    assert config_of(record) == wanted


def test_a_delivery_limit_by_policy_holds_beside_the_most_tries() -> None:
    """An operator's limit may only tighten what an application asked for."""
    record = record_of(declare(arguments={"x-queue-type": "keyed", "x-max-tries": 3}))
    for limit, holds in ((0, 0), (1, 1), (9, 2)):
        arguments = (*record.arguments, ("x-delivery-limit", limit))
        assert config_of(replace(record, arguments=arguments)).delivery_limit == holds


def test_a_dead_letter_exchange_must_be_a_name() -> None:
    with pytest.raises(
        DeclarationError, match="invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q'"
    ):
        record_of(with_argument("x-dead-letter-exchange", 1))


def test_the_record_keeps_what_was_declared_under_its_amqp_names() -> None:
    """Restarted and grown members must be configured as the first ones were."""
    arguments: dict[str, object] = {
        "x-max-length": 5, "x-max-length-bytes": 1 << 40, "x-overflow": "reject-publish", "x-delivery-limit": -1,
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-dead-letter-strategy": "at-least-once",
        "x-expires": 315_360_000_000, "x-message-ttl": 0, "x-single-active-consumer": True,
        "x-queue-leader-locator": "balanced", "x-quorum-initial-group-size": 3, "x-max-in-memory-bytes": 1,
    }  # fmt: skip
    record = record_of(declare(arguments={**QUORUM, **arguments, "x-of-an-application": "ignored"}))
    assert dict(record.arguments) == arguments
    assert record.members == tuple(NODES)


def differs(key: str, received: str, current: str) -> str:
    return f"inequivalent arg '{key}' for queue 'q' in vhost '/': received {received} but current is {current}"


LIMIT = {"x-delivery-limit": 3}
THREE = "the value '3' of type 'signedint'"
INEQUIVALENT = [
    (declare(durable=False), 406, differs("durable", "'false'", "'true'")),
    (declare(auto_delete=True), 406, differs("auto_delete", "'true'", "'false'")),
    (declare(exclusive=True), 405, "cannot obtain exclusive access to locked queue 'q' in vhost '/'"),
    (with_argument("x-queue-type", "classic", **LIMIT), 406, differs("x-queue-type", "'classic'", "'quorum'")),
    (
        declare(arguments=LIMIT),
        406,
        differs("x-queue-type", "none", "the value 'quorum' of type 'longstr'"),
    ),
    (declare(), 406, differs("x-delivery-limit", "none", THREE)),
    (with_argument("x-delivery-limit", 4), 406, differs("x-delivery-limit", "'4'", "'3'")),
    (with_argument("x-delivery-limit", 3.0), 406, differs("x-delivery-limit", "'3.0'", "'3'")),
    (
        with_argument("x-single-active-consumer", False, **LIMIT),
        406,
        differs("x-single-active-consumer", "the value 'false' of type 'bool'", "none"),
    ),
    (
        with_argument("x-expires", "soon", **LIMIT),
        406,
        differs("x-expires", "the value 'soon' of type 'longstr'", "none"),
    ),
]


@pytest.mark.parametrize(("event", "code", "text"), INEQUIVALENT, ids=range(len(INEQUIVALENT)))
def test_declaring_again_must_say_the_same(event: QueueDeclare, code: int, text: str) -> None:
    """Two services that disagree about a queue must hear so when they start, not when a message is lost."""
    queue: Any = SimpleNamespace(record=record_of(with_argument("x-delivery-limit", 3)), kind=QUORUM_KIND)
    with pytest.raises(DeclarationError) as refused:
        check(event, queue, ME)
    assert refused.value.code == code
    assert refused.value.text.startswith(text)


def test_declaring_the_same_again_is_no_error() -> None:
    queue: Any = SimpleNamespace(record=record_of(with_argument("x-delivery-limit", 3)), kind=QUORUM_KIND)
    assert check(with_argument("x-delivery-limit", 3, x_other=1), queue, ME) is queue
    assert check(declare(passive=True, durable=False, arguments={}), queue, ME) is queue


def test_consumers_are_refused_what_a_quorum_queue_does_not_do() -> None:
    """A client that believes it is alone would corrupt what it writes."""
    fields: dict[str, Any] = {"channel": 1, "queue": "q", "consumer_tag": "c", "no_ack": False, "nowait": False}
    consume = Consume(**fields, exclusive=False, prefetch=0, arguments={"x-priority": 5})
    queue: Any = SimpleNamespace(record=record_of(declare()), kind=QUORUM_KIND)
    assert consumer_priority(consume, queue) == 5
    with pytest.raises(
        DeclarationError, match="invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer"
    ):
        consumer_priority(Consume(**fields, exclusive=False, prefetch=0, arguments={"x-priority": "high"}), queue)
    with pytest.raises(DeclarationError, match="use x-single-active-consumer"):
        consumer_priority(Consume(**fields, exclusive=True, prefetch=0), queue)
