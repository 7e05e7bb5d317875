"""The checksum is that of zlib, with and without the library that computes it faster."""

from __future__ import annotations

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.checksum import crc32

WITHOUT = """
import sys
sys.modules["isal"] = None  # as if it were not installed
import zlib
from reference_broker.checksum import crc32
assert crc32 is zlib.crc32, crc32
"""


@given(octets=st.binary(max_size=5000), more=st.binary(max_size=100), seed=st.integers(0, 2**32 - 1))
def test_the_checksum_is_that_of_zlib(octets: bytes, more: bytes, seed: int) -> None:
    assert crc32(octets) == zlib.crc32(octets)
    assert crc32(memoryview(octets)[1:], seed) == zlib.crc32(octets[1:], seed)
    assert crc32(bytearray(more), crc32(octets)) == zlib.crc32(octets + more)


def test_every_length_around_a_block_is_the_same() -> None:
    """Vector code works in blocks of 16 to 256 octets; the rest goes another way."""
    octets = bytes(range(256)) * 8
    for size in range(1200):
        for start in (0, 1, 7):
            part = memoryview(octets)[start : start + size]
            assert crc32(part) == zlib.crc32(part), (start, size)


def test_without_the_library_zlib_does_the_work() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
