"""What a sweep says that it needs, before hours are spent on figures that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import drives
from infra.layout import PlacedLayout
from perftest.measuring.placement import layout_of
from perftest.series.host_needs import HostSize, host_needs
from perftest.spec.cluster import Product
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.plan import Plan

WORKLOAD = """\
schema: 1
name: w
title: t
queues: [{name: q}]
step: {duration: 5m, drain: 30s}
"""
PLAN: Plan = expand(parse_workload(WORKLOAD, "w.yaml")[0], ())
LARGE = HostSize(cores=16, memory_mb=65_536, is_root=True)


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[PlacedLayout]:
    monkeypatch.setattr(drives, "impossible", lambda: "")
    monkeypatch.setattr(drives, "memory_octets", lambda: 64 << 30)
    return [layout_of(Path(f"disks/{name}"), 3, is_fuse=True) for name in ("one_hdd", "three_ssd")]


def test_cores_memory_and_time_of_all_runs_are_told(layouts: list[PlacedLayout]) -> None:
    """Three nodes of RabbitMQ on FUSE drives, two layouts, two rounds."""
    needs = host_needs(PLAN, [(Product.RABBITMQ, layout) for layout in layouts], rounds=2)
    assert needs is not None
    assert needs.lines(LARGE) == [
        "this sweep needs 5 cores (here: 16), 9.1 GiB of memory (free here: 64.0; drives take 6.6 of them), and about "
        "24m30s, and up to 2m of draining"
    ]


def test_what_the_machine_lacks_is_told_with_what_comes_of_it(layouts: list[PlacedLayout]) -> None:
    needs = host_needs(PLAN, [(Product.REFERENCE, layouts[0])])
    assert needs is not None
    lines = needs.lines(HostSize(cores=2, memory_mb=4096, is_root=False))
    assert "5 cores (here: 2), 8.3 GiB of memory (free here: 4.0; drives take 6.6 of them), root, and" in lines[0]
    assert lines[1:] == [
        "with fewer cores drives and load may be late: then a run is INVALID, and says by how much",
        "with less memory a process may be killed: then its run fails, and the others go on",
    ]


def test_the_needs_are_those_of_the_most_demanding_run(layouts: list[PlacedLayout]) -> None:
    both = host_needs(PLAN, [(Product.REFERENCE, layouts[0]), (Product.RABBITMQ, None)])
    assert both is not None and (both.cores, both.drives_mb) == (5, 6720)
    plain = host_needs(PLAN, [(Product.RABBITMQ, None)])
    assert plain is not None and (plain.cores, plain.drives_mb) == (4, 0)
    assert "drives take" not in plain.lines(LARGE)[0] and "root" not in plain.lines(LARGE)[0]


def test_the_bundled_broker_on_plain_files_is_no_occasion() -> None:
    assert host_needs(PLAN, [(Product.REFERENCE, None)]) is None and host_needs(PLAN, []) is None
