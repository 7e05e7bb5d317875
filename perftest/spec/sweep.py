"""The points of a sweep: the settings of each step, the place of each value in the file, and the order of steps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from perftest.spec.fields import field_of, quantity_of
from perftest.spec.keys import line_for
from perftest.spec.models import Sweep
from perftest.spec.plan import Settings
from perftest.spec.units import UnitError, format_duration, in_words

STEPS_MAX: Final = 1000
Location = tuple[str | int, ...]
Number = int | float | None
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A value as it was written, and its place in the document."""

    value: object
    location: Location


Point = dict[str, WrittenValue]
"""The value of each swept setting in one step."""


def swept_value(setting: str, value: object) -> Number:
    """A value in the unit of its field; None is no limit. Raises :class:`~perftest.spec.units.UnitError`."""
    quantity = quantity_of(Settings, field_of(Settings, setting))
    assert quantity is not None, setting
    return quantity.parse(value)


def label(setting: str, value: Number) -> str:
    """``rate=unlimited``, ``size=1000``, ``in_flight=no_confirms``."""
    quantity = quantity_of(Settings, field_of(Settings, setting))
    if quantity is not None and quantity.per_second:
        return f"{setting}={format_duration((value or 0) / quantity.per_second)}"
    return f"{setting}={in_words(setting, value)}"


def settings_swept(sweep: Sweep | None) -> tuple[str, ...]:
    """The names of the settings that differ between steps."""
    if sweep is None:
        return ()
    if sweep.grid:
        return tuple(sweep.grid)
    return tuple(sweep.steps[0]) if sweep.steps else (sweep.setting,) if sweep.setting else ()


def points(sweep: Sweep) -> list[Point]:
    """A point for each step, in the order in which they were written."""
    if sweep.grid:
        axes = [
            [(name, WrittenValue(value, ("sweep", "grid", name, at))) for at, value in enumerate(values)]
            for name, values in sweep.grid.items()
        ]
        return [dict(combination) for combination in itertools.islice(itertools.product(*axes), STEPS_MAX + 1)]
    if sweep.steps:
        return [
            {name: WrittenValue(value, ("sweep", "steps", at, name)) for name, value in step.items()}
            for at, step in enumerate(sweep.steps)
        ]
    name = sweep.setting or ""
    return [{name: WrittenValue(value, ("sweep", "values", at))} for at, value in enumerate(sweep.values)]


def in_order(steps: Sequence[_T], order: str, seed: int) -> list[_T]:
    """The steps in the order in which they run. A random order is the same for the same seed."""
    found = list(steps)
    if order == "random":
        random.Random(seed).shuffle(found)
    return found


def shape_problems(sweep: Sweep) -> Iterator[tuple[Location, str, str]]:
    """Problems of a sweep that do not depend on its values: place, rule, fix."""
    ways = [bool(sweep.setting or sweep.values), bool(sweep.grid), bool(sweep.steps)]
    if sum(ways) != 1:
        rule = "a sweep needs setting and values, a grid, or steps" + ("; several are given" if any(ways) else "")
        yield ("sweep",), rule, "keep one of the three"
    elif ways[0] and not (sweep.setting and sweep.values):
        missing = "values" if sweep.setting else "setting"
        yield ("sweep",), f"the sweep has no {missing}", f"add {line_for((missing,))}"
    elif sweep.steps:
        names = set(sweep.steps[0])
        for at, step in enumerate(sweep.steps):
            if set(step) != names or not step:
                rule = f"it has {', '.join(sorted(step)) or 'nothing'}, the first step has {', '.join(sorted(names))}"
                yield ("sweep", "steps", at), f"steps must have the same settings: {rule}", "give each of them in each"
    if len(points(sweep)) > STEPS_MAX:
        yield ("sweep",), f"more than {STEPS_MAX} steps", "use fewer values"


def value_problems(sweep: Sweep) -> Iterator[tuple[Location, str, str, object]]:
    """Values that cannot be read, and equal steps: place, rule, fix, value."""
    seen: set[tuple[tuple[str, Number], ...]] = set()
    told: set[Location] = set()
    for point in points(sweep):
        read: list[tuple[str, Number]] = []
        for name, written in point.items():
            try:
                read.append((name, swept_value(name, written.value)))
            except UnitError as error:
                if written.location not in told:
                    yield written.location, f"{name}: {error.rule}", error.fix, written.value
                told.add(written.location)
        if len(read) == len(point) and tuple(read) in seen:
            last = list(point.values())[-1]
            yield last.location, f"{last.value!r} is swept twice", "remove one of them", last.value
        seen.add(tuple(read))
