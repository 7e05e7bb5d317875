"""What lies in a cluster's directories, in classes by name, and what may befall it.

No class is written down that depends on what the broker does with a file: a kind of file that comes new is a class of
its own, by its name.
"""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAGE: Final = 4096
_SECTOR: Final = 512
_HEAD: Final = 36
"""Octets of a batch's head, and of each row."""
SHARED: Final = ("cluster.json", "secret")
"""Files of the whole cluster, in its directory."""
_NOT_DATA: Final = re.compile(r"\.log$|\.lock$|^\.")
_BY_SUFFIX: Final = {
    ".meta": "meta log",
    ".snapshot": "snapshot",
    ".segment": "segment",
    ".qi": "classic index",
    ".qs": "classic messages",
    ".rdq": "classic shared",
    ".spare": "wal spare",
}
_FOLDERS: Final = {
    "wal": "wal folder",
    "meta": "meta folder",
    "segments": "segment folder",
    "classic": "classic folder",
}


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A file or a folder, relative to the directory of the cluster."""

    path: str
    kind: str
    is_folder: bool = False


def targets(directory: Path, node: str) -> list[Target]:
    """What a node has, or what all nodes share if ``node`` is empty."""
    if not node:
        return [Target(name, name) for name in SHARED if (directory / name).exists()]
    home = directory / node
    files = [path for path in sorted(home.rglob("*")) if path.is_file() and not _NOT_DATA.search(path.name)]
    found = [Target(str(path.relative_to(directory)), _kind(path, home)) for path in files]
    folders = [path for path in sorted(home.rglob("*")) if path.is_dir() and path.name in _FOLDERS]
    return found + [Target(str(path.relative_to(directory)), _FOLDERS[path.name], is_folder=True) for path in folders]


def _kind(path: Path, home: Path) -> str:
    if path.suffix == ".wal":
        return _kind_of_wal(path)
    if path.suffix in _BY_SUFFIX:
        return _BY_SUFFIX[path.suffix]
    if path.name == "identity":
        return f"identity of {path.parent.relative_to(home)}"
    name = re.sub(r"[0-9a-f]{8,}|\d+", "N", path.name)
    return f"classic {name}" if "classic" in path.relative_to(home).parts else name


def _kind_of_wal(path: Path) -> str:
    """The newest file is the one that was written last. A file behind it stands ready."""
    files = sorted(path.parent.glob("*.wal"))
    newest = max(files, key=lambda each: each.stat().st_mtime_ns)
    if path == newest:
        return "wal newest"
    if path > newest:
        return "wal ready"
    return "wal oldest" if path == files[0] else "wal middle"


def end_of_data(path: Path) -> int:
    """Where the data of a file ends. Behind that there are zeros; in a WAL file that is used again, old batches."""
    octets = path.read_bytes()
    return (path.suffix == ".wal" and _end_of_batches(octets)) or len(octets.rstrip(b"\0"))


def _end_of_batches(octets: bytes) -> int:
    """Where the last batch of a WAL file ends, as docs/internals/wal-format.md draws it: every batch stands on a sector
    and begins with the same mark of this use of the file. 0: there is none."""
    mark = octets[_SECTOR : _SECTOR + 8]
    starts = [at for at in range(_SECTOR, len(octets), _SECTOR) if octets[at : at + 8] == mark]
    if not starts or not any(mark):
        return 0
    payload: int
    rows: int
    payload, rows = struct.unpack_from(">QI", octets, starts[-1] + 16)
    return min(len(octets), starts[-1] + _HEAD * (rows + 1) + payload)


Change = Callable[[Path, Path, random.Random], str]
"""What befalls a file: the file, an older copy of it, which may not exist, and chance. Gives what was done in words;
no words: this cannot befall this file."""


def _cut(path: Path, _stale: Path, chance: random.Random) -> str:
    end = end_of_data(path)
    if end < 2:
        return ""
    octets = chance.randint(1, min(chance.choice((64, _SECTOR, _PAGE, end // 2 + 1)), end - 1))
    with path.open("r+b") as file:
        file.truncate(end - octets)
    return f"cut at {end - octets}, {octets} octets before the end of its data"


def _empty(path: Path, _stale: Path, _chance: random.Random) -> str:
    if not path.stat().st_size:
        return ""
    with path.open("r+b") as file:
        file.truncate(0)
    return "cut to nothing"


def _flip(path: Path, _stale: Path, chance: random.Random) -> str:
    end = end_of_data(path)
    if not end:
        return ""
    at = chance.choice((chance.randrange(end), max(0, end - 1 - chance.randrange(600))))
    return _overwrite(path, at, bytes([path.read_bytes()[at] ^ chance.randrange(1, 256)]), f"one octet at {at} changed")


def _zero_page(path: Path, _stale: Path, chance: random.Random) -> str:
    end = end_of_data(path)
    at = chance.randrange(end // _PAGE + 1) * _PAGE
    return _overwrite(path, at, bytes(min(_PAGE, end - at)), f"the page at {at} is zeros") if end > at else ""


def _zero_end(path: Path, _stale: Path, chance: random.Random) -> str:
    end = end_of_data(path)
    octets = min(end, chance.choice((1, 64, _SECTOR, _PAGE, 4 * _PAGE)))
    return _overwrite(path, end - octets, bytes(octets), f"{octets} octets from {end - octets} on are zeros")


def _overwrite(path: Path, at: int, octets: bytes, words: str) -> str:
    if not octets:
        return ""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(octets)
    return words


def _delete(path: Path, _stale: Path, _chance: random.Random) -> str:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return "deleted"


def following(path: Path) -> Path | None:
    """The next name in a row of numbered files; None if the name is no number."""
    if not (found := re.fullmatch(r"\d+|[0-9a-f]{8,}", path.stem)):
        return None
    base = 10 if path.stem.isdigit() else 16
    return path.with_name(f"{int(found.group(), base) + 1:0{len(path.stem)}{'d' if base == 10 else 'x'}}{path.suffix}")


def _duplicate(path: Path, _stale: Path, _chance: random.Random) -> str:
    if path.is_dir() or (beside := following(path)) is None:
        return ""
    shutil.copy2(path, beside)
    return f"copied over {beside.name}"


def _stale(path: Path, stale: Path, _chance: random.Random) -> str:
    if not stale.exists() or (path.is_file() and stale.read_bytes() == path.read_bytes()):
        return ""
    if path.is_dir():
        shutil.rmtree(path)
        shutil.copytree(stale, path)
    else:
        shutil.copy2(stale, path)
    return "replaced by an older copy"


DAMAGES: Final[dict[str, Change]] = {
    "cut": _cut,
    "empty": _empty,
    "flip": _flip,
    "zero page": _zero_page,
    "zero end": _zero_end,
    "delete": _delete,
    "duplicate": _duplicate,
    "stale copy": _stale,
}
FOR_FOLDERS: Final = ("delete", "stale copy")
