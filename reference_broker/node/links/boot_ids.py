"""Which start of each peer this node has seen last, on disk: so an older copy of a directory is found out.

A node counts its starts; the count is its *boot id*. A directory that was restored from a copy lacks the votes and the
acknowledged entries of its node since then. If such a node counted, it could help to elect a leader that lacks
committed entries. The files of the copy are sound, so only other nodes can tell. When two nodes meet, each proves who
it is, and says its own boot (the boot id, and when that start was) and which boot of the other node it has seen last.

A node whose directory is given up begins again with a boot id far ahead
(:mod:`reference_broker.node.hosting.replacement`).

One copy is not found out: a copy that was never replaced while one of the peers that are there now could see it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from reference_broker.log.errors import DamagedLogError
from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.storage.findings import StartFinding
from reference_broker.types import NodeId

_FILE: Final = "lives"
_STALE: Final = 0  # no node has this number
_NUMBERS_END: Final = 1 << 32  # commands carry the boot id as u32
_TIMES_END: Final = 1 << 63

Boot = tuple[int, int]
"""The boot id, and the time of that start in milliseconds: two copies of a directory may count to one number, but not
at one time."""


class StaleDirectoryError(Exception):
    """This node's directory is an older copy: a peer has seen another boot, with the id ``boot_id``."""

    def __init__(self, boot_id: int) -> None:
        super().__init__(f"a peer has seen another start of this node, with boot id {boot_id}")
        self.boot_id = boot_id


class BootIds:
    """The boots that this node has seen. ``mine`` is its own boot. Raises OSError when they cannot be written.

    The file also keeps that the directory is an older copy: otherwise a copy that is started often enough would count
    up to the others.
    """

    def __init__(self, files: Files, directory: str, mine: Boot) -> None:
        self.mine = mine
        self._files = files
        self._directory = directory
        self._seen: dict[int, Boot] = self._read()
        self.findings: list[StartFinding] = []
        if _STALE in self._seen:
            raise StaleDirectoryError(self._seen[_STALE][0])

    def begin(self, *, used: bool) -> None:
        """Write the file if there is none; in a directory that was ``used``, its absence is a finding."""
        if _FILE not in self._files.names(self._directory):
            if used:
                what = "this node forgot which starts of the other nodes it has seen"
                fix = "do not start another node from an older copy of its directory: nobody would find that out"
                self.findings.append(StartFinding(what=what, where=f"{self._directory}/{_FILE}", fix=fix))
            self._write()

    def known(self, node: NodeId) -> Boot | None:
        """The newest boot of a peer that this node has seen."""
        return self._seen.get(node)

    def meet(self, node: NodeId, theirs: object, known: object) -> Boot:
        """A peer tells its own boot, ``theirs``, and the boot of this node that it has ``known``, or None. Returns the
        peer's boot. The caller must be sure that the peer said so: this method writes it down, and may stop this node
        for good.

        Raises :class:`StaleDirectoryError` when this node is the older copy, and ValueError when the peer is an older
        copy or talks nonsense.
        """
        told = _boot(known) if known is not None else None
        if told is not None and told != self.mine and told[0] >= self.mine[0]:
            self._seen[_STALE] = told
            self._write()
            raise StaleDirectoryError(told[0])
        boot, seen = _boot(theirs), self._seen.get(node)
        if seen is not None and seen != boot and seen[0] >= boot[0]:
            raise ValueError(
                f"node {node} has boot id {boot[0]}, but this node has seen another start of it, with boot id {seen[0]}"
            )
        if seen != boot:
            self._seen[node] = boot
            self._write()
        return boot

    def outlive(self, node: NodeId, boot: Boot) -> None:
        """A peer that is down is given up: from now on only a directory with a boot after ``boot`` counts for that
        peer. Raises ValueError for a value that is no boot."""
        boot, seen = _boot(boot), self._seen.get(node)
        if seen is None or seen[0] < boot[0]:
            self._seen[node] = boot
            self._write()

    def _read(self) -> dict[int, Boot]:
        if _FILE not in self._files.names(self._directory):
            return {}
        path = f"{self._directory}/{_FILE}"
        text = read_whole(self._files, path)
        try:
            return {int(node): _boot(boot) for node, boot in json.loads(text).items()}
        except (ValueError, AttributeError) as error:
            raise DamagedLogError(path, 0, f"not the boot ids of peers: {error}") from error

    def _write(self) -> None:
        write_whole(self._files, f"{self._directory}/{_FILE}", json.dumps(self._seen).encode())


def _boot(plain: Any) -> Boot:
    if isinstance(plain, list | tuple) and len(plain) == 2 and all(type(part) is int for part in plain):
        number, started_ms = plain
        if 0 < number < _NUMBERS_END and 0 <= started_ms < _TIMES_END:
            return number, started_ms
    raise ValueError(f"{plain!r} is no boot of a node")
