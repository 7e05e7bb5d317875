"""Notes and problems that an importer reports about a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from perftest.spec.problem import Problem, SpecError


class Level(StrEnum):
    """The outcome for a part of the source: its meaning changed, it has no equivalent, or its key is unknown."""

    DIFFERENT = "converted differently"
    WITHOUT = "no equivalent"
    UNKNOWN = "unknown key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNote:
    """A part of the source that is not in the workload as it was in the source.

    ``path`` is the key path or the option. ``what`` says what becomes of it. ``fix`` says what to do, and is empty if
    there is nothing to do.
    """

    level: Level
    file: str
    path: str
    what: str
    fix: str = ""

    def lines(self) -> str:
        """The note as two or three lines for people."""
        where = ": ".join(part for part in (self.file, self.path) if part)
        text = f"{self.level.value}: {self.what}\n  at   {where}"
        return f"{text}\n  do   {self.fix}" if self.fix else text

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "level": self.level.value}


@dataclass(slots=True)
class Notes:
    """The notes about one source, each note once; and the problems that make the source unreadable."""

    file: str
    found: list[ImportNote] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def different(self, path: str, what: str, fix: str = "", file: str = "") -> None:
        """Note a part whose meaning changed."""
        self._add(Level.DIFFERENT, path, what, fix, file)

    def without(self, path: str, what: str, fix: str = "", file: str = "") -> None:
        """Note a part that has no equivalent."""
        self._add(Level.WITHOUT, path, what, fix, file)

    def unknown(self, path: str, what: str, fix: str, file: str = "") -> None:
        """Note an unknown key."""
        self._add(Level.UNKNOWN, path, what, fix, file)

    def problem(self, path: str, rule: str, fix: str, value: object = None, file: str = "") -> None:
        """Add a problem: something that cannot be converted at all. All problems are reported together."""
        self.problems.append(Problem(path=path, value=value, rule=rule, fix=fix, file=file or self.file))

    def stop_at_problems(self) -> None:
        """Raise SpecError if there is a problem."""
        if self.problems:
            raise SpecError(list({problem.lines(): problem for problem in self.problems}.values()))

    def _add(self, level: Level, path: str, what: str, fix: str, file: str) -> None:
        note = ImportNote(level=level, file=file or self.file, path=path, what=what, fix=fix)
        if note not in self.found:
            self.found.append(note)


@dataclass(frozen=True, slots=True)
class Converted:
    """The content of a workload file, and the notes about it."""

    content: dict[str, Any]
    notes: Sequence[ImportNote]


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: workloads, and notes about the source as a whole."""

    workloads: list[Converted]
    general: Sequence[ImportNote] = ()

    @property
    def notes(self) -> list[ImportNote]:
        """All notes, each once."""
        every = [*self.general, *(note for workload in self.workloads for note in workload.notes)]
        return list(dict.fromkeys(every))
