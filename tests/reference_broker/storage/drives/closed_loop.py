"""A broker as far as its drives are concerned, in a few lines: enough to see what a drive layout does to throughput.

Three nodes. Publishers keep ``WINDOW`` messages in flight; an entry is committed once two of three WALs have it; a WAL
writes whatever waits, syncs, and writes again. 40 queues in the background write and sync a file each whenever they
have something to write. Every file operation of a node takes one of ten threads, in the order of asking.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from reference_broker.storage.drives.journal import JournaledFile, JournalModel
from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import DriveProfile

MS, SECOND = 1_000_000, 1_000_000_000
WINDOW, THREADS, QUEUES, NET_NS, MESSAGE_NS = 256, 10, 40, MS // 4, 50_000
SNAPSHOT_EVERY = 4096

Steps = Generator[Any, Any, None]


class World:
    """Time, and what happens at which time."""

    def __init__(self) -> None:
        self.now = SECOND
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_ns: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time_ns, self._count, call))

    def run(self, until_ns: int) -> None:
        while self._due and self._due[0][0] <= until_ns:
            self.now, _, call = heapq.heappop(self._due)
            call()

    def spawn(self, steps: Steps) -> None:
        """Run a process that yields times, or functions that take a call to make later."""
        wanted = next(steps, None)
        if callable(wanted):
            wanted(lambda: self.spawn(steps))
        elif wanted is not None:
            self.at(max(wanted, self.now), lambda: self.spawn(steps))


class Node:
    """One node: three file systems on one to three drives, ten threads, a WAL."""

    def __init__(self, world: World, profile: DriveProfile, layout: str) -> None:
        systems = {letter: JournalModel(DriveModel(profile)) for letter in set(layout)}
        self.data, self.segments, self.wal = (systems[letter] for letter in layout)
        self._world = world
        self._free = THREADS
        self._asking: deque[Callable[[], None]] = deque()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._busy = False
        self._log = self.wal.create(world.now)
        self._at = self._entries = 0

    def append(self, messages: int, octets: int, written: Callable[[], None]) -> None:
        self._waiting.append((messages, octets, written))
        if not self._busy:
            self._busy = True
            self._world.spawn(self._write())

    def operation(self, journal: JournalModel, file: JournaledFile, offset: int, octets: int) -> Steps:
        """Write and sync, on a thread of the pool."""
        yield self._thread
        journal.write(self._world.now, file, offset, octets)
        yield journal.datasync(self._world.now, file)
        self._give_back()

    def _thread(self, go: Callable[[], None]) -> None:
        if self._free:
            self._free -= 1
            go()
        else:
            self._asking.append(go)

    def _give_back(self) -> None:
        if self._asking:
            self._asking.popleft()()
        else:
            self._free += 1

    def _write(self) -> Steps:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            messages, octets = sum(each[0] for each in batch), sum(each[1] for each in batch)
            yield self._world.now + 150_000 + 6_000 * messages
            yield from self.operation(self.wal, self._log, self._at, octets)
            self._at += octets
            if self._entries // SNAPSHOT_EVERY != (self._entries + messages) // SNAPSHOT_EVERY:
                self._world.spawn(self._snapshot())
            self._entries += messages
            for _, _, written in batch:
                written()
        self._busy = False

    def _snapshot(self) -> Steps:
        file = self.segments.create(self._world.now)
        yield from self.operation(self.segments, file, 0, 8192)


def throughput(profile: DriveProfile, layout: str, background: int, seconds: int = 6, seed: int = 1) -> float:
    """Committed messages a second, with so many background messages a second; ``layout`` says on which drive data,
    segments and WAL are, such as AAB."""
    world, chance = World(), random.Random(seed)
    nodes = [Node(world, profile, layout) for _ in range(3)]
    warm_ns, committed = 3 * SECOND, 0
    inflight = 0

    def publish() -> None:
        nonlocal inflight
        while inflight < WINDOW:
            count = min(20, WINDOW - inflight)
            inflight += count
            entry(count)

    def entry(count: int) -> None:
        acks = 0

        def acked() -> None:
            nonlocal acks, inflight, committed
            acks += 1
            if acks == 2:
                inflight -= count
                committed += count * (world.now > warm_ns)
                world.at(world.now + MS // 2, lambda: nodes[0].append(count, 80 * count, lambda: None))
                world.at(world.now + count * MESSAGE_NS, publish)

        nodes[0].append(count, 1200 * count, acked)
        for node in nodes[1:]:
            far = partial(node.append, count, 1200 * count, lambda: world.at(world.now + NET_NS, acked))
            world.at(world.now + NET_NS, far)

    def lazy(node: Node) -> Steps:
        file, offset, due = node.data.create(world.now), 0, float(world.now)
        gap_ns = SECOND * QUEUES / background
        due += chance.random() * gap_ns
        while True:
            yield int(due)
            waiting = max(1, int((world.now - due) / gap_ns))
            yield from node.operation(node.data, file, offset, 150 * waiting)
            offset += 150 * waiting
            due += gap_ns * waiting * (0.9 + 0.2 * chance.random())

    if background:
        for queue in range(QUEUES):
            world.spawn(lazy(nodes[queue % 3]))
    publish()
    world.run(warm_ns + seconds * SECOND)
    return committed / seconds
