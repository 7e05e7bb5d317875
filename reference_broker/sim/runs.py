"""Worlds, one after the other or in several processes, until the seeds or the minutes are used up."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import count

from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.trace import KEPT
from reference_broker.sim.world import World


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """How one world ended. ``error`` is empty if nothing was violated; else ``trace`` holds the last events."""

    seed: int
    events: int
    cpu_s: float
    summary: str
    trace_hash: int
    error: str = ""
    invariant: str = ""
    trace: tuple[str, ...] = ()


def run_world(seed: int, steps: int, kept: int | None = KEPT, recorder: WorldRecorder | None = None) -> WorldOutcome:
    """Make a world and run it to its end. ``kept``: how many lines of its trace are kept, None for all. ``recorder``
    takes down what happens, if there is one."""
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    begin = time.process_time()
    world, error, invariant = World(seed, kept, recorder), "", ""
    try:
        world.run(steps)
    except KeyboardInterrupt:
        raise
    except BaseException as caught:  # a violation, or a defect of the simulator itself
        error = str(caught) if hasattr(caught, "number") else f"{type(caught).__name__}: {caught}"
        invariant = getattr(caught, "number", "")
        if recorder is not None:
            recorder.broken(invariant, error)
    finally:
        logging.disable(former)
    if recorder is not None:
        recorder.close()
    trace = tuple(world.trace.lines()) if error else ()
    spent, summary, events = time.process_time() - begin, world.summary(), world.trace.count
    outcome = WorldOutcome(seed, events, spent, summary, world.trace.hash, error, invariant, trace)
    world.close()
    del world
    gc.collect()
    return outcome


def run_many(
    first: int, seeds: int | None, steps: int, jobs: int, minutes: float | None, recorder: WorldRecorder | None = None
) -> Iterator[WorldOutcome]:
    """Run the worlds of seeds ``first``, +1, ...: as many as asked for, or until the minutes are over. Yields each
    outcome as it comes. If there is only one world, its whole trace is kept, and ``recorder`` takes down what
    happens."""
    if seeds == 1:
        yield run_world(first, steps, None, recorder)
        return
    end = time.monotonic() + 60 * minutes if minutes is not None else None
    numbers = iter(range(first, first + seeds)) if seeds is not None else count(first)
    if jobs == 1:
        for seed in numbers:
            if end is not None and time.monotonic() > end:
                return
            yield run_world(seed, steps)
        return
    yield from _in_processes(numbers, steps, jobs, end)


def _in_processes(numbers: Iterator[int], steps: int, jobs: int, end: float | None) -> Iterator[WorldOutcome]:
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[WorldOutcome]] = set()
        while True:
            while len(running) < 2 * jobs and (end is None or time.monotonic() < end):
                seed = next(numbers, None)
                if seed is None:
                    break
                running.add(pool.submit(run_world, seed, steps))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()
