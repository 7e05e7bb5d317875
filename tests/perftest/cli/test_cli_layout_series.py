"""``perftest sweep --vary layout=A,B``: a cluster for each layout, and what was cut short is made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import workloads
from infra import drives, rabbitmq_cluster
from infra.rabbitmq_cluster import RabbitMQError
from infra.register import Register, UndoEntry, UndoKind
from perftest.cli import measure as measuring
from perftest.cli import series_output
from perftest.measuring.placement import layout_of
from perftest.measuring.session_options import Options
from perftest.results.claims import layout_title
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
    messages: dict[str, int] = field(default_factory=dict)
    """Messages of an interval by layout; without any, a run has no intervals."""
    wobble: dict[str, int] = field(default_factory=dict)
    """How many messages more an interval of every other round has, by layout."""
    faster: dict[str, dict[str, int]] = field(default_factory=dict)
    """Factors of the messages by broker and layout."""
    raises: dict[int, BaseException] = field(default_factory=dict)
    """How a run (from 1) ends that leaves no run directory."""

    def measure(self, plan: Plan, options: Options) -> int:
        assert options.is_round and not options.report
        layout = options.layout.name if options.layout is not None else ""
        self.measured.append((layout, options.out.name, [step.label for step in plan.steps]))
        number = len(self.measured)
        if number in self.raises:
            raise self.raises[number]
        code = self.codes.get(number, 0)
        writer = RunWriter(options.out, plan, ["perftest"], now_ns=records.STARTED_NS + number * records.SECOND)
        writer.describe_broker(**({"layout": options.layout.text} if options.layout is not None else {}))
        if messages := self.messages.get(layout):
            odd = len(list(options.out.glob("*/manifest.json"))) % 2
            messages += self.wobble.get(layout, 0) * odd
            messages *= self.faster.get(plan.cluster.broker, {}).get(layout, 1)
            for record in records.intervals(plan, seed=number, messages=messages):
                writer.interval(record)
        writer.ledger(records.ledger())
        writer.finish("interrupted" if code == 130 else "failed" if code == 1 else "finished", "", code)
        return code


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(measuring, "measure", made.measure)
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


def test_what_a_killed_series_left_is_removed_by_the_next_one(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Every series has a directory of its own, so the next one has to look beside it."""
    side = tmp_path / "20261121-101502-in_flight-layouts-3fa1" / "1-one_hdd"
    left = side / ".drives-1234"
    left.mkdir(parents=True)
    Register(side)._write(UndoEntry(kind=UndoKind.DIRECTORY, name=str(left), owner_pid=1, owner_start_time=1))
    assert call(*VARY, "--out", str(tmp_path))[0] == 0
    assert not left.exists() and not (side / ".undo").exists()


def test_what_cannot_be_removed_is_said(call: Call, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / ".undo").mkdir()
    (tmp_path / ".undo" / "drive-1.json").write_text("{")
    code, _out, err = call(*VARY, "--out", str(tmp_path))
    assert code == 0 and "what an earlier run left could not be removed: entry " in err


def test_layouts_alone_can_be_varied(call: Call, engine: Engine, tmp_path: Path) -> None:
    assert call("sweep", "--vary", "layout=disks/one_ssd", "--no-report", "--out", str(tmp_path))[0] == 0
    assert engine.measured == [("one_ssd", "1-one_ssd", [""])]


def test_the_gravest_code_is_that_of_the_series(call: Call, engine: Engine, tmp_path: Path) -> None:
    """An INVALID figure of one layout must not be hidden by the next layout."""
    engine.codes = {1: 5}
    assert call(*VARY, "--out", str(tmp_path))[0] == 5
    assert layouts(engine) == ["one_hdd", "three_hdd"]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sides of the runs for which a page was asked."""
    found: list[str] = []

    def report(runs: list[Path], _beside: Path) -> tuple[None, None]:
        found.extend(run.parent.name for run in runs)
        return None, None

    monkeypatch.setattr(series_output, "report_or_doubt", report)
    return found


ERRORS = [RabbitMQError("no start", "node 2", "see its log"), OSError(28, "no space left")]


@pytest.mark.parametrize("error", [None, *ERRORS], ids=["failed", "not started", "refused"])
def test_a_run_that_failed_costs_the_others_nothing(
    call: Call, engine: Engine, reported: list[str], tmp_path: Path, error: BaseException | None
) -> None:
    """The other layouts are measured, the page has what there is, and the rest can be made later."""
    engine.messages = {"one_hdd": 100, "three_hdd": 200}
    if error is None:
        engine.codes = {1: 1}
    else:
        engine.raises = {1: error}
    code, out, err = call(*VARY[:-1], "--repeats", "2", "--out", str(tmp_path))
    (place,) = tmp_path.iterdir()
    assert code == 1 and layouts(engine) == ["one_hdd", "three_hdd"] * 2
    assert reported == ["1-one_hdd", "2-three_hdd", "2-three_hdd"]
    assert "this run failed, which costs the others nothing" in err and f"perftest sweep --resume {place}" in out
    assert error is None or str(error).partition(" (")[0] in err
    code, _out, _err = call("sweep", "--resume", str(place), "--no-report")
    assert code == 0 and layouts(engine)[4:] == ["one_hdd"]


def test_runs_that_fail_again_and_again_end_the_series(
    call: Call, engine: Engine, reported: list[str], tmp_path: Path
) -> None:
    """Nobody wants to wait for the hundredth failure."""
    engine.codes = dict.fromkeys(range(2, 9), 1)
    assert call(*VARY[:-1], "--repeats", "4", "--out", str(tmp_path))[0] == 1
    assert len(engine.measured) == 4 and reported == ["1-one_hdd"]


@pytest.mark.parametrize("early", [True, False], ids=["while starting", "while measuring"])
def test_an_interrupted_series_has_a_page_of_what_there_is(
    call: Call, engine: Engine, reported: list[str], tmp_path: Path, early: bool
) -> None:
    if early:
        engine.raises = {2: KeyboardInterrupt()}
    else:
        engine.codes = {2: 130}
    code, out, _err = call(*VARY[:-1], "--repeats", "2", "--out", str(tmp_path))
    assert code == 130 and len(engine.measured) == 2 and reported == ["1-one_hdd"] and "--resume" in out


def test_what_a_run_gave_up_is_removed_before_the_next_one(
    call: Call, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A loop device that was busy for a moment must not keep its memory until the last layout is measured."""
    left: list[Path] = []
    measure = engine.measure

    def measured(plan: Plan, options: Options) -> int:
        assert not any(each.exists() for each in left)
        left.append(options.out / ".drives-1234")
        left[-1].mkdir(parents=True)
        register = Register(options.out)
        register.note(UndoKind.DIRECTORY, str(left[-1]))
        register.release(UndoKind.DIRECTORY, str(left[-1]))
        return measure(plan, options)

    monkeypatch.setattr(measuring, "measure", measured)
    assert call(*VARY, "--out", str(tmp_path))[0] == 0
    assert len(left) == 2 and not any(each.exists() for each in left)


def test_an_interruption_hides_no_lost_message(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Neither when the series ends early, nor when the rest of it is made later."""
    engine.codes = {1: 3, 2: 130}
    assert call(*VARY, "--out", str(tmp_path))[0] == 3
    (place,) = tmp_path.iterdir()
    assert call("sweep", "--resume", str(place), "--no-report")[0] == 3
    assert layouts(engine) == ["one_hdd", "three_hdd", "three_hdd"]


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
        (("--assert",), "the workload sweep states no findings"),
        (("--vary", "layout=disks/one_hdd"), "a layout is named twice"),
        (("--vary", "layout=disks/nine_hdd"), "the layout file cannot be read"),
    ],
)
def test_what_does_not_go_with_several_layouts_is_refused(
    call: Call, engine: Engine, tmp_path: Path, more: tuple[str, ...], says: str
) -> None:
    code, _out, err = call(*VARY, *more, "--out", str(tmp_path))
    assert code == 2 and says in err and engine.measured == []


@pytest.mark.parametrize(
    ("wobble", "rounds"), [({}, 3), ({"one_hdd": 2}, 4), ({"three_hdd": 80}, 5), ({"one_hdd": 80, "three_hdd": 80}, 5)]
)
def test_rounds_go_on_until_the_metric_is_known_on_every_layout(
    call: Call, engine: Engine, tmp_path: Path, wobble: dict[str, int], rounds: int
) -> None:
    """One layout that wobbles keeps all of them going, because only whole rounds can be compared."""
    engine.messages, engine.wobble = {"one_hdd": 100, "three_hdd": 200}, wobble
    until = ("--until", "rate=2%", "--repeats", "5")
    code, out, _err = call(*VARY, *until, "--out", str(tmp_path))
    assert code == 0 and layouts(engine) == ["one_hdd", "three_hdd"] * rounds
    first, second = out.index("\n1-one_hdd\n"), out.index("\n2-three_hdd\n")
    assert out[first:second].count(f" over {rounds} rounds") == out[second:].count(f" over {rounds} rounds") == 2
    (place,) = tmp_path.iterdir()
    code, out, _err = call("sweep", "--resume", str(place), "--no-report", "--json")
    assert code == 0 and len(engine.measured) == 2 * rounds, "nothing was left"
    record = json.loads(out.splitlines()[-1])
    assert record["metric"] == "rate" and [*record["steps"]] == ["1-one_hdd", "2-three_hdd"]
    assert [step["rounds"] for steps in record["steps"].values() for step in steps] == [rounds] * 4


def test_a_round_that_was_cut_short_is_finished_before_it_is_enough(call: Call, engine: Engine, tmp_path: Path) -> None:
    """A layout with fewer rounds would have wider intervals than the others, for no reason of its own."""
    engine.messages, engine.codes = {"one_hdd": 100, "three_hdd": 200}, {6: 130}
    code, _out, _err = call(*VARY, "--until", "rate=2%", "--repeats", "5", "--out", str(tmp_path))
    (place,) = tmp_path.iterdir()
    assert code == 130 and len(engine.measured) == 6
    code, _out, _err = call("sweep", "--resume", str(place), "--no-report")
    assert code == 0 and layouts(engine)[6:] == ["three_hdd"]


def test_a_random_order_is_that_of_the_round_on_all_layouts(call: Call, engine: Engine, tmp_path: Path) -> None:
    many = ("sweep", "--vary", "in_flight=1,2,3,4,5,6,7,8", *VARY[3:])
    assert call(*many, "--random", "--repeats", "3", "--out", str(tmp_path))[0] == 0
    orders = [tuple(steps) for _name, _side, steps in engine.measured]
    assert orders[::2] == orders[1::2] and len(set(orders)) == 3 and {frozenset(each) for each in orders} == {
        frozenset(orders[0])
    }  # fmt: skip


def test_a_series_of_an_older_version_is_continued(call: Call, engine: Engine, tmp_path: Path) -> None:
    """It says nothing of what ends the rounds."""
    assert call(*VARY, "--repeats", "2", "--out", str(tmp_path))[0] == 0
    (place,) = tmp_path.iterdir()
    state = place / "layouts.json"
    plain = {name: value for name, value in json.loads(state.read_text()).items() if name not in (
        "until", "part", "random")}  # fmt: skip
    state.write_text(json.dumps(plain | {"repeats": 3}))
    assert call("sweep", "--resume", str(place), "--no-report")[0] == 0 and len(engine.measured) == 6


def test_a_dry_run_names_the_layouts(call: Call, engine: Engine) -> None:
    code, out, _err = call(*VARY, "--dry-run")
    assert code == 0 and "all of this on each of 2 layouts: disks/one_hdd, disks/three_hdd" in out
    assert "in all: 2 layouts x 1m = 2m, and up to 20s of draining" in out
    told = json.loads(call(*VARY, "--repeats", "3", "--dry-run", "--json")[1])
    assert told["layouts"] == ["disks/one_hdd", "disks/three_hdd"]
    assert (told["total_s"], told["series_s"]) == (60, 360)
    assert engine.measured == []


WORKLOAD = """\
schema: 1
name: drives
title: Drives
queues: [{name: q}]
findings:
  - {trend: ratio, metric: rate, layouts: [one_hdd, three_hdd], at_least: LEAST, says: Three are faster than one.}
step: {duration: 4s, warmup: 1s}
"""


@pytest.fixture
def judged(call: Call, engine: Engine, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """A sweep whose three hard disks are twice as fast as one; the finding wants a factor of ``least``."""
    engine.messages = {"one_hdd": 100, "three_hdd": 200}

    def sweep(least: float, *more: str) -> tuple[int, str, str]:
        path = tmp_path / "drives.yaml"
        path.write_text(WORKLOAD.replace("LEAST", str(least)))
        asked = ("sweep", str(path), *VARY[3:], "--no-report", "--out", str(tmp_path / "runs"))
        return call(*asked, "--repeats", "3", *more)

    return sweep


@pytest.mark.parametrize(("least", "code", "verdict"), [(1.2, 0, "reproduced"), (3, 4, "not reproduced")])
def test_findings_are_judged_over_all_layouts(
    judged: Callable[..., tuple[int, str, str]], tmp_path: Path, least: float, code: int, verdict: str
) -> None:
    """The lines, the file beside the runs, the JSON, and with --assert the exit code."""
    found, out, _ = judged(least, "--assert")
    assert found == code, out
    assert f"The source's findings: {verdict}, " in out and "over 3 rounds on each of 2 layouts" in out
    assert "one_hdd → three_hdd: 100 msg/s → 200 msg/s, 2 times (2 to 2; claimed at least" in out
    (file,) = (tmp_path / "runs").glob("*/findings.json")
    assert json.loads(file.read_text())["verdict"] == verdict
    found, out, _ = judged(least, "--json")
    assert found == 0 and json.loads(out.splitlines()[-1])["findings"]["verdict"] == verdict


def test_a_continued_series_is_judged_as_a_whole(
    judged: Callable[..., tuple[int, str, str]], call: Call, engine: Engine, tmp_path: Path
) -> None:
    engine.codes = {3: 130}
    code, out, _ = judged(3, "--assert")
    assert code == 130 and "findings" not in out
    (place,) = (tmp_path / "runs").iterdir()
    code, out, _ = call("sweep", "--resume", str(place), "--no-report", "--assert")
    assert code == 4 and "not reproduced, 0 of 1 findings over 3 rounds on each of 2 layouts" in out


def test_findings_that_cannot_be_decided_are_told_before_the_start(
    judged: Callable[..., tuple[int, str, str]], call: Call, engine: Engine, tmp_path: Path
) -> None:
    """Hours later the answer would be: not enough data."""
    judged(2)
    engine.measured.clear()
    path = str(tmp_path / "drives.yaml")
    for some in ((), ("--vary", "layout=disks/one_hdd,disks/two_ssd"), ("--layout", "disks/one_hdd")):
        code, _, err = call("sweep", path, *some, "--assert", "--no-report")
        assert code == 2 and "compare layouts that would not be measured" in err and "three_hdd" in err
    assert engine.measured == []


BROKERS = ("--broker", "rabbitmq", "--broker", "reference")


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with RabbitMQ and FUSE drives."""
    monkeypatch.setattr(rabbitmq_cluster, "is_installed", lambda: True)
    monkeypatch.setattr(drives, "impossible", lambda: "")
    monkeypatch.setattr(drives, "memory_octets", lambda: 64 << 30)


@pytest.mark.usefixtures("both")
def test_brokers_alternate_on_each_layout(call: Call, engine: Engine, tmp_path: Path) -> None:
    code, out, err = call(*VARY, *BROKERS, "--repeats", "2", "--out", str(tmp_path))
    sides = ["1-one_hdd-rabbitmq", "2-one_hdd-reference", "3-three_hdd-rabbitmq", "4-three_hdd-reference"]
    assert code == 0 and [side for _layout, side, _steps in engine.measured] == sides * 2
    assert "rabbitmq on layout disks/one_hdd, round 1 of 2" in err
    (place,) = tmp_path.iterdir()
    assert f"perftest compare {place}/{sides[0]} {place}/{sides[1]}" in out
    asked = {
        file.parent.parent.name: json.loads(file.read_text())["plan"]["cluster"]["broker"]
        for file in place.glob("*/*/manifest.json")
    }
    assert asked == {side: side.rpartition("-")[2] for side in sides}
    drawn = {json.loads(file.read_text())["broker"]["layout"] for file in place.glob("*/*/manifest.json")}
    assert len(drawn) == 2 and all("FUSE, modelled st1-1t" in line for line in drawn), (
        "both brokers on one kind of drive"
    )


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    ("more", "sides"),
    [((), ["1-rabbitmq", "2-reference"]), (("--layout", "two_ssd"), ["1-two_ssd-rabbitmq", "2-two_ssd-reference"])],
    ids=["no layout", "one layout"],
)
def test_brokers_alone_can_be_measured_and_continued(
    call: Call, engine: Engine, tmp_path: Path, more: tuple[str, ...], sides: list[str]
) -> None:
    engine.codes = {2: 130}
    words = ("sweep", "--vary", "in_flight=1,10", *BROKERS, *more, "--no-report", "--out", str(tmp_path))
    assert call(*words)[0] == 130
    (place,) = tmp_path.iterdir()
    assert call("sweep", "--resume", str(place), "--no-report")[0] == 0
    assert [side for _layout, side, _steps in engine.measured] == [*sides, sides[1]]


@pytest.mark.usefixtures("both")
def test_the_findings_are_judged_for_each_broker_by_itself(
    judged: Callable[..., tuple[int, str, str]], engine: Engine, tmp_path: Path
) -> None:
    """RabbitMQ is five times as fast on three drives, and the other broker no faster: a mean would be of neither."""
    engine.messages = {"one_hdd": 100, "three_hdd": 100}
    engine.faster = {"rabbitmq": {"three_hdd": 5}}
    code, out, _ = judged(2, *BROKERS, "--assert")
    assert code == 4
    assert "rabbitmq. The source's findings: reproduced, 1 of 1 findings over 3 rounds on each of 2 layouts" in out
    assert "reference. The source's findings: not reproduced, 0 of 1 findings over 3 rounds on each of 2 layouts" in out
    (file,) = (tmp_path / "runs").glob("*/findings.json")
    kept = json.loads(file.read_text())["brokers"]
    assert {broker: found["verdict"] for broker, found in kept.items()} == {
        "rabbitmq": "reproduced",
        "reference": "not reproduced",
    }


@pytest.mark.usefixtures("both")
def test_several_brokers_are_said_before_the_start(call: Call, engine: Engine) -> None:
    code, out, _err = call(*VARY, *BROKERS, "--dry-run")
    assert code == 0 and "all of this with each of 2 brokers: rabbitmq, reference" in out
    assert "in all: 2 layouts x 2 brokers x 1m = 4m" in out and "this sweep needs 5 cores" in out
    assert json.loads(call(*VARY, *BROKERS, "--dry-run", "--json")[1])["brokers"] == ["rabbitmq", "reference"]
    code, _out, err = call(*VARY, "--broker", "reference", "--broker", "reference")
    assert code == 2 and "a broker is named twice" in err
    code, _out, err = call("sweep", "--vary", "in_flight=1", "--set", "cluster.nodes=7", *BROKERS)
    assert code == 2 and "a RabbitMQ of 7 nodes is not started" in err and engine.measured == []


def test_layouts_with_one_title_are_refused(call: Call, engine: Engine, tmp_path: Path) -> None:
    """Page and findings know a layout by its title."""
    copy = tmp_path / "copy.yaml"
    copy.write_text(workloads.layout_path_of("disks/one_hdd").read_text())
    code, _, err = call("sweep", "--vary", f"layout=disks/one_hdd,{copy}", "--no-report")
    assert code == 2 and "several layouts have the title one_hdd" in err and engine.measured == []


def test_the_title_of_a_layout_is_read_from_a_manifest() -> None:
    assert layout_title({"broker": {"layout": layout_of(Path("disks/three_ssd")).text}}) == "three_ssd"
    assert layout_title({"cluster": {"layout": {"name": "a: b", "drives": {"d": {}}}}, "broker": {}}) == "a: b"
    for other in ({}, {"broker": {}}, {"broker": {"layout": 7}}, {"cluster": "local"}):
        assert layout_title(other) == ""
