"""Regular expressions that users set: in policies, permissions and filters of lists.

They are matched by RE2, whose time grows with the length of the name, whatever the pattern. A matcher that tries one
way after the other needs years for ``(a+)+$``, and a node answers no client meanwhile. Look-around and backreferences
cannot be matched in that way, so RE2 does not know them.

A pattern may come from a log or a snapshot that an earlier version wrote. One that cannot be used finds nothing, on
every node. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

OCTETS_MAX: Final = 4096
"""The length of the longest pattern. The reader of RE2 may take 30 KB of memory for each three octets: 60 MB at most,
for a moment."""
_MEMORY: Final = 64 << 10
"""Octets for the program of a pattern and the states of its automaton. So no pattern takes more than a quarter of a
millisecond for a name of 255 octets. There is room for 290 names of 12 letters, or for two classes of all letters."""
_KEPT: Final = 1024
"""Compiled patterns."""
_UNKNOWN: Final = "the syntax is RE2's, without lookaheads, lookbehinds, backreferences and possessive repetitions"
_HINTS: Final = {
    "invalid perl operator": _UNKNOWN,
    "invalid escape sequence": _UNKNOWN,
    "bad repetition operator": _UNKNOWN,
    "invalid repetition size": "at most 1000",
    "pattern too large": "use fewer or smaller repetitions and alternatives",
}
"""Explanations for the reader of a refusal, by the beginning of RE2's words."""

Search = Callable[[bytes], object]
"""Finds the first match in octets; None if there is none."""


def problem_with(pattern: str, *, ignores_case: bool = False) -> str:
    """Why the pattern cannot be used; empty if it can."""
    found = _compiled(pattern, ignores_case)
    return found if isinstance(found, str) else ""


def finds(pattern: str, text: str, *, ignores_case: bool = False) -> bool:
    """Whether the pattern matches some part of the text. One that cannot be used matches nothing."""
    search = _compiled(pattern, ignores_case)
    return not isinstance(search, str) and search(_octets(text)) is not None


def literal(text: str) -> str:
    """A pattern that matches this text only."""
    escaped: bytes = re2.escape(_octets(text))
    return escaped.decode("utf-8", "surrogatepass")


@lru_cache(_KEPT)
def _compiled(pattern: str, ignores_case: bool = False) -> Search | str:
    """The search for a pattern, or what is wrong with it."""
    octets = _octets(pattern)
    if len(octets) > OCTETS_MAX:
        return f"a pattern may have {OCTETS_MAX} octets, and this one has {len(octets)}"
    try:
        search: Search = re2.compile(octets, _options(ignores_case)).search
    except re2.error as error:
        return _told(error)
    return search


def _options(ignores_case: bool) -> re2.Options:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.case_sensitive = not ignores_case
    options.never_capture = True
    options.log_errors = False  # RE2 would write to standard error itself
    return options


def _told(error: Exception) -> str:
    """What RE2 says, and what to do about it."""
    said = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
    hint = next((hint for words, hint in _HINTS.items() if said.startswith(words)), "")
    return f"{said} ({hint})" if hint else said


def _octets(text: str) -> bytes:
    """The text as RE2 reads it. Half of a surrogate pair, which JSON may contain, is a letter like others."""
    return text.encode("utf-8", "surrogatepass")
