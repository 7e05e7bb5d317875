"""Rounds of a sweep: the same steps again until the result is precise enough; and the rest of an interrupted sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from perftest.exits import CliError, Exit, explained, gravest
from perftest.measuring.measured_broker import make_directory, undo_leftovers
from perftest.measuring.session_options import Options
from perftest.results.reader import Run, judged_run, read_manifest, read_run
from perftest.results.schema import ROUNDS
from perftest.results.writer import run_id
from perftest.series.judgement import JudgedBrokers, is_missed, judged_brokers, keep, read_named
from perftest.spec.codec import plan_from_json, plan_to_json
from perftest.spec.expected.slo import Objective, measured, parse_objective
from perftest.spec.plan import Plan, Step
from perftest.spec.sweep import in_order
from perftest.tell import tell
from reports.stats.confidence import half_width

STATE: Final = ROUNDS
UNFINISHED: Final = "unfinished"
ROUNDS_MIN: Final = 3
"""Fewer rounds do not tell how much rounds differ."""
CONFIDENCE: Final = 0.95
CUT_SHORT: Final = (Exit.RUN_ERROR, Exit.INTERRUPTED)
"""Exit codes of a run after which no further run is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The repetitions of a sweep: at most ``repeats``.

    With ``until``, rounds end earlier: once that metric is known to ``part`` of its value in every step.
    """

    repeats: int
    until: Objective | None
    part: float
    random: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How several runs below ``place`` ended. ``code`` is the gravest of all of them, also of those before an
    interruption. If the runs were cut short, ``runs`` are the finished ones, and ``found`` is None; it is None for a
    plan without findings, too."""

    place: Path
    runs: tuple[Path, ...]
    code: Exit
    found: JudgedBrokers | None
    cut_short: bool


def remaining(run: Path) -> Plan:
    """The plan of a sweep that was interrupted or killed, with its unfinished steps only. Raises CliError if no step
    is left, and NotARunError."""
    found = read_named(run)
    plan = plan_of_manifest(found.manifest)
    done = finished_steps(found)
    left = tuple(step for step in plan.steps if step.number not in done)
    if not left:
        raise CliError("this sweep is complete: no step is left", str(run), f"perftest report {run}", Exit.USAGE)
    return plan.changed(steps=left, findings=())  # findings speak of the whole sweep


def plan_of_manifest(manifest: Mapping[str, Any]) -> Plan:
    """The plan of a manifest. It has no addresses, because a manifest keeps no passwords."""
    plain = {name: value for name, value in manifest["plan"].items() if name != "digest"}
    return plan_from_json({**plain, "uris": []})


def finished_steps(run: Run) -> set[int]:
    """The numbers of the steps that ran to their end. An interrupted step has an event for its end, too."""
    ended = [int(event["step"]) for event in run.events if event.get("kind") == "step_ended"]
    cut_short = {int(event["step"]) for event in run.events if event.get("kind") == "interrupted" and "step" in event}
    return set(ended) - cut_short


def repeat(
    plan: Plan, options: Options, rounds: Rounds, measure: Callable[[Plan, Options], int], directory: Path | None = None
) -> Ended:
    """Run the rounds with ``measure``, which returns an exit code.

    Each round is a run of its own. All rounds lie below one directory, which ``perftest compare`` takes as one side.
    With ``directory``, continue the rounds in that directory.
    """
    undo_leftovers(directory or options.out)
    place = directory or _new_directory(plan, options, rounds)
    put_unfinished_aside(place)
    codes: list[Exit] = []
    while (number := len(runs_in(place)) + 1) <= rounds.repeats:
        if enough_in(place, rounds):
            break
        tell(f"round {number} of at most {rounds.repeats}")
        codes.append(Exit(measure(plan_of_round(plan, rounds, number), _of_a_round(options, place))))
        if codes[-1] in CUT_SHORT:
            break
    cut_short = bool(codes) and codes[-1] in CUT_SHORT
    return ended(plan, place, runs_in(place), codes, options, cut_short=cut_short)


def ended(
    plan: Plan, place: Path, runs: Sequence[Path], codes: Sequence[Exit], options: Options, *, cut_short: bool
) -> Ended:
    """The end of several runs below ``place``. If they are complete, the verdicts on the findings are written there."""
    found = judged_brokers(plan, runs) if not cut_short else None
    keep(found, place)
    missed = [Exit.MISSED] if options.assert_findings and not cut_short and is_missed(found) else []
    code = gravest([*codes, *recorded_codes(runs), *missed])
    whole = [run for run in runs if read_manifest(run)["state"] == "finished"] if cut_short else runs
    return Ended(place=place, runs=tuple(whole), code=code, found=found, cut_short=cut_short)


def plan_of_round(plan: Plan, rounds: Rounds, number: int) -> Plan:
    """The plan with the steps in the order of a round."""
    if not rounds.random:
        return plan
    return plan.changed(steps=tuple(in_order(_by_number(plan.steps), "random", plan.seed + number)))


def _of_a_round(options: Options, place: Path) -> Options:
    return replace(options, out=place, report=False, is_round=True)


def rounds_of(place: Path) -> tuple[Plan, Rounds]:
    """The plan and the rounds that a directory of rounds was started with. Raises CliError."""
    try:
        plain = json.loads((place / STATE).read_text(encoding="utf-8"))
        return plan_from_json(plain["plan"]), rounds_from_json(plain)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the sweep cannot be continued: {error}"
        raise CliError(what, str(place / STATE), "start a new sweep, without --resume") from error


def rounds_to_json(rounds: Rounds) -> dict[str, Any]:
    """The rounds as plain JSON values."""
    until = rounds.until.text if rounds.until else ""
    return {"repeats": rounds.repeats, "until": until, "part": rounds.part, "random": rounds.random}


def rounds_from_json(plain: Mapping[str, Any]) -> Rounds:
    """The rounds that :func:`rounds_to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    until = parse_objective(plain["until"]) if plain["until"] else None
    return Rounds(repeats=int(plain["repeats"]), until=until, part=float(plain["part"]), random=bool(plain["random"]))


def enough_in(place: Path, rounds: Rounds) -> bool:
    """Whether the runs of a directory are :func:`enough`."""
    return enough(_rows(place), rounds)


def enough(rows: Mapping[str, Sequence[Mapping[str, Any]]], rounds: Rounds) -> bool:
    """Whether every step's metric is precise enough: half of its interval over the rounds is at most ``part`` of it."""
    if rounds.until is None or not rows:
        return False
    return all(
        spread is not None and spread <= rounds.part
        for spread in (_spread([measured(rounds.until, row) for row in of_step]) for of_step in rows.values())
    )


def _spread(values: Sequence[float | None]) -> float | None:
    """Half of the mean's confidence interval, as a part of the mean; None if there are too few values."""
    known = [value for value in values if value is not None]
    if len(known) < ROUNDS_MIN or len(known) < len(values):
        return None
    return half_width(known, CONFIDENCE) if any(known) else 0.0


def _new_directory(plan: Plan, options: Options, rounds: Rounds) -> Path:
    import time

    place = options.out / run_id(f"{plan.name}-rounds", time.time_ns())
    state = {"schema": 1, **rounds_to_json(rounds), "plan": plan_to_json(replace(plan, uris=()))}
    make_directory(place)
    fix = "choose another directory with --out"
    with explained("the state of the rounds cannot be written", place / STATE, fix):
        (place / STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    return place


def runs_in(place: Path) -> list[Path]:
    """The runs of a directory, in the order in which they began."""
    return sorted(each.parent for each in place.glob("*/manifest.json"))


def recorded_codes(runs: Iterable[Path]) -> list[Exit]:
    """The exit codes that these runs recorded. A run that was killed recorded none."""
    ends = [read_manifest(run).get("ended") or {} for run in runs]
    return [Exit(end["exit_code"]) for end in ends if end.get("exit_code") in set(Exit)]


def put_unfinished_aside(place: Path) -> None:
    """Move unfinished rounds away, because an unfinished round is no repetition of the others."""
    for run in runs_in(place):
        if read_manifest(run)["state"] != "finished":
            (place / UNFINISHED).mkdir(exist_ok=True)
            run.rename(place / UNFINISHED / run.name)


def _rows(place: Path) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each step over all rounds, by the label of the step."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs_in(place):
        for row in (judged_run(read_run(run)).result or {}).get("steps", ()):
            found.setdefault(row["label"], []).append(row)
    return found


def _by_number(steps: Sequence[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: step.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of a step's metric over the rounds, and half of its interval as a part of it; None where not known."""

    step: str
    rounds: int
    mean: float | None
    half_interval: float | None


def means(place: Path, metric: Objective) -> list[Mean]:
    """Each step's mean over the rounds of a directory."""
    found = []
    for name, of_step in _rows(place).items():
        values = [measured(metric, row) for row in of_step]
        known = [value for value in values if value is not None]
        mean = fmean(known) if known else None
        found.append(Mean(step=name, rounds=len(values), mean=mean, half_interval=_spread(values)))
    return found
