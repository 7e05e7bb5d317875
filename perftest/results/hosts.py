"""The hosts of a run, as its manifest names them: what each was there for. Pure.

A row of ``hosts`` without ``roles`` is a load host: runs on one host have no roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LOAD: Final = "load"
BROKER: Final = "broker"

START_SKEW_MAX_NS: Final = 10_000_000
"""Hosts that begin further apart measured different loads for a while."""


def roles_of(host: Mapping[str, Any]) -> tuple[str, ...]:
    """What a host was there for: LOAD, BROKER, or both."""
    roles = host.get("roles")
    known = tuple(str(role) for role in roles) if isinstance(roles, list | tuple) else ()
    return known or (LOAD,)


def has_load(host: Mapping[str, Any]) -> bool:
    """Whether a host made load."""
    return LOAD in roles_of(host)
