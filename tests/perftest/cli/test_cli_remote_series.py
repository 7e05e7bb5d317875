"""``perftest remote run --vary layout=A,B``, ``--repeats`` and ``--resume``: as ``perftest sweep`` does, on hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from infra.cluster import Cluster
from perftest.cli import measure as measuring
from perftest.measuring.session_options import Options
from perftest.remote import brokers
from perftest.results.integrity import sealed
from perftest.spec.plan import Plan
from tests.perftest.cli.test_cli_layout_series import Engine, layouts

Call = Callable[..., tuple[int, str, str]]
VARY = ("--vary", "in_flight=1,10", "--vary", "layout=disks/one_hdd,disks/three_hdd", "--no-report")


class OnHosts(Engine):
    """Takes the place of runs on hosts. No host is connected to."""

    def measure(self, plan: Plan, options: Options) -> int:
        assert options.prepare is not None and options.cluster is None
        code = super().measure(plan, options)
        for place in options.out.glob("*/manifest.json"):
            manifest = json.loads(place.read_text())
            place.write_text(json.dumps(sealed(manifest | {"coordinator": {"name": "local"}})))
        return code


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> OnHosts:
    made = OnHosts()
    monkeypatch.setattr(measuring, "measure", made.measure)
    return made


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    place = tmp_path / "hosts.yaml"
    place.write_text("hosts:\n  rabbit[1-3]: {roles: [broker]}\n  load1: {}\n")
    return place


def test_layouts_over_hosts_are_a_series_as_on_one_machine(
    call: Call, engine: OnHosts, hosts: Path, tmp_path: Path
) -> None:
    out_at = tmp_path / "runs"
    code, out, _err = call("remote", "run", str(hosts), *VARY, "--repeats", "2", "--out", str(out_at))
    assert code == 0 and layouts(engine) == ["one_hdd", "three_hdd", "one_hdd", "three_hdd"]
    assert all(steps == ["in_flight=1", "in_flight=10"] for _name, _side, steps in engine.measured)
    (place,) = out_at.iterdir()
    assert sorted(each.name for each in place.iterdir() if each.is_dir()) == ["1-one_hdd", "2-three_hdd"]
    assert f"perftest compare {place}/1-one_hdd {place}/2-three_hdd" in out


def test_a_series_that_was_cut_short_is_continued_on_its_hosts(
    call: Call, engine: OnHosts, hosts: Path, tmp_path: Path
) -> None:
    engine.codes = {2: 130}
    out_at = tmp_path / "runs"
    code, out, _err = call("remote", "run", str(hosts), *VARY, "--out", str(out_at))
    (place,) = out_at.iterdir()
    assert code == 130 and f"perftest remote run {hosts} --resume {place}" in out
    code, _out, err = call("sweep", "--resume", str(place), "--no-report")
    assert code == 2 and "the first part was measured from hosts" in err
    assert layouts(engine) == ["one_hdd", "three_hdd"], "nothing was measured here"
    assert call("remote", "run", str(hosts), "--resume", str(place), "--no-report")[0] == 0
    assert layouts(engine) == ["one_hdd", "three_hdd", "three_hdd"]


def test_rounds_over_hosts_are_runs_of_one_directory(
    call: Call, hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OnHosts()

    def measure(plan: Plan, options: Options) -> int:
        assert options.layout is not None and options.layout.name == "one_ssd"
        return engine.measure(plan, options)

    monkeypatch.setattr(measuring, "measure", measure)
    words = ("--vary", "in_flight=1", "--layout", "disks/one_ssd", "--repeats", "3", "--no-report")
    code, out, _err = call("remote", "run", str(hosts), *words, "--out", str(tmp_path / "runs"))
    assert code == 0 and len(engine.measured) == 3
    (place,) = (tmp_path / "runs").iterdir()
    assert len(list(place.glob("*/manifest.json"))) == 3 and f"perftest compare BASE {place}" in out


def test_a_dry_run_shows_the_commands_with_each_layout(call: Call, engine: OnHosts, hosts: Path) -> None:
    code, out, _err = call("remote", "run", str(hosts), *VARY, "--repeats", "2", "--dry-run")
    assert code == 0 and engine.measured == []
    assert "all of this on each of 2 layouts: disks/one_hdd, disks/three_hdd" in out
    assert "2 rounds of this\nin all: 2 rounds x 2 layouts x " in out
    assert "with layout one_hdd: " in out and "with layout three_hdd: " in out
    assert out.count("rabbit1  ") > 2 * 3


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("-H", "amqp://rabbit9"), "does not go with a broker that runs already"),
        (("--layout", "disks/one_ssd"), "does not go with --layout"),
        (("--assert",), "the workload sweep states no findings"),
        (("--vary", "layout=disks/one_hdd"), "a layout is named twice"),
        (("--vary", "layout=disks/nine_hdd"), "the layout file cannot be read"),
        (("--vary", "layout=flow_control/own_log_fuse"), "is a FUSE drive, which is made on the machine"),
        (("--until", "e2e.p99=5%"), "1 rounds are too few"),
    ],
)
def test_what_does_not_go_with_layouts_over_hosts_is_refused(
    call: Call, engine: OnHosts, hosts: Path, more: tuple[str, ...], says: str
) -> None:
    code, _out, err = call("remote", "run", str(hosts), *VARY, *more)
    assert code == 2 and says in err and engine.measured == []


def test_nodes_that_stay_take_no_layouts(
    call: Call, engine: OnHosts, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "standing", lambda _inventory: Cluster(cluster="c", directory="", nodes=()))
    code, _out, err = call("remote", "run", str(hosts), *VARY)
    assert code == 2 and "have their layout already" in err and engine.measured == []


def test_what_one_machine_has_measured_is_not_continued_on_hosts(
    call: Call, hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(codes={2: 130})
    monkeypatch.setattr(measuring, "measure", engine.measure)
    assert call("sweep", *VARY, "--out", str(tmp_path / "runs"))[0] == 130
    (place,) = (tmp_path / "runs").iterdir()
    code, _out, err = call("remote", "run", str(hosts), "--resume", str(place), "--no-report")
    assert code == 2 and "the first part was measured from this machine" in err
    assert f"perftest sweep --resume {place}" in err


def test_each_run_gets_hosts_and_nodes_of_its_own(
    call: Call, hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that one run has lost is there again in the next."""
    made: list[str] = []

    def measure(_plan: Plan, options: Options) -> int:
        assert options.prepare is not None
        with options.prepare(replace(options)) as prepared:
            assert prepared.load_from is not None and prepared.nodes is not None
            assert prepared.cluster == Path("described") and prepared.layout is None
        return 0

    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr("perftest.remote.crew.crew", lambda *_: nullcontext(object()))

    def started(_crew: object, _specs: object, _out: Path, _say: object, layout: object, _limits: object) -> object:
        made.append(layout.name)  # type: ignore[attr-defined]
        return nullcontext(brokers.BrokerNodes(Path("described"), {}, "c"))

    monkeypatch.setattr(brokers, "brokers", started)
    call("remote", "run", str(hosts), *VARY, "--out", str(tmp_path / "runs"))
    assert made == ["one_hdd", "three_hdd"]
