"""A trial as a command: its words, and what its end says."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from perftest.exits import Exit
from perftest.reproduction.experiments import Experiment
from perftest.reproduction.schedule import RABBITMQ, SIMULATED, EndedTrial, FindingTrial
from perftest.results.schema import MANIFEST, RESULT

WARMUP_S: Final = 2.0
"""Warm-up of a step."""
DRAIN_S: Final = 15.0
"""Time that a step gets to drain its queues, at most."""
CORES: Final = 16
"""Cores of a simulated machine, as in the published comparison of drives."""
LOG: Final = "output.txt"
_ERROR_LINES: Final = 3

Run = Callable[[Sequence[str], Path], int]
"""Runs a command with its output in a file, and returns the exit code."""


def words_of(trial: FindingTrial, experiment: Experiment, step_s: float, out: Path, home: str = "") -> list[str]:
    """The words of the command behind ``perftest``. ``home`` is that of another RabbitMQ than the installed one."""
    name = experiment.name
    layout = ["--layout", trial.layout] if trial.layout else []
    if trial.broker.startswith(SIMULATED):
        steps = ["--steady", f"{step_s - WARMUP_S:g}s", "--warmup", f"{WARMUP_S:g}s"]
        times = [*(["--quick"] if experiment.is_timed else steps), "--jobs", "1"]
        machines = ["--hosts", "each", "--cores", str(CORES), "--seed", str(trial.round)]
        kind = trial.broker.removeprefix(SIMULATED).lstrip("-")
        broker = ["--broker", kind] if kind else []
        return ["simulate", name, *broker, *layout, *machines, *times, "--out", str(out)]
    drives = ["--drives", "fuse"] if trial.layout and trial.broker != "reference" else []
    times = ["--quick"] if experiment.is_timed else _times(step_s)
    at = ["--rabbitmq-home", home] if home and trial.broker == RABBITMQ else []
    how = ["--broker", trial.broker, *at, *layout, *drives, *times]
    return ["sweep", name, *how, "--out", str(out), "--no-report", "--ui", "none", "--yes"]


def _times(step_s: float) -> list[str]:
    steps = {"duration": step_s, "warmup": min(WARMUP_S, step_s / 2), "drain": DRAIN_S}
    return [word for name, length_s in steps.items() for word in ("--set", f"step.{name}={length_s:g}s")]


def measured(
    trial: FindingTrial, place: Path, experiment: Experiment, step_s: float, run: Run, home: str = ""
) -> EndedTrial:
    """Run the command of a trial, and find its run. Raises KeyboardInterrupt if the command was interrupted."""
    place.mkdir(parents=True, exist_ok=True)
    log = place / LOG
    code = run(words_of(trial, experiment, step_s, place, home), log)
    if code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if code == Exit.USAGE:
        return EndedTrial(trial=trial, reason=_last_error(log), is_refused=True)
    found = _finished(place)
    if found is None:
        return EndedTrial(trial=trial, reason=_last_error(log) or f"the command ended with {code}")
    return EndedTrial(trial=trial, run=found.name)


def _finished(place: Path) -> Path | None:
    """The latest run below a directory that has results."""
    runs = [each.parent for each in place.glob(f"*/{MANIFEST}") if (each.parent / RESULT).exists()]
    return max(runs, key=lambda each: each.name, default=None)


def _last_error(log: Path) -> str:
    """What the command said of its error; empty if it said nothing."""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line.partition("error:")[2].strip() for line in lines if line.startswith("error:")]
        return errors[-1] if errors else " ".join(lines[-_ERROR_LINES:])
    return ""


def in_process_of_its_own(words: Sequence[str], log: Path) -> int:
    """Run ``perftest`` with these words. Ctrl-C is passed on, and the end waited for, so that the command cleans up."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "perftest.cli", *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that it hears Ctrl-C once, from here
        )
        try:
            return process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            process.wait()
            raise
