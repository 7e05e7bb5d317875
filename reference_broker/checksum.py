"""CRC-32 as in zlib (ISO 3309), the checksum of whatever the broker writes or sends to its peers.

ISA-L computes the same number by carry-less multiplication, at 56 octets a nanosecond where zlib does 4
(docs/decisions/0021-checksums-by-isa-l.md). Where no wheel of it exists, zlib does the work.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
