"""The last resort of a cluster that lost a majority of its copies: one node's copy becomes the truth.

The nodes do not run. A command reads what each has on its drives (``python -m reference_broker.node.last_resort``), so
an operator sees the loss before any change. Then one node is declared, starts alone, and the other nodes come back
blank and learn everything from it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.cluster import Cluster, ClusterError, Node
from infra.node_process import is_alive

_COMMAND: Final = (sys.executable, "-m", "reference_broker.node.last_resort")
_LOOK_TIMEOUT_S: Final = 600.0
"""Longest time that a node may take to read its log: a log has gigabytes at most."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a node's drives: the last term and index of each log by name, or the ``error`` of reading them."""

    logs: Mapping[str, tuple[int, int]]
    findings: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """A loss: ``entries`` that ``node`` has behind the log's end on the declared node. ``entries`` is 0 if they cannot
    be counted: the other node's log is of a later term and not longer."""

    log: str
    node: str
    entries: int


def require_stopped(cluster: Cluster) -> None:
    """Raises :class:`ClusterError` if a node runs, or is on another host."""
    for node in cluster.nodes:
        if not node.is_here:
            raise ClusterError(f"{node.name} runs on another host", node.host, "only a cluster of one host can recover")
        if is_alive(node):
            stopping = f"stop the cluster first: `perftest broker stop --dir {cluster.directory}`"
            raise ClusterError(f"{node.name} runs", f"pid {node.pid}", stopping)


def standings(cluster: Cluster) -> dict[str, Standing]:
    """The standing of each node. Nothing is changed."""
    return {node.name: _standing(node) for node in cluster.nodes}


def given_up(found: Mapping[str, Standing], declared: str) -> list[Given]:
    """The entries that other nodes have and the declared node lacks."""
    own = found[declared].logs
    return [
        Given(log, name, max(0, last[1] - own.get(log, (0, 0))[1]))
        for name, standing in found.items()
        if name != declared
        for log, last in standing.logs.items()
        if last > own.get(log, (0, 0))
    ]


def declare(node: Node) -> None:
    """Make the state of a node's drives the truth, and keep a record in the node's log file. Raises
    :class:`ClusterError` if the log of the node cannot be used."""
    done = _ask(node, "--declare")
    with Path(node.log_file).open("a", encoding="utf-8") as record:
        record.write(done.stderr)
    if done.returncode:
        fix = "declare another node, or mend the file"
        raise ClusterError(f"{node.name} cannot be the truth: {_one_line(done.stderr)}", node.data_dir, fix)


def _standing(node: Node) -> Standing:
    done = _ask(node)
    if done.returncode:
        return Standing({}, error=_one_line(done.stderr))
    answer: dict[str, Any] = json.loads(done.stdout)
    logs = {name: (int(last["term"]), int(last["index"])) for name, last in answer["logs"].items()}
    return Standing(logs, tuple(str(finding["what"]) for finding in answer["findings"]))


def _ask(node: Node, *options: str) -> subprocess.CompletedProcess[str]:
    config = Path(node.data_dir) / "node.json"
    command = [*_COMMAND, "--config", str(config), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_TIMEOUT_S, check=False)


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines()[:2]) or "no answer"
