"""The values of the options: given values, defaults for all others, and the problems and notes about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from perftest.options import values
from perftest.options.option import Arity, Effect, Option
from perftest.options.table import BY_KEY, OPTIONS, at_place, by_effect
from perftest.spec.problem import Problem
from perftest.spec.units import UnitError

_WORDS_OF_PLACE: Final = {"persistent": "-f persistent", "mandatory": "-f mandatory"}


class Choices:
    """The values of the options of a run. Problems and notes are collected; no problem is raised before all are known.

    Defaults are PerfTest's if there is a URI, and the bundled cluster's otherwise (``local``).
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        """``given`` has texts by key, as click passes them: None, False or () for an option that is not given."""
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._given = {key: text for key, text in given.items() if text not in (None, False, ())}
        self.local = not {"uri", "uris"} & self._given.keys()
        self._values: dict[str, Any] = {}
        for key, text in self._given.items():
            self._read(BY_KEY[key], text)
        self._say_what_means_nothing()

    @classmethod
    def of_words(cls, given: Mapping[str, list[str]]) -> Choices:
        """The values of options as :mod:`perftest.options.tokens` reads them, without the options of no effect."""
        texts: dict[str, Any] = {}
        for key, words in given.items():
            arity = BY_KEY[key].arity
            if BY_KEY[key].effect is not Effect.WITHOUT:
                texts[key] = True if arity is Arity.FLAG else tuple(words) if arity is Arity.MANY else words[0]
        return cls(texts)

    def __getitem__(self, key: str) -> Any:
        """The value of an option: the given value, or its default, or None if it has no default."""
        if key in self._values:
            return self._values[key]
        option = BY_KEY[key]
        if option.arity is Arity.FLAG:
            return False
        if option.arity is Arity.MANY:
            return _combined(option, ())
        text = (option.local if self.local else "") or option.default
        return values.read(option.kind, text) if text else None

    def is_given(self, *keys: str) -> bool:
        """Whether any of these options was given."""
        return any(key in self._given for key in keys)

    def problem(self, keys: Iterable[str], rule: str, fix: str, value: object = None) -> None:
        """Note a problem of these options."""
        where = ", ".join(BY_KEY[key].place for key in keys)
        self.problems.append(Problem(path="", value=value, rule=rule, fix=fix, file=where))

    def note(self, text: str) -> None:
        """Note something that the user should know and that does not stop the run."""
        self.notes.append(text)

    def useless(self, key: str, without: str, *, unless: bool) -> None:
        """Note that an option was given that has no effect without another option."""
        if self.is_given(key) and not unless:
            self.note(f"{BY_KEY[key].flag} has no effect without {without}")

    def name(self, place: str) -> str:
        """The name of a value of the plan in a sentence: the option that set the value, or could have set it."""
        option = self._option(place)
        return _WORDS_OF_PLACE.get(place) or (option.flag if option else place)

    def place(self, place: str) -> str:
        """The place where a value of the plan was written, such as ``-A/--multi-ack-every``."""
        option = self._option(place)
        return option.place if option else place

    def _option(self, place: str) -> Option | None:
        found = list(at_place(place))
        return next((each for each in found if self.is_given(each.key)), found[0] if found else None)

    def _read(self, option: Option, text: Any) -> None:
        """Read the value of an option. If it cannot be read, note the problem and use the default."""
        if option.arity is Arity.FLAG:
            self._values[option.key] = True
            return
        texts = text if option.arity is Arity.MANY else (text,)
        read: list[Any] = []
        for each in texts:
            try:
                read.append(values.read(option.kind, each))
            except UnitError as error:
                self.problem([option.key], f"{option.flag}: {error.rule}", error.fix, each)
        if len(read) == len(texts):
            self._values[option.key] = _combined(option, read) if option.arity is Arity.MANY else read[0]

    def _say_what_means_nothing(self) -> None:
        """Add one note for all options without effect, and a problem for each option that is refused."""
        parts = []
        for reason, options in by_effect(Effect.WITHOUT):
            flags = [each.flag for each in options if each.key in self._given]
            if flags:
                parts.append(f"{' '.join(flags)} ({reason})")
        if parts:
            self.note(f"without effect here: {'; '.join(parts)}")
        for each in OPTIONS:
            if each.effect is Effect.REFUSED and each.key in self._given:
                rule, _, fix = each.reason.partition("; ")
                self.problem([each.key], f"{each.flag}: {rule}", fix)


def _combined(option: Option, read: Iterable[Any]) -> Any:
    """Several values of an option as one value: pairs as one mapping, all others as a tuple."""
    if option.kind != "pairs":
        return tuple(read)
    found: dict[str, Any] = {}
    for each in read:
        found.update(each)
    return found
