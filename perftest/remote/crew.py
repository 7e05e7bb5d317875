"""The hosts of a run while it lasts: connected, supplied, observed, and asked for workers."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from infra.remote import round_trips
from infra.remote.bundle import Bundles
from infra.remote.host import RemoteError
from infra.remote.observer import PING
from infra.remote.shipping import InstalledProject, ship
from infra.remote.ssh import RemoteProcess, SshConnection, connect
from perftest.engine.workers.remote_worker import RemoteWorker
from perftest.remote.inventory import all_done, close_all, connect_all, on_all
from perftest.remote.pipe import SshPipe
from perftest.spec.hosts import HostSpec
from perftest.spec.load_hosts import LoadHost

OBSERVER: Final = "infra.remote.observer"
FACTS_S: Final = 30.0
_PING_S: Final = 5.0
_SAMPLES_KEPT: Final = 10_000


@dataclass
class CrewHost:
    """A host of the run. ``connection`` is the newest, ``facts`` come from its observer, as in the manifest."""

    spec: HostSpec
    connection: SshConnection
    installed: InstalledProject
    facts: dict[str, Any] = field(default_factory=dict)
    observer: Observer | None = None
    _connecting: threading.Lock = field(default_factory=threading.Lock)

    def reconnected(self, lost: SshConnection) -> SshConnection:
        """A connection in place of one that was lost, which all workers of the host share; the host is observed
        through it, too. Blocks. Raises RemoteError."""
        with self._connecting:
            if self.connection is lost:
                self.connection = connect(lost.host)
                threading.Thread(target=lost.close, daemon=True).start()  # that may wait for what is stuck
                if self.observer is not None:
                    self.observer.go_on(self.connection.start(observer_command(self.installed, self.spec.name)))
            return self.connection


def observer_command(installed: InstalledProject, host: str) -> list[str]:
    """The command that observes a host."""
    return installed.command(OBSERVER, host, str(installed.directory))


class Observer:
    """The observer of a host, heard by a thread."""

    def __init__(self, name: str, process: RemoteProcess) -> None:
        self._name = name
        self._process = process
        self._facts: dict[str, Any] = {}
        self._begun = threading.Event()
        self._samples: deque[dict[str, Any]] = deque(maxlen=_SAMPLES_KEPT)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def go_on(self, process: RemoteProcess) -> None:
        """Hear another process from now on: the connection of the first was lost."""
        self._process = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def facts(self) -> dict[str, Any]:
        """The facts about the host. Raises RemoteError if they do not come in time."""
        if not self._begun.wait(FACTS_S) or not self._facts:
            said = self._process.read_stderr().decode(errors="replace").strip().rpartition("\n")[2]
            what = f"the observer does not answer{': ' if said else ''}{said}"
            raise RemoteError(what, f"host {self._name}", "see what `perftest remote check` says of the host")
        return self._facts

    def samples(self) -> list[dict[str, Any]]:
        """The samples that came since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._samples.popleft())
        return found

    def ping(self) -> None:
        """Tell the observer that it has a listener."""
        self._process.write(PING)

    def end(self) -> None:
        """End the observer."""
        self._process.end_input()

    def _listen(self, process: RemoteProcess) -> None:
        rest = b""
        while chunk := process.read():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):  # a login may greet
                    self._take(json.loads(line))
        self._begun.set()

    def _take(self, record: dict[str, Any]) -> None:
        if "facts" in record:
            self._facts = record["facts"]
            self._begun.set()
        else:
            self._samples.append(record)


class Crew:
    """The hosts of a run. Made by :func:`crew`."""

    def __init__(self, members: Sequence[CrewHost], say: Callable[[str], None]) -> None:
        self._members = {member.spec.name: member for member in members}
        self._say = say

    def member(self, name: str) -> CrewHost:
        """A host by its name."""
        return self._members[name]

    def connection(self, name: str) -> SshConnection:
        """The connection to a host."""
        return self._members[name].connection

    def load_hosts(self, uris: Sequence[str]) -> tuple[LoadHost, ...]:
        """The hosts that generate load, for a plan with these URIs."""
        addresses = self.addresses()
        named = [urlsplit(uri).hostname for uri in uris]
        return tuple(
            LoadHost(
                name=name,
                workers=spec.workers,
                cores=int(member.facts.get("cores") or 1),
                publishes=spec.publishes,
                consumes=spec.consumes,
                near=tuple(
                    at for at, address in enumerate(named) if address in {addresses[each] for each in spec.near}
                ),
            )
            for name, member in self._members.items()
            if (spec := member.spec).is_load
        )

    def addresses(self) -> dict[str, str]:
        """The addresses for the traffic of the run, which are asked for the time, too."""
        return {name: member.spec.traffic_address for name, member in self._members.items()}

    def facts(self) -> list[dict[str, Any]]:
        """A row for each host, for the manifest."""
        return [
            {**member.facts, "roles": sorted(member.spec.roles), "address": member.spec.traffic_address}
            for member in self._members.values()
        ]

    def measure_round_trips(self, nodes: Mapping[str, tuple[str, int]]) -> None:
        """Measure how far each load host is from these nodes (address and port by name); :meth:`facts` has the rows
        from then on. A host that cannot measure has no rows, and a line here says why."""
        loads = {name: member for name, member in self._members.items() if member.spec.is_load}
        found, errors = on_all(loads, lambda each: round_trips.measure(each.connection, each.installed, nodes))
        for name, rows in found.items():
            loads[name].facts["round_trips"] = rows
            for row in rows:
                if row["round_trip_ns"] is None:
                    self._say(f"{name} does not reach {row['node']} at {row['address']}: {row['reason']}")
        for error in errors:
            self._say(f"{error.where}: {error.what}")

    def samples(self) -> Iterator[dict[str, Any]]:
        """The samples of all hosts that came since the last call."""
        for member in self._members.values():
            if member.observer is not None:
                yield from member.observer.samples()

    async def start_worker(
        self, first: dict[str, Any], on_message: Callable[[dict[str, Any]], None], who: str
    ) -> RemoteWorker:
        """Start a worker on the host that its ``first`` message names."""
        member = self._members[first["host"]]
        return await RemoteWorker.start(first, on_message, who, lambda: SshPipe.start(member))


@contextlib.contextmanager
def crew(specs: Sequence[HostSpec], say: Callable[[str], None]) -> Iterator[Crew]:
    """Connect to all hosts, put the project there, and observe them. Everything that was started ends at the end, and
    also if the connection is lost: each process there ends with its stdin, or with its lease. Raises HostsError."""
    began = time.monotonic()
    connections = connect_all(specs)
    try:
        bundles = Bundles()
        shipped = all_done(on_all(connections, lambda connection: ship(connection, bundles.of)))
        sent = sum(each.octets for each in shipped.values())
        members = [CrewHost(spec, connections[spec.name], shipped[spec.name].installed) for spec in specs]
        all_done(on_all({member.spec.name: member for member in members}, _observe))
        say(_ready(len(members), sent, time.monotonic() - began))
        over = threading.Event()
        threading.Thread(target=_ping, args=(members, over), daemon=True).start()
        try:
            yield Crew(members, say)
        finally:
            over.set()
            for member in members:
                if member.observer is not None:
                    member.observer.end()
                member.connection.close()  # perhaps not the first one
    finally:
        close_all(connections)


def _ping(members: Sequence[CrewHost], over: threading.Event) -> None:
    while not over.wait(_PING_S):
        for member in members:
            if member.observer is not None:
                member.observer.ping()


def _observe(member: CrewHost) -> None:
    member.observer = Observer(
        member.spec.name, member.connection.start(observer_command(member.installed, member.spec.name))
    )
    member.facts = member.observer.facts()


def _ready(hosts: int, octets: int, seconds: float) -> str:
    sent = f"{octets / 1e6:,.1f} MB sent" if octets else "nothing to send"
    return f"{hosts} host{'s' * (hosts > 1)} ready after {seconds:.1f} s, {sent}"
