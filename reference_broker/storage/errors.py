"""The faults of a drive, in words for the person who runs the node."""

from __future__ import annotations

import errno
from typing import Final

START_BLANK: Final = (
    "perftest broker start --node NODE --replace "
    "(costs the classic queues whose only copy is on this node; the command names them first)"
)
"""The command that gives up a node's files, and its cost. The code that shows the advice may add the node's name."""


class StorageError(Exception):
    """Base of a store's own errors. The message says what happened, where, and what to do."""


MORE_FILES: Final = "raise the limit of open files (ulimit -n; LimitNOFILE in a service)"
"""Advice when a process, or the system, has no open file left."""


def lacks_files(error: BaseException) -> bool:
    """Whether there were too many open files. Then nothing is wrong with any drive."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def drive_failure(store: str, where: str, error: OSError) -> str:
    """The message when ``store`` cannot use its files: the file (``where`` if the error names none), and what to do."""
    lacks, what = lacks_files(error), error.strerror or error
    fix = MORE_FILES if lacks else "free space or replace the drive"
    return (
        f"{store} {'cannot open a file' if lacks else 'cannot be written'}: {what}\n  {error.filename or where}\n"
        f"  the node stops and confirms nothing more; {fix}, then start it again"
    )
