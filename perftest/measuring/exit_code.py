"""The exit code of a run, by the gravest fact about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perftest.exits import Exit
from perftest.results.trust import Check
from perftest.results.trust_list import is_valid


def exit_code(
    state: str,
    ledger: Mapping[str, Any] | None,
    trust: Sequence[Check],
    *,
    missed: bool = False,
) -> Exit:
    """The exit code for the gravest fact about a run, by its ``trust`` list.

    The order is: unsafe messages, a failed run, an interruption, a missed objective, a result that cannot be trusted.
    """
    if ledger is not None and "violated" in (each.get("verdict") for each in (ledger, *ledger.get("background", ()))):
        return Exit.SAFETY
    if state == "failed":
        return Exit.RUN_ERROR
    if state == "interrupted":
        return Exit.INTERRUPTED
    if missed:
        return Exit.MISSED
    return Exit.OK if trust and is_valid(trust) else Exit.UNTRUSTED
