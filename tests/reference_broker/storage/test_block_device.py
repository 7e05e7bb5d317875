"""The disk behind the FUSE drive, against a slow model. A disk that loses flushed blocks would blame the broker."""

from __future__ import annotations

import errno
import random

import pytest

from reference_broker.storage.block_device import protocol
from reference_broker.storage.block_device.disk import BLOCK_BYTES, Disk

BLOCKS = 16


class FixedDrive:
    """1,000 ns a transfer, 5,000 ns a flush."""

    def submit(self, now_ns: int, lba: int, octets: int, write: bool) -> int:
        return now_ns + 1_000

    def flush(self, now_ns: int) -> int:
        return now_ns + 5_000


@pytest.mark.seeds(30)
def test_power_cut_gives_each_block_its_new_or_its_flushed_content(seed: int) -> None:
    chance = random.Random(seed)
    disk = Disk(bytearray(BLOCKS * BLOCK_BYTES), chance)
    flushed = now = bytes(disk.size_bytes)
    for _ in range(40):
        if chance.random() < 0.2:
            assert disk.flush(0).errno == 0
            flushed = now
        else:
            offset = chance.randrange(disk.size_bytes // 512) * 512
            data = chance.randbytes(min(chance.choice((512, 4096, 9728)), disk.size_bytes - offset))
            assert disk.write(0, offset, data).errno == 0
            now = now[:offset] + data + now[offset + len(data) :]
        assert disk.read(0, 0, disk.size_bytes).data == now
    differing = [b for b in range(BLOCKS) if block(now, b) != block(flushed, b)]
    unflushed, lost = disk.cut_power(0.5, chance)
    assert disk.read(0, 0, 1).errno == errno.EIO
    disk.revive()
    after = disk.read(0, 0, disk.size_bytes).data
    assert lost <= unflushed
    assert unflushed >= len(differing)
    for b in range(BLOCKS):
        assert block(after, b) in (block(now, b), block(flushed, b))


def block(octets: bytes, number: int) -> bytes:
    return octets[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]


def test_faults_hit_so_many_requests_and_change_nothing() -> None:
    disk = Disk(bytearray(BLOCK_BYTES), random.Random(0))
    disk.faults.write_errors = disk.faults.flush_errors = disk.faults.rotten_reads = 1
    assert disk.write(0, 0, b"lost").errno == errno.EIO
    assert disk.write(0, 0, b"kept").errno == 0
    assert disk.flush(0).errno == errno.EIO
    assert disk.unflushed_blocks == 1
    assert disk.flush(0).errno == 0
    rotten = disk.read(0, 0, 4).data
    assert sum((a ^ b).bit_count() for a, b in zip(rotten, b"kept", strict=True)) == 1
    assert disk.read(0, 0, 4).data == b"kept"
    assert disk.write(0, BLOCK_BYTES - 1, b"xx").errno == errno.ENOSPC


def test_times_come_from_the_drive_and_its_slowness() -> None:
    disk = Disk(bytearray(BLOCK_BYTES), random.Random(0), FixedDrive())
    assert disk.write(10, 0, b"x").done_ns == 1_010
    assert disk.flush(10).done_ns == 5_010
    disk.faults.slow_ns = 100
    assert disk.read(10, 0, 1).done_ns == 1_110


def test_request_that_is_cut_is_refused() -> None:
    whole = protocol.answer(1, bytes(40))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="FUSE request"):
            protocol.read_request(whole[:length])
