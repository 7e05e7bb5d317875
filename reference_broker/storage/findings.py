"""Findings of a start: losses and damage that a store found when it opened, in words for the person who runs the node.

A store that finds such a thing and goes on notes a :class:`StartFinding`. So does a node that goes on without messages,
because the mirror that became the master did not have them. Findings stay until the process ends: the node's log, its
status, its metrics, the management API and the answer of ``perftest broker start`` all tell them. A plain crash leaves
no finding: what was never synced was never confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ROWS_MAX: Final = 20
"""Number of findings that a status names; the log of the node has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFinding:
    """One thing that a start found lost or damaged."""

    what: str
    """One sentence: what is gone or set aside."""
    where: str
    """The path of the file or directory."""
    fix: str
    """One sentence: what to do."""
    group: int | None = None
    """The queue as the store knows it; the node puts its name into ``queue``."""
    queue: str = ""
    """The name of the queue, empty while unknown."""
    messages: int = 0
    """Number of lost messages or entries; 0: none, or an unknown number."""

    def __str__(self) -> str:
        of = f"queue {self.queue}: " if self.queue else ""
        return f"{of}{self.what} ({self.where}); {self.fix}"

    def row(self) -> dict[str, str | int]:
        """The finding as JSON."""
        return {
            "what": self.what, "where": self.where, "queue": self.queue, "messages": self.messages, "fix": self.fix
        }  # fmt: skip


def rows(findings: Sequence[StartFinding]) -> list[dict[str, str | int]]:
    """The findings as JSON: those with the largest losses first, :data:`ROWS_MAX` at most. The last row then says how
    many are left out."""
    if len(findings) <= ROWS_MAX:
        return [each.row() for each in findings]
    worst = sorted(findings, key=lambda each: -each.messages)
    shown, rest = worst[: ROWS_MAX - 1], worst[ROWS_MAX - 1 :]
    left_out = StartFinding(
        what=f"{len(rest)} more findings",
        where="",
        fix="read the log of the node, which names all of them",
        messages=sum(each.messages for each in rest),
    )
    return [each.row() for each in (*shown, left_out)]
