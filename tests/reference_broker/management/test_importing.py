"""An import of definitions leaves everything or nothing, whichever of its steps fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from types import SimpleNamespace
from typing import Any, Self

import pytest
from pamqp import base, commands, frame

from reference_broker.access.names import qualified
from reference_broker.amqp.exchange_methods import event_of
from reference_broker.amqp.fields import decode_method
from reference_broker.machines.cluster.exchanges import Bind, DeclareExchange, DeleteExchange, Unbind
from reference_broker.machines.cluster.metadata import (
    ClearPolicy,
    DeclareQueue,
    DeleteQueue,
    MetadataMachine,
    QueueRecord,
    SetPolicy,
    encode,
)
from reference_broker.management.cluster import OperationError
from reference_broker.management.definitions import export
from reference_broker.management.errors import ApiError
from reference_broker.management.importing import import_definitions
from reference_broker.management.session import RefusedError
from reference_broker.node.operations.access_requests import AccessRequests
from reference_broker.node.operations.cluster_requests import Operations
from reference_broker.queues.kinds import KINDS
from reference_broker.routing.records import Binding, Exchange, ExchangeType
from reference_broker.types import GroupId, NodeId

HERE = NodeId(1)
HASHES = ("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "DwTUbVrrGS9JDcegVdjBzuJ1A8uANNkktj8ztmjkpf7xOy/1")


class FakeCluster:
    """A cluster of one machine, whose step number ``fails_at`` fails: ``late`` when it was done already."""

    def __init__(self, fails_at: int = 0, failure: Exception | None = None, *, late: bool = False) -> None:
        self.machine = MetadataMachine()
        self.shard = SimpleNamespace(hosting=SimpleNamespace(kinds=KINDS))
        self.steps = 0
        self._fails_at, self._failure, self._late = fails_at, failure, late
        self._numbers = count(1)
        metadata: Any = SimpleNamespace(
            machine=self.machine,
            member=SimpleNamespace(forget=lambda _command: None, leader=HERE),
            set_policy=lambda policy, answered: self._apply(SetPolicy, answered, policy=policy),
            clear_policy=lambda name, vhost, answered, operator: self._apply(
                ClearPolicy, answered, name=name, vhost_name=vhost, operator=operator
            ),
            change_access=lambda command, answered, **values: self._apply(command, answered, **values),
        )
        everywhere: Any = SimpleNamespace(then=lambda call: call())
        ports: Any = SimpleNamespace(
            nodes=None, metadata=metadata, ask=None, later=lambda *_: None,
            limits=SimpleNamespace(change_timeout_ms=1),
        )  # fmt: skip
        methods = AccessRequests(metadata, everywhere, lambda bits: 1).methods
        self._operations = Operations(ports, methods)

    def _apply(self, command: Callable[..., Any], answered: Callable[[Any], None], **values: Any) -> None:
        self.machine.apply(encode([command(**values, node=HERE, correlation=1)]))
        answered("")

    async def change(self, op: str, **values: Any) -> dict[str, Any]:
        answers: list[dict[str, Any]] = []
        with self._step():
            self._operations.answer({"op": op, **values}, answers.append)
        if "error" in answers[0]:
            raise OperationError(answers[0]["error"], answers[0]["fix"])
        return answers[0]

    def session(self, at: dict[str, Any]) -> FakeSession:
        return FakeSession(self, at["vhost"])

    def _step(self) -> _Step:
        self.steps += 1
        fails = self.steps == self._fails_at
        return _Step(self._failure if fails else None, late=self._late)

    def declare(self, vhost: str, asked: base.Frame) -> None:
        """What an AMQP client asks for."""
        payload = frame.marshal(asked, 1)[7:-1]
        method: Any = decode_method(payload)
        with self._step():
            self.machine.apply(encode([self._command(vhost, method, payload)]))

    def _command(self, vhost: str, method: Any, payload: bytes) -> Any:
        asker: dict[str, Any] = {"node": HERE, "correlation": 1}
        match method:
            case commands.Queue.Declare():
                arguments = dict(method.arguments)
                kind = arguments.pop("x-queue-type", "classic")
                record = QueueRecord(
                    name=qualified(vhost, method.queue), group=GroupId(next(self._numbers)), members=(HERE,), kind=kind,
                    arguments=tuple(sorted(arguments.items())), durable=method.durable, auto_delete=method.auto_delete,
                )  # fmt: skip
                return DeclareQueue(record=record, **asker)
            case commands.Queue.Delete():
                name = qualified(vhost, method.queue)
                known = self.machine.queues.get(name)
                return DeleteQueue(name=name, group=known.group if known else GroupId(0), **asker)
            case commands.Exchange.Delete():
                return DeleteExchange(name=method.exchange, if_unused=False, vhost_name=vhost, **asker)
        event: Any = event_of(method, payload, 1, "")
        if isinstance(method, commands.Exchange.Declare):
            exchange = Exchange(name=event.exchange, type=ExchangeType(event.type), durable=event.durable,
                                auto_delete=event.auto_delete, internal=event.internal,
                                arguments=event.fields)  # fmt: skip
            return DeclareExchange(exchange=exchange, vhost_name=vhost, **asker)
        binding = Binding(source=event.source, destination=event.destination, key=event.routing_key,
                          arguments=event.fields)  # fmt: skip
        return (Bind if event.adds else Unbind)(binding=binding, vhost_name=vhost, **asker)


class _Step:
    """Fails before it is done, or late."""

    def __init__(self, failure: Exception | None, *, late: bool) -> None:
        self._failure, self._late = failure, late

    def __enter__(self) -> None:
        if self._failure is not None and not self._late:
            raise self._failure

    def __exit__(self, *_: object) -> None:
        if self._failure is not None and self._late:
            raise self._failure


class FakeSession:
    def __init__(self, cluster: FakeCluster, vhost: str) -> None:
        self._cluster, self._vhost = cluster, vhost

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing was opened."""

    async def call(self, asked: base.Frame, _answer: object) -> None:
        self._cluster.declare(self._vhost, asked)


def bring(cluster: FakeCluster, given: dict[str, Any]) -> Any:
    return asyncio.run(import_definitions(cluster, {}, given))  # type: ignore[arg-type]


def queue(name: str, vhost: str = "/", **arguments: Any) -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": arguments}


def exchange(name: str, kind: str = "topic", vhost: str = "/", **arguments: Any) -> dict[str, Any]:
    return {"type": kind, **queue(name, vhost, **arguments)}


def binding(source: str, name: str, key: str = "", vhost: str = "/", **arguments: Any) -> dict[str, Any]:
    return {
        "source": source, "vhost": vhost, "destination": name, "destination_type": "queue", "routing_key": key,
        "arguments": arguments,
    }  # fmt: skip


def policy(name: str, vhost: str = "/", **definition: Any) -> dict[str, Any]:
    settings = {key.replace("_", "-"): value for key, value in definition.items()}
    return {"vhost": vhost, "name": name, "pattern": "^q", "apply-to": "all", "definition": settings, "priority": 0}


EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
BEFORE: dict[str, Any] = {
    "vhosts": [{"name": "old", "description": "as it was", "tags": ["a"]}],
    "users": [{"name": "ann", "password_hash": HASHES[0], "tags": "management", "limits": {"max-channels": 7}}],
    "permissions": [{"user": "ann", "vhost": "/", **EVERYTHING}],
    "topic_permissions": [{"user": "ann", "vhost": "/", "exchange": "amq.topic", "write": "a", "read": "b"}],
    "parameters": [{"component": "operator_policy", "vhost": "/", "name": "limit", "value": policy("", max_length=5)},
                   {"component": "vhost-limits", "vhost": "old", "name": "limits", "value": {"max-queues": 5}}],
    "policies": [policy("p", ha_mode="nodes", ha_params=["n1", "n2"])],
    "exchanges": [exchange("x")],
    "queues": [queue("q")],
    "bindings": [binding("x", "q", "a")],
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "vhosts": [{"name": "old", "description": "changed", "tags": []}, {"name": "new"}],
    "users": [{"name": "ann", "password_hash": HASHES[1], "tags": ["administrator"], "limits": {"max-channels": 9}},
              {"name": "bob", "password_hash": HASHES[1], "tags": "", "limits": {"max-connections": 2}}],
    "permissions": [{"user": "ann", "vhost": "/", **EVERYTHING, "read": ""}, {"user": "bob", "vhost": "new",
                                                                              **EVERYTHING}],
    "topic_permissions": [{"user": "ann", "vhost": "/", "exchange": "amq.topic", "write": "z", "read": "z"},
                          {"user": "bob", "vhost": "new", "exchange": "x", "write": "", "read": ""}],
    "parameters": [{"component": "operator_policy", "vhost": "/", "name": "limit", "value": policy("", expires=5)},
                   {"component": "operator_policy", "vhost": "new", "name": "more", "value": policy("", expires=5)},
                   {"component": "vhost-limits", "vhost": "old", "name": "limits", "value": {"max-connections": 6}},
                   {"component": "vhost-limits", "vhost": "new", "name": "limits", "value": {"max-queues": 2}}],
    "policies": [policy("p", max_length=3), policy("p2", "new", expires=5)],
    "exchanges": [exchange("x"), exchange("y", "headers"), exchange("x", vhost="new")],
    "queues": [queue("q"), queue("q2", **{"x-max-length": 3}), queue("q", "new", **{"x-queue-type": "quorum"})],
    "bindings": [binding("x", "q", "a"), binding("x", "q", "b", k="v"), binding("y", "q2", **{"x-match": "any"}),
                 binding("x", "q", vhost="new")],
}  # fmt: skip


def started(*failing: Any, late: bool = False) -> FakeCluster:
    cluster = FakeCluster(*failing, late=late)
    fails_at, cluster._fails_at = cluster._fails_at, 0
    bring(cluster, deepcopy(BEFORE))
    cluster.steps, cluster._fails_at = 0, fails_at
    return cluster


def state(cluster: FakeCluster) -> Any:
    """All but the numbers of groups, which no queue has twice."""
    found = json.loads(cluster.machine.snapshot())
    for row in found["queues"]:
        del row["group"]
    return found


STEPS = 28
"""One more than the import takes."""


def test_all_rows_are_imported() -> None:
    cluster = started()
    assert bring(cluster, deepcopy(GIVEN)) == (204, None)
    assert cluster.steps == STEPS - 1
    exported = export(cluster.machine)
    for part, rows in GIVEN.items():
        assert len(exported[part]) >= len(rows), part
    assert bring(cluster, exported) == (204, None)
    assert export(cluster.machine) == exported


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "failure", [OperationError("full", "wait"), RefusedError(406, "no"), TimeoutError(), KeyError("gone")], ids=repr
)
def test_a_failure_of_any_step_leaves_nothing(failure: Exception, late: bool) -> None:
    before = state(started())
    for step in range(1, STEPS):
        cluster = started(step, failure, late=late)
        with pytest.raises(ApiError, match=r"nothing was imported: \w+\[\d\]: ") as refused:
            bring(cluster, deepcopy(GIVEN))
        assert state(cluster) == before, (step, refused.value.reason)


def test_what_cannot_be_taken_back_is_told() -> None:
    cluster = started(STEPS - 1, OperationError("full", "wait"))
    change = cluster.change

    async def refusing(op: str, **values: Any) -> dict[str, Any]:
        if op == "delete-user":
            raise OperationError("no", "wait")
        return await change(op, **values)

    cluster.change = refusing  # type: ignore[method-assign]
    with pytest.raises(
        ApiError, match=r"bindings\[3\]: full: wait; 1 of \d+ changes before it could not be taken back"
    ):
        bring(cluster, deepcopy(GIVEN))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"permissions": [{"user": "none", "vhost": "/", **EVERYTHING}]}, "permissions[0]: there is no user 'none'"),
        ({"topic_permissions": [{"user": "none", "vhost": "/", "exchange": "x", "write": "", "read": ""}]},
         "topic_permissions[0]: there is no user 'none'"),
        ({"users": [{"name": "u", "password": "x", "tags": "", "limits": {"max-wrong": 1}}]}, "users[0]: 'max-wrong'"),
        ({"users": [{"name": "u", "password": "x", "tags": "", "limits": {"max-channels": "1"}}]}, "max-channels '1'"),
        ({"policies": [policy("p", no_such=5)]}, "policies[0]: policy 'p': 'no-such' is nothing"),
        ({"policies": [policy("p", max_length="5")]}, "policies[0]: policy 'p': max-length = '5'"),
        ({"parameters": [{"component": "operator_policy", "vhost": "/", "name": "o",
                          "value": policy("", overflow="drop-head")}]}, "parameters[0]: policy 'o': 'overflow'"),
        ({"parameters": [{"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max": 1}}]},
         "parameters[0]: 'max' is no such limit"),
        ({"queues": [queue("new", **{"x-max-length": -1})]}, "queues[0]: invalid arg 'x-max-length' for queue 'new'"),
        ({"queues": [queue("new", **{"x-queue-type": "stream"})]}, "queues[0]: queue type 'stream' is not available"),
        ({"queues": [queue("new", k=1 << 99)]}, "queues[0]: AMQP has no such value"),
        ({"queues": [queue("q", **{"x-max-length": 5})]}, "queues[0]: inequivalent arg 'x-max-length' for queue 'q'"),
        ({"queues": [queue("q") | {"durable": False}]}, "queues[0]: inequivalent arg 'durable' for queue 'q'"),
        ({"parameters": [{"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 2}}],
          "queues": [queue("1"), queue("2")]}, "queues[1]: cannot declare queue '2': queue limit in vhost '/' (2)"),
        ({"exchanges": [exchange("new", "none")]}, "exchanges[0]: unknown exchange type 'none'"),
        ({"exchanges": [exchange("x", "fanout")]}, "exchanges[0]: inequivalent arg 'type' for exchange 'x' in vhost"),
        ({"exchanges": [exchange("new", **{"alternate-exchange": 5})]}, "exchanges[0]: invalid type"),
        ({"bindings": [binding("none", "q")]}, "bindings[0]: there is no exchange 'none'"),
        ({"bindings": [binding("x", "none") | {"destination_type": "exchange"}]}, "bindings[0]: there is no exchange"),
        ({"bindings": [binding("amq.headers", "q", **{"x-match": "some"})]}, "bindings[0]: x-match 'some'"),
    ],
)  # fmt: skip
def test_what_the_cluster_would_refuse_is_told_before_anything_is_done(given: dict[str, Any], problem: str) -> None:
    cluster = started()
    before = cluster.machine.snapshot()
    good = {"vhosts": [{"name": "new"}], "users": [{"name": "bob", "password": "x", "tags": ""}]}
    with pytest.raises(ApiError) as refused:
        bring(cluster, {**good, **given})
    assert problem in refused.value.reason
    assert refused.value.reason.startswith("nothing was imported: ")
    assert (cluster.machine.snapshot(), cluster.steps) == (before, 0)


def test_what_rabbitmq_has_and_nothing_here_could_take_is_left_out_and_told() -> None:
    cluster = started()
    code, body = bring(cluster, {
        "global_parameters": [{"name": "cluster_name", "value": "rabbit"}, {"name": "mqtt", "value": 1}],
        "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}},
                       {"component": "vhost-limits", "vhost": "/", "name": "limits", "value": []}],
        "policies": [policy("p", max_in_memory_length=5, max_length=9)],
        "queues": [queue("amq.gen-1"), {"name": "bare", "vhost": "/", "durable": True, "auto_delete": False}],
        "exchanges": [exchange("amq.own"), exchange("amq.topic")],
        "bindings": [binding("amq.topic", "amq.gen-1"), binding("amq.topic", "exclusive"), binding("amq.own", "q"),
                     binding("amq.topic", "bare")],
    })  # fmt: skip
    assert code == 200
    assert [(row["row"], row.get("key")) for row in body["ignored"]] == [
        ("parameters[0]", None), ("queues[0]", None), ("exchanges[0]", None), ("bindings[0]", None),
        ("bindings[1]", None), ("bindings[2]", None), ("policies[0]", "max-in-memory-length"),
        ("global_parameters[1]", None),
    ]  # fmt: skip
    assert all(row["why"] for row in body["ignored"])
    assert cluster.machine.queue("/", "bare") is not None
    assert cluster.machine.routing().route("amq.topic", ("",)) == ("bare",)
