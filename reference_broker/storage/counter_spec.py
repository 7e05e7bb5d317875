"""How a store describes the figures that it keeps about itself."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_type_hints


class CounterSpec(NamedTuple):
    """Name, whether it only grows, unit and meaning of one figure."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    help: str


def counter(unit: str, meaning: str) -> CounterSpec:
    """The mark on a field that only grows."""
    return CounterSpec("", "counter", unit, meaning)


def gauge(unit: str, meaning: str) -> CounterSpec:
    """The mark on a field that grows and shrinks."""
    return CounterSpec("", "gauge", unit, meaning)


def specs_of(figures: type) -> tuple[CounterSpec, ...]:
    """The figures of a class, from the marks on the types of its fields."""
    kinds = get_type_hints(figures, include_extras=True)
    return tuple(mark._replace(name=name) for name, kind in kinds.items() for mark in getattr(kind, "__metadata__", ()))
