"""The check of a policy that an operator sets: a request in, a policy or a refusal out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reference_broker import patterns
from reference_broker.access.records import DEFAULT_VHOST
from reference_broker.amqp.fields import TIME_MS_MAX
from reference_broker.machines.cluster.policies import ALL, EXCHANGES, QUEUES, Policy
from reference_broker.mirroring.placement import HaMode
from reference_broker.node.links.peer_requests import Answer, RequestError

_SHORT_STRING_OCTETS: Final = 255
_COUNTS: Final = range(2**63)
_TIMES_MS: Final = range(TIME_MS_MAX + 1)
_POLICY_KEYS: Final[dict[str, range | tuple[str, ...] | None]] = {
    "max-length": _COUNTS,
    "max-length-bytes": _COUNTS,
    "overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "message-ttl": _TIMES_MS,
    "expires": _TIMES_MS[1:],
    "delivery-limit": _COUNTS,
    "dead-letter-exchange": None,
    "dead-letter-routing-key": None,
    "dead-letter-strategy": ("at-most-once", "at-least-once"),
    "alternate-exchange": None,
    "queue-mode": ("default", "lazy"),
    "queue-master-locator": ("min-masters", "client-local", "random"),
    "queue-leader-locator": ("client-local", "balanced", "random", "least-leaders"),
    "queue-version": range(1, 3),
    "max-in-memory-length": _COUNTS,
    "max-in-memory-bytes": _COUNTS,
    "max-age": None,
    "stream-max-segment-size-bytes": _COUNTS,
    "initial-cluster-size": _COUNTS[1:],
    "ha-mode": tuple(HaMode),
    "ha-params": None,
    "ha-sync-mode": ("manual", "automatic"),
    "ha-sync-batch-size": _COUNTS[1:],
    "ha-promote-on-failure": ("always", "when-synced"),
    "ha-promote-on-shutdown": ("always", "when-synced"),
}
"""The allowed values of each key; None: any string of at most 255 octets. They are a declaration's values, so every
committed policy can be applied. ``ha-params`` has rules of its own."""
_NOT_FOR_OPERATORS: Final = frozenset(
    {"ha-sync-batch-size", "queue-version", "stream-max-segment-size-bytes", "initial-cluster-size"}
)
"""Numeric keys that are no limits."""
_NO_MEMORY: Final = "bodies of quorum queues are in the log alone, as in RabbitMQ since 3.10"
_NO_STREAM: Final = "there are no streams here"
_WITHOUT_EFFECT: Final = {
    "max-in-memory-length": _NO_MEMORY,
    "max-in-memory-bytes": _NO_MEMORY,
    "queue-version": "there is one format of classic queues, which is like version 2",
    "max-age": _NO_STREAM,
    "stream-max-segment-size-bytes": _NO_STREAM,
    "initial-cluster-size": _NO_STREAM,
}
"""Keys of RabbitMQ's policies that may be set and have no effect here, and why."""
_APPLY_TO: Final = (QUEUES, EXCHANGES, ALL)


def without_effect(definition: Mapping[str, object]) -> dict[str, str]:
    """The settings of a policy that have no effect, or not on all queues, each with the reason."""
    found = {key: _WITHOUT_EFFECT[key] for key in sorted(definition) if key in _WITHOUT_EFFECT}
    if definition.get("overflow") == "reject-publish-dlx":
        found["overflow"] = "only classic queues can do reject-publish-dlx; others go by their declaration"
    return found


def read_policy(request: Answer, *, operator: bool = False, vhost: str = DEFAULT_VHOST) -> Policy:
    """A policy of a virtual host out of a request: a user's, or an ``operator``'s. Raises :class:`RequestError` for a
    wrong policy."""
    name, pattern, definition = request.get("name"), request.get("pattern"), request.get("definition")
    priority = request.get("priority", 0)
    where = f"policy {name!r}"
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}: a policy needs a name", "give it one, such as limits")
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise RequestError(f"{where}: priority {priority!r} is no integer", "give a whole number; the highest wins")
    if problem := patterns.problem_with(pattern) if isinstance(pattern, str) else "it is no text":
        what = f"{where}: pattern {pattern!r} is no regular expression: {problem}"
        raise RequestError(what, "use one that finds the queues' names, such as ^orders")
    if not isinstance(definition, dict) or not definition:
        raise RequestError(
            f"{where}: definition {definition!r} is empty or no object", f"set some of {_known(operator)}"
        )
    for key, value in definition.items():
        if key not in _known_keys(operator):
            who = "an operator's policy" if operator else "a policy"
            raise RequestError(f"{where}: {key!r} is nothing that {who} can set", f"use some of {_known(operator)}")
        if key != "ha-params" and (wanted := _wanted_instead(_POLICY_KEYS[key], value)) is not None:
            raise RequestError(f"{where}: {key} = {value!r} is not allowed", f"give {wanted}")
    _check_copies(where, definition)
    if (apply_to := request.get("apply_to", ALL)) not in _APPLY_TO:
        raise RequestError(f"{where}: it cannot apply to {apply_to!r}", f"use one of {', '.join(_APPLY_TO)}")
    settings = tuple(sorted((key, tuple(each) if isinstance(each, list) else each) for key, each in definition.items()))
    return Policy(
        name=name, pattern=str(pattern), definition=settings, priority=priority, operator=operator, vhost=vhost,
        apply_to=apply_to,
    )  # fmt: skip


def _check_copies(where: str, definition: dict[str, object]) -> None:
    """The keys about copies belong together."""
    mode, params = definition.get("ha-mode"), definition.get("ha-params")
    if mode is None:
        if alone := sorted(key for key in definition if key.startswith("ha-")):
            raise RequestError(f"{where}: {alone[0]} says nothing without ha-mode", "set ha-mode, or leave it out")
        return
    if mode == HaMode.ALL:
        wanted = None if params is None else "no ha-params: every node gets a copy"
    elif mode == HaMode.EXACTLY:
        is_count = isinstance(params, int) and not isinstance(params, bool) and params > 0
        wanted = None if is_count else "ha-params, the number of nodes that have the queue, such as 2"
    else:
        is_list = isinstance(params, list) and params and all(isinstance(each, str) and each for each in params)
        wanted = None if is_list else "ha-params, a list of names of nodes"
    if wanted is not None:
        raise RequestError(f"{where}: ha-params = {params!r} does not go with ha-mode {mode}", f"give {wanted}")


def _wanted_instead(allowed: range | tuple[str, ...] | None, value: object) -> str | None:
    """A description of the allowed values, if the value is not allowed; None if it is."""
    if isinstance(allowed, range):
        is_allowed = isinstance(value, int) and not isinstance(value, bool) and value in allowed
        return None if is_allowed else f"a whole number from {allowed[0]} to {allowed[-1]}"
    if allowed is not None:
        return None if value in allowed else f"one of {', '.join(allowed)}"
    is_short = isinstance(value, str) and len(value.encode("utf-8", "replace")) <= _SHORT_STRING_OCTETS
    return None if is_short else "a string of at most 255 octets"


def _known_keys(operator: bool) -> list[str]:
    """The keys that a policy can set. Operators set upper limits: the lower number holds."""
    limits = (
        key for key, allowed in _POLICY_KEYS.items() if isinstance(allowed, range) and key not in _NOT_FOR_OPERATORS
    )
    return sorted(limits if operator else _POLICY_KEYS)


def _known(operator: bool) -> str:
    return ", ".join(_known_keys(operator))
