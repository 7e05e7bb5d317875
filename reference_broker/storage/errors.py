"""What can go wrong with a drive, in words for the person who runs the node."""

from __future__ import annotations

from typing import Final

START_BLANK: Final = (
    "perftest broker start --node NODE --replace "
    "(costs the classic queues whose only copy is on this node; the command names them first)"
)
"""The command that gives up what a node has on its drives, and its cost. Whoever shows the advice to a person may name
the node."""


class StorageError(Exception):
    """Base of everything that a store raises on purpose. The message says what happened, where, and what to do."""


def drive_failure(store: str, where: str, error: OSError) -> str:
    """What to tell when ``store`` cannot write: the file (``where`` if the error names none), and what to do."""
    return (
        f"{store} cannot be written: {error.strerror or error}\n  {error.filename or where}\n"
        "  the node stops and confirms nothing more; free space or replace the drive, then start it again"
    )
