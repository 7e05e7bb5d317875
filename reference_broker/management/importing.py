"""The import of definitions: all of them, or nothing.

Everything that can be known before is checked before (:mod:`~reference_broker.management.definitions` the form,
:mod:`~reference_broker.management.import_checks` what the cluster would say), and all of it is told. If a row is
refused all the same, because somebody changed the cluster meanwhile or a node went, what was done is taken back in
reverse order: what is new goes, and what was changed gets its former values. Only a stop of this very node in the
middle leaves some of the rows done; the import can be made again then, because what is there already stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from pamqp import commands

from reference_broker.access.records import Permission, TopicPermission
from reference_broker.machines.cluster.policies import Policy, policy_key
from reference_broker.management import definitions, import_checks, shapes, writing
from reference_broker.management.cluster import ManagedCluster, OperationError
from reference_broker.management.definitions import place_of
from reference_broker.management.errors import BAD_REQUEST, ApiError
from reference_broker.management.parameters import OPERATOR_POLICY
from reference_broker.management.session import RefusedError, method
from reference_broker.management.shapes import Row
from reference_broker.management.writing import ADMINISTRATOR, NO_CONTENT, Outcome, Writer, field
from reference_broker.node.clients.authorization import OPERATOR

log = logging.getLogger(__name__)

_ROWS_A_TURN: Final = 25
Undo = Callable[[], Awaitable[Any]]
"""Takes back the effect of a row; does nothing if the row had no effect."""


async def import_definitions(cluster: ManagedCluster, _at: Row, body: Row) -> Outcome:
    """Definitions. Says what of them was left out, if anything was."""
    gone = await _checked(cluster, body)
    done: list[Undo] = []
    for part, write in _WRITERS.items():
        for number, row in enumerate(body.get(part, [])):
            if (name := f"{part}[{number}]") in gone:
                continue
            at = {"user": OPERATOR, "vhost": row.get("vhost"), **place_of(part, row)}
            try:
                if (undo := _INVERSES[part](cluster, at, row)) is not None:
                    done.append(undo)
                await write(cluster, at, row)
            except Exception as refused:
                raise await _undone(done, name, refused) from refused
    notes = import_checks.notes(body, gone)
    return (200, {"ignored": notes}) if notes else (NO_CONTENT, None)


async def import_into_vhost(cluster: ManagedCluster, at: Row, body: Row) -> Outcome:
    """Definitions of one virtual host, whose rows need not name it."""
    rows = {
        part: [{**row, "vhost": at["vhost"]} if isinstance(row, dict) else row for row in each]
        for part, each in body.items()
        if isinstance(each, list) and part in definitions.OF_A_VHOST
    }
    return await import_definitions(cluster, at, {**body, **rows})


async def _checked(cluster: ManagedCluster, body: Row) -> dict[str, str]:
    """The rows that are left out. Raises :class:`ApiError` with everything that is wrong."""
    wrong = definitions.problems(body, set(cluster.machine.access.vhosts))
    gone: dict[str, str] = {}
    if not wrong:
        gone = import_checks.left_out(body, cluster.machine)
        trial = import_checks.Trial(cluster.machine, cluster.shard.hosting.kinds, gone)
        for number, problem in enumerate(trial.problems(body), start=1):
            wrong += [problem] if problem else []
            if number % _ROWS_A_TURN == 0:
                await asyncio.sleep(0)  # messages have their turn
    if wrong:
        raise ApiError(BAD_REQUEST, f"nothing was imported: {'; '.join(wrong)}")
    return gone


async def _undone(done: list[Undo], name: str, refused: BaseException) -> ApiError:
    """Take back what was done, and say what was refused."""
    why, left = _worded(refused), 0
    for undo in reversed(done):
        try:
            await undo()
        except Exception as error:
            log.warning("a change by definitions could not be taken back: %s", _worded(error))
            left += 1
    if left:
        what = f"{left} of {len(done)} changes before it could not be taken back, see the node's log"
        return ApiError(BAD_REQUEST, f"{name}: {why}; {what}")
    return ApiError(BAD_REQUEST, f"nothing was imported: {name}: {why}")


def _worded(error: BaseException) -> str:
    match error:
        case TimeoutError():
            return "the nodes that it takes did not answer in time"
        case ApiError() | OperationError() | RefusedError():
            return str(error)
        case _:
            log.error("defect while importing definitions", exc_info=error)
            return "defect in the broker, see its log"


# What a row does, where it is more than a request


async def _put_vhost(cluster: ManagedCluster, at: Row, row: Row) -> Outcome:
    """Newer definitions have what describes a virtual host as ``metadata``."""
    return await writing.set_vhost(cluster, at["vhost"], {**field(row, "metadata", dict, {}), **row})


async def _put_user(cluster: ManagedCluster, at: Row, row: Row) -> Outcome:
    outcome = await writing.put_user(cluster, at, row)
    if limits := row.get("limits"):
        values = {key.replace("-", "_"): value for key, value in limits.items()}
        await cluster.change("set-user-limits", name=at["name"], **values)
    return outcome


async def _put_parameter(cluster: ManagedCluster, at: Row, row: Row) -> Outcome:
    value = field(row, "value", dict)
    if row["component"] == OPERATOR_POLICY:
        return await writing.putting_policy(operator=True)(cluster, at, value)
    return await writing.put_limits(cluster, at, value)


_WRITERS: Final[dict[str, Writer]] = {
    "vhosts": _put_vhost,
    "users": _put_user,
    "permissions": writing.put_permission,
    "topic_permissions": writing.put_topic_permission,
    "parameters": _put_parameter,
    "policies": writing.put_policy,
    "exchanges": writing.put_exchange,
    "queues": writing.put_queue,
    "bindings": writing.bind,
}
"""How each part of definitions is imported, in order."""


# What takes a row back. Each looks at what is there before the row is done.


def _undo_vhost(cluster: ManagedCluster, at: Row, _row: Row) -> Undo:
    name = at["vhost"]
    if (known := cluster.machine.access.vhosts.get(name)) is None:
        return partial(cluster.change, "delete-vhost", name=name)
    return partial(cluster.change, "set-vhost", name=name, description=known.description, tags=list(known.tags))


def _undo_user(cluster: ManagedCluster, at: Row, _row: Row) -> Undo:
    name = at["name"]
    if (known := cluster.machine.access.users.get(name)) is None:
        return partial(cluster.change, "delete-user", name=name)

    async def restore() -> None:
        limits = {"max_connections": known.max_connections, "max_channels": known.max_channels}
        await cluster.change("set-password", name=name, password_hash=known.password_hash)
        await cluster.change("set-user-tags", name=name, tags=list(known.tags))
        await cluster.change("set-user-limits", name=name, **limits)

    return restore


def _undo_permission(cluster: ManagedCluster, at: Row, _row: Row) -> Undo:
    key = (at["name"], at["vhost"])
    known: Permission | None = cluster.machine.access.permissions.get(key)
    place = {"user": at["name"], "vhost": at["vhost"]}
    if known is None:
        return partial(cluster.change, "clear-permissions", **place)
    values = {"configure": known.configure, "write": known.write, "read": known.read}
    return partial(cluster.change, "set-permissions", **place, **values)


def _undo_topic_permission(cluster: ManagedCluster, at: Row, row: Row) -> Undo:
    key = (at["name"], at["vhost"], row["exchange"])
    known: TopicPermission | None = cluster.machine.access.topic_permissions.get(key)
    place = {"user": at["name"], "vhost": at["vhost"], "exchange": row["exchange"]}
    if known is None:
        return partial(cluster.change, "clear-topic-permissions", **place)
    return partial(cluster.change, "set-topic-permissions", **place, write=known.write, read=known.read)


def _undo_parameter(cluster: ManagedCluster, at: Row, row: Row) -> Undo:
    if row["component"] == OPERATOR_POLICY:
        return _undo_policies(cluster, at, operator=True)
    known = cluster.machine.access.vhosts[at["vhost"]]
    return partial(writing.put_limits, cluster, at, shapes.vhost_limits(known)["value"])


def _undo_policy(cluster: ManagedCluster, at: Row, _row: Row) -> Undo:
    return _undo_policies(cluster, at, operator=False)


def _undo_policies(cluster: ManagedCluster, at: Row, *, operator: bool) -> Undo:
    place = {"name": at["name"], "vhost": at["vhost"]}
    known: Policy | None = cluster.machine.policies.get(policy_key(at["vhost"], at["name"], operator=operator))
    whose = "operator-policy" if operator else "policy"
    if known is None:
        return partial(cluster.change, f"clear-{whose}", **place)
    definition = {key: list(value) if isinstance(value, tuple) else value for key, value in known.definition}
    values = {"pattern": known.pattern, "priority": known.priority, "apply_to": known.apply_to}
    return partial(cluster.change, f"set-{whose}", **place, definition=definition, **values)


def _undo_exchange(cluster: ManagedCluster, at: Row, _row: Row) -> Undo | None:
    if cluster.machine.routing(at["vhost"]).exchange(at["name"]) is not None:
        return None
    asked = method(commands.Exchange.Delete, exchange=at["name"])
    return partial(_call, cluster, at, asked, commands.Exchange.DeleteOk)


def _undo_queue(cluster: ManagedCluster, at: Row, _row: Row) -> Undo | None:
    if cluster.machine.queue(at["vhost"], at["name"]) is not None:
        return None
    return partial(_call, cluster, at, method(commands.Queue.Delete, queue=at["name"]), commands.Queue.DeleteOk)


def _undo_binding(cluster: ManagedCluster, at: Row, row: Row) -> Undo | None:
    if cluster.machine.routing(at["vhost"]).has(import_checks.binding_of(row)):
        return None
    answer = commands.Queue.UnbindOk if at["kind"] == "q" else commands.Exchange.UnbindOk
    return partial(_call, cluster, at, writing.binding(at, row, adds=False), answer)


async def _call(cluster: ManagedCluster, at: Row, asked: Any, answer: Any) -> None:
    async with cluster.session(at) as session:
        await session.call(asked, answer)


_INVERSES: Final[dict[str, Callable[[ManagedCluster, Row, Row], Undo | None]]] = {
    "vhosts": _undo_vhost,
    "users": _undo_user,
    "permissions": _undo_permission,
    "topic_permissions": _undo_topic_permission,
    "parameters": _undo_parameter,
    "policies": _undo_policy,
    "exchanges": _undo_exchange,
    "queues": _undo_queue,
    "bindings": _undo_binding,
}

IMPORTERS: Final = {
    ("POST", "definitions"): (ADMINISTRATOR, import_definitions),
    ("POST", "definitions/{vhost}"): (ADMINISTRATOR, import_into_vhost),
}
"""As ``WRITERS`` of :mod:`reference_broker.management.writing`."""
