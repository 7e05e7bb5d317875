"""How a thread that was late catches up with its drive. Pure.

A thread that blocks in an operation wakes later than the drive was done, because the machine is busy or its timer is
coarse. If the thread asks for its next operation at once, that request is late by the same time: the lateness is the
machine's, not the drive's. So the model begins the next operation sooner by the thread's lateness.

Invariants
    an operation of a thread begins no sooner than the operation before it ended on the drive
    a thread catches up by one operation's length at most: more than that was a stall, which stays lost
    a thread that did something else for longer than its last operation took has nothing to catch up: what made it ask
        was not the end of that operation
"""

from __future__ import annotations


class CatchingUp:
    """Lateness of one thread behind one drive. Times are in ns of one clock."""

    def __init__(self) -> None:
        self._behind_ns = 0
        self._length_ns = 0
        self._woke_ns = 0

    def time_ns(self, now_ns: int) -> int:
        """When a thread that was never late would be where the thread is now."""
        follows = now_ns - self._woke_ns <= self._length_ns
        return now_ns - self._behind_ns if follows else now_ns

    def ended(self, began_ns: int, over_ns: int, woke_ns: int) -> None:
        """An operation was over on the drive, and the thread went on then or later."""
        self._length_ns = over_ns - began_ns
        self._behind_ns = min(max(0, woke_ns - over_ns), self._length_ns)
        self._woke_ns = woke_ns
