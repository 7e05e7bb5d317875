"""Why no page could be made, in words for the person who asked for one."""

from __future__ import annotations


class PageError(Exception):
    """``what`` went wrong, ``where`` (file, key or value), and what to do: ``fix``.

    ``exit_code`` is the command's: 1 for an environment that does not work.
    """

    exit_code = 1

    def __init__(self, *, what: str, where: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        return f"error: {self.what}\n  at   {self.where}\n  fix  {self.fix}"
