"""The ends of a command: exit codes, and the error that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from perftest.errors import HelpfulError
from perftest.tell import tell


class Exit(IntEnum):
    """The exit codes. They are stable, so that build pipelines may rely on them."""

    OK = 0
    RUN_ERROR = 1
    USAGE = 2
    SAFETY = 3
    MISSED = 4
    UNTRUSTED = 5
    NOT_COMPARABLE = 6
    NOT_INSTALLED = 7
    REGRESSED = 8
    DAMAGED = 9
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "success",
    Exit.RUN_ERROR: "the command failed, or the run ended early (broker, network, drive)",
    Exit.USAGE: "an option or a workload file is wrong",
    Exit.SAFETY: "messages were lost, duplicated, reordered or damaged",
    Exit.MISSED: "an objective was missed, or a finding was not reproduced",
    Exit.UNTRUSTED: "the result cannot be trusted, for example because the load generator was the limit",
    Exit.NOT_COMPARABLE: "the runs cannot be compared",
    Exit.NOT_INSTALLED: "a part of the project that the command needs is not installed",
    Exit.REGRESSED: "a figure got worse (perftest compare)",
    Exit.DAMAGED: "files of a run were damaged, changed or lost after it, or a run cannot be read; the rest was used",
    Exit.INTERRUPTED: "the run was interrupted; everything measured so far is kept",
}


_GRAVITY = (Exit.SAFETY, Exit.RUN_ERROR, Exit.INTERRUPTED, Exit.MISSED, Exit.UNTRUSTED)


def gravest(codes: Iterable[Exit]) -> Exit:
    """The exit code of a command that made several runs: the gravest run's."""
    found = set(codes)
    return next((code for code in _GRAVITY if code in found), Exit.OK)


class CliError(HelpfulError):
    """An error of a command, which ends with ``code``."""

    def __init__(self, what: str, where: str, fix: str, code: Exit = Exit.RUN_ERROR) -> None:
        super().__init__(what, where, fix)
        self.code: Exit = code


def name_damage(damaged: Mapping[str, Sequence[str]]) -> Exit:
    """Say on stderr what is damaged of runs, and return DAMAGED if anything is.

    :param damaged: clauses such as ``ledger.json is missing``, by run directory
    """
    lines = [f"damaged: {place}: {clause}" for place, clauses in damaged.items() for clause in clauses]
    for line in lines:
        tell(line)
    return Exit.DAMAGED if lines else Exit.OK


@contextlib.contextmanager
def explained(what: str, where: object, fix: str, code: Exit = Exit.RUN_ERROR) -> Iterator[None]:
    """Turns an error of the operating system, or of a value that it cannot take, into a CliError with its reason."""
    try:
        yield
    except (OSError, OverflowError, UnicodeDecodeError) as error:
        raise CliError(f"{what}: {getattr(error, 'strerror', None) or error}", str(where), fix, code) from error
