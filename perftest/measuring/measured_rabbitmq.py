"""A RabbitMQ that is started for a run, on the drives of a layout, and is stopped after the run.

The run then measures the RabbitMQ at its URIs, as any other. Profiles and figures of a layout are modelled within nodes
of the bundled broker, so a layout for RabbitMQ has mounts, directories and FUSE drives.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftest.measuring.measured_broker import make_directory, taken_apart, undo_leftovers
from perftest.metrics.names import LINK_BODIES, spelled
from perftest.spec.cluster import Product, requests_for
from perftest.spec.expected.slo import Objective, parse_objective
from perftest.spec.plan import Plan
from perftest.tell import tell

if TYPE_CHECKING:
    from infra.fuse_drives import FuseDrives
    from infra.layout import PlacedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The plan to measure and facts about the broker for the manifest; of a RabbitMQ that was started, its FUSE drives,
    and the addresses of its nodes' own figures if a finding or an objective needs these."""

    plan: Plan
    facts: dict[str, Any]
    drives: FuseDrives | None = None
    broker_metrics: tuple[str, ...] = ()


@contextlib.contextmanager
def rabbitmq(
    plan: Plan,
    kept: Path | None,
    out: Path,
    layout: PlacedLayout | None,
    home: Path | None = None,
    objectives: Sequence[Objective] = (),
) -> Iterator[Measured]:
    """The plan with the URIs of a RabbitMQ that is started in ``out``: the installed one, or that in ``home``. Any
    other plan stays as it is. ``objectives`` are judged beside those of the plan. Raises RabbitMQError and
    DriveError."""
    if plan.cluster.broker is not Product.RABBITMQ or plan.uris or kept is not None:
        yield Measured(plan=plan, facts={})
        return
    from infra import rabbitmq_cluster
    from infra.fuse_drives import FuseDrives
    from infra.fuse_layout import made
    from infra.layout import fuse_directories, real_places

    rabbitmq_cluster.require(home)
    nodes = plan.cluster.nodes
    tell(f"no broker was named (-h): starting {nodes} RabbitMQ node{'s' * (nodes > 1)} on this machine")
    names = [rabbitmq_cluster.node_name(node) for node in range(nodes)]
    if layout is not None:
        layout = rabbitmq_cluster.with_its_threads(layout)
        tell(f"layout {layout.text}")
    make_directory(out)
    undo_leftovers(out)
    began = time.monotonic()
    with contextlib.ExitStack() as undo:
        fuse = contextlib.nullcontext() if layout is None else taken_apart(made(layout, out, names), out)
        placed = undo.enter_context(fuse)
        running = rabbitmq_cluster.running(
            out,
            nodes,
            directories=real_places(placed) if placed is not None else None,
            io_threads=placed.pool_threads if placed is not None else 0,
            home=home,
            tells_figures=LINK_BODIES in _judged(plan, objectives),
            say=tell,
        )
        broker = undo.enter_context(taken_apart(running, out))
        for policy in requests_for(plan.cluster.policies):
            words = str(policy["name"]), str(policy["pattern"]), json.dumps(policy["definition"])
            broker.control("set_policy", *words, "--apply-to", "queues")
        tell(f"RabbitMQ ready after {time.monotonic() - began:.1f} s; it is stopped after the run")
        facts = {"cluster": "local", **({"layout": layout.text} if layout is not None else {})}
        places = fuse_directories(placed) if placed is not None else {}
        on = FuseDrives(names, places) if places else None
        uris = broker.uris
        yield Measured(plan=plan.changed(uris=uris), facts=facts, drives=on, broker_metrics=broker.metrics)


def _judged(plan: Plan, objectives: Sequence[Objective]) -> set[str]:
    """The metrics of the findings and of the objectives."""
    of_plan = [*map(parse_objective, plan.objectives)]
    return {spelled(finding.metric) for finding in plan.findings} | {each.metric for each in (*of_plan, *objectives)}
