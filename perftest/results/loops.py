"""Which steps of a run are an open loop: a schedule says when each message should leave.

Decided for each step, from the plan in the manifest: a sweep over rates may have a step without a rate, which is a
closed loop. The report asks the same functions as the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OPEN: Final = "open"
CLOSED: Final = "closed"
MIXED: Final = "mixed"
"""Of a run: some steps are an open loop, the others a closed one."""


def step_loop(step: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """``open`` or ``closed``, for a step of the plan as it stands in a manifest. The same rule as
    :func:`perftest.spec.plan.is_open_loop`: there is a rate, a cycle of rates, or a trace."""
    parts = (plan.get("publishing"), step.get("settings"))
    publishing, settings = (part if isinstance(part, Mapping) else {} for part in parts)
    rated = settings.get("rate") is not None
    return OPEN if rated or publishing.get("rate_cycle") or publishing.get("arrivals") == "trace" else CLOSED


def run_loop(plan: Mapping[str, Any]) -> str:
    """``open`` or ``closed`` if all steps of the plan are, else ``mixed``; a plan without steps is closed."""
    found = {step_loop(step, plan) for step in plan.get("steps") or ()}
    return MIXED if len(found) > 1 else next(iter(found), CLOSED)
