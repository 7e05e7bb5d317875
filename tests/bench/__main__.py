"""``make bench``: messages per second, CPU per message, batch size; beside RabbitMQ where it is installed.

Each load runs through the command itself, against a three-node cluster on this machine, alternating between the
brokers so that a machine whose speed drifts is no friend of either. CPU per message is what survives a noisy machine:
quote it, and the ratios, before any rate. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from infra import local_cluster, rabbitmq_cluster
from infra.local_cluster import Cluster

LOADS = (
    ("in-flight 1000", 1000, 1000, 1),
    ("in-flight 1000, ack every 100", 1000, 1000, 100),
    ("in-flight 200", 200, 1000, 1),
    ("in-flight 20", 20, 1000, 1),
    ("in-flight 1", 1, 1000, 1),
)
"""Name, in-flight limit, prefetch, ack interval: the published single-queue benchmarks, 1 KB, persistent."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker to put load on."""

    name: str
    uris: tuple[str, ...]
    pids: tuple[int, ...]
    cluster: Cluster | None = None

    def cpu_s(self) -> list[float]:
        """User and system time of each node so far."""
        return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids]

    def entries(self) -> int:
        """Log entries written so far by the node that wrote most: one per batch. 0 where that cannot be known."""
        if self.cluster is None:
            return 0
        statuses = local_cluster.status(self.cluster)
        for status, node in zip(statuses, self.cluster.nodes, strict=True):
            if "metrics" not in status:
                words = Path(node.log_file).read_text().splitlines()[-30:]
                raise SystemExit("\n".join([f"{node.name} is {status['state']}; its last words:", *words]))
        return int(max(status["metrics"]["wal_entries"] for status in statuses))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One load on one broker once."""

    delivered_per_s: float
    broker_us: float
    load_us: float
    batch: float
    confirm_p50_ms: float
    e2e_p99_ms: float


def measure(broker: Broker, in_flight: int, prefetch: int, ack_interval: int, seconds: int) -> Measurement:
    """Run one load through ``perftest run`` and account for it."""
    cpu, entries = broker.cpu_s(), broker.entries()
    with tempfile.TemporaryDirectory(dir=".") as out:
        command = [
            sys.executable,
            "-m",
            "perftest.cli",
            "run",
            "-H",
            ",".join(broker.uris),
            "-qq",
            "-x",
            "1",
            "-y",
            "1",
        ]
        command += [
            "-c",
            str(in_flight),
            "-q",
            str(prefetch),
            "-A",
            str(ack_interval),
            "-s",
            "1000",
            "-z",
            str(seconds),
        ]
        done = subprocess.run([*command, "--ui", "none", "--json", "--out", out], capture_output=True, check=False)
        if done.returncode not in (0, 5):
            raise SystemExit(done.stderr.decode())
        result: dict[str, Any] = json.loads(done.stdout)
        ledger = json.loads((Path(result["path"]) / "ledger.json").read_text())
    step, messages = result["steps"][0], ledger["delivered"]
    used = sum(after - before for after, before in zip(broker.cpu_s(), cpu, strict=True))
    written = broker.entries() - entries
    return Measurement(
        delivered_per_s=step["delivered_per_s"],
        broker_us=used / messages * 1e6,
        load_us=step["worker_cpu_us_per_message"],
        batch=messages / written if written else 0.0,
        confirm_p50_ms=step["latency"]["confirm"]["p50_ns"] / 1e6,
        e2e_p99_ms=step["latency"]["e2e"]["p99_ns"] / 1e6,
    )


def median(measurements: Sequence[Measurement], field: str) -> float:
    """The median of one figure over the rounds."""
    return statistics.median(getattr(measurement, field) for measurement in measurements)


def report(console: Console, results: dict[str, dict[str, list[Measurement]]]) -> None:
    """The table, and the ratios of ours to RabbitMQ's."""
    table = Table(title="medians over the rounds; CPU is that of all three nodes", title_justify="left")
    for column in (
        "load",
        "broker",
        "delivered/s",
        "broker µs/msg",
        "load µs/msg",
        "msg/entry",
        "confirm p50 ms",
        "e2e p99 ms",
    ):
        table.add_column(column, justify="left" if column in ("load", "broker") else "right")
    for load, brokers in results.items():
        for name, measurements in brokers.items():
            figures = [median(measurements, field) for field in Measurement.__slots__]
            rate, broker_us, load_us, batch, confirm, e2e = figures
            row = (
                f"{rate:,.0f}",
                f"{broker_us:.1f}",
                f"{load_us:.1f}",
                f"{batch:.1f}" if batch else "–",
                f"{confirm:.2f}",
                f"{e2e:.2f}",
            )
            table.add_row(load, name, *row)
        if len(brokers) == 2:
            ours, theirs = brokers.values()
            rate = median(ours, "delivered_per_s") / median(theirs, "delivered_per_s")
            cpu = median(theirs, "broker_us") / median(ours, "broker_us")
            table.add_row(load, "ratio", f"{rate:.1f} x", f"{cpu:.1f} x less", "", "", "", "", style="bold")
    console.print(table)


def main() -> None:
    """Run all loads and print."""
    parser = argparse.ArgumentParser(prog="make bench", description="Speed of the bundled broker, beside RabbitMQ.")
    parser.add_argument("--rounds", type=int, default=3, help="times each load runs on each broker (default 3)")
    parser.add_argument("--seconds", type=int, default=8, help="length of one run (default 8)")
    parser.add_argument("--only", default="", help="run only loads whose name contains this")
    parser.add_argument("--no-rabbitmq", action="store_true", help="do not run RabbitMQ even if it is installed")
    arguments = parser.parse_args()
    console = Console(width=130)
    loads = [load for load in LOADS if arguments.only in load[0]]
    results: dict[str, dict[str, list[Measurement]]] = {name: {} for name, *_ in loads}
    console.print(
        f"{platform.node()}: {psutil.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
    )
    with ExitStack() as stack, tempfile.TemporaryDirectory(dir=".") as directory:
        ours = stack.enter_context(local_cluster.temporary(Path(directory)))
        brokers = [Broker("reference", ours.uris, tuple(node.pid for node in ours.nodes), ours)]
        if rabbitmq_cluster.is_installed() and not arguments.no_rabbitmq:
            console.print("starting a three-node RabbitMQ on loopback …")
            theirs = stack.enter_context(rabbitmq_cluster.running(Path(directory)))
            brokers.append(Broker("RabbitMQ", theirs.uris, theirs.pids))
        else:
            console.print("no RabbitMQ here (rabbitmq-server is not installed): only the bundled broker is measured")
        for _ in range(arguments.rounds):
            for name, in_flight, prefetch, ack_interval in loads:
                for broker in brokers:
                    found = measure(broker, in_flight, prefetch, ack_interval, arguments.seconds)
                    results[name].setdefault(broker.name, []).append(found)
                    rates = f"{found.delivered_per_s:,.0f} msg/s, {found.broker_us:.1f} µs/msg"
                    console.print(f"  {name} on {broker.name}: {rates}, load average {psutil.getloadavg()[0]:.1f}")
    report(console, results)


if __name__ == "__main__":
    main()
