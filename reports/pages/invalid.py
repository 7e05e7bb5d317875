"""The banner over figures that must not be used: every check that failed, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from perftest.results.trust import Check, Status, title
from reports.pages import words
from reports.pages.model import Banner, Run

REMEDIES: Final[Mapping[str, str]] = {
    "generator_cpu": "Give the load more worker processes (--workers) or hosts (perftest remote run), or less load.",
    "steal": "Measure on a machine that no other guest shares, or when its host is quiet.",
    "clock": "Set the clocks of the hosts by one source (NTP, PTP), and measure again.",
    "schedule_lag": "Give the load more worker processes or hosts: the schedule was more than they could keep.",
    "histograms": "Look for lost workers in the events; the percentiles lack a part of the messages.",
    "samples": "Let the load run longer, or look in the events for the reason why nothing arrived.",
    "confirms": "Look at the broker's log: it took messages and answered none.",
    "modelled_drives": "Give the nodes more cores, or model slower drives: the model could not keep its own times.",
    "disturbances": "Find out why nodes or connections were lost, and measure again.",
    "finished": "Measure again: the end of the run is missing.",
    "complete": "Measure again: nothing that counts was recorded.",
    "ledger": "Find out what became of the messages before you read any other figure.",
}
"""What to do about each check that may fail."""


def failed(checks: Sequence[Check]) -> list[Check]:
    """The checks that failed."""
    return [check for check in checks if check.status is Status.FAIL]


def invalid_run(checks: Sequence[Check]) -> list[Banner]:
    """The banner of one run; none if no check failed."""
    found = failed(checks)
    if not found:
        return []
    return [
        Banner(
            status=Status.FAIL,
            title="INVALID: do not use these figures",
            text=f"{words.plural(len(found), 'check')} failed.",
            lines=tuple(f"{title(check.check)}: {check.text}. {REMEDIES.get(check.check, '')}" for check in found),
        )
    ]


def invalid_runs(runs: Sequence[Run]) -> list[Banner]:
    """The banner of a page with several runs; none if no check of any failed."""
    found = [(run, failed(run.checks)) for run in runs if failed(run.checks)]
    if not found:
        return []
    return [
        Banner(
            status=Status.FAIL,
            title=f"INVALID: do not use the figures of {words.plural(len(found), 'run')} of {len(runs)}",
            text="",
            lines=tuple(
                f"{run.name or run.run_id}: {title(check.check)}: {check.text}." for run, of in found for check in of
            ),
        )
    ]


def usable(checks: Sequence[Check]) -> str:
    """Whether the figures of a run may be used: ``valid``, or INVALID with the checks that failed."""
    found = failed(checks)
    if found:
        return f"✕ INVALID: {words.listed([title(check.check) for check in found])}"
    warned = sum(check.status is Status.WARN for check in checks)
    return f"✓ valid, {words.plural(warned, 'warning')}" if warned else "✓ valid"
