"""From run directories to a page that says what they mean.

:mod:`reports.pipeline` fills a store with tables (on Spark), :func:`build` makes the page of a store (without).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.comparison.compare import Comparison

__all__ = ["build", "build_comparison"]


def build(
    store: Path,
    out: Path,
    *,
    page: Path | None = None,
    command: Sequence[str] | None = None,
    separate: bool = False,
) -> Path:
    """Make the page of every run in ``store`` and return its path: ``page``, or ``out/report.html``.

    Writes the page, and ``summary.json``, ``data/steps.csv`` and ``data/spectrum.csv`` into ``out``, each renamed into
    place. ``command`` is the command line that makes this page again; the page shows it. With ``separate`` the page is
    an overview with links to a page of each run, ``run-ID.html``; all of these lie beside each other and share the
    folder ``shared``.

    Raises :class:`reports.errors.PipelineError` when the store cannot be read, and
    :class:`reports.errors.PageError` when the page cannot be made or written.
    """
    from reports.html.write import write_report  # pandas and pyarrow only when a page is asked for

    target = page or out / "report.html"
    return write_report(store, out, target=target, command=tuple(command or ()), separate=separate)


def build_comparison(store: Path, result: Comparison, *, page: Path, names: tuple[str, str]) -> Path:
    """Make the page of a comparison and return its path, ``page``.

    ``store`` has the tables of the runs that were compared; the page lacks the figures of a run that is not there.
    ``names`` are the directories of baseline and candidate, as the user named them. Raises as :func:`build`.
    """
    from reports.html.write import write_comparison

    return write_comparison(store, result, target=page, names=names)
