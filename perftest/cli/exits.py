"""The ends of a command: exit codes, and errors of three lines."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes. They are stable, so that build pipelines may rely on them."""

    OK = 0
    RUN_ERROR = 1
    USAGE = 2
    SAFETY = 3
    MISSED = 4
    UNTRUSTED = 5
    NOT_COMPARABLE = 6
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "success",
    Exit.RUN_ERROR: "the command failed, or the run ended early (broker, network, drive)",
    Exit.USAGE: "an option or a workload file is wrong",
    Exit.SAFETY: "messages were lost, duplicated, reordered or damaged",
    Exit.MISSED: "an objective was missed, or a figure got worse",
    Exit.UNTRUSTED: "the result cannot be trusted, for example because the load generator was the limit",
    Exit.NOT_COMPARABLE: "the runs cannot be compared",
    Exit.INTERRUPTED: "the run was interrupted; everything measured so far is kept",
}


class CliError(Exception):
    """An error for people: what happened, where it happened, and how to fix it."""

    def __init__(self, what: str, where: str, fix: str, code: Exit = Exit.RUN_ERROR) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix
        self.code = code


def three_lines(what: str, where: str, fix: str) -> str:
    """An error as every command prints it."""
    flat = " ".join(what.split())
    return f"error: {flat}\n  at   {where or 'perftest'}\n  fix  {fix}"
