"""Finds PerfTest's options in command lines as people type them, keep them in scripts and paste them into tickets.

A command line is ``bin/runjava com.rabbitmq.perf.PerfTest -x 1``, ``perf-test -x 1``, ``java -jar perf-test.jar -x 1``,
``docker run --rm -e CONFIRM=10 pivotalrabbitmq/perf-test:latest -x 1``, or only the options.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from perftest.importers.notes import Notes

_PROGRAM: Final = re.compile(r"(^|/)(com\.rabbitmq\.perf\.PerfTest|perf-?test[^/]*)$", re.IGNORECASE)
_MULTI: Final = re.compile(r"com\.rabbitmq\.perf\.PerfTestMulti$")
_ASSIGNMENT: Final = re.compile(r"^[A-Za-z_]\w*=")
_OPERATORS: Final = frozenset({"&", "&&", "|", "||", ";", ">", ">>", "2>", "2>&1", "<"})
_ENVIRONMENT_FLAGS: Final = ("-e", "--env")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line: its options, and the environment variables that it sets."""

    text: str
    number: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def is_command_line(text: str) -> bool:
    """Whether a text names PerfTest, or begins with an option."""
    try:
        words = [word for line in _logical(text) for word in shlex.split(line[1], comments=True)]
    except ValueError:
        return False
    return bool(words) and (words[0].startswith("-") or any(_PROGRAM.search(word) for word in words))


def lines_of(text: str, notes: Notes) -> list[CommandLine]:
    """All command lines of PerfTest in a text. Each other line of a script gets a note and is left out."""
    found = []
    for number, text_of in _logical(text):
        place = f"line {number}"
        try:
            words = shlex.split(text_of, comments=True)
        except ValueError as error:
            notes.problem(place, f"this is no command line: {error}", "close the quotes", text_of)
            continue
        if not words or words[0].startswith("#!"):
            continue
        line = _line(text_of, number, words, notes)
        if line is not None:
            found.append(line)
    return found


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers. A line that ends with a backslash is joined with the next line."""
    begun, held = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        begun = begun or number
        held += line
        if held.endswith("\\"):
            held = f"{held[:-1]} "
            continue
        if held.strip() and not held.lstrip().startswith("#"):
            yield begun, held.strip()
        begun, held = 0, ""
    if held.strip():
        yield begun, held.strip()


def _line(text: str, number: int, words: list[str], notes: Notes) -> CommandLine | None:
    place = f"line {number}"
    if any(_MULTI.search(word) for word in words):
        notes.problem(place, "PerfTestMulti runs files of scenarios", "give the command line of each scenario", text)
        return None
    start = _start(words)
    if start is None:
        notes.without(place, f"this line does not call PerfTest: {text[:60]}")
        return None
    options = _until_operator(words[start:], place, notes)
    options = options[1:] if options[:1] in (["--"], ["run"]) else options
    return CommandLine(text, number, options, _environment(words[:start]))


def _start(words: Sequence[str]) -> int | None:
    """The index of the first option, behind the word that is the program or the image of a container."""
    if words[0].startswith("-"):
        return 0
    for at, word in enumerate(words):
        if _PROGRAM.search(word) and not (at and words[at - 1] in ("--name", "--network", "-e", "--env", "-jar-dir")):
            return at + 1
    return None


def _until_operator(words: list[str], place: str, notes: Notes) -> list[str]:
    """The words before the first operator of the shell."""
    end = next((at for at, word in enumerate(words) if word in _OPERATORS or word.startswith((">", "2>"))), len(words))
    if end < len(words):
        notes.without(place, f"the part for the shell is left out: {' '.join(words[end:])}")
    return words[:end]


def _environment(words: Sequence[str]) -> dict[str, str]:
    """The environment variables that are set before the program, or for its container."""
    found = {}
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if _ASSIGNMENT.match(word) and (at == 0 or words[at - 1] in _ENVIRONMENT_FLAGS or _leads(words[:at])):
            found[name] = value
        elif name == "--env" and _ASSIGNMENT.match(value):
            found[value.partition("=")[0]] = value.partition("=")[2]
    return found


def _leads(words: Sequence[str]) -> bool:
    return all(_ASSIGNMENT.match(word) or word in ("export", "env") for word in words)
