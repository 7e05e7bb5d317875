"""The files of a cluster's first start in the directories of its nodes, removed again if the start fails.

A node marks its directories as its own. The next start after a failed one starts another cluster, whose nodes must
refuse such directories. Older files stay, and so do the nodes' logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from infra.cluster import Node


@contextlib.contextmanager
def made(nodes: Iterable[Node]) -> Iterator[None]:
    """The ``with`` block starts nodes that have no data. If the block fails, only their logs stay."""
    nodes = list(nodes)
    before = _below(nodes) | {Path(node.log_file) for node in nodes}
    try:
        yield
    except BaseException:
        for path in sorted(_below(nodes) - before, reverse=True):  # what lies in a directory comes before the directory
            with contextlib.suppress(OSError):  # a log is in it
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        raise


def _below(nodes: list[Node]) -> set[Path]:
    """The directories of nodes as far as they exist, and everything in them."""
    places = {Path(each) for node in nodes for each in (node.data_dir, *node.paths().values())}
    return {path for place in places if place.exists() for path in (place, *place.rglob("*"))}
