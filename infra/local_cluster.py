"""A reference cluster on this machine: its node processes are started, asked, broken and stopped from outside.

This module imports nothing of the broker. A node is ``python -m reference_broker.node --config node.json``, and its
control port tells its state (:mod:`infra.control`).

A cluster has one of two lifetimes:

- *kept* (``broker start``): nodes keep running after the command. ``cluster.json`` has their pids with their start
  times, so that a pid is never signalled after the system gave it to another process.
- *temporary* (``run`` and ``sweep`` without a URI): the standard input of each node is a pipe from this process. When
  this process dies, however it dies, the pipe closes and the node exits by itself.

Every node is the leader of its own session. So Ctrl-C in the terminal reaches the command, which ends the step in good
order first, and does not reach the nodes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from infra import fuse_layout, new_directories, readiness
from infra.cleaning import clean
from infra.cluster import (
    PORT_OFFSETS,
    PORT_ROLES,
    Cluster,
    ClusterError,
    Directories,
    Node,
    kept_directories,
    make_secret,
    plan,
)
from infra.cluster_file import NODE_FILES, alone, is_kept, load, rebuild_command, remove, save, update
from infra.control import ask, change, fuse_drives, sample, status, summary, summary_of
from infra.layout import PlacedLayout
from infra.layout import directories as placed
from infra.layout import roots as drives_of
from infra.node_process import (
    STOP_GRACE_S,
    await_marks,
    end,
    end_children,
    found_again,
    is_alive,
    is_paused,
    last_words,
    log_size,
    mark,
    marked,
    send,
    spawn,
    start_time,
    wait,
)
from infra.ports import HOST, free_ports
from infra.register import Register, UndoKind

__all__ = [
    "Cluster", "ClusterError", "Directories", "Node", "NotAllStartedError", "ask", "change", "is_alive", "is_paused",
    "kill", "load", "pause", "resume", "sample", "start", "start_node", "status", "stop", "summary",
    "temporary",
]  # fmt: skip

log = logging.getLogger(__name__)

NODES: Final = 3
BASE_PORT: Final = 5691
"""Not 5672, so that a RabbitMQ on the same machine is neither disturbed nor measured by mistake."""
_TEMPORARY: Final = ".broker-"
_MARKS_S: Final = 1.0
"""Time after which a process that shows no mark is taken for one without a mark."""
_KEPT: Final[list[subprocess.Popen[bytes]]] = []
"""The handles of nodes that keep running after this process; Python reports a dropped handle of a running process."""

_OF_THIS_PROCESS: Final[dict[str, dict[str, subprocess.Popen[bytes]]]] = {}
"""The node processes of each temporary cluster, by directory and node."""


class NotAllStartedError(ClusterError):
    """A node of a cluster with data could not start, while a majority of the nodes runs. ``cluster`` has all nodes."""

    def __init__(self, cause: ClusterError, cluster: Cluster) -> None:
        super().__init__(cause.what, cause.where, cause.fix, cause.code)
        self.cluster = cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launched:
    """The started processes by node name, the sizes of their logs before the start, and the nodes that failed."""

    cluster: Cluster
    logs: dict[str, int]
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    failures: dict[str, ClusterError] = field(default_factory=dict)


def start(
    directory: Path,
    *,
    nodes: int | None = None,
    base_port: int | None = None,
    directories: Directories | None = None,
    layout: PlacedLayout | None = None,
) -> Cluster:
    """Start nodes that keep running after this process, with their data if there is any. Raises :class:`ClusterError`.

    AMQP ports are ``base_port`` and the next ports; peer, control and metrics ports are 100, 200 and 300 higher.
    Arguments that are not given are as before; for a new cluster they are :data:`NODES`, :data:`BASE_PORT` and its own
    directory. If a node of a cluster with data cannot start, the other nodes keep running if they are a majority, and
    :class:`NotAllStartedError` is raised.
    """
    directory = directory.absolute()
    with contextlib.ExitStack() as undo:
        with alone(directory):
            if (before := _before(directory, nodes)) is None:
                clean(directory)  # the drives of a start that was killed
            planned = _planned(directory, before, nodes, base_port, directories, layout, undo)
            _require_free(_sockets(planned.nodes), "or choose other ports with --port")
            if before is None:
                undo.enter_context(new_directories.made(planned.nodes))
                undo.enter_context(_on_failure(lambda: remove(directory)))
                save(planned)  # from now on, every command finds what is started here
            undo.enter_context(_noted(planned))
            launched = _launch(planned, exit_with_stdin=False)
            undo.enter_context(_on_failure(lambda: _end_launched(launched)))
        failures = _await_ready(launched)
        if failures and (before is None or len(failures) > (len(planned.nodes) - 1) // 2):
            raise next(iter(failures.values()))
        cluster = _kept(launched)
    if failures:
        raise NotAllStartedError(next(iter(failures.values())), cluster)
    return cluster


def _planned(
    directory: Path,
    before: Cluster | None,
    nodes: int | None,
    base_port: int | None,
    asked: Directories | None,
    layout: PlacedLayout | None,
    undo: contextlib.ExitStack,
) -> Cluster:
    """The cluster that is to be started. ``undo`` takes the FUSE drives of a new cluster apart again."""
    count = len(before.nodes) if before else nodes or NODES
    identity = before.cluster if before else f"local-{secrets.token_hex(4)}"
    if layout:
        if before is None:
            undo.enter_context(_on_failure(lambda: fuse_layout.give_up(directory)))
        names = [f"node{number}" for number in range(1, count + 1)]
        layout = fuse_layout.keep(layout, directory, names, is_new=before is None)
    wanted = placed(layout, identity) if layout else asked or Directories()
    ports = _ports_from(base_port or BASE_PORT, count) if base_port or before is None else _ports_of(before)
    return plan(directory, identity, ports, kept_directories(before, wanted) if before else wanted, before)


def start_node(cluster: Cluster, name: str, *, until_ready: bool = False) -> Cluster:
    """Start one node again with its data and on its ports. Raises :class:`ClusterError`.

    Returns when the node is ready, or when it answers and no majority of the nodes runs; ``until_ready``: only when the
    node is ready.
    """
    node = _here(cluster, name)
    own, directory = _OF_THIS_PROCESS.get(cluster.directory), Path(cluster.directory)
    with contextlib.ExitStack() as undo:
        with alone(directory):
            cluster = found_again(cluster)
            require_startable(cluster, node.name)
            if not is_kept(directory):
                undo.enter_context(_on_failure(lambda: remove(directory)))
                save(cluster)
            undo.enter_context(_noted(cluster, f":{node.name}"))
            launched = _launch(cluster, exit_with_stdin=own is not None, only=node.name)
            undo.enter_context(_on_failure(lambda: _end_launched(launched)))
            if own is not None:
                _replace_children(own, launched.children)
        if failure := _await_ready(launched, until_ready=until_ready).get(node.name):
            raise failure
        return _kept(launched)  # the sampler of nodes reads the new pid there


def require_startable(cluster: Cluster, name: str) -> None:
    """Raises :class:`ClusterError` if the node runs, or if it cannot have its ports or the cluster's secret."""
    node = _here(cluster, name)
    if is_alive(node):
        raise ClusterError(f"{node.name} already runs", f"pid {node.pid}", "kill or stop it first")
    if not cluster.secret_file.exists() and any(is_alive(other) for other in cluster.nodes):
        stopping = f"`perftest broker stop --dir {cluster.directory}`"
        fix = f"stop the cluster with {stopping}; `perftest broker start` then makes a new secret for all nodes"
        raise ClusterError("the secret that the other nodes know is gone", str(cluster.secret_file), fix)
    if not all(other.is_here for other in cluster.nodes):
        cluster.secret()  # a secret made here would differ from the other hosts'
    _require_free(_sockets([node]), "or stop the cluster and start all of it on other ports with --port")


@contextlib.contextmanager
def temporary(
    parent: Path, *, nodes: int = 3, layout: PlacedLayout | None = None, limits: Mapping[str, int] | None = None
) -> Iterator[Cluster]:
    """A cluster on free ports with its data below ``parent``, until the end of the ``with`` block or of this process.
    With a layout, its roles lie below the drives of the layout, in a directory of the cluster's own on each drive.
    ``limits`` are limits of the nodes, by their names in ``node.json``.

    The data lies beside the results and not in the system's temporary directory, which is often memory: an fsync there
    costs nothing, so the measured latency would not be that of a disk.
    """
    clean(parent)
    names = [f"node{number}" for number in range(1, nodes + 1)]
    with contextlib.ExitStack() as drives:
        on = drives.enter_context(fuse_layout.made(layout, parent, names)) if layout else None
        yield from _temporary(parent, nodes, on, limits)


def _temporary(
    parent: Path, nodes: int, layout: PlacedLayout | None, limits: Mapping[str, int] | None
) -> Iterator[Cluster]:
    directory = parent.absolute() / f"{_TEMPORARY}{secrets.token_hex(4)}"
    directories = placed(layout, directory.name) if layout else Directories()
    planned = replace(
        plan(directory, f"local-{secrets.token_hex(4)}", _ports_for(nodes), directories), limits=dict(limits or {})
    )
    roots = drives_of(layout, [node.name for node in planned.nodes]) if layout else []
    with _until_removed(planned, [root / directory.name for root in roots]):
        launched = _launch(planned, exit_with_stdin=True)
        _OF_THIS_PROCESS[planned.directory] = launched.children
        try:
            for failure in _await_ready(launched).values():
                raise failure
            yield launched.cluster
        finally:
            end_children(list(_OF_THIS_PROCESS.pop(planned.directory).values()))


def kill(cluster: Cluster, name: str) -> Node:
    """Kill the process of a node with SIGKILL, and return the node."""
    node = _running(cluster, name)
    send(node, signal.SIGKILL)
    if not wait(lambda: not is_alive(node), STOP_GRACE_S):
        raise ClusterError(f"{node.name} is still there after SIGKILL", f"pid {node.pid}", "its drive may hang")
    _forget_ended()
    return node


def await_end(cluster: Cluster, name: str) -> None:
    """Wait until a node has stopped by itself. Raises :class:`ClusterError` if the node goes on."""
    node = cluster.node(name)
    if not wait(lambda: not is_alive(node), STOP_GRACE_S):
        raise ClusterError(f"{node.name} goes on", f"pid {node.pid}", "let the load write to the drive meanwhile")
    _forget_ended()


def pause(cluster: Cluster, name: str) -> Node:
    """Pause the process of a node with SIGSTOP, and return the node. Its connections stay open and it is silent."""
    node = _running(cluster, name)
    send(node, signal.SIGSTOP)
    if not wait(lambda: is_paused(node), STOP_GRACE_S):
        raise ClusterError(f"{node.name} does not stop", f"pid {node.pid}", "its drive may hang")
    return node


def resume(cluster: Cluster, name: str) -> Node:
    """Let a paused node continue (SIGCONT), and return the node."""
    node = _running(cluster, name)
    send(node, signal.SIGCONT)
    return node


def stop(cluster: Cluster, grace_s: float = STOP_GRACE_S) -> list[str]:
    """End every node that still runs, paused or not, with SIGTERM and after ``grace_s`` with SIGKILL.

    Returns the names of the nodes that ran.
    """
    alive = [node for node in cluster.nodes if is_alive(node)]
    end(alive, grace_s)
    _forget_ended()
    _forget_entries(cluster)
    return [node.name for node in alive]


def _here(cluster: Cluster, name: str) -> Node:
    """The node of that name, if it belongs to this host. Raises :class:`ClusterError`."""
    node = cluster.node(name)
    if not node.is_here:
        raise ClusterError(f"{node.name} runs on another host", f"{node.name}, {node.host}", "give the command there")
    return node


def _running(cluster: Cluster, name: str) -> Node:
    node = _here(cluster, name)
    if not is_alive(node):
        fix = f"start it with `perftest broker start --node {node.name} --dir {cluster.directory}`"
        raise ClusterError(f"{node.name} is not running", cluster.directory, fix)
    return node


@contextlib.contextmanager
def _on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` if the ``with`` block fails or is interrupted."""
    try:
        yield
    except BaseException:
        undo()
        raise


@contextlib.contextmanager
def _noted(cluster: Cluster, part: str = "") -> Iterator[None]:
    """Until ``cluster.json`` has the pids of the processes that are started, an entry of the register finds them.

    Raises :class:`ClusterError`.
    """
    _note(Register(Path(cluster.directory)), UndoKind.PROCESSES, mark(cluster) + part)
    try:
        yield
    finally:
        _forget_entries(cluster)


def _end_launched(launched: _Launched) -> None:
    """End the processes that were launched, and no others."""
    end([node for node in launched.cluster.nodes if node.name in launched.children], STOP_GRACE_S)
    if launched.cluster.directory not in _OF_THIS_PROCESS:
        _KEPT.extend(launched.children.values())
        _forget_ended()


@contextlib.contextmanager
def _until_removed(planned: Cluster, on_drives: Sequence[Path]) -> Iterator[None]:
    """Entries of the register find the processes and the directories of a temporary cluster until all are gone.

    Raises :class:`ClusterError`.
    """
    directory = Path(planned.directory)
    register = Register(directory.parent)
    places = [directory, *on_drives]
    for place in places:
        _note(register, UndoKind.DIRECTORY, str(place))
    _note(register, UndoKind.PROCESSES, mark(planned))
    try:
        yield
    finally:
        register.settle(UndoKind.PROCESSES, mark(planned), is_gone=not any(marked(mark(planned))))
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
            register.settle(UndoKind.DIRECTORY, str(place), is_gone=not place.exists())


def _note(register: Register, kind: UndoKind, name: str) -> None:
    try:
        register.note(kind, name)
    except OSError as error:
        what = f"it cannot be written down what a crash would leave: {error.strerror}"
        fix = "choose a directory that can be written, or free some space"
        raise ClusterError(what, str(error.filename or register.root), fix) from error


def _before(directory: Path, nodes: int | None) -> Cluster | None:
    """The cluster whose data lies in the directory; None if there is no data. Raises :class:`ClusterError` if the
    cluster cannot be started with this number of nodes."""
    if not is_kept(directory):
        if names := [path.parent.name for path in sorted(directory.glob(NODE_FILES)) if _was_used(path)]:
            what = f"{', '.join(names)} of a cluster lie here, and cluster.json is missing"
            raise ClusterError(what, str(directory), rebuild_command(directory))
        return None
    before = load(directory)
    if not all(node.is_here for node in before.nodes):
        fix = "start the node of this host with --node"
        raise ClusterError("the nodes of this cluster run on several hosts", str(directory), fix)
    if running := [f"{node.name} (pid {node.pid})" for node in before.nodes if is_alive(node)]:
        stopping = f"stop it with `perftest broker stop --dir {directory}`"
        fix = f"{stopping}, bring one node back with --node, or choose another --dir"
        raise ClusterError(f"a cluster already runs here: {', '.join(running)}", str(directory), fix)
    if nodes not in (None, len(before.nodes)):
        what = f"the data here is that of {len(before.nodes)} nodes, not {nodes}"
        raise ClusterError(what, str(directory), f"use --nodes {len(before.nodes)}, or another --dir")
    return before


def _was_used(node_file: Path) -> bool:
    """Whether a node was started with this ``node.json``. People may set limits there before the first start."""
    try:
        return "cluster" in json.loads(node_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return True


def _launch(planned: Cluster, *, exit_with_stdin: bool, only: str | None = None) -> _Launched:
    """Start the processes of all nodes, or of one node. If a node's files cannot be written, only that node fails.

    Raises :class:`ClusterError` if the secret is missing and cannot be made. If something else goes wrong or the
    command is interrupted, what was started ends: none of these nodes ran before.
    """
    chosen = [node for node in planned.nodes if only in (None, node.name)]
    files = [str(path) for node in chosen for path in node.paths().values() if path]
    fuse_layout.require(Path(planned.directory), files)
    make_secret(planned)
    launched = _Launched(cluster=planned, logs={node.name: log_size(node) for node in chosen})
    try:
        for node in chosen:
            _launch_node(launched, node, exit_with_stdin=exit_with_stdin)
        return replace(launched, cluster=_with_processes(planned, launched.children))
    except BaseException:
        names = {node.name for node in chosen}
        await_marks(_MARKS_S)  # the newest process may have no mark yet
        end([node for node in found_again(planned).nodes if node.name in names], STOP_GRACE_S)
        raise


def _with_processes(planned: Cluster, children: Mapping[str, subprocess.Popen[bytes]]) -> Cluster:
    def started(node: Node) -> Node:
        child = children.get(node.name)
        return replace(node, pid=child.pid, start_time=start_time(child.pid) or 0) if child else node

    return replace(planned, nodes=tuple(started(node) for node in planned.nodes))


def _launch_node(launched: _Launched, node: Node, *, exit_with_stdin: bool) -> None:
    try:
        fuse_drives(launched.cluster).reset(node.name)
        launched.children[node.name] = spawn(launched.cluster, node, exit_with_stdin=exit_with_stdin)
    except OSError as error:
        what = f"{node.name} cannot be started: {error.strerror or error}"
        where, fix = str(error.filename or node.data_dir), "choose a directory that can be written"
        if error.errno == errno.EROFS:
            fix = "check its drive (dmesg), unmount the file system, mount it again, and start the node again"
        launched.failures[node.name] = ClusterError(what, where, fix)
    except ClusterError as error:
        launched.failures[node.name] = error


def _await_ready(launched: _Launched, *, until_ready: bool = False) -> dict[str, ClusterError]:
    """Wait until every started node is ready or has ended, and return the failures. Raises :class:`ClusterError` if the
    nodes make no progress."""
    cluster, failures = launched.cluster, dict(launched.failures)

    def too_many_failed() -> bool:
        for node in cluster.nodes:
            child = launched.children.get(node.name)
            if node.name not in failures and child is not None and child.poll() is not None:
                failures[node.name] = last_words(cluster, node, launched.logs[node.name])
        return len(failures) > (len(cluster.nodes) - 1) // 2

    def awaited() -> list[Node]:
        return [node for node in cluster.nodes if node.name in launched.children and node.name not in failures]

    def look(node: Node) -> readiness.NodeLook:
        """Look at a node. Without a majority there can be no leader, so the node only needs to answer."""
        found = readiness.look(cluster, node)
        if found.answers and not found.is_ready and not until_ready and 2 * _awake(cluster) <= len(cluster.nodes):
            return replace(found, is_ready=True, electing=0)
        return found

    if waits := readiness.Wait(awaited, look=look).until_ready(too_many_failed):
        waits = readiness.with_forgetful(waits, cluster)
        what = f"no cluster: for {readiness.PATIENCE_S:g} s no node made progress: {waits}"
        raise ClusterError(what, cluster.directory, readiness.advice(waits, cluster.directory))
    return failures


def _awake(cluster: Cluster) -> int:
    """Number of nodes that run. Nodes on other hosts are asked."""
    return sum(
        is_alive(node) and not is_paused(node) if node.is_here else summary_of(cluster, node)["state"] == "running"
        for node in cluster.nodes
    )


def _kept(launched: _Launched) -> Cluster:
    """Write down the processes that run now, and let them run."""
    if launched.cluster.directory not in _OF_THIS_PROCESS:
        _KEPT.extend(launched.children.values())
        _forget_ended()
    try:
        with alone(Path(launched.cluster.directory)):
            return update(launched.cluster, launched.children.keys() - launched.failures.keys())
    except ClusterError as error:  # the node may be what makes room on a full drive
        log.warning("warning: %s (%s); commands find the nodes that run all the same", error.what, error.where)
        return launched.cluster


def _forget_entries(cluster: Cluster) -> None:
    """No processes of the cluster run that ``cluster.json`` does not name."""
    register = Register(Path(cluster.directory))
    for part in ("", *(f":{node.name}" for node in cluster.nodes)):
        register.forget(UndoKind.PROCESSES, mark(cluster) + part)


def _replace_children(own: dict[str, subprocess.Popen[bytes]], fresh: dict[str, subprocess.Popen[bytes]]) -> None:
    """Take over the processes of nodes that were started again, and drop the processes that they replace."""
    end_children([own.pop(name) for name in fresh if name in own])
    own.update(fresh)


def _forget_ended() -> None:
    """Drop the handles of ended processes, so that they leave no zombies."""
    _KEPT[:] = [child for child in _KEPT if child.poll() is None]


def _sockets(nodes: Sequence[Node]) -> list[tuple[str, int]]:
    """The addresses and ports that nodes listen on."""
    return [(node.bound(role), getattr(node, role)) for node in nodes for role in PORT_ROLES if getattr(node, role)]


def _require_free(sockets: Sequence[tuple[str, int]], or_else: str) -> None:
    """Raises :class:`ClusterError` with all ports that are in use."""
    used = []
    for host, port in sockets:
        try:
            family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except (OSError, OverflowError) as error:
            if not (isinstance(error, OSError) and error.errno == errno.EADDRINUSE):
                fix = (
                    "choose other ports with --port" if host == HOST else "correct the address, or choose another port"
                )
                raise ClusterError(f"port {port} cannot be used: {error}", f"{host}:{port}", fix) from error
            used.append((host, str(port)))
    if used:
        ports = ", ".join(port for _, port in used)
        what = f"port {ports} is in use" if len(used) == 1 else f"ports {ports} are in use"
        raise ClusterError(what, ":".join(used[0]), f"stop what listens there, {or_else}")


def _ports_from(base_port: int, nodes: int) -> list[list[int]]:
    return [[base_port + offset + number for offset in PORT_OFFSETS] for number in range(nodes)]


def _ports_of(cluster: Cluster) -> list[list[int]]:
    return [[getattr(node, role) for role in PORT_ROLES] for node in cluster.nodes]


def _ports_for(nodes: int) -> list[list[int]]:
    roles, ports = len(PORT_ROLES), free_ports(nodes * len(PORT_ROLES))
    return [ports[number * roles : (number + 1) * roles] for number in range(nodes)]
