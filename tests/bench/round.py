"""``make round``: where a round of replication goes, counted per message: wake-ups, frames, syncs, system calls, calls
of functions, and CPU.

Counts are the same on a fast machine and on a slow one, so they say what a change did where times only say that the
machine was busy. Each load runs twice: once as it is, and once under cProfile, which counts the calls. System calls are
counted by ``strace``, if it is installed, for a second of their own. Everything is slower then, so threads may do what
the event loop does otherwise: compare the counts of ``futex`` with nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from rich.box import HEAVY_HEAD, MARKDOWN, Box
from rich.console import Console
from rich.table import Table

from infra import local_cluster
from infra.cluster import Node
from infra.local_cluster import ClusterError
from perftest.results.provenance import host_facts
from tests.bench.context import Broker
from tests.bench.figures import REFERENCE, BenchError, number
from tests.bench.generator import Run, run
from tests.bench.profile import profile, profiled_cluster

_WARM_UP_S: Final = 3.0
_STRACE_S: Final = 1.0
_FRAMES: Final = re.compile(r'reference_broker_link_frames_total\{.*purpose="(\w+)"\} ([0-9.e+]+)')
_CALLS: Final = re.compile(r"^ *[0-9.]+ +[0-9.]+ +\d+ +(\d+) +(?:\d+ +)?([a-z_0-9]+)$", re.MULTILINE)

LOADS: Final[dict[str, list[object]]] = {
    "in-flight 1": ["-x", 1, "-y", 1, "-c", 1],
    "rate 1000": ["-x", 1, "-y", 1, "-r", 1000],
    "40 queues x 10": ["-u", ",".join(f"round-{each}" for each in range(40)), "-x", 40, "-y", 40, "-r", 10],
}


@dataclass(frozen=True, slots=True)
class Counts:
    """What the three nodes did until now."""

    at_s: float
    values: Counter[str]

    def since(self, before: Counts) -> Counter[str]:
        """What they did in between, a second."""
        passed = self.at_s - before.at_s
        return Counter({name: (value - before.values[name]) / passed for name, value in self.values.items()})


def counted(broker: Broker) -> Counts:
    """What the nodes have done: by the kernel's account, and by their own."""
    assert broker.cluster is not None
    values: Counter[str] = Counter()
    for node in broker.cluster.nodes:
        process = psutil.Process(node.pid)
        values["CPU, µs"] += 1e6 * sum(process.cpu_times()[:2])
        values["wake-ups of a process"] += process.num_ctx_switches().voluntary
        for purpose, frames in _frames(node).items():
            if frames:
                values[f"frames: {purpose}"] += frames
    for counters in broker.counters():
        values["log entries"] += counters["wal_entries"]
        values["syncs"] += counters["wal_syncs"]
    return Counts(time.monotonic(), values)


def _frames(node: Node) -> Counter[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for purpose, frames in _FRAMES.findall(text):
        found[purpose] += float(frames)
    return found


def system_calls(pids: Sequence[int], seconds: float) -> Counter[str]:
    """The system calls of these processes by name, per second; none without ``strace``."""
    strace = shutil.which("strace")
    found: Counter[str] = Counter()
    if strace is None:
        return found
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / str(pid) for pid in pids]
        watching = [
            subprocess.Popen([strace, "-q", "-f", "-c", "-o", str(file), "-p", str(pid)], stderr=subprocess.DEVNULL)
            for pid, file in zip(pids, files, strict=True)
        ]
        time.sleep(seconds)
        for each in watching:
            each.terminate()
        for each in watching:
            each.wait()
        for file in files:
            for calls, name in _CALLS.findall(file.read_text() if file.exists() else ""):
                found[name] += int(calls)
    del found["total"]
    return Counter({name: calls / seconds for name, calls in found.items()})


def measure(load: str, seconds: float, directory: Path) -> dict[str, float]:
    """All counts of a load, per message. Raises :class:`BenchError`."""
    with local_cluster.temporary(directory) as cluster:
        broker = Broker(REFERENCE, cluster.uris, tuple(node.pid for node in cluster.nodes), cluster)
        seen: list[Counter[str]] = []

        def watch() -> None:
            before = counted(broker)
            time.sleep(seconds)
            seen.append(counted(broker).since(before))
            seen.append(system_calls(broker.pids, _STRACE_S))

        found = _under_load(watch, lambda: run(broker, [*LOADS[load], "-z", _length(seconds)], directory))
        if len(seen) < 2:
            raise BenchError(f"{load}: the nodes could not be watched")
        rate = found.step["delivered_per_s"]
        figures = {name: value / rate for name, value in sorted(seen[0].items())}
        for name, value in seen[1].most_common(8):
            figures[f"system calls: {name}"] = value / rate
        if seen[1]:
            figures["system calls: all"] = seen[1].total() / rate
    with profiled_cluster(directory) as broker:
        spent, found = profile(broker, LOADS[load], seconds, directory)
        messages = found.step["delivered_per_s"] * seconds
        figures["calls of functions"] = sum(sum(each.calls.values()) for each in spent) / messages
        figures["calls of functions, busiest node"] = sum(spent[0].calls.values()) / messages
    return figures


def _length(seconds: float) -> int:
    return int(_WARM_UP_S + seconds + _STRACE_S + 4)


def _under_load(watch: Callable[[], None], load: Callable[[], Run]) -> Run:
    timer = threading.Timer(_WARM_UP_S, watch)
    timer.start()
    try:
        return load()
    finally:
        timer.cancel()
        timer.join()


def table(figures: dict[str, dict[str, float]], box: Box) -> Table:
    """A column for each load."""
    shown = Table(title="counts per message, all three nodes together", title_justify="left", box=box)
    shown.add_column("what")
    for load in figures:
        shown.add_column(load, justify="right")
    for name in dict.fromkeys(name for each in figures.values() for name in each):
        shown.add_row(name, *(number(each.get(name)) for each in figures.values()))
    return shown


def main() -> int:
    """Count, and print a table; 1 if that could not be done."""
    parser = argparse.ArgumentParser(prog="make round", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--load", action="append", choices=LOADS, help="default: all")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the counted part (default 5)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, to be kept in a page")
    options = parser.parse_args()
    console = Console(width=130)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        directory = Path(name)
        machine = host_facts(directory)
        console.print(f"{machine['hostname']}: {machine['cores']} cores, {machine['cpu']}, {machine['filesystem']}")
        try:
            figures = {load: measure(load, options.seconds, directory) for load in options.load or LOADS}
        except (BenchError, ClusterError, OSError, psutil.Error) as error:
            console.print(f"error: {error}", markup=False)
            return 1
    console.print(table(figures, MARKDOWN if options.markdown else HEAVY_HEAD))
    return 0


if __name__ == "__main__":
    sys.exit(main())
