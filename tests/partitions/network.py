"""Three network namespaces, joined by a bridge in a fourth one. A link may be cut in one direction, or in both.

A cut takes effect where packets arrive, so that the sender notices nothing that a real network would not tell it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from infra.lab import namespaces

SIDES: Final = ("node1", "node2", "node3")
_PREFIX: Final = "parts"
_NETWORK: Final = "10.99.0"
_FOLDER: Final = Path("/run/netns")
_NEWNET: Final = 0x40000000
_TABLE: Final = "inet partitions"
_VERDICTS: Final = {"silent": "drop", "refusing": "meta l4proto tcp reject with tcp reset"}

Link = tuple[str, str]
"""One direction: the side that sends, and the side that receives."""


def impossible() -> str:
    """Why there can be no partitions here, in words; empty if there can."""
    missing = [name for name in ("ip", "nft") if shutil.which(name) is None]
    return f"there is no `{missing[0]}`" if missing else namespaces.impossible()


def address(side: str) -> str:
    """The address of a side."""
    return f"{_NETWORK}.{SIDES.index(side) + 1}"


class Network:
    """The namespaces, while they are there."""

    def __init__(self) -> None:
        self._own = f"{_PREFIX}-{os.getpid()}"
        self._libc = ctypes.CDLL(None, use_errno=True)

    def enter(self, side: str) -> None:
        """Take the calling thread into the namespace of a side: its sockets and its new processes live there."""
        with (_FOLDER / self._name(side)).open("rb") as namespace:
            if self._libc.setns(namespace.fileno(), _NEWNET):
                raise OSError(ctypes.get_errno(), "setns failed", self._name(side))

    def cut(self, links: Iterable[Link], how: str) -> None:
        """Cut these links, and no others any more: ``silent``, as a cable does, or ``refusing``, as a firewall does."""
        links = list(links)
        for side in SIDES:
            sources = sorted(source for source, target in links if target == side)
            rules = [f"  ip saddr {address(source)} {_VERDICTS[how]}" for source in sources]
            chain = ["  type filter hook input priority 0", *rules]
            lines = [f"table {_TABLE}", f"delete table {_TABLE}"]
            if rules:
                lines += [f"table {_TABLE} {{", " chain incoming {", *chain, " }", "}"]
            _run("ip", "netns", "exec", self._name(side), "nft", "-f", "-", text="\n".join(lines) + "\n")

    def heal(self) -> None:
        """Cut nothing any more."""
        self.cut((), "silent")

    def _name(self, side: str) -> str:
        return f"{self._own}-{side}"

    def make(self) -> None:
        """Make the namespaces, and join them."""
        switch = self._name("switch")
        namespaces.make(switch)
        _run("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge0", "up")
        for side in SIDES:
            own = self._name(side)
            namespaces.make(own)
            _run("ip", "-n", own, "link", "add", "eth0", "type", "veth", "peer", "name", side, "netns", switch)
            _run("ip", "-n", switch, "link", "set", side, "master", "bridge0", "up")
            _run("ip", "-n", own, "address", "add", f"{address(side)}/24", "dev", "eth0")
            _run("ip", "-n", own, "link", "set", "eth0", "up")
            _run("ip", "-n", own, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Remove the namespaces."""
        for side in (*SIDES, "switch"):
            namespaces.remove(self._name(side))


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network that is gone afterwards. What a killed maker left is removed first."""
    for name in [path.name for path in _FOLDER.glob(f"{_PREFIX}-*-*")] if _FOLDER.exists() else []:
        if not psutil.pid_exists(int(name.split("-")[1])):
            namespaces.remove(name)
    made = Network()
    try:
        made.make()
        yield made
    finally:
        made.remove()


def _run(*words: str, text: str = "") -> None:
    ended = subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 0, f"`{' '.join(words)}` failed: {ended.stderr.strip()}"
