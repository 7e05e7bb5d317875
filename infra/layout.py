"""Where the nodes of a local cluster keep their files, and what is checked of the drives before a node starts.

A :class:`PlacedLayout` is plain values, made by the reader of layout files. Its paths may hold ``{node}``, which stands
for the name of a node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from infra.cluster import Directories

NODE: Final = "{node}"
ROLES: Final = ("data", "logs", "segment", "wal")
"""The roles that every layout places. Classic queues lie with the data unless the layout places them, too."""
_KEYS: Final = {role: f"{role}_dir" for role in (*ROLES, "classic")}
"""The directory of each role that a node can keep apart."""
TWIN_SIZES_MB: Final = {"data": 128, "logs": 64, "segment": 512, "wal": 1280, "classic": 256}
"""Room of each role on the FUSE twin of a modelled drive. RabbitMQ's write-ahead log has files of 512 MiB, and begins
the next file before the last one is removed."""


class DriveFault(NamedTuple):
    """Why a drive cannot be used, and what to do: ``drive`` is its name."""

    drive: str
    value: str
    rule: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDrive:
    """A directory for the files of nodes, or a drive that each node models.

    ``is_mount``: ``path`` must be a mount point, on a device of its own. A modelled drive has no path: its files lie in
    the cluster's own directory, and ``profile`` is its profile in the configuration of a node. A FUSE drive has a size
    and a profile, and gets its path when it is made (:mod:`infra.fuse_layout`).
    """

    name: str
    path: str = ""
    is_mount: bool = False
    profile: str | dict[str, int] = ""
    size_mb: int = 0

    @property
    def place(self) -> str:
        """The path, or the profile, for a line of text."""
        model = f"modelled {self.profile if isinstance(self.profile, str) else 'with figures of its own'}"
        return f"FUSE, {model}, {self.size_mb} MiB" if self.size_mb else self.path or model

    def of_node(self, node: str) -> Path:
        """The directory of one node's drive."""
        return Path(self.path.replace(NODE, node)).absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLayout:
    """Drives, the drive of each role, and the I/O policy of the nodes. ``name`` and ``text`` describe the layout.

    ``octets_per_second`` is the bandwidth of all modelled drives, or of all FUSE drives, of a node together; 0: no
    limit.
    """

    name: str
    drives: tuple[PlacedDrive, ...]
    roles: dict[str, str]
    io: str = "dedicated"
    octets_per_second: int = 0

    @property
    def with_paths(self) -> tuple[PlacedDrive, ...]:
        """The drives that are not modelled."""
        return tuple(drive for drive in self.drives if drive.path)

    @property
    def pool_threads(self) -> int:
        """The threads of the I/O pool; 0: none, but a thread for each store."""
        return int(self.io.removeprefix("pool:")) if self.io.startswith("pool:") else 0

    @property
    def fuse(self) -> tuple[PlacedDrive, ...]:
        """The FUSE drives, whether they are made or not."""
        return tuple(drive for drive in self.drives if drive.size_mb)

    @property
    def text(self) -> str:
        """The layout in a line: ``fast (/mnt/fast) wal; disk (/mnt/disk) data, logs, segment; io dedicated``."""
        parts = [
            f"{drive.name} ({drive.place}) {', '.join(role for role, name in self.roles.items() if name == drive.name)}"
            for drive in self.drives
        ]
        return "; ".join([f"{self.name}: {parts[0]}", *parts[1:], f"io {self.io}"])


def twin(layout: PlacedLayout) -> PlacedLayout:
    """The layout with a FUSE drive in place of each drive that nodes would model, with the same figures."""
    return replace(layout, drives=tuple(_twin_of(drive, layout) for drive in layout.drives))


def _twin_of(drive: PlacedDrive, layout: PlacedLayout) -> PlacedDrive:
    if drive.path or drive.size_mb:
        return drive
    return replace(drive, size_mb=sum(TWIN_SIZES_MB[role] for role, on in layout.roles.items() if on == drive.name))


def memory_mb(layout: PlacedLayout, nodes: int) -> int:
    """The memory that the FUSE drives of so many nodes take when they are full, in MiB."""
    return nodes * sum(drive.size_mb for drive in layout.fuse)


def faults(layout: PlacedLayout, nodes: Sequence[str]) -> list[DriveFault]:
    """Everything about the drives of these nodes that would spoil a measurement or a start."""
    return [*_unusable(layout, nodes), *_shared(layout, nodes)]


def _unusable(layout: PlacedLayout, nodes: Sequence[str]) -> Iterator[DriveFault]:
    for drive in layout.with_paths:
        for path in dict.fromkeys(drive.of_node(node) for node in nodes):
            where = str(path)
            if drive.is_mount and not os.path.ismount(path):
                rule = f"drive {drive.name}: {where} is no mount point" if path.exists() else f"there is no {where}"
                yield DriveFault(
                    drive.name, where, rule, "mount the drive there, or write directory: for a plain directory"
                )
            elif not drive.is_mount and path.exists() and not path.is_dir():
                yield DriveFault(drive.name, where, f"drive {drive.name}: {where} is no directory", "name a directory")
            elif not os.access(_nearest(path), os.W_OK | os.X_OK):
                rule = f"drive {drive.name}: {where} cannot be written"
                yield DriveFault(drive.name, where, rule, "give this user the directory, or name another")


def _shared(layout: PlacedLayout, nodes: Sequence[str]) -> Iterator[DriveFault]:
    """Two drives of a node that are one device, although one of them claims to be a device of its own."""
    for node in nodes:
        seen: dict[int, PlacedDrive] = {}
        for drive in sorted(layout.with_paths, key=lambda each: not each.is_mount):
            path = _nearest(drive.of_node(node))
            other = seen.setdefault(path.stat().st_dev, drive)
            if other is not drive and other.is_mount:
                rule = f"drives {other.name} and {drive.name} are one device, and the layout says two"
                yield DriveFault(drive.name, str(path), rule, "mount another device, or place their roles on one drive")
        if not any(NODE in drive.path for drive in layout.drives):
            return


def _nearest(path: Path) -> Path:
    """The path itself, or the directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def directories(layout: PlacedLayout, cluster: str) -> Directories:
    """The directories of a cluster with this identity: one for each role of each node, below the drive's directory."""
    paths = {drive.name: str(Path(drive.path).absolute()) for drive in layout.with_paths}
    placed = {role: paths[layout.roles[role]] for role in _KEYS if layout.roles.get(role) in paths}
    return Directories(
        **{_KEYS[role]: str(Path(path) / cluster / role) for role, path in placed.items()},
        io=layout.io,
        layout=layout.text,
        drives=[*modelled(layout)],
        instance_octets_per_second=0 if layout.fuse else layout.octets_per_second,
        fuse=fuse_directories(layout),
    )


def fuse_directories(layout: PlacedLayout) -> dict[str, str]:
    """The directories of the FUSE drives by the drives' names, once the drives are made. Paths hold ``{node}``."""
    return {drive.name: str(Path(drive.path).parent) for drive in layout.fuse if drive.path}


def real_places(layout: PlacedLayout) -> dict[str, Path]:
    """The directory or mount point of each role, for a broker that takes no modelled drives. Paths may hold
    ``{node}``."""
    paths = {drive.name: Path(drive.path).absolute() for drive in layout.with_paths}
    return {role: paths[name] for role, name in layout.roles.items()}


def directories_elsewhere(layout: PlacedLayout) -> Directories:
    """The parts of a layout for nodes on other hosts: all except the places of files, which each host has for
    itself."""
    return Directories(
        io=layout.io,
        layout=layout.text,
        drives=[*modelled(layout)],
        instance_octets_per_second=layout.octets_per_second,
    )


def modelled(layout: PlacedLayout) -> Iterator[dict[str, Any]]:
    """The modelled drives as in the configuration of a node, which models no drive for its log file."""
    for drive in layout.drives:
        roles = [role for role, name in layout.roles.items() if name == drive.name and role != "logs"]
        if not drive.path and roles:
            yield {"name": drive.name, "profile": drive.profile, "roles": roles}


def roots(layout: PlacedLayout, nodes: Sequence[str]) -> list[Path]:
    """The directory of every drive of these nodes."""
    return list(dict.fromkeys(drive.of_node(node) for drive in layout.with_paths for node in nodes))
