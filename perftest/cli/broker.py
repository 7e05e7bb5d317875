"""``perftest broker``: a reference cluster on this machine that outlives the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from perftest.cli.exits import Exit
from perftest.cli.sections import SectionedCommand, json_option, option

_DIRECTORY = option(
    "--dir",
    "directory",
    section="Target",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/broker"),
    help="Where the nodes keep their data.",
)


@click.group(context_settings={"help_option_names": ["--help", "-?"]})
def broker() -> None:
    """Start, ask and stop a reference cluster on this machine."""


@broker.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest broker start",
        "perftest broker start --nodes 1 --port 6000",
        "perftest broker start --dir /mnt/fast/broker   data on that drive",
    ),
)
@option("--nodes", section="Topology", type=click.Choice(["1", "3", "5"]), default="3", help="How many nodes.")
@_DIRECTORY
@option(
    "--port",
    section="Target",
    type=click.IntRange(1, 65_000),
    default=5691,
    help="AMQP port of the first node; the others follow. Peer and control ports lie 100 and 200 above.",
)
@json_option
def start(nodes: str, directory: Path, port: int, as_json: bool) -> None:
    """Start a cluster, with the data of an earlier one in the same directory."""
    from infra import local_cluster

    cluster = local_cluster.start(directory, nodes=int(nodes), base_port=port)
    _print(cluster, as_json)
    if not as_json:
        click.echo(f"\nnext: perftest run --cluster {directory}, perftest broker stop --dir {directory}", err=True)


@broker.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest broker status",
        "perftest broker status --json",
        "perftest broker status --dir /mnt/fast/broker",
    ),
)
@_DIRECTORY
@json_option
@click.pass_context
def status(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Show the nodes of a cluster: address, process, role, data. Exit code 1 when one of them is not running."""
    from infra import local_cluster

    rows = _print(local_cluster.load(directory), as_json)
    if any(row["state"] != "running" for row in rows):
        ctx.exit(Exit.RUN_ERROR)


@broker.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest broker stop",
        "perftest broker stop --json",
        "perftest broker stop --dir /mnt/fast/broker",
    ),
)
@_DIRECTORY
@json_option
def stop(directory: Path, as_json: bool) -> None:
    """Stop a cluster; its data stays."""
    from infra import local_cluster

    stopped = local_cluster.stop(local_cluster.load(directory))
    if as_json:
        click.echo(json.dumps({"stopped": stopped}))
    else:
        click.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


def _print(cluster: Any, as_json: bool) -> list[dict[str, Any]]:
    from infra import local_cluster
    from perftest.cli.ui.table import print_table

    rows = local_cluster.status(cluster)
    shown = ("name", "state", "role", "uri", "pid", "data_dir")
    print_table(rows if as_json else [{name: row.get(name, "") for name in shown} for row in rows], as_json=as_json)
    return rows
