"""Which worker has which clients, and the number of workers of a plan. Every process computes the same answer.

Connections are dealt out round-robin. Connection ``c`` of the publishers belongs to worker ``c % workers``. The
connections of consumers go on where the publishers ended, so one publisher and one consumer are in different workers if
there are two. With exclusive queues all clients of a queue are in one worker, because they share one connection. If a
queue promises an order over all its consumers, they are in one worker, which sees their deliveries in order.

A plan with several hosts may keep publishers and consumers apart. Then publishers are dealt out among the workers of
hosts that publish, and consumers among the workers of hosts that consume. Workers are numbered host by host, in the
order of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from perftest.engine.accounting.promise import is_contended, promise_of
from perftest.spec.load_hosts import LoadHost
from perftest.spec.plan import Group, Plan, Settings

Integers = npt.NDArray[np.int64]

WAKEUP_S: Final = 100e-6
"""CPU for a message that is sent, confirmed, delivered and acknowledged alone, in seconds."""
MESSAGE_S: Final = 1e-6
"""CPU for a message among many, in seconds."""
WAKEUPS_PER_PUBLISHER: Final = 5000
"""Largest number of wake-ups a second of a publisher. With a higher rate it sends several messages at once."""
WORKER_SHARE: Final = 0.5
"""Largest share of a core that is given to a worker: a busier worker adds latency of its own."""
CLIENTS_PER_WORKER: Final = 1000
BUSY_CLIENTS_PER_WORKER: Final = 16
"""Largest number of clients of a worker that send as fast as they can."""

WORKERS_MAX: Final = 64
"""Largest number of workers with channel numbers of their own, which fit in 30 bits."""

FILES_PER_WORKER: Final = 64
"""Number of descriptors that a worker needs besides its connections."""


class _Seats(NamedTuple):
    """The indexes of the workers that have publishers, consumers, and both, ascending."""

    publishing: Integers
    consuming: Integers
    both: Integers


@lru_cache(maxsize=64)
def _seats(hosts: tuple[LoadHost, ...], group: str, workers: int) -> _Seats:
    everybody = np.arange(workers)
    if not hosts:
        return _Seats(everybody, everybody, everybody)
    host_of = np.repeat(np.arange(len(hosts)), [host.workers for host in hosts])
    assert len(host_of) == workers, "every worker is on a host"
    publishing = np.array([host.publishes_for(group) for host in hosts])[host_of]
    consuming = np.array([host.consumes_from(group) for host in hosts])[host_of]
    return _Seats(*(np.flatnonzero(each) for each in (publishing, consuming, publishing & consuming)))


@dataclass(frozen=True, slots=True)
class Share:
    """The clients of worker ``index`` (from 0) of ``workers``.

    The plan has one group, and says how many workers are on each of its hosts (:func:`seated`).
    """

    plan: Plan
    index: int = 0
    workers: int = 1

    def publishers(self, connections: int) -> list[int]:
        """The numbers of this worker's publishers, ascending, if all workers together have ``connections``. With more
        connections the list only grows at its end."""
        count = connections * self.plan.publishing.channels
        return np.flatnonzero(self.owners(np.arange(count)) == self.index).tolist()

    def consumers(self, connections: int) -> list[int]:
        """The numbers of this worker's consumers, likewise."""
        count = connections * self.plan.consuming.channels
        numbers = np.arange(count)
        shift = self.plan.steps[0].settings.publishers if self.plan.steps else 0
        if self._by_queue:
            place = numbers % len(self.plan.queues)
        elif _are_watched_together(self.plan):
            place = numbers % len(self.plan.queues) + shift
        else:
            place = numbers // self.plan.consuming.channels + shift
        seats = self._seats.both if self._by_queue else self._seats.consuming
        if not len(seats):
            return []
        return np.flatnonzero(seats[place % len(seats)] == self.index).tolist()

    def owners(self, publishers: Integers) -> Integers:
        """The workers of these publishers."""
        place = publishers % len(self.plan.queues) if self._by_queue else publishers // self.plan.publishing.channels
        seats = self._seats.both if self._by_queue else self._seats.publishing
        return seats[place % len(seats)] if len(seats) else np.full(len(publishers), -1)

    def is_of_another_worker(self, publishers: Integers) -> npt.NDArray[np.bool_]:
        """Which of these publishers belong to another worker."""
        return np.asarray(self.owners(publishers) != self.index)

    @property
    def host(self) -> LoadHost | None:
        """The host of this worker; None where the plan has no hosts."""
        last = -1
        for host in self.plan.hosts:
            last += host.workers
            if self.index <= last:
                return host
        return None

    def hosts_of(self, publishers: Integers) -> Integers:
        """The hosts of these publishers, as indexes into the hosts of the plan."""
        ends = np.cumsum([host.workers for host in self.plan.hosts])
        return np.searchsorted(ends, self.owners(publishers), side="right")

    @property
    def _seats(self) -> _Seats:
        return _seats(self.plan.hosts, self.plan.load.name, self.workers)

    @property
    def _by_queue(self) -> bool:
        return self.plan.connecting.exclusive


def _are_watched_together(plan: Plan) -> bool:
    """Whether the order of a queue spans several consumers. Channels of one connection cannot be parted."""
    return plan.consuming.channels == 1 and promise_of(plan).spans_channels and is_contended(plan)


def connections(plan: Plan) -> int:
    """The most connections that clients have at once in any step of a plan."""
    return max((step.settings.publishers + step.settings.consumers for step in plan.steps), default=0)


def choose_workers(plan: Plan, *, cores: int, files: int) -> int:
    """The number of worker processes of a plan.

    As many as the plan asks for. A plan that leaves the choice gets one worker for each half of a core that its load is
    expected to take, and never more than there are cores. A load with a rate takes 100 µs for each wake-up of a
    publisher (at most 5,000 a second) and 1 µs for each message. A load without a rate gets a worker for 16 clients.
    There is at least one worker for 1,000 clients, and for as many connections as a process may have open ``files``.
    """
    if plan.workers:
        return plan.workers
    wanted = max((_wanted(plan, step.settings) for step in plan.steps), default=1)
    room = max(files - FILES_PER_WORKER, 1)
    return min(max(1, min(wanted, cores), math.ceil(connections(plan) / room)), WORKERS_MAX)


def seated(plan: Plan, group: Group, *, wanted: int) -> Plan:
    """The plan of one group, with the hosts that serve this group and the number of workers on each.

    ``wanted`` workers are spread over the hosts, in proportion to the cores of each and at least one on each, if a host
    does not state its number. A plan without hosts is the plan of the group, unchanged.
    """
    hosts = [host for host in plan.hosts if host.serves(group.name)]
    cores = sum(host.cores for host in hosts)
    chosen = (host.workers or max(1, math.ceil(wanted * host.cores / cores)) for host in hosts)
    return replace(
        plan.only(group), hosts=tuple(replace(host, workers=n) for host, n in zip(hosts, chosen, strict=True))
    )


def names_of_workers(hosts: Sequence[LoadHost], prefix: str, workers: int) -> list[str]:
    """The names of the workers of a group. They are unique on a host only; the name of the host stands beside them."""
    counts = [host.workers for host in hosts] or [workers]
    return [f"{prefix}{index}" for count in counts for index in range(count)]


def _wanted(plan: Plan, settings: Settings) -> int:
    publishers = settings.publishers * plan.publishing.channels
    clients = publishers + settings.consumers * plan.consuming.channels
    rate = max((rate for rate, _ in plan.publishing.rate_cycle), default=settings.rate)
    if rate is None:
        return math.ceil(clients / BUSY_CLIENTS_PER_WORKER)
    busy_s = publishers * (min(rate, WAKEUPS_PER_PUBLISHER) * WAKEUP_S + rate * MESSAGE_S)
    return max(math.ceil(busy_s / WORKER_SHARE), math.ceil(clients / CLIENTS_PER_WORKER))


def files_needed(plan: Plan, workers: int) -> int:
    """The number of open files that each of ``workers`` processes needs."""
    return math.ceil(connections(plan) / workers) + FILES_PER_WORKER
