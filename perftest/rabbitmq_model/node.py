"""One RabbitMQ node: its cores, its dirty I/O schedulers, its drives by role, and its write-ahead log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perftest.rabbitmq_model.costs import RabbitCosts
from perftest.rabbitmq_model.files import DirtyIo, JournaledAppends
from perftest.rabbitmq_model.processes import Cores, ErlangProcess, Timetable
from perftest.rabbitmq_model.wal import BATCH_ENTRIES, FILE_OCTETS, LogEntries, LogWriter, ModelledLog
from reference_broker.storage.drives.journal import JournalModel

Arrival = Callable[[str, str, int], int]
"""When octets that one host sends to another now arrive there."""


class ModelledNode:
    """A node. ``places`` gives the file system of each role: ``wal``, ``segment`` and ``classic``. ``fill`` is the part
    of the usual size at which the first file of the log is full, 0.5 to 1."""

    def __init__(
        self, name: str, host: str, agenda: Timetable, cores: Cores, costs: RabbitCosts,
        places: Mapping[str, JournalModel], arrival: Arrival, fill: float,
    ) -> None:  # fmt: skip
        self.name = name
        self.host = host
        self.agenda = agenda
        self.cores = cores
        self.costs = costs
        self.io = DirtyIo(agenda)
        self.snapshots = 0
        self._places = places
        self._arrival = arrival
        self.wal = ModelledLog(self.new_file, round(FILE_OCTETS * fill))
        self.logger = ErlangProcess(agenda, cores, costs.wake, self._log_cost, self._log, BATCH_ENTRIES)
        """The process of the log."""

    def new_file(self, role: str) -> JournaledAppends:
        """A new file on the drive of a role."""
        return JournaledAppends(self.agenda, self.io, self._places[role], self.costs)

    def send(self, to: ModelledNode, octets: int, receive: Callable[..., object], item: Any) -> None:
        """Have a process of a node get an item: at once on this node, else when it has passed the network."""
        if to is self:
            receive(item)
        else:
            self.agenda.at(self._arrival(self.host, to.host, octets), receive, item)

    # The log

    def log(self, entries: LogEntries) -> None:
        """Write entries of a member."""
        self.logger.tell(entries)

    def _log_cost(self, batch: list[LogEntries]) -> int:
        return self.costs.wal_batch_ns + self.costs.wal_entry_ns * sum(each.count for each in batch)

    def _log(self, batch: list[LogEntries]) -> None:
        self.logger.hold()
        self.wal.write(batch, self.logger.release)

    def snapshot(self, member: LogWriter, floor: int, entries_min: int, octets: int) -> None:
        """Take a snapshot of a member if enough of its log below ``floor`` is of no use any more."""
        if floor - member.snapshot < entries_min:
            return
        member.snapshot = floor
        self.snapshots += 1
        file = self.new_file("segment")
        file.append_and_sync(octets, file.remove)
