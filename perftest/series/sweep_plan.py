"""The plan of a sweep, with its rounds and layouts: a new sweep, or the rest of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perftest.exits import CliError, Exit
from perftest.measuring.asked_cluster import in_folder
from perftest.measuring.workload_file import find
from perftest.results.schema import LAYOUTS as SERIES
from perftest.series.judgement import refuse_one_title, refuse_unjudgeable
from perftest.series.layout_series import series_of
from perftest.series.rounds import ROUNDS_MIN, STATE, Rounds, remaining, rounds_of
from perftest.spec.expand import total_s
from perftest.spec.expected.slo import Objective, any_of
from perftest.spec.plan import Isolation, Plan
from perftest.spec.problem import Problem, SpecError
from perftest.spec.units import UnitError, format_duration, parse_share

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.spec.load import Document
    from perftest.spec.timed_action import TimedAction

ONE_QUEUE: Final = """\
schema: 1
name: sweep
title: one quorum queue
queues: [{name: perftest}]
step: {duration: 30s, warmup: 5s}
"""
"""Workload that is swept if none is named."""
LAYOUT: Final = "layout"
"""Name that ``--vary`` takes besides the names of settings."""
_GRID: Final = "sweep={grid: {"
"""Beginning of the override that ``--vary`` becomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """The request for a sweep, as typed with the options of the same names.

    ``workload`` is None for one quorum queue. ``varied`` has texts such as ``in_flight=1,10``; ``layouts`` come from
    ``--vary layout=A,B``.
    """

    workload: str | None = None
    overrides: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    quick: bool = False
    isolated: bool = False
    in_random_order: bool = False
    repeats: int = 1
    until: str | None = None
    actions: tuple[str, ...] = ()

    @classmethod
    def of(cls, workload: str | None, flags: Mapping[str, Any]) -> SweepRequest:
        """The request in the values of options by their names. Raises CliError."""
        known = {field.name for field in fields(cls)} - {"layouts"}
        given = {name: value for name, value in flags.items() if name in known}
        varied = given.pop("varied", ())
        layouts = [text for text in varied if _axis(text)[0] == LAYOUT]
        named = tuple(each.strip() for text in layouts for each in _axis(text)[1].split(","))
        if len(set(named)) < len(named):
            raise CliError("a layout is named twice", "--vary layout", "name each layout once", Exit.USAGE)
        settings = tuple(text for text in varied if text not in layouts)
        return cls(workload=workload, varied=settings, layouts=named, **given)

    @property
    def is_empty(self) -> bool:
        """Whether the request is empty: the rest of an earlier sweep is measured unchanged."""
        return replace(self, repeats=1) == SweepRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepWork:
    """The work of a sweep: the plan, in these rounds, on each of these layouts with each of these brokers, if there are
    several. ``drives`` is the kind to make of modelled drives, ``document`` is a workload's."""

    plan: Plan
    rounds: Rounds
    layouts: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    drives: str = ""
    document: Document | None = None

    @property
    def copies(self) -> int:
        """The most runs of the plan."""
        return self.rounds.repeats * max(len(self.layouts), 1) * max(len(self.brokers), 1)

    @property
    def is_matrix(self) -> bool:
        """Whether the plan is measured several times, or has combinations of settings."""
        return self.copies > 1 or len(self.plan.swept) > 1

    @property
    def length_s(self) -> float:
        """The most seconds of all steps together. Draining comes on top."""
        return total_s(self.plan) * self.copies

    @property
    def at_most(self) -> str:
        """``at most ``, if rounds may end earlier."""
        return "at most " if self.rounds.until is not None else ""

    def length_in_words(self) -> str:
        """``at most 5 rounds x 2 layouts x 30m = 5h, and up to 5m of draining``."""
        parts = [f"{self.rounds.repeats} rounds"] if self.rounds.repeats > 1 else []
        parts += [f"{len(self.layouts)} layouts"] if len(self.layouts) > 1 else []
        parts += [f"{len(self.brokers)} brokers"] if len(self.brokers) > 1 else []
        whole = format_duration(self.length_s)
        product = " x ".join([*parts, format_duration(total_s(self.plan))]) + f" = {whole}" if parts else whole
        drains = len(self.plan.steps) if self.plan.isolation is Isolation.ISOLATED else 1
        drained = format_duration(self.plan.drain_s * drains * self.copies)
        return f"{self.at_most}{product}, and up to {drained} of draining"


def work_of(request: SweepRequest, resume: Path | None, *, is_placed: bool) -> SweepWork:
    """The work of a sweep: the whole request, or the rest of the sweep in the directory ``resume``. ``is_placed`` says
    whether a broker or a layout was named. Raises CliError and SpecError."""
    if resume is None:
        plan, document = swept_plan(request)
        return SweepWork(plan=plan, rounds=_rounds(request), layouts=request.layouts, document=document)
    if request.layouts:
        rule = "layouts cannot be added to a sweep that is continued"
        raise CliError(rule, "--vary layout", "leave out --resume, or the layouts", Exit.USAGE)
    is_series = (resume / SERIES).exists()
    if not request.is_empty or (is_series and is_placed):
        fix = "with --resume, give only options about the broker and the output"
        raise CliError("a continued sweep cannot be changed", "--resume", fix, Exit.USAGE)
    if is_series:
        plan, rounds, words = series_of(resume)
        return SweepWork(plan=plan, rounds=rounds, layouts=words.layouts, brokers=words.brokers, drives=words.drives)
    plan, rounds = rounds_of(resume) if (resume / STATE).exists() else (remaining(resume), _ONE_ROUND)
    return SweepWork(plan=plan, rounds=rounds)


_ONE_ROUND: Final = Rounds(repeats=1, until=None, part=0.0, random=False)


def swept_plan(request: SweepRequest) -> tuple[Plan, Document]:
    """The plan of the workload, with the changes and the actions that are asked for, and the document of the workload.
    Raises CliError and SpecError."""
    from perftest.spec.check import check
    from perftest.spec.expand import expand
    from perftest.spec.load import load_workload, parse_workload

    name = request.workload
    if name is None and not request.varied and not request.layouts:
        fix = "name a workload (perftest workload list), or settings: --vary in_flight=10,100,1000"
        raise CliError("there is nothing to sweep", "WORKLOAD", fix, Exit.USAGE)
    overrides = [*request.overrides, *_sweep_override(request)]
    try:
        path = find(name) if name else Path()
        read = load_workload(path, overrides) if name else parse_workload(ONE_QUEUE, "--vary", overrides)
        problems = check(*read)
    except SpecError as error:
        problems = error.problems
    if problems:
        raise SpecError([_blamed(problem, request.varied) for problem in problems])
    plan = in_folder(expand(read[0], (), quick=request.quick), path)
    return replace(plan, timeline=(*plan.timeline, *_typed_actions(request.actions))), read[1]


def _typed_actions(typed: Sequence[str]) -> list[TimedAction]:
    """The actions of ``--at``. Raises SpecError with all unreadable ones."""
    from perftest.spec.actions import parse_action

    found, problems = [], []
    for text in typed:
        try:
            found.append(parse_action(text))
        except UnitError as error:
            problems.append(Problem(path="", value=None, rule=error.rule, fix=error.fix, file="--at"))
    if problems:
        raise SpecError(problems)
    return found


def _blamed(problem: Problem, varied: Sequence[str]) -> Problem:
    """A problem of a value that ``--vary`` put into the document, with the option as it was typed as its place."""
    if not problem.file.startswith(f"--set {_GRID}"):
        return problem
    setting = problem.path.removeprefix("sweep.grid.").partition("[")[0].partition(".")[0]
    typed = [text for text in varied if _axis(text)[0] == setting] or varied
    return replace(problem, file=" ".join(f"--vary {text}" for text in typed), path="")


def _sweep_override(request: SweepRequest) -> list[str]:
    """The options about the sweep, as changes of the document."""
    found = []
    if request.varied:
        axes = [_axis(each) for each in request.varied]
        names = [setting for setting, _ in axes]
        if len(set(names)) < len(names):
            raise CliError("a setting is varied twice", "--vary", "give all its values at once", Exit.USAGE)
        found.append(f"{_GRID}{', '.join(f'{setting}: [{values}]' for setting, values in axes)}}}}}")
    found += ["sweep.mode=isolated"] if request.isolated else []
    found += ["sweep.order=random"] if request.in_random_order else []
    return found


def _axis(text: str) -> tuple[str, str]:
    setting, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise CliError(f"{text!r} is not SETTING=VALUES", "--vary", "write --vary in_flight=10,100,1000", Exit.USAGE)
    return setting.strip().replace("-", "_"), values


def _rounds(request: SweepRequest) -> Rounds:
    objective, part = _until(request.until) if request.until else (None, 0.0)
    if request.repeats < 1 or (objective is not None and request.repeats < ROUNDS_MIN):
        least = ROUNDS_MIN if objective is not None else 1
        rule = f"{request.repeats} rounds are too few" + (" to know how much they differ" if least > 1 else "")
        raise CliError(rule, "--repeats", f"use {least} or more", Exit.USAGE)
    return Rounds(repeats=request.repeats, until=objective, part=part, random=request.in_random_order)


def _until(text: str) -> tuple[Objective, float]:
    """The metric of ``e2e.p99=5%``, and how wide half of its confidence interval may be, as a part of its value."""
    metric, equals, part = text.partition("=")
    try:
        objective = any_of(metric)
        if not equals:
            raise UnitError(f"{text!r} is not METRIC=PART", "write e2e.p99=5%")
        return objective, parse_share(part.strip())
    except UnitError as error:
        raise CliError(error.rule, "--until", error.fix, Exit.USAGE) from error


def check_layouts(plan: Plan, layouts: Sequence[PlacedLayout], resume: Path | None, *, assert_findings: bool) -> None:
    """Refuse layouts that cannot be told apart, and --assert where the findings cannot be decided. Raises CliError."""
    titles = [each.name for each in layouts]
    refuse_one_title(titles, "--vary layout")
    if assert_findings and resume is not None and not plan.findings:
        what = "the rest of a sweep cannot be judged by itself"
        raise CliError(what, "--assert", "leave --assert out, and measure the whole sweep again", Exit.USAGE)
    if assert_findings:
        refuse_unjudgeable(plan, titles, "--vary layout=A,B")


def refuse_layouts_beside(request: SweepRequest, layout: Path | None, *running: object) -> None:
    """Refuse ``--vary layout`` with ``--layout``, or with a broker that runs already. Raises CliError."""
    for what, is_given in (("--layout", layout is not None), ("a broker that runs already", any(running))):
        if request.layouts and is_given:
            rule = f"layouts are varied on clusters that are started for them, which does not go with {what}"
            raise CliError(rule, "--vary layout", f"leave out {what}, or the layouts", Exit.USAGE)
