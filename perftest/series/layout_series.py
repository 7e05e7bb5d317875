"""A sweep over layouts of drives and over brokers: the same steps on a cluster of each, round by round.

A *side* is a broker on a layout. Every side gets a cluster of its own in each round, and a run of its own. The sides
alternate, so a machine that gets slower is no friend of one of them. All runs lie below one directory, with a directory
for each side, which ``perftest compare`` takes as a side. The findings of the workload are judged over all layouts, for
each broker by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from perftest.errors import HelpfulError, three_lines
from perftest.exits import CliError, Exit, explained
from perftest.measuring.measured_broker import make_directory, undo_leftovers
from perftest.measuring.session_options import Options
from perftest.results.schema import LAYOUTS as SERIES
from perftest.results.writer import run_id
from perftest.series.rounds import (
    CUT_SHORT,
    Ended,
    Rounds,
    ended,
    enough_in,
    plan_of_round,
    put_unfinished_aside,
    rounds_from_json,
    rounds_to_json,
    runs_in,
)
from perftest.series.sides import SeriesSide, SeriesWords
from perftest.spec.codec import plan_from_json, plan_to_json
from perftest.spec.plan import Plan
from perftest.tell import tell

FAILURES_MAX: Final = 3
"""Runs that may fail one after the other, before the series ends."""
_FIX: Final = "see what the system refused, then continue the sweep with --resume"


def measure_series(
    plan: Plan,
    options: Options,
    rounds: Rounds,
    measure: Callable[[Plan, Options], int],
    sides: Sequence[SeriesSide],
    place: Path | None = None,
    words: SeriesWords | None = None,
) -> Ended:
    """Measure the plan on each side in each round with ``measure``, which returns an exit code.

    ``words`` are kept for a continuation. With ``place``, continue the series in that directory.
    """
    undo_leftovers(place or options.out)
    place = place or _new_directory(plan, options, rounds, words or SeriesWords())
    places = [place / side.directory(at) for at, side in enumerate(sides, start=1)]
    for each in places:
        put_unfinished_aside(each)
    cells = _Cells(place, options.again)
    for number in range(1, rounds.repeats + 1):
        if _is_enough(places, rounds):
            break
        for out, side in zip(places, sides, strict=True):
            if len(runs_in(out)) >= number or cells.is_over:
                continue
            most = "at most " if rounds.until else ""
            tell(f"{side.text}, round {number} of {most}{rounds.repeats}")
            here = replace(options, out=out, layout=side.layout, report=False, is_round=True)
            cells.add(partial(measure, side.plan(plan_of_round(plan, rounds, number)), here), out)
    undo_leftovers(place)
    return ended(plan, place, _runs(place), cells.codes, options, cut_short=cells.is_cut_short)


class _Cells:
    """The runs of a series. A run that failed costs the others nothing, unless several fail one after the other."""

    def __init__(self, place: Path, again: str) -> None:
        self.codes: list[Exit] = []
        self._place = place
        self._again = f"{again} --resume {place}"

    @property
    def is_over(self) -> bool:
        """Whether no further run is made."""
        return self.codes[-1:] == [Exit.INTERRUPTED] or self.codes[-FAILURES_MAX:] == [Exit.RUN_ERROR] * FAILURES_MAX

    @property
    def is_cut_short(self) -> bool:
        """Whether a run is left to be made."""
        return any(code in CUT_SHORT for code in self.codes)

    def add(self, measure: Callable[[], int], side: Path) -> None:
        """Make a run of a side. What the runs before left is removed first, which may work by now."""
        undo_leftovers(self._place)
        try:
            self.codes.append(Exit(measure()))
        except KeyboardInterrupt:  # before the first message: there is nothing of this run
            self.codes.append(Exit.INTERRUPTED)
        except (HelpfulError, OSError) as error:
            tell(error.lines() if isinstance(error, HelpfulError) else three_lines(str(error), str(side), _FIX))
            self.codes.append(Exit.RUN_ERROR)
        if self.codes[-1] is Exit.RUN_ERROR:
            put_unfinished_aside(side)
            tell(f"this run failed, which costs the others nothing; `{self._again}` repeats the run")


def _runs(place: Path) -> list[Path]:
    return [run for side in sides_in(place) for run in runs_in(side)]


def _is_enough(sides: Sequence[Path], rounds: Rounds) -> bool:
    """Whether the metric is precise enough in every step on every layout. A round that has begun is finished first, so
    that all layouts have as many rounds."""
    whole = len({len(runs_in(side)) for side in sides}) == 1
    return whole and all(enough_in(side, rounds) for side in sides)


def sides_in(series: Path) -> list[Path]:
    """The directories of the sides of a series, in the order in which these were named."""
    sides = [each for each in series.iterdir() if each.is_dir() and each.name.partition("-")[0].isdecimal()]
    return sorted(sides, key=lambda each: int(each.name.partition("-")[0]))


def series_of(place: Path) -> tuple[Plan, Rounds, SeriesWords]:
    """The plan, the rounds and the words that a series was started with. Raises CliError."""
    try:
        plain = json.loads((place / SERIES).read_text(encoding="utf-8"))
        rounds = rounds_from_json({"until": "", "part": 0.0, "random": False, **plain})
        layouts, brokers = (tuple(map(str, plain.get(name, ()))) for name in ("layouts", "brokers"))
        words = SeriesWords(layouts=layouts, brokers=brokers, drives=str(plain.get("drives", "")))
        return plan_from_json(plain["plan"]), rounds, words
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the series of layouts cannot be continued: {error}"
        raise CliError(what, str(place / SERIES), "start a new sweep, without --resume") from error


def _new_directory(plan: Plan, options: Options, rounds: Rounds, words: SeriesWords) -> Path:
    place = options.out / run_id(f"{plan.name}-layouts", time.time_ns())
    plain = {"schema": 1, **rounds_to_json(rounds), "layouts": list(words.layouts)}
    plain |= {name: value for name, value in (("brokers", list(words.brokers)), ("drives", words.drives)) if value}
    plain |= {"plan": plan_to_json(replace(plan, uris=()))}
    make_directory(place)
    with explained("the state of the series cannot be written", place / SERIES, "choose another directory with --out"):
        (place / SERIES).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return place
