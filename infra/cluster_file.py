"""The file in which a cluster's directory keeps the cluster for the next command: ``cluster.json``.

The file is written completely or not at all, with a checksum, and a synced copy lies beside it. A damaged file is read
from its copy. Without the copy, :mod:`infra.rebuild` makes the file anew from the nodes' own records.

One command at a time changes the file (:func:`alone`), and each command changes only what it did (:func:`update`). The
file names processes, but a command may die before it writes a process down. So readers of the file find such a process
by the mark that every node process carries.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from infra.cluster import Cluster, ClusterError, Directories, Node
from infra.node_process import found_again, wait, write_durably

STATE_FILE: Final = "cluster.json"
COPY_FILE: Final = "cluster.json.copy"
DESCRIPTION_FILE: Final = "description.json"
"""Beside it or in place of it, where the nodes of a cluster run on several hosts (:mod:`infra.description`)."""
STATE_VERSION: Final = 1
NODE_FILES: Final = "*/node.json"
"""The files of a cluster's nodes, below its directory."""
_CHECKSUM: Final = "sha256"
_COPY_AGAIN: Final = "copy the file from another host of the cluster"
_TURN_S: Final = 60.0
"""Longest wait for another command that starts nodes or changes the file."""

log = logging.getLogger(__name__)


class DamagedFileError(ClusterError):
    """``cluster.json`` or a description cannot be used as it is."""


def is_kept(directory: Path) -> bool:
    """Whether a directory keeps a cluster, in ``cluster.json`` or in its copy."""
    return any((directory / file).exists() for file in (STATE_FILE, COPY_FILE))


def load(directory: Path, file: str = "") -> Cluster:
    """The cluster that was started in a directory, or else the one that is described there. Nodes that run here have
    their processes, also if no command wrote them down. Raises :class:`ClusterError` if there is no cluster."""
    directory = directory.absolute()
    if file == DESCRIPTION_FILE or (not file and not is_kept(directory) and (directory / DESCRIPTION_FILE).exists()):
        path = directory / DESCRIPTION_FILE
        return replace(parsed(_text(path), str(path), _COPY_AGAIN), directory=str(directory))
    return found_again(kept(directory))


def kept(directory: Path) -> Cluster:
    """The cluster as ``cluster.json`` has it, or its copy if the file is damaged. Raises :class:`ClusterError`."""
    try:
        return whole(directory)
    except DamagedFileError as damaged:
        try:
            cluster = whole(directory, COPY_FILE)
        except DamagedFileError:
            raise damaged from None
        log.warning("warning: %s (%s); its copy %s is used", damaged.what, damaged.where, COPY_FILE)
        return cluster


def whole(directory: Path, file: str = STATE_FILE) -> Cluster:
    """The cluster as one file has it. Raises :class:`DamagedFileError` if the file is damaged, or missing beside
    others."""
    path = directory / file
    return parsed(_text(path), str(path), rebuild_command(directory))


def parsed(text: str, where: str, fix: str) -> Cluster:
    """The cluster that a file's text describes. Raises :class:`ClusterError`, which names the file ``where``, with
    ``fix`` if the text is damaged."""
    try:
        plain = json.loads(text)
        if plain["version"] != STATE_VERSION:
            raise ClusterError(f"this file has version {plain['version']}", where, "use the version that wrote it")
        if _CHECKSUM in plain and plain.pop(_CHECKSUM) != _checksum(plain):
            raise ValueError("its checksum is not that of its content")
        return Cluster(
            cluster=plain["cluster"],
            directory=plain["directory"],
            nodes=tuple(Node(**node) for node in plain["nodes"]),
            directories=Directories(**plain.get("directories", {})),
            limits=plain.get("limits", {}),
            tls=plain.get("tls", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"this file is damaged: {error}", where, fix) from error


def save(cluster: Cluster, file: str = STATE_FILE) -> None:
    """Write a cluster's file completely or not at all, and wait until it is on disk. ``cluster.json`` comes with its
    copy. Raises :class:`ClusterError`."""
    plain = {"version": STATE_VERSION, **asdict(cluster), "nodes": [asdict(node) for node in cluster.nodes]}
    if file == STATE_FILE:
        plain[_CHECKSUM] = _checksum(plain)
    text = json.dumps(plain, indent=1) + "\n"
    directory = Path(cluster.directory)
    try:
        for name in (COPY_FILE, file) if file == STATE_FILE else (file,):
            write_durably(directory / name, text)
    except OSError as error:
        what = f"{file} cannot be written: {error.strerror}"
        fix = "free some space, or choose a directory that can be written"
        raise ClusterError(what, str(error.filename or directory), fix) from error


def update(cluster: Cluster, names: Collection[str]) -> Cluster:
    """Write down what a command did to the nodes with these names, and return the cluster with other commands' changes
    to the other nodes meanwhile. All running processes are written down. The caller is :func:`alone`."""
    directory = Path(cluster.directory)
    if is_kept(directory):
        known = {node.name: node for node in kept(directory).nodes if node.name not in names}
        nodes = (_as_known(node, known.get(node.name, node)) for node in cluster.nodes)
        cluster = replace(cluster, nodes=tuple(nodes))
    cluster = found_again(cluster)
    save(cluster)
    return cluster


def remove(directory: Path) -> None:
    """Remove the file and its copy: nothing was started."""
    for file in (COPY_FILE, STATE_FILE):
        (directory / file).unlink(missing_ok=True)


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """No other command starts nodes of this directory or changes its file meanwhile. A directory that is missing is
    made, and goes again if nothing was put into it. Raises :class:`ClusterError` if another command does not end."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY)
    except OSError as error:
        what = f"the directory of the cluster cannot be used: {error.strerror}"
        raise ClusterError(what, str(directory), "choose a directory that can be written") from error
    try:
        if not wait(lambda: _is_ours(handle), _TURN_S):
            what = f"for {_TURN_S:g} s another command has been starting nodes here"
            raise ClusterError(what, str(directory), "wait until that command has ended, or end it")
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # something lies in it
            for each in missing:
                each.rmdir()


def rebuild_command(directory: Path) -> str:
    """The command to run if the file is unusable."""
    return f"`perftest broker rebuild --dir {directory}` makes cluster.json anew from the nodes' own files"


def _as_known(node: Node, known: Node) -> Node:
    return replace(node, pid=known.pid, start_time=known.start_time, first_life=known.first_life)


def _is_ours(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text(path: Path) -> str:
    directory = path.parent
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if path.name != DESCRIPTION_FILE and (is_kept(directory) or any(directory.glob(NODE_FILES))):
            what = f"{path.name} is missing, and nodes have their files here"
            raise DamagedFileError(what, str(path), rebuild_command(directory)) from error
        fix = "start one with `perftest broker start`, or name its directory with --dir"
        raise ClusterError(f"no cluster was started here: there is no {path.name}", str(directory), fix) from error
    except (OSError, ValueError) as error:
        what = f"{path.name} cannot be read: {error}"
        fix = _COPY_AGAIN if path.name == DESCRIPTION_FILE else rebuild_command(directory)
        raise DamagedFileError(what, str(path), fix) from error


def _checksum(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
