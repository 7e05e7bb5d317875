"""What one option is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class Arity(Enum):
    """How many values follow: none, one, none or one, one or more (until the next option)."""

    FLAG = "flag"
    ONE = "one"
    OPTIONAL = "optional"
    MANY = "many"


class Effect(Enum):
    """What an option does here: it is obeyed, accepted with a warning, or refused with what to do instead."""

    OBEYED = "obeyed"
    WITHOUT = "without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option.

    ``key``
        what it is called in the code.
    ``short``, ``long``
        names without dashes; the first long one is PerfTest's, if the option is.
    ``kind``
        the function of :mod:`perftest.cli.options.values` that reads a value.
    ``default``, ``local``
        as they would be written: beside a URI, and with the bundled cluster where that differs. Empty: none.
    ``shown``
        the default in words, where there is no single value.
    ``places``
        the values of the plan that it sets (:mod:`perftest.spec.rules` names them), for messages.
    ``reason``
        why it is without effect, or refused, and what to do.
    """

    key: str
    short: str
    long: tuple[str, ...]
    help: str
    kind: str = "text"
    arity: Arity = Arity.ONE
    section: str = "Other"
    metavar: str = ""
    default: str = ""
    local: str = ""
    shown: str = ""
    places: tuple[str, ...] = ()
    perftest: bool = True
    effect: Effect = Effect.OBEYED
    reason: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """All names with their dashes, the short one first."""
        return (*((f"-{self.short}",) if self.short else ()), *(f"--{name}" for name in self.long))

    @property
    def flag(self) -> str:
        """The name within a sentence: ``-A``."""
        return self.flags[0]

    @property
    def place(self) -> str:
        """The name where a problem is: ``-A/--multi-ack-every``."""
        return "/".join(self.flags[:2])

    @property
    def variable(self) -> str:
        """The environment variable, as PerfTest derives it from the long name."""
        return self.long[0].replace("-", "_").upper()


def _option(names: str, help_text: str, **settings: Any) -> Option:
    """``names`` are separated by spaces: the short one with one dash, long ones with two."""
    words = names.split()
    short = next((word[1:] for word in words if not word.startswith("--")), "")
    long = tuple(word[2:] for word in words if word.startswith("--"))
    settings.setdefault("key", long[0].replace("-", "_"))
    return Option(short=short, long=long, help=help_text, **settings)


def value(names: str, kind: str, metavar: str, help_text: str, **settings: Any) -> Option:
    """An option with a value."""
    return _option(names, help_text, kind=kind, metavar=metavar, **settings)


def flag(names: str, help_text: str, **settings: Any) -> Option:
    """An option without a value."""
    return _option(names, help_text, kind="switch", arity=Arity.FLAG, **settings)


def many(names: str, kind: str, metavar: str, help_text: str, **settings: Any) -> Option:
    """An option that may be repeated, or be given several values."""
    return _option(names, help_text, kind=kind, metavar=metavar, arity=Arity.MANY, **settings)


def section(name: str, *options: Option, **common: Any) -> tuple[Option, ...]:
    """Options of one section of the help."""
    return tuple(replace(each, section=name, **common) for each in options)
