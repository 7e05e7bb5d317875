"""The files of a run directory when its run ended, and their changes since.

The manifest has the octets and the CRC-32 of each file beside it (``files``) and a CRC-32 of itself (``checksum``). The
checksum of the manifest is over its values in canonical JSON, not over its octets: so the manifest stays one file that
is replaced whole, and a checksum can never lie beside a manifest of another moment. Both keys are always there, so a
manifest that lost one of them differs from a manifest of an earlier version, which has neither.

CRC-32, because damage is an accident and not an attack: the sum is taken while a file is written, and the sums of parts
that were read apart can be joined, so that no file has to be read once more for its checksum. The runs of earlier
versions, and runs that were killed, have no checksums of files and are not checked.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from perftest.results.folder import ReadableFolder
from perftest.results.schema import BESIDE_MANIFEST, MANIFEST

FILES: Final = "files"
"""The key of the manifest with the sum of each file, by its name; empty before the end of the run."""
CHECKSUM: Final = "checksum"
"""The key of the manifest with the CRC-32 of all other keys, as eight hexadecimal digits."""

_CHUNK: Final = 2**20
"""Number of octets of a file that are read at once."""


class Sum(NamedTuple):
    """The octets of some content, and their CRC-32."""

    octets: int = 0
    crc32: int = 0

    def plus(self, content: bytes) -> Sum:
        """The sum of this content and what follows it."""
        return Sum(self.octets + len(content), zlib.crc32(content, self.crc32))

    def joined(self, other: Sum) -> Sum:
        """The sum of this content and the content that ``other`` is the sum of."""
        return Sum(self.octets + other.octets, _product(_power(8 * other.octets), self.crc32) ^ other.crc32)

    def to_json(self) -> dict[str, object]:
        """The value in ``files`` of the manifest."""
        return {"octets": self.octets, "crc32": f"{self.crc32:08x}"}


_POLYNOMIAL: Final = 0xEDB88320
"""The polynomial of CRC-32 without its highest term; bit 31 is the term 1."""


def _product(one: int, other: int) -> int:
    """The product of two polynomials, modulo the polynomial of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def _power(exponent: int) -> int:
    """The power of x, modulo the polynomial of CRC-32."""
    found, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            found = _product(found, square)
        square = _product(square, square)
        exponent >>= 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A line that could not be read (counting from 1; 0 if unknown), or a whole file (None). ``reason`` goes on from
    the name of a whole file."""

    file: str
    line: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damages:
    """All damage of a run: the number of damaged records in each file, and what is wrong with whole files."""

    records: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Iterable[Damage]) -> Damages:
        """The damage of a run, from all faults found. Of a file with several faults only the first is told."""
        listed = list(found)
        return cls(
            records=Counter(each.file for each in listed if each.line is not None),
            files={each.file: each.reason for each in reversed(listed) if each.line is None},
        )

    def __bool__(self) -> bool:
        return bool(self.records or self.files)

    def lines(self) -> list[str]:
        """A clause for each damaged file."""
        counted = {file: f"has {count:,} damaged record{'s' * (count > 1)}" for file, count in self.records.items()}
        return [f"{file} {what}" for file, what in sorted({**counted, **self.files}.items())]


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of JSON values with its checksum."""
    whole = {**manifest, FILES: manifest.get(FILES, {})}
    return {**whole, CHECKSUM: _checksum(whole)}


def sums_to_json(sums: Mapping[str, Sum]) -> dict[str, object]:
    """The value of ``files`` of the manifest."""
    return {name: of_file.to_json() for name, of_file in sorted(sums.items())}


def sum_of(folder: ReadableFolder, name: str) -> Sum:
    """The sum of a file. Raises OSError."""
    found = Sum()
    with folder.open(name) as file:
        while content := file.read(_CHUNK):
            found = found.plus(content)
    return found


def changes(manifest: Mapping[str, Any], found: Mapping[str, Sum | None]) -> Iterator[Damage]:
    """The files that are not as the run left them, with the manifest itself.

    :param found: the sums of the files that are there now; None for a file that cannot be read
    """
    if FILES not in manifest and CHECKSUM not in manifest:
        return
    if manifest.get(CHECKSUM) != _checksum(manifest):
        yield Damage(file=MANIFEST, line=None, reason="has changed since the run wrote it")
    for name, recorded in recorded_sums(manifest).items():
        if reason := _change(recorded, is_there=name in found, now=found.get(name)):
            yield Damage(file=name, line=None, reason=reason)


def file_fault(manifest: Mapping[str, Any], name: str, now: Sum) -> str:
    """The fault of one file, whose sum is ``now``, as the rest of a clause; empty if the file is as the run left it, or
    if the manifest has no sum of the file."""
    recorded = recorded_sums(manifest).get(name)
    return "" if recorded is None else _change(recorded, is_there=True, now=now)


def changed_files(folder: ReadableFolder, manifest: Mapping[str, Any]) -> list[Damage]:
    """As :func:`changes`; reads the files of the folder that the manifest has sums of."""
    found: dict[str, Sum | None] = {}
    for name in recorded_sums(manifest):
        try:
            found[name] = sum_of(folder, name)
        except FileNotFoundError:
            continue
        except OSError:
            found[name] = None
    return list(changes(manifest, found))


def recorded_sums(manifest: Mapping[str, Any]) -> dict[str, Sum]:
    """The sums of files that a manifest has. A sum that no version writes is left out: the checksum of the manifest
    tells that the manifest has changed."""
    files = manifest.get(FILES)
    found: dict[str, Sum] = {}
    if not isinstance(files, Mapping):
        return found
    for name in BESIDE_MANIFEST:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found[name] = Sum(int(files[name]["octets"]), int(files[name]["crc32"], 16))
    return found


def _change(recorded: Sum, *, is_there: bool, now: Sum | None) -> str:
    """The fault of a file, as the rest of a clause; empty if there is none."""
    if now == recorded:
        return ""
    if not is_there:
        return "is missing"
    if now is None:
        return "cannot be read"
    if not now.octets:
        return f"is empty: the run wrote {recorded.octets:,} octets"
    if now.octets < recorded.octets:
        return f"is cut short: {now.octets:,} of {recorded.octets:,} octets are there"
    if now.octets > recorded.octets:
        return f"has grown: it has {now.octets:,} octets, and the run wrote {recorded.octets:,}"
    return "has changed: its checksum is not that of the end of the run"


def _checksum(manifest: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != CHECKSUM}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True, separators=(',', ':')).encode()):08x}"
