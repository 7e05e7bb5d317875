"""The objects that the owner of the store and its writer share: a queue's identity, and each part of a message run.

The owner makes a part and takes it out when all its messages are gone. The writer sets ``place`` once the part is
written. Each attribute has one writing thread, so neither needs a lock: a part without a body has a place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from reference_broker.message_run import MessageRun
from reference_broker.records import record
from reference_broker.types import GroupId

NEVER: Final = 2**63 - 1
"""The expiry of a message without a time to live."""


class PartPlace(NamedTuple):
    """The place of a part: its shared file (0: the queue's own message file of its segment), offset, octets, check."""

    file: int
    offset: int
    size: int
    check: int


@dataclass(slots=True, eq=False)
class Part:
    """``count`` messages of one run, with the sequence numbers ``seq``, +1, ..."""

    seq: int
    count: int
    run: MessageRun | None
    """The messages while they are in memory. ``place`` is set before they leave memory."""
    left: int
    """Number of the messages that are still in the queue."""
    expires: int = NEVER
    is_large: bool = False
    is_persistent: bool = False
    place: PartPlace | None = None
    is_written: bool = False
    """Whether the part goes to the drive; the queue's settings at its arrival decide."""
    memory_bytes: int = 0
    """Octets of the part in the store's account of memory."""
    gone: list[tuple[int, int, int]] | None = None
    """The messages that have left, as (first position, count, step), while others are still in the queue."""

    def positions(self) -> npt.NDArray[np.int64]:
        """The positions of the messages that are still in the queue, ascending."""
        is_left = np.ones(self.count, np.bool_)
        for start, count, step in self.gone or ():
            is_left[start : start + (count - 1) * step + 1 : step] = False
        return np.flatnonzero(is_left)


@record
class FoundPart:
    """A part that a start has found: the positions of the messages in it that are in the queue, ascending, and the
    octets of their bodies."""

    part: Part
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@record
class QueueName:
    """A queue as the store knows it. A durable queue is there after a restart."""

    group: GroupId
    is_durable: bool
    is_lazy: bool = False

    def directory(self, root: str) -> str:
        """The directory of the queue's files."""
        return f"{root}/{'durable' if self.is_durable else 'transient'}/{self.group:016x}"
