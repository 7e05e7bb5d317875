"""What the nodes sent to each other over a step: no figure is better than a sum that lacks a node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reports.compute.brokers import sent_of_nodes

NS = 1_000_000_000
STEP = {"step": 1, "group": "", "start_ns": 0, "end_ns": 10 * NS}


def samples(node: str, *, per_s: int, tells: bool = True, pids: tuple[int, ...] = (1,) * 11) -> list[dict[str, Any]]:
    """One sample a second, of a process that has sent so much to two peers since it began."""
    rows = []
    for second, pid in enumerate(pids):
        sent = per_s * (second - pids.index(pid))
        links = {"a": {"replication": sent // 2}, "b": {"replication": sent // 4, "commands": sent - 3 * (sent // 4)}}
        row = {"node": node, "pid": pid, "t_ns": second * NS, "length_s": 1.0, "cpu_ns": second}
        rows.append(row | {"links": json.dumps(links) if tells else None})
    return rows


def test_the_octets_of_all_nodes_are_one_sum() -> None:
    found = sent_of_nodes(samples("n1", per_s=1000) + samples("n2", per_s=400), [STEP])
    assert found[1, ""]["link_bytes_per_s"] == pytest.approx(1400, rel=0.01)


@pytest.mark.parametrize(
    "second",
    [samples("n2", per_s=400, tells=False), samples("n2", per_s=400)[:5]],
    ids=["tells nothing", "died in the middle"],
)
def test_a_node_that_is_silent_leaves_no_figure(second: list[dict[str, Any]]) -> None:
    assert sent_of_nodes(samples("n1", per_s=1000) + second, [STEP]) == {}


def test_a_restart_counts_no_octets_of_before() -> None:
    pids = (1,) * 5 + (2,) * 6
    (figure,) = sent_of_nodes(samples("n1", per_s=1000, pids=pids), [STEP]).values()
    assert figure["link_bytes_per_s"] == pytest.approx(1000, rel=0.01)


def test_a_broker_without_nodes_has_no_figure() -> None:
    assert sent_of_nodes([], [STEP]) == {}
