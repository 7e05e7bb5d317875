"""The trust list in a few words: beside the title, beside a step, and before the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from perftest.results.trust import Check, Status, title
from reports.pages import words
from reports.pages.invalid import failed
from reports.pages.model import Chip, Sentence

WARNINGS: Final[Mapping[str, str]] = {
    "finished": "the run was interrupted",
    "lost_hosts": "a load host was lost",
    "complete": "steps are short or missing",
    "ledger": "whether messages were lost is unknown",
    "damaged_records": "records are damaged",
    "disturbances": "connections or nodes were disturbed",
    "refusals": "messages were refused or returned",
    "backlog": "the queue grew",
    "intended_rate": "the load was below its schedule",
    "bottleneck": "network or generator set the rate",
    "generator_cpu": "the load workers' CPU may be the limit",
    "generator_wait": "load workers waited for a core",
    "host_cpu": "a load host's CPU was busy",
    "steal": "the hypervisor took CPU time",
    "schedule_lag": "messages left late",
    "loop_lag": "the highest percentiles hold pauses of the generator",
    "clock": "clocks are less exact than latencies",
    "host_clocks": "clocks are less exact than latencies",
    "steady_state": "a step was not steady",
    "start_skew": "hosts began apart",
    "redeliveries": "messages were redelivered",
    "samples": "a step has few samples",
    "histograms": "latencies are incomplete",
    "confirms": "publishers asked for no confirms",
    "durability": "the durability is unknown",
    "loop": "open or closed loop is unknown",
}
"""Meaning of each check that may warn, the gravest first."""


def trust_chip(found: Sequence[Check]) -> Chip:
    """The number of failed checks, or of warnings with the gravest in words."""
    if wrong := failed(found):
        return Chip(name="Trust", value=f"{words.plural(len(wrong), 'check')} failed", status=Status.FAIL)
    if said := warnings(found):
        return Chip(name="Trust", value=said, status=Status.WARN)
    return Chip(name="Trust", value="all checks passed", status=Status.PASS)


LEDGERS: Final[Mapping[str, tuple[str, Status]]] = {
    "ok": ("nothing lost", Status.PASS),
    "violated": ("safety violated", Status.FAIL),
    "unknown": ("unknown, not drained", Status.WARN),
}
"""Words and status of each verdict of a ledger."""


def ledger_chip(verdicts: Iterable[str]) -> Chip:
    """The worst ledger of runs; ``verdicts`` are empty for runs without a ledger."""
    found = [LEDGERS.get(verdict, ("none", Status.FAIL)) for verdict in verdicts]
    value, status = max(found, key=lambda each: each[1].weight, default=("none", Status.FAIL))
    return Chip(name="Ledger", value=value, status=status)


def runs_chip(lists: Sequence[Sequence[Check]]) -> Chip:
    """How many of several runs are valid, and the number of their warnings with the gravest in words."""
    valid = sum(not failed(found) for found in lists)
    warned = warnings([check for found in lists for check in found])
    status = Status.FAIL if valid < len(lists) else Status.WARN if warned else Status.PASS
    text = ", ".join(filter(None, (f"{valid} of {words.plural(len(lists), 'run')} valid", warned)))
    return Chip(name="Trust", value=text, status=status)


def warnings(found: Sequence[Check]) -> str:
    """The number of warnings with the gravest in words: ``2 warnings, the gravest: the queue grew``; empty without."""
    warned = [check.check for check in found if check.status is Status.WARN]
    if not warned:
        return ""
    ranks = list(WARNINGS)
    gravest = min(warned, key=lambda name: ranks.index(name) if name in ranks else len(ranks))
    meaning = WARNINGS.get(gravest, title(gravest))
    return f"{words.plural(len(warned), 'warning')}{', the gravest' if len(warned) > 1 else ''}: {meaning}"


def remarks(found: Sequence[Check], step: int) -> str:
    """The checks that speak against one step, by name; empty when none does."""
    return ", ".join(
        title(check.check) for check in found if check.status in (Status.FAIL, Status.WARN) and step in check.steps
    )


def caution(found: Sequence[Check], *, prefix: str) -> list[Sentence]:
    """The failed checks by name, as a warning before the figures."""
    names = [title(check.check) for check in failed(found)]
    if not names:
        return []
    text = f"Read these figures with care, for they may not show what they claim; failed: {', '.join(names)}."
    return [Sentence(text=text, anchor=f"{prefix}trust", see="trust list")]
