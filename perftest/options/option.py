"""The description of an option."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class Arity(Enum):
    """The number of values of an option: none, one, none or one, one or more (until the next option)."""

    FLAG = "flag"
    ONE = "one"
    OPTIONAL = "optional"
    MANY = "many"


class Effect(Enum):
    """The effect of an option: it is obeyed, accepted with a warning, or refused with an alternative."""

    OBEYED = "obeyed"
    WITHOUT = "without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option.

    ``key``
        name in the code.
    ``short``, ``long``
        names without dashes; for an option of PerfTest, the first long name is PerfTest's.
    ``kind``
        name of the reader in :mod:`perftest.options.values` that reads a value.
    ``default``, ``local``
        default with a URI, and default with the bundled cluster where it differs, as a user would write them.
    ``shown``
        default in words, where there is no single value.
    ``places``
        values of the plan that the option sets, by their names in :mod:`perftest.spec.rules`; for messages.
    ``reason``
        why the option has no effect or is refused, and what to do.
    """

    key: str
    short: str
    long: tuple[str, ...]
    help: str = ""
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
        """All names with their dashes, the short name first."""
        return (*((f"-{self.short}",) if self.short else ()), *(f"--{name}" for name in self.long))

    @property
    def flag(self) -> str:
        """The name of the option in a sentence, such as ``-A``."""
        return self.flags[0]

    @property
    def place(self) -> str:
        """The name of the option as the place of a problem, such as ``-A/--multi-ack-every``."""
        return "/".join(self.flags[:2])

    @property
    def variable(self) -> str:
        """The environment variable of the option. As in PerfTest, its name is made from the long name."""
        return self.long[0].replace("-", "_").upper()


def _option(names: str, **settings: Any) -> Option:
    """An option. ``names`` are separated by spaces: the short name with one dash, long names with two."""
    words = names.split()
    short = next((word[1:] for word in words if not word.startswith("--")), "")
    long = tuple(word[2:] for word in words if word.startswith("--"))
    settings.setdefault("key", long[0].replace("-", "_"))
    return Option(short=short, long=long, **settings)


def value(names: str, kind: str, metavar: str, **settings: Any) -> Option:
    """An option with a value."""
    return _option(names, kind=kind, metavar=metavar, **settings)


def flag(names: str, **settings: Any) -> Option:
    """An option without a value."""
    return _option(names, arity=Arity.FLAG, **settings)


def many(names: str, kind: str, metavar: str, **settings: Any) -> Option:
    """An option that may be repeated, or be given several values."""
    return _option(names, kind=kind, metavar=metavar, arity=Arity.MANY, **settings)


def section(name: str, *options: Option, **common: Any) -> tuple[Option, ...]:
    """Options of one section of the help."""
    return tuple(replace(each, section=name, **common) for each in options)
