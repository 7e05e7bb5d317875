"""When a certificate ends: its file, read as far as that date. Pure but for the file.

The standard library reads the dates of other people's certificates only after a handshake, so the few fields before
them are stepped over here (DER, X.509).
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_CONTEXT_0: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80


def end_of(file: Path) -> datetime:
    """The moment after which the first certificate of a PEM file holds no more. Raises OSError or ValueError."""
    text = file.read_text(encoding="latin-1")
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    octets = ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])
    try:
        return _not_after(octets)
    except IndexError as error:
        raise ValueError(f"{file} is no certificate: it ends too early") from error


def _not_after(octets: bytes) -> datetime:
    at, _end, _tag = _content(octets, 0)
    at, _end, _tag = _content(octets, at)
    if octets[at] == _CONTEXT_0:  # the version, which may be missing
        at = _content(octets, at)[1]
    for _skipped in ("serial number", "algorithm", "issuer"):
        at = _content(octets, at)[1]
    at, _end, _tag = _content(octets, at)
    at = _content(octets, at)[1]
    begin, end, tag = _content(octets, at)
    return _moment(octets[begin:end].decode("ascii"), is_short=tag == _UTC_TIME)


def _content(octets: bytes, at: int) -> tuple[int, int, int]:
    """Where the content of the value at ``at`` begins and ends, and its tag."""
    tag, size, begin = octets[at], octets[at + 1], at + 2
    if size >= _LONG:
        count = size - _LONG
        size, begin = int.from_bytes(octets[begin : begin + count], "big"), begin + count
    return begin, begin + size, tag


def _moment(text: str, *, is_short: bool) -> datetime:
    """A date with a year of two digits, which are those from 1950 to 2049, or of four."""
    if is_short:
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
