"""A modelled drive on the wall clock: operations last as long as the model says, and can be made to fail.

The calling thread blocks until the time that the model gave. A thread that wakes up late and asks for the next
operation at once begins the operation where the former one ended (:mod:`~reference_broker.storage.drives.catching_up`),
so small lateness does not add up. The lateness of each operation is counted beside its due length; if operations are
late by a good part of their length, the figures show the machine, not the drive.

All threads of a node share the drive under one lock, which is held for the microseconds of a call to the model.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from reference_broker.storage.drives.catching_up import CatchingUp
from reference_broker.storage.drives.journal import JournaledFile, JournalModel
from reference_broker.storage.drives.model import DriveModel, InstanceCap
from reference_broker.storage.drives.profiles import DriveProfile
from reference_broker.storage.drives.punctuality import BusyTime, Punctuality, median_ns
from reference_broker.storage.precise_sleep import sleep_until

RESERVE: Final = 256 << 20
"""Octets that a full drive keeps for the writes that its users need to go on."""


Purpose = Counter[str]
"""Operations of one purpose of a node (WAL, segments, data) on its drive: the keys of ``COUNTED``."""
COUNTED: Final = ("syncs", "dir_syncs", "reads", "write_octets", "read_octets")


class _Thread(threading.local):
    """The drive's state of the calling thread."""

    def __init__(self) -> None:
        self.catching_up = CatchingUp()


class ModelledDrive:
    """One drive of one node. Methods may be called from any thread."""

    def __init__(
        self,
        name: str,
        profile: DriveProfile,
        cap: InstanceCap | None = None,
        *,
        now_ns: Callable[[], int] = monotonic_ns,
        sleep_until: Callable[[int], int] = sleep_until,
    ) -> None:
        self.name = name
        self.purposes: dict[str, Purpose] = {}
        self._configured = self._bought = profile
        self._model = DriveModel(profile, cap)
        self._journal = JournalModel(self._model)
        self._now_ns = now_ns
        self._thread = _Thread()
        self._latest_ns = 0
        self._busy = BusyTime()
        self._sleep_until = sleep_until
        self._lock = threading.Lock()
        self._room: int | None = None
        self._failing = False
        self._clear_times()

    # Requests of files

    def create(self, path: str) -> JournaledFile:
        """A new file."""
        with self._lock:
            self._check(path)
            return self._journal.create(self._time_ns())

    def known(self, octets: int) -> JournaledFile:
        """A file that was there before."""
        with self._lock:
            return self._journal.known(octets)

    def remove(self, file: JournaledFile, path: str) -> None:
        """A file goes."""
        with self._lock:
            self._check(path)
            octets = file.allocated
            self._journal.remove(self._time_ns(), file)
            if self._room is not None:
                self._room += octets

    def change_names(self, path: str) -> None:
        """A name is changed."""
        with self._lock:
            self._check(path)
            self._journal.change_names(self._time_ns())

    def write(self, purpose: Purpose, file: JournaledFile, offset: int, octets: int, path: str) -> None:
        """Write into the page cache. Raises OSError: no space left, or the drive fails."""
        with self._lock:
            self._check(path)
            if self._room is not None:
                grows = self._journal.grows_by(file, offset, octets)
                if grows > self._room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                self._room -= grows
            self._journal.write(self._time_ns(), file, offset, octets)
            purpose["write_octets"] += octets

    def datasync(self, purpose: Purpose, file: JournaledFile, path: str) -> None:
        """Last as long as a sync of the file. Raises OSError."""
        self._last(lambda now_ns: self._journal.datasync(now_ns, file), path, purpose, "syncs")

    def sync_dir(self, purpose: Purpose, path: str) -> None:
        """Last as long as a sync of a directory. Raises OSError."""
        self._last(self._journal.sync_dir, path, purpose, "dir_syncs")

    def read(self, purpose: Purpose, file: JournaledFile, offset: int, octets: int, path: str) -> None:
        """Last as long as a read. Raises OSError."""
        self._last(lambda now_ns: self._journal.read(now_ns, file, offset, octets), path, purpose, "reads")
        purpose["read_octets"] += octets

    # Requests of operators

    @property
    def full(self) -> bool:
        """Whether the drive tells that it has no room."""
        return self._room is not None

    def use(self, profile: DriveProfile) -> None:
        """The drive is of this kind from now on."""
        with self._lock:
            self._bought = profile
            self._change(profile)

    def slow(self, factor: float) -> None:
        """Everything takes ``factor`` times as long as on the drive of the configuration; 1 ends that."""
        with self._lock:
            self._change(self._bought if factor == 1 else self._bought.slowed(factor))

    def fill(self, reserve: int = RESERVE) -> None:
        """No room is left, except ``reserve`` octets that the drive does not report."""
        with self._lock:
            self._room = reserve

    def free(self) -> None:
        """There is room again."""
        with self._lock:
            self._room = None

    def fail(self) -> None:
        """Every operation fails with EIO from now on."""
        with self._lock:
            self._failing = True

    def heal(self) -> None:
        """The drive works again. What failed stays failed."""
        with self._lock:
            self._failing = False

    def restore(self) -> None:
        """The drive is again as configured: its profile, its speed, with room, and it works."""
        self.free()
        self.heal()
        self.use(self._configured)

    def status(self) -> dict[str, Any]:
        """The drive as JSON: its profile, its faults, its lateness, and its use."""
        with self._lock:
            profile = self._model.profile
            status: dict[str, Any] = {
                "name": self.name,
                "profile": profile.name,
                "full": self.full,
                "failing": self._failing,
                **self._punctuality.figures(),
                "commits": self._journal.commits,
                "busy_ns": self._busy.ns,
                "purposes": {name: {key: counts[key] for key in COUNTED} for name, counts in self.purposes.items()},
            }
            if profile.credit_tokens:
                status["credits"] = self._model.credits(self._now_ns())
            return status

    # Underneath

    def _change(self, profile: DriveProfile) -> None:
        self._model.change(profile)
        self._clear_times()

    def _clear_times(self) -> None:
        """Lengths of another profile would judge the operations of this one."""
        self._punctuality = Punctuality(median_ns)

    def _check(self, path: str) -> None:
        if self._failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _time_ns(self) -> int:
        """The calling thread's place on the drive's line of time, which never goes back."""
        self._latest_ns = max(self._latest_ns, self._thread.catching_up.time_ns(self._now_ns()))
        return self._latest_ns

    def _last(self, operation: Callable[[int], int], path: str, purpose: Purpose, kind: str) -> None:
        """Have an operation last as long as the model says."""
        with self._lock:
            self._check(path)
            purpose[kind] += 1
            began_ns = self._time_ns()
            over_ns = operation(began_ns)
            self._busy.add(began_ns, over_ns)
        if over_ns <= began_ns:
            return
        woke_ns = self._sleep_until(over_ns)
        self._thread.catching_up.ended(began_ns, over_ns, woke_ns)
        with self._lock:
            self._check(path)
            self._punctuality.add(over_ns - began_ns, max(0, woke_ns - over_ns))
