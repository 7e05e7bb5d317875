"""The page of a metric over time, as a file."""

from __future__ import annotations

from pathlib import Path

from reports.errors import PageError
from reports.html.render import render
from reports.html.write import put
from reports.pages.several.history import history_page
from reports.stats.history import MetricHistory


def write_history(found: MetricHistory, target: Path, *, workload: str, generated: str) -> Path:
    """Write the page and return its path. Raises PageError."""
    html = render(history_page(found, workload=workload, generated=generated))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        put(target, html)
    except OSError as error:
        what = f"the page cannot be written: {error.strerror or error}"
        raise PageError(what=what, where=str(target), fix="name a file that can be written to") from error
    return target
