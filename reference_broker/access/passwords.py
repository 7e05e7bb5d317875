"""Salted hashes of passwords, in the format of RabbitMQ: base64 of four octets of salt and SHA-256(salt, password).

Source: RabbitMQ's documentation of passwords, "Computing a Password Hash"; definitions that one broker exports can be
imported by the other.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from hashlib import sha256
from hmac import compare_digest
from typing import Final

SALT_OCTETS: Final = 4
ALGORITHM: Final = "rabbit_password_hashing_sha256"
_HASH_OCTETS: Final = SALT_OCTETS + 32
NO_PASSWORD: Final = ""
"""The stored value of a user who cannot log in with a password."""


def hashed(password: bytes, salt: bytes) -> str:
    """The stored value of a password. ``salt`` is :data:`SALT_OCTETS` random octets."""
    return b64encode(salt + sha256(salt + password).digest()).decode()


def is_hash(stored: str) -> bool:
    """Whether this is a value that :func:`hashed` may have made."""
    try:
        return len(b64decode(stored, validate=True)) == _HASH_OCTETS
    except (binascii.Error, ValueError):
        return False


_NOBODYS: Final = hashed(b"", bytes(SALT_OCTETS))


def matches(stored: str | None, password: bytes) -> bool:
    """Whether the password is the one of the stored value. The check takes the same time if nothing is stored."""
    octets = b64decode(stored or _NOBODYS)
    salt, expected = octets[:SALT_OCTETS], octets[SALT_OCTETS:]
    is_equal = compare_digest(sha256(salt + password).digest(), expected)
    return is_equal and bool(stored)
