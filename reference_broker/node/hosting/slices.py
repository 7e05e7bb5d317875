"""Whose octets are handled next: clients that send much take turns, and other clients do not wait for all of them.

The octets that the event loop reads from a socket at once may take a node long: a quarter of a megabyte of small
messages to many queues costs tens of milliseconds, and thirty such clients the time of an election. So much work is
handled in *slices* of about :data:`SLICE_NS`. In one turn of the event loop all slices together get :data:`BUDGET_NS`.
Between the turns the loop reads the sockets of others: of peers, of quiet clients, of operators. A client whose octets
wait is not read, so its network slows it down.

The octets of a slice are learnt from the slices before: messages to one queue cost little per octet, and single frames
much. A connection begins with few octets, and a slice is at most twice as large as the one before. Of the last two
slices the cheaper one counts, because the process may have lost its processor in the middle of the other.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final

SLICE_NS: Final = 1_000_000
BUDGET_NS: Final = 2_000_000
_SMALL_NS: Final = 100_000
_SMALL_OCTETS: Final = 16 * 1024
"""The most octets of an input that is handled at once and whose time is not counted."""
_FIRST_OCTETS: Final = 8 * 1024
_LEAST_OCTETS: Final = 1024
_FIRST_NS_PER_OCTET: Final = 10.0


class Slices:
    """The clients of a node whose octets wait, in the order of their turns."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Input] = deque()
        self._spent_ns = 0
        """Of the budget of this turn of the event loop."""
        self._is_scheduled = False

    def may_begin(self) -> bool:
        """Whether a slice can be handled now."""
        return not self._waiting and self._spent_ns < BUDGET_NS

    def spent(self, ns: int) -> None:
        """A slice took ``ns``. The budget is whole again in the next turn."""
        self._spent_ns += ns
        self._schedule()

    def wait(self, client: Input) -> None:
        """Give the client a turn after all others that wait."""
        self._waiting.append(client)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._spent_ns = 0
        for _ in range(len(self._waiting)):
            if self._spent_ns >= BUDGET_NS:
                break
            self._waiting.popleft().go_on()
        if self._waiting:
            self._schedule()


class Input:
    """The unhandled octets of one client. ``handle`` handles octets."""

    __slots__ = (
        "_at",
        "_handle",
        "_last_ns_per_octet",
        "_ns_per_octet",
        "_octets",
        "_slice",
        "_slices",
        "few",
        "waits",
    )

    def __init__(self, slices: Slices, handle: Callable[[bytes], None]) -> None:
        self._slices = slices
        self._handle = handle
        self._octets = b""
        self._at = 0
        """The first octet that waits."""
        self._slice = _FIRST_OCTETS
        """The octets of the next slice."""
        self._ns_per_octet = _FIRST_NS_PER_OCTET
        self._last_ns_per_octet = math.inf
        self.waits = False
        """Whether octets wait: the socket must not be read then."""
        self.few = _few(_FIRST_NS_PER_OCTET)
        """The most octets that are handled at once, without a slice; 0 while octets wait."""

    def came(self, octets: bytes) -> None:
        """Handle octets, now or in turns."""
        if len(octets) <= self.few:
            self._handle(octets)
            return
        is_new = not self.waits
        self._octets, self._at = self._octets[self._at :] + octets, 0
        self._look()
        if not is_new:
            return  # it has its place in the line
        while self.waits and self._slices.may_begin():
            self._handle_slice()
        if self.waits:
            self._slices.wait(self)

    def go_on(self) -> None:
        """Handle the next slice."""
        if self.waits:
            self._handle_slice()
            if self.waits:
                self._slices.wait(self)

    def finish(self) -> None:
        """Handle the remaining octets: no more will come."""
        octets, self._octets = self._octets[self._at :], b""
        self._at = 0
        self._look()
        if octets:
            self._handle(octets)

    def _handle_slice(self) -> None:
        """Handle a slice, and learn from it."""
        begin, whole = self._at, self._octets
        self._at = end = min(begin + self._slice, len(whole))
        if end == len(whole):
            self._octets, self._at = b"", 0
        self._look()
        started_ns = self._slices.now_ns()
        self._handle(whole[begin:end] if end - begin < len(whole) else whole)
        spent_ns = self._slices.now_ns() - started_ns
        self._slices.spent(spent_ns)
        last, self._last_ns_per_octet = self._last_ns_per_octet, spent_ns / (end - begin)
        self._ns_per_octet = min(last, self._last_ns_per_octet) or _FIRST_NS_PER_OCTET
        self._slice = max(_LEAST_OCTETS, min(int(SLICE_NS / self._ns_per_octet), 2 * self._slice))
        self._look()

    def _look(self) -> None:
        """Whether octets wait, or how long they take, has changed."""
        self.waits = self._at < len(self._octets)
        self.few = 0 if self.waits else _few(self._ns_per_octet)


def _few(ns_per_octet: float) -> int:
    """The octets that take less than :data:`_SMALL_NS`, and are no more than :data:`_SMALL_OCTETS`."""
    return min(_SMALL_OCTETS, math.ceil(_SMALL_NS / ns_per_octet) - 1)
