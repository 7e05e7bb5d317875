"""The machine that a sweep needs, said before the start: cores, memory, root, and the time.

The sizes are of runs that were measured: a node of RabbitMQ has 200 to 400 MiB under a light load, a node of the
bundled broker 160 MiB, the load and the page a gigabyte together. Drives in memory take their whole size when they were
written once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perftest.spec.cluster import Product
from perftest.spec.expand import total_s
from perftest.spec.plan import Isolation, Plan
from perftest.spec.units import format_duration

if TYPE_CHECKING:
    from infra.layout import PlacedLayout

_NODE_MB: Final = {Product.RABBITMQ: 512, Product.REFERENCE: 256}
_REST_MB: Final = 1024
"""Memory of the load and of the page."""
_NODE_START_S: Final = {Product.RABBITMQ: 20, Product.REFERENCE: 3}
"""Seconds in which a node starts and stops on a machine that has the cores."""
_PAGE_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSize:
    """What a machine has."""

    cores: int
    memory_mb: int
    is_root: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNeeds:
    """What a sweep needs. ``seconds`` is the most of all runs, without draining; ``drain_s`` is the most of that."""

    cores: int
    memory_mb: int
    drives_mb: int
    seconds: float
    drain_s: float

    def lines(self, host: HostSize) -> list[str]:
        """Sentences for people: what is needed, what this machine has, and what comes of a lack."""
        drives = f"; drives take {self.drives_mb / 1024:.1f} of them" if self.drives_mb else ""
        memory = f"{self.memory_mb / 1024:.1f} GiB of memory (free here: {host.memory_mb / 1024:.1f}{drives})"
        root = ["root"] if self.drives_mb and not host.is_root else []
        wanted = ", ".join([f"{self.cores} cores (here: {host.cores})", memory, *root])
        length = f"{format_duration(self.seconds)}, and up to {format_duration(self.drain_s)} of draining"
        found = [f"this sweep needs {wanted}, and about {length}"]
        if host.cores < self.cores:
            found.append("with fewer cores drives and load may be late: then a run is INVALID, and says by how much")
        if host.memory_mb < self.memory_mb:
            found.append("with less memory a process may be killed: then its run fails, and the others go on")
        return found


def host_needs(plan: Plan, cells: Sequence[tuple[Product, PlacedLayout | None]], rounds: int = 1) -> HostNeeds | None:
    """The needs of a sweep whose rounds measure each of ``cells``, a broker on a layout; None if nothing starts that
    needs more than the bundled broker on plain files."""
    from infra.layout import memory_mb

    nodes = plan.cluster.nodes
    drives = [memory_mb(layout, nodes) if layout is not None else 0 for _broker, layout in cells]
    if not any(drives) and all(broker is Product.REFERENCE for broker, _layout in cells):
        return None
    memory = max(_NODE_MB[broker] * nodes + mb for (broker, _layout), mb in zip(cells, drives, strict=True))
    starts = sum(_NODE_START_S[broker] * nodes for broker, _layout in cells)
    drains = len(plan.steps) if plan.isolation is Isolation.ISOLATED else 1
    return HostNeeds(
        cores=1 + nodes + (1 if any(drives) else 0),
        memory_mb=memory + _REST_MB,
        drives_mb=max(drives),
        seconds=rounds * (total_s(plan) * len(cells) + starts) + _PAGE_S,
        drain_s=plan.drain_s * drains * len(cells) * rounds,
    )


def this_host() -> HostSize:
    """The machine of this process."""
    from infra.drives import memory_octets

    return HostSize(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_mb=memory_octets() >> 20,
        is_root=os.geteuid() == 0,
    )
