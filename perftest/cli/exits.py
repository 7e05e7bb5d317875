"""How the command ends: exit codes, and the three lines of an error."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes; a gate in a build pipeline may rely on them."""

    OK = 0
    RUN_ERROR = 1
    USAGE = 2
    SAFETY = 3
    MISSED = 4
    UNTRUSTED = 5
    NOT_COMPARABLE = 6
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "ok",
    Exit.RUN_ERROR: "the run could not be made or ended early (broker, network, drive)",
    Exit.USAGE: "wrong option or workload file",
    Exit.SAFETY: "messages were lost, duplicated, reordered or damaged",
    Exit.MISSED: "an objective was missed, or a figure got worse",
    Exit.UNTRUSTED: "the result is not trustworthy, for example limited by the load generator",
    Exit.NOT_COMPARABLE: "the runs cannot be compared",
    Exit.INTERRUPTED: "interrupted; what was measured is kept",
}


class CliError(Exception):
    """An error for people: what happened, where, what to do."""

    def __init__(self, what: str, where: str, fix: str, code: Exit = Exit.RUN_ERROR) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix
        self.code = code


def three_lines(what: str, where: str, fix: str) -> str:
    """The shape of every error."""
    flat = " ".join(what.split())
    return f"error: {flat}\n  at   {where or 'perftest'}\n  fix  {fix}"
