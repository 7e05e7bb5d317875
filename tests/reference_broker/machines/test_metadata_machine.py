"""The cluster must agree on which queues exist: with two groups of one name each would keep half the messages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from reference_broker.machines.cluster.exchanges import (
    DONE,
    Bind,
    DeclareExchange,
    DeleteExchange,
    ExchangeAnswer,
    ExchangeOutcome,
    Unbind,
)
from reference_broker.machines.cluster.metadata import (
    Answer,
    ClearPolicy,
    DeclareQueue,
    DeleteQueue,
    MetadataMachine,
    QueueAdded,
    QueueRecord,
    QueueRemoved,
    SetPolicy,
    decode,
    encode,
    record_from_json,
    record_to_json,
)
from reference_broker.machines.cluster.policies import Policy
from reference_broker.routing.records import Binding, Destination, Exchange, ExchangeType
from reference_broker.types import NOBODY, GroupId, NodeId

MEMBERS = (NodeId(1), NodeId(2), NodeId(3))
FIRST = QueueRecord(name="q", group=GroupId(11), members=MEMBERS, arguments=(("delivery_limit", 3),), founders=MEMBERS)
SECOND = QueueRecord(name="q", group=GroupId(22), members=MEMBERS, founders=MEMBERS)


def declare(record: QueueRecord, correlation: int) -> DeclareQueue:
    return DeclareQueue(record=record, node=NodeId(1), correlation=correlation)


def delete(record: QueueRecord, correlation: int) -> DeleteQueue:
    return DeleteQueue(name=record.name, group=record.group, node=NodeId(2), correlation=correlation)


def test_commands_survive_the_log() -> None:
    commands = [declare(FIRST, 1), delete(FIRST, 2)]
    assert decode(encode(commands)) == commands


def test_the_first_of_two_declarations_wins() -> None:
    machine = MetadataMachine()
    effects = machine.apply(encode([declare(FIRST, 1), declare(SECOND, 2)]))
    assert effects == [QueueAdded(FIRST), Answer(NodeId(1), 1, FIRST), Answer(NodeId(1), 2, FIRST)]


def test_deleting_a_former_queue_spares_the_present_one() -> None:
    """A slow delete must not take the queue that was declared since."""
    machine = MetadataMachine()
    machine.apply(encode([declare(SECOND, 1)]))
    assert machine.apply(encode([delete(FIRST, 2)])) == [Answer(NodeId(2), 2, None)]
    assert machine.apply(encode([delete(SECOND, 3)])) == [QueueRemoved(SECOND), Answer(NodeId(2), 3, None)]
    assert machine.queues == {}


def test_a_snapshot_is_the_state() -> None:
    machine = MetadataMachine()
    machine.apply(encode([declare(FIRST, 1)]))
    restored = MetadataMachine.restore(machine.snapshot())
    assert restored.queues == machine.queues
    assert restored.snapshot() == machine.snapshot()


def test_a_record_of_an_older_program_elects_nobody() -> None:
    """Its members began in no term: one that took the first for its own would not be alone in that."""
    machine = MetadataMachine()
    machine.apply(encode([declare(replace(FIRST, leader=NodeId(2), elected=True), 1)]))
    assert machine.queues["q"].elected_by(NodeId(1)) == NodeId(2)
    older = json.loads(machine.snapshot())
    older["version"] = 3
    del older["queues"][0]["elected"]
    assert MetadataMachine.restore(json.dumps(older).encode()).queues["q"].elected_by(NodeId(1)) == NOBODY


def test_a_member_that_joined_later_had_no_vote_in_the_declaration() -> None:
    """It learns its term from those that are there."""
    record = replace(FIRST, leader=NodeId(2), elected=True, membership_epochs=((NodeId(3), 1),))
    assert [record.elected_by(node) for node in MEMBERS] == [NodeId(2), NodeId(2), NOBODY]


def test_a_record_names_its_kind_only_if_it_is_not_the_default() -> None:
    """A program of before there were kinds shares a cluster, and directories, with quorum queues only."""
    quorum = QueueRecord(name="q", group=GroupId(1), members=(NodeId(1),))
    other = replace(quorum, kind="last-value")
    assert "kind" not in json.loads(record_to_json(quorum))
    for record in (quorum, other):
        assert record_from_json(json.loads(record_to_json(record))).kind == record.kind


ORDERS = Exchange(name="orders", type=ExchangeType.TOPIC, arguments=((b"alternate-exchange", b"S\0\0\0\4rest"),))
TO_Q = Binding(source="orders", destination=Destination("q"), key="a.#", arguments=((b"k", b"I\0\0\0\1"),))
ASKER: dict[str, Any] = {"node": NodeId(1), "correlation": 7}


def outcomes(machine: MetadataMachine, *commands: Any) -> list[ExchangeOutcome]:
    effects = machine.apply(encode(commands))
    return [effect.outcome for effect in effects if isinstance(effect, ExchangeAnswer)]


def test_routing_commands_survive_the_log() -> None:
    """Arguments keep their types: a headers exchange compares them."""
    commands = [
        DeclareExchange(exchange=ORDERS, **ASKER),
        Bind(binding=TO_Q, **ASKER),
        Unbind(binding=TO_Q, **ASKER),
        DeleteExchange(name="orders", if_unused=True, **ASKER),
    ]
    assert decode(encode(commands)) == commands


def test_a_binding_needs_its_ends() -> None:
    """Else a message would be routed to a queue that nobody has."""
    machine = MetadataMachine()
    missing_queue, missing_exchange = (
        ExchangeOutcome(missing=Destination("q")),
        ExchangeOutcome(missing=Destination("orders", True)),
    )
    bind = Bind(binding=TO_Q, **ASKER)
    assert outcomes(machine, bind) == [missing_exchange]
    assert outcomes(machine, DeclareExchange(exchange=ORDERS, **ASKER), bind) == [
        ExchangeOutcome(exchange=ORDERS),
        missing_queue,
    ]
    machine.apply(encode([declare(FIRST, 1)]))
    assert outcomes(machine, bind) == [DONE]
    assert outcomes(machine, DeleteExchange(name="orders", if_unused=True, **ASKER)) == [
        ExchangeOutcome(is_in_use=True)
    ]


def test_a_deleted_queue_takes_its_bindings_along() -> None:
    """A queue of the same name that comes later must not get messages that nobody bound to it."""
    machine = MetadataMachine()
    machine.apply(
        encode([declare(FIRST, 1), DeclareExchange(exchange=ORDERS, **ASKER), Bind(binding=TO_Q, **ASKER)])
    )  # fmt: skip
    assert machine.routing().route("orders", ("a.b",)) == ("q",)
    machine.apply(encode([delete(FIRST, 2), declare(SECOND, 3)]))
    assert machine.routing().route("orders", ("a.b",)) == ()


def test_a_snapshot_has_exchanges_and_bindings_and_an_older_one_has_none() -> None:
    """Equal states make equal snapshots, in whatever order the state was made."""
    commands = [
        declare(FIRST, 1),
        DeclareExchange(exchange=ORDERS, **ASKER),
        Bind(binding=TO_Q, **ASKER),
        Bind(binding=replace(TO_Q, source="amq.fanout"), **ASKER),
    ]
    machine, other = MetadataMachine(), MetadataMachine()
    machine.apply(encode(commands))
    other.apply(encode([commands[0], commands[3], commands[1], commands[2]]))
    assert machine.snapshot() == other.snapshot()
    restored = MetadataMachine.restore(machine.snapshot())
    assert restored.snapshot() == machine.snapshot()
    assert restored.routing().route("orders", ("a",)) == restored.routing().route("amq.fanout", ("",)) == ("q",)
    older = json.loads(machine.snapshot())
    older["version"] = 5
    del older["routing"]
    assert MetadataMachine.restore(json.dumps(older).encode()).routing().declared() == []


def set_policy(priority: int = 0, *, name: str = "p", apply_to: str = "all", **definition: str) -> SetPolicy:
    settings = tuple((key.replace("_", "-"), value) for key, value in definition.items())
    return SetPolicy(policy=Policy(name=name, pattern="^orders$", definition=settings, priority=priority,
                                   apply_to=apply_to), **ASKER)  # fmt: skip


LOST = Exchange(name="lost", type=ExchangeType.FANOUT)
WITH_LOST = (
    declare(FIRST, 1),
    DeclareExchange(exchange=replace(ORDERS, arguments=()), **ASKER),
    DeclareExchange(exchange=LOST, **ASKER),
    Bind(binding=replace(TO_Q, source="lost"), **ASKER),
)


def route_of(machine: MetadataMachine, exchange: str = "orders") -> tuple[str, ...]:
    return machine.routing().route(exchange, ("z",))


def test_a_policy_gives_exchanges_an_alternate_one() -> None:
    """It holds for those that are there, for new ones, and after a snapshot; and no more when it is cleared."""
    machine = MetadataMachine()
    machine.apply(encode(WITH_LOST))
    assert route_of(machine) == ()
    machine.apply(encode([set_policy(alternate_exchange="lost")]))
    assert (route_of(machine), route_of(machine, "amq.topic")) == (("q",), ())
    assert route_of(MetadataMachine.restore(machine.snapshot())) == ("q",)
    machine.apply(encode([DeleteExchange(name="orders", if_unused=False, **ASKER), WITH_LOST[1]]))
    assert route_of(machine) == ("q",)
    machine.apply(encode([ClearPolicy(name="p", **ASKER)]))
    assert route_of(machine) == ()


def test_the_policy_that_holds_decides_and_one_for_queues_does_not() -> None:
    machine = MetadataMachine()
    machine.apply(encode([*WITH_LOST, set_policy(apply_to="queues", alternate_exchange="lost")]))
    assert route_of(machine) == ()
    machine.apply(encode([set_policy(apply_to="exchanges", alternate_exchange="lost")]))
    assert route_of(machine) == ("q",)
    machine.apply(encode([set_policy(1, name="higher", expires="5")]))
    assert route_of(machine) == (), "one policy holds, and the higher one has no such setting"


def test_an_alternate_exchange_of_the_declaration_comes_first() -> None:
    own = replace(ORDERS, arguments=((b"alternate-exchange", b"S\x00\x00\x00\x04none"),))
    machine = MetadataMachine()
    declared = DeclareExchange(exchange=own, **ASKER)
    machine.apply(encode([WITH_LOST[0], declared, *WITH_LOST[2:], set_policy(alternate_exchange="lost")]))
    assert route_of(machine) == ()


def test_an_alternate_exchange_of_a_policy_may_heed_headers() -> None:
    machine = MetadataMachine()
    machine.apply(encode(WITH_LOST))
    assert not machine.routing().heeds_headers("orders")
    machine.apply(encode([set_policy(alternate_exchange="amq.headers")]))
    assert machine.routing().heeds_headers("orders")


def test_a_policy_that_is_older_than_exchanges_in_policies_applies_to_all() -> None:
    machine = MetadataMachine()
    machine.apply(encode([set_policy(alternate_exchange="lost")]))
    older = json.loads(machine.snapshot())
    older["version"] = 10
    del older["policies"][0]["apply_to"]
    assert MetadataMachine.restore(json.dumps(older).encode()).policies == machine.policies
