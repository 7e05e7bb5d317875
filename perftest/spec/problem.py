"""Problems of a workload file or of flags: all at once, each with its place and its fix."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from perftest.errors import HelpfulError, three_lines

Location = tuple[str | int, ...]
"""The way to a value in a document: keys, and numbers of list entries."""


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
        """The three lines of the problem."""
        return three_lines(self.rule, self.where(), self.fix)

    def to_json(self) -> dict[str, object]:
        """As a JSON object; a value that JSON cannot hold is written as Python shows it."""
        plain = asdict(self)
        if not isinstance(self.value, str | int | float | bool | None):
            plain["value"] = repr(self.value)
        return plain


class SpecError(HelpfulError):
    """A description of a run that cannot be run. ``problems`` is never empty; the error tells all of them."""

    code = 2

    def __init__(self, problems: list[Problem]) -> None:
        first = problems[0]
        super().__init__(first.rule, first.where(), first.fix)
        self.problems = problems

    def lines(self) -> str:
        """The three lines of each problem."""
        return "\n".join(problem.lines() for problem in self.problems)
