"""All options of ``perftest run``, in the order of its help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perftest.cli.options import connections, consumers, elsewhere, general, publishers, topology
from perftest.cli.options.option import Effect, Option

OPTIONS: Final[tuple[Option, ...]] = (
    *general.OPTIONS,
    *topology.OPTIONS,
    *publishers.OPTIONS,
    *consumers.OPTIONS,
    *connections.OPTIONS,
    *elsewhere.OPTIONS,
)
BY_KEY: Final[Mapping[str, Option]] = {each.key: each for each in OPTIONS}
BY_SHORT: Final[Mapping[str, Option]] = {each.short: each for each in OPTIONS if each.short}
BY_LONG: Final[Mapping[str, Option]] = {name: each for each in OPTIONS for name in each.long}
BY_VARIABLE: Final[Mapping[str, Option]] = {
    each.variable: each for each in OPTIONS if each.perftest and not each.key.startswith("show_")
}


def at_place(place: str) -> Iterator[Option]:
    """The options that set a value of the plan."""
    return (each for each in OPTIONS if place in each.places)


def by_effect(effect: Effect) -> Iterator[tuple[str, list[Option]]]:
    """Reasons, and the options that have each."""
    found: dict[str, list[Option]] = {}
    for each in OPTIONS:
        if each.effect is effect:
            found.setdefault(each.reason, []).append(each)
    yield from found.items()
