"""The ``cluster:`` section of a workload: what is started for it, after options had their say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perftest.measuring.placement import Inline, layout_of
from perftest.spec.problem import Problem, SpecError
from perftest.tell import tell

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.spec.load import Document
    from perftest.spec.plan import Plan
    from reference_broker.node.config import Limits


def in_folder(plan: Plan, workload: Path) -> Plan:
    """The plan with the path of its layout, which a workload file names from the folder that it lies in."""
    if not plan.cluster.layout or isinstance(plan.cluster.layout, dict):
        return plan
    path = workload.absolute().parent / plan.cluster.layout
    if not path.is_file():
        return plan
    return replace(plan, cluster=replace(plan.cluster, layout=str(path)))


def layout_for(
    plan: Plan,
    typed: Path | None,
    document: Document | None = None,
    *,
    is_fuse: bool = False,
    elsewhere: bool = False,
) -> PlacedLayout | None:
    """The layout of the cluster that is started for a plan: ``typed`` with --layout, or that of the workload, whose
    ``document`` knows the lines. ``is_fuse``: modelled drives become FUSE drives. Drives that are ``elsewhere`` are
    not looked for on this machine. Raises SpecError with all problems of the layout and of the limits."""
    refuse_limits(plan)
    asked = layout_in(plan, document)
    if typed is not None and asked is not None:
        named = f" {asked}" if isinstance(asked, Path) else ""
        tell(f"--layout {typed} stands in for the workload's layout{named}")
    chosen = typed or asked
    if chosen is None:
        return None
    return layout_of(chosen, plan.cluster.nodes, plan.cluster.broker, is_fuse=is_fuse, elsewhere=elsewhere)


def layout_in(plan: Plan, document: Document | None = None) -> Path | Inline | None:
    """The layout that a workload asks for: a file, or what stands in the workload itself. Without the ``document``, as
    for a plan that a run directory holds, no problem can name a line."""
    from perftest.spec.load import Document

    layout = plan.cluster.layout
    if isinstance(layout, str):
        return Path(layout) if layout else None
    known = document or Document(data={}, file=plan.name)
    return Inline(content=layout, name=plan.name, document=known.part(("cluster", "layout")))


def with_broker(plan: Plan, broker: str | None) -> Plan:
    """The plan for a cluster of the broker that was typed with --broker, if one was typed. Raises SpecError."""
    if broker is None:
        return plan
    from perftest.spec.cluster import Product, faults

    plan = replace(plan, cluster=replace(plan.cluster, broker=Product(broker)))
    problems = [
        Problem(path=f"cluster.{each.key}", value=each.value, rule=each.rule, fix=each.fix, file=plan.name)
        for each in faults(plan.cluster)
    ]
    if problems:
        raise SpecError(problems)
    return plan


def limits_of(plan: Plan) -> Limits:
    """The limits of the nodes that a plan asks for. Raises SpecError."""
    from reference_broker.node.config import Limits

    refuse_limits(plan)
    return Limits(**plan.cluster.settings)


def tell_of_unused(plan: Plan) -> None:
    """Say that a named broker is measured and not the cluster that the workload asks for, if it asks for one."""
    if plan.cluster != type(plan.cluster)():
        tell("the cluster of the workload is not started: a broker was named")


def refuse_limits(plan: Plan) -> None:
    """Raises SpecError with all problems of the limits that a plan gives to its nodes."""
    if not plan.cluster.settings:
        return  # a run against another broker loads nothing of the bundled one
    if problems := [
        Problem(path=f"cluster.settings.{name}", value=value, rule=rule, fix=fix, file=plan.name)
        for name, value, rule, fix in _wrong_limits(plan.cluster.settings)
    ]:
        raise SpecError(problems)


def _wrong_limits(settings: dict[str, int]) -> Iterator[tuple[str, int, str, str]]:
    from reference_broker.node.config import Limits, limit_problems

    known = [each.name for each in fields(Limits)]
    for name in [name for name in settings if name not in known]:
        yield name, settings[name], f"a node has no limit {name!r}", f"use one of: {', '.join(known)}"
    limits = Limits(**{name: value for name, value in settings.items() if name in known})
    for text in limit_problems(limits):
        name, _, rule = text.removeprefix("limits.").partition(": ")
        yield name, getattr(limits, name), rule, "change this limit, or the one that it depends on"
