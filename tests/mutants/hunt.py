"""``python -m tests.mutants.hunt [WORDS]``: plant each bug, or those with WORDS in their names, and see how long the
simulator takes to find it, and what it says."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from reference_broker.sim.runs import Outcome, run_world
from tests.mutants.planted import MUTANTS, Mutant, planted

WORLDS_MAX = 150


@dataclass(frozen=True, slots=True)
class Hunt:
    """``outcome`` is None if the bug was not found."""

    mutant: Mutant
    worlds: int
    events: int
    seconds: float
    outcome: Outcome | None


def hunt(mutant: Mutant, worlds_max: int = WORLDS_MAX) -> Hunt:
    """Run worlds until one shows the bug."""
    events, begin = 0, time.process_time()
    with planted(mutant):
        for seed in range(1, worlds_max + 1):
            outcome = run_world(seed, mutant.steps)
            events += outcome.events
            if outcome.error:
                return Hunt(mutant, seed, events, time.process_time() - begin, outcome)
    return Hunt(mutant, worlds_max, events, time.process_time() - begin, None)


def main() -> int:
    """Returns how many were not found."""
    words, missed = " ".join(sys.argv[1:]), 0
    chosen = [mutant for mutant in MUTANTS if words in mutant.name]
    if not chosen:
        sys.stderr.write(f"no planted bug has {words!r} in its name; they are in tests/mutants/planted.py\n")
        return 2
    for mutant in chosen:
        found = hunt(mutant)
        missed += found.outcome is None
        by = found.outcome.invariant or found.outcome.error[:60] if found.outcome else "NOT FOUND"
        effort = f"{found.worlds:3} worlds {found.events:8} events {found.seconds:6.1f} s"
        sys.stdout.write(f"{by:<10} {effort}  {mutant.name}\n")
        if words and found.outcome:
            sys.stdout.write(f"{found.outcome.error}\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main())
