"""The check of a policy that an operator sets: a request in, a policy or a refusal out. Pure."""

from __future__ import annotations

import re
from typing import Final

from reference_broker.amqp.fields import TIME_MS_MAX
from reference_broker.machines.metadata import Policy
from reference_broker.node.requests import Answer, RequestError

_SHORT_STRING_OCTETS: Final = 255
_COUNTS: Final = range(2**63)
_TIMES_MS: Final = range(TIME_MS_MAX + 1)
_POLICY_KEYS: Final[dict[str, range | tuple[str, ...] | None]] = {
    "max-length": _COUNTS,
    "max-length-bytes": _COUNTS,
    "overflow": ("drop-head", "reject-publish"),
    "message-ttl": _TIMES_MS,
    "expires": _TIMES_MS[1:],
    "delivery-limit": _COUNTS,
    "dead-letter-exchange": None,
    "dead-letter-routing-key": None,
    "dead-letter-strategy": ("at-most-once", "at-least-once"),
}
"""The allowed values of each key; None: any string of at most 255 octets. They are those of a declaration, so every
committed policy can be applied."""


def read_policy(request: Answer, *, operator: bool = False) -> Policy:
    """A policy out of a request, a user's or an ``operator``'s. Raises :class:`RequestError` for a wrong policy."""
    name, pattern, definition = request.get("name"), request.get("pattern"), request.get("definition")
    priority = request.get("priority", 0)
    where = f"policy {name!r}"
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}: a policy needs a name", "give it one, such as limits")
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise RequestError(f"{where}: priority {priority!r} is no integer", "give a whole number; the highest wins")
    try:
        re.compile(pattern if isinstance(pattern, str) else "(")
    except re.error as error:
        what = f"{where}: pattern {pattern!r} is no regular expression: {error}"
        raise RequestError(what, "use one that finds the queues' names, such as ^orders") from error
    if not isinstance(definition, dict) or not definition:
        raise RequestError(
            f"{where}: definition {definition!r} is empty or no object", f"set some of {_known(operator)}"
        )
    for key, value in definition.items():
        if key not in _known_keys(operator):
            who = "an operator's policy" if operator else "a policy"
            raise RequestError(f"{where}: {key!r} is nothing that {who} can set", f"use some of {_known(operator)}")
        if (wanted := _wanted_instead(_POLICY_KEYS[key], value)) is not None:
            raise RequestError(f"{where}: {key} = {value!r} is not allowed", f"give {wanted}")
    settings = tuple(sorted(definition.items()))
    return Policy(name=name, pattern=str(pattern), definition=settings, priority=priority, operator=operator)


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
    """The keys that a policy can set. Operators set upper limits: numbers, of which the lower holds."""
    return sorted(key for key, allowed in _POLICY_KEYS.items() if not operator or isinstance(allowed, range))


def _known(operator: bool) -> str:
    return ", ".join(_known_keys(operator))
