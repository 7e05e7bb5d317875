"""What an importer has to say about a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from perftest.spec.problem import Problem, SpecError


class Level(StrEnum):
    """How much of a thing came over: with another meaning, not at all, or nobody knows what it is."""

    DIFFERENT = "converted differently"
    WITHOUT = "no equivalent"
    UNKNOWN = "unknown key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that is not in the workload as it was in the source.

    ``path`` is the key path or the option, ``what`` what becomes of it, ``fix`` what to do where that matters; empty
    where nothing is to be done.
    """

    level: Level
    file: str
    path: str
    what: str
    fix: str = ""

    def lines(self) -> str:
        """As people read it: two lines, or three."""
        where = ": ".join(part for part in (self.file, self.path) if part)
        text = f"{self.level.value}: {self.what}\n  at   {where}"
        return f"{text}\n  do   {self.fix}" if self.fix else text

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "level": self.level.value}


@dataclass(slots=True)
class Notes:
    """All that is said about one source, each thing once; and what makes it unreadable."""

    file: str
    found: list[Note] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def different(self, path: str, what: str, fix: str = "", file: str = "") -> None:
        """Something means something else now."""
        self._add(Level.DIFFERENT, path, what, fix, file)

    def without(self, path: str, what: str, fix: str = "", file: str = "") -> None:
        """Something is not in the workload."""
        self._add(Level.WITHOUT, path, what, fix, file)

    def unknown(self, path: str, what: str, fix: str, file: str = "") -> None:
        """A key that the other tool does not know either, or that is not known here."""
        self._add(Level.UNKNOWN, path, what, fix, file)

    def problem(self, path: str, rule: str, fix: str, value: object = None, file: str = "") -> None:
        """Something that cannot be converted at all; all of them are told at once."""
        self.problems.append(Problem(path=path, value=value, rule=rule, fix=fix, file=file or self.file))

    def stop_at_problems(self) -> None:
        """Raise SpecError if there was a problem."""
        if self.problems:
            raise SpecError(list({problem.lines(): problem for problem in self.problems}.values()))

    def _add(self, level: Level, path: str, what: str, fix: str, file: str) -> None:
        note = Note(level=level, file=file or self.file, path=path, what=what, fix=fix)
        if note not in self.found:
            self.found.append(note)


@dataclass(frozen=True, slots=True)
class Converted:
    """The content of a workload file, and what is to be said about it."""

    content: dict[str, Any]
    notes: Sequence[Note]


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of a source: workloads, and what is to be said about the source as a whole."""

    workloads: list[Converted]
    general: Sequence[Note] = ()

    @property
    def notes(self) -> list[Note]:
        """All notes, each once."""
        every = [*self.general, *(note for workload in self.workloads for note in workload.notes)]
        return list(dict.fromkeys(every))
