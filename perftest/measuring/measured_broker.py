"""The broker that a run measures: a remote broker, a local cluster that keeps running, or a cluster for this run."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from infra import cleaning, control, local_cluster
from infra.remote.round_trips import shown
from perftest.amqp.uri import parse_uri
from perftest.errors import HelpfulError, three_lines
from perftest.exits import CliError, explained
from perftest.results.provenance import redact
from perftest.spec.cluster import requests_for
from perftest.spec.plan import Plan, QueueType
from perftest.tell import tell

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from infra.local_cluster import Cluster

Started = TypeVar("Started")


def undo_leftovers(out: Path) -> None:
    """Undo what killed commands have left below a results directory, and say on stderr what cannot be undone."""
    for each in cleaning.clean(out):
        if each.outcome is cleaning.CleanupOutcome.FAILED:
            what = f"what an earlier run left could not be removed: {each.kind} {each.name}: {each.text}"
            tell(three_lines(what, str(out), each.fix))


@contextlib.contextmanager
def taken_apart(broker: contextlib.AbstractContextManager[Started], out: Path) -> Iterator[Started]:
    """A broker that is started for this block and taken apart after the block. What cannot be taken apart is said on
    stderr, and is no error: it must cost nothing that was measured. The register of ``out`` has it."""
    made = broker.__enter__()
    failure: BaseException | None = None
    try:
        yield made
    except BaseException as error:
        failure = error
    try:
        broker.__exit__(type(failure) if failure else None, failure, failure.__traceback__ if failure else None)
    except (HelpfulError, OSError) as error:
        if error is not failure:
            what, fix = getattr(error, "what", None) or str(error), getattr(error, "fix", "see what uses it")
            what = f"not everything that was started for the run could be taken apart: {what}"
            fix = f"{fix}; then `perftest broker clean {out}`, or the next run into {out}, removes what is left"
            tell(three_lines(what, getattr(error, "where", str(out)), fix))
    if failure is not None:
        raise failure


@contextlib.contextmanager
def target(plan: Plan, kept: Path | None, out: Path, layout: PlacedLayout | None = None) -> Iterator[Cluster | None]:
    """The local cluster to measure: None for a plan with URIs, the cluster in the directory ``kept``, or a temporary
    cluster in ``out`` as ``plan.cluster`` says, with the files of its nodes where ``layout`` says. Raises CliError."""
    if plan.uris:
        yield None
    elif kept is not None:
        yield _kept(kept)
    else:
        nodes, limits = plan.cluster.nodes, plan.cluster.settings
        count = f"{nodes} reference node{'s' * (nodes > 1)}"
        tell(f"no broker was named (-h): starting {count} on this machine")
        if layout is not None:
            tell(f"layout {layout.text}")
        if limits:
            tell(f"limits {', '.join(f'{name} {value}' for name, value in limits.items())}")
        make_directory(out)
        undo_leftovers(out)
        began = time.monotonic()
        with taken_apart(local_cluster.temporary(out, nodes=nodes, layout=layout, limits=limits), out) as cluster:
            set_policies(cluster, plan)
            tell(f"cluster ready after {time.monotonic() - began:.1f} s; it is stopped after the run")
            yield cluster


def set_policies(cluster: Cluster, plan: Plan) -> None:
    """Set the policies that the workload asks for. Raises ClusterError if a node refuses one."""
    for request in requests_for(plan.cluster.policies):
        control.change(cluster, request)
        tell(f"policy {request['pattern']}: {json.dumps(request['definition'])}")


def _kept(directory: Path) -> Cluster:
    """The cluster of a directory. Raises CliError if no node is alive, ClusterError if there is no cluster."""
    cluster = local_cluster.load(directory)
    if not any(local_cluster.is_alive(node) or not node.is_here for node in cluster.nodes):
        fix = f"start it again with `perftest broker start --dir {directory}`"
        raise CliError("this cluster is not running", str(directory), fix)
    return cluster


def on_bundled(plan: Plan, cluster: Cluster) -> Plan:
    """The plan with the URIs of the bundled cluster."""
    return plan.changed(uris=cluster.uris)


def node_addresses(plan: Plan, cluster: Cluster | None) -> dict[str, tuple[str, int]]:
    """The address and the port of each node for clients, by its name; a node at a URI is named by both."""
    if cluster is not None:
        return {node.name: _place(node.uri) for node in cluster.nodes}
    return {shown(*place): place for place in map(_place, plan.uris)}


def _place(uri: str) -> tuple[str, int]:
    parsed = parse_uri(uri)
    return parsed.host, parsed.port


def broker_facts(plan: Plan, cluster: Cluster | None) -> dict[str, Any]:
    """Facts about the broker for the manifest, known before a connection is opened."""
    if cluster is None:
        return {"durability": _durability_in_words(plan)}
    nodes = local_cluster.summary(cluster)
    shown = ("name", "pid", "uri", "role", "data_dir", "wal_dir")
    described = [{("amqp_uri" if name == "uri" else name): node.get(name) for name in shown} for node in nodes]
    for each in described:
        if not cluster.node(str(each["name"])).is_here:  # a node on another host has the name of this host
            each["host"] = each["name"]
    durability = next((node["durability"] for node in nodes if node.get("durability")), "")
    if any(queue.type is QueueType.CLASSIC for queue in plan.queues):
        durability = f"{_classic_in_words(plan)}; {_syncs_of_classic(cluster)}"
    placed: dict[str, Any] = {"layout": cluster.directories.layout} if cluster.directories.layout else {}
    placed |= {"limits": cluster.limits} if cluster.limits else {}
    return {"cluster": "local", "nodes": described, "durability": durability, **placed}


def _syncs_of_classic(cluster: Cluster) -> str:
    if any("classic" in drive["roles"] for drive in cluster.directories.drives):
        return "their drive is modelled, so its syncs last as long as on that drive, and sync nothing"
    return "persistent messages are synced there before each confirm"


def _durability_in_words(plan: Plan) -> str:
    """The durability of a remote broker, as far as a client knows it: by queue type and delivery mode."""
    if all(queue.type.is_replicated for queue in plan.queues):
        kinds = " and ".join(dict.fromkeys(queue.type for queue in plan.queues))
        written = "confirmed when a majority of its members has written it, synced as the broker is configured"
        return f"{kinds} queue: {written}"
    return f"{_classic_in_words(plan)}; synced as the broker is configured"


def _classic_in_words(plan: Plan) -> str:
    persistent = all(step.settings.persistent for step in plan.steps)
    mode = "persistent messages" if persistent else "transient messages, which a restart loses"
    return f"classic queue, {mode}"


def target_name(plan: Plan, cluster: Cluster | None) -> str:
    """The name of the measured broker, in a few words."""
    if cluster is not None:
        return f"{len(cluster.nodes)} local nodes"
    hosts = [redact(uri).rsplit("@", 1)[-1].removeprefix("amqp://").split("/")[0] for uri in plan.uris]
    return ", ".join(hosts)


def make_directory(path: Path) -> None:
    """Make a directory for results. Raises CliError."""
    with explained("the results directory cannot be made", path, "choose another directory with --out"):
        path.mkdir(parents=True, exist_ok=True)
