"""Names of loads by what tells them apart, and the rounds among them.

Loads of one plan, broker and layout are rounds of each other. A name says what differs between the loads of a page, and
nothing that all of them share: ``two_drives``, ``classic``, ``round 2``; never the id of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from reports.pages import words
from reports.pages.figures import broker_of, is_simulated, manifest_of
from reports.pages.several.layouts import layout_of
from reports.store.tables import Tables

_GROUP: Final = "group"
_KINDS: Final = {"workload": "workload", "layout": "layout", "broker": "broker", "queue": "queue type"}
"""Words for loads that differ in one fact alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedLoads:
    """Loads that repeat each other, in the order of their seeds and starts; ``name`` is empty if the page has no
    other. ``what`` says what the loads of the page are: ``queue type`` if they differ in nothing else, or ``load``."""

    name: str
    loads: tuple[Tables, ...]
    what: str = "load"

    def round_names(self) -> list[str]:
        """A name for each round: its number, if there are several, behind the name of all."""
        if len(self.loads) == 1:
            return [self.name]
        return [_joined(self.name, f"round {number}") for number in range(1, len(self.loads) + 1)]


def rounds_of(loads: Sequence[Tables]) -> list[RepeatedLoads]:
    """The loads in groups of rounds, in the order of their first loads."""
    found: dict[tuple[str, ...], list[Tables]] = {}
    for load in loads:
        run = load.runs.iloc[0]
        key = (str(run["plan_digest"]) or str(run["run_id"]), *_facts(load).values())
        found.setdefault(key, []).append(load)
    facts = [_facts(each[0]) for each in found.values()]
    differing = _differing(facts)
    names = [_joined(*(each[name] for name in differing)) for each in facts]
    what = _KINDS.get(differing[0], "load") if len(differing) == 1 else "load"
    repeated = {name for name, count in Counter(names).items() if count > 1}
    starts = [_start(each[0]) for each in found.values()]
    return [
        RepeatedLoads(name=_joined(name, start) if name in repeated else name, loads=_ordered(each), what=what)
        for name, start, each in zip(names, starts, found.values(), strict=True)
    ]


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _ordered(loads: Sequence[Tables]) -> tuple[Tables, ...]:
    return tuple(sorted(loads, key=_turn))


def _turn(load: Tables) -> tuple[int, int]:
    run = load.runs.iloc[0]
    return int((manifest_of(run).get("simulated") or {}).get("seed", 0)), int(run["started_ns"])


def _start(load: Tables) -> str:
    started = datetime.fromtimestamp(int(load.runs.iloc[0]["started_ns"]) // 10**9, UTC)
    return f"{started:%Y-%m-%d %H:%M:%S}"


def _facts(load: Tables) -> dict[str, str]:
    """What may tell a load from another, in words."""
    run = load.runs.iloc[0]
    layout = layout_of(run)
    return {
        "workload": str(run["name"]),
        _GROUP: str(load.steps["group"].iloc[0]) if len(load.steps) else "",
        "layout": "no layout" if layout is None else layout.name,
        "broker": broker_of(run) or "unknown broker",
        "queue": str(run["queue_types"]).replace(",", ", "),
        "loop": f"{run['loop']} loop",
        "hosts": words.plural(int(run["host_count"]), "load host"),
        "simulated": "simulated" if is_simulated(run) else "measured",
    }


def _differing(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """The names of the facts that not all loads share."""
    return [name for name in facts[0] if len({each[name] for each in facts}) > 1] if facts else []
