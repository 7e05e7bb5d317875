"""``make profile``: where the nodes' time goes, by part of the broker, on the leader and on a follower.

Three nodes run under cProfile while ``perftest run`` puts load on one queue. That makes every call of a function dearer
and leaves the kernel as it is: the shares say where to look, the calls per message what there is to save. What a
message costs without it is for ``make bench`` to say.
"""

from __future__ import annotations

import argparse
import pstats
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from rich.box import HEAVY_HEAD, MARKDOWN, Box
from rich.console import Console
from rich.table import Table

from infra import local_cluster, node_process
from infra.cluster import Cluster
from infra.local_cluster import ClusterError
from perftest.results.provenance import host_facts
from tests.bench.context import Broker
from tests.bench.figures import REFERENCE, BenchError
from tests.bench.generator import Run, run

Function = tuple[str, int, str]
"""File, line and name, as ``pstats`` has them."""

_WARM_UP_S: Final = 3.0
_ROOT: Final = "reference_broker/"
_SENDING: Final = {("node/clients/client_connection.py", "flush"), ("node/links/peers.py", "flush")}
"""Where uvloop is called to write: cProfile does not see its functions, so their time, and the kernel's, is here."""
PARTS: Final = {
    "sockets": "writing to sockets, and the kernel's part of it",
    "drive": "writing to the drive, and waiting for it",
    "amqp": "AMQP: parsing and building frames, channels",
    "node": "turns, proposals, links between nodes",
    "raft": "Raft, and its messages",
    "log": "the log, but for the drive itself",
    "machines": "the queue machine, and its commands",
    "queues": "executing what the machine decided",
    "anatomy": "measuring its own stages",
    "other": "event loop, standard library",
}


@dataclass(slots=True)
class Spent:
    """What one node did: seconds and calls by part, seconds and calls by function."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def of(cls, stats: dict[Function, Any]) -> Spent:
        """Sum up a profile. A built-in function's time and calls are those of the parts that call it."""
        spent = cls()
        for function, (_, calls, own_s, _, callers) in stats.items():
            if function[0] == "~" and callers:
                for caller, (_, its_calls, its_s, _) in callers.items():
                    spent.add(part_of(function) or part_of(caller) or "other", its_s, its_calls)
            else:
                spent.add(part_of(function) or "other", own_s, calls)
        return spent

    def add(self, part: str, seconds: float, calls: int) -> None:
        """Some more."""
        self.seconds[part] += seconds
        self.calls[part] += calls


def part_of(function: Function) -> str | None:
    """The part that a function belongs to; None for a built-in one, which belongs to whoever calls it."""
    path, _, name = function
    if path == "~":
        return "drive" if any(word in name for word in ("posix.p", "datasync", "fsync")) else None
    inside = path.rpartition(_ROOT)[2] if _ROOT in path else ""
    if (inside, name) in _SENDING:
        return "sockets"
    package = inside.partition("/")[0]
    return package if package in PARTS else "amqp" if inside == "message_run.py" else "other"


@contextmanager
def profiled_cluster(directory: Path) -> Iterator[Broker]:
    """Three nodes that wait for the signals."""
    command, node_process.NODE_COMMAND = (
        node_process.NODE_COMMAND,
        (sys.executable, "-m", "tests.bench.profiled_node"),
    )
    try:
        with local_cluster.temporary(directory) as cluster:
            yield Broker(REFERENCE, cluster.uris, tuple(node.pid for node in cluster.nodes), cluster)
    finally:
        node_process.NODE_COMMAND = command


def profile(broker: Broker, load: Sequence[object], seconds: float, directory: Path) -> tuple[list[Spent], Run]:
    """One load, given as options of the generator; the leader's profile first. Raises :class:`BenchError`."""
    assert broker.cluster is not None
    timers = [
        threading.Timer(after, _signal, (broker, number))
        for after, number in ((_WARM_UP_S, signal.SIGUSR1), (_WARM_UP_S + seconds, signal.SIGUSR2))
    ]
    for timer in timers:
        timer.start()
    try:
        found = run(broker, [*load, "-z", int(_WARM_UP_S + seconds + 2)], directory)
    finally:
        for timer in timers:
            timer.cancel()
    all_stats = [_stats(path) for path in _paths(broker.cluster)]
    all_stats.sort(key=lambda stats: -sum(row[1] for (_, _, name), row in stats.items() if name == "tell_commit"))
    return [Spent.of(stats) for stats in all_stats], found


def _paths(cluster: Cluster) -> list[Path]:
    return [Path(node.data_dir) / "profile" for node in cluster.nodes]


def _signal(broker: Broker, number: signal.Signals) -> None:
    for pid in broker.pids:
        psutil.Process(pid).send_signal(number)


def _stats(path: Path) -> dict[Function, Any]:
    deadline = time.monotonic() + 10
    while not path.exists():
        if time.monotonic() > deadline:
            raise BenchError(f"no profile at {path}: did the node end?")
        time.sleep(0.05)
    stats: dict[Function, Any] = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    path.unlink()
    return stats


def table(in_flight: int, spent: Sequence[Spent], messages: float, box: Box) -> Table:
    """Shares of the time and calls per message, of the leader and of the follower that did more."""
    title = f"in-flight {in_flight:,}: shares of the profiled time, calls of functions per message"
    shown = Table(title=title, title_justify="left", box=box)
    shown.add_column("part")
    members = {"leader": spent[0], "follower": max(spent[1:], key=lambda each: sum(each.seconds.values()))}
    for column in members:
        shown.add_column(column, justify="right")
        shown.add_column("calls", justify="right")
    for part, words in PARTS.items():
        cells = []
        for each in members.values():
            share = each.seconds[part] / max(sum(each.seconds.values()), 1e-9)
            cells += [f"{100 * share:.0f} %", f"{each.calls[part] / messages:.3g}"]
        shown.add_row(words, *cells)
    totals = [f"{sum(each.calls.values()) / messages:.3g}" for each in members.values()]
    shown.add_row("all", "100 %", totals[0], "100 %", totals[1])
    return shown


def main() -> int:
    """Profile, and print a table for each load; 1 if that could not be done."""
    parser = argparse.ArgumentParser(prog="make profile", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--in-flight", type=int, action="append", metavar="N", help="default: 1, and 1000")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the profiled part (default 5)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown, to be kept in a page")
    options = parser.parse_args()
    console = Console(width=130)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        directory = Path(name)
        machine = host_facts(directory)
        console.print(f"{machine['hostname']}: {machine['cores']} cores, {machine['cpu']}, {machine['filesystem']}")
        try:
            with profiled_cluster(directory) as broker:
                for in_flight in options.in_flight or (1, 1000):
                    spent, found = profile(broker, ["-x", 1, "-y", 1, "-c", in_flight], options.seconds, directory)
                    messages = found.step["delivered_per_s"] * options.seconds
                    console.print(table(in_flight, spent, messages, MARKDOWN if options.markdown else HEAVY_HEAD))
        except (BenchError, ClusterError, psutil.Error) as error:
            console.print(f"error: {error}", markup=False)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
