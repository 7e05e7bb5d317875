"""Commands that reproduce the load of a search.

Without a workload file, a search makes its plan from words of ``perftest run``, with the parser of that command. So the
command that is shown at the end gives the same plan. With a workload file, the command sets every setting that the
search has fixed by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from perftest.options import tokens
from perftest.options.choices import Choices
from perftest.options.plan_of_options import plan_of
from perftest.spec.condense import duration, written
from perftest.spec.fields import key_of
from perftest.spec.plan import Plan, Settings
from perftest.spec.units import AUTOMATIC_ACK, UNLIMITED, in_words

LOAD_FLAGS: Final = ("publishers", "consumers", "in_flight", "prefetch", "ack_interval", "size_bytes")
"""The settings of a load that the command line of a search can change."""

_BESIDE_A_URI: Final = ("-u", "perftest", "-qq", "-e", "amq.default", "-prsd", "0", "-cal", "round-robin")
"""Options of ``perftest run`` that give a remote broker the same load as the bundled cluster has by default."""


def beside(uris: Sequence[str]) -> list[str]:
    """The options about target and queue of a ``perftest run`` with the load of a search."""
    return ["-H", ",".join(uris), *_BESIDE_A_URI] if uris else []


def plan_of_words(words: Sequence[str]) -> Plan:
    """The plan of ``perftest run`` with these words, which are known to be readable. Raises SpecError."""
    read = tokens.read(list(words))
    assert not read.complaints, read.complaints
    return plan_of(Choices.of_words(read.values))


def run_command(plan: Plan, target: Sequence[str]) -> list[str]:
    """The ``perftest run`` command with the load of this plan. ``target`` are the words about the broker."""
    words = [*target, *(_BESIDE_A_URI if "-h" in target else ())]
    step = plan.steps[0]
    timing = ["-z", str(duration(step.duration_s)), "--warmup", str(duration(step.warmup_s))]
    return ["perftest", "run", *words, *load_words(step.settings), *timing]


def load_words(settings: Settings) -> list[str]:
    """The options of ``perftest run`` for the settings that a search can change."""
    automatic = settings.ack_interval == AUTOMATIC_ACK
    return [
        *("-r", _exactly(settings.rate), "-x", str(settings.publishers), "-y", str(settings.consumers)),
        *("-c", in_words("in_flight", settings.in_flight), "-q", in_words("prefetch", settings.prefetch)),
        *(["-a"] if automatic else ["-A", str(settings.ack_interval)]),
        *("-s", str(settings.size_bytes)),
    ]


def sweep_command(workload: str, plan: Plan, target: Sequence[str], held: Iterable[str]) -> list[str]:
    """The ``perftest sweep`` command with the load of this plan, for a workload file.

    The command sweeps only the rate. It sets the fields ``held`` by name: the settings that the file sweeps, and the
    settings that options changed.
    """
    step = plan.steps[0]
    words = ["--isolated", "--vary", f"rate={_exactly(step.settings.rate)}"]
    for field in dict.fromkeys(held):
        setting = key_of(Settings, field)
        if setting != "rate":
            words += ["--set", f"load.{setting}={written(setting, getattr(step.settings, field))}"]
    words += ["--set", f"step.duration={duration(step.duration_s)}", "--set", f"step.warmup={duration(step.warmup_s)}"]
    return ["perftest", "sweep", workload, *target, *words]


def _exactly(rate: float | None) -> str:
    """The rate with all of its digits, because a rate per publisher is rarely a round number."""
    if rate is None:
        return UNLIMITED
    return str(int(rate)) if rate == int(rate) else repr(rate)
