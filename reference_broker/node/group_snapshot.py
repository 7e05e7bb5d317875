"""The snapshot of a member: configuration, machine version, dedup table and machine state.

Octets: the mark ``QGS`` and the format (u8), the machine version (u32), the length of the configuration (u16), the
configuration (:mod:`reference_broker.raft.configuration`), the dedup table
(:class:`~reference_broker.node.proposals.DedupTable`), the machine's state. Format 1 had neither mark nor
configuration. It began with the dedup table, and its group had the members of the queue's declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from reference_broker.node.proposals import DedupTable
from reference_broker.raft.configuration import Configuration

_MARK: Final = b"QGS"
_FORMAT: Final = 2
_HEAD: Final = Struct(">3sBIH")


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The parts of a snapshot. ``configuration`` is None in format 1."""

    configuration: Configuration | None
    machine_version: int
    dedup: DedupTable
    state: bytes

    def pack(self) -> bytes:
        """The octets, in the newest format."""
        assert self.configuration is not None
        members = self.configuration.encode()
        head = _HEAD.pack(_MARK, _FORMAT, self.machine_version, len(members))
        return b"".join([head, members, self.dedup.pack(), self.state])

    @classmethod
    def unpack(cls, octets: bytes) -> GroupSnapshot:
        """Read any known format. Raises ValueError for a newer format."""
        if not octets.startswith(_MARK):
            dedup, state = DedupTable.unpack(octets)
            return cls(None, 0, dedup, state)
        _, form, machine_version, size = _HEAD.unpack_from(octets)
        if form != _FORMAT:
            raise ValueError(
                f"a snapshot of format {form}, this program knows up to {_FORMAT}: start the program that wrote it"
            )
        end = _HEAD.size + size
        dedup, state = DedupTable.unpack(octets[end:])
        return cls(Configuration.decode(octets[_HEAD.size : end]), machine_version, dedup, state)
