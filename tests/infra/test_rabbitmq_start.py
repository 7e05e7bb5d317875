"""The start of a RabbitMQ: a person who waits for minutes sees which node is being waited for."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import rabbitmq_cluster


@pytest.mark.parametrize(
    ("nodes", "lines"),
    [
        (1, ["node 1 of 1 was started", "node 1 of 1 runs"]),
        (
            3,
            [
                *(f"node {node} of 3 {what}" for node in (1, 2, 3) for what in ("was started", "runs")),
                "node 2 of 3 has joined the cluster",
                "node 3 of 3 has joined the cluster",
            ],
        ),
    ],
)
def test_every_node_is_told_when_it_starts_runs_and_joins(
    nodes: int, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> Any:
        return SimpleNamespace(pid=0)

    for name in ("_spawn", "_await", "_control"):
        monkeypatch.setattr(rabbitmq_cluster._Cluster, name, nothing)
    monkeypatch.setattr(rabbitmq_cluster, "is_installed", lambda: True)
    monkeypatch.setattr(rabbitmq_cluster, "_emulator", lambda pid: pid)
    said: list[str] = []
    with rabbitmq_cluster.running(tmp_path, nodes, say=said.append):
        pass
    assert [re.sub(r" after \d+\.\d s$", "", line) for line in said] == lines
