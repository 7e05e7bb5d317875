"""The effects of a link on packets. A *link* is one direction between two hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from perftest.errors import HelpfulError

_DELAY_MAX_MS: Final = 60_000.0

Pair = tuple[str, str]
"""A link: the host that sends, and the host that receives."""


class LinkError(HelpfulError):
    """A link that there is not, or settings that no link can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """The effects of a link on packets. ``delay_ms`` and ``jitter_ms`` are one way; each packet takes the delay and up
    to the jitter. ``loss`` is a share from 0 to 1. ``mbit`` is megabits per second, 0: no limit."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    mbit: float = 0.0
    cut: bool = False

    def changed(self, changes: Mapping[str, Any]) -> LinkSettings:
        """These settings with some of them changed. Raises :class:`LinkError`."""
        for name, value in changes.items():
            if name not in _HIGHEST:
                raise LinkError(f"links have no {name!r}", "settings of a link", f"use one of {', '.join(_HIGHEST)}")
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (isinstance(value, bool) if name == "cut" else number and 0 <= value <= _HIGHEST[name]):
                fix = "write true or false" if name == "cut" else f"write a number from 0 to {_HIGHEST[name]:g}"
                raise LinkError(f"{name} cannot be {value!r}", "settings of a link", fix)
        return replace(self, **changes)

    def plain(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


_HIGHEST: Final = {"delay_ms": _DELAY_MAX_MS, "jitter_ms": _DELAY_MAX_MS, "loss": 1.0, "mbit": 1e6, "cut": 1.0}
