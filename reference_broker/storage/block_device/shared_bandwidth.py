"""The bandwidth that the drives of one machine share, for drives that each have a process of their own.

The processes share eight octets of memory, by a file that they inherit. Their clock is one, too: ``time.monotonic_ns``.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import Final

from reference_broker.storage.drives.model import InstanceCap

_FREE_NS: Final = struct.Struct("=q")


class SharedBandwidth(InstanceCap):
    """An :class:`InstanceCap` whose state is in the file ``fd``, which is empty at first."""

    def __init__(self, octets_per_second: int, fd: int) -> None:
        super().__init__(octets_per_second)
        self._fd = fd
        os.ftruncate(fd, _FREE_NS.size)  # gives zeros the first time, and changes nothing later
        self._shared = mmap.mmap(fd, _FREE_NS.size)

    def over(self, now_ns: int, octets: int) -> int:
        """When octets that were submitted now are through, behind those of the other processes."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            (self._free_ns,) = _FREE_NS.unpack_from(self._shared)
            over_ns = super().over(now_ns, octets)
            _FREE_NS.pack_into(self._shared, 0, self._free_ns)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        return over_ns
