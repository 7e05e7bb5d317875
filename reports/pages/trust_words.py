"""The trust list in a few words: beside the title, beside a step, and before the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from perftest.results.trust import Check, Status, title
from reports.pages import words
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
    failed = sum(check.status is Status.FAIL for check in found)
    if failed:
        return Chip(name="Trust", value=f"{words.plural(failed, 'check')} failed", status=Status.FAIL)
    if said := warnings(found):
        return Chip(name="Trust", value=said, status=Status.WARN)
    return Chip(name="Trust", value="all checks passed", status=Status.PASS)


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
    failed = [title(check.check) for check in found if check.status is Status.FAIL]
    if not failed:
        return []
    text = f"Read these figures with care, for they may not show what they claim; failed: {', '.join(failed)}."
    return [Sentence(text=text, anchor=f"{prefix}trust", see="trust list")]
