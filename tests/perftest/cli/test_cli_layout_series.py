"""``perftest sweep --vary layout=A,B``: a cluster for each layout, and what was cut short is made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perftest.cli import layout_series
from perftest.cli.session_options import Options
from perftest.results.writer import RunWriter
from perftest.spec.plan import Plan
from tests.perftest.results import records

Call = Callable[..., tuple[int, str, str]]
VARY = ("sweep", "--vary", "in_flight=1,10", "--vary", "layout=disks/one_hdd,disks/three_hdd", "--no-report")


@dataclass
class Engine:
    """Takes the place of a measured run: writes what a run leaves."""

    codes: dict[int, int] = field(default_factory=dict)
    """With which code a run (from 1) ends; 0 if it is not there."""
    measured: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """The layout of each run, the directory of its side, and its steps."""

    def measure(self, plan: Plan, options: Options) -> int:
        assert options.layout is not None and options.is_round and not options.report
        self.measured.append((options.layout.name, options.out.name, [step.label for step in plan.steps]))
        number = len(self.measured)
        code = self.codes.get(number, 0)
        writer = RunWriter(options.out, plan, ["perftest"], now_ns=records.STARTED_NS + number * records.SECOND)
        writer.ledger(records.ledger())
        writer.finish("interrupted" if code == 130 else "failed" if code == 1 else "finished", "")
        return code


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(layout_series, "measure", made.measure)
    return made


def layouts(engine: Engine) -> list[str]:
    return [name for name, _side, _steps in engine.measured]


def test_all_steps_run_on_each_layout_and_the_layouts_alternate(call: Call, engine: Engine, tmp_path: Path) -> None:
    code, out, _err = call(*VARY, "--repeats", "2", "--out", str(tmp_path))
    assert code == 0 and layouts(engine) == ["one_hdd", "three_hdd", "one_hdd", "three_hdd"]
    assert [side for _name, side, _steps in engine.measured[:2]] == ["1-one_hdd", "2-three_hdd"]
    assert all(steps == ["in_flight=1", "in_flight=10"] for _name, _side, steps in engine.measured)
    (place,) = tmp_path.iterdir()
    assert len(list(place.glob("*/*/manifest.json"))) == 4
    assert f"perftest compare {place}/1-one_hdd {place}/2-three_hdd" in out


def test_layouts_alone_can_be_varied(call: Call, engine: Engine, tmp_path: Path) -> None:
    assert call("sweep", "--vary", "layout=disks/one_ssd", "--no-report", "--out", str(tmp_path))[0] == 0
    assert engine.measured == [("one_ssd", "1-one_ssd", [""])]


def test_the_gravest_code_is_that_of_the_series(call: Call, engine: Engine, tmp_path: Path) -> None:
    """An INVALID figure of one layout must not be hidden by the next layout."""
    engine.codes = {1: 5}
    assert call(*VARY, "--out", str(tmp_path))[0] == 5
    assert layouts(engine) == ["one_hdd", "three_hdd"]


def test_what_was_interrupted_is_continued(call: Call, engine: Engine, tmp_path: Path) -> None:
    engine.codes = {3: 130}
    code, out, _err = call(*VARY, "--repeats", "2", "--out", str(tmp_path))
    (place,) = tmp_path.iterdir()
    assert code == 130 and f"perftest sweep --resume {place}" in out
    code, _out, _err = call("sweep", "--resume", str(place), "--no-report")
    assert code == 0 and layouts(engine) == ["one_hdd", "three_hdd", "one_hdd", "one_hdd", "three_hdd"]
    finished = [json.loads(file.read_text())["state"] for file in place.glob("*/*/manifest.json")]
    assert finished == ["finished"] * 4
    assert call("sweep", "--resume", str(place), "--no-report")[0] == 0
    assert len(engine.measured) == 5, "nothing was left"


def test_a_series_that_cannot_be_read_is_named(call: Call, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "layouts.json").write_text("{")
    code, _out, err = call("sweep", "--resume", str(tmp_path))
    assert code == 1 and "the series of layouts cannot be continued" in err and engine.measured == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("-h", "amqp://127.0.0.1"), "does not go with a broker that runs already"),
        (("--cluster", "c"), "does not go with a broker that runs already"),
        (("--layout", "disks/one_ssd"), "does not go with --layout"),
        (("--until", "e2e.p99=5%", "--repeats", "5"), "does not go with --until"),
        (("--assert",), "neither continues another sweep nor judges findings"),
        (("--vary", "layout=disks/one_hdd"), "a layout is named twice"),
        (("--vary", "layout=disks/nine_hdd"), "the layout file cannot be read"),
    ],
)
def test_what_does_not_go_with_several_layouts_is_refused(
    call: Call, engine: Engine, tmp_path: Path, more: tuple[str, ...], says: str
) -> None:
    code, _out, err = call(*VARY, *more, "--out", str(tmp_path))
    assert code == 2 and says in err and engine.measured == []


def test_a_dry_run_names_the_layouts(call: Call, engine: Engine) -> None:
    code, out, _err = call(*VARY, "--dry-run")
    assert code == 0 and "all of this on each of 2 layouts: disks/one_hdd, disks/three_hdd" in out
    assert json.loads(call(*VARY, "--dry-run", "--json")[1])["layouts"] == ["disks/one_hdd", "disks/three_hdd"]
    assert engine.measured == []
