"""The mounts, from the kernel's table. A mount whose program has died, or whose server is gone, cannot be asked."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

_TABLE: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""A space or another special character in the table."""


class Mount(NamedTuple):
    """A mount: its mount point, the kind of its file system, what is mounted, and the number of the device."""

    point: str
    kind: str
    source: str
    device: int


def mounts() -> list[Mount]:
    """All mounts; none where the kernel has no such table."""
    try:
        lines = _TABLE.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # not Linux: nothing of ours is mounted
        return []
    return [_mount(line) for line in lines]


def mounts_below(directory: Path) -> list[str]:
    """The mount points in a directory."""
    inside = f"{directory.absolute()}/"
    return [each.point for each in mounts() if each.point.startswith(inside)]


def mounted_at(device: int) -> list[str]:
    """The mount points of a device. A bind mount has the device of its source."""
    return [each.point for each in mounts() if each.device == device]


def other_namespaces(source: str) -> list[int]:
    """A process of each other mount namespace in which something is mounted from ``source``, such as ``/dev/loop0``."""
    found = {Path("/proc/self/ns/mnt").stat().st_ino: 0}
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):  # ended meanwhile, or not ours to look at
            namespace = (table.parent / "ns/mnt").stat().st_ino
            if namespace not in found and f" {source} " in table.read_text(encoding="utf-8", errors="replace"):
                found[namespace] = int(table.parent.name)
    return [pid for pid in found.values() if pid]


def _mount(line: str) -> Mount:
    before, _separator, behind = line.partition(" - ")
    fields = before.split()
    kind, source = behind.split()[:2]
    major, minor = map(int, fields[2].split(":"))
    return Mount(_ESCAPED.sub(_unescaped, fields[4]), kind, source, os.makedev(major, minor))


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))
