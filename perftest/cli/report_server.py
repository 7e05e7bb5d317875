"""``perftest report --serve``: runs in the browser, for this machine only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perftest.cli.store.catalogue import STORE
from perftest.exits import CliError, Exit

if TYPE_CHECKING:
    from reports.server.app import MakeComparison


def serve_reports(
    folders: Sequence[Path],
    store: str | None,
    port: int,
    make_page: Callable[[Path], Path],
    make_comparison: MakeComparison,
) -> None:
    """Serve the runs of one folder (none: ``runs``) until Ctrl-C. The tags of the runs are in ``store``; without one,
    in the store in the folder. ``make_page`` makes the page of a run, and ``make_comparison`` that of two. Raises
    CliError."""
    from reports.server.app import LOOPBACK, Served, serve
    from reports.store.locations import location_of

    if len(folders) > 1:
        fix = "name the one that holds the runs: perftest report --serve runs"
        raise CliError("one directory of runs is served", " ".join(map(str, folders)), fix, Exit.USAGE)
    folder = folders[0] if folders else Path("runs")
    if not folder.is_dir():
        fix = "name the directory that holds the runs: perftest report --serve runs"
        raise CliError("there is no such directory", str(folder), fix, Exit.USAGE)
    tags = location_of(store or folder / STORE)
    served = Served(folder=folder, store=tags, make_page=make_page, make_comparison=make_comparison)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(served, port, _say))
    except OSError as error:
        what = f"the server cannot listen: {error.strerror or error}"
        raise CliError(what, f"{LOOPBACK}:{port}", "choose another port: --port 0 takes a free one") from error


def _say(address: str) -> None:
    click.echo(f"runs in the browser, until Ctrl-C: {address}")
