"""``python -m infra.host_node ACTION --dir DIR``: the node of a cluster that runs on this host, for commands over SSH.

DIR holds ``description.json`` (:mod:`infra.description`) and ``secret``. A host needs no other packages of the project
for these commands than ``infra``, ``perftest.errors`` and ``reference_broker``. The output is one JSON object:
``name``, ``pid``, ``start_time`` (both identify the process), ``state`` (``running``, ``paused``, ``silent``,
``down``), ``ready``, ``uri``. An error is three lines on standard error; the exit code is then 1, or 2 if a name or the
description is no good.

The actions:

- ``start --node NAME``: adopt the description, start the node unless it runs, and wait until it answers; with
  ``--until-ready`` until it is ready, so until a majority of the cluster runs and has a leader;
- ``status``, ``pause``, ``resume``, ``kill`` (SIGKILL);
- ``stop``: SIGTERM, and SIGKILL after some seconds. Nothing happens if the node does not run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from infra import local_cluster
from infra.cluster import Cluster, ClusterError, Node
from infra.cluster_file import DESCRIPTION_FILE, load
from infra.control import summary_of
from infra.description import adopt
from infra.node_process import is_alive

_ON_PROCESSES: Final[dict[str, Callable[[Cluster, str], object]]] = {
    "kill": local_cluster.kill,
    "pause": local_cluster.pause,
    "resume": local_cluster.resume,
    "stop": lambda cluster, _name: local_cluster.stop(cluster),
    "status": lambda _cluster, _name: None,
}

_TOLD: Final = ("name", "pid", "state", "uri", "problem")


def main(arguments: list[str] | None = None) -> int:
    """0 if the action is done, else the code of the error."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.host_node", description="The node of a cluster on this host."
    )
    parser.add_argument("action", choices=["start", *_ON_PROCESSES])
    parser.add_argument("--dir", type=Path, required=True, help="directory of the cluster on this host")
    parser.add_argument("--node", default="", help="name of the node, for start")
    parser.add_argument("--until-ready", action="store_true", help="start: wait until the cluster has a leader")
    asked = parser.parse_args(arguments)
    try:
        if asked.action == "start":
            told = start(asked.dir, asked.node, until_ready=asked.until_ready)
        else:
            cluster = load(asked.dir)
            _ON_PROCESSES[asked.action](cluster, mine(cluster).name)
            told = status(cluster)
    except ClusterError as error:
        sys.stderr.write(error.lines() + "\n")
        return error.code
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


def start(directory: Path, name: str, *, until_ready: bool = False) -> dict[str, Any]:
    """Start the node, unless it runs, and return its status. Raises :class:`ClusterError`."""
    cluster = adopt(load(directory, DESCRIPTION_FILE), directory, name)
    if not is_alive(cluster.node(name)):
        cluster = local_cluster.start_node(cluster, name, until_ready=until_ready)
    return status(cluster)


def status(cluster: Cluster) -> dict[str, Any]:
    """The known facts about the node of this host. It need not answer."""
    node = mine(cluster)
    said = summary_of(cluster, node)
    told: dict[str, Any] = {key: said[key] for key in _TOLD if key in said}
    return {**told, "start_time": node.start_time, "ready": bool(said.get("ready", False))}


def mine(cluster: Cluster) -> Node:
    """The node of this host. Raises :class:`ClusterError`."""
    for node in cluster.nodes:
        if node.is_here:
            return node
    fix = "start a node with `python -m infra.host_node start --node NAME`"
    raise ClusterError("no node of this cluster belongs to this host", cluster.directory, fix)


if __name__ == "__main__":
    sys.exit(main())
