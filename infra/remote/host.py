"""A host that is reached over SSH, and what can go wrong with it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perftest.errors import HelpfulError


class RemoteError(HelpfulError):
    """A host could not be reached, or could not carry out a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteHost:
    """How a host is reached. None stands for what ``~/.ssh/config`` says, and after that for SSH's default.

    ``name`` stands in records and messages. ``directory`` is where everything of ours is put, relative to the home of
    the user if it is relative. ``python`` is the interpreter there. ``jump`` is the host to go through.
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    jump: RemoteHost | None = None
    python: str = "python3"
    directory: str = ".perftest"


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command: its exit status (-1: the host did not say) and its output."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def last_words(self) -> str:
        """The last line of stderr, or of stdout if there is none."""
        text = (self.stderr.strip() or self.stdout.strip()).decode(errors="replace")
        return text.rpartition("\n")[2][:500]


def command_line(argv: Sequence[str]) -> str:
    """The one place where a command becomes a line for the shell of a host. Every word reaches the program as it is.
    Raises ValueError for words that no shell can carry."""
    if any("\0" in word for word in argv):
        raise ValueError("a word of a command has a NUL octet")
    return shlex.join(argv)
