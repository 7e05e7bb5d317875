"""Regular expressions out of other tools' files. RE2 matches them: its time grows with the text only."""

from __future__ import annotations

import re2


def problem_with(pattern: str) -> str:
    """Why the expression cannot be used; empty if it can."""
    try:
        _compiled(pattern)
    except re2.error as error:
        return error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
    return ""


def matches(pattern: str, text: str) -> bool:
    """Whether the expression, which can be used, matches the whole text."""
    return _compiled(pattern).fullmatch(text.encode("utf-8", "surrogatepass")) is not None


def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False  # RE2 would write to standard error itself
    return re2.compile(pattern.encode("utf-8", "surrogatepass"), options)
