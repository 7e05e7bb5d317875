"""How a start treats damaged, missing or foreign files in the store: it loses none of their octets.

Such a file is *set aside*: it keeps its octets under a name with ``.damaged`` in it, which the store never reads or
replaces. Files set aside in a queue's directory go with the queue; others stay until a person removes them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from reference_broker.storage.files import Files, read_whole, write_whole
from reference_broker.storage.findings import StartFinding

_SET_ASIDE: Final = ".damaged"


def is_set_aside(name: str) -> bool:
    """Whether a start has set this file aside."""
    return _SET_ASIDE in name


def set_aside(files: Files, directory: str, name: str) -> str:
    """Give a file or a directory a name that the store never reads. Returns the path."""
    there = set(files.names(directory))
    path = next(f"{directory}/{free}" for free in _names_for(name) if free not in there)
    files.rename(f"{directory}/{name}", path)
    return path


def keep_copy(files: Files, directory: str, name: str) -> str:
    """Keep a copy of a file that stays in use. Returns the path. A copy that is there already is not made again, so a
    start that is repeated does not fill the drive."""
    there, octets = set(files.names(directory)), read_whole(files, f"{directory}/{name}")
    for free in _names_for(name):
        path = f"{directory}/{free}"
        if free not in there:
            write_whole(files, path, octets)
            return path
        if read_whole(files, path) == octets:
            return path
    raise AssertionError("there is always a free name")


def own_names(files: Files, directory: str, pattern: re.Pattern[str], findings: list[StartFinding]) -> Iterator[str]:
    """The names in a directory that match a pattern. Others are set aside."""
    for name in files.names(directory):
        if pattern.fullmatch(name):
            yield name
        elif not is_set_aside(name):
            kept = set_aside(files, directory, name)
            findings.append(
                StartFinding(
                    what="a file has a name that the store of classic queues does not know, so it is set aside",
                    where=kept,
                    fix="move the file to where it belongs, or remove it",
                )
            )


def _names_for(name: str) -> Iterator[str]:
    yield name + _SET_ASIDE
    for number in itertools.count(2):
        yield f"{name}{_SET_ASIDE}-{number}"
