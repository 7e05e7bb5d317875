"""The trust list of a run: the reasons to trust its figures or not, computed from its tables.

Here are the list, and the checks of the run as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from perftest.results.trust import ONE_MACHINE, USER_CPU_ONLY, Check, Status
from reports.pipeline.tables import Tables
from reports.stats import figure_checks, load_checks, message_checks
from reports.stats.check import run_of, sentence


def checks(tables: Tables) -> list[Check]:
    """The trust list of one run, in a fixed order.

    :param tables: the tables of exactly one run, see :meth:`reports.pipeline.tables.Tables.of`
    """
    found = (check(tables) for check in CHECKS)
    return [check for check in found if check is not None]


def state(tables: Tables) -> Check:
    """Did the run come to its end?"""
    value, reason = str(run_of(tables)["state"]), run_of(tables)["ended_reason"]
    if value == "finished":
        return Check(check="finished", status=Status.PASS, text="The run came to its planned end.")
    if value == "running":
        text = "The run was killed or is still running: what is here is what had been written."
        return Check(check="finished", status=Status.FAIL, text=text)
    status = Status.WARN if value == "interrupted" else Status.FAIL
    because = f": {reason}" if isinstance(reason, str) and reason and reason != value else ""
    return Check(check="finished", status=status, text=f"The run was not finished but {value}{because}.")


def repetitions(tables: Tables) -> Check:
    """Say what one run can and cannot tell."""
    text = (
        "One repetition: how much a figure varies from run to run is not known, so a difference between steps or runs "
        "may be chance."
    )
    return Check(check="repetitions", status=Status.NOTE, text=text)


def machine(tables: Tables) -> Check | None:
    """Say whether generator and brokers shared a machine."""
    if not run_of(tables)["one_machine"]:
        return None
    return Check(check="one machine", status=Status.NOTE, text=sentence(ONE_MACHINE))


def background(tables: Tables) -> Check | None:
    """Name the background loads that the broker served."""
    beside = json.loads(run_of(tables)["manifest"] or "{}").get("plan", {}).get("background") or []
    if not beside:
        return None
    names = ", ".join(str(load.get("name", "")) for load in beside)
    text = f"Beside the measured load, and in no figure but those of broker and hosts, ran another: {names}."
    return Check(check="background", status=Status.NOTE, text=text)


def durability(tables: Tables) -> Check:
    """Say what a confirm meant."""
    said = str(run_of(tables)["durability"])
    if not said:
        text = "What a confirm meant for the safety of a message is unknown."
        return Check(check="durability", status=Status.WARN, text=text)
    return Check(check="durability", status=Status.NOTE, text=f"What a confirm meant: {said}.")


def broker_cpu(tables: Tables) -> Check | None:
    """Say whether the broker's CPU time lacks the time of its kernel."""
    if (json.loads(run_of(tables)["manifest"] or "{}").get("broker") or {}).get("cpu_kind") != "user":
        return None
    return Check(check="broker CPU", status=Status.NOTE, text=sentence(USER_CPU_ONLY))


CHECKS: Final[tuple[Callable[[Tables], Check | None], ...]] = (
    state,
    message_checks.ledger,
    message_checks.redeliveries,
    message_checks.refusals,
    load_checks.schedule,
    load_checks.achieved,
    load_checks.backlog,
    load_checks.generator,
    load_checks.load_host,
    load_checks.event_loop,
    figure_checks.samples,
    figure_checks.accounted,
    message_checks.damage,
    figure_checks.steady,
    figure_checks.completeness,
    message_checks.disturbances,
    figure_checks.clocks,
    repetitions,
    machine,
    background,
    broker_cpu,
    durability,
)
"""Every check, in the order of the list."""
