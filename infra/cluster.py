"""The description of a local cluster: its nodes and their files.

In the cluster's directory lies ``secret``, with which the nodes authenticate each other. Only the user who started the
cluster can read the secret, and no other file repeats it. :mod:`infra.cluster_file` keeps the description.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from infra.ports import HOST
from perftest.errors import HelpfulError

SECRET_FILE: Final = "secret"
_SECRET_OCTETS: Final = 32
PORT_ROLES: Final = ("amqp_port", "peer_port", "control_port", "metrics_port")
PORT_OFFSETS: Final = (0, 100, 200, 300)
_DATA: Final = "data"
_OF_LAYOUT: Final = ("io", "drives", "instance_octets_per_second")
"""Keys of ``node.json`` that a layout sets."""


class ClusterError(HelpfulError):
    """A cluster cannot be started, found, asked or stopped."""

    def __init__(self, what: str, where: str, fix: str, code: int = 1) -> None:
        super().__init__(what, where, fix)
        self.code = code


class SecretError(ClusterError):
    """The secret of a cluster cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directories:
    """Directories for the nodes' files; each node has a subdirectory. Empty: in the cluster's directory.

    ``{node}`` in a path stands for the name of the node. ``io`` is the I/O policy of the nodes; empty: their default.
    ``layout`` describes the layout that the directories come from. ``drives`` are modelled drives and their roles, as
    in the configuration of a node, and ``instance_octets_per_second`` is their bandwidth together. ``fuse`` are the
    directories of FUSE drives, by the drives' names.
    """

    wal_dir: str = ""
    segment_dir: str = ""
    logs_dir: str = ""
    data_dir: str = ""
    classic_dir: str = ""
    io: str = ""
    layout: str = ""
    drives: list[dict[str, Any]] = field(default_factory=list)
    instance_octets_per_second: int = 0
    fuse: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node process. ``start_time`` identifies the process together with ``pid``.

    ``data_dir`` is the node's own directory; metadata and snapshots lie in ``store_dir``, which is its subdirectory
    ``data`` if empty. An empty ``wal_dir`` stands for ``data_dir/wal``, an empty ``segment_dir`` for a directory beside
    the snapshots, and an empty ``classic_dir`` for another one there.
    ``metrics_port`` 0 stands for no port. ``first_life`` is the first boot id of a node that was replaced, as the
    cluster answered it; 0 for a node that was never replaced.

    ``host`` is the address that the node advertises, and ``addresses`` are further addresses by their keys in
    ``node.json`` (``bind``, ``control_host``). A node that is not ``is_here`` runs on another host: ``pid``,
    directories and log file mean something only there.
    """

    node: int
    name: str
    amqp_port: int
    peer_port: int
    control_port: int
    data_dir: str
    log_file: str
    metrics_port: int = 0
    wal_dir: str = ""
    segment_dir: str = ""
    store_dir: str = ""
    classic_dir: str = ""
    pid: int = 0
    start_time: int = 0
    first_life: int = 0
    host: str = HOST
    addresses: dict[str, str] = field(default_factory=dict)
    is_here: bool = True

    @property
    def uri(self) -> str:
        """The URI to which clients connect."""
        host = self.addresses.get("amqp_host", self.host)
        return f"amqp://guest:guest@{f'[{host}]' if ':' in host else host}:{self.amqp_port}/%2f"

    @property
    def control_address(self) -> tuple[str, int]:
        """The host and the port for requests of operators."""
        return self.addresses.get("control_host", self.host), self.control_port

    def bound(self, role: str) -> str:
        """The address that the node listens on for a port of :data:`PORT_ROLES`."""
        own, advertised = role.replace("port", "bind"), role.replace("port", "host")
        known = self.addresses
        return known.get(own) or known.get("bind") or known.get(advertised) or self.host

    def paths(self) -> dict[str, str]:
        """The directory for each kind of file."""
        data_dir = self.store_dir or str(Path(self.data_dir) / _DATA)
        return {
            "data_dir": data_dir,
            "wal_dir": self.wal_dir or str(Path(self.data_dir) / "wal"),
            "segment_dir": self.segment_dir or f"{data_dir}/segments",
            "classic_dir": self.classic_dir or f"{data_dir}/classic",
            "logs_dir": str(Path(self.log_file).parent),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes of one cluster and the directory that holds their data."""

    cluster: str
    directory: str
    nodes: tuple[Node, ...]
    directories: Directories = Directories()
    limits: dict[str, int] = field(default_factory=dict)
    """Limits of all nodes, by their names in ``node.json``; missing ones have their defaults."""
    tls: str = ""
    """The directory with certificates and keys, relative to the cluster's; empty: no TLS. It holds ``ca.pem``, and for
    each node ``NAME.pem`` and ``NAME.key``."""

    @property
    def secret_file(self) -> Path:
        """The path of the nodes' secret."""
        return Path(self.directory) / SECRET_FILE

    def secret(self) -> bytes:
        """The secret that nodes and operators prove to each other to have. Raises :class:`SecretError`."""
        path = self.secret_file
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise SecretError(
                        "the secret of the cluster is open to other users", str(path), f"chmod 600 {path}"
                    )
                secret = file.read().strip()
        except OSError as error:
            what = f"the secret of the cluster cannot be read: {error.strerror}"
            raise SecretError(
                what, str(path), "use the account that started the cluster, or copy the secret"
            ) from error
        if len(secret) < _SECRET_OCTETS:
            fix = "copy the file from the host on which the cluster was described"
            raise SecretError(f"the secret of the cluster has less than {_SECRET_OCTETS} octets", str(path), fix)
        return secret

    def tls_files(self, name: str) -> dict[str, str]:
        """The certificate of a node, its key and the authority; empty without TLS."""
        if not self.tls:
            return {}
        folder = Path(self.directory) / self.tls
        return {key: str(folder / file) for key, file in
                (("certificate", f"{name}.pem"), ("key", f"{name}.key"), ("ca", "ca.pem"))}  # fmt: skip

    @property
    def uris(self) -> tuple[str, ...]:
        """The AMQP URIs of all nodes."""
        return tuple(node.uri for node in self.nodes)

    def node(self, name: str) -> Node:
        """The node with this name or number. Raises :class:`ClusterError`."""
        for node in self.nodes:
            if name in (node.name, str(node.node)):
                return node
        names = ", ".join(node.name for node in self.nodes)
        raise ClusterError(f"there is no node {name!r} in this cluster", self.directory, f"name one of {names}", code=2)


def make_secret(cluster: Cluster) -> None:
    """Write the secret of the cluster completely or not at all, unless it exists. Raises :class:`ClusterError`."""
    path = cluster.secret_file
    if path.exists():
        return
    beside = path.with_name(f".{SECRET_FILE}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        beside.touch(mode=0o600, exist_ok=False)
        with beside.open("w", encoding="utf-8") as file:
            file.write(secrets.token_hex(_SECRET_OCTETS) + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        what = f"the secret of the cluster cannot be written: {error.strerror}"
        raise ClusterError(what, str(error.filename or path), "choose a directory that can be written") from error


def plan(
    directory: Path,
    identity: str,
    ports: Sequence[Sequence[int]],
    directories: Directories,
    before: Cluster | None = None,
) -> Cluster:
    """A cluster with the paths and ports of its nodes (a row of :data:`PORT_ROLES` for each node), without processes.

    ``before`` is the cluster whose data the nodes continue with; it has as many nodes. On a modelled drive, classic
    queues never lie in a ``data_dir`` of ``directories``, because that is on a real drive.
    """
    is_modelled = any("classic" in drive["roles"] for drive in directories.drives)

    def own(role: str, name: str) -> str:
        return str(Path(role.replace("{node}", name)) / name) if role else ""

    nodes = [
        Node(
            node=number,
            name=(name := f"node{number}"),
            data_dir=str(directory / name),
            log_file=str(Path(own(directories.logs_dir, name) or directory / name) / "node.log"),
            wal_dir=own(directories.wal_dir, name),
            segment_dir=own(directories.segment_dir, name),
            store_dir=own(directories.data_dir, name),
            classic_dir=own(directories.classic_dir, name)
            or (str(directory / name / "classic") if is_modelled and directories.data_dir else ""),
            first_life=before.nodes[number - 1].first_life if before else 0,
            **_ports(row),
        )
        for number, row in enumerate(ports, start=1)
    ]
    return Cluster(cluster=identity, directory=str(directory), nodes=tuple(nodes), directories=directories)


def _ports(row: Sequence[int]) -> dict[str, Any]:
    return dict(zip(PORT_ROLES, row, strict=True))


def kept_directories(before: Cluster, asked: Directories) -> Directories:
    """The directories of an existing cluster. Raises :class:`ClusterError` if other directories are asked for."""
    if asked.layout and asked != before.directories:
        there = before.directories.layout or "no layout"
        what = f"this cluster was started with another layout: {there}"
        raise ClusterError(what, before.directory, "leave --layout out, or use another --dir")
    for role in fields(Directories):
        there, wanted = getattr(before.directories, role.name), getattr(asked, role.name)
        if wanted and wanted != there:
            option = "--" + role.name.replace("_", "-")
            what = f"this cluster was started with {option} {there}" if there else f"this cluster has no {option}"
            fix = f"leave {option} out, or use another --dir"
            raise ClusterError(f"{what}, not with {wanted}", before.directory, fix)
    return before.directories


def _is_on_loopback(cluster: Cluster) -> bool:
    """Whether all nodes listen on this machine only. Clients of other nodes come from other hosts, with the user guest
    by default."""
    hosts = {value for node in cluster.nodes for value in (node.host, *node.addresses.values())}
    return all(host == "localhost" or host.startswith("127.") or host == "::1" for host in hosts)


def node_config(cluster: Cluster, node: Node, *, exit_with_stdin: bool) -> dict[str, Any]:
    """The ``node.json`` of a node."""
    members = [
        {"node": other.node, "name": other.name, "host": other.host, **other.addresses}
        | {role: getattr(other, role) for role in PORT_ROLES}
        for other in cluster.nodes
    ]
    return {
        "name": node.name,
        "node": node.node,
        "cluster": cluster.cluster,
        "nodes": members,
        **node.paths(),
        **({} if _is_on_loopback(cluster) else {"loopback_users": []}),
        "exit_with_stdin": exit_with_stdin,
        "first_life": node.first_life,
        "secret_file": str(cluster.secret_file),
        **({"limits": cluster.limits} if cluster.limits else {}),
        **({"tls": files} if (files := cluster.tls_files(node.name)) else {}),
        **{key: value for key in _OF_LAYOUT if (value := getattr(cluster.directories, key))},
    }
