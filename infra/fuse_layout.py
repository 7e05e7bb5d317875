"""The FUSE drives of a layout: made before the nodes start, and taken apart after the nodes have ended.

Every node has drives of its own. In a layout with drives that are made, the path of each is a mount point with the name
of the node, so the code that starts nodes on such a layout sees only mounts.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from infra import drives
from infra.drives import BlockDrive, DriveError
from infra.layout import NODE, PlacedLayout
from infra.mounts import mounts_below
from infra.register import Register, UndoKind

_TEMPORARY: Final = ".drives-"
KEPT: Final = "drives"
"""The directory of the FUSE drives of a cluster that keeps running."""


@contextlib.contextmanager
def made(layout: PlacedLayout, parent: Path, nodes: Sequence[str]) -> Iterator[PlacedLayout]:
    """The layout with its FUSE drives made, in a directory of their own below ``parent``, until the end of the ``with``
    block. The register of ``parent`` names the remains of a crash. Raises :class:`DriveError`."""
    if not layout.fuse:
        yield layout
        return
    place = parent.absolute() / f"{_TEMPORARY}{secrets.token_hex(4)}"
    register = Register(parent)
    register.note(UndoKind.DIRECTORY, str(place))
    try:
        with contextlib.ExitStack() as undo:
            for drive in _making(layout, place, nodes):
                undo.callback(drives.remove, drive)
            yield _on(layout, place)
    finally:
        is_free = not mounts_below(place)  # else a drive could not be taken apart, and the next cleaning tries again
        if is_free:
            with contextlib.suppress(OSError):
                place.rmdir()
        register.settle(UndoKind.DIRECTORY, str(place), is_gone=is_free)


def keep(layout: PlacedLayout, directory: Path, nodes: Sequence[str], *, is_new: bool) -> PlacedLayout:
    """The layout of a cluster in ``directory`` that keeps running, with its FUSE drives. Those of a new cluster are
    made, and stay until ``perftest broker clean --kept``. Raises :class:`DriveError`; then none of them is left."""
    place = directory.absolute() / KEPT
    if layout.fuse and is_new:
        with contextlib.ExitStack() as undo:
            for drive in _making(layout, place, nodes):
                undo.callback(drives.remove, drive)
                drives.keep(drive)
            undo.pop_all()
    return _on(layout, place)


def give_up(directory: Path) -> None:
    """Take the drives of a cluster apart that could not be started. Raises :class:`DriveError`."""
    place = directory.absolute() / KEPT
    if place.exists() and drives.clean(place):
        with contextlib.suppress(OSError):
            place.rmdir()


def require(directory: Path, files: Iterable[str]) -> None:
    """Raise :class:`DriveError` unless the FUSE drives that hold ``files`` of the cluster in ``directory`` are mounted.
    Without its drive a node would write to whatever is below the mount point."""
    place = directory.absolute() / KEPT
    for path in sorted(map(Path, files)):
        if not path.is_relative_to(place):
            continue
        drive = BlockDrive(place / path.relative_to(place).parts[0])
        if not drive.files.is_mount():
            what = "a FUSE drive of this cluster is gone: it was in memory, and the machine or the drive has ended"
            fix = f"give the cluster up with `perftest broker clean --kept {directory}`, and start one in another --dir"
            raise DriveError(what, str(drive.files), fix)


def _making(layout: PlacedLayout, place: Path, nodes: Sequence[str]) -> Iterator[BlockDrive]:
    """Make the drives of each node, which share the bandwidth of the layout, and give each when it is there."""
    for node in nodes:
        with drives.bandwidth_of(layout.octets_per_second) as bandwidth:
            for each in layout.fuse:
                yield drives.make(place / f"{node}-{each.name}", each.size_mb, each.profile, bandwidth)


def _on(layout: PlacedLayout, place: Path) -> PlacedLayout:
    """The layout with the mount points below ``place``."""
    found = [replace(drive, path=f"{place}/{NODE}-{drive.name}/files", is_mount=True) if drive.size_mb else drive
             for drive in layout.drives]  # fmt: skip
    return replace(layout, drives=tuple(found))
