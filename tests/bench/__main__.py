"""``make bench``: every speed budget measured; side by side with RabbitMQ where it is installed.

The loads run through ``perftest run`` itself, against three-node clusters on this machine, the brokers in alternation,
so that a machine whose speed drifts is no friend of either. CPU per message is what survives a noisy machine: quote it,
and the ratios, before any rate. The verdicts hold on a quiet machine only; none of them fails the command.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import psutil
from rich.box import HEAVY_HEAD, MARKDOWN
from rich.console import Console

from infra import rabbitmq_cluster
from infra.local_cluster import ClusterError
from infra.rabbitmq_cluster import RabbitMQError
from perftest.results.provenance import host_facts, tool_facts
from tests.bench import (
    connections,
    deep,
    idle,
    kills,
    loads,
    neighbours,
    rated,
    recovery,
    slow_consumer,
    start,
    thousands,
)
from tests.bench.context import QUICK, Broker, Context, Lengths
from tests.bench.figures import REFERENCE, BenchError, findings
from tests.bench.table import budgets_table, document, figures_table

BENCHES: dict[str, Callable[[Context, list[str]], None]] = {
    "recovery": recovery.measure,
    "kills": kills.measure,
    "start": start.measure,
    thousands.BENCH: thousands.measure,
    **{load.name: loads.measure for load in loads.LOADS},
    **{load.name: rated.measure for load in rated.LOADS},
    slow_consumer.BENCH: slow_consumer.measure,
    connections.BENCH: connections.measure,
    "idle": idle.measure,
    "deep": deep.measure,
    **dict.fromkeys(neighbours.BENCHES, neighbours.measure),
}
"""What measures which bench, in the order they run: what needs no RabbitMQ comes before it is started."""


def main() -> int:
    """Measure, print, and keep; 1 when a bench could not be finished."""
    options = arguments()
    signal.signal(signal.SIGTERM, _end)
    console = Console(width=130)
    chosen = choose(options.only)
    if not chosen:
        console.print(f"error: no bench is called {options.only!r}\n  fix  choose from: {', '.join(BENCHES)}")
        return 2
    failures: dict[str, str] = {}
    interrupted = False
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".", prefix=".bench-")))
        with_rabbitmq = rabbitmq_cluster.is_installed() and not options.no_rabbitmq
        context = Context(
            directory, console, lengths(options), stack, with_rabbitmq, options.deep_rabbitmq, beside=options.beside
        )
        machine = host_facts(directory)
        console.print(f"{machine['hostname']}: {machine['cores']} cores, {machine['cpu']}, {machine['filesystem']}")
        if not with_rabbitmq:
            console.print("without RabbitMQ (not installed, or not wanted): ratios are not measured")
        try:
            _measure(context, chosen, failures)
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted: what was measured so far follows")
    found = findings(context.samples, chosen)
    box = MARKDOWN if options.markdown else HEAVY_HEAD
    console.print(figures_table(context.samples, box=box))
    console.print(budgets_table(found, usual=context.lengths == Lengths(), box=box))
    for name, what in failures.items():
        console.print(f"error: {name} was not finished: {what}", markup=False)
    if options.json:
        provenance = {**_provenance(context, machine), "interrupted": interrupted}
        options.json.write_text(json.dumps(document(provenance, context.samples, found, failures), indent=1) + "\n")
    return 130 if interrupted else int(bool(failures))


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description="Speed of the bundled broker, beside RabbitMQ.")
    parser.add_argument("--only", default="", metavar="NAMES", help="only these benches, or parts of names; commas")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few minutes; its figures mean nothing")
    parser.add_argument("--no-rabbitmq", action="store_true", help="do not run RabbitMQ even if it is installed")
    beside = "measure beside this running RabbitMQ, too: AMQP URIs, and the process ids of its nodes; may be repeated"
    parser.add_argument(
        "--beside", type=_beside, action="append", default=[], metavar="NAME=URI,..;PID,..", help=beside
    )
    parser.add_argument("--deep-rabbitmq", action="store_true", help="the deep queue on RabbitMQ, too (minutes)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown, to be kept in a page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here, too")
    lengths = {
        "rounds": "times each load runs on each broker",
        "seconds": "length of one run",
        "kills": "times the leader is killed",
        "starts": "times three nodes are started",
        "deep_messages": "messages in the deep queue",
        "idle_s": "seconds of idleness",
        "recovery_mib": "MiB of log to open",
        "queues": "queues that nobody uses",
        "connections": "connections that are opened at once",
    }
    for name, what in lengths.items():
        default = getattr(Lengths(), name)
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=_positive(type(default)), help=f"{what} (default {default:,})")
    return parser.parse_args()


def choose(only: str) -> list[str]:
    """The benches that are named, with commas between: each by its name, or else all whose names contain the words."""
    words = [word.strip() for word in only.split(",")]
    named = {word: [word] if word in BENCHES else [name for name in BENCHES if word in name] for word in words}
    return [name for name in BENCHES if any(name in names for names in named.values())]


def lengths(options: argparse.Namespace) -> Lengths:
    """The usual or the quick lengths, with what was asked for."""
    base = QUICK if options.quick else Lengths()
    asked = {name: getattr(options, name) for name in asdict(base) if getattr(options, name) is not None}
    return replace(base, **asked)


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        if (value := kind(text)) <= 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    return number


def _beside(text: str) -> Broker:
    """A running broker as the command line names it."""
    name, _, rest = text.partition("=")
    uris, _, pids = rest.partition(";")
    numbers = [int(pid) for pid in pids.split(",") if pid.isdecimal()]
    if not (name and uris and numbers) or name == REFERENCE:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URI,..;PID,..")
    missing = [pid for pid in numbers if not psutil.pid_exists(pid)]
    if missing:
        raise argparse.ArgumentTypeError(f"{text!r}: there is no process {missing[0]}")
    return Broker(name, tuple(uris.split(",")), tuple(numbers))


def _measure(context: Context, chosen: list[str], failures: dict[str, str]) -> None:
    """Each module once, with the names of its benches that were chosen; one that fails does not stop the others."""
    by_measure: dict[Callable[[Context, list[str]], None], list[str]] = {}
    for name in chosen:
        by_measure.setdefault(BENCHES[name], []).append(name)
    for measure, names in by_measure.items():
        context.console.print(", ".join(names), style="bold")
        try:
            measure(context, names)
        except (BenchError, ClusterError, RabbitMQError, psutil.Error) as error:
            failures[", ".join(names)] = str(error)
            context.console.print(f"  failed: {error}", markup=False)


def _provenance(context: Context, machine: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 2,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "tool": tool_facts(),
        "brokers": context.versions,
        "lengths": asdict(context.lengths),
    }


def _end(_signal: int, _frame: object) -> NoReturn:
    """SIGTERM ends like Ctrl-C: nodes and directories go first."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
