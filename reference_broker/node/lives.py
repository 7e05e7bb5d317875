"""Which life of each peer this node has seen last, on disk: how an older copy of a directory is found out.

A directory that was restored from a copy has forgotten votes that its node gave and entries that it acknowledged since:
counted on, it could help to elect a leader without entries that are committed. Its own files are sound, so only the
others can tell. Nodes prove who they are when they meet, and say their life (the number of starts, and when this one
began) and what they know of each other's.

A node whose directory is given up begins again in a life far behind (:mod:`reference_broker.node.replacing`).

Not found out: a copy that was never replaced while one of the peers that are there now could see it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from reference_broker.log.errors import DamagedLogError
from reference_broker.log.files import Files
from reference_broker.types import NodeId

_FILE: Final = "lives"
_OUTLIVED: Final = 0  # no node has this number
_NUMBERS_END: Final = 1 << 32  # commands carry the number as u32
_TIMES_END: Final = 1 << 63

Life = tuple[int, int]
"""The number of the start, and its time in milliseconds: two copies may count to one number, not at one time."""


class OutlivedError(Exception):
    """This node's directory is an older copy: a peer has seen ``life``."""

    def __init__(self, life: int) -> None:
        super().__init__(f"a peer has seen another life {life} of this node")
        self.life = life


class Lives:
    """What this node knows. ``mine`` is its own life. Raises OSError when it cannot be kept.

    That the directory is an older copy is kept, too: a copy that is started often enough would count up to the others.
    """

    def __init__(self, files: Files, directory: str, mine: Life) -> None:
        self.mine = mine
        self._files = files
        self._directory = directory
        self._lives: dict[int, Life] = self._read()
        if _OUTLIVED in self._lives:
            raise OutlivedError(self._lives[_OUTLIVED][0])

    def known(self, node: NodeId) -> Life | None:
        """The newest life of a peer."""
        return self._lives.get(node)

    def meet(self, node: NodeId, theirs: object, known: object) -> Life:
        """A peer says that it is in life ``theirs`` and has ``known`` this node in some life, or None; the life it is
        in. Only what a peer has proved to say may come here: it is written down, and may stop this node for good.

        Raises :class:`OutlivedError` when this node is the older copy, ValueError when the peer is or makes no sense.
        """
        told = _life(known) if known is not None else None
        if told is not None and told != self.mine and told[0] >= self.mine[0]:
            self._lives[_OUTLIVED] = told
            self._write()
            raise OutlivedError(told[0])
        life, seen = _life(theirs), self._lives.get(node)
        if seen is not None and seen != life and seen[0] >= life[0]:
            raise ValueError(f"node {node} says it is in life {life[0]}, but another life {seen[0]} of it was seen")
        if seen != life:
            self._lives[node] = life
            self._write()
        return life

    def outlive(self, node: NodeId, life: Life) -> None:
        """A peer that is down is given up: it is ``life`` that a directory of it must come after from now on. Raises
        ValueError for what is no life."""
        life, seen = _life(life), self._lives.get(node)
        if seen is None or seen[0] < life[0]:
            self._lives[node] = life
            self._write()

    def _read(self) -> dict[int, Life]:
        if _FILE not in self._files.names(self._directory):
            return {}
        path = f"{self._directory}/{_FILE}"
        file = self._files.open(path)
        text = file.read(0, file.size())
        file.close()
        try:
            return {int(node): _life(life) for node, life in json.loads(text).items()}
        except (ValueError, AttributeError) as error:
            raise DamagedLogError(path, 0, f"not the lives of peers: {error}") from error

    def _write(self) -> None:
        temporary = f"{self._directory}/{_FILE}.tmp"
        file = self._files.create(temporary)
        try:
            file.write([json.dumps(self._lives).encode()], 0)
            file.datasync()
        finally:
            file.close()
        self._files.rename(temporary, f"{self._directory}/{_FILE}")
        self._files.sync_dir(self._directory)


def _life(plain: Any) -> Life:
    if isinstance(plain, list | tuple) and len(plain) == 2 and all(type(part) is int for part in plain):
        number, started_ms = plain
        if 0 < number < _NUMBERS_END and 0 <= started_ms < _TIMES_END:
            return number, started_ms
    raise ValueError(f"{plain!r} is no life of a node")
