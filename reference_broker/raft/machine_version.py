"""The machine version in a no-op: the first entry of each term says which machine its leader runs.

A newer machine comes into effect at the same entry on every member. A member with an older one keeps logging, and must
neither lead nor apply what follows (as in Ra).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_VERSION: Final = Struct(">I")


def noop_payload(version: int) -> bytes:
    """The payload of a NOOP entry: the version, 4 octets."""
    return _VERSION.pack(version)


def noop_version(payload: bytes | memoryview) -> int:
    """Read back what :func:`noop_payload` wrote. Raises ValueError for anything else."""
    if len(payload) != _VERSION.size:
        raise ValueError(f"the no-op of a term has {_VERSION.size} octets, not {len(payload)}")
    version: int = _VERSION.unpack(payload)[0]
    return version
