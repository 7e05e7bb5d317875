"""Reads the words of a command line and the variables of the environment as PerfTest does.

PerfTest reads words with the default parser of Apache Commons CLI. A short name has one dash and one or more letters. A
value follows as the next word, after ``=``, or directly behind a name of one letter (``-x10``). A long name has one
dash or two, and may be shortened while it stays unambiguous. An option with several values takes words until the next
option. A negative number is a value. Here ``-qp=q-%d`` works as well. An abbreviation has the meaning it has for
PerfTest, even if an option that PerfTest does not have begins with the same letters.

``CONFIRM_TIMEOUT`` in the environment is ``--confirm-timeout``. Only PerfTest's own names are looked up, with the
prefix of ``RABBITMQ_PERF_TEST_ENV_PREFIX`` where it is set; an underscore is added to it. Commas separate several
values of one option. An option on the command line wins over the environment.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from perftest.options.option import Arity, Effect, Option
from perftest.options.table import BY_KEY, BY_LONG, BY_SHORT, BY_VARIABLE

PREFIX_VARIABLE: Final = "RABBITMQ_PERF_TEST_ENV_PREFIX"
_COMMA_SEPARATED: Final = ("pairs", "message_flag", "rate_cycle", "size_cycle", "latency_cycle")
_NUMBER: Final = re.compile(r"^-\d+(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Complaint:
    """A word that cannot be read: what is wrong with it, and how to fix it."""

    what: str
    fix: str


@dataclass(slots=True)
class ReadLine:
    """A command line after reading: the values of each option in their order (a flag has ""), and the complaints."""

    values: dict[str, list[str]] = field(default_factory=dict)
    complaints: list[Complaint] = field(default_factory=list)

    def repeated(self) -> list[str]:
        """A sentence for each option with one value that was given several. It names no value, perhaps a secret."""
        return [
            f"{BY_KEY[key].flag} is given {len(given)} times: the first counts, as for PerfTest"
            for key, given in self.values.items()
            if BY_KEY[key].arity is not Arity.MANY and len(set(given)) > 1
        ]

    def complain(self, what: str, fix: str) -> None:
        """Note a problem. All problems are reported together."""
        self.complaints.append(Complaint(what, fix))


def read(words: Sequence[str]) -> ReadLine:
    """Read the options of a command line. Words that cannot be read are in ``complaints``."""
    line = ReadLine()
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-") or len(word) < 2:
            line.complain(f"{word!r} belongs to no option", "remove it, or put quotes around a value with spaces")
            continue
        option, attached = _named(word, line)
        if option is None:
            place += place < len(words) and "=" not in word and is_value(words[place])  # its value, most likely
            continue
        if option.arity is Arity.FLAG:
            _switch(option, word, attached, line)
            continue
        given = [attached] if attached is not None else []
        while place < len(words) and _takes_more(option, given) and is_value(words[place]):
            given.append(_unquoted(words[place]))
            place += 1
        if not given and option.arity is not Arity.OPTIONAL:
            other = ", or --help for help" if word == "-h" else ""
            line.complain(f"{word} needs a value", f"write {word} {option.metavar}{other}")
            continue
        line.values.setdefault(option.key, []).extend(given or [""])
    return line


def is_value(word: str) -> bool:
    """Whether a word can be the value of an option: it is not an option, or it is a negative number."""
    if not word.startswith("-") or len(word) < 2 or _NUMBER.match(word):
        return True
    name = word.lstrip("-").partition("=")[0]
    return not (name in BY_SHORT or name[:1] in BY_SHORT or _matching(name))


def nearest(name: str) -> str | None:
    """The option that a misspelt name probably means, with its dashes."""
    plain = name.lstrip("-")
    long = difflib.get_close_matches(plain, BY_LONG, n=1, cutoff=0.6)
    if long:
        return f"--{long[0]}"
    is_short = len(plain) > 1 and not name.startswith("--")
    short = difflib.get_close_matches(plain, BY_SHORT, n=1, cutoff=0.6) if is_short else []
    return f"-{short[0]}" if short else None


def _named(word: str, line: ReadLine) -> tuple[Option | None, str | None]:
    """The option that a word names, and the value that is attached to the name."""
    name, equals, value = word.partition("=")
    attached = _unquoted(value) if equals else None
    plain = name.lstrip("-")
    if not name.startswith("--") and plain in BY_SHORT:
        return BY_SHORT[plain], attached
    matching = _matching(plain)
    if len(matching) == 1:
        return BY_LONG[matching[0]], attached
    if matching:
        names = " or ".join(f"--{each}" for each in matching)
        line.complain(f"{name} is short for several options", f"write {names}")
        return None, None
    if not name.startswith("--"):
        return _bundled(word, line)
    _unknown(name, line)
    return None, None


def _bundled(word: str, line: ReadLine) -> tuple[Option | None, str | None]:
    """``-x10``, ``-fpersistent``, ``-ax10`` (flags of one letter, then an option with its value), ``-rate500``."""
    letters = word[1:]
    prefix = max((long for long in BY_LONG if letters.startswith(long)), key=len, default=None)
    if prefix is not None and BY_LONG[prefix].arity is not Arity.FLAG:
        return BY_LONG[prefix], _unquoted(letters[len(prefix) :].removeprefix("="))
    for place, letter in enumerate(letters):
        option, rest = BY_SHORT.get(letter), letters[place + 1 :]
        if option is None:
            break
        if option.arity is not Arity.FLAG:
            if rest[:1].isalpha() and option.arity is not Arity.MANY and nearest(word):
                break  # a name misspelt, rather than one letter and an odd value
            return option, _unquoted(rest.removeprefix("=")) if rest else None
        if not rest:
            return option, None
        line.values.setdefault(option.key, []).append("")
    _unknown(word.partition("=")[0], line)
    return None, None


def _switch(option: Option, word: str, attached: str | None, line: ReadLine) -> None:
    if attached is not None:
        line.complain(f"{word.partition('=')[0]} takes no value", f"write {option.flag} alone, or leave it out")
        return
    line.values.setdefault(option.key, []).append("")


def _takes_more(option: Option, given: Sequence[str]) -> bool:
    return option.arity is Arity.MANY or not given


def _matching(name: str) -> list[str]:
    """The long names that a word may stand for: the same name, or names that begin with it, PerfTest's names first."""
    if name in BY_LONG:
        return [name]
    if not name:
        return []
    begun = [long for long in BY_LONG if long.startswith(name)]
    return _of_perftest(begun) or begun


def _of_perftest(names: Iterable[str]) -> list[str]:
    return [name for name in names if BY_LONG[name].perftest and BY_LONG[name].long[0] == name]


def _unknown(name: str, line: ReadLine) -> None:
    near = nearest(name)
    line.complain(f"no such option: {name}", f"did you mean {near}?" if near else "see `perftest run --help`")


def _unquoted(value: str) -> str:
    """The value without quotes around it, which some callers pass on."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def from_environment(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of each option that the environment sets. A flag counts only if its variable is ``true``."""
    prefix = _prefix(environment)
    found: dict[str, list[str]] = {}
    for variable, option in BY_VARIABLE.items():
        text = environment.get(prefix + variable)
        if text is not None and (option.arity is not Arity.FLAG or text.lower() == "true"):
            found[option.key] = _values_of(option, text)
    return found


def _prefix(environment: Mapping[str, str]) -> str:
    """The prefix of the variables' names. As for PerfTest, the last underscore may be left out."""
    prefix = environment.get(PREFIX_VARIABLE, "")
    return f"{prefix}_" if prefix and not prefix.endswith("_") else prefix


def without_effect(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that was meant for a run, as far as one can tell, and sets nothing: a setting that
    is dropped in silence may be the limit of the load. No sentence has a value, perhaps a secret."""
    prefix = _prefix(environment)
    known = {prefix + variable: option for variable, option in BY_VARIABLE.items()}
    found = []
    for name in sorted(known.keys() & environment.keys()):
        text = environment[name].lower()
        if known[name].arity is Arity.FLAG and text not in ("true", "false", ""):
            found.append(f"{name} has no effect: only true sets {known[name].flag}")
    if not prefix:
        return found
    mine = sorted(name for name in environment if name.startswith(prefix) and name != PREFIX_VARIABLE)
    found += [_unknown_variable(name, prefix) for name in mine if name not in known]
    if not known.keys() & environment.keys():
        found.append(f"{PREFIX_VARIABLE}={prefix}: no variable with this prefix sets an option (--env lists the names)")
    return found


def _unknown_variable(name: str, prefix: str) -> str:
    near = difflib.get_close_matches(name.removeprefix(prefix), BY_VARIABLE, n=1, cutoff=0.6)
    return f"{name} has no effect: no option has this name" + (f"; did you mean {prefix}{near[0]}?" if near else "")


def listing(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every variable with its present value and its meaning."""
    prefix = _prefix(environment)
    rows = []
    for variable, option in BY_VARIABLE.items():
        words = option.help if option.effect is Effect.OBEYED else f"{option.effect.value}: {option.reason}"
        text = environment.get(prefix + variable)
        rows.append((prefix + variable, f"[{text}] {words}" if text is not None else words))
    return rows


def _values_of(option: Option, text: str) -> list[str]:
    if option.arity is Arity.FLAG:
        return [""]
    if option.arity is Arity.MANY and option.kind in _COMMA_SEPARATED:
        return [part.strip() for part in text.split(",") if part.strip()]
    return [text]
