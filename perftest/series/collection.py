"""The repetitions of two sides, measured in turn: ``perftest compare --collect``.

Whatever drifts while the repetitions last (a drive that fills, a machine that warms up) meets both sides alike, because
the sides take turns, and because the side that goes first alternates: base, candidate, candidate, base, and so on.

Each repetition is a process of its own, started from a list of words, never by a shell. Its run directory lies below
``base/`` or ``candidate/``, its output in ``logs/``. What is missing there is measured; so the same command line goes
on after an interruption.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perftest.exits import CliError, Exit, explained
from perftest.measuring.interrupts import Interrupts
from perftest.results.provenance import redact_command
from perftest.series.rounds import put_unfinished_aside, runs_in
from perftest.tell import tell

BASE: Final = "base"
CANDIDATE: Final = "candidate"
SIDES: Final = (BASE, CANDIDATE)
STATE: Final = "collection.json"
LOGS: Final = "logs"
FAILURES_MAX: Final = 3
"""Repetitions that may fail one after the other, before the collection ends."""
MEASURED: Final = frozenset({Exit.OK, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED})
"""The exit codes of a repetition that came to its end: the comparison judges its figures."""
_HOPELESS: Final = frozenset({Exit.USAGE, Exit.NOT_INSTALLED})
"""The exit codes of a repetition that would end so again and again."""
_TAIL: Final = 6
_MEASURING: Final = ("run", "sweep")
_NOT_FOR_A_REPETITION: Final = ("--out", "--json", "--resume", "--repeats", "--until", "--dry-run", "--report")
_FIX: Final = "write: perftest compare --collect 10 --base '-h URI1' --candidate '-h URI2' -- perftest run -z 30"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """``repeats`` repetitions of each side in ``out``, each with the words of its ``commands``."""

    repeats: int
    commands: Mapping[str, tuple[str, ...]]
    out: Path

    def place(self, side: str) -> Path:
        """The directory of the runs of a side."""
        return self.out / side

    def done(self) -> dict[str, int]:
        """The number of repetitions of each side."""
        return {side: len(runs_in(self.place(side))) for side in SIDES}


def collection_of(
    words: Sequence[str],
    repeats: int,
    added: Mapping[str, str | None],
    programs: Mapping[str, str | None],
    out: Path,
) -> Collection:
    """The collection that a command line asks for: ``words`` in common, and ``added`` words or another program for a
    side. Raises CliError."""
    if repeats < 1:
        raise CliError("a comparison takes at least one repetition", "--collect", "use 10", Exit.USAGE)
    if not words:
        raise CliError("there is no command to measure", "--collect", _FIX, Exit.USAGE)
    commands = {side: _command(side, words, added[side], programs[side]) for side in SIDES}
    return Collection(repeats=repeats, commands=commands, out=out)


def _command(side: str, words: Sequence[str], added: str | None, program: str | None) -> tuple[str, ...]:
    common = list(words[1:]) if words[0] not in _MEASURING else list(words)
    first = program or (words[0] if words[0] not in _MEASURING else "perftest")
    try:
        own = shlex.split(added or "")
    except ValueError as error:
        fix = "close every quotation mark"
        raise CliError(f"the words cannot be told apart: {error}", f"--{side}", fix, Exit.USAGE) from error
    found = [*common, *own]
    if not found or found[0] not in _MEASURING:
        what = f"{shlex.join(words)} does not measure one repetition"
        raise CliError(what, "--collect", f"use perftest run or perftest sweep; {_FIX}", Exit.USAGE)
    names = [word.partition("=")[0] for word in found]
    if refused := [name for name in names if name in _NOT_FOR_A_REPETITION]:
        what = f"{refused[0]} does not go with --collect, which decides where and how often to measure"
        raise CliError(what, f"--{side}", f"leave {refused[0]} out", Exit.USAGE)
    return (*_program(first), *found)


def _program(first: str) -> tuple[str, ...]:
    """The words that start a program; ``perftest`` is this very one. Raises CliError."""
    if first == "perftest":
        return (sys.executable, "-m", "perftest.cli")
    found = shutil.which(first)
    if found is None:
        fix = "give the path of a perftest, such as old/.venv/bin/perftest"
        raise CliError("there is no such program", first, fix, Exit.USAGE)
    return (str(Path(found).absolute()),)


def collect(asked: Collection) -> None:
    """Measure the repetitions that are missing. Raises CliError if they cannot be measured, or were interrupted."""
    _begin(asked)
    interrupts = Interrupts()
    with interrupts.installed():
        try:
            _collect(asked, interrupts)
        except KeyboardInterrupt:
            raise _ended(asked, "interrupted", Exit.INTERRUPTED) from None


def _collect(asked: Collection, interrupts: Interrupts) -> None:
    failures = 0
    while min((done := asked.done()).values()) < asked.repeats:
        side = _next(done)
        number = done[side] + 1
        tell(f"{side}: repetition {number} of {asked.repeats}")
        log = asked.out / LOGS / f"{side}-{number:03}.log"
        code = _measured(asked, side, log, interrupts)
        put_unfinished_aside(asked.place(side))
        if code is Exit.INTERRUPTED:
            raise KeyboardInterrupt
        failures = 0 if code in MEASURED and asked.done()[side] == number else failures + 1
        if failures:
            _tell_failure(side, number, code, log)
        if code in _HOPELESS:
            raise _refused(asked, side, code)
        if failures == FAILURES_MAX:
            what = f"{side}: {_repetitions(failures)} failed one after the other"
            raise _ended(asked, what, Exit.RUN_ERROR)


def _next(done: Mapping[str, int]) -> str:
    """The side whose turn it is. After a pair the order changes: AB BA AB."""
    if done[BASE] != done[CANDIDATE]:
        return min(SIDES, key=lambda side: done[side])
    return SIDES[done[BASE] % 2]


def _begin(asked: Collection) -> None:
    """Make the directories, or see that they belong to these very commands. Raises CliError."""
    state, file = {side: redact_command(asked.commands[side]) for side in SIDES}, asked.out / STATE
    with explained("the repetitions cannot be written", asked.out, "choose another directory with --out"):
        for name in (*SIDES, LOGS):
            (asked.out / name).mkdir(parents=True, exist_ok=True)
        if not file.exists() or not any(asked.done().values()):
            file.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        known = file.read_text(encoding="utf-8")
    if known != json.dumps(state, indent=1) + "\n":
        what = "this directory has repetitions of other commands"
        raise CliError(what, str(file), "choose another directory with --out, or give the same commands", Exit.USAGE)
    for side in SIDES:
        put_unfinished_aside(asked.place(side))


def _measured(asked: Collection, side: str, log: Path, interrupts: Interrupts) -> Exit:
    """Measure one repetition and return how it ended; its output goes to ``log``. Signals are handed on to it."""
    words = [*asked.commands[side], "--out", str(asked.place(side)), "--no-report"]
    fix = "give a program that can be started"
    with explained("the repetition cannot be started", words[0], fix), log.open("wb") as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
        with interrupts.during(process.send_signal):
            code = process.wait()
    interrupts.allow()
    try:
        return Exit(code)
    except ValueError:
        return Exit.INTERRUPTED if code in (-2, -15) else Exit.RUN_ERROR


def _tell_failure(side: str, number: int, code: Exit, log: Path) -> None:
    """Say on stderr that a repetition failed, with the last lines that it wrote."""
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
    tell(f"{side}: repetition {number} failed with exit code {int(code)}; its output is in {log}")
    for line in tail:
        tell(f"  {line}")


def _refused(asked: Collection, side: str, code: Exit) -> CliError:
    """The command itself is wrong: to give it again would end the same way."""
    what = f"the command of the {side} cannot be measured"
    fix = "correct it as the lines above say"
    return CliError(what, shlex.join(_own(asked, side)), fix, code)


def _own(asked: Collection, side: str) -> list[str]:
    """The command of a side as people write it."""
    words = redact_command(asked.commands[side])
    ours = tuple(words[:3]) == (sys.executable, "-m", "perftest.cli")
    return ["perftest", *words[3:]] if ours else list(words)


def _repetitions(count: int) -> str:
    return "1 repetition" if count == 1 else f"{count} repetitions"


def _ended(asked: Collection, why: str, code: Exit) -> CliError:
    """Why the collection ended early, what is kept, and how to go on."""
    done = asked.done()
    kept = f"{_repetitions(done[BASE])} of the base and {done[CANDIDATE]} of the candidate are kept"
    fix = "give the same command line again to go on"
    if min(done.values()):
        fix += f"; `perftest compare {asked.place(BASE)} {asked.place(CANDIDATE)}` compares what there is"
    return CliError(f"{why}; {kept}", str(asked.out), fix, code)
