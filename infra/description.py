"""A cluster whose nodes run on several hosts: described once, copied to every host, and kept there by each host itself.

The description is the file ``description.json``. It has no pid, and its relative paths are relative to the directory in
which the file lies on a host, next to ``secret``. A host *adopts* the description for one of the nodes: from then on
the host's own ``cluster.json`` beside it says where that node's process and files are. So a description may be copied
again at any time, and every command for a local cluster works on each host with the node of that host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from infra.cluster import PORT_OFFSETS, PORT_ROLES, Cluster, ClusterError, Directories, Node, make_secret
from infra.cluster_file import DESCRIPTION_FILE, is_kept, load, save

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_COUNTS: Final = (1, 3, 5, 7, 9)
_PATHS: Final = ("data_dir", "log_file", "wal_dir", "segment_dir", "store_dir", "classic_dir")
_WILDCARDS: Final = ("", "0.0.0.0", "::", "*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where one node runs. ``address`` is what other nodes and clients connect to, ``ports`` are by
    :data:`infra.cluster.PORT_ROLES`. ``directories`` are for the roles ``wal_dir``, ``segment_dir``, ``classic_dir``,
    ``store_dir`` and ``logs_dir``; a role without one lies in the cluster's directory on the host. ``addresses`` are
    further addresses by their keys in ``node.json``, such as ``bind``."""

    name: str
    address: str
    ports: tuple[int, ...]
    directories: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)


def usual_ports(base_port: int, number: int = 0) -> tuple[int, ...]:
    """The ports of the node that is the ``number``-th on its host."""
    return tuple(base_port + offset + number for offset in PORT_OFFSETS)


def describe(
    identity: str,
    places: Sequence[NodePlace],
    *,
    directories: Directories | None = None,
    limits: Mapping[str, int] | None = None,
    tls: str = "",
) -> Cluster:
    """The cluster of these nodes, with TLS if ``tls`` names a directory (:class:`infra.cluster.Cluster`).
    ``directories`` say which drives are modelled, and the I/O policy.

    Raises :class:`ClusterError` with all problems.
    """
    if problems := _problems(places):
        raise ClusterError("these nodes are no cluster", "; ".join(problems), "correct what is named", code=2)
    nodes = tuple(_node(number, place) for number, place in enumerate(places, start=1))
    return Cluster(
        cluster=identity,
        directory="",
        nodes=nodes,
        directories=directories or Directories(),
        limits=dict(limits or {}),
        tls=tls,
    )


def adopt(description: Cluster, directory: Path, name: str) -> Cluster:
    """The cluster as the host keeps it whose ``directory`` this is, with the node ``name`` on this host.

    Nothing is written: the start of the node writes ``cluster.json``. The process and ``first_life`` of a node that was
    adopted before stay known. Raises :class:`ClusterError` if the directory has another cluster, or another node of the
    cluster.
    """
    directory = directory.absolute()
    return on_this_host(description, directory, name, _before(description, directory, description.node(name)))


def on_this_host(description: Cluster, directory: Path, name: str, before: Node | None = None) -> Cluster:
    """The cluster with the node ``name`` in a ``directory`` of this host, and ``before`` as the host knew the node."""
    here = description.node(name)
    kept = {} if before is None else {key: getattr(before, key) for key in ("pid", "start_time", "first_life")}
    paths = {key: str(directory / path) for key in _PATHS if (path := getattr(here, key))}
    mine: dict[str, Any] = {**kept, **paths, "is_here": True}
    nodes = tuple(replace(node, **mine) if node == here else node for node in description.nodes)
    return replace(description, directory=str(directory), nodes=nodes)


def write(description: Cluster, directory: Path) -> Cluster:
    """Write a description and its secret into a directory, from which both are copied to the hosts. Returns the cluster
    for requests to its nodes from here. Raises :class:`ClusterError` if the directory has a cluster."""
    directory = directory.absolute()
    if is_kept(directory) or (directory / DESCRIPTION_FILE).exists():
        raise ClusterError("there is a cluster already", str(directory), "choose another directory, or remove this one")
    cluster = replace(description, directory=str(directory))
    make_secret(cluster)
    save(cluster, DESCRIPTION_FILE)
    return cluster


def _before(description: Cluster, directory: Path, here: Node) -> Node | None:
    """The node in the host's earlier record; None if it was not adopted before."""
    if not is_kept(directory):
        return None
    kept = load(directory)
    if kept.cluster != description.cluster:
        what = f"this directory belongs to another cluster: {kept.cluster}, not {description.cluster}"
        raise ClusterError(
            what, str(directory), "name another directory, or stop that cluster and remove its directory"
        )
    before = next((node for node in kept.nodes if node.is_here), None)
    if before is not None and before.name != here.name:
        what = f"this directory belongs to {before.name}, not to {here.name}"
        raise ClusterError(what, str(directory), "give each node of a host a directory of its own")
    return before


def _problems(places: Sequence[NodePlace]) -> list[str]:
    found = []
    if len(places) not in _COUNTS:
        found.append(f"{len(places)} nodes: an even number tolerates no more failures than one fewer; use 1, 3 or 5")
    taken: dict[object, str] = {}
    for place in places:
        if not _NAME.fullmatch(place.name):
            found.append(f"name {place.name!r}: must consist of letters, digits, dots and hyphens")
        if place.address in _WILDCARDS:
            found.append(f"{place.name}: address {place.address!r}: must be one that the other nodes can connect to")
        if len(place.ports) != len(PORT_ROLES):
            found.append(f"{place.name}: {len(place.ports)} ports: must be {', '.join(PORT_ROLES)}")
        for what in (f"name {place.name}", *(f"{place.address}, port {port}" for port in place.ports if port)):
            if what in taken:
                found.append(f"{place.name}: {what}: {taken[what]} has it, too")
            taken[what] = place.name
    return found


def _node(number: int, place: NodePlace) -> Node:
    role = place.directories.get

    def own(key: str) -> str:
        return str(Path(place.directories[key]) / place.name) if role(key) else ""

    ports: dict[str, Any] = dict(zip(PORT_ROLES, place.ports, strict=True))
    return Node(
        node=number,
        name=place.name,
        host=place.address,
        addresses=dict(place.addresses),
        is_here=False,
        data_dir=place.name,
        log_file=str(Path(own("logs_dir") or place.name) / "node.log"),
        wal_dir=own("wal_dir"),
        segment_dir=own("segment_dir"),
        store_dir=own("store_dir"),
        classic_dir=own("classic_dir"),
        **ports,
    )
