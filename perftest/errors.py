"""Errors for people: what happened, where it happened, and how to fix it."""

from __future__ import annotations


def three_lines(what: str, where: str, fix: str) -> str:
    """An error as every command prints it."""
    flat = " ".join(what.split())
    return f"error: {flat}\n  at   {where or 'perftest'}\n  fix  {fix}"


class HelpfulError(Exception):
    """An error for people: ``what`` happened, ``where`` (a file, a key, a node), and the ``fix``. ``code`` is the exit
    code of the command."""

    code: int = 1

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(f"{what} ({where})")
        self.what = what
        self.where = where
        self.fix = fix

    def lines(self) -> str:
        """The three lines of the error."""
        return three_lines(self.what, self.where, self.fix)
