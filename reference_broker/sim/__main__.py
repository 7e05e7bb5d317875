"""``python -m reference_broker.sim``: run worlds, show how far it is, and how to see a failure again."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.runs import WorldOutcome, run_many
from reference_broker.worldpage.events import lines
from reference_broker.worldpage.page import head_of, page
from reference_broker.worldpage.window import WindowError, window

_STEPS = 60_000
_SHOW_EVERY_S = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 1 if an invariant was violated."""
    options = _options(arguments)
    first, seeds = (options.seed, 1) if options.seed is not None else (options.first, options.seeds)
    if seeds is None and options.minutes is None:
        seeds = 20
    worlds = events = 0
    cpu_s, shown = 0.0, time.monotonic()
    recorder = WorldRecorder() if options.page or options.events else None
    for outcome in run_many(first, seeds, options.steps, options.jobs, options.minutes, recorder):
        worlds, events, cpu_s = worlds + 1, events + outcome.events, cpu_s + outcome.cpu_s
        if recorder is not None:
            _write(recorder, outcome, options)
        if outcome.error:
            _tell(outcome, options)
            return 1
        if seeds == 1:
            print(outcome.summary)
        if time.monotonic() - shown > _SHOW_EVERY_S:
            shown = time.monotonic()
            print(_progress(worlds, events, cpu_s, outcome.seed), flush=True)
    print(_progress(worlds, events, cpu_s, None))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reference_broker.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one world, of this seed")
    parser.add_argument("--first", type=int, default=1, help="the first of many seeds (default 1)")
    parser.add_argument("--seeds", type=int, help="how many worlds (default 20, or as many as the minutes allow)")
    parser.add_argument("--steps", type=int, default=_STEPS, help=f"events before the healing (default {_STEPS})")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--trace", type=Path, default=Path("sim-failures"), help="where traces of failures go")
    parser.add_argument("--page", type=Path, help="write a page of this one world (with --seed)")
    parser.add_argument("--events", type=Path, help="write the events of this one world as JSON lines (with --seed)")
    parser.add_argument("--from", dest="begin", default="", help="where the page begins: seconds, or 5000ev")
    parser.add_argument("--to", dest="end", default="", help="where the page ends: seconds, or 5000ev")
    options = parser.parse_args(arguments)
    if (options.page or options.events) and options.seed is None:
        parser.error("--page and --events need one world: name it with --seed")
    try:
        window([], options.begin, options.end)
    except WindowError as error:
        parser.error(str(error))
    return options


def _write(recorder: WorldRecorder, outcome: WorldOutcome, options: argparse.Namespace) -> None:
    """Write the page and the events of a world."""
    command = f"make sim SEED={outcome.seed} STEPS={options.steps}"
    head = head_of(recorder.events, title=f"World {outcome.seed}", text=outcome.summary, command=command)
    events = [head, *recorder.events]
    if options.events is not None:
        options.events.write_text(lines(events), encoding="utf-8")
        print(f"events  {options.events}")
    if options.page is not None:
        options.page.write_text(page(window(events, options.begin, options.end)), encoding="utf-8")
        print(f"page    {options.page}")


def _progress(worlds: int, events: int, cpu_s: float, seed: int | None) -> str:
    rate = events / cpu_s * 3600 / 1e6 if cpu_s else 0.0
    at = f", at seed {seed}" if seed is not None else ""
    return f"{worlds} worlds, {events / 1e6:.1f} million events, {rate:.0f} million per hour and core, no violation{at}"


def _tell(outcome: WorldOutcome, options: argparse.Namespace) -> None:
    options.trace.mkdir(parents=True, exist_ok=True)
    path = options.trace / f"seed-{outcome.seed}.txt"
    path.write_text("\n".join([*outcome.trace, "", outcome.error, outcome.summary, ""]))
    print(outcome.error, file=sys.stderr)
    print(f"\n  seed    {outcome.seed}", file=sys.stderr)
    print(f"  commit  {_commit()}", file=sys.stderr)
    print(f"  trace   {path}", file=sys.stderr)
    print(f"  replay  make sim SEED={outcome.seed} STEPS={options.steps}", file=sys.stderr)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
