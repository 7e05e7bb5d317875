"""``perftest sweep`` over several settings, in rounds, and after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from perftest.cli import measure as measuring
from perftest.cli import report
from perftest.measuring.session_options import Options
from perftest.results.writer import RunWriter
from perftest.series import rounds
from perftest.spec.plan import Plan
from tests.perftest.results import records

Call = Callable[..., tuple[int, str, str]]
VARY = ("--vary", "in_flight=1,10,100", "--no-report")


@dataclass
class Engine:
    """Takes the place of a measured run: writes what one leaves. ``rates`` are those of the rounds, in turn."""

    rates: tuple[int, ...] = (200,)
    stop_after: dict[int, int] = field(default_factory=dict)
    """In which round (from 1) to interrupt within which step (from 1)."""
    codes: dict[int, int] = field(default_factory=dict)
    """With which code a round (from 1) ends; 0 if it is not there."""
    plans: list[Plan] = field(default_factory=list)

    def measure(self, plan: Plan, options: Options) -> int:
        self.plans.append(plan)
        number = len(self.plans)
        stop = self.stop_after.get(number)
        writer = RunWriter(options.out, plan, ["perftest"], now_ns=records.STARTED_NS + number * records.SECOND)
        messages = self.rates[(number - 1) % len(self.rates)]
        by_step = records.intervals(records.plan(steps=len(plan.steps)), messages=messages, seed=number)
        for at, step in enumerate(plan.steps):
            writer.event({"t_ns": 1, "kind": "step_started", "step": step.number})
            for record in by_step[4 * at : 4 * at + 4]:
                writer.interval(replace(record, step=step.number))
            writer.event({"t_ns": 2, "kind": "step_ended", "step": step.number})
            if stop == at + 1:
                writer.event({"t_ns": 3, "kind": "interrupted", "step": step.number})
                break
        writer.ledger(records.ledger())
        code = 130 if stop else self.codes.get(number, 0)
        writer.finish("interrupted" if stop else "finished", "", code)
        return code


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(measuring, "measure", made.measure)
    return made


def labels(plan: Plan) -> list[str]:
    return [step.label for step in plan.steps]


def only(out: Path, pattern: str = "*") -> Path:
    (found,) = out.glob(pattern)
    return found


def test_settings_can_be_varied_without_a_workload(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Every combination; the flag's spelling may have a dash."""
    code, _, _ = call("sweep", "--vary", "in-flight=1,10", "--vary", "size=100,1kB", "--out", str(tmp_path))
    assert code == 0
    assert labels(engine.plans[0])[1] == "in_flight=1 size=1000"
    assert len(engine.plans[0].steps) == 4


def test_a_varied_setting_replaces_the_workloads_own(call: Call, engine: Engine, tmp_path: Path) -> None:
    """The bundled workload fixes the ack interval and sweeps the in-flight limit."""
    code, _, _ = call(
        "sweep", "flow_control/in_flight", "--vary", "ack_interval=1,10", "--isolated", "--out", str(tmp_path)
    )
    assert code == 0
    assert labels(engine.plans[0]) == ["ack_interval=1", "ack_interval=10"]
    assert str(engine.plans[0].isolation) == "isolated"


def test_rounds_are_runs_that_can_be_compared(call: Call, engine: Engine, tmp_path: Path) -> None:
    """As many as were asked for, below one directory; a random order is another in each round."""
    code, out, _ = call("sweep", *VARY, "--random", "--repeats", "4", "--out", str(tmp_path))
    place = only(tmp_path)
    assert code == 0
    assert len(list(place.glob("*/manifest.json"))) == 4
    assert {tuple(sorted(labels(plan))) for plan in engine.plans} == {("in_flight=1", "in_flight=10", "in_flight=100")}
    assert len({tuple(labels(plan)) for plan in engine.plans}) > 1
    assert "over 4 rounds" in out
    assert out.endswith(f"next    perftest report {place}\n        perftest compare BASE {place}\n")
    again = tmp_path / "again"
    assert call("sweep", *VARY, "--repeats", "4", "--out", str(again))[0] == 0
    assert call("compare", str(place), str(only(again)))[0] == 0


def test_rounds_end_when_the_metric_is_known(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Three equal rounds are enough; rounds that differ go on to the limit."""
    call("sweep", *VARY, "--repeats", "9", "--until", "rate=5%", "--out", str(tmp_path / "steady"))
    assert len(engine.plans) == 3
    engine.plans.clear()
    engine.rates = (100, 200, 400)
    code, out, _ = call(
        "sweep", *VARY, "--repeats", "6", "--until", "rate=5%", "--json", "--out", str(tmp_path / "wild")
    )
    assert len(engine.plans) == 6
    found = json.loads(out.splitlines()[-1])
    assert code == 0
    assert all(step["half_interval"] > 0.05 for step in found["steps"])


def test_three_rounds_know_less_than_they_seem_to(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Rounds 4 % apart are not known to 5 %: three values leave the mean in a range of 2.5 of their deviations."""
    engine.rates = (196, 200, 204)
    call("sweep", *VARY, "--repeats", "9", "--until", "rate=5%", "--out", str(tmp_path / "strict"))
    three = len(engine.plans)
    engine.plans.clear()
    call("sweep", *VARY, "--repeats", "9", "--until", "rate=4%", "--out", str(tmp_path / "stricter"))
    assert (three, len(engine.plans)) == (3, 4)


def test_an_interrupted_round_is_put_aside_and_made_again(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Half a round would spoil the comparison; the whole ones count."""
    engine.stop_after = {2: 2}
    code, out, _ = call("sweep", *VARY, "--repeats", "3", "--out", str(tmp_path))
    place = only(tmp_path)
    assert code == 130 and f"next    perftest sweep --resume {place}\n" in out and "compare" not in out
    code, _, _ = call("sweep", "--resume", str(place), "--no-report")
    assert code == 0
    assert len(list(place.glob("*/manifest.json"))) == 3
    assert len(list(place.glob("unfinished/*/manifest.json"))) == 1
    assert len(engine.plans) == 4


def test_rounds_before_an_interruption_count_in_the_exit_code(call: Call, engine: Engine, tmp_path: Path) -> None:
    engine.codes, engine.stop_after = {1: 5}, {2: 1}
    assert call("sweep", *VARY, "--repeats", "3", "--out", str(tmp_path))[0] == 130
    assert call("sweep", "--resume", str(only(tmp_path)), "--no-report")[0] == 5
    assert len(engine.plans) == 4


def test_rounds_make_one_report(call: Call, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all of them, beside them."""
    made: list[tuple[list[Path], Path]] = []

    def build_report(runs: list[Path], out: Path | None, beside: Path) -> Path:
        made.append((runs, beside))
        return beside / "report.html"

    monkeypatch.setattr(report, "build_report", build_report)
    _, out, _ = call("sweep", "--vary", "in_flight=1,10", "--repeats", "2", "--out", str(tmp_path))
    place = only(tmp_path)
    assert made == [(sorted(each.parent for each in place.glob("*/manifest.json")), place)]
    assert f"rounds  {place}\nreport  {place / 'report.html'}\nnext    perftest compare" in out


def test_an_interrupted_sweep_goes_on_with_the_steps_that_are_left(call: Call, engine: Engine, tmp_path: Path) -> None:
    """The step within which it was stopped is made again, those before are not; numbers stay."""
    engine.stop_after = {1: 2}
    assert call("sweep", *VARY, "--out", str(tmp_path))[0] == 130
    code, _, _ = call("sweep", "--resume", str(only(tmp_path)), "--no-report", "--out", str(tmp_path))
    assert code == 0
    assert [(step.number, step.label) for step in engine.plans[1].steps] == [(2, "in_flight=10"), (3, "in_flight=100")]


def test_a_complete_sweep_has_nothing_left(call: Call, engine: Engine, tmp_path: Path) -> None:
    """That is a mistake of the one who typed it."""
    call("sweep", *VARY, "--out", str(tmp_path))
    code, _, err = call("sweep", "--resume", str(only(tmp_path)))
    assert code == 2
    assert "no step is left" in err


def test_a_dry_run_says_how_many_rounds(call: Call, engine: Engine) -> None:
    """Nothing is run."""
    code, out, _ = call("sweep", *VARY, "--repeats", "3", "--dry-run")
    assert code == 0
    assert "3 rounds of this\nin all: 3 rounds x 1m30s = 4m30s, and up to 30s of draining" in out
    assert not engine.plans
    assert "at most 5 rounds of this" in call("sweep", *VARY, "--repeats", "5", "--until", "rate=5%", "--dry-run")[1]
    assert json.loads(call("sweep", *VARY, "--repeats", "3", "--dry-run", "--json")[1])["repeats"] == 3


LONG = ("--set", "step={duration: 30m, warmup: 1s}", "--no-report")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--vary", "in_flight=1,10"), 0),
        (("--vary", "in_flight=1,10,100"), 0),  # a series of one setting: its length stands in the workload
        (("--vary", "in_flight=1", "--repeats", "2"), 0),
        (("--vary", "in_flight=1", "--repeats", "3"), 2),
        (("--vary", "in_flight=1", "--repeats", "3", "--yes"), 0),
        (("--vary", "in_flight=1,10", "--vary", "prefetch=10,20"), 2),
        (("--vary", "in_flight=1,10", "--vary", "prefetch=10,20", "--yes"), 0),
    ],
)
def test_a_matrix_that_takes_long_needs_a_yes(
    call: Call, engine: Engine, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    """A slip in --vary or --repeats must not take the night without a word."""
    found, _, err = call("sweep", *LONG, *arguments, "--out", str(tmp_path))
    assert found == code and bool(engine.plans) is (code == 0)
    if code:
        assert ": more than 1h needs --yes" in err and "add --yes to begin" in err
        assert "3 rounds x 30m = 1h30m" in err or "this takes 2h, and up to" in err


@pytest.mark.parametrize("said", [True, False])
def test_a_terminal_asks_before_a_long_matrix(
    call: Call, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return said

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    long = (*LONG, "--vary", "in_flight=1", "--repeats", "3", "--out", str(tmp_path))
    assert call("sweep", *long)[0] == (0 if said else 2) and bool(engine.plans) is said
    assert asked == ["this takes 3 rounds x 30m = 1h30m, and up to 30s of draining. Begin?"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ((), "there is nothing to sweep"),
        (("--vary", "in_flight"), "is not SETTING=VALUES"),
        (("--vary", "in_flight=1", "--vary", "in_flight=2"), "varied twice"),
        (("--vary", "inflight=1"), "in_flight"),
        (("--vary", "in_flight=1,1"), "swept twice\n  at   --vary in_flight=1,1\n"),
        (("--vary", "size=100", "--vary", "in_flight=1,x"), "\n  at   --vary in_flight=1,x\n"),
        ((*VARY, "--until", "e2e.p99=5%"), "1 rounds are too few"),
        ((*VARY, "--repeats", "5", "--until", "p99=5%"), "say of what"),
        ((*VARY, "--repeats", "5", "--until", "e2e.p99"), "is not METRIC=PART"),
        ((*VARY, "--repeats", "5", "--until", "e2e.p99=5x"), "unknown unit 'x' of a share"),
        ((*VARY, "--resume", "."), "cannot be changed"),
        (("flow_control/nothing",), "there is no workload"),
    ],
)
def test_contradictions(call: Call, engine: Engine, arguments: tuple[str, ...], says: str) -> None:
    """With 2, before anything is started."""
    code, _, err = call("sweep", *arguments)
    assert code == 2
    assert says in err
    assert not engine.plans


def test_the_spread_needs_every_round(engine: Engine) -> None:
    """A round without the metric says nothing: more rounds are needed."""
    objective: Any = rounds.Rounds(repeats=9, until=None, part=0.05, random=False)
    assert not rounds.enough({"a": []}, objective)
