"""Problems of a workload file or of flags: all at once, each with its place and its fix."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One broken rule.

    ``path`` is the key path (``sweep.values[2]``) and ``value`` the value there. ``rule`` says what is wrong, ``fix``
    what to write instead. ``file`` (with ``line``, counting from 1) is the workload file or the flag.
    """

    path: str
    value: object
    rule: str
    fix: str
    file: str = ""
    line: int | None = None

    def where(self) -> str:
        """``file:line: path``, as far as they are known."""
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return ": ".join(part for part in (place, self.path) if part)

    def lines(self) -> str:
        """The three lines of an error: what, where, and what to do."""
        return f"error: {self.rule}\n  at   {self.where()}\n  fix  {self.fix}"

    def to_json(self) -> dict[str, object]:
        """As a JSON object; a value that JSON cannot hold is written as Python shows it."""
        plain = asdict(self)
        if not isinstance(self.value, str | int | float | bool | None):
            plain["value"] = repr(self.value)
        return plain


class SpecError(Exception):
    """A description of a run that cannot be run. ``problems`` is never empty."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        super().__init__("\n".join(problem.lines() for problem in problems))
        self.problems = problems
