"""``perftest report --serve``: runs in the browser, for this machine only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from perftest.exits import CliError, Exit


def serve_reports(folders: Sequence[Path], port: int, make_page: Callable[[Path], Path]) -> None:
    """Serve the runs of one folder (none: ``runs``) until Ctrl-C. ``make_page`` makes the page of a run. Raises
    CliError."""
    from reports.server.app import LOOPBACK, serve

    if len(folders) > 1:
        fix = "name the one that holds the runs: perftest report --serve runs"
        raise CliError("one directory of runs is served", " ".join(map(str, folders)), fix, Exit.USAGE)
    folder = folders[0] if folders else Path("runs")
    if not folder.is_dir():
        fix = "name the directory that holds the runs: perftest report --serve runs"
        raise CliError("there is no such directory", str(folder), fix, Exit.USAGE)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(folder, make_page, port, _say))
    except OSError as error:
        what = f"the server cannot listen: {error.strerror or error}"
        raise CliError(what, f"{LOOPBACK}:{port}", "choose another port: --port 0 takes a free one") from error


def _say(address: str) -> None:
    click.echo(f"runs in the browser, until Ctrl-C: {address}")
