"""State of a cluster: status, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.broker.common import command, load, node_argument, side_by_side
from perftest.cli.ui.table import print_table
from perftest.exits import CliError, Exit

if TYPE_CHECKING:
    from infra.local_cluster import Cluster, Node

_SHOWN = {"name": "name", "state": "state", "role": "role", "uri": "uri", "pid": "pid", "metrics_port": "metrics"}


def print_status(cluster: Cluster, as_json: bool) -> list[dict[str, Any]]:
    """Print the nodes as a table of 80 columns, or their whole status as JSON; return the rows. Losses and damage that
    their starts found go to stderr."""
    from infra import local_cluster

    rows = local_cluster.status(cluster) if as_json else local_cluster.summary(cluster)
    if as_json:
        print_table(rows, as_json=True)
    else:
        print_table([{title: row.get(name, "") for name, title in _SHOWN.items()} for row in rows], as_json=False)
        click.echo(f"data in {cluster.directory}")
        for row in rows:
            if problem := row.get("problem"):
                click.echo(problem, err=True)
    for row in rows:
        for finding in row.get("findings", ()):
            click.echo(_warning(row["name"], finding), err=True)
    return rows


def _warning(node: str, finding: Mapping[str, Any]) -> str:
    """A finding of a node's start, as errors are printed."""
    of = f"queue {finding['queue']}: " if finding["queue"] else ""
    lines = [f"warning: {node} found damage at its start: {of}{finding['what']}"]
    lines += [f"  at   {finding['where']}"] if finding["where"] else []
    return "\n".join([*lines, f"  fix  {finding['fix']}"])


@command("status")
@click.pass_context
def status(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Show the nodes of a cluster with their state, role, address and process.

    A node has the role leader if it leads at least one queue. The exit code is 1 if a node is not running.
    """
    rows = print_status(load(directory), as_json)
    if any(row["state"] != "running" for row in rows):
        ctx.exit(Exit.RUN_ERROR)


@command(
    "metrics",
    "perftest broker metrics",
    "perftest broker metrics node2",
    "perftest broker metrics --json > metrics.json",
)
@node_argument(required=False)
def metrics(node: str | None, directory: Path, as_json: bool) -> None:
    """Show the counters and gauges of all running nodes, or of NODE.

    Prometheus reads the same metrics from the metrics port of each node.
    """
    from infra import local_cluster

    cluster = load(directory)
    asked = (
        [cluster.node(node)]
        if node is not None
        else [n for n in cluster.nodes if not n.is_here or local_cluster.is_alive(n)]
    )
    if not asked:
        raise CliError(
            "no node of this cluster runs", str(directory), f"start it with `perftest broker start --dir {directory}`"
        )
    answers = {item.name: _metrics(cluster, item) for item in asked}
    if as_json:
        print_table([{"node": name, "metrics": families} for name, families in answers.items()], as_json=True)
    else:
        print_table(side_by_side({name: _flat(families) for name, families in answers.items()}), as_json=False)


def _flat(families: list[dict[str, Any]]) -> dict[str, Any]:
    """The samples of all families, keyed by name and labels as Prometheus writes them."""
    found = {}
    shown = (family for family in families if family["type"] != "info")  # labels alone, too wide for a terminal
    for sample in (sample for family in shown for sample in family["samples"]):
        labels = ",".join(f'{name}="{value}"' for name, value in sample["labels"].items())
        value = sample["value"]
        found[f"{sample['name']}{{{labels}}}" if labels else sample["name"]] = int(value) if value % 1 == 0 else value
    return found


def _metrics(cluster: Cluster, node: Node) -> list[dict[str, Any]]:
    from infra import local_cluster

    try:
        answer = local_cluster.ask(cluster, node, {"op": "metrics"})
    except (OSError, ValueError) as error:
        where = f"{node.name}, control port {node.control_port}"
        raise CliError(f"{node.name} does not answer: {error}", where, "see `perftest broker status`") from error
    if "error" in answer:
        raise CliError(answer["error"], node.name, str(answer.get("fix") or "see the node's log"))
    return list(answer["metrics"])


COMMANDS = (status, metrics)
