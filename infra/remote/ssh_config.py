"""The user's ``~/.ssh/config``, with the files that it includes: paramiko leaves ``Include`` out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import paramiko

_DEEP_MAX: Final = 16
"""Files within files, as in OpenSSH."""


def said_of(address: str, path: Path | None = None) -> dict[str, Any]:
    """The configuration for an address: keywords in lower case. Raises paramiko.ConfigParseError or ValueError for an
    unusable one."""
    path = path or Path("~/.ssh/config").expanduser()
    if not path.is_file():
        return {}
    return _looked_up(_whole(path, path.parent, address), address)


def _looked_up(text: str, address: str) -> dict[str, Any]:
    return dict(paramiko.SSHConfig.from_text(text).lookup(address))


def _whole(path: Path, home: Path, address: str, deep: int = 0) -> str:
    """A file with the included files in their places. An include within a block counts for the hosts of that block, and
    the block goes on behind it."""
    if deep > _DEEP_MAX:
        raise ValueError(f"{path} is included within {_DEEP_MAX} files: do they include each other?")
    lines: list[str] = []
    block = "Host *"
    for line in path.read_text("utf-8", "replace").splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "include":
            if _looked_up(f"{block}\n  User here", address).get("user") == "here":
                lines += [_whole(each, home, address, deep + 1) + f"\n{block}" for each in _files(rest, home)]
            continue
        if keyword.lower() in ("host", "match"):
            block = line
        lines.append(line)
    return "\n".join(lines)


def _files(patterns: str, home: Path) -> list[Path]:
    """The files that an Include names, by patterns that are relative to ``~/.ssh``; existing files only."""
    found: list[Path] = []
    for pattern in shlex.split(patterns, comments=True):
        at = home / Path(pattern).expanduser()
        found += [each for each in sorted(Path(at.anchor).glob(str(at.relative_to(at.anchor)))) if each.is_file()]
    return found
