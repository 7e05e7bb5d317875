"""``perftest compare`` as the gate of a build, by its exit code: whole commands on runs with known or recorded figures.

`tests/reports/comparison/test_false_alarms.py` counts alarms over hundreds of comparisons by the same function.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np

from perftest.results import schema
from tests.reports.comparison.test_false_alarms import P99, Values, halves, measured, recorded_values, simulated

Call = Callable[..., tuple[int, str, str]]
COMMANDS = 12


def side(place: Path, values: Values) -> Path:
    """Run directories with these figures: of each run the manifest and the result."""
    for number, each in enumerate(values):
        run, path = measured(each), place / f"{number:02}"
        path.mkdir(parents=True)
        trust = [{"check": "ledger", "status": "pass", "text": "none lost"}]
        plain = {"schema": schema.SCHEMA_VERSION, **run.manifest, "trust": trust}
        path.joinpath(schema.MANIFEST).write_text(json.dumps(plain))
        path.joinpath(schema.RESULT).write_text(json.dumps(run.result))
        path.joinpath(schema.LEDGER).write_text(json.dumps({"verdict": "ok"}))
    return place


def gate(call: Call, place: Path, base: Values, candidate: Values) -> int:
    """The exit code."""
    return call("compare", str(side(place / "base", base)), str(side(place / "candidate", candidate)))[0]


def test_the_command_passes_sides_that_are_equal(call: Call, tmp_path: Path) -> None:
    """Of twelve commands on simulated and recorded runs, none fails: a build would stop without a cause."""
    rng, values = np.random.default_rng(8), recorded_values()
    pairs = [simulated(rng, 0.03) if number % 2 else halves(rng, values) for number in range(COMMANDS)]
    assert [gate(call, tmp_path / str(number), *pair) for number, pair in enumerate(pairs)] == [0] * COMMANDS


def test_the_command_fails_where_a_p99_got_worse_by_a_tenth(call: Call, tmp_path: Path) -> None:
    """In at least 80 % of twelve commands, with the code of a regression; never with another one."""
    rng, codes = np.random.default_rng(9), []
    for number in range(COMMANDS):
        base, candidate = simulated(rng, 0.03)
        candidate[:, P99] *= 1.1
        codes.append(gate(call, tmp_path / str(number), base, candidate))
    assert set(codes) <= {0, 8} and codes.count(8) >= 0.8 * COMMANDS


def test_the_job_of_a_comparison_gets_a_case_for_each_metric(call: Call, tmp_path: Path) -> None:
    """The page of the build names the metric that got worse, in the words of the terminal."""
    base, candidate = simulated(np.random.default_rng(9), 0.03)
    candidate[:, P99] *= 2
    sides = (side(tmp_path / "base", base), side(tmp_path / "candidate", candidate))
    junit = tmp_path / "junit.xml"
    code, _, err = call("compare", *map(str, sides), "--junit", str(junit), "--annotations", "github")
    cases = ET.parse(junit).getroot().findall(".//testcase")
    (failed,) = [case for case in cases if case.find("failure") is not None]
    assert code == 8 and len(cases) > 3 and "p99" in str(failed.get("name"))
    assert err.startswith("::error title=compare%3A ") and "regressed: " in err


def test_four_repetitions_pass_and_ask_for_more(call: Call, tmp_path: Path) -> None:
    """Twice the latency, and too few runs to say so: the build goes on, and the text says what would decide."""
    base, candidate = simulated(np.random.default_rng(10), 0.03)
    sides = (side(tmp_path / "base", base[:4]), side(tmp_path / "candidate", 2 * candidate[:4]))
    code, out, _ = call("compare", *map(str, sides))
    assert code == 0 and "inconclusive" in out and "at least 5" in out
