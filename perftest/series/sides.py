"""The sides of a sweep: which broker runs on which layout of drives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perftest.measuring.asked_cluster import layout_for
from perftest.measuring.placement import layout_of
from perftest.spec.cluster import Product
from perftest.spec.plan import Plan

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.spec.load import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSide:
    """A side of a series: ``broker`` on ``layout``. ``name`` is the layout as it was named; empty without ``--vary
    layout``. ``broker`` is None if the series has only that of its plan."""

    name: str = ""
    layout: PlacedLayout | None = None
    broker: Product | None = None

    @property
    def text(self) -> str:
        """The side in a line of text: ``layout disks/one_hdd``, ``rabbitmq on layout disks/one_hdd``."""
        on = f"layout {self.name}" if self.name else ""
        return " on ".join(filter(None, (self.broker and str(self.broker), on)))

    def directory(self, number: int) -> str:
        """The directory of the side: ``2-three_hdd`` for ``disks/three_hdd`` and for ``/tmp/three_hdd.yaml``."""
        parts = [part for part in (Path(self.name).stem, self.broker) if part]
        return "-".join([str(number), *(re.sub(r"[^A-Za-z0-9_.-]+", "-", part) for part in parts)])

    def plan(self, plan: Plan) -> Plan:
        """The plan of the series, for the broker of the side."""
        return plan if self.broker is None else replace(plan, cluster=replace(plan.cluster, broker=self.broker))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWords:
    """How a series was asked for: names of layouts, brokers if there are several, and the kind to make of modelled
    drives (``--drives``)."""

    layouts: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    drives: str = ""


def sides_of(
    plans: Sequence[Plan], layouts: Sequence[str], typed: Path | None, document: Document | None, *, is_fuse: bool
) -> Iterator[SeriesSide]:
    """The sides of a sweep: each layout with the broker of each plan. Without ``layouts``, ``typed`` is the one layout,
    or what the workload of the ``document`` asks for. ``is_fuse``: modelled drives become FUSE drives. Raises
    SpecError."""
    for name in layouts or ("",):
        for plan in plans:
            broker = plan.cluster.broker
            if name:
                layout: PlacedLayout | None = layout_of(Path(name), plan.cluster.nodes, broker, is_fuse=is_fuse)
            else:
                layout = layout_for(plan, typed, document, is_fuse=is_fuse)
            yield SeriesSide(name=name, layout=layout, broker=broker if len(plans) > 1 else None)
