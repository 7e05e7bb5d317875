"""``python -m tests.mutants.hunt [WORDS]``: plant each bug, or those with WORDS in their names, and see how long the
simulator takes to find it, and what it says."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from reference_broker.sim.runs import WorldOutcome, run_world
from reference_broker.sim.world import World
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


def main() -> int:
    """Returns how many were not found."""
    words, missed = " ".join(sys.argv[1:]), 0
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
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main())
