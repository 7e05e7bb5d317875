"""Starts, finds, signals and ends the process of a node.

A pid alone does not identify a process, because the system uses pids again. A node is identified by its pid *and* the
start time of the process. No process is ever signalled that does not match both.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from infra.cluster import Cluster, ClusterError, Node, node_config

NODE_COMMAND: Final = (sys.executable, "-m", "reference_broker.node")
SET_BY_HAND: Final = (
    "limits", "sync", "product", "users", "loopback_users", "client_tls", "drives", "instance_octets_per_second",
)  # fmt: skip
"""Keys of ``node.json`` that only people set. A start keeps them as they are."""
STOP_GRACE_S: Final = 5.0
_KILLED_S: Final = 30.0
"""Longest wait for a process after SIGKILL: until its last request to a drive has an answer."""
MARK: Final = "PERFTEST_BELONGS_TO"
"""The variable in the environment of a started process that names its cluster or host. Its children inherit the mark,
so a process is found even if its starter died before it could write a pid down."""
_POLL_S: Final = 0.02


def spawn(cluster: Cluster, node: Node, *, exit_with_stdin: bool) -> subprocess.Popen[bytes]:
    """Start the process of a node, with its output in its log file. Raises OSError, :class:`ClusterError`; a directory
    of another node or of another cluster is left as it is."""
    home = Path(node.data_dir)
    config = home / "node.json"
    wanted = node_config(cluster, node, exit_with_stdin=exit_with_stdin)
    text = json.dumps(wanted | kept_settings(cluster, node), indent=1)
    home.mkdir(parents=True, exist_ok=True)
    if not config.exists() or config.read_text(encoding="utf-8") != text:  # a full drive may be all there is
        write_durably(config, text)
    log_file = Path(node.log_file)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [*NODE_COMMAND, "--config", str(config)],
            stdin=subprocess.PIPE if exit_with_stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {MARK: f"{mark(cluster)}:{node.name}"},
        )


def mark(cluster: Cluster) -> str:
    """The value of :data:`MARK` in a cluster's processes, before a colon and the name of the node. A copy of the
    cluster's files in another directory is another cluster."""
    return f"{cluster.directory}:{cluster.cluster}"


def write_durably(path: Path, text: str) -> None:
    """Replace a file as a whole: after a power cut there is the old text or the new text, and never an empty file.
    Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def marked(mark: str) -> Iterator[tuple[psutil.Process, str]]:
    """The processes that carry this mark or one of its parts (``mark:part``), each with the part."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # ended meanwhile, or not ours to look at
            carried = process.environ().get(MARK, "")
            if carried == mark or carried.startswith(f"{mark}:"):
                yield process, carried[len(mark) + 1 :]


def await_marks(limit_s: float) -> None:
    """Wait until each child of this process shows its mark, if it has one: the environment of a process is empty for a
    moment after the process was made."""

    def is_blank(child: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            return not child.environ() and child.status() != psutil.STATUS_ZOMBIE
        return False

    wait(lambda: not any(map(is_blank, psutil.Process().children())), limit_s)


def found_again(cluster: Cluster) -> Cluster:
    """The cluster with the processes of its nodes that run here, also the ones that were not written down. The
    machine's processes are searched only if a node does not run as written down."""
    if all(is_alive(node) for node in cluster.nodes if node.is_here):
        return cluster
    pids: dict[str, int] = {}
    for process, name in marked(mark(cluster)):
        pids.setdefault(name, process.pid)

    def found(node: Node) -> Node:
        pid = pids.get(node.name, 0)
        if not node.is_here or is_alive(node) or (started := start_time(pid)) is None:
            return node
        return replace(node, pid=pid, start_time=started)

    return replace(cluster, nodes=tuple(found(node) for node in cluster.nodes))


def kept_settings(cluster: Cluster, node: Node) -> dict[str, object]:
    """The keys of the ``node.json`` of a node that people may set, and the node's newest first life, which a register
    that was lost does not know. All others are written anew. Raises :class:`ClusterError` if the file cannot be read,
    or if it is that of another node or of another cluster."""
    config = Path(node.data_dir) / "node.json"
    try:
        plain = json.loads(config.read_text(encoding="utf-8"))
        whose = plain.get("cluster", cluster.cluster), plain.get("node", node.node)
        first_life = max(node.first_life, int(plain.get("first_life", 0)))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        fix = "correct the file, or remove it: a start then writes it anew with the default limits"
        raise ClusterError(f"node.json cannot be read: {error}", str(config), fix) from error
    if whose != (cluster.cluster, node.node):
        what = f"this directory belongs to node {whose[1]} of cluster {whose[0]}"
        fix = f"put the directory of {node.name} of cluster {cluster.cluster} in its place"
        raise ClusterError(f"{what}, not to node {node.node} of cluster {cluster.cluster}", str(config), fix)
    return {"first_life": first_life} | {key: plain[key] for key in SET_BY_HAND if key in plain}


def is_alive(node: Node) -> bool:
    """Whether the process of this node runs here: the same pid and the same start time, and not a zombie."""
    return node.is_here and node.pid > 0 and start_time(node.pid) == node.start_time


def is_paused(node: Node) -> bool:
    """Whether the process of this node is stopped by a signal."""
    try:
        return is_alive(node) and psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def send(node: Node, number: signal.Signals) -> None:
    """Send a signal to the process of this node, if it still runs."""
    if is_alive(node):  # checked right before the signal, because the pid may belong to another process by now
        with contextlib.suppress(ProcessLookupError):
            os.kill(node.pid, number)


def end(nodes: Sequence[Node], grace_s: float) -> None:
    """End nodes with SIGTERM, and after ``grace_s`` with SIGKILL. A paused process is resumed first, so that it can act
    on SIGTERM."""
    for node in nodes:
        send(node, signal.SIGCONT)
        send(node, signal.SIGTERM)
    if not wait(lambda: not any(is_alive(node) for node in nodes), grace_s):
        for node in nodes:
            send(node, signal.SIGKILL)
        wait(lambda: not any(is_alive(node) for node in nodes), grace_s)


def end_children(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """End child processes with SIGTERM, and with SIGKILL if they do not end in time. Raises :class:`ClusterError` if
    one stays even so: it waits for a drive that hangs."""
    for child in children:
        if child.stdin is not None:
            child.stdin.close()
        child.send_signal(signal.SIGCONT)
        child.terminate()
    deadline = time.monotonic() + STOP_GRACE_S
    for child in children:
        try:
            child.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            child.kill()
    for child in children:
        try:
            child.wait(_KILLED_S)
        except subprocess.TimeoutExpired as error:
            what = "a node does not end, not even after SIGKILL"
            raise ClusterError(what, f"pid {child.pid}", "its drive may hang: see what it waits for") from error


def start_time(pid: int) -> int | None:
    """The start time of a process; None if the process has ended.

    On Linux the time is in clock ticks since boot, which no step of the clock can change.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE and not _has_other_threads(pid):
            return None
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            # The name of the process may hold spaces and brackets, so fields are counted from the last bracket on.
            return int(stat.read_text(errors="replace").rpartition(")")[2].split()[19])
        return int(process.create_time())
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


def _has_other_threads(pid: int) -> bool:
    """Whether a process still has other threads. Until they end, the process holds its ports and its files."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def wait(done: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until ``done()``. Returns False if that takes longer than ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def log_size(node: Node) -> int:
    """The size of the log file in octets, so that later only newer text is read."""
    try:
        return Path(node.log_file).stat().st_size
    except OSError:
        return 0


def last_words(cluster: Cluster, node: Node, since: int) -> ClusterError:
    """The reason why a node ended while it started, from its log behind ``since``: the three lines of its error, if
    there are any."""
    try:
        text = Path(node.log_file).read_bytes()[since:].decode(errors="replace")
    except OSError:
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    said = lines[starts[-1] :] if starts else []
    if len(said) >= 3 and said[1].startswith("at ") and said[2].startswith("fix "):
        what, where, fix = said[0].removeprefix("error: "), said[1][3:].strip(), said[2][4:].strip()
    else:
        what = lines[-1] if lines else "it said nothing"
        where, fix = node.log_file, "read that log; a port may be in use or the directory not writable"
    fix = fix.replace("--node NODE --replace", f"--node {node.name} --replace --dir {cluster.directory}")
    return ClusterError(f"{node.name} ended while it started: {what}", where, fix)
