"""One run of many that belong together: recorded like any other, without a screen of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perftest.cli.exits import CliError, Exit
from perftest.cli.sampling import Sampler
from perftest.engine.api import RunOutcome, StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.results.provenance import redact
from perftest.results.writer import RunWriter
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from infra.local_cluster import Cluster


@dataclass(frozen=True, slots=True)
class Limit:
    """What made a probe invalid, and what to do about it; both are sentences."""

    what: str
    fix: str


REMEDIES: Final[Mapping[str, str]] = {
    "generator_cpu": "spread the load over more clients (-x, -y), each core has a worker process; or run the generator "
    "on a machine of its own, with more cores",
    "steal": "measure on a machine that shares its processors with nobody",
    "clock": "run the generator on one host, with one clock",
}
"""The checks of a step that fail when the figures are not the broker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a probe found: the rows of its steps, its ledger, what of it failed its own checks; ``limits`` are those
    of the failed checks that speak of the load generator and its machine, so that nothing is said about the broker."""

    path: Path
    rows: list[dict[str, Any]]
    ledger: Mapping[str, Any]
    faults: tuple[str, ...]
    interrupted: bool
    limits: tuple[Limit, ...] = ()


def probe(plan: Plan, out: Path, cluster: Cluster | None, stop: StopRequest, command: Sequence[str]) -> Probe:
    """Run ``plan`` and record it below ``out``, with the ``command`` that makes it again. Raises CliError if it failed,
    RunNotWritableError."""
    if cluster is not None:
        plan = replace(plan, uris=cluster.uris)
    writer = RunWriter(out, plan, command)
    try:
        outcome = asyncio.run(_execute(plan, writer, Sampler(writer, cluster), stop))
    except BaseException as error:
        writer.finish("failed", f"{type(error).__name__}: {error}", Exit.RUN_ERROR)
        raise
    reason = outcome.error.what if outcome.error is not None else outcome.state
    writer.finish(outcome.state, redact(reason))
    if outcome.error is not None:
        raise CliError(redact(outcome.error.what), redact(outcome.error.where), outcome.error.fix)
    checks = [*writer.trust, *(check for row in writer.rows for check in row["trust"])]
    failed = [check for check in checks if check["status"] == "fail"]
    return Probe(
        path=writer.path,
        rows=writer.rows,
        ledger=writer.ledger_record or {},
        faults=tuple(check["text"] for check in failed),
        limits=tuple(Limit(check["text"], REMEDIES[check["check"]]) for check in failed if check["check"] in REMEDIES),
        interrupted=outcome.state == "interrupted",
    )


async def _execute(plan: Plan, writer: RunWriter, sampler: Sampler, stop: StopRequest) -> RunOutcome:
    """The plan with the host and the nodes sampled beside it."""
    sampling = asyncio.create_task(sampler.run())
    try:
        outcome = await execute(plan, writer, stop)
        await sampler.nodes()
        return outcome
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
