"""The number of the store's openings, in a file of its directory and in a file beside it.

A directory that counts less than the file beside it is an older copy, put back by a person or by a drive. All later
messages are gone, and nothing in the directory tells.
"""

from __future__ import annotations

import contextlib
from typing import Final

from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.storage.findings import StartFinding

_INSIDE: Final = "openings"
_BESIDE: Final = ".used"
"""Ending of the file beside the directory; its name begins with that of the directory."""


class Openings:
    """Counts the openings of one directory."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        parent, _, name = directory.rpartition("/")
        self._parent = parent or "/"
        self._beside = f"{name}{_BESIDE}"

    def gone(self) -> StartFinding | None:
        """The finding about a directory that is not there. None if it never was."""
        if self._beside not in self._files.names(self._parent):
            return None
        what = "the store of classic queues is gone, with the messages of all queues whose home is this node"
        return StartFinding(what=what, where=self._directory, fix="put the directory back")

    def older(self) -> StartFinding | None:
        """The finding about a directory that is about to be opened. None if it is not older than it should be."""
        inside, beside = self._counts()
        if inside >= beside:
            return None
        what = f"the store of classic queues is an older copy: opened {inside} times, not {beside}"
        fix = "put the newest copy back: later messages are missing, and messages that were acknowledged come again"
        return StartFinding(what=what, where=self._directory, fix=fix)

    def count(self) -> None:
        """The directory was opened once more. Raises OSError."""
        octets = b"%d\n" % (max(self._counts()) + 1)
        write_whole(self._files, f"{self._directory}/{_INSIDE}", octets)
        write_whole(self._files, f"{self._parent}/{self._beside}", octets)

    def _counts(self) -> tuple[int, int]:
        """In the directory, and beside it."""
        return self._count(self._directory, _INSIDE), self._count(self._parent, self._beside)

    def _count(self, directory: str, name: str) -> int:
        """0 without a count there, or if the file is damaged."""
        if name in self._files.names(directory):
            with contextlib.suppress(ValueError):
                return int(read_whole(self._files, f"{directory}/{name}"))
        return 0
