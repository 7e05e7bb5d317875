"""Importing as people do it: what is written, what is said, and how it ends."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from perftest.cli.run import run
from perftest.importers.notes import Notes
from perftest.options.choices import Choices
from perftest.options.command_line_import import INLINE, import_command_lines, note_options
from perftest.options.option import Effect, Option
from perftest.options.plan_of_options import plan_of
from perftest.options.table import OPTIONS
from perftest.spec import plan_for
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload

IMPORTERS = Path(__file__).parent.parent / "importers"
DATA = IMPORTERS / "data"
EXAMPLES = Path(__file__).parent / "data" / "perftest_examples.txt"
SOURCES = sorted(path.name for path in DATA.iterdir() if path.is_file())

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def in_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are named as in the golden files."""
    monkeypatch.chdir(DATA)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_becomes_what_was_reviewed(name: str, call: Call) -> None:
    """Every key of these sources is in the workloads, or in a note: REWRITE=1, and review."""
    code, out, err = call("workload", "import", name)
    golden = IMPORTERS / "golden" / f"{name}.txt"
    found = f"{out}\n=== stderr\n{err}"
    if os.environ.get("REWRITE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, encoding="utf-8")
    assert (code, found) == (0, golden.read_text(encoding="utf-8"))


def test_every_kind_of_source_is_there() -> None:
    assert {"playlist.json", "topology_exchanges.json", "topology_peak.json", "omb_one.yaml", "lines.sh"} <= {*SOURCES}


def test_a_file_is_written_where_it_was_asked_for(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("workload", "import", "perf-test -x 2 -y 2 -u q -c 10 -z 30", "-o", str(tmp_path / "mine.yaml"))
    assert (code, out.split()) == (0, [str(tmp_path / "mine.yaml")])
    plan = plan_for(tmp_path / "mine.yaml", ())
    assert (plan.steps[0].settings.in_flight, plan.steps[0].duration_s, plan.queues[0].name) == (10, 30.0, "q")


def test_several_files_go_into_a_directory_by_their_names(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("workload", "import", "playlist.json", "omb_many.yaml", "-o", str(tmp_path))
    names = [str(Path(line).relative_to(tmp_path)) for line in out.splitlines()]
    assert (code, names) == (0, [*(f"playlist/{n}.yaml" for n in (1, 2, 3)), "ten_topics_with_a_backlog.yaml"])
    for name in names:
        assert call("workload", "validate", str(tmp_path / name))[0] == 0


def test_json_has_workloads_and_notes_as_records(call: Call) -> None:
    code, out, err = call("workload", "import", "topology_peak.json", "--json")
    (record,) = json.loads(out)
    assert (code, err, record["source"]) == (0, "", "topology_peak.json")
    assert [(note["level"], note["path"]) for note in record["notes"]] == [
        ("converted differently", "topologyGroups[0].name"),
        ("converted differently", "dimensions.singleDimension.values"),
    ]
    assert record["workloads"][0]["step"] == {"duration": "6m", "warmup": "30s"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("perf-test -u q -h amqp://me:secret@rabbit -z 10", 0),
        ("perf-test -u q -z 10", 0),
        ("perf-test -u q -z 10 -niot 3", 2),
        ("perf-test -u q -z 10 -mpr", 2),
    ],
)
def test_strict_ends_with_2_for_what_has_no_equivalent(line: str, code: int, call: Call) -> None:
    """What is merely converted differently is no reason; and a password is in no file."""
    assert call("workload", "import", line)[0] == 0
    found, out, err = call("workload", "import", line, "--strict")
    assert found == code and yaml.safe_load(out)["load"] and "secret" not in out + err


ERRORS = {
    "no file": (["nothing.json"], "this is neither a file nor a command line of PerfTest: nothing.json"),
    "unknown options": (["perf-test --produces 3 -zz 1"], "no such option: --produces"),
    "streams": (["perf-test -sq"], "-sq: streams are not measured"),
    "contradictions": (["perf-test -u q -c 10 -m 5"], "a channel cannot have transactions and confirms"),
    "several in one file": (["playlist.json", "-o", "one.yaml"], "3 workloads do not fit into one file"),
    "the same name twice": (["omb_one.yaml", "omb_one.yaml", "-o", "/nowhere"], "two workloads have the name"),
    "PerfTestMulti": (["java com.rabbitmq.perf.PerfTestMulti a.json b.json -x 1 perf-test"], "files of scenarios"),
    "open quotes": (["perf-test -u 'q"], "this is neither a file"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_imported_is_an_error_of_three_lines(case: str, call: Call) -> None:
    arguments, words = ERRORS[case]
    code, out, err = call("workload", "import", *arguments)
    assert (code, out) == (2, "") and words in err
    assert all(line[:7] in ("error: ", "  at   ", "  fix  ") for line in err.splitlines())


TEXTS = {
    "broken.json": ('{"benchmarks": [}', "broken.json:1"),
    "broken.yaml": ("topics: 1\nmessageSize: [1\n", "this is not YAML"),
    "other.json": ("{}", "this is neither a playlist"),
    "other.yaml": ("a: 1", "this is neither a playlist"),
    "latin.txt": (b"\xff\xfe\xfa", "the source cannot be read"),
    "list.json": ('{"benchmarks": [1]}', "is not a list of mappings"),
    "none.json": ('{"benchmarks": []}', "there are no benchmarks"),
    "unset.yaml": ("topics: ${t}\nmessageSize: 1\n", "this variable has no default"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_source_that_cannot_be_read_ends_with_2(name: str, call: Call, tmp_path: Path) -> None:
    text, words = TEXTS[name]
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = call("workload", "import", str(path))
    assert (code, out) == (2, "") and words in err and err.startswith("error: ")


def test_a_topology_that_is_not_there_is_named_with_the_playlist_that_wants_it(call: Call, tmp_path: Path) -> None:
    """For all benchmarks at once; --topologies finds it, and the policies beside it."""
    path = tmp_path / "list.json"
    path.write_text(
        json.dumps({"benchmarks": [{"topology": "pairs.json", "policy": "quorum.json"}, {"topology": "x"}]})
    )
    code, _, err = call("workload", "import", str(path))
    assert code == 2 and f"the topology file pairs.json that {path} names is not there" in err
    assert f"the topology file x that {path} names is not there" in err
    path.write_text(json.dumps({"benchmarks": [{"topology": "pairs.json", "policy": "quorum.json"}]}))
    code, out, _ = call("workload", "import", str(path), "--topologies", "topologies")
    assert (code, yaml.safe_load(out)["queues"][0]["type"]) == (0, "quorum")


IN_THE_PLAN = {"Timing", "Topology", "Publishers", "Consumers", "Connections"}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.key))
def test_an_option_is_in_the_workload_or_in_a_note(option: Option) -> None:
    """An option that is added to the table must not be passed over."""
    if option.section in IN_THE_PLAN or option.key in ("interval", "seed", "workers"):
        return
    notes = Notes("f")
    note_options({option.key: ["1"]}, "", notes)
    assert bool(notes.found) is (option.effect is not Effect.REFUSED)


def documented() -> list[str]:
    """PerfTest's documented command lines."""
    return [block.partition("\n")[0] for block in EXAMPLES.read_text(encoding="utf-8").split("\n\n")[1:]]


@pytest.mark.parametrize("line", documented(), ids=lambda line: str(line)[:50])
def test_a_documented_line_is_the_plan_that_run_makes_of_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what a file cannot say: no end, the fate of the queues, queues without consumers."""
    monkeypatch.chdir(tmp_path)
    for name in ("content1.json", "content2.json"):
        tmp_path.joinpath(name).write_text("{}")
    with run.make_context("run", [*shlex.split(line), "-h", "amqp://b"]) as context:
        given = {key: text for key, text in context.params.items() if not key.startswith("show_")}
    given["uri"] = "amqp://b"
    plan = plan_of(Choices(given))
    (imported,) = import_command_lines(f"perf-test {line}", INLINE).workloads
    found = expand(parse_workload(yaml.safe_dump(imported.content, sort_keys=False), "f")[0], plan.uris)
    (step,), (made,) = plan.steps, found.steps
    consumers = made.settings.consumers
    assert consumers >= step.settings.consumers and replace(made.settings, consumers=step.settings.consumers) == (
        step.settings
    )
    same = found.changed(
        name=plan.name,
        title=plan.title,
        steps=plan.steps,
        delete_queues=plan.delete_queues,
        declare_missing=plan.declare_missing,
        confirm_timeout_s=plan.confirm_timeout_s,
        publishing=replace(found.publishing, routing_key=plan.publishing.routing_key),
        connecting=replace(found.connecting, shutdown_timeout_s=plan.connecting.shutdown_timeout_s),
    )
    assert made.duration_s > made.warmup_s and found.connecting.shutdown_timeout_s == max(
        plan.connecting.shutdown_timeout_s, 0
    )
    assert same == plan


@pytest.mark.parametrize(
    ("topics", "subscriptions", "what", "line"),
    [
        (1_000_000, 1, "1000000 topics of 1 subscriptions are more than 10000 queues", 3),
        (2, 1_000_000, "2 topics of 1000000 subscriptions are more than 10000 queues", 3),
        (100, 1000, "100000 clients are more than the 65536 that a run can tell apart", 6),
    ],
)
def test_too_much_is_refused_before_it_is_written_out(
    call: Call, tmp_path: Path, topics: int, subscriptions: int, what: str, line: int
) -> None:
    """A million topics took minutes and gigabytes. The line is that of the file that a person wrote."""
    source = tmp_path / "omb.yaml"
    source.write_text(
        f"name: big\n# much\ntopics: {topics}\nmessageSize: 100\nproducersPerTopic: 1\n"
        f"subscriptionsPerTopic: {subscriptions}\nproducerRate: 1000\n"
    )
    code, _, err = call("workload", "import", str(source))
    assert code == 2 and what in err and f"{source}:{line}: " in err


def test_a_problem_within_a_list_has_its_line(call: Call, tmp_path: Path) -> None:
    source = tmp_path / "playlist.json"
    source.write_text('{"benchmarks": [\n {"topology": "one.json"},\n {"topology": "two.json"}]}\n')
    code, _, err = call("workload", "import", str(source))
    assert code == 2
    assert f"{source}:2: benchmarks[0].topology" in err and f"{source}:3: benchmarks[1].topology" in err


@pytest.mark.parametrize("place", ["topologyGroups[0]", "topologyGroups[0].queues[0]"])
def test_too_many_queues_of_a_topology_are_refused_before_they_are_written_out(
    call: Call, tmp_path: Path, place: str
) -> None:
    topology = json.loads((DATA / "topology_exchanges.json").read_text())
    group = topology["topologyGroups"][0]
    (group if place.endswith("Groups[0]") else group["queues"][0])["scale"] = 5_000_000
    source = tmp_path / "topology.json"
    source.write_text(json.dumps(topology, indent=1))
    code, _, err = call("workload", "import", str(source))
    assert code == 2 and "are more than 10000" in err and f"{place}.scale" in err


@pytest.mark.parametrize(
    ("scenario", "what"),
    [
        (5, "a scenario is a mapping"),
        ({"name": "a", "type": "odd", "params": [{}]}, "this is no scenario of simple, varying, rate-vs-latency"),
        ({"name": "a", "type": "simple", "params": []}, "with params"),
        ({"name": "a", "type": "varying", "params": [{}], "variables": [{"name": "confirm"}]}, "a list of values"),
        ({"name": "a", "type": "varying", "params": [{}],
          "variables": [{"name": key, "values": list(range(1, 30))} for key in ("confirm", "min-msg-size")]},
         "more than 200 combinations"),
    ],
)  # fmt: skip
def test_scenarios_that_are_none_are_refused(call: Call, tmp_path: Path, scenario: object, what: str) -> None:
    source = tmp_path / "multi.json"
    source.write_text(json.dumps([{"name": "good", "type": "simple", "params": [{"confirm": 1}]}, scenario]))
    code, _, err = call("workload", "import", str(source))
    assert code == 2 and what in err and "[1]" in err
