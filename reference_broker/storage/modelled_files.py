"""Files whose content lies in real files, and whose operations last as long as on a modelled drive.

The content is written to the machine's own file system and not synced there: the model says when it would be durable. A
process that is killed loses nothing; a machine that loses its power may lose anything.

:class:`PlacedFiles` gives each directory of a node the files of its drive, and the real ones where there is no drive.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from reference_broker.storage.drives.journal import JournaledFile as FileOnDrive
from reference_broker.storage.files import Buffer, File, Files, Note, filled
from reference_broker.storage.modelled_drive import ModelledDrive, Purpose


class ModelledFile:
    """An open file on a modelled drive."""

    def __init__(self, file: File, path: str, placed: FileOnDrive, drive: ModelledDrive, purpose: Purpose) -> None:
        self._file = file
        self._path = path
        self._placed = placed
        self._drive = drive
        self._purpose = purpose
        self.size, self.close = file.size, file.close

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Into the page cache: takes as long as the machine takes."""
        self._drive.write(self._purpose, self._placed, offset, sum(map(len, buffers)), self._path)
        self._file.write(buffers, offset)

    def read(self, offset: int, size: int) -> bytes:
        """From the page cache, or as long as the drive takes."""
        self._drive.read(self._purpose, self._placed, offset, size, self._path)
        return self._file.read(offset, size)

    def datasync(self) -> None:
        """As long as the drive takes."""
        self._drive.datasync(self._purpose, self._placed, self._path)


class ModelledFiles:
    """The files of one purpose (``wal``, ``segment``, ``data``, ``classic``) on a modelled drive."""

    def __init__(self, files: Files, drive: ModelledDrive, purpose: str) -> None:
        self._files = files
        self._drive = drive
        self._purpose = drive.purposes.setdefault(purpose, Purpose())
        self._placed: dict[str, FileOnDrive] = {}
        self.names, self.remove_dir, self.note = files.names, files.remove_dir, files.note

    def create(self, path: str, size: int = 0) -> File:
        """The zeros go to the drive in steps, as :class:`~reference_broker.storage.files.RealFiles` has it."""
        if path in self._placed:
            self._drive.remove(self._placed.pop(path), path)
        placed = self._placed[path] = self._drive.create(path)
        return filled(ModelledFile(self._files.create(path), path, placed, self._drive, self._purpose), size)

    def open(self, path: str) -> File:
        """An existing file, which lies on the drive since before if it was not made here."""
        file = self._files.open(path)
        if path not in self._placed:
            self._placed[path] = self._drive.known(file.size())
        return ModelledFile(file, path, self._placed[path], self._drive, self._purpose)

    def rename(self, old: str, new: str) -> None:
        """The file keeps its place on the drive."""
        self._drive.change_names(old)
        self._files.rename(old, new)
        if new in self._placed:
            self._drive.remove(self._placed.pop(new), new)
        if old in self._placed:
            self._placed[new] = self._placed.pop(old)

    def remove(self, path: str) -> None:
        """The room of the file is free again."""
        if path in self._placed:
            self._drive.remove(self._placed.pop(path), path)
        else:
            self._drive.change_names(path)
        self._files.remove(path)

    def make_dir(self, path: str) -> None:
        """A directory is a name like others."""
        if not os.path.isdir(path):  # noqa: PTH112 - the port speaks strings
            self._drive.change_names(path)
            self._files.make_dir(path)
            self._drive.sync_dir(self._purpose, path)

    def sync_dir(self, path: str) -> None:
        """As long as the drive takes."""
        self._drive.sync_dir(self._purpose, path)


class PlacedFiles:
    """The files of a node whose directories lie on different drives: the nearest directory above a path decides."""

    def __init__(self, elsewhere: Files, places: Mapping[str, Files]) -> None:
        """``places``: the files to use in and below each directory."""
        self._elsewhere = elsewhere
        self._places = {os.path.abspath(directory): files for directory, files in places.items()}  # noqa: PTH100
        self._known: dict[str, Files] = {}

    def create(self, path: str, size: int = 0) -> File:
        """See :class:`~reference_broker.storage.files.Files`, as for all below."""
        return self._of(os.path.dirname(path)).create(path, size)  # noqa: PTH120

    def open(self, path: str) -> File:
        """Open a file."""
        return self._of(os.path.dirname(path)).open(path)  # noqa: PTH120

    def note(self, path: str) -> Note:
        """A note; no model counts its cost for the drive."""
        return self._of(os.path.dirname(path)).note(path)  # noqa: PTH120

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        return self._of(directory).names(directory)

    def rename(self, old: str, new: str) -> None:
        """Within one directory, so on one drive."""
        self._of(os.path.dirname(old)).rename(old, new)  # noqa: PTH120

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._of(os.path.dirname(path)).remove(path)  # noqa: PTH120

    def make_dir(self, path: str) -> None:
        """Make a directory."""
        self._of(path).make_dir(path)

    def remove_dir(self, path: str) -> None:
        """Remove a directory."""
        self._of(path).remove_dir(path)
        self._known.pop(path, None)

    def sync_dir(self, path: str) -> None:
        """Sync a directory."""
        self._of(path).sync_dir(path)

    def _of(self, directory: str) -> Files:
        files = self._known.get(directory)
        if files is None:
            files = self._known[directory] = self._nearest(os.path.abspath(directory))  # noqa: PTH100
        return files

    def _nearest(self, directory: str) -> Files:
        while directory not in self._places:
            parent = os.path.dirname(directory)  # noqa: PTH120
            if parent == directory:
                return self._elsewhere
            directory = parent
        return self._places[directory]
