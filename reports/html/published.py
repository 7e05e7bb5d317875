"""The page of published findings, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.errors import PageError
from reports.html.render import render
from reports.html.write import put
from reports.pages.several.published import published_page
from reports.stats.published import PublishedWorkload


def write_published(
    workloads: Sequence[PublishedWorkload], target: Path, *, generated: str, notes: Sequence[str] = ()
) -> Path:
    """Write the page and return its path. Raises PageError."""
    html = render(published_page(workloads, generated=generated, notes=notes))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        put(target, html)
    except OSError as error:
        what = f"the page cannot be written: {error.strerror or error}"
        raise PageError(what=what, where=str(target), fix="make room, or name another directory") from error
    return target
