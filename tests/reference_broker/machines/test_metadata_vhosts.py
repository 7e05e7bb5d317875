"""Virtual hosts in the metadata: what one has is not there for another, and goes with it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from reference_broker.access.names import qualified
from reference_broker.access.records import Permission, Vhost
from reference_broker.machines.cluster.access import AccessAnswer, DeleteVhost, PutPermission, PutVhost
from reference_broker.machines.cluster.exchanges import DONE, Bind, DeclareExchange, ExchangeAnswer, ExchangeOutcome
from reference_broker.machines.cluster.metadata import (
    AccessChanged,
    Answer,
    ClearPolicy,
    DeclareQueue,
    DeleteQueue,
    MetadataMachine,
    QueueRecord,
    QueueRemoved,
    SetPolicy,
    decode,
    encode,
)
from reference_broker.machines.cluster.policies import Policy, in_force
from reference_broker.routing.records import Binding, Destination, Exchange, ExchangeType
from reference_broker.types import GroupId, NodeId

ASKER: dict[str, Any] = {"node": NodeId(1), "correlation": 7}
HERE = QueueRecord(name="q", group=GroupId(11), members=(NodeId(1),), founders=(NodeId(1),))
THERE = replace(HERE, name=qualified("tenant", "q"), group=GroupId(22))
ORDERS = Exchange(name="orders", type=ExchangeType.FANOUT)
TO_Q = Binding(source="orders", destination=Destination("q"), key="")
TENANT = PutVhost(vhost=Vhost(name="tenant", description="d", tags=("t",)), **ASKER)
IN_TENANT = {"vhost_name": "tenant"}
SETTING = (("max-length", 5),)


def cluster(*more: Any) -> MetadataMachine:
    """A virtual host *tenant* beside ``/``: each has a queue q; orders and a policy are in the tenant's alone."""
    machine = MetadataMachine()
    commands = [
        TENANT,
        DeclareQueue(record=HERE, **ASKER),
        DeclareQueue(record=THERE, **ASKER),
        DeclareExchange(exchange=ORDERS, **IN_TENANT, **ASKER),
        Bind(binding=TO_Q, **IN_TENANT, **ASKER),
        SetPolicy(policy=Policy(name="p", pattern="^q$", definition=SETTING, vhost="tenant"), **ASKER),
        PutPermission(permission=Permission(user="guest", vhost="tenant", configure="", write="", read=""), **ASKER),
        *more,
    ]
    machine.apply(encode(commands))
    return machine


def test_commands_survive_the_log() -> None:
    commands = [
        TENANT,
        DeleteVhost(name="tenant", **ASKER),
        DeclareQueue(record=THERE, **ASKER),
        Bind(binding=TO_Q, **IN_TENANT, **ASKER),
        SetPolicy(policy=Policy(name="p", pattern="", definition=SETTING, vhost="tenant"), **ASKER),
        ClearPolicy(name="p", **IN_TENANT, **ASKER),
    ]
    assert decode(encode(commands)) == commands


def test_one_name_is_two_queues() -> None:
    machine = cluster()
    assert (machine.queue("/", "q"), machine.queue("tenant", "q")) == (HERE, THERE)
    assert machine.queues_in("tenant") == [THERE]
    assert machine.queue("/", "tenant\0q") is None, "no name reaches into another virtual host"
    machine.apply(encode([DeleteQueue(name="q", group=HERE.group, **ASKER)]))
    assert (machine.queue("/", "q"), machine.queue("tenant", "q")) == (None, THERE)
    assert machine.routing("tenant").route("orders", ("",)) == ("q",), "the binding of the other q stays"


def test_bindings_stay_within_a_virtual_host() -> None:
    machine = cluster()
    assert machine.routing().exchange("orders") is None
    missing = ExchangeOutcome(missing=Destination("orders", is_exchange=True))
    effects = machine.apply(encode([Bind(binding=TO_Q, **ASKER)]))
    assert effects == [ExchangeAnswer(NodeId(1), 7, missing)]
    machine.apply(encode([DeclareExchange(exchange=ORDERS, **ASKER)]))
    into_another = replace(TO_Q, destination=Destination("tenant\0q"))
    effects = machine.apply(encode([Bind(binding=into_another, **ASKER), Bind(binding=TO_Q, **ASKER)]))
    refused = ExchangeOutcome(missing=into_another.destination)
    assert effects == [ExchangeAnswer(NodeId(1), 7, refused), ExchangeAnswer(NodeId(1), 7, DONE)]


def test_a_policy_finds_queues_of_its_virtual_host_by_their_short_names() -> None:
    machine = cluster()
    policies = machine.policies.values()
    assert in_force(policies, HERE.name) is None
    assert in_force(policies, THERE.name) == Policy(name="p", pattern="^q$", definition=SETTING, vhost="tenant")
    machine.apply(encode([ClearPolicy(name="p", **ASKER)]))
    assert len(machine.policies) == 1, "that was the p of another virtual host"
    machine.apply(encode([ClearPolicy(name="p", **IN_TENANT, **ASKER)]))
    assert not machine.policies


def test_a_virtual_host_goes_with_everything_in_it() -> None:
    machine = cluster()
    effects = machine.apply(encode([DeleteVhost(name="tenant", **ASKER)]))
    assert effects == [QueueRemoved(THERE), AccessChanged(), AccessAnswer(NodeId(1), 7, "")]
    bare = MetadataMachine()
    bare.apply(encode([DeclareQueue(record=HERE, **ASKER)]))
    assert machine.snapshot() == bare.snapshot()
    machine.apply(encode([TENANT]))
    assert machine.routing("tenant").declared() == [], "a new one of that name is empty"


def test_nothing_is_declared_in_a_virtual_host_that_is_gone() -> None:
    """The declaration may have been on its way when the virtual host was deleted."""
    machine = MetadataMachine()
    commands = [DeclareQueue(record=THERE, **ASKER), DeclareExchange(exchange=ORDERS, **IN_TENANT, **ASKER)]
    assert machine.apply(encode(commands))[0] == Answer(NodeId(1), 7, None)
    assert machine.snapshot() == MetadataMachine().snapshot()


def test_the_snapshot_has_all_virtual_hosts() -> None:
    machine = cluster()
    restored = MetadataMachine.restore(machine.snapshot())
    assert restored.snapshot() == machine.snapshot()
    assert restored.routing("tenant").route("orders", ("",)) == ("q",)
    assert restored.queue("tenant", "q") == THERE


def test_a_snapshot_of_one_virtual_host_can_be_read() -> None:
    """As version 9 wrote it."""
    machine = cluster(DeleteVhost(name="tenant", **ASKER), DeclareExchange(exchange=ORDERS, **ASKER))
    older = json.loads(machine.snapshot())
    older |= {"version": 9} | older.pop("routing")["/"]
    for policy in older["policies"]:
        del policy["vhost"]
    assert MetadataMachine.restore(json.dumps(older).encode()).snapshot() == machine.snapshot()
