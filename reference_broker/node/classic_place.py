"""Whose the directory of classic queues is, when the queues do not lie below the data directory.

The drive of that directory may be missing alone: not mounted, or another one mounted in its place. A start would then
silently forget confirmed messages. So the first start gives the directory the identity of the data directory, and marks
the data directory last. From then on the two belong together, wherever the queues are moved.

A node whose classic queues lie below its data directory needs no mark, because the log has checked that directory.
"""

from __future__ import annotations

from typing import Final

from reference_broker.classic.store import was_used
from reference_broker.log.errors import ForeignDirectoryError
from reference_broker.log.opening import IDENTITY
from reference_broker.node.config import CLASSIC, NodeConfig
from reference_broker.storage.errors import START_BLANK
from reference_broker.storage.files import Files, read_whole, write_whole

MARK: Final = "classic-identity"
"""The file in the data directory which says that classic queues lie, or lay, in another directory."""


def claim(files: Files, config: NodeConfig) -> None:
    """Make the directory of classic queues if it has a place of its own, and check that it is this node's.

    The log must be open: it gives the data directory its identity. Raises
    :class:`~reference_broker.log.errors.ForeignDirectoryError` or OSError.
    """
    data, directory = str(config.data_dir), str(config.classic_dir)
    if config.is_classic_placed:
        files.make_dir(directory)
    is_marked = MARK in files.names(data)
    if not (is_marked or config.is_classic_apart):
        return
    own = read_whole(files, f"{data}/{IDENTITY}")
    there = read_whole(files, f"{directory}/{IDENTITY}") if IDENTITY in files.names(directory) else None
    _refuse_foreign(files, config, there, own, is_marked=is_marked)
    if there is None:
        write_whole(files, f"{directory}/{IDENTITY}", own)
    if not is_marked:
        write_whole(files, f"{data}/{MARK}", own)


def _refuse_foreign(files: Files, config: NodeConfig, there: bytes | None, own: bytes, *, is_marked: bool) -> None:
    """Raise ForeignDirectoryError if the directory cannot belong to this node's classic queues."""
    directory, wanted = str(config.classic_dir), f"the classic queues that belong to {config.data_dir}"
    mend = f"copy {config.data_dir}/{IDENTITY} to {directory}/{IDENTITY}"
    if there is not None and there != own:
        advice = "name the directory that was used with this data, or an empty one if there was none"
        if own.startswith(there):  # it was cut off
            advice = f"if these are the queues of this node: {mend}"
        raise ForeignDirectoryError(directory, "classic queues that belong to other data", wanted, advice)
    if there is None and is_marked and was_used(files, directory):
        what = f"classic queues, and no file {IDENTITY!r}"
        raise ForeignDirectoryError(directory, what, wanted, f"if these are the queues of this node: {mend}")
    if there is None and is_marked:
        advice = f"is the drive of classic_dir mounted? if it is lost: {START_BLANK}"
        raise ForeignDirectoryError(directory, "nothing", wanted, advice)
    former = f"{config.data_dir}/{CLASSIC}"
    if config.is_classic_apart and there is None and was_used(files, former) and not was_used(files, directory):
        advice = f"move the content of {former} there, or leave classic_dir out"
        raise ForeignDirectoryError(directory, "nothing", f"the classic queues that lie in {former}", advice)
