"""Alarms of a node: too little disk, too much memory. While one is on, connections that publish are not read.

As in RabbitMQ, but for this node alone: a publishing connection is stopped at its first publish after the alarm began,
told so with connection.blocked if it understands that, and read again when the last alarm has cleared. Connections
that only consume go on, and so the backlog that fills the node can shrink.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil

from reference_broker.node.config import Limits

log = logging.getLogger(__name__)

LOW_ON_DISK: Final = "low on disk"
LOW_ON_MEMORY: Final = "low on memory"
"""The reasons that clients read, in RabbitMQ's words."""


def resident_bytes() -> int:
    """Octets of memory that this process holds."""
    return int(psutil.Process().memory_info().rss)


def free_bytes(directory: Path) -> int:
    """Octets free on the drive of a directory, for who is not root. Raises OSError."""
    return shutil.disk_usage(directory).free


class Alarms:
    """What is wrong with the node now. ``check`` is to be called every ``alarm_check_ms``."""

    def __init__(
        self,
        limits: Limits,
        directories: Sequence[Path],
        *,
        memory: Callable[[], int] = resident_bytes,
        disk: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._limits = limits
        self._directories = tuple(directories)
        self._memory = memory
        self._disk = disk
        self.reason = ""
        """Why publishers are stopped; empty when they are not."""

    def check(self) -> bool:
        """Look again; whether the reason is another than before."""
        reason = " & ".join(self._found())
        if reason == self.reason:
            return False
        if reason:
            log.warning("publishing connections are stopped: %s", reason)
        else:
            log.info("publishing connections go on")
        self.reason = reason
        return True

    def _found(self) -> list[str]:
        found = []
        if any(self._free(directory) < self._limits.disk_free_bytes_min for directory in self._directories):
            found.append(LOW_ON_DISK)
        if self._memory() > self._limits.memory_bytes_max:
            found.append(LOW_ON_MEMORY)
        return found

    def _free(self, directory: Path) -> int:
        try:
            return self._disk(directory)
        except OSError as error:
            log.warning("cannot ask for the free space of %s: %s", directory, error)
            return self._limits.disk_free_bytes_min
