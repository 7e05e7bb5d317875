"""Files of a node, and the dirty I/O schedulers that carry out every call to a file.

A node has ten dirty I/O schedulers, whatever its cores: threads that take file calls in the order in which they were
asked for, and block in them. The eleventh call waits, also if its own drive has nothing to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from perftest.rabbitmq_model.costs import RabbitCosts
from perftest.rabbitmq_model.processes import Timetable
from reference_broker.storage.drives.journal import JournaledFile, JournalModel

DIRTY_IO_SCHEDULERS: Final = 10
"""Number of threads for file calls of an Erlang node (the emulator flag ``+SDio``)."""

Call = Callable[[int], int]
"""A blocking call: from the time of its begin to the time of its end."""
Then = Callable[[], None]


class DirtyIo:
    """The dirty I/O schedulers of one node."""

    def __init__(self, agenda: Timetable, schedulers: int = DIRTY_IO_SCHEDULERS) -> None:
        self.calls = 0
        self.waited_ns = 0
        """The time for which calls waited for a scheduler."""
        self._agenda = agenda
        self._idle = schedulers
        self._line: deque[tuple[int, Call, Then]] = deque()

    def run(self, call: Call, then: Then) -> None:
        """Have a scheduler carry out a call, and go on with ``then``."""
        self._line.append((self._agenda.now, call, then))
        self._start()

    def _start(self) -> None:
        while self._idle and self._line:
            asked_ns, call, then = self._line.popleft()
            self._idle -= 1
            self.calls += 1
            self.waited_ns += self._agenda.now - asked_ns
            self._agenda.at(call(self._agenda.now), self._over, then)

    def _over(self, then: Then) -> None:
        self._idle += 1
        then()
        self._start()


class JournaledAppends:
    """A file that only grows, on the file system of one drive."""

    def __init__(self, agenda: Timetable, io: DirtyIo, place: JournalModel, costs: RabbitCosts) -> None:
        self.octets = 0
        self.syncs = 0
        self._agenda = agenda
        self._io = io
        self._place = place
        self._costs = costs
        self._file: JournaledFile = place.create(agenda.now)

    def append_and_sync(self, octets: int, then: Then) -> None:
        """Write octets, then sync: two calls, one after the other. The size of the file is other than before, so each
        sync needs a commit of the file system's journal."""
        self._io.run(lambda begin_ns: self._write(begin_ns, octets), lambda: self._io.run(self._sync, then))

    def remove(self) -> None:
        """Delete the file."""
        self._place.remove(self._agenda.now, self._file)

    def _write(self, begin_ns: int, octets: int) -> int:
        self._place.write(begin_ns, self._file, self.octets, octets)
        self._file.changed_ns = begin_ns
        self.octets += octets
        return begin_ns + self._costs.file_call_ns + (octets * self._costs.file_kib_ns >> 10)

    def _sync(self, begin_ns: int) -> int:
        self.syncs += 1
        return self._place.datasync(begin_ns, self._file) + self._costs.file_call_ns
