"""How the steps of a run are named on the page: short where the axis says which setting it is, in full elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

NAMES = {
    "in_flight": "in-flight limit",
    "prefetch": "prefetch",
    "ack_interval": "ack interval",
    "rate": "rate per publisher",
    "size_bytes": "message size",
    "publishers": "publishers",
    "consumers": "consumers",
    "persistent": "persistent",
    "mandatory": "mandatory",
}
"""Settings in the words of the documentation."""


def swept(run: pd.Series[Any]) -> tuple[str, ...]:
    """The settings that differ between steps, in the order to show."""
    return tuple(json.loads(run["swept"] or "[]"))


def words_of(names: tuple[str, ...]) -> str:
    """The swept settings in words: ``in-flight limit``, ``prefetch and ack interval``."""
    listed = [NAMES.get(name, name) for name in names]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def short(steps: pd.DataFrame, names: tuple[str, ...]) -> list[str]:
    """Each step by the values of what was swept: ``200``; ``200 / 10`` for two settings; its label when nothing was."""
    if not names:
        return [str(label) for label in steps["label"]]
    return [" / ".join(_value(json.loads(text), name) for name in names) for text in steps["settings"]]


def long(steps: pd.DataFrame, names: tuple[str, ...]) -> list[str]:
    """Each step in a sentence: ``in-flight limit 200``; its label when nothing was swept."""
    if not names:
        return [str(label) for label in steps["label"]]
    return [
        " and ".join(f"{NAMES.get(name, name)} {_value(json.loads(text), name)}" for name in names)
        for text in steps["settings"]
    ]


def _value(settings: dict[str, Any], name: str) -> str:
    match settings.get(name):
        case None:
            return "none" if name != "rate" else "unlimited"
        case bool() as flag:
            return "yes" if flag else "no"
        case int() | float() as number:
            return f"{number:.10g}"
        case other:
            return str(other)
