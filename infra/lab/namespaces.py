"""Network namespaces of labs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from perftest.errors import HelpfulError

_FOLDER: Final = Path("/run/netns")
"""Directory in which ``ip netns`` keeps namespaces."""


class LabError(HelpfulError):
    """A lab that cannot be made or used here. Exit code 3."""

    code = 3


def make(name: str) -> None:
    """Make a namespace. Raises :class:`LabError`."""
    _ip("add", name)


def remove(name: str) -> bool:
    """Remove a namespace; gives whether there was one. Raises :class:`LabError`."""
    there = (_FOLDER / name).exists()
    if there:
        _ip("delete", name)
    return there


def impossible() -> str:
    """Why no namespace can be made here, in words; empty if one can. Makes one for a try."""
    if os.geteuid() != 0:
        return "network namespaces are made by root only"
    name = f"pt-try-{os.getpid()}"
    try:
        make(name)
        remove(name)
    except LabError as error:
        return error.what
    return ""


def _ip(verb: str, name: str) -> None:
    try:
        subprocess.run(["ip", "netns", verb, name], check=True, capture_output=True, timeout=30)
    except FileNotFoundError as error:
        raise LabError("there is no `ip` to make network namespaces", name, "install iproute2") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise LabError(f"`ip netns {verb}` failed: {said}", name, "see whether this machine allows it") from error
