"""Lists of known hosts, read as OpenSSH reads them (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). Pure, except for the
reading.

A line names hosts by patterns with ``*`` and ``?``, ``!`` for exceptions, or by a hash. The mark ``@revoked`` refuses a
key, and ``@cert-authority`` trusts the certificates that a key has signed. paramiko compares no certificates of hosts,
so such a line is only noted, for the error of a host that no other line knows. A line without usable content is passed
over, as OpenSSH does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import paramiko

_HASHED: Final = "|1|"
_SSH_PORT: Final = 22


class KeyMark(Enum):
    """The mark of a line, about its key."""

    KNOWN = ""
    REVOKED = "@revoked"
    AUTHORITY = "@cert-authority"


@dataclass(frozen=True, slots=True)
class KnownHostsLine:
    """A line of a list: its mark and key, and the names and patterns of its hosts."""

    mark: KeyMark
    hosts: str
    kind: str
    key: bytes

    def is_about(self, name: str) -> bool:
        """Whether the line is about a host of this name (:func:`name_of`)."""
        if self.hosts.startswith(_HASHED):
            return _is_hash_of(self.hosts, name)
        patterns = self.hosts.split(",")
        left_out = (pattern[1:] for pattern in patterns if pattern.startswith("!"))
        return any(_matches(each, name) for each in patterns) and not any(_matches(each, name) for each in left_out)


def name_of(address: str, port: int, alias: str = "") -> str:
    """The name of a host in a list: an alias (``HostKeyAlias``) stands for address and port."""
    return alias or (address if port == _SSH_PORT else f"[{address}]:{port}").lower()


def lines_of(text: str) -> list[KnownHostsLine]:
    """The lines of a list that can be used."""
    return [line for each in text.splitlines() if (line := _read(each)) is not None]


def read(paths: Iterable[Path]) -> list[KnownHostsLine]:
    """The lines of all lists that are there. Raises OSError for one that cannot be read."""
    return [line for path in paths for line in lines_of(path.read_text("utf-8", "replace"))]


class KnownHost:
    """The entries of lists for one host."""

    def __init__(self, lines: Sequence[KnownHostsLine], name: str) -> None:
        about = [line for line in lines if line.is_about(name)]
        self._revoked = frozenset(line.key for line in about if line.mark is KeyMark.REVOKED)
        self.has_authority = any(line.mark is KeyMark.AUTHORITY for line in about)
        """Whether certificates of the host would be trusted."""
        self.keys: list[paramiko.PKey] = []
        """The keys that the host may show."""
        for line in about:
            if line.mark is KeyMark.KNOWN and line.key not in self._revoked and (key := _key(line)) is not None:
                self.keys.append(key)

    def has_revoked(self, key: paramiko.PKey) -> bool:
        """Whether the key must not be trusted any more."""
        return key.asbytes() in self._revoked


def _read(text: str) -> KnownHostsLine | None:
    words = text.split()
    if not words or words[0].startswith("#"):
        return None
    mark = KeyMark.KNOWN
    if words[0].startswith("@"):
        if words[0] not in [each.value for each in KeyMark]:
            return None
        mark = KeyMark(words.pop(0))
    if len(words) < 3:
        return None
    try:
        return KnownHostsLine(mark, words[0], words[1], base64.b64decode(words[2], validate=True))
    except (binascii.Error, ValueError):
        return None


def _matches(pattern: str, name: str) -> bool:
    expression = re.escape(pattern.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, name.lower()) is not None


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in hashed.removeprefix(_HASHED).split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), hashlib.sha1), digest)


def _key(line: KnownHostsLine) -> paramiko.PKey | None:
    """The key; None for a kind that paramiko does not know, or octets that are none."""
    try:
        return paramiko.PKey.from_type_string(line.kind, line.key)
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError):
        return None
