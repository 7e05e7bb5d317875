"""A reference cluster on this machine: node processes that are started, asked, and stopped as commands.

Nothing of the broker is imported: a node is ``python -m reference_broker.node --config node.json``, and what it says of
itself comes from its control port (one JSON line for one JSON line, over TCP on loopback).

Two lifetimes:

- *kept* (``broker start``): nodes outlive the command; ``cluster.json`` names their pids with their start times, so
  that a pid that was given to another process since is never signalled;
- *temporary* (``run`` and ``sweep`` without a URI): each node's standard input is a pipe this process holds. When it
  dies, however it dies, the pipe closes and the node exits by itself.

Every node is the leader of its own session: Ctrl-C in the terminal reaches the command, which ends the step in good
order first, and not the nodes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

HOST: Final = "127.0.0.1"
BASE_PORT: Final = 5691
"""Away from 5672, so that a RabbitMQ on the same machine is neither disturbed nor measured by mistake."""
NODE_COMMAND: Final = (sys.executable, "-m", "reference_broker.node")
STATE_FILE: Final = "cluster.json"
STATE_VERSION: Final = 1
START_TIMEOUT_S: Final = 20.0
STOP_GRACE_S: Final = 5.0
_TEMPORARY: Final = ".broker-"
_DATA: Final = "data"
_OWNER_FILE: Final = "owner.json"
_ASK_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.02
_ANSWER_BYTES_MAX: Final = 1 << 20
_KEPT: Final[list[subprocess.Popen[bytes]]] = []
"""The handles of nodes that outlive this process: dropping one while its process runs is reported as a leak."""
_PORT_ROLES: Final = ("amqp_port", "peer_port", "control_port")


class ClusterError(Exception):
    """A cluster that cannot be started, found or stopped: what, where, what to do."""

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(f"{what} ({where})")
        self.what = what
        self.where = where
        self.fix = fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node process. ``start_time`` identifies the process together with ``pid``."""

    node: int
    name: str
    amqp_port: int
    peer_port: int
    control_port: int
    data_dir: str
    log_file: str
    pid: int = 0
    start_time: int = 0

    @property
    def uri(self) -> str:
        """Where clients connect."""
        return f"amqp://guest:guest@{HOST}:{self.amqp_port}/%2f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes of one cluster and the directory that holds their data."""

    cluster: str
    directory: str
    nodes: tuple[Node, ...]

    @property
    def uris(self) -> tuple[str, ...]:
        """The AMQP URIs of all nodes."""
        return tuple(node.uri for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """The content of ``cluster.json``."""
        return {"version": STATE_VERSION, **asdict(self), "nodes": [asdict(node) for node in self.nodes]}


def start(directory: Path, *, nodes: int = 3, base_port: int = BASE_PORT) -> Cluster:
    """Start (or start again, with their data) nodes that outlive this process. Raises :class:`ClusterError`.

    AMQP ports are ``base_port`` and up, peer ports 100 and control ports 200 above them.
    """
    directory = directory.absolute()
    identity = _kept_identity(directory, nodes)
    ports = [[base_port + offset + number for offset in (0, 100, 200)] for number in range(nodes)]
    for port in (port for row in ports for port in row):
        _require_free(port)
    planned = _plan(directory, identity, ports)
    running, children = _launch(planned, exit_with_stdin=False)
    try:
        _await_ready(running, children)
    except BaseException:
        stop(running)
        raise
    _KEPT.extend(children)
    _write_state(running)
    return running


@contextlib.contextmanager
def temporary(parent: Path, *, nodes: int = 3) -> Iterator[Cluster]:
    """A cluster on free ports with its data below ``parent``, gone with the ``with`` block or with this process.

    The data lies beside the results rather than in the system's temporary directory, which is often memory: an fsync
    there would cost nothing and the measured latency would be no disk's.
    """
    _remove_orphans(parent)
    directory = parent.absolute() / f"{_TEMPORARY}{secrets.token_hex(4)}"
    planned = _plan(directory, f"local-{secrets.token_hex(4)}", _free_ports(nodes))
    try:
        running, children = _launch(planned, exit_with_stdin=True)
        try:
            (directory / _OWNER_FILE).write_text(json.dumps([os.getpid(), _start_time(os.getpid())]))
            _await_ready(running, children)
            yield running
        finally:
            _end_children(children)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def load(directory: Path) -> Cluster:
    """The cluster that was started in a directory. Raises :class:`ClusterError` when there is none."""
    path = directory.absolute() / STATE_FILE
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["version"] != STATE_VERSION:
            raise ClusterError(
                f"{STATE_FILE} has version {plain['version']}", str(path), "use the version that wrote it"
            )
        nodes = tuple(Node(**node) for node in plain["nodes"])
        return Cluster(cluster=plain["cluster"], directory=plain["directory"], nodes=nodes)
    except FileNotFoundError as error:
        fix = "start one with `perftest broker start`, or name its directory with --dir"
        raise ClusterError("no cluster was started here", str(directory), fix) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "stop the nodes by hand and remove the directory"
        raise ClusterError(f"{STATE_FILE} cannot be read: {error}", str(path), fix) from error


def status(cluster: Cluster) -> list[dict[str, Any]]:
    """What each node says of itself.

    Always ``name``, ``state`` (``running``, ``silent`` or ``down``), ``uri``, ``pid``, ``data_dir`` and ``role``;
    beyond these whatever its control port answers.
    """
    return [_status(node) for node in cluster.nodes]


def sample(cluster: Cluster, t_ns: int) -> list[dict[str, Any]]:
    """A record of ``broker.jsonl`` for each node that answers, at Unix time ``t_ns``: CPU, memory, role, metrics."""
    return [_sample(item, t_ns) for item in status(cluster) if item["state"] == "running"]


def ask(node: Node, request: Mapping[str, object]) -> dict[str, Any]:
    """One request to a node's control port. Raises OSError when it does not answer, ValueError for no JSON object."""
    with socket.create_connection((HOST, node.control_port), timeout=_ASK_TIMEOUT_S) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            answer = json.loads(answers.readline(_ANSWER_BYTES_MAX))
    if not isinstance(answer, dict):
        raise ValueError("the control port answered something else than an object")
    return answer


def stop(cluster: Cluster, grace_s: float = STOP_GRACE_S) -> list[str]:
    """End every node that still runs: SIGTERM, after ``grace_s`` SIGKILL. The names of the nodes that were ended."""
    alive = [node for node in cluster.nodes if is_alive(node)]
    for node in alive:
        _signal(node, signal.SIGTERM)
    if not _wait(lambda: not any(is_alive(node) for node in alive), grace_s):
        for node in alive:
            _signal(node, signal.SIGKILL)
        _wait(lambda: not any(is_alive(node) for node in alive), grace_s)
    _KEPT[:] = [child for child in _KEPT if child.poll() is None]  # those of this very process leave no zombies
    return [node.name for node in alive]


def is_alive(node: Node) -> bool:
    """Whether the process of this node runs: the same pid and the same start time, and not a zombie."""
    return node.pid > 0 and _start_time(node.pid) == node.start_time


def _kept_identity(directory: Path, nodes: int) -> str:
    """The id of the cluster whose data lies in the directory, or a new one."""
    if not (directory / STATE_FILE).exists():
        return f"local-{secrets.token_hex(4)}"
    before = load(directory)
    if any(is_alive(node) for node in before.nodes):
        fix = f"stop it with `perftest broker stop --dir {directory}`, or choose another --dir"
        raise ClusterError("a cluster already runs here", str(directory), fix)
    if len(before.nodes) != nodes:
        what = f"the data here is that of {len(before.nodes)} nodes, not {nodes}"
        raise ClusterError(what, str(directory), f"use --nodes {len(before.nodes)}, or another --dir")
    return before.cluster


def _remove_orphans(parent: Path) -> None:
    """Remove the data of temporary clusters whose command was killed: their nodes ended with it, the files stayed."""
    for directory in parent.glob(f"{_TEMPORARY}*"):
        try:
            pid, start_time = json.loads((directory / _OWNER_FILE).read_text())
        except (OSError, ValueError, TypeError):
            continue  # not known to be ours, or being started right now
        if _start_time(pid) != start_time:
            shutil.rmtree(directory, ignore_errors=True)


def _plan(directory: Path, identity: str, ports: Sequence[Sequence[int]]) -> Cluster:
    nodes = [
        Node(
            node=number,
            name=f"node{number}",
            data_dir=str(directory / f"node{number}"),
            log_file=str(directory / f"node{number}" / "node.log"),
            **dict(zip(_PORT_ROLES, row, strict=True)),
        )
        for number, row in enumerate(ports, start=1)
    ]
    return Cluster(cluster=identity, directory=str(directory), nodes=tuple(nodes))


def _launch(planned: Cluster, *, exit_with_stdin: bool) -> tuple[Cluster, list[subprocess.Popen[bytes]]]:
    """Start every process; nothing is left running when one of them cannot be started."""
    children: list[subprocess.Popen[bytes]] = []
    nodes: list[Node] = []
    try:
        for node in planned.nodes:
            child = _spawn(planned, node, exit_with_stdin=exit_with_stdin)
            children.append(child)
            plain = {**asdict(node), "pid": child.pid, "start_time": _start_time(child.pid) or 0}
            nodes.append(Node(**plain))
    except OSError as error:
        _end_children(children)
        fix = "choose a directory that can be written"
        raise ClusterError(f"a node cannot be started: {error.strerror or error}", planned.directory, fix) from error
    return Cluster(cluster=planned.cluster, directory=planned.directory, nodes=tuple(nodes)), children


def _spawn(cluster: Cluster, node: Node, *, exit_with_stdin: bool) -> subprocess.Popen[bytes]:
    home = Path(node.data_dir)
    home.mkdir(parents=True, exist_ok=True)
    config = home / "node.json"
    config.write_text(json.dumps(_node_config(cluster, node, exit_with_stdin), indent=1), encoding="utf-8")
    with Path(node.log_file).open("ab") as log:
        return subprocess.Popen(
            [*NODE_COMMAND, "--config", str(config)],
            stdin=subprocess.PIPE if exit_with_stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _node_config(cluster: Cluster, node: Node, exit_with_stdin: bool) -> dict[str, Any]:
    members = [
        {"node": other.node, "name": other.name, "host": HOST, **{role: getattr(other, role) for role in _PORT_ROLES}}
        for other in cluster.nodes
    ]
    return {
        "name": node.name,
        "node": node.node,
        "cluster": cluster.cluster,
        "nodes": members,
        "data_dir": str(Path(node.data_dir) / _DATA),
        "wal_dir": str(Path(node.data_dir) / "wal"),
        "log_file": node.log_file,
        "users": {"guest": "guest"},
        "exit_with_stdin": exit_with_stdin,
    }


def _await_ready(cluster: Cluster, children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until every node is ready. Raises :class:`ClusterError` when that does not happen."""
    if _wait(lambda: _dead(children) is not None or _ready(cluster), START_TIMEOUT_S):
        dead = _dead(children)
        if dead is None:
            return
        node = cluster.nodes[dead]
        what = f"{node.name} ended while it started: {_last_line(Path(node.log_file))}"
        raise ClusterError(what, node.log_file, "read that log; a port may be in use or the directory not writable")
    silent = [item["name"] for item in status(cluster) if item["state"] != "running"]
    what = (
        f"no cluster after {START_TIMEOUT_S:g} s: {', '.join(silent) or 'no node'} {'is silent' if silent else 'leads'}"
    )
    raise ClusterError(what, cluster.directory, "read the node.log files there; the machine may be overloaded")


def _ready(cluster: Cluster) -> bool:
    """Whether every node listens and knows a leader."""
    return all(item["state"] == "running" and item.get("ready") for item in status(cluster))


def _dead(children: Sequence[subprocess.Popen[bytes]]) -> int | None:
    return next((index for index, child in enumerate(children) if child.poll() is not None), None)


def _end_children(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes of this process: politely, then not."""
    for child in children:
        if child.stdin is not None:
            child.stdin.close()
        child.terminate()
    deadline = time.monotonic() + STOP_GRACE_S
    for child in children:
        try:
            child.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _status(node: Node) -> dict[str, Any]:
    data_dir = str(Path(node.data_dir) / _DATA)
    known = {"name": node.name, "uri": node.uri, "pid": node.pid, "data_dir": data_dir, "role": ""}
    if not is_alive(node):
        return {**known, "state": "down"}
    try:
        answer = ask(node, {"op": "status"})
    except (OSError, ValueError):
        return {**known, "state": "silent"}
    return {**known, **answer, "uri": node.uri, "pid": node.pid, "state": "running"}


def _sample(answer: Mapping[str, Any], t_ns: int) -> dict[str, Any]:
    metrics = dict(answer.get("metrics") or {})
    record = {"t_ns": t_ns, "node": answer["name"], "pid": answer["pid"], "role": answer["role"]}
    if "cpu_ns" in metrics:
        record["cpu_ns"] = metrics.pop("cpu_ns")
    with contextlib.suppress(psutil.Error):
        record["rss_bytes"] = psutil.Process(answer["pid"]).memory_info().rss
    return {**record, "metrics": metrics}


def _signal(node: Node, number: signal.Signals) -> None:
    if is_alive(node):  # asked again right before: the pid may have changed hands since
        with contextlib.suppress(ProcessLookupError):
            os.kill(node.pid, number)


def _start_time(pid: int) -> int | None:
    """When a process started: clock ticks since boot (Linux), which no clock step can move; None when it is gone."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            # The name before it may hold spaces and brackets: fields are counted from the last bracket on.
            return int(stat.read_text(errors="replace").rpartition(")")[2].split()[19])
        return int(process.create_time())
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


def _wait(done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _require_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            what = f"port {port} is in use" if used else f"port {port} cannot be used: {error}"
            raise ClusterError(
                what, f"{HOST}:{port}", "stop what listens there, or choose other ports with --port"
            ) from error


def _free_ports(nodes: int) -> list[list[int]]:
    """Ports nobody listens on now. All are held until all are chosen, so that none is given twice."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(nodes * len(_PORT_ROLES)):
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.bind((HOST, 0))
            ports.append(int(probe.getsockname()[1]))
    return [ports[number * 3 : number * 3 + 3] for number in range(nodes)]


def _write_state(cluster: Cluster) -> None:
    path = Path(cluster.directory) / STATE_FILE
    beside = path.with_name(f".{STATE_FILE}.new")
    beside.write_text(json.dumps(cluster.to_json(), indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def _last_line(path: Path) -> str:
    try:
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it left no log"
    return lines[-1].strip() if lines else "it said nothing"
