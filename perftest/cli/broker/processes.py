"""Processes of the nodes: start, rebuild, stop, kill, pause, resume."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.broker.common import command, load, node_argument, say
from perftest.cli.broker.state import print_status
from perftest.cli.sections import option, options
from perftest.cli.target import LAYOUT_PATH
from perftest.exits import CliError, Exit
from perftest.measuring.interrupts import Interrupts
from perftest.measuring.placement import layout_of

if TYPE_CHECKING:
    from infra.local_cluster import Cluster

_FOR_ALL = ("nodes", "port", "wal_dir", "segment_dir", "classic_dir", "logs_dir", "layout")

_NAMES_MAX: Final = 10
_AS_BEFORE = "{}  [default: {}, or as before if --dir holds a cluster]"


_IF_UNKNOWN: Final = "as node.json says"


def _role(name: str, what: str, default: str = "in --dir") -> Callable[[Any], Any]:
    text = f"Directory for {what}; each node gets a subdirectory.  [default: {default}]"
    return option(name, section="Target", type=click.Path(path_type=Path, file_okay=False), help=text)


# fmt: off
_start_options = options(
    option("--nodes", section="Topology", type=click.Choice(["1", "3", "5"]),
           help=_AS_BEFORE.format("Number of nodes.", 3)),
    option("--node", section="Topology", metavar="NODE", help="Start only this node, with its data and on its ports."),
    option("--replace", section="Topology", is_flag=True,
           help="Start the node of --node without data. The other nodes must agree first; then the node's files are "
                "set aside, and removed when it runs. It learns everything from the other nodes."),
    option("--yes", section="Topology", is_flag=True,
           help="With --replace: delete the classic queues whose messages only the node has, without a question."),
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
    exits=(Exit.RUN_ERROR, Exit.INTERRUPTED),
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
    yes: bool,
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

    If the directory already holds a cluster, start continues with its data, its number of nodes and its ports. Ctrl-C
    or SIGTERM stops the nodes that the command has started.
    """
    from infra import local_cluster
    from infra.cluster_file import is_kept

    if yes and not replace:
        raise click.UsageError("--yes answers the question of --replace: leave it out")
    if node is not None:
        _refuse_beside_node(click.get_current_context())
        with _ended_by_signals():
            cluster = _start_one(_with_node_here(directory, node), node, replace=replace, yes=yes)
        print_status(cluster, as_json)
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
        placed = layout_of(layout, count or _nodes_in(directory), has_drives=is_kept(directory)) if layout else None
        with _ended_by_signals():
            cluster = local_cluster.start(
                directory, nodes=count, base_port=port, directories=directories, layout=placed
            )
    except local_cluster.NotAllStartedError as error:
        print_status(error.cluster, as_json)
        raise
    print_status(cluster, as_json)
    if not as_json:
        click.echo(f"\nnext: perftest run --cluster {directory}, perftest broker stop --dir {directory}", err=True)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A signal ends the block's processes, and then the command."""
    try:
        with Interrupts().installed():
            yield
    except KeyboardInterrupt:
        click.echo("the nodes that this command had started are stopped", err=True)
        raise


def _with_node_here(directory: Path, node: str) -> Cluster:
    """The cluster of a directory; one that is described there for several hosts, with the node on this host."""
    from infra.cluster_file import DESCRIPTION_FILE
    from infra.cluster_file import load as load_file
    from infra.description import adopt

    if not (directory / DESCRIPTION_FILE).exists():
        return load(directory)
    return adopt(load_file(directory, DESCRIPTION_FILE), directory, node)


def _start_one(cluster: Cluster, node: str, *, replace: bool, yes: bool) -> Cluster:
    from infra import local_cluster
    from infra.replacement import replace_node

    if not replace:
        return local_cluster.start_node(cluster, node)
    return replace_node(cluster, node, partial(_agree_to_lose, cluster.node(node).name, yes))


def _agree_to_lose(node: str, yes: bool, queues: Sequence[str]) -> None:
    """Say which queues go with a node that is replaced, and ask whether they may. Raises CliError if not."""
    if not queues:
        return
    rest = f" and {len(queues) - _NAMES_MAX} more" if len(queues) > _NAMES_MAX else ""
    shown = ", ".join(map(repr, queues[:_NAMES_MAX])) + rest
    what = f"only {node} has the messages of the classic queues {shown}"
    if yes:
        click.echo(f"{what}; --replace deletes these queues", err=True)
    elif not (sys.stdin.isatty() and click.confirm(f"{what}. Delete these queues?", err=True)):
        fix = "bring the node back with its data, or give the queues up with --yes"
        raise CliError(f"{what}, and --replace would delete them: nothing was done", node, fix)


@command(
    "rebuild",
    "perftest broker rebuild",
    "perftest broker rebuild --dir /mnt/fast/broker --json",
    "perftest broker rebuild --wal-dir /mnt/wal --data-dir /mnt/data",
)
@_role("--wal-dir", "the write-ahead logs", _IF_UNKNOWN)
@_role("--data-dir", "metadata and snapshots", _IF_UNKNOWN)
@_role("--segment-dir", "the segment files", _IF_UNKNOWN)
@_role("--classic-dir", "the messages of classic queues", _IF_UNKNOWN)
@_role("--logs-dir", "the log files with messages for operators", _IF_UNKNOWN)
def rebuild(directory: Path, as_json: bool, **roles: Path | None) -> None:
    """Make a damaged or lost cluster.json anew from the nodes' own files.

    Each node has a node.json in its directory below --dir. Nodes that run are found, and go on. Nothing is changed if
    cluster.json is whole, or if the nodes' files do not belong together.
    """
    from infra.rebuild import rebuild as make_anew

    made = make_anew(directory, {role: str(path.absolute()) for role, path in roles.items() if path is not None})
    for note in made.notes:
        click.echo(f"{note}; its node is taken to have its files where the other nodes have theirs", err=True)
    is_whole = made.source == "cluster.json"
    sentence = "cluster.json is whole: nothing was changed" if is_whole else f"made cluster.json from {made.source}"
    answer = {"cluster": made.cluster.cluster, "directory": made.cluster.directory, "source": made.source}
    say(sentence, {**answer, "notes": made.notes}, as_json)


def _nodes_in(directory: Path) -> int:
    """The number of nodes of the cluster in a directory, or of a new cluster."""
    from infra import local_cluster
    from infra.cluster_file import is_kept

    return len(load(directory).nodes) if is_kept(directory) else local_cluster.NODES


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


COMMANDS = (start, rebuild, stop, kill, pause, resume)
