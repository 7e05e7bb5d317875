"""The order of the trials of a reproduction, within a time. Pure.

A *trial* is one run: a workload on a broker, on one layout, in one round. A *unit* is what runs in one go: the trials
of one workload and broker in one round, on all of its layouts, so that their figures share the state of the machine.
Units go round by round: in each round the shortest workloads first, and its brokers after each other.
From round :attr:`TrialLimits.rounds` on, only workloads with undecided findings get more rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from perftest.reproduction.experiments import Experiment

RABBITMQ: Final = "rabbitmq"
START_S: Final = {"reference": 6.0, RABBITMQ: 30.0}
"""Time that a cluster takes to start and to stop, by broker."""
SIMULATED: Final = "simulated"
SIMULATED_COST: Final = {SIMULATED: 4.0}
"""Seconds of a core for a simulated second, by broker; half of that for a model of another broker."""
GIVEN_UP: Final = 2
"""Failures after which a trial is not tried again."""

Pair = tuple[str, str]
"""A workload and a broker."""


@dataclass(frozen=True, slots=True)
class FindingTrial:
    """One run. ``layout`` is empty for the drives of the machine."""

    workload: str
    broker: str
    layout: str
    round: int

    @property
    def pair(self) -> Pair:
        """Workload and broker."""
        return self.workload, self.broker

    @property
    def place(self) -> str:
        """Where the run lies below the reproduction: ``trials/disks/pure_one_queue/rabbitmq/one_hdd/1``."""
        parts = ("trials", self.workload.removesuffix(".yaml").strip("/"), self.broker, self._title, str(self.round))
        return "/".join(filter(None, parts))

    @property
    def in_words(self) -> str:
        """``disks/pure_one_queue on rabbitmq, one_hdd, round 1``."""
        return ", ".join(filter(None, (f"{self.workload} on {self.broker}", self._title, f"round {self.round}")))

    @property
    def _title(self) -> str:
        return self.layout.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """A trial that ran: the directory of its run within that of the trial (empty if there is no run), why there is
    none, and how long the trial took. A refused trial would be refused again."""

    trial: FindingTrial
    run: str = ""
    reason: str = ""
    is_refused: bool = False
    length_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """Every workload gets ``rounds`` rounds if the time allows, and undecided ones up to ``rounds_max``. A step lasts
    ``step_s``."""

    rounds: int = 3
    rounds_max: int = 9
    step_s: float = 12.0


@dataclass(frozen=True, slots=True)
class TrialUnit:
    """The trials that run in one go, and about how long they take."""

    trials: tuple[FindingTrial, ...]
    length_s: float

    @property
    def pair(self) -> Pair:
        """Workload and broker."""
        return self.trials[0].pair


def units(
    experiments: Sequence[Experiment],
    brokers: Sequence[str],
    limits: TrialLimits,
    ended: Sequence[EndedTrial],
    is_decided: Callable[[Pair], bool],
) -> list[TrialUnit]:
    """All units that are left, in the order in which they run as long as there is time."""
    known = _Known(ended)
    return [
        unit
        for number in range(1, limits.rounds_max + 1)
        for unit in _round(experiments, brokers, number, limits, known)
        if number <= limits.rounds or not is_decided(unit.pair)
    ]


def fitting(several: Iterable[TrialUnit], left_s: float) -> tuple[list[TrialUnit], list[TrialUnit]]:
    """The units that fit into the time, and the units that do not. A longer unit is left out for shorter ones behind
    it, but a workload gets no later round before an earlier one."""
    taken: list[TrialUnit] = []
    left: list[TrialUnit] = []
    waiting: set[Pair] = set()
    for unit in several:
        if unit.pair in waiting or unit.length_s > left_s:
            waiting.add(unit.pair)
            left.append(unit)
            continue
        left_s -= unit.length_s
        taken.append(unit)
    return taken, left


def _round(
    experiments: Sequence[Experiment], brokers: Sequence[str], number: int, limits: TrialLimits, known: _Known
) -> Iterator[TrialUnit]:
    by_length = sorted(experiments, key=lambda each: each.trial_s(limits.step_s) * max(len(each.layouts), 1))
    for experiment in by_length:
        for broker in brokers:
            trials = [FindingTrial(experiment.name, broker, layout, number) for layout in experiment.layouts or ("",)]
            wanted = tuple(trial for trial in trials if not known.is_over(trial))
            if wanted:
                trial_s = _trial_s(experiment, broker, limits)
                yield TrialUnit(wanted, len(wanted) * trial_s)


def _trial_s(experiment: Experiment, broker: str, limits: TrialLimits) -> float:
    virtual_s = experiment.trial_s(limits.step_s)
    if broker.startswith(SIMULATED):
        return virtual_s * SIMULATED_COST.get(broker, 2.0)
    return virtual_s + START_S.get(broker, 6.0)


class _Known:
    """What the trials that ran say of those that are left."""

    def __init__(self, ended: Sequence[EndedTrial]) -> None:
        self._done = {each.trial for each in ended if each.run}
        self._failures: dict[tuple[str, str, str], int] = {}
        for each in ended:
            if not each.run:
                place = each.trial.workload, each.trial.broker, each.trial.layout
                self._failures[place] = self._failures.get(place, 0) + (GIVEN_UP if each.is_refused else 1)

    def is_over(self, trial: FindingTrial) -> bool:
        """Whether the trial has its run, or nobody expects one."""
        return trial in self._done or self._failures.get((trial.workload, trial.broker, trial.layout), 0) >= GIVEN_UP
