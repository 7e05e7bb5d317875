"""``make fuzz``: hostile conversations by the million, against the connections of the broker."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import psutil

from tests.fuzz.search import Search

_STEP = 20_000


@click.command()
@click.option("--inputs", default=100_000, help="Conversations to play.", show_default=True)
@click.option("--seed", default=1, help="The same seed plays the same conversations.", show_default=True)
@click.option("--keep", default="fuzz-findings", help="Folder for conversations that the broker does not bear.")
def main(inputs: int, seed: int, keep: str) -> None:
    """Play mutated conversations, and keep what the broker does not bear. Exit code 1: something was found."""
    search, me, found, begin = Search(seed), psutil.Process(), 0, time.perf_counter()
    while search.played < inputs:
        for finding in search.run(min(_STEP, inputs - search.played)):
            found += 1
            path = Path(keep, f"seed-{seed}-{search.played}.bin")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(finding.octets)
            click.echo(f"found: {finding.what}\n  at   {path}")
        rate, memory = search.played / (time.perf_counter() - begin), me.memory_info().rss >> 20
        click.echo(
            f"{search.played:,} conversations, {search.octets >> 20} MiB, {rate:,.0f}/s,"
            f" {len(search.reached)} behaviours, {len(search.corpus)} kept,"
            f" {memory} MiB of memory, {found} found, at seed {seed}"
        )
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
