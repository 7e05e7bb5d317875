"""A plan as JSON, and the digest of a plan, which is the same for two runs that were asked to do the same.

JSON has no infinity: a duration without an end is ``null``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from perftest.spec.cluster import ClusterSpec
from perftest.spec.fields import changed
from perftest.spec.plan import GROUP_PARTS, Plan

_D = TypeVar("_D")


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values; :func:`plan_from_json` gives the same plan back.

    The parts of the first group stand beside the fields of the plan, background loads stand under ``background``: with
    ``settings``, or with ``steps`` if there are several. Only a plan of other groups has ``groups`` as well.
    """
    return {"background": [], **_by_group(plan, lambda part: _plain(asdict(part)))}


def plan_from_json(plain: Mapping[str, Any]) -> Plan:
    """The plan that :func:`plan_to_json` wrote; a field that is missing gets its default. Raises KeyError, TypeError or
    ValueError for anything else."""
    if not isinstance(plain, Mapping):
        raise TypeError(f"a plan out of {plain!r}")
    rest = dict(plain)
    load = {name: rest.pop(name) for name in GROUP_PARTS if name in rest}
    groups, background = rest.pop("groups", [load]), rest.pop("background", ())
    return _read(Plan, rest | {"groups": [*groups, *(_background_from_json(each) for each in background)]})


def _background_from_json(plain: Mapping[str, Any]) -> dict[str, Any]:
    rest = dict(plain) | {"measured": False}
    if "steps" in rest:
        return rest
    step = {"number": 1, "label": rest["name"], "settings": rest.pop("settings"), "duration_s": None, "warmup_s": 0.0}
    return rest | {"steps": [step]}


def plan_digest(plan: Plan) -> str:
    """SHA-256 (hex) of the plan in canonical JSON: sorted keys, no spaces, UTF-8.

    The addresses of the brokers, the cluster to be started and the hosts of the load are left out: the same workload
    against two clusters, or from other hosts, has one digest. Every field that has its default is left out, too: an
    option that is added later leaves the digests of other runs as they are. So is the routing key of queues that the
    server names, because the key is drawn for each run. So are findings and objectives, which change nothing that a run
    does.
    """
    plan = replace(plan, uris=(), cluster=ClusterSpec(), hosts=())
    plan = replace(plan, findings=(), published=(), source_title="", objectives=())
    if any(not queue.name for queue in plan.queues):
        plan = plan.changed(publishing=replace(plan.publishing, routing_key=""))
    plain = _by_group(plan, _deviations)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _by_group(plan: Plan, plain: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The values of a plan, each part written by ``plain``, with the groups where :func:`plan_to_json` says."""
    found = plain(plan)
    groups = [plain(group) for group in plan.groups]
    del found["groups"]
    found |= {name: groups[0][name] for name in GROUP_PARTS if name in groups[0]}
    if len(plan.measured) != 1 or plan.load.name:
        found["groups"] = [each for group, each in zip(plan.groups, groups, strict=True) if group.measured]
    background = [each for group, each in zip(plan.groups, groups, strict=True) if not group.measured]
    for group, each in zip(plan.background, background, strict=True):
        del each["measured"]
        if not group.has_own_steps:
            (step,) = each.pop("steps")
            each["settings"] = step["settings"]
    return found | ({"background": background} if background else {})


def _deviations(value: Any) -> Any:
    """As :func:`_plain`, without fields that have their default."""
    if isinstance(value, list | tuple):
        return [_deviations(each) for each in value]
    if not is_dataclass(value):
        return _plain(value)
    return {name: _deviations(of) for name, of in changed(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return None if value == math.inf else value


def _read(kind: type[_D], plain: Mapping[str, Any]) -> _D:
    """A dataclass from the values of its fields."""
    if not isinstance(plain, Mapping):
        raise TypeError(f"{kind.__name__} out of {plain!r}")
    unknown = plain.keys() - {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    hints = _hints(kind)  # type: ignore[arg-type]
    return kind(**{name: _value(hints[name], value) for name, value in plain.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, plain: Any) -> Any:
    """A value of the type ``hint``. A null for a float is infinity."""
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
