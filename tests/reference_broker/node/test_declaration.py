"""Declarations are refused as RabbitMQ refuses them: clients match on the reply code and on the first words."""

from __future__ import annotations

import secrets
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.amqp.events import QueueDeclare
from reference_broker.node.declaration import RefusedError, check, new_record
from reference_broker.types import NodeId

NODES = [NodeId(1), NodeId(2), NodeId(3)]


def declare(name: str = "q", **changes: Any) -> QueueDeclare:
    fields: dict[str, Any] = {
        "passive": False,
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
        "nowait": False,
        "arguments": {"x-queue-type": "quorum"},
    }
    return QueueDeclare(1, name, **{**fields, **changes})


REFUSALS = [
    (declare("amq.mine"), 403, "contains reserved prefix 'amq.*'"),
    (declare(arguments={}), 406, "queue type 'classic' is not available here"),
    (declare(arguments={"x-queue-type": "stream"}), 406, "queue type 'stream'"),
    (declare(durable=False), 406, "invalid property 'non-durable'"),
    (declare(exclusive=True), 406, "invalid property 'exclusive-owner'"),
    (declare(auto_delete=True), 406, "invalid property 'auto-delete'"),
    (declare(arguments={"x-queue-type": "quorum", "x-max-priority": 5}), 406, "invalid arg 'x-max-priority'"),
    (declare(arguments={"x-queue-type": "quorum", "x-delivery-limit": "no"}), 406, "expected an integer"),
    (declare(arguments={"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}), 406, "a member on each"),
]


@pytest.mark.parametrize(("event", "code", "text"), REFUSALS, ids=[text for _, _, text in REFUSALS])
def test_refusals(event: QueueDeclare, code: int, text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        new_record(event, event.queue, NODES, secrets.randbits)
    assert refused.value.code == code
    assert text in refused.value.text


def test_declaring_again_must_say_the_same() -> None:
    """Two services that disagree about a queue must hear so when they start, not when a message is lost."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 3}
    record = new_record(declare(arguments=arguments), "q", NODES, secrets.randbits)
    queue: Any = SimpleNamespace(record=record)
    assert check(declare(arguments=arguments), queue) is queue
    assert check(declare(passive=True, arguments={}), queue) is queue
    with pytest.raises(RefusedError, match="inequivalent arg 'delivery_limit'"):
        check(declare(), queue)


def test_a_passive_declare_of_nothing_is_not_found() -> None:
    with pytest.raises(RefusedError) as refused:
        check(declare(passive=True), None)
    assert refused.value.code == 404
