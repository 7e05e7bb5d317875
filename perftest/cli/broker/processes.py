"""Processes of the nodes: start, stop, kill, pause, resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.broker.common import command, load, node_argument, say
from perftest.cli.broker.state import print_status
from perftest.cli.layouts import LAYOUT_PATH, layout_of
from perftest.cli.sections import option, options

if TYPE_CHECKING:
    from infra.local_cluster import Cluster

_FOR_ALL = ("nodes", "port", "wal_dir", "segment_dir", "classic_dir", "logs_dir", "layout")

_NAMES_MAX: Final = 10
_AS_BEFORE = "{}  [default: {}, or as before if --dir holds a cluster]"


def _role(name: str, what: str) -> Callable[[Any], Any]:
    text = f"Directory for {what}; each node gets a subdirectory.  [default: in --dir]"
    return option(name, section="Target", type=click.Path(path_type=Path, file_okay=False), help=text)


# fmt: off
_start_options = options(
    option("--nodes", section="Topology", type=click.Choice(["1", "3", "5"]),
           help=_AS_BEFORE.format("Number of nodes.", 3)),
    option("--node", section="Topology", metavar="NODE", help="Start only this node, with its data and on its ports."),
    option("--replace", section="Topology", is_flag=True,
           help="Start the node of --node without data. The other nodes must agree first; then its files are "
                "removed, and it learns everything from them."),
    option("--port", section="Target", type=click.IntRange(1, 65_000),
           help=_AS_BEFORE.format(
        "AMQP port of the first node; the other nodes use the next ports. Peer, control and metrics ports are 100, 200 "
        "and 300 higher.",
        5691,
    )),
)
# fmt: on


@command(
    "start",
    "perftest broker start --nodes 5 --port 6000 --layout drives.yaml",
    "perftest broker start --node node2                  start a node again that was killed",
    "perftest broker start --node node2 --replace        replace a node that lost its directories",
)
@_start_options
@option(
    "--layout",
    section="Target",
    type=LAYOUT_PATH,
    default=None,
    help="Layout file: which drives hold which files of the nodes.  [default: as before if --dir holds a cluster]",
)
@_role("--wal-dir", "the write-ahead logs")
@_role("--segment-dir", "the segment files")
@_role("--classic-dir", "the messages of classic queues")
@_role("--logs-dir", "the log files with messages for operators")
def start(
    nodes: str | None,
    node: str | None,
    replace: bool,
    directory: Path,
    port: int | None,
    wal_dir: Path | None,
    segment_dir: Path | None,
    classic_dir: Path | None,
    logs_dir: Path | None,
    layout: Path | None,
    as_json: bool,
) -> None:
    """Start a cluster, and wait until it serves clients.

    If the directory already holds a cluster, start continues with its data, its number of nodes and its ports.
    """
    from infra import local_cluster

    if node is not None:
        _refuse_beside_node(click.get_current_context())
        cluster = _with_node_here(directory, node)
        begin = partial(local_cluster.replace_node, on_lost=_tell_of_lost) if replace else local_cluster.start_node
        print_status(begin(cluster, node), as_json)
        return
    if replace:
        raise click.UsageError("--replace is for one node: name it with --node")
    roles = {"wal_dir": wal_dir, "segment_dir": segment_dir, "classic_dir": classic_dir, "logs_dir": logs_dir}
    placed_roles: dict[str, Any] = {role: str(path.absolute()) for role, path in roles.items() if path is not None}
    if layout is not None and placed_roles:
        alone = ", ".join(f"--{role.replace('_', '-')}" for role in roles)
        raise click.UsageError(f"--layout places all files: leave out {alone}")
    directories = local_cluster.Directories(**placed_roles)
    try:
        count = int(nodes) if nodes is not None else None
        placed = layout_of(layout, count or _nodes_in(directory), has_drives=_is_cluster(directory)) if layout else None
        cluster = local_cluster.start(directory, nodes=count, base_port=port, directories=directories, layout=placed)
    except local_cluster.NotAllStartedError as error:
        print_status(error.cluster, as_json)
        raise
    print_status(cluster, as_json)
    if not as_json:
        click.echo(f"\nnext: perftest run --cluster {directory}, perftest broker stop --dir {directory}", err=True)


def _with_node_here(directory: Path, node: str) -> Cluster:
    """The cluster of a directory; one that is described there for several hosts, with the node on this host."""
    from infra.cluster import DESCRIPTION_FILE
    from infra.cluster import load as load_file
    from infra.description import adopt

    if not (directory / DESCRIPTION_FILE).exists():
        return load(directory)
    return adopt(load_file(directory, DESCRIPTION_FILE), directory, node)


def _tell_of_lost(names: Sequence[str]) -> None:
    """Say which queues went with the node that is replaced."""
    rest = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    shown = ", ".join(map(repr, names[:_NAMES_MAX]))
    click.echo(f"deleted, because nobody else had their messages: the classic queues {shown}{rest}", err=True)


def _nodes_in(directory: Path) -> int:
    """The number of nodes of the cluster in a directory, or of a new cluster."""
    from infra import local_cluster

    return len(load(directory).nodes) if _is_cluster(directory) else local_cluster.NODES


def _is_cluster(directory: Path) -> bool:
    """Whether a cluster was started in a directory before."""
    from infra.cluster import STATE_FILE

    return (directory / STATE_FILE).exists()


def _refuse_beside_node(ctx: click.Context) -> None:
    for name in _FOR_ALL:
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            option_name = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option_name} is for a whole cluster; --node starts one node as it was", ctx)


@command("stop")
def stop(directory: Path, as_json: bool) -> None:
    """Stop all nodes of a cluster, also paused nodes. The data stays."""
    from infra import local_cluster

    stopped = local_cluster.stop(load(directory))
    say(f"stopped {', '.join(stopped)}" if stopped else "nothing was running", {"stopped": stopped}, as_json)


@command("kill", arguments=("node1", "2"))
@node_argument()
def kill(node: str, directory: Path, as_json: bool) -> None:
    """Kill a node with SIGKILL, so that it can neither write nor send anything. The data stays."""
    _do("kill", "killed", node, load(directory), as_json)


@command("pause", arguments=("node1", "2"))
@node_argument()
def pause(node: str, directory: Path, as_json: bool) -> None:
    """Pause a node with SIGSTOP. The node keeps its connections and says nothing, like a machine that hangs."""
    _do("pause", "paused", node, load(directory), as_json)


@command("resume", arguments=("node1", "2"))
@node_argument()
def resume(node: str, directory: Path, as_json: bool) -> None:
    """Let a paused node continue (SIGCONT)."""
    _do("resume", "resumed", node, load(directory), as_json)


def _do(verb: str, done: str, name: str, cluster: Cluster, as_json: bool) -> None:
    from infra import local_cluster

    act = {"kill": local_cluster.kill, "pause": local_cluster.pause, "resume": local_cluster.resume}[verb]
    node = act(cluster, name)
    say(f"{done} {node.name}, process {node.pid}", {done: node.name, "pid": node.pid}, as_json)


COMMANDS = (start, stop, kill, pause, resume)
