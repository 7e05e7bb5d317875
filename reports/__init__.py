"""From run directories to a page that explains them.

:mod:`reports.pipeline` fills a store with tables (on Spark), :func:`build` makes the page of a store (without).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.comparison.compare import CompareResult

__all__ = ["build", "build_comparison"]


def build(
    store: Path | str,
    out: Path,
    *,
    page: Path | None = None,
    command: Sequence[str] | None = None,
    separate: bool = False,
    runs: Sequence[str] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Path:
    """Make the page of every run in ``store`` and return its path: ``page``, or ``out/report.html``.

    With ``runs``, ids, the page has these runs only, and names the run directories in ``left_out`` with the reasons.
    ``store`` is a path or URI; the page needs it no more once it is made.

    Writes the page, and ``summary.json``, ``data/steps.csv`` and ``data/spectrum.csv`` into ``out``, each renamed into
    place. ``command`` is the command line that makes this page again; the page shows it. With ``separate`` the page is
    an overview with links to a page of each run, ``run-ID.html``; all of these lie beside each other and share the
    folder ``shared``.

    Raises :class:`reports.errors.PipelineError` when the store cannot be read, and
    :class:`reports.errors.PageError` when the page cannot be made or written.
    """
    from reports.html.write import write_report  # pandas and pyarrow only when a page is asked for

    target = page or out / "report.html"
    words = tuple(command or ())
    return write_report(store, out, target=target, command=words, separate=separate, runs=runs, left_out=left_out)


def build_comparison(
    store: Path | str,
    result: CompareResult,
    *,
    page: Path,
    names: tuple[str, str],
    runs: Sequence[str] | None = None,
) -> Path:
    """Make the page of a comparison and return its path, ``page``.

    ``store`` has the tables of the runs that were compared; the page lacks the figures of a run that is not there.
    ``runs`` are the ids of these runs, if the store has others, too.
    ``names`` are the directories of baseline and candidate, as the user named them. Raises as :func:`build`.
    """
    from reports.html.write import write_comparison

    return write_comparison(store, result, target=page, names=names, runs=runs)
