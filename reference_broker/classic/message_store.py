"""The messages of one queue, as the queue uses them. :class:`reference_broker.classic.store.StoredQueue` has them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from reference_broker.classic.parts import NEVER, FoundPart, Part
from reference_broker.message_run import MessageRun


class MessageStore(Protocol):
    """Parts of runs, by the sequence number of their first message."""

    @property
    def next_seq(self) -> int:
        """The number of the next message."""

    @property
    def delivered_end(self) -> int:
        """Messages below may have been delivered."""

    @property
    def found(self) -> list[FoundPart]:
        """The parts at the start, in order."""

    def add(self, run: MessageRun, persistent: bool | npt.NDArray[np.bool_], expires: int = NEVER) -> list[Part]:
        """Take a run behind all other messages. Returns its parts, in order."""

    def is_written(self, part: Part) -> bool:
        """Whether the part goes to the drive."""

    def is_confirmed_late(self, part: Part) -> bool:
        """Whether confirms of the part's messages wait until they survive."""

    def run(self, seq: int) -> MessageRun:
        """The messages of the part that begins at ``seq``."""

    def needs_reading(self, seq: int) -> bool:
        """Whether :meth:`run` would read from the drive."""

    def take(self, part_seq: int, start: int, count: int, step: int = 1) -> None:
        """Messages of a part are gone."""

    def parts(self) -> list[Part]:
        """The parts with messages in the queue, oldest first."""

    def oldest(self) -> int:
        """The number of the oldest part; the number of the next message if there is none."""

    def delivered(self, seq_end: int) -> None:
        """Messages below ``seq_end`` have been delivered."""

    def delete(self) -> None:
        """Give up the queue with everything that it wrote."""
