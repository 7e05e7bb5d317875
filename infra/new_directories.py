"""The directories that the first start of a cluster makes: they go again if the start fails, or is killed.

A node writes into its directories whose they are. A start that is killed leaves no ``cluster.json``, so the next start
would be that of another cluster, whose nodes must refuse these directories. The register names them until the cluster
is kept. Only directories that were not there before are named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from infra.cluster import Node
from infra.register import Kind, Register


@contextlib.contextmanager
def made(register: Register, nodes: Iterable[Node], note: Callable[[Register, Kind, str], None]) -> Iterator[None]:
    """The ``with`` block starts nodes that have no data. If the block fails, only their logs stay. ``note`` makes an
    entry in the register."""
    nodes = list(nodes)
    new = _missing(nodes)
    for path in new:
        note(register, Kind.DIRECTORY, str(path))
    try:
        yield
    except BaseException:
        logs = {Path(node.log_file) for node in nodes}
        for path in new:
            _remove_all_but(logs, path)
        raise
    finally:
        for path in new:
            register.forget(Kind.DIRECTORY, str(path))


def _missing(nodes: Iterable[Node]) -> list[Path]:
    """The directories of nodes that do not exist, without those within another one."""
    found: list[Path] = []
    for path in sorted({Path(each) for node in nodes for each in (node.data_dir, *node.paths().values())}):
        if not path.exists() and not any(path.is_relative_to(outer) for outer in found):
            found.append(path)
    return found


def _remove_all_but(kept: set[Path], directory: Path) -> None:
    for path, directories, names in os.walk(directory, topdown=False):
        for name in names:
            if Path(path, name) not in kept:
                with contextlib.suppress(OSError):
                    Path(path, name).unlink()
        for name in directories:
            with contextlib.suppress(OSError):  # a log is in it
                Path(path, name).rmdir()
    with contextlib.suppress(OSError):
        directory.rmdir()
