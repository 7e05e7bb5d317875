"""What every bench is given: brokers to measure, how long, and where to leave what it found."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from infra import local_cluster, rabbitmq_cluster
from infra.local_cluster import Cluster
from tests.bench.client import Client, queues
from tests.bench.figures import RABBITMQ, REFERENCE, BenchError, Sample, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long, how often, how much."""

    rounds: int = 3
    seconds: int = 8
    kills: int = 5
    starts: int = 5
    deep_messages: int = 1_000_000
    idle_s: float = 30.0
    recovery_mib: int = 1024
    queues: int = 10_000
    connections: int = 5000


QUICK = Lengths(
    rounds=1,
    seconds=2,
    kills=1,
    starts=1,
    deep_messages=50_000,
    idle_s=3.0,
    recovery_mib=64,
    queues=100,
    connections=200,
)
"""To see that everything runs; its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. ``cluster`` is None for RabbitMQ, which says nothing of itself."""

    name: str
    uris: tuple[str, ...]
    pids: tuple[int, ...]
    cluster: Cluster | None = None
    set_policy: Callable[[str, Mapping[str, object]], None] | None = None
    """Sets a policy for the queues whose names a pattern finds."""

    def cpu_s(self) -> list[float]:
        """User and system time of each node so far."""
        return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids]

    def rss_bytes(self) -> int:
        """Resident memory of all nodes."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self.pids)

    def counters(self) -> list[dict[str, float]]:
        """The counters of each node; none for RabbitMQ. Raises :class:`BenchError` with a dead node's last words."""
        if self.cluster is None:
            return []
        statuses = local_cluster.summary(self.cluster)
        for status, node in zip(statuses, self.cluster.nodes, strict=True):
            if "metrics" not in status:
                words = Path(node.log_file).read_text(errors="replace").splitlines()[-30:]
                raise BenchError("\n".join([f"{node.name} is {status['state']}; its last words:", *words]))
        return [status["metrics"] for status in statuses]

    def written_octets(self) -> float:
        """Octets all nodes wrote to disk so far: by the stores' own counters, or by the kernel's account for
        RabbitMQ."""
        if self.cluster is None:
            return float(sum(psutil.Process(pid).io_counters().write_bytes for pid in self.pids))
        log = ("wal_bytes", "segment_bytes", "snapshot_bytes")
        classic = ("classic_queue_bytes", "classic_shared_bytes", "classic_index_bytes")
        return float(sum(counters[name] for counters in self.counters() for name in (*log, *classic)))


@dataclass(slots=True)
class Context:
    """Brokers by demand and the samples so far. ``stack`` ends what was started."""

    directory: Path
    console: Console
    lengths: Lengths
    stack: ExitStack
    with_rabbitmq: bool
    deep_rabbitmq: bool = False
    samples: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    beside: Sequence[Broker] = ()
    """Brokers that run already."""
    _rabbitmq: Broker | None = None
    _times: Any = field(default_factory=psutil.cpu_times)

    def note(self, bench: str, broker: str, figures: Mapping[str, float]) -> None:
        """Keep a sample, and say it. ``steal_percent`` is the share of the processors' time that the hypervisor gave
        to others since the sample before."""
        before, self._times = self._times, psutil.cpu_times()
        figures = {**figures, "steal_percent": steal_percent(before, self._times)}
        self.samples.append(Sample(bench, broker, figures))
        words = ", ".join(f"{name} {number(value)}" for name, value in figures.items())
        self.console.print(
            f"  {bench} on {broker}: {words} (load average {psutil.getloadavg()[0]:.1f})", highlight=False
        )

    @contextmanager
    def bundled(self) -> Iterator[Broker]:
        """A fresh cluster of the bundled broker."""
        with local_cluster.temporary(self.directory) as cluster:

            def set_policy(pattern: str, definition: Mapping[str, object]) -> None:
                request = {"op": "set-policy", "name": "bench", "pattern": pattern, "definition": dict(definition)}
                local_cluster.change(cluster, request)

            pids = tuple(node.pid for node in cluster.nodes)
            broker = Broker(REFERENCE, cluster.uris, pids, cluster, set_policy)
            yield broker
            self._remember_version(broker)

    def rabbitmq(self) -> Broker | None:
        """The one RabbitMQ of this session, started when it is asked for first; None where there is none.

        Starting it is a sample of its own: from nothing to the first confirm.
        """
        if self._rabbitmq is None and self.with_rabbitmq:
            self.console.print("starting a three-node RabbitMQ on loopback …")
            began = time.monotonic()
            theirs = self.stack.enter_context(rabbitmq_cluster.running(self.directory))

            def set_policy(pattern: str, definition: Mapping[str, object]) -> None:
                theirs.control("set_policy", "bench", pattern, json.dumps(definition), "--apply-to", "queues")

            self._rabbitmq = Broker(RABBITMQ, theirs.uris, theirs.pids, set_policy=set_policy)
            self.note("start", RABBITMQ, {"first_confirm_s": first_confirm(self._rabbitmq) - began})
            self._remember_version(self._rabbitmq)
        return self._rabbitmq

    @contextmanager
    def brokers(self) -> Iterator[list[Broker]]:
        """A fresh bundled cluster, RabbitMQ where it is to be measured, and the brokers that run already."""
        theirs = self.rabbitmq()
        for broker in self.beside:
            self._remember_version(broker)
        with self.bundled() as ours:
            yield [ours, *([theirs] if theirs else []), *self.beside]

    def _remember_version(self, broker: Broker) -> None:
        if broker.name not in self.versions:
            with Client(broker.uris[0]) as client:
                words = (client.server.get(name, "") for name in ("product", "version", "platform"))
                self.versions[broker.name] = " ".join(str(word) for word in words).strip()


def steal_percent(before: Any, after: Any) -> float:
    """The part of all processors' time between two of :func:`psutil.cpu_times` that went to other machines."""
    passed = sum(after[:8]) - sum(before[:8])  # guests' time, which follows, is in the users' time, too
    return 100 * (getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)) / passed if passed > 0 else 0.0


def first_confirm(broker: Broker) -> float:
    """Have one message confirmed by a new queue; when that was (monotonic clock)."""
    with Client(broker.uris[0]) as client, queues(client, ["bench-first"]):
        return client.publish("bench-first", 1)[-1][1]


def free_base_port() -> int:
    """A port for :func:`infra.local_cluster.start`: it and the offsets above it are free now."""
    for base in range(21_000, 30_000, 500):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in (base + offset + number for offset in (0, 100, 200, 300) for number in range(3)):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return base
    raise BenchError("no free ports between 21000 and 30000")
