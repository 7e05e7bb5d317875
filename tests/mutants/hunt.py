"""``python -m tests.mutants.hunt [WORDS] [--pages FOLDER]``: plant each bug, or those with WORDS in their names, and
see how long the simulator takes to find it, and what it says. Each bug that is found gets a page: the world in which it
was found, up to the broken invariant."""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.runs import WorldOutcome, run_world
from reference_broker.sim.world import World
from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.page import head_of, page
from reference_broker.worldpage.window import window
from tests.mutants.planted import (
    CLASSIC_MUTANTS,
    KEYED_MUTANTS,
    MIRROR_MUTANTS,
    MUTANTS,
    STORE_MUTANTS,
    Mutant,
    anything,
    planted,
)

WORLDS_MAX = 150
RARE_MAX = 60
"""So many for a bug that a test of the broker shows, since worlds seldom do."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """``seed``: the last one; ``worlds``: how many were run up to there. ``outcome`` is None if it was not found."""

    mutant: Mutant
    seed: int
    worlds: int
    events: int
    seconds: float
    outcome: WorldOutcome | None


def hunt(mutant: Mutant, worlds_max: int = WORLDS_MAX) -> Hunt:
    """Run worlds until one shows the bug."""
    events, worlds, seed, begin = 0, 0, 0, time.process_time()
    with planted(mutant):
        while worlds < worlds_max:
            seed += 1
            if not _may_show(mutant, seed):
                continue
            outcome = run_world(seed, mutant.steps)
            worlds, events = worlds + 1, events + outcome.events
            if outcome.error:
                return Hunt(mutant, seed, worlds, events, time.process_time() - begin, outcome)
    return Hunt(mutant, seed, worlds, events, time.process_time() - begin, None)


def _may_show(mutant: Mutant, seed: int) -> bool:
    if mutant.needs is anything:
        return True
    world = World(seed)
    answer = mutant.needs(world)
    world.close()
    return answer


def events_of(found: Hunt) -> list[WorldEvent]:
    """The events of the world in which a bug was found, up to the broken invariant. The world runs once more, with a
    recorder. Raises ValueError if the bug was not found."""
    if found.outcome is None:
        raise ValueError(f"no world has shown the bug: {found.mutant.name}")
    recorder = WorldRecorder()
    with planted(found.mutant):
        outcome = run_world(found.seed, found.mutant.steps, recorder=recorder)
    text = (
        f"A bug is planted in this world: in {found.mutant.where}, the text {found.mutant.text.strip()!r} has become"
        f" {found.mutant.instead.strip()!r}. The simulator ran until an invariant did not hold any more; the page ends"
        f" at that moment.\n\n{outcome.summary}"
    )
    command = f"python -m tests.mutants.hunt {found.mutant.name} --pages bugs"
    title = f"Planted bug: {found.mutant.name}"
    return window([head_of(recorder.events, title=title, text=text, command=command), *recorder.events])


def _write_page(found: Hunt, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{'-'.join(re.findall('[a-z0-9]+', found.mutant.name.lower()))}.html"
    file.write_text(page(events_of(found)), encoding="utf-8")
    return file


def main() -> int:
    """Returns how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.hunt", description=__doc__)
    parser.add_argument("words", nargs="*", help="words in the names of the bugs")
    parser.add_argument("--pages", type=Path, help="write a page of each bug that is found into this folder")
    options = parser.parse_args()
    words, missed = " ".join(options.words), 0
    every = (*MUTANTS, *KEYED_MUTANTS, *STORE_MUTANTS, *CLASSIC_MUTANTS, *MIRROR_MUTANTS)
    chosen = [mutant for mutant in every if words in mutant.name]
    if not chosen:
        sys.stderr.write(f"no planted bug has {words!r} in its name; they are in tests/mutants/planted.py\n")
        return 2
    for mutant in chosen:
        found = hunt(mutant, RARE_MAX if mutant.shown_by else WORLDS_MAX)
        missed += found.outcome is None
        by = found.outcome.invariant or found.outcome.error[:60] if found.outcome else "NOT FOUND"
        effort = f"seed {found.seed:3} {found.worlds:3} worlds {found.events:8} events {found.seconds:6.1f} s"
        sys.stdout.write(f"{by:<10} {effort}  {mutant.name}\n")
        if words and found.outcome:
            sys.stdout.write(f"{found.outcome.error}\n")
        if options.pages is not None and found.outcome is not None:
            sys.stdout.write(f"page  {_write_page(found, options.pages)}\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main())
