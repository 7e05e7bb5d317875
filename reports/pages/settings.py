"""How a run and its steps are named on the page: a step short where the axis says which setting it is, in full
elsewhere."""

from __future__ import annotations

import json
from typing import Any, Final

import pandas as pd

from reports.stats import axes
from reports.store.schema import SETTING_WORDS

NAMES = {
    "in_flight": "in-flight limit",
    "prefetch": "prefetch",
    "ack_interval": "ack interval",
    "rate": "rate per publisher",
    "size_bytes": "message size",
    "ack_after_ms": "ack timeout (ms)",
    "consumer_latency_us": "consumer latency (µs)",
    "failing": "failing share",
    "publishers": "publishers",
    "consumers": "consumers",
    "persistent": "persistent",
    "mandatory": "mandatory",
}
"""Settings in the words of the documentation."""

_NO_LIMIT: Final = {("ack_after_ms", 0): "none", ("rate", None): "unlimited"}
"""Other values that stand for the absence of a limit."""


UNNAMED: Final = ("run", "sweep")
"""Names of plans that were made of options, not of a workload file."""
WHOLE: Final = "whole run"
"""Name of the only step of a run."""


def title(run: pd.Series[Any]) -> str:
    """The title of a run: that of its workload, or else what was measured."""
    if run["title"] or run["name"] not in UNNAMED:
        return str(run["title"] or run["name"])
    names = swept(run)
    what = f"Sweep over {words_of(names)}" if names else "One load without a sweep"
    return f"{what}: {str(run['queue_types']).replace(',', ', ')} queue, {run['loop']} loop"


def swept(run: pd.Series[Any]) -> tuple[str, ...]:
    """The settings that differ between steps, in the order to show."""
    return tuple(json.loads(run["swept"] or "[]"))


def values(steps: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """The swept settings of each step as numbers, a column each: what :mod:`reports.stats.axes` puts in order."""
    return axes.axes([json.loads(text) for text in steps["settings"]], names)


def in_order(steps: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """The steps from the lowest setting to the highest. The order in which they ran does not matter."""
    ran = steps.sort_values("step", kind="stable")
    return ran.iloc[axes.order(values(ran, names))].reset_index(drop=True) if names else ran.reset_index(drop=True)


def words_of(names: tuple[str, ...]) -> str:
    """The swept settings in words: ``in-flight limit``, ``prefetch and ack interval``."""
    listed = [NAMES.get(name, name) for name in names]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def short(steps: pd.DataFrame, names: tuple[str, ...]) -> list[str]:
    """Each step by the values of what was swept: ``200``; ``200 / 10`` for two settings; its label when nothing was."""
    if not names:
        return [str(label) or WHOLE for label in steps["label"]]
    return [" / ".join(_value(json.loads(text), name) for name in names) for text in steps["settings"]]


def long(steps: pd.DataFrame, names: tuple[str, ...]) -> list[str]:
    """Each step in a sentence: ``in-flight limit 200``; its label when nothing was swept."""
    if not names:
        return [str(label) or WHOLE for label in steps["label"]]
    return [
        " and ".join(f"{NAMES.get(name, name)} {_value(json.loads(text), name)}" for name in names)
        for text in steps["settings"]
    ]


def _value(settings: dict[str, Any], name: str) -> str:
    """The value of one setting in words: ``200``, ``unlimited``."""
    value = settings.get(name)
    if isinstance(value, int) and value in SETTING_WORDS.get(name, ()):
        return SETTING_WORDS[name][value].replace("_", " ")
    match value:
        case bool() as flag:
            return "yes" if flag else "no"
        case (int() | None) as value if (name, value) in _NO_LIMIT:
            return _NO_LIMIT[name, value]
        case None:
            return "none"
        case int() | float() as number:
            return f"{number:.10g}"
        case other:
            return str(other)
