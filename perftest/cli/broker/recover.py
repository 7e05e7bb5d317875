"""``perftest broker recover``: the last resort of a cluster that lost a majority of its copies."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perftest.cli.broker.common import command, load
from perftest.cli.broker.state import print_status
from perftest.cli.sections import option

if TYPE_CHECKING:
    from infra.last_resort import Standing

_ROWS_MAX: Final = 20


@command(
    "recover",
    "perftest broker recover --from node1                show what is given up, and ask",
    "perftest broker recover --from node1 --yes          do not ask",
    "perftest broker recover --from node1 --yes --json   say as JSON what was given up",
)
@option("--from", "name", section="Target", metavar="NODE", required=True, help="Node whose copy becomes the truth.")
@option("--yes", section="Target", is_flag=True, help="Do not ask.")
def recover(name: str, yes: bool, directory: Path, as_json: bool) -> None:
    """Make one node's copy of all queues the truth, when too few sound copies are left to elect a leader.

    This is the last resort: messages that only other nodes have are given up. The nodes must be stopped. The named node
    starts alone, and the other nodes come back without data and learn everything from it.
    """
    from infra import last_resort, local_cluster
    from infra.cluster import ClusterError
    from infra.replacement import replace_node

    cluster = load(directory)
    node = cluster.node(name)
    last_resort.require_stopped(cluster)
    found = last_resort.standings(cluster)
    _tell(found, node.name)
    question = f"make the copy of {node.name} the truth, and give up everything else?"
    if not yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
        raise ClusterError("nothing was changed", cluster.directory, "answer with yes, or give --yes")
    last_resort.declare(node)
    cluster = local_cluster.start_node(cluster, node.name, until_ready=True)
    for other in cluster.nodes:
        if other.name != node.name:
            cluster = replace_node(cluster, other.name, _tell_of_lost)
    print_status(cluster, as_json)


def _tell(found: Mapping[str, Standing], declared: str) -> None:
    """Say what each node has, and what is given up."""
    from infra.last_resort import given_up

    for name, standing in found.items():
        what = f"cannot be read: {standing.error}" if standing.error else f"has {len(standing.logs)} logs"
        click.echo(f"{name} {what}{''.join(f'; {finding}' for finding in standing.findings)}", err=True)
    given = given_up(found, declared)
    for each in given[:_ROWS_MAX]:
        entries = f"{each.entries} entries" if each.entries else "entries of a later term"
        click.echo(f"given up: {entries} of {each.log}, which {each.node} has and {declared} has not", err=True)
    if len(given) > _ROWS_MAX:
        click.echo(f"given up: entries of {len(given) - _ROWS_MAX} more logs", err=True)
    unread = [name for name, standing in found.items() if standing.error and name != declared]
    if unread:
        click.echo(f"given up: whatever only {', '.join(unread)} had; nobody can tell how much", err=True)
    elif not given:
        click.echo(f"no other node has an entry that {declared} has not", err=True)


def _tell_of_lost(names: Sequence[str]) -> None:
    if names:
        click.echo(f"given up: the classic queues that only one of the other nodes had: {', '.join(names)}", err=True)


COMMANDS = (recover,)
