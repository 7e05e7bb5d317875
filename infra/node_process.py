"""The process of one node: started, found again, signalled, ended.

A pid alone is not a process: it is given away again. A node is its pid *and* the time at which that process started;
nothing is ever signalled that does not match both.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil

from infra.cluster import Cluster, ClusterError, Node, node_config

NODE_COMMAND: Final = (sys.executable, "-m", "reference_broker.node")
SET_BY_HAND: Final = ("limits", "sync", "users")
"""Keys of ``node.json`` that no command sets; a start keeps them as it finds them."""
STOP_GRACE_S: Final = 5.0
_POLL_S: Final = 0.02


def spawn(cluster: Cluster, node: Node, *, exit_with_stdin: bool) -> subprocess.Popen[bytes]:
    """Start the process of a node; its words go to its log file. Raises OSError, :class:`ClusterError`."""
    home = Path(node.data_dir)
    home.mkdir(parents=True, exist_ok=True)
    config = home / "node.json"
    wanted = node_config(cluster, node, exit_with_stdin=exit_with_stdin)
    text = json.dumps(wanted | _set_by_hand(config), indent=1)
    if not config.exists() or config.read_text(encoding="utf-8") != text:  # a full drive may be all there is
        config.write_text(text, encoding="utf-8")
    log_file = Path(node.log_file)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [*NODE_COMMAND, "--config", str(config)],
            stdin=subprocess.PIPE if exit_with_stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _set_by_hand(config: Path) -> dict[str, object]:
    """What somebody may have written into a ``node.json``: all else in it is ours. Raises :class:`ClusterError`."""
    try:
        plain = json.loads(config.read_text(encoding="utf-8"))
        return {key: plain[key] for key in SET_BY_HAND if key in plain}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        fix = "mend it, or remove it to have it written anew with the default limits"
        raise ClusterError(f"node.json cannot be read: {error}", str(config), fix) from error


def is_alive(node: Node) -> bool:
    """Whether the process of this node runs: the same pid and the same start time, and not a zombie."""
    return node.pid > 0 and start_time(node.pid) == node.start_time


def is_paused(node: Node) -> bool:
    """Whether the process is there and stopped by a signal."""
    try:
        return is_alive(node) and psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def send(node: Node, number: signal.Signals) -> None:
    """Signal the process of this node, if it still is that process."""
    if is_alive(node):  # asked again right before: the pid may have changed hands since
        with contextlib.suppress(ProcessLookupError):
            os.kill(node.pid, number)


def end(nodes: Sequence[Node], grace_s: float) -> None:
    """SIGTERM, and after ``grace_s`` SIGKILL; a paused process is resumed first, or it would never hear of it."""
    for node in nodes:
        send(node, signal.SIGCONT)
        send(node, signal.SIGTERM)
    if not wait(lambda: not any(is_alive(node) for node in nodes), grace_s):
        for node in nodes:
            send(node, signal.SIGKILL)
        wait(lambda: not any(is_alive(node) for node in nodes), grace_s)


def end_children(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes of this process: politely, then not."""
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
            child.wait()


def start_time(pid: int) -> int | None:
    """When a process started: clock ticks since boot (Linux), which no clock step can move; None when it is gone."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE and not _has_other_threads(pid):
            return None
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            # The name before it may hold spaces and brackets: fields are counted from the last bracket on.
            return int(stat.read_text(errors="replace").rpartition(")")[2].split()[19])
        return int(process.create_time())
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


def _has_other_threads(pid: int) -> bool:
    """Whether threads of a process are still on their way out: until they are, it holds its ports and its files."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def wait(done: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until ``done()``; False when that takes longer than ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def log_size(node: Node) -> int:
    """Octets in the log file, so that later only what came after is read."""
    try:
        return Path(node.log_file).stat().st_size
    except OSError:
        return 0


def empty(node: Node) -> None:
    """Remove every file of a node that does not run, but for its own log. The directories may be mounted drives: they
    stay. Raises OSError."""
    keep = Path(node.log_file)
    for role in ("data_dir", "wal_dir", "segment_dir"):
        for path, directories, names in os.walk(node.paths()[role], topdown=False):
            for name in names:
                if Path(path, name) != keep:
                    Path(path, name).unlink()
            for name in directories:
                with contextlib.suppress(OSError):  # a drive is mounted there, or the log is in it
                    Path(path, name).rmdir()


def last_words(cluster: Cluster, node: Node, since: int) -> ClusterError:
    """Why a node ended while it started, from what it wrote behind ``since``: its own three lines, if it had them."""
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
