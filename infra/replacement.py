"""Starts a node without data in place of the data on its drives, so that it learns everything from the other nodes.

Nothing is done before all possible checks, and before the caller knows the losses. The node's files are set aside by
renaming: each directory gets a subdirectory ``.replaced-LIFE``, on the same drive. The files go when the node runs
without them. So a crash in the middle and a start that fails lose nothing, and the same command goes on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from infra import fuse_layout
from infra.cluster import Cluster, ClusterError, Node
from infra.cluster_file import alone, update
from infra.control import change
from infra.local_cluster import require_startable, start_node
from infra.mounts import mounts
from infra.node_process import found_again, kept_settings

_ASIDE: Final = ".replaced-"
_ROLES: Final = ("data_dir", "wal_dir", "segment_dir", "classic_dir")
_OF_THE_DRIVE: Final = "lost+found"


def replace_node(cluster: Cluster, name: str, agree: Callable[[Sequence[str]], None] = lambda _queues: None) -> Cluster:
    """Start a node that is down without data on its ports. Raises :class:`ClusterError`; unless the error says what is
    set aside, nothing was done to the node's files.

    ``agree`` gets the names of the classic queues whose only copy is on the node, before anything is done. It raises an
    error to end the command. The other nodes then delete these queues.
    """
    request = {"node": cluster.node(name).name}
    cluster = found_again(cluster)
    _require_replaceable(cluster, name)
    agree(change(cluster, {"op": "lost-with-node", **request})["lost_queues"])
    with alone(Path(cluster.directory)):
        cluster = found_again(cluster)
        require_startable(cluster, name)
        life = int(change(cluster, {"op": "replace-node", **request})["life"])
        blank = replace(cluster.node(name), first_life=life, pid=0, start_time=0)
        nodes = tuple(blank if node.name == blank.name else node for node in cluster.nodes)
        cluster = update(replace(cluster, nodes=nodes), {blank.name})  # from now on, the node's data is an older copy
        _set_aside_all(cluster, blank)
    try:
        cluster = start_node(cluster, name)
    except ClusterError as error:
        places = ", ".join(map(str, _asides(blank))) or "nowhere: there were none"
        fix = f"{error.fix}; the former files of {blank.name} are set aside: {places}"
        raise ClusterError(error.what, error.where, fix) from error
    for place in _asides(blank):
        shutil.rmtree(place, ignore_errors=True)
    return cluster


def _require_replaceable(cluster: Cluster, name: str) -> None:
    """Raises :class:`ClusterError` for everything of the node itself that would end its start, or the work on its
    files."""
    require_startable(cluster, name)
    node = cluster.node(name)
    kept_settings(cluster, node)
    fuse_layout.require(Path(cluster.directory), node.paths().values())
    for path in (Path(node.data_dir), *map(Path, node.paths().values())):
        there = next(each for each in (path, *path.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            fix = "give the account that starts the node the right to write there, or mend the drive"
            raise ClusterError(f"the directories of {node.name} cannot be written", str(there), fix)


def _set_aside_all(cluster: Cluster, node: Node) -> None:
    """Set every file of a node aside, except its own log. Raises :class:`ClusterError`."""
    points = {Path(mount.point) for mount in mounts()}
    stays = {Path(node.log_file), *(Path(path) for path in node.paths().values() if Path(path) in points)}
    stays |= {point for point in points if any(point.is_relative_to(path) for path in node.paths().values())}
    try:
        for role in _ROLES:
            _set_aside(Path(node.paths()[role]), f"{_ASIDE}{node.first_life}", stays)
    except OSError as error:
        what = f"the files of {node.name} cannot be set aside: {error.strerror}"
        again = f"perftest broker start --node {node.name} --replace --dir {cluster.directory}"
        raise ClusterError(what, str(error.filename), f"mend that, then `{again}` again") from error


def _set_aside(directory: Path, into: str, stays: set[Path]) -> None:
    """Rename everything in a directory into its subdirectory ``into``. What ``stays`` is a log or a mount point, which
    cannot be renamed, and is looked into."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.name.startswith(_ASIDE) or path.name == _OF_THE_DRIVE:
            continue
        if any(each.is_relative_to(path) for each in stays):
            _set_aside(path, into, stays)
            continue
        (directory / into).mkdir(exist_ok=True)
        path.rename(directory / into / path.name)


def _asides(node: Node) -> list[Path]:
    """The directories in which files of a node are set aside."""
    return sorted({path for role in _ROLES for path in _below(Path(node.paths()[role]))})


def _below(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            if path.name.startswith(_ASIDE):
                yield path
            else:
                yield from _below(path)
