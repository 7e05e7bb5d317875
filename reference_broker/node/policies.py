"""What an operator may set as a policy: a request in, a policy or a refusal out. Pure."""

from __future__ import annotations

import re
from typing import Final

from reference_broker.machines.metadata import Policy
from reference_broker.node.requests import Answer, RefusedError

_POLICY_KEYS: Final = {
    "max-length": int, "max-length-bytes": int, "overflow": str, "message-ttl": int, "expires": int,
    "delivery-limit": int, "dead-letter-exchange": str, "dead-letter-routing-key": str, "dead-letter-strategy": str,
}  # fmt: skip


def read_policy(request: Answer) -> Policy:
    """A policy out of a request. Raises :class:`RefusedError` for one that could never hold."""
    name, pattern, definition = request.get("name"), request.get("pattern"), request.get("definition")
    priority = request.get("priority", 0)
    where = f"policy {name!r}"
    if not isinstance(name, str) or not name:
        raise RefusedError(f"{where}: a policy needs a name", 'give one, as {"name": "limits"}')
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise RefusedError(f"{where}: priority {priority!r} is no integer", "give a whole number; the highest wins")
    try:
        re.compile(pattern if isinstance(pattern, str) else "(")
    except re.error as error:
        what = f"{where}: pattern {pattern!r} is no regular expression: {error}"
        raise RefusedError(what, "use one that finds the queues' names, such as ^orders") from error
    if not isinstance(definition, dict) or not definition:
        raise RefusedError(f"{where}: definition {definition!r} is empty or no object", f"set some of {_known()}")
    for key, value in definition.items():
        kind = _POLICY_KEYS.get(key)
        if kind is None:
            raise RefusedError(f"{where}: {key!r} is nothing that a policy can set", f"use some of {_known()}")
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            wanted = "a number, 0 or more" if kind is int else "a string"
            raise RefusedError(f"{where}: {key} = {value!r} is not allowed", f"give {wanted}")
    return Policy(name=name, pattern=str(pattern), definition=tuple(sorted(definition.items())), priority=priority)


def _known() -> str:
    return ", ".join(sorted(_POLICY_KEYS))
