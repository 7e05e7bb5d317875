"""Makes a ``cluster.json`` anew that is damaged or gone: from its copy, or from the nodes' own records.

Each node has a ``node.json`` in its own directory, with the cluster's identity, the ports of all nodes, and the node's
other directories. Processes that run are found by their mark. A node without its ``node.json`` has its directories
beside the other nodes' directories, or where the caller says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from infra import fuse_layout
from infra.cluster import PORT_ROLES, Cluster, ClusterError, Directories, Node, plan
from infra.cluster_file import (
    DESCRIPTION_FILE,
    NODE_FILES,
    STATE_FILE,
    DamagedFileError,
    alone,
    is_kept,
    kept,
    load,
    save,
    whole,
)
from infra.description import on_this_host
from infra.layout import NODE
from infra.node_process import found_again

_ROLES: Final = ("wal_dir", "segment_dir", "classic_dir", "logs_dir", "data_dir")
_OF_LAYOUT: Final = ("io", "drives", "instance_octets_per_second")
_DAMAGED: Final = f"{STATE_FILE}.damaged"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The cluster, the file or the nodes that it was made of, and what could not be read."""

    cluster: Cluster
    source: str
    notes: list[str]


def rebuild(directory: Path, given: Mapping[str, str]) -> Rebuilt:
    """Write ``cluster.json`` anew unless it is whole. A damaged file stays beside it as ``cluster.json.damaged``.

    ``given`` are the directories of :class:`infra.cluster.Directories` by their roles, for what no ``node.json`` tells.
    Raises :class:`ClusterError` if the nodes' files do not make one cluster; then nothing is changed.
    """
    directory = directory.absolute()
    with alone(directory):
        found = _found(directory, given)
        if found.source != STATE_FILE:
            if (directory / STATE_FILE).exists():
                (directory / STATE_FILE).rename(directory / _DAMAGED)
            save(found.cluster)
        return replace(found, cluster=found_again(found.cluster))


def _found(directory: Path, given: Mapping[str, str]) -> Rebuilt:
    try:
        return Rebuilt(whole(directory), STATE_FILE, [])
    except DamagedFileError:
        pass
    except ClusterError:
        if is_kept(directory):
            raise  # of another version
    if is_kept(directory):
        try:
            return Rebuilt(kept(directory), "its copy", [])
        except DamagedFileError:
            pass
    return _from_nodes(directory, given)


def _from_nodes(directory: Path, given: Mapping[str, str]) -> Rebuilt:
    files, notes = _node_files(directory)
    if len(identities := {plain["cluster"] for plain in files.values()}) > 1:
        listed = ", ".join(f"{name} of {plain['cluster']}" for name, plain in files.items())
        raise ClusterError(f"nodes of {len(identities)} clusters lie here: {listed}", str(directory),
                           "move the directories of other clusters away, then do this again")  # fmt: skip
    if not files:
        fix = "put back the directory of a node with its node.json, or name the cluster's directory with --dir"
        raise ClusterError(f"no node.json can be read here: {'; '.join(notes) or 'there is none'}", str(directory), fix)
    cluster = (
        _described(directory, files) if (directory / DESCRIPTION_FILE).exists() else _local(directory, files, given)
    )
    lives = {name: int(plain.get("first_life", 0)) for name, plain in files.items()}
    nodes = tuple(replace(node, first_life=lives.get(node.name, 0)) for node in cluster.nodes)
    return Rebuilt(replace(cluster, nodes=nodes), ", ".join(files), notes)


def _node_files(directory: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Each node's ``node.json`` by the node's name, the newest last; and why others cannot be used."""
    files: dict[str, dict[str, Any]] = {}
    notes = []
    for path in sorted(directory.glob(NODE_FILES), key=lambda path: path.stat().st_mtime_ns):
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            _ports(plain), plain["cluster"], [plain[role] for role in _ROLES]
            if plain["name"] != path.parent.name:
                notes.append(f"{path}: this is a copy of the file of {plain['name']}")
            else:
                files[path.parent.name] = plain
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            notes.append(f"{path}: the file cannot be read ({type(error).__name__}: {error})")
    return files, notes


def _described(directory: Path, files: Mapping[str, dict[str, Any]]) -> Cluster:
    """The cluster of a description, with the one node that lies here."""
    if len(files) > 1:
        fix = "move all but the node of this host away, then do this again"
        raise ClusterError(f"{', '.join(files)} lie here, but one node belongs to a host", str(directory), fix)
    (name,) = files
    return on_this_host(load(directory, DESCRIPTION_FILE), directory, name)


def _local(directory: Path, files: Mapping[str, dict[str, Any]], given: Mapping[str, str]) -> Cluster:
    newest = list(files.values())[-1]
    of_roles: dict[str, Any] = {role: given.get(role) or _place(directory, role, files) for role in _ROLES}
    of_layout = {key: newest[key] for key in _OF_LAYOUT if key in newest}
    directories = Directories(**of_roles, **of_layout, fuse=_fuse_drives(directory))
    cluster = plan(directory, newest["cluster"], _ports(newest), directories)
    for node in cluster.nodes:
        _require_same(node, files.get(node.name))
    return cluster


def _ports(plain: Mapping[str, Any]) -> list[list[int]]:
    members = sorted(plain["nodes"], key=lambda member: int(member["node"]))
    return [[int(member[role]) for role in PORT_ROLES] for member in members]


def _place(directory: Path, role: str, files: Mapping[str, dict[str, Any]]) -> str:
    """The directory that holds a subdirectory for each node; empty if the files lie in the cluster's directory."""
    places = set()
    for name, plain in files.items():
        home, data = directory / name, Path(plain["data_dir"])
        usual = {"wal_dir": home / "wal", "logs_dir": home, "data_dir": home / "data",
                 "segment_dir": data / "segments", "classic_dir": data / "classic"}  # fmt: skip
        own = Path(plain[role])
        places.add((name, "" if own == usual[role] or own == home / "classic" else str(own.parent)))
    literal = {place for _name, place in places}
    if len(literal) == 1:
        return literal.pop()
    patterns = {place.replace(name, NODE) for name, place in places}
    if len(patterns) == 1:
        return patterns.pop()
    option = f"--{role.replace('_', '-')}"
    raise ClusterError(f"the nodes have {role} at unlike places: {', '.join(sorted(literal))}", str(directory),
                       f"correct {role} in the nodes' node.json, or name the directory with {option}")  # fmt: skip


def _fuse_drives(directory: Path) -> dict[str, str]:
    place = directory / fuse_layout.KEPT
    drives = {path.name.partition("-")[2] for path in place.iterdir()} if place.is_dir() else set()
    return {name: f"{place}/{NODE}-{name}" for name in sorted(drives)}


def _require_same(node: Node, plain: Mapping[str, Any] | None) -> None:
    """Raises :class:`ClusterError` if the node would look for its files at other places than its ``node.json`` says."""
    for role, path in node.paths().items() if plain is not None else ():
        if plain is not None and plain[role] != path:
            what = f"{node.name} has its {role} at {plain[role]}, which would become {path}"
            raise ClusterError(what, node.data_dir, f"leave --{role.replace('_', '-')} out, or correct node.json")
