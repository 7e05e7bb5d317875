"""Drives a run from the command's process."""

from __future__ import annotations

from perftest.engine.api import RunOutcome, Sink, StopRequest
from perftest.spec.plan import Plan


async def execute(plan: Plan, sink: Sink, stop: StopRequest) -> RunOutcome:
    """Run ``plan`` to its end, or until ``stop``; records go to ``sink`` as they come.

    Never raises for what a broker, a network or a user does: such a run comes back as ``failed`` with a
    :class:`~perftest.engine.api.RunError`.
    """
    raise NotImplementedError
