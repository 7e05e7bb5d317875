"""Reads a mapping of another tool's file without passing over a key silently.

An importer asks for each key by its name. :meth:`SourceSection.finish` reports the keys that the importer did not ask
for, each with the nearest known key. A number may be written as text, as RabbitTestTool does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perftest.importers.notes import Notes
from perftest.spec.rules import SIZE_BYTES_MIN


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant."""
    plain = {_plain(name): name for name in known}
    found = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.7)
    return plain[found[0]] if found else None


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()


class SourceSection:
    """A mapping of the source, at ``path`` of ``file``."""

    def __init__(self, data: Mapping[str, Any], notes: Notes, path: str = "", file: str = "") -> None:
        self.data = data
        self.notes = notes
        self.path = path
        self.file = file or notes.file
        self._asked: dict[str, None] = {}

    def at(self, key: str) -> str:
        """The key path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Whether a key is there. Asking for a key makes it known."""
        self._asked[key] = None
        return self.data.get(key) is not None

    def raw(self, *keys: str, default: Any = None) -> Any:
        """The value of the first of these keys that is there; the keys are a key and its former names."""
        found = [self.data[key] for key in keys if self.has(key)]
        return found[0] if found else default

    def text(self, *keys: str, default: str = "") -> str:
        """Text. A number or a truth value is returned as it would be written."""
        value = self.raw(*keys, default=default)
        if isinstance(value, str | int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        self._wrong(keys[0], value, "text", "write it between quotes")
        return default

    def count(self, *keys: str, default: int = 0) -> int:
        """A whole number of 0 or more."""
        number = self.number(*keys, default=default)
        if number != int(number):
            self._wrong(keys[0], number, "a whole number", "write one")
            return default
        return int(number)

    def number(self, *keys: str, default: float = 0) -> float:
        """A number of 0 or more."""
        value = self.raw(*keys, default=default)
        try:
            number = float(value) if not isinstance(value, bool) else -1.0
        except (TypeError, ValueError):
            number = -1.0
        if 0 <= number < float("inf"):
            return number
        self._wrong(keys[0], value, "a number of 0 or more", "write one")
        return default

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw(*keys, default=default)
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        self._wrong(keys[0], value, "true or false", "write one of them")
        return default

    def choice(self, *keys: str, default: str, known: Mapping[str, str]) -> str:
        """The meaning of one of some words, in upper or lower case."""
        word = self.text(*keys, default=default)
        if word.lower() in known:
            return known[word.lower()]
        near = nearest(word, known)
        fix = f"did you mean {near!r}?" if near else f"write {', '.join(known)}"
        self._wrong(keys[0], word, f"one of {', '.join(known)}", fix)
        return known[default.lower()]

    def section(self, *keys: str) -> SourceSection:
        """The section of a key; an empty section if the key is not there."""
        key, value = next(((key, self.data[key]) for key in keys if self.has(key)), (keys[0], {}))
        if not isinstance(value, Mapping):
            self._wrong(key, value, "a mapping", "write {…}")
            value = {}
        return SourceSection(value, self.notes, self.at(key), self.file)

    def sections(self, *keys: str) -> list[SourceSection]:
        """The sections of a list of mappings."""
        key, value = next(((key, self.data[key]) for key in keys if self.has(key)), (keys[0], []))
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            self._wrong(key, value, "a list of mappings", "write [{…}]")
            return []
        return [SourceSection(each, self.notes, f"{self.at(key)}[{at}]", self.file) for at, each in enumerate(value)]

    def values(self, key: str) -> list[Any]:
        """A list of plain values."""
        value = self.raw(key, default=[])
        if not isinstance(value, list) or any(isinstance(each, list | Mapping) for each in value):
            self._wrong(key, value, "a list of values", "write […]")
            return []
        return value

    def body_size(self, key: str, size: int) -> int:
        """The size of a body, raised if the time stamps need more room; a note at ``key`` says so."""
        if size < SIZE_BYTES_MIN:
            what = f"bodies have {SIZE_BYTES_MIN} octets, not {size}: the time stamps take {SIZE_BYTES_MIN}"
            self.different(key, what)
        return max(size, SIZE_BYTES_MIN)

    def different(self, key: str, what: str, fix: str = "") -> None:
        """Note that the meaning of a key changed."""
        self.notes.different(self.at(key), what, fix, self.file)

    def without(self, key: str, what: str, fix: str = "") -> None:
        """Note that a key has no equivalent."""
        self.notes.without(self.at(key), what, fix, self.file)

    def drop(self, what: str, *keys: str, unless: tuple[object, ...] = (), fix: str = "") -> None:
        """Note keys without an equivalent, if they are there with another value than ``unless``."""
        for key in keys:
            if self.has(key) and str(self.data[key]).lower() not in {str(value).lower() for value in unless}:
                self.without(key, what, fix)

    def ignore(self, *keys: str) -> None:
        """Mark keys as known that say nothing about the load, such as names and labels."""
        for key in keys:
            self.has(key)

    def wrong(self, key: str, rule: str, fix: str) -> None:
        """Add the problem that the value of a key cannot be converted at all."""
        self.notes.problem(self.at(key), rule, fix, self.data.get(key), self.file)

    def finish(self, hint: str = "") -> None:
        """Report the keys that were not read. ``hint`` is the fix for a key without a near known key."""
        for key in self.unasked():
            near = nearest(key, self._asked)
            fix = f"did you mean {near!r}?" if near else hint or "remove it, or set what it should do by hand"
            self.notes.unknown(self.at(key), f"the key {key!r} is not known: it has no effect", fix, self.file)

    def unasked(self) -> Iterator[str]:
        """The keys that were not read so far."""
        return (str(key) for key in self.data if key not in self._asked)

    def _wrong(self, key: str, value: object, kind: str, fix: str) -> None:
        self.notes.problem(self.at(key), f"{value!r} is not {kind}", fix, value, self.file)
