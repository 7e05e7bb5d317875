"""What a queue may be declared as. Pure: a declare event in, a record or a refusal out.

The refusals are RabbitMQ's where it has one (reply code and the start of the sentence); clients match on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from reference_broker.amqp.events import QueueDeclare
from reference_broker.machines.metadata import ArgumentValue, QueueRecord
from reference_broker.types import GroupId, NodeId

if TYPE_CHECKING:
    from reference_broker.node.shard import Queue

NOT_FOUND: Final = 404
ACCESS_REFUSED: Final = 403
PRECONDITION_FAILED: Final = 406

_INTEGER_ARGUMENTS: Final = {"x-delivery-limit": "delivery_limit"}
_IGNORED_ARGUMENTS: Final = frozenset({"x-queue-type", "x-max-in-memory-length", "x-max-in-memory-bytes"})
"""The in-memory limits do nothing in RabbitMQ either since 3.10: bodies always live in the log."""


class RefusedError(Exception):
    """The declaration is refused on its channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def new_record(event: QueueDeclare, name: str, nodes: list[NodeId], random_bits: Callable[[int], int]) -> QueueRecord:
    """The record of a queue that does not exist yet, with a group id of its own. Raises :class:`RefusedError`."""
    if event.queue.startswith("amq."):
        raise RefusedError(ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
    _check_flags(event, name)
    arguments = _arguments(event, name, len(nodes))
    group = GroupId(random_bits(63) | 1)
    return QueueRecord(name=name, group=group, members=tuple(sorted(nodes)), arguments=arguments)


def check(event: QueueDeclare, queue: Queue | None) -> Queue:
    """The queue, if the declaration fits what exists. Raises :class:`RefusedError`."""
    if queue is None:
        raise RefusedError(NOT_FOUND, f"no queue '{event.queue}' in vhost '/'")
    if event.passive:
        return queue
    _check_flags(event, queue.record.name)
    declared = dict(_arguments(event, queue.record.name, len(queue.record.members)))
    existing = dict(queue.record.arguments)
    for key in sorted(declared.keys() | existing.keys()):
        if declared.get(key) != existing.get(key):
            raise RefusedError(
                PRECONDITION_FAILED,
                f"inequivalent arg '{key}' for queue '{queue.record.name}' in vhost '/': "
                f"received {declared.get(key, 'none')!r} but current is {existing.get(key, 'none')!r}",
            )
    return queue


def _check_flags(event: QueueDeclare, name: str) -> None:
    kind = event.arguments.get("x-queue-type", "classic")
    if kind != "quorum":
        raise RefusedError(
            PRECONDITION_FAILED, f"queue type {kind!r} is not available here; declare '{name}' with x-queue-type=quorum"
        )
    wrong = {
        "exclusive": (event.exclusive, "exclusive-owner"),
        "auto_delete": (event.auto_delete, "auto-delete"),
        "durable": (not event.durable, "non-durable"),
    }
    for bad, prop in wrong.values():
        if bad:
            raise RefusedError(
                PRECONDITION_FAILED, f"invalid property '{prop}' for queue '{name}' in vhost '/': not for quorum queues"
            )


def _arguments(event: QueueDeclare, name: str, nodes: int) -> tuple[tuple[str, ArgumentValue], ...]:
    found: dict[str, ArgumentValue] = {}
    for key, value in event.arguments.items():
        if key in _INTEGER_ARGUMENTS:
            found[_INTEGER_ARGUMENTS[key]] = _integer(key, value, name)
        elif key == "x-quorum-initial-group-size":
            if _integer(key, value, name) < nodes:
                raise _invalid(key, name, f"a queue has a member on each of the {nodes} nodes")
        elif key not in _IGNORED_ARGUMENTS:
            raise _invalid(key, name, "a quorum queue here does not know it")
    return tuple(sorted(found.items()))


def _integer(key: str, value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(key, name, f"expected an integer, received {value!r}")
    return value


def _invalid(key: str, name: str, why: str) -> RefusedError:
    return RefusedError(PRECONDITION_FAILED, f"invalid arg '{key}' for queue '{name}' in vhost '/': {why}")
