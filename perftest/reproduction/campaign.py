"""A reproduction as it goes: its state on disk, and the loop that measures trial after trial until the time is over.

The state (``reproduction.json``) is written after each trial, so that a reproduction that was interrupted, or killed,
goes on with ``--resume``. The directories of runs are named below the directory of the reproduction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from perftest.exits import CliError, Exit, explained
from perftest.reproduction.experiments import Experiment, chosen
from perftest.reproduction.schedule import EndedTrial, FindingTrial, Pair, TrialLimits, TrialUnit, fitting, units
from perftest.results.writer import write_atomically
from perftest.spec.units import format_duration
from perftest.tell import tell

STATE: Final = "reproduction.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionRequest:
    """What is to be reproduced: names of workloads or sources, brokers, layouts, and limits of the rounds.
    ``rabbitmq_home`` is that of another RabbitMQ than the installed one."""

    names: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ("reference",)
    layouts: tuple[str, ...] = ("all",)
    limits: TrialLimits = field(default_factory=TrialLimits)
    rabbitmq_home: str = ""


Measure = Callable[[FindingTrial, Path], EndedTrial]
"""Runs a trial, with its run below a directory."""


class Campaign:
    """A reproduction in a directory. ``measured_now`` are its experiments that go on; all of them without any."""

    def __init__(
        self,
        place: Path,
        asked: ReproductionRequest,
        experiments: Sequence[Experiment],
        ended: Sequence[EndedTrial],
        measured_now: Sequence[Experiment] = (),
    ) -> None:
        self.place = place
        self.asked = asked
        self.experiments = experiments
        self.ended = [*ended]
        self._measured_now = measured_now or experiments

    def left(self, is_decided: Callable[[Pair], bool]) -> list[TrialUnit]:
        """The units that are left, in their order."""
        return units(self._measured_now, self.asked.brokers, self.asked.limits, self.ended, is_decided)

    def go_on(
        self,
        until: float,
        measure: Measure,
        is_decided: Callable[[Pair], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Measure trials until ``clock`` shows ``until``, or none is left. Each is kept as soon as it has ended."""
        while True:
            now, _later = fitting(self.left(is_decided), until - clock())
            if not now:
                return
            for trial in now[0].trials:
                self._measure(trial, measure, clock)

    def _measure(self, trial: FindingTrial, measure: Measure, clock: Callable[[], float]) -> None:
        began = clock()
        ended = measure(trial, self.place / trial.place)
        self.ended.append(replace(ended, length_s=round(clock() - began, 1)))
        self.save()
        tell(f"{trial.in_words}: {ended.reason or 'measured'} ({format_duration(round(clock() - began))})")

    def runs(self, pair: Pair) -> list[Path]:
        """The runs of a workload on a broker, in the order of time."""
        found = (each for each in self.ended if each.run and each.trial.pair == pair)
        return [self.place / each.trial.place / each.run for each in found]

    def runs_of(self, workload: str) -> list[Path]:
        """The runs of a workload on all brokers."""
        return [run for broker in self.asked.brokers for run in self.runs((workload, broker))]

    def why_not(self, pair: Pair) -> str:
        """Why a workload has no run on a broker; empty if it has one, or was not tried."""
        of_pair = [each for each in self.ended if each.trial.pair == pair]
        return "" if any(each.run for each in of_pair) else next((each.reason for each in of_pair if each.reason), "")

    def save(self) -> None:
        """Write the state. Raises CliError."""
        plain = {"schema": _VERSION, "asked": asdict(self.asked), "trials": [asdict(each) for each in self.ended]}
        with explained("the state cannot be written", self.place / STATE, "make room, and go on with --resume"):
            write_atomically(self.place / STATE, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def continued(place: Path, names: Sequence[str], limits: Mapping[str, int]) -> Campaign:
    """The reproduction in a directory. Of its workloads the named ones go on, or all without names; ``limits`` replace
    those of its rounds. Raises CliError and SpecError."""
    asked, ended = read(place)
    changed = replace(asked.limits, **limits)
    changed = replace(changed, rounds_max=max(changed.rounds, changed.rounds_max))
    experiments = chosen(asked.names, asked.layouts)
    now = chosen(names, asked.layouts) if names else experiments
    foreign = next((each.name for each in now if each not in experiments), None)
    if foreign is not None:
        what = f"the reproduction in {place} has no {foreign}"
        fix = f"name some of {', '.join(asked.names)}" if asked.names else "name a bundled workload"
        raise CliError(what, "--resume", fix, Exit.USAGE)
    return Campaign(place, replace(asked, limits=changed), experiments, ended, now)


def read(place: Path) -> tuple[ReproductionRequest, list[EndedTrial]]:
    """What a reproduction was asked for, and its trials. Raises CliError."""
    try:
        plain = json.loads((place / STATE).read_text(encoding="utf-8"))
        if plain["schema"] != _VERSION:
            raise ValueError(f"it has version {plain['schema']}, and this perftest reads {_VERSION}")
        return _asked(plain["asked"]), [
            EndedTrial(**{**each, "trial": FindingTrial(**each["trial"])}) for each in plain["trials"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the reproduction cannot be continued: {error}"
        raise CliError(what, str(place / STATE), "begin a new one, without --resume", Exit.USAGE) from error


def _asked(plain: dict[str, Any]) -> ReproductionRequest:
    several = {name: tuple(map(str, plain[name])) for name in ("names", "brokers", "layouts")}
    home = str(plain.get("rabbitmq_home", ""))
    return ReproductionRequest(**several, limits=TrialLimits(**plain["limits"]), rabbitmq_home=home)
