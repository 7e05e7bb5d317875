"""How a store describes the figures that it keeps about itself."""

from __future__ import annotations

from typing import Literal, NamedTuple


class CounterSpec(NamedTuple):
    """Name, whether it only grows, unit and meaning of one figure."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    help: str
