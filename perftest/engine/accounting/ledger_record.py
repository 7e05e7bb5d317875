"""The content of ``ledger.json``: of one worker's ledger, and of several together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

EXAMPLES_MAX: Final = 20
HARM: Final = ("lost", "duplicated", "reordered", "unexpected", "damaged")
"""What no broker may do."""

COUNTS: Final = (
    *("published", "unconfirmed", "confirmed", "nacked", "returned", "republished"),
    *("delivered", "redelivered", "unique", *HARM, "undelivered", "abandoned", "foreign"),
)


def make(
    counts: Mapping[str, int], examples: list[dict[str, object]], *, complete: bool, drained: bool
) -> dict[str, Any]:
    """The record of these counts; whatever is missing is 0."""
    harmed = any(counts.get(name) for name in HARM)
    return {
        "schema": 1,
        "complete": complete,
        "drained": drained,
        **{name: counts.get(name, 0) for name in COUNTS},
        "examples": examples[:EXAMPLES_MAX],
        "verdict": "violated" if harmed else "ok" if drained else "unknown",
    }


def merge(records: Iterable[Mapping[str, Any]], *, complete: bool) -> dict[str, Any]:
    """The record of all workers. Each message is in the account of one of them: counts add up."""
    parts = list(records)
    counts = {name: sum(part[name] for part in parts) for name in COUNTS}
    examples = [example for part in parts for example in part["examples"]]
    drained = bool(parts) and all(part["drained"] for part in parts)
    return make(counts, examples, complete=complete, drained=drained)
