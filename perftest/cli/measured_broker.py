"""What a run measures: a broker somewhere, a cluster that is kept, or one that is started for the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from infra import local_cluster
from perftest.cli.exits import CliError
from perftest.results.provenance import redact
from perftest.spec.plan import Plan, QueueType

if TYPE_CHECKING:
    from infra.local_cluster import Cluster

LOCAL_NODES: Final = 3


@contextlib.contextmanager
def target(plan: Plan, kept: Path | None, out: Path) -> Iterator[Cluster | None]:
    """The cluster to measure: none of ours, one that is kept in a directory, or one for this run only, in ``out``.
    Raises CliError."""
    if plan.uris:
        yield None
    elif kept is not None:
        yield _kept(kept)
    else:
        _progress(f"no broker was named (-h): starting {LOCAL_NODES} reference nodes on this machine, quorum queues")
        _mkdir(out)
        began = time.monotonic()
        with local_cluster.temporary(out, nodes=LOCAL_NODES) as cluster:
            _progress(f"cluster ready after {time.monotonic() - began:.1f} s; it is stopped after the run")
            yield cluster


def _kept(directory: Path) -> Cluster:
    """The cluster of a directory. Raises CliError when none of its nodes is alive, ClusterError when there is none."""
    cluster = local_cluster.load(directory)
    if not any(local_cluster.is_alive(node) for node in cluster.nodes):
        fix = f"start it again with `perftest broker start --dir {directory}`"
        raise CliError("this cluster is not running", str(directory), fix)
    return cluster


def on_bundled(plan: Plan, cluster: Cluster) -> Plan:
    """The plan with the cluster's URIs, and quorum queues whatever a workload or a flag left open: those are what the
    reference cluster is there to measure."""
    queues = tuple(replace(queue, type=QueueType.QUORUM, durable=True) for queue in plan.queues)
    return replace(plan, uris=cluster.uris, queues=queues)


def broker_facts(plan: Plan, cluster: Cluster | None) -> dict[str, Any]:
    """What the manifest says of the broker before a connection was opened."""
    if cluster is None:
        return {"durability": _durability_in_words(plan)}
    nodes = local_cluster.summary(cluster)
    shown = ("name", "pid", "uri", "role", "data_dir", "wal_dir")
    described = [{("amqp_uri" if name == "uri" else name): node.get(name) for name in shown} for node in nodes]
    durability = next((node["durability"] for node in nodes if node.get("durability")), "")
    return {"cluster": "local", "nodes": described, "durability": durability}


def _durability_in_words(plan: Plan) -> str:
    """What a client can know of any other broker: the queue type and the delivery mode."""
    if all(queue.type is QueueType.QUORUM for queue in plan.queues):
        return (
            "quorum queue: confirmed when a majority of its members has written it, synced as the broker is configured"
        )
    persistent = all(step.settings.persistent for step in plan.steps)
    mode = "persistent messages" if persistent else "transient messages, which a restart loses"
    return f"classic queue, {mode}; synced as the broker is configured"


def target_name(plan: Plan, cluster: Cluster | None) -> str:
    """What is measured, in a few words."""
    if cluster is not None:
        return f"{len(cluster.nodes)} local nodes"
    hosts = [redact(uri).rsplit("@", 1)[-1].removeprefix("amqp://").split("/")[0] for uri in plan.uris]
    return ", ".join(hosts)


def _mkdir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the results directory cannot be made: {error.strerror}"
        raise CliError(what, str(path), "choose another with --out") from error


def _progress(text: str) -> None:
    click.echo(text, err=True)
