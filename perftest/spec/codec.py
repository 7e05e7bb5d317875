"""A plan as JSON, and the digest that says whether two runs were asked to do the same.

JSON has no infinity: a duration without an end is ``null``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from perftest.spec.plan import Isolation, Plan, QueueSpec, QueueType, Settings, Step


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values; :func:`plan_from_json` gives the same plan back."""
    plain: dict[str, Any] = asdict(plan)
    plain["isolation"] = str(plan.isolation)
    plain["uris"], plain["swept"] = list(plan.uris), list(plan.swept)
    plain["queues"] = [{**asdict(queue), "type": str(queue.type)} for queue in plan.queues]
    plain["steps"] = [{**asdict(step), "duration_s": _finite(step.duration_s)} for step in plan.steps]
    return plain


def plan_from_json(plain: Mapping[str, Any]) -> Plan:
    """The plan that :func:`plan_to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    return Plan(
        **{
            **plain,
            "uris": tuple(plain["uris"]),
            "swept": tuple(plain["swept"]),
            "isolation": Isolation(plain["isolation"]),
            "queues": tuple(QueueSpec(**{**queue, "type": QueueType(queue["type"])}) for queue in plain["queues"]),
            "steps": tuple(_step(step) for step in plain["steps"]),
        }
    )


def plan_digest(plan: Plan) -> str:
    """SHA-256 (hex) of the plan in canonical JSON: sorted keys, no spaces, UTF-8.

    The brokers' addresses are left out: the same workload against two clusters has one digest.
    """
    plain = plan_to_json(replace(plan, uris=()))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _step(plain: Mapping[str, Any]) -> Step:
    duration_s = math.inf if plain["duration_s"] is None else float(plain["duration_s"])
    return Step(**{**plain, "duration_s": duration_s, "settings": Settings(**plain["settings"])})
