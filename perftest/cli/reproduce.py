"""The command that makes a load again: what is typed gives the plan that was measured.

Without a workload file a search measures what ``perftest run`` would: its plan is made of the same words that are shown
in the end, by the same parser. Of a workload file every setting that the search holds is set by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from perftest.cli.options import tokens
from perftest.cli.options.choices import Choices
from perftest.cli.options.option import Arity
from perftest.cli.options.plan import plan_of
from perftest.cli.options.table import BY_KEY
from perftest.cli.target import typed_again
from perftest.spec.condense import duration, written
from perftest.spec.plan import Plan, Settings
from perftest.spec.sweeping import FIELD_OF_SETTING
from perftest.spec.units import AUTOMATIC_ACK, UNLIMITED, in_words

LOAD_FLAGS: Final = ("publishers", "consumers", "in_flight", "prefetch", "ack_interval", "size_bytes")
"""What the command line of a search can change of a workload's load."""

_BESIDE_A_URI: Final = ("-u", "perftest", "-qq", "-e", "amq.default", "-prsd", "0", "-cal", "round-robin")
"""What makes the load of ``perftest run`` beside a URI the one that a search measures with the bundled cluster."""
_SETTING_OF_FIELD: Final = {field: setting for setting, field in FIELD_OF_SETTING.items()}


def beside(uris: Sequence[str]) -> list[str]:
    """The words about target and queue of a run that measures what a search does."""
    return ["-H", ",".join(uris), *_BESIDE_A_URI] if uris else []


def plan_of_words(words: Sequence[str]) -> Plan:
    """The plan of ``perftest run`` with these words. Raises SpecError; of the words themselves nothing is wrong."""
    read = tokens.read(list(words))
    assert not read.complaints, read.complaints
    given: dict[str, Any] = {}
    for key, values in read.values.items():
        arity = BY_KEY[key].arity
        given[key] = True if arity is Arity.FLAG else tuple(values) if arity is Arity.MANY else values[0]
    return plan_of(Choices(given))


def run_command(plan: Plan, cluster: Path | None) -> list[str]:
    """The ``perftest run`` that has the load of this plan."""
    target = [*typed_again(plan.uris, cluster), *(_BESIDE_A_URI if plan.uris else ())]
    step = plan.steps[0]
    timing = ["-z", str(duration(step.duration_s)), "--warmup", str(duration(step.warmup_s))]
    return ["perftest", "run", *target, *load_words(step.settings), *timing]


def load_words(settings: Settings) -> list[str]:
    """The flags of ``perftest run`` for the settings that a search can change."""
    automatic = settings.ack_interval == AUTOMATIC_ACK
    return [
        *("-r", _exactly(settings.rate), "-x", str(settings.publishers), "-y", str(settings.consumers)),
        *("-c", in_words("in_flight", settings.in_flight), "-q", in_words("prefetch", settings.prefetch)),
        *(["-a"] if automatic else ["-A", str(settings.ack_interval)]),
        *("-s", str(settings.size_bytes)),
    ]


def sweep_command(workload: str, plan: Plan, cluster: Path | None, held: Iterable[str]) -> list[str]:
    """The ``perftest sweep`` that has this load of a workload file. The file's own sweep is replaced by the rate, so
    the settings ``held`` (fields) are set by name: those that the file sweeps, and those that flags changed."""
    step = plan.steps[0]
    words = ["--isolated", "--vary", f"rate={_exactly(step.settings.rate)}"]
    for field in dict.fromkeys(held):
        setting = _SETTING_OF_FIELD.get(field, field)
        if setting != "rate":
            words += ["--set", f"load.{setting}={written(setting, getattr(step.settings, field))}"]
    words += ["--set", f"step.duration={duration(step.duration_s)}", "--set", f"step.warmup={duration(step.warmup_s)}"]
    return ["perftest", "sweep", workload, *typed_again(plan.uris, cluster), *words]


def _exactly(rate: float | None) -> str:
    """All digits: a rate per publisher is rarely a round one."""
    if rate is None:
        return UNLIMITED
    return str(int(rate)) if rate == int(rate) else repr(rate)
