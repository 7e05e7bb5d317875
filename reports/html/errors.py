"""Why no page could be made."""

from __future__ import annotations

from reports.errors import ReportError


class PageError(ReportError):
    """The page cannot be made or written."""

    exit_code = 1
