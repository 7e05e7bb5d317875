"""A disk in memory with a drive's timing, a volatile write cache and faults. Pure: the caller gives time and chance.

Invariant: a block that is not in ``_before`` is durable as it is. A power cut may bring any block in ``_before`` back
to its content at the last flush, and no other block. Blocks are atomic: the cut never splits one.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from random import Random

BLOCK_BYTES: Final = 4096


class RequestTimes(Protocol):
    """When a drive is done with a request. Times are nanoseconds on the caller's clock."""

    def submit(self, now_ns: int, lba: int, octets: int, write: bool) -> int:
        """When a transfer of ``octets`` at ``lba`` (in octets) is done that was asked for at ``now_ns``."""

    def flush(self, now_ns: int) -> int:
        """When a flush is done that was asked for at ``now_ns``."""


class Image(Protocol):
    """The octets of a disk, as ``mmap`` and ``bytearray`` hold them."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> bytes | bytearray: ...

    def __setitem__(self, span: slice, octets: bytes, /) -> None: ...


@dataclass(slots=True)
class Faults:
    """The faults of a disk. Counts go down by one with each request that the fault hits.

    ``write_errors``, ``flush_errors``: the number of next writes or flushes that fail with EIO, and change nothing.
    ``rotten_reads``: the number of next reads that come back with one bit turned. ``slow_ns``: added to every request.
    """

    write_errors: int = 0
    flush_errors: int = 0
    rotten_reads: int = 0
    slow_ns: int = 0


FAULTS: Final = tuple(field.name for field in fields(Faults))


@dataclass(slots=True)
class Counts:
    """Requests to a disk since its start."""

    reads: int = 0
    writes: int = 0
    flushes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The end of a request: at ``done_ns``, with ``errno`` (0 if all went well), and with the octets of a read."""

    done_ns: int
    errno: int = 0
    data: bytes = b""


class Disk:
    """A disk over ``image``, whose length is a multiple of ``BLOCK_BYTES``. Without a drive it takes no time."""

    def __init__(self, image: Image, chance: Random, drive: RequestTimes | None = None) -> None:
        if len(image) % BLOCK_BYTES:
            raise ValueError(f"a disk has whole blocks of {BLOCK_BYTES} octets, not {len(image)} octets")
        self.size_bytes: Final = len(image)
        self.faults = Faults()
        self.counts = Counts()
        self.drive = drive
        """May be changed at any time."""
        self.dead = False
        self._image = image
        self._before: dict[int, bytes] = {}
        self._chance = chance

    @property
    def unflushed_blocks(self) -> int:
        """Number of blocks that a power cut could lose now."""
        return len(self._before)

    def read(self, now_ns: int, offset: int, octets: int) -> RequestOutcome:
        """Read as many of the octets as the disk has there."""
        if self.dead:
            return RequestOutcome(done_ns=now_ns, errno=errno.EIO)
        data = bytes(self._image[offset : offset + octets])
        self.counts.reads += 1
        self.counts.read_bytes += len(data)
        if self.faults.rotten_reads and data:
            self.faults.rotten_reads -= 1
            data = self._with_turned_bit(data)
        return RequestOutcome(done_ns=self._transfer(now_ns, offset, len(data), write=False), data=data)

    def write(self, now_ns: int, offset: int, data: bytes) -> RequestOutcome:
        """Write into the volatile cache. ENOSPC beyond the end of the disk."""
        if self.dead or self.faults.write_errors:
            self.faults.write_errors -= 0 if self.dead else 1
            return RequestOutcome(done_ns=now_ns, errno=errno.EIO)
        if offset + len(data) > self.size_bytes:
            return RequestOutcome(done_ns=now_ns, errno=errno.ENOSPC)
        self._keep_before(offset, len(data))
        self._image[offset : offset + len(data)] = data
        self.counts.writes += 1
        self.counts.written_bytes += len(data)
        return RequestOutcome(done_ns=self._transfer(now_ns, offset, len(data), write=True))

    def flush(self, now_ns: int) -> RequestOutcome:
        """Make durable what was written before. A flush that fails makes nothing durable."""
        if self.dead or self.faults.flush_errors:
            self.faults.flush_errors -= 0 if self.dead else 1
            return RequestOutcome(done_ns=now_ns, errno=errno.EIO)
        self._before.clear()
        self.counts.flushes += 1
        done_ns = now_ns if self.drive is None else self.drive.flush(now_ns)
        return RequestOutcome(done_ns=done_ns + self.faults.slow_ns)

    def cut_power(self, keep: float, chance: Random) -> tuple[int, int]:
        """Lose power: the disk is dead until :meth:`revive`, and each unflushed block survives with probability
        ``keep``. Gives how many blocks were unflushed, and how many of them are lost."""
        self.dead = True
        lost = [block for block in sorted(self._before) if chance.random() >= keep]
        for block in lost:
            self._image[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = self._before[block]
        unflushed = len(self._before)
        self._before.clear()
        return unflushed, len(lost)

    def revive(self) -> None:
        """Give the disk its power back, with all faults gone."""
        self.dead = False
        self.faults = Faults()

    def _transfer(self, now_ns: int, offset: int, octets: int, *, write: bool) -> int:
        done_ns = now_ns if self.drive is None else self.drive.submit(now_ns, offset, octets, write)
        return done_ns + self.faults.slow_ns

    def _keep_before(self, offset: int, octets: int) -> None:
        before = self._before
        for block in range(offset // BLOCK_BYTES, -(-(offset + octets) // BLOCK_BYTES)):
            if block not in before:
                before[block] = bytes(self._image[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])

    def _with_turned_bit(self, data: bytes) -> bytes:
        rotten = bytearray(data)
        rotten[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return bytes(rotten)
