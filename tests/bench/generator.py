"""One run of ``perftest run``, and what the nodes used meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.context import Broker
from tests.bench.figures import BenchError, used_between

QUORUM = ("-qq",)
_SAMPLE_S = 0.2
_UNTRUSTED = 5
"""The exit code of a run that measured and does not trust it, with reasons: its figures are shown all the same."""
_STOP_GRACE_S = 15


@dataclass(frozen=True, slots=True)
class Run:
    """A run's steady step, its ledger, and the CPU of the nodes."""

    step: dict[str, Any]
    ledger: dict[str, Any]
    cpu_s: float
    """Of all nodes, from before the command was started until it had ended."""
    steady_cores: float
    """CPU of all nodes over the steady part of the step, in cores."""

    def latency_ms(self, series: str, percentile: str) -> float:
        """A percentile (``p50``) of a series (``e2e``, ``confirm``). Raises :class:`BenchError` without any message."""
        value = self.step["latency"].get(series, {}).get(f"{percentile}_ns")
        if value is None:
            raise BenchError(f"perftest run measured no {series} latency: nothing came through in its steady part")
        return float(value) / 1e6


def run(broker: Broker, arguments: Sequence[object], directory: Path, queue: Sequence[str] = QUORUM) -> Run:
    """Put load on a broker with 1000-octet messages in queues that the options ``queue`` describe: quorum queues unless
    told otherwise. Raises :class:`BenchError`."""
    before = sum(broker.cpu_s())
    with tempfile.TemporaryDirectory(dir=directory) as out:
        command = [sys.executable, "-m", "perftest.cli", "run", "-H", ",".join(broker.uris)]
        command += [*options(arguments, queue), "--ui", "none", "--json", "--out", out]
        answer, samples = _watched(command, broker, Path(out))
        result = json.loads(answer)
        ledger = json.loads((Path(result["path"]) / "ledger.json").read_text())
    step = result["steps"][0]
    start = step["start_ns"] / 1e9
    steady_s = step["length_ns"] / 1e9
    used = used_between(samples, start, start + steady_s)
    return Run(step, ledger, sum(broker.cpu_s()) - before, used / steady_s)


def options(arguments: Sequence[object], queue: Sequence[str] = QUORUM) -> list[str]:
    """The arguments, and what all loads have in common but for what is among them: of an option given twice, the first
    would count."""
    given = [*queue, *map(str, arguments)]
    common = {"-u": "perftest", "-c": "1000", "-q": "1000", "-s": "1000", "-e": "amq.default", "-prsd": "0"}
    missing = [word for option, value in common.items() if option not in given for word in (option, value)]
    return ["-cal", "round-robin", *missing, *given]


def _watched(command: list[str], broker: Broker, out: Path) -> tuple[str, list[tuple[float, float]]]:
    """Run a command; what it printed, and (Unix time, CPU seconds of the nodes) all the while."""
    answer, words = out / "stdout", out / "stderr"
    samples: list[tuple[float, float]] = []
    with answer.open("wb") as stdout, words.open("wb") as stderr:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            while True:
                samples.append((time.time(), sum(broker.cpu_s())))
                try:
                    code = child.wait(_SAMPLE_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            _stop(child)
            raise
    if code not in (0, _UNTRUSTED):
        raise BenchError(f"perftest run ended with {code}: {words.read_text(errors='replace')[-2000:]}")
    return answer.read_text(), samples


def _stop(child: subprocess.Popen[bytes]) -> None:
    """It ends its own workers when it is asked to end."""
    child.terminate()
    try:
        child.wait(_STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
