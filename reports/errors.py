"""What keeps a report from being made, in three lines for the person who asked for it: what, where, what to do."""

from __future__ import annotations


class ReportError(Exception):
    """``what`` went wrong, ``where`` (file, key or value), and what to do: ``fix``.

    ``exit_code`` is the command's: 2 for input that cannot be used, 1 for an environment that does not work.
    """

    exit_code = 2

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        return f"error: {self.what}\n  at   {self.where}\n  fix  {self.fix}"
