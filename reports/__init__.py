"""From run directories to a page that says what they mean.

:mod:`reports.pipeline` fills a store with tables (on Spark), :func:`build` makes the page of a store (without).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["build"]


def build(store: Path, out: Path, *, page: Path | None = None, command: Sequence[str] | None = None) -> Path:
    """Make the page of every run in ``store`` and return its path: ``page``, or ``out/report.html``.

    Writes the page, and ``summary.json``, ``data/steps.csv`` and ``data/spectrum.csv`` into ``out``, each renamed into
    place. ``command`` is the command line that makes this page again; the page shows it.

    Raises :class:`reports.errors.PipelineError` when the store cannot be read, and
    :class:`reports.errors.PageError` when the page cannot be made or written.
    """
    from reports.html.write import write_report  # pandas and pyarrow only when a page is asked for

    return write_report(store, out, target=page or out / "report.html", command=tuple(command or ()))
