"""``make partitions``: links between nodes are cut under load, with clients on each side, and mended."""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import click
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from tests.partitions.campaign import SERVE_S, Outcome, campaign
from tests.partitions.cuts import cut
from tests.partitions.network import impossible, network
from tests.partitions.nodes import KINDS

_IN_TIME_SHARE = 0.99
"""Share of the heals after which all nodes serve the quorum queue within the time."""


def by_queue(outcomes: list[Outcome]) -> Table:
    """What became of the messages, and how soon nodes served, by kind of queue."""
    found = Table(box=MARKDOWN)
    for column in ("queue", "confirmed", "lost", "unflagged", "crossed", "wrong", "stalled cuts", "hung publishers",
                   f"heals within {SERVE_S:g} s", "median s", "slowest s"):  # fmt: skip
        found.add_column(column, justify="left" if column == "queue" else "right")
    for kind in KINDS:
        all_of = [outcome.queues[kind] for outcome in outcomes]
        heals = [of.slowest_s for of in all_of]
        sums = [
            sum(of.confirmed for of in all_of),
            sum(of.lost for of in all_of),
            sum(len(of.unflagged) for of in all_of),
            sum(of.crossed for of in all_of),
        ]
        counts = [
            sum(len(of.wrong) for of in all_of),
            sum(of.stalled for of in all_of),
            sum(len(of.hung) for of in all_of),
        ]
        in_time = f"{sum(heal <= SERVE_S for heal in heals)} of {len(heals)}"
        found.add_row(
            kind, *map(str, (*sums, *counts)), in_time, f"{statistics.median(heals):.2f}", f"{max(heals):.1f}"
        )
    return found


def by_shape(outcomes: list[Outcome], serve_s: float) -> Table:
    """How many cuts of each shape failed."""
    found = Table(box=MARKDOWN)
    for column in ("cut", "how", "cuts", "failed", "seconds cut"):
        found.add_column(column, justify="left" if column in ("cut", "how") else "right")
    rows: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        shape = f"{outcome.cut.shape}{', flapping' if outcome.cut.is_flapping else ''}"
        rows.setdefault((shape, outcome.cut.how), []).append(outcome)
    for (shape, how), same in sorted(rows.items()):
        failed = sum(bool(outcome.failures(serve_s)) for outcome in same)
        found.add_row(shape, how, str(len(same)), str(failed), f"{sum(each.cut.seconds for each in same):.0f}")
    return found


def _tell(outcome: Outcome, serve_s: float) -> None:
    served = outcome.queues["quorum"].slowest_s
    click.echo(f"{outcome.cut}: {outcome.victim}, served {served:.1f} s after the heal")
    for failure in outcome.failures(serve_s):
        click.echo(f"  FAILED: {failure}")


def _are_slow(outcomes: list[Outcome], serve_s: float) -> bool:
    in_time = sum(outcome.queues["quorum"].slowest_s <= serve_s for outcome in outcomes)
    return in_time < _IN_TIME_SHARE * len(outcomes)


@click.command()
@click.option("--cuts", "count", default=30, help="Cuts to make.", show_default=True)
@click.option("--first", default=0, help="Number of the first cut.", show_default=True)
@click.option("--cut", "only", type=int, help="Make only this cut.")
@click.option("--seed", default=1, help="The same seed makes the same list of cuts.", show_default=True)
@click.option("--longest", default=40.0, help="Longest cut in seconds.", show_default=True)
@click.option("--serve-within", "serve_s", default=SERVE_S, help="Seconds from a heal to service.", show_default=True)
def main(count: int, first: int, only: int | None, seed: int, longest: float, serve_s: float) -> None:
    """Make a seeded list of cuts. Exit code 1: something was lost, unflagged, wrong, hung or slow. Exit code 3: no
    network namespaces can be made here."""
    if reason := impossible():
        click.echo(f"no partitions here: {reason}", err=True)
        sys.exit(3)
    signal.signal(signal.SIGTERM, _end)  # no process and no namespace is left
    outcomes: list[Outcome] = []
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="partitions-") as place,
        network() as net,
        campaign(net, Path(place), seed) as running,
    ):
        try:
            for number in [only] if only is not None else range(first, first + count):
                outcomes.append(running.play(cut(seed, number, longest)))
                _tell(outcomes[-1], serve_s)
        finally:  # also of what was cut before a signal
            has_failed = _sum_up(outcomes, serve_s)
            click.echo(f"seed {seed}, {time.monotonic() - began:.0f} s")
    sys.exit(has_failed)


def _sum_up(outcomes: list[Outcome], serve_s: float) -> bool:
    """Print the tables; whether the campaign has failed."""
    if not outcomes:
        return False
    console = Console(width=200)
    console.print(by_shape(outcomes, serve_s))
    console.print(by_queue(outcomes))
    failed = [outcome for outcome in outcomes if outcome.failures(float("inf"))]
    slow = _are_slow(outcomes, serve_s)
    click.echo(f"{len(outcomes)} cuts, {len(failed)} failed{', too many heals were slow' if slow else ''}")
    return bool(failed) or slow


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    main()
