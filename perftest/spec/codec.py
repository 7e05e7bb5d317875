"""A plan as JSON, and the digest that says whether two runs were asked to do the same.

JSON has no infinity: a duration without an end is ``null``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from perftest.spec.plan import Plan

_D = TypeVar("_D")


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values; :func:`plan_from_json` gives the same plan back."""
    return {name: _plain(value) for name, value in asdict(plan).items()}


def plan_from_json(plain: Mapping[str, Any]) -> Plan:
    """The plan that :func:`plan_to_json` wrote; what it leaves out has its default. Raises KeyError, TypeError or
    ValueError for anything else."""
    return _read(Plan, plain)


def plan_digest(plan: Plan) -> str:
    """SHA-256 (hex) of the plan in canonical JSON: sorted keys, no spaces, UTF-8.

    The brokers' addresses are left out: the same workload against two clusters has one digest. So is every field that
    has its default: an option that is added later leaves the digests of runs that do not use it as they are. And so is
    the routing key of queues that the server names, which is drawn for each run.
    """
    plan = replace(plan, uris=())
    if any(not queue.name for queue in plan.queues):
        plan = replace(plan, publishing=replace(plan.publishing, routing_key=""))
    plain = _deviations(plan)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _deviations(value: Any) -> Any:
    """As :func:`_plain`, without the fields that have their default."""
    if isinstance(value, list | tuple):
        return [_deviations(each) for each in value]
    if not is_dataclass(value):
        return _plain(value)
    kept = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: _deviations(of) for each, of in kept if of not in (each.default, _made(each))}


def _made(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else MISSING


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return None if value == math.inf else value


def _read(kind: type[_D], plain: Mapping[str, Any]) -> _D:
    """A dataclass out of the values of its fields."""
    if not isinstance(plain, Mapping):
        raise TypeError(f"{kind.__name__} out of {plain!r}")
    unknown = plain.keys() - {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], value) for name, value in plain.items()})


def _value(hint: Any, plain: Any) -> Any:
    """One value of the type ``hint``: a null where a float is wanted is infinity."""
    if is_dataclass(hint):
        return _read(hint, plain)  # type: ignore[arg-type]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        inner = arguments[:1] * len(plain) if arguments[-1] is Ellipsis else arguments
        return tuple(_value(each, value) for each, value in zip(inner, plain, strict=True))
    if origin in (Union, UnionType) and plain is not None:
        tuples = [each for each in arguments if get_origin(each) is tuple]
        return _value(tuples[0], plain) if tuples else plain
    if hint is float:
        return math.inf if plain is None else float(plain)
    return hint(plain) if isinstance(hint, type) and issubclass(hint, Enum) else plain
