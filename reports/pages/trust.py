"""The trust list as the page shows it: worst first, and what it means for steps and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reports.pages import words
from reports.pages.model import Chip, Sentence
from reports.stats.check import Check, Status

_ORDER: Final = (Status.FAIL, Status.WARN, Status.NOTE, Status.PASS)


def worst_first(found: Sequence[Check]) -> list[Check]:
    """The checks as a reader wants them: failures, warnings, what to know, and what is well."""
    return sorted(found, key=lambda check: _ORDER.index(check.status))


def chip(found: Sequence[Check]) -> Chip:
    """The trust list in three words."""
    failed = sum(check.status is Status.FAIL for check in found)
    warned = sum(check.status is Status.WARN for check in found)
    if failed:
        return Chip(name="Trust", value=f"{words.plural(failed, 'check')} failed", status=Status.FAIL)
    if warned:
        return Chip(name="Trust", value=words.plural(warned, "warning"), status=Status.WARN)
    return Chip(name="Trust", value="all checks passed", status=Status.PASS)


def remarks(found: Sequence[Check], step: int) -> str:
    """The checks that speak against one step, by name; empty when none does."""
    return ", ".join(
        check.check for check in found if check.status in (Status.FAIL, Status.WARN) and step in check.steps
    )


def caution(found: Sequence[Check], *, prefix: str) -> list[Sentence]:
    """What must be known before the figures are read: the failed checks, by name."""
    failed = [check.check for check in found if check.status is Status.FAIL]
    if not failed:
        return []
    text = f"Read these figures with care, for they may not show what they claim; failed: {', '.join(failed)}."
    return [Sentence(text=text, anchor=f"{prefix}trust", see="trust list")]
