"""Erlang processes: each has a mailbox, and works on one core at a time.

A process that has something in its mailbox waits for a free core, takes a few messages, works, and then has the effects
of this turn. So messages gather while a process is busy, and a busy process pays less for each of them. A process may
*hold*: it waits for a dirty I/O scheduler or for credit, and its mailbox fills.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

TURN_MESSAGES: Final = 25
"""Number of published messages or acknowledgements of one turn: a Ra server takes its commands in so many, and an
Erlang process that goes on for longer has to leave its core to others."""


class Timetable(Protocol):
    """Virtual time in nanoseconds, and what will happen."""

    now: int

    def at(self, when: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call at a time; calls for the same time keep their order."""


class Item(Protocol):
    """What is sent to a process."""

    @property
    def count(self) -> int:
        """Messages or acknowledgements; of a notice 0."""

    def split(self, count: int) -> tuple[Any, Any]:
        """The first ``count`` messages, and the others."""


class Notice:
    """An item that is no message and stays whole."""

    count = 0

    def split(self, count: int) -> tuple[Any, Any]:
        """Never asked for."""
        raise NotImplementedError


class Cores:
    """The cores of one machine, which all processes of its nodes share."""

    def __init__(self, count: int) -> None:
        self._free_ns = [0] * count

    def free_ns(self) -> int:
        """When a core is free."""
        return min(self._free_ns)

    def work(self, begin_ns: int, cost_ns: int) -> int:
        """Take the core that is free first; returns the end of the work."""
        core = self._free_ns.index(min(self._free_ns))
        end_ns = self._free_ns[core] = max(begin_ns, self._free_ns[core]) + cost_ns
        return end_ns


class ErlangProcess:
    """One process. ``wake`` is the time of a wake-up and its CPU time. ``cost`` says what a turn with some items costs,
    and ``act`` carries out their effects."""

    __slots__ = (
        "_act",
        "_agenda",
        "_cores",
        "_cost",
        "_has_turn",
        "_holds",
        "_mailbox",
        "_most",
        "_slept",
        "_wake_cpu_ns",
        "_wake_ns",
        "cpu_ns",
    )

    def __init__(
        self,
        agenda: Timetable,
        cores: Cores,
        wake: tuple[int, int],
        cost: Callable[[list[Any]], int],
        act: Callable[[list[Any]], None],
        most: int = TURN_MESSAGES,
    ) -> None:
        self.cpu_ns = 0
        self._agenda = agenda
        self._cores = cores
        self._wake_ns, self._wake_cpu_ns = wake
        self._slept = False
        self._cost = cost
        self._act = act
        self._most = most
        self._mailbox: deque[Any] = deque()
        self._has_turn = False
        self._holds = False

    @property
    def waiting(self) -> int:
        """Messages in the mailbox."""
        return sum(item.count for item in self._mailbox)

    def tell(self, item: Item) -> None:
        """Send an item to the process."""
        self._mailbox.append(item)
        if not self._has_turn and not self._holds:
            self._has_turn = self._slept = True
            self._agenda.at(self._agenda.now + self._wake_ns, self._turn)

    def hold(self) -> None:
        """Do nothing more until :meth:`release`."""
        self._holds = True

    def release(self) -> None:
        """Go on, at once if there is something to do."""
        self._holds = False
        self._next()

    def _next(self) -> None:
        if self._mailbox and not self._has_turn and not self._holds:
            self._has_turn = True
            self._agenda.at(self._agenda.now, self._turn)

    def _turn(self) -> None:
        now_ns = self._agenda.now
        if (free_ns := self._cores.free_ns()) > now_ns:
            self._agenda.at(free_ns, self._turn)
            return
        items = self._take()
        cost_ns = self._cost(items) + (self._wake_cpu_ns if self._slept else 0)
        self._slept = False
        self.cpu_ns += cost_ns
        self._agenda.at(self._cores.work(now_ns, cost_ns), self._end, items)

    def _take(self) -> list[Any]:
        mailbox, taken, room = self._mailbox, list[Any](), self._most
        while mailbox and room > 0:
            item = mailbox.popleft()
            if item.count > room:
                item, rest = item.split(room)
                mailbox.appendleft(rest)
            taken.append(item)
            room -= item.count
        return taken

    def _end(self, items: list[Any]) -> None:
        self._act(items)
        self._has_turn = False
        self._next()
