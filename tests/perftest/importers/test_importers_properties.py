"""Whatever a source says, what comes of it is a workload that the generator accepts, or an error for people; and no key
is passed over in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from perftest.importers.notes import Imported, Level, Notes
from perftest.importers.openmessaging import import_openmessaging
from perftest.importers.rabbittesttool import import_playlist, import_topology
from perftest.importers.section import SourceSection
from perftest.importers.write import name_of, problems_of, to_yaml
from perftest.spec.condense import spelled
from perftest.spec.expand import expand
from perftest.spec.load import parse_workload
from perftest.spec.problem import SpecError

EXAMPLES = settings(
    derandomize=True,
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
small = st.integers(0, 4)
flags = st.booleans() | st.sampled_from(["true", "false"])
prefixes = st.sampled_from(["a", "b"])


def as_written(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[int | str]:
    """RabbitTestTool writes numbers as text, mostly."""
    return numbers | numbers.map(str)


def some(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping that has any of these keys."""
    return st.fixed_dictionaries({}, optional=parts)


bindings = st.lists(some(bindingKey=st.sampled_from(["self", "k", "#.k"]), bindingKeys=st.lists(prefixes, max_size=2))
                    .map(lambda each: {"from": "ex", **each}), max_size=1)  # fmt: skip
delays = st.sampled_from(["", "0", "7", "2-4"])
actions = st.one_of(
    st.builds(lambda count, size, rate, delay: {"type": "fill", "messageCount": count, "messageSize": size,
                                                "publishRate": rate, "startDelaySeconds": delay},
              st.integers(0, 50_000), as_written(st.integers(0, 5000)), as_written(st.integers(0, 500)), delays),
    st.builds(lambda quiet, delay: {"type": "Drain", "thresholdSeconds": quiet, "startDelaySeconds": delay},
              small, delays),
    st.just({"type": "purge"}),
)  # fmt: skip
some_queues = some(
    actions=st.builds(
        lambda count, mode, delay, listed: {
            "executeCount": count,
            "executeMode": mode,
            "startDelaySeconds": delay,
            "orderedActions": listed,
        },
        st.sampled_from(["execute-once", "repeat-forever"]),
        st.sampled_from(["synchronized", "all-at-once", "staggered"]),
        delays,
        st.lists(actions, max_size=4),
    ),
    bindings=bindings,
    properties=st.just([{"key": "x-queue-type", "value": "quorum"}, {"key": "x-queue-mode", "value": "lazy"}]),
)
at_least_one = as_written(st.integers(1, 4))


def queues(prefix: str) -> st.SearchStrategy[dict[str, Any]]:
    """Queues of a prefix."""
    return st.builds(lambda scale, rest: {"prefix": prefix, "scale": scale, **rest}, at_least_one, some_queues)


destinations = st.one_of(
    st.builds(lambda q, m: {"sendToQueuePrefix": {"queuePrefix": q, "mode": m}}, prefixes,
              st.sampled_from(["Counterpart", "random"])),
    st.builds(lambda mode: {"sendToExchange": {"exchange": "ex", "routingKeyMode": mode, "routingKey": "k",
                                               "routingKeys": ["k", "l"]}},
              st.sampled_from(["none", "random", "FixedValue", "MultiValue", "Index", "StreamKey"])),
)  # fmt: skip
publishers = st.builds(
    lambda scale, destination, rest: {"prefix": "p", "scale": scale, **destination, **rest},
    as_written(small),
    destinations,
    some(
        messageSize=as_written(st.integers(0, 5000)),
        msgsPerSecondPerPublisher=as_written(st.integers(0, 500)),
        deliveryMode=st.sampled_from(["persistent", "Transient"]),
        publishMode=some(useConfirms=flags, inFlightLimit=as_written(st.integers(0, 100))),
        initialPublish=small,
        frameMax=st.sampled_from([0, 100, 8192]),
    ),
)
consumers = st.builds(
    lambda prefix, scale, rest: {"prefix": "c", "queuePrefix": prefix, "scale": scale, **rest},
    prefixes,
    as_written(small),
    some(
        processingMs=as_written(small),
        ackMode=some(
            manualAcks=flags,
            consumerPrefetch=as_written(st.integers(0, 100_000)),
            ackInterval=as_written(st.integers(0, 200)),
            ackIntervalMs=as_written(st.integers(0, 200)),
            globalPrefetch=flags,
        ),
    ),
)
dimension = st.sampled_from(["Publishers", "Consumers", "Queues", "Prefetch", "AckInterval", "ackIntervalMs",
                             "MessageSize",
                             "PublishRate", "InFlightLimit", "ProcessingMs", "RoutingKeyIndex"])  # fmt: skip
values = as_written(st.integers(0, 3000))
timing = {"stepDurationSeconds": st.integers(1, 100), "rampUpSeconds": st.integers(0, 20)}
dimensions = st.one_of(
    st.builds(lambda part: ("Fixed", {"fixedDimensions": part}),
              st.fixed_dictionaries({"durationSeconds": st.integers(1, 99), "rampUpSeconds": small})),
    st.builds(lambda part, kind: ("SingleDimension", {"singleDimension": {**part, **kind}}),
              st.fixed_dictionaries({"dimension": dimension, "values": st.lists(values, min_size=1, max_size=5),
                                     **timing}),
              some(valueType=st.sampled_from(["Value", "Multiply"]), repeatSeries=small, applyToPrefix=prefixes)),
    st.builds(lambda names, rows, part: ("MultipleDimensions", {"multipleDimensions": {
                  "dimensions": names, "multiValues": [row[: len(names)] for row in rows], **part}}),
              st.lists(dimension, min_size=1, max_size=3, unique_by=str.lower),
              st.lists(st.lists(values, min_size=3, max_size=3), min_size=1, max_size=4),
              st.fixed_dictionaries(timing)),
)  # fmt: skip


def to_queues(publisher: dict[str, Any]) -> dict[str, Any]:
    """Publishers that reach queues for sure."""
    reaching = {"scale": 2, "sendToQueuePrefix": {"queuePrefix": "a", "mode": "Counterpart"}}
    return {key: value for key, value in publisher.items() if key != "sendToExchange"} | reaching


groups = st.builds(
    lambda parts, rest: {"name": "g", **parts, **rest},
    st.fixed_dictionaries(
        {
            "queues": st.tuples(queues("a"), queues("b"), queues("acting")).map(list),
            "exchanges": st.sampled_from(["fanout", "direct", "topic", "headers", "ConsistentHash"]).map(
                lambda kind: [{"name": "ex", "type": kind}]
            ),
            "publishers": st.builds(lambda first, rest: [to_queues(first), *rest], publishers, st.lists(publishers)),
            "consumers": st.lists(consumers, max_size=2),
        }
    ),
    some(scale=as_written(st.integers(1, 3)), scaleType=st.sampled_from(["single-vhost", "multiple-vhosts"])),
)
topologies = st.builds(
    lambda found, parts: {"topologyType": found[0], "benchmarkType": "stress", "topologyGroups": parts,
                          "dimensions": found[1]},
    dimensions,
    st.lists(groups, min_size=1, max_size=2),
)  # fmt: skip
openmessaging = st.fixed_dictionaries(
    {"topics": st.integers(1, 12), "messageSize": st.integers(0, 5000), "producersPerTopic": small,
     "subscriptionsPerTopic": small, "consumerPerSubscription": small, "testDurationMinutes": st.integers(1, 30)},
    optional={
        "name": st.text(max_size=9),
        "producerRate": st.integers(0, 10**7),
        "consumerBacklogSizeGB": small,
        "warmupDurationMinutes": small,
        "producerStartRate": st.integers(1, 10**4),
        "producerIncrementRate": st.integers(0, 10**4),
        "partitionsPerTopic": small,
        "keyDistributor": st.sampled_from(["NO_KEY", "RANDOM_NANO"]),
        "useRandomizedPayloads": st.booleans(),
    },
)  # fmt: skip


def accepted(imported: Imported) -> None:
    """Each workload is read and expanded; its text says the same as its content."""
    for workload in imported.workloads:
        assert problems_of(workload.content, "f") == []
        text = to_yaml(workload.content, "f", workload.notes)
        assert yaml.safe_load(text) == spelled(workload.content)
        assert expand(parse_workload(text, "f")[0], ()).steps


@EXAMPLES
@given(topologies)
def test_every_topology_becomes_a_workload(topology: dict[str, Any]) -> None:
    accepted(import_topology(json.dumps(topology), "t.json"))


@EXAMPLES
@given(topologies, topologies)
def test_every_playlist_becomes_workloads(topology: dict[str, Any], background: dict[str, Any]) -> None:
    """The first benchmark has a background, the second has none."""
    files = {"t.json": json.dumps(topology), "bg.json": json.dumps(background)}
    playlist = {
        "commonAttributes": {"topology": "t.json", "policy": "quorum.json"},
        "benchmarks": [{"bgTopology": "bg.json"}, {}],
    }

    def find(_: str, name: str) -> tuple[str, str] | None:
        return (name, files[name]) if name in files else None

    imported = import_playlist(json.dumps(playlist), "p.json", find)
    accepted(imported)
    assert "background" in imported.workloads[0].content


@EXAMPLES
@given(openmessaging)
def test_every_openmessaging_workload_becomes_one(source: dict[str, Any]) -> None:
    try:
        accepted(import_openmessaging(yaml.safe_dump(source), "w.yaml", lambda _: None))
    except SpecError as error:
        nobody = (
            not source["producersPerTopic"] and not source["subscriptionsPerTopic"] * source["consumerPerSubscription"]
        )
        assert nobody, error


TOPOLOGY: dict[str, Any] = {
    "topologyType": "fixed",
    "topologyGroups": [
        {
            "name": "g",
            "exchanges": [{"name": "e", "type": "fanout"}],
            "queues": [{"prefix": "a", "scale": 1, "bindings": [{"from": "e"}],
                        "properties": [{"key": "k", "value": "v"}]}],
            "publishers": [{"prefix": "p", "scale": 1, "messageSize": 99, "publishMode": {"useConfirms": False},
                            "sendToExchange": {"exchange": "e", "routingKeyMode": "none"}}],
            "consumers": [{"prefix": "c", "scale": 1, "queuePrefix": "a", "ackMode": {"manualAcks": False}}],
        }
    ],
    "dimensions": {"fixedDimensions": {"durationSeconds": 9, "rampUpSeconds": 1}},
}  # fmt: skip


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every mapping in a document."""
    found = [path] if isinstance(value, dict) else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return found + [place for key, each in inner for place in places(each, (*path, key))]


@pytest.mark.parametrize("path", places(TOPOLOGY), ids=str)
def test_an_unknown_key_is_named_wherever_it_is(path: tuple[str | int, ...]) -> None:
    """A misspelt key that nobody reports measures something else than what was meant."""
    assert [note.path for note in import_topology(json.dumps(TOPOLOGY), "t.json").notes] == ["topologyGroups[0].name"]
    data = json.loads(json.dumps(TOPOLOGY))
    holder = data
    for key in path:
        holder = holder[key]
    holder["noSuchKey"] = 1
    notes = import_topology(json.dumps(data), "t.json").notes
    assert [note.path.rpartition(".")[2] for note in notes if note.level is Level.UNKNOWN] == ["noSuchKey"]


SLIPS = {
    "messageSise": (Level.UNKNOWN, "did you mean 'messageSize'?"),
    "producer_rate": (Level.UNKNOWN, "did you mean 'producerRate'?"),
    "zzz": (Level.UNKNOWN, "remove it, or set what it should do by hand"),
}


@pytest.mark.parametrize("key", SLIPS)
def test_a_slip_is_told_with_the_key_that_is_meant(key: str) -> None:
    text = f"topics: 1\nproducersPerTopic: 1\nsubscriptionsPerTopic: 1\ntestDurationMinutes: 1\n{key}: 7\n"
    notes = import_openmessaging(text, "w.yaml", lambda _: None).notes
    assert SLIPS[key] in [(note.level, note.fix) for note in notes if note.path == key]


WRONG = {
    "a count that is text": ("scale", "many", "'many' is not a number of 0 or more"),
    "a count that is negative": ("scale", -1, "-1 is not a number of 0 or more"),
    "a part of a thing": ("scale", 1.5, "1.5 is not a whole number"),
    "a truth value as a count": ("scale", True, "True is not a number of 0 or more"),
    "a flag that is a number": ("include", 7, "7 is not true or false"),
    "a list that is text": ("availableHeaders", "x", "'x' is not a list of mappings"),
    "a mapping that is a list": ("publishMode", [], "[] is not a mapping"),
    "a mode that there is not": ("deliveryMode", "fast", "'fast' is not one of persistent, transient"),
    "headers that are not there": ("headersPerMessage", 2, "there are 0 availableHeaders, not 2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_that_cannot_be_read_is_an_error_with_its_place(case: str) -> None:
    """Not a default in its place."""
    key, value, rule = WRONG[case]
    data = json.loads(json.dumps(TOPOLOGY))
    data["topologyGroups"][0]["publishers"][0][key] = value
    with pytest.raises(SpecError) as caught:
        import_topology(json.dumps(data), "t.json")
    assert {(each.path, each.rule) for each in caught.value.problems} >= {
        (f"topologyGroups[0].publishers[0].{key}", rule)
    }


def delayed(delay: object) -> Imported:
    """A playlist of one benchmark whose background load has this delay."""
    benchmark = {"topology": "t.json", "bgTopology": "t.json", "bgDelaySeconds": delay}
    return import_playlist(json.dumps({"benchmarks": [benchmark]}), "p.json", lambda _, name: (name, SOURCE))


SOURCE = json.dumps(TOPOLOGY)


@pytest.mark.parametrize(
    ("delay", "times"),
    [("-30", {"ahead": "30s"}), (-0.5, {"ahead": "500ms"}), (0, {}), ("0.0", {}), (5, {"start": "5s"})],
)
def test_a_background_load_begins_when_its_playlist_says(delay: object, times: dict[str, str]) -> None:
    """A negative delay of the source is a load that begins earlier."""
    imported = delayed(delay)
    accepted(imported)
    (load,) = imported.workloads[0].content["background"]
    assert {key: load[key] for key in ("ahead", "start") if key in load} == times
    assert not [note for note in imported.notes if "bgDelaySeconds" in note.path]


@pytest.mark.parametrize("delay", ["soon", "nan", "-inf", True])
def test_a_delay_that_is_no_number_is_an_error_with_its_place(delay: object) -> None:
    with pytest.raises(SpecError) as caught:
        delayed(delay)
    assert [problem.path for problem in caught.value.problems] == ["benchmarks[0].bgDelaySeconds"]


def test_problems_of_several_places_are_told_together() -> None:
    data = json.loads(json.dumps(TOPOLOGY))
    data["topologyGroups"][0]["publishers"][0]["scale"] = "x"
    data["topologyGroups"][0]["consumers"][0]["scale"] = "y"
    with pytest.raises(SpecError) as caught:
        import_topology(json.dumps(data), "t.json")
    assert len(caught.value.problems) == 2


def test_a_variable_without_a_value_names_the_nearest() -> None:
    """The tool stops there with the name alone."""
    data = {**TOPOLOGY, "variables": [{"name": "kindd", "default": "x"}], "description": "{{ var.kind }}"}
    with pytest.raises(SpecError) as caught:
        import_topology(json.dumps(data), "t.json")
    (problem,) = caught.value.problems
    assert (problem.rule, problem.fix) == ("the variable 'kind' has no value", "did you mean 'kindd'?")


@EXAMPLES
@given(st.text(max_size=200))
def test_a_name_is_one_that_the_format_allows(text: str) -> None:
    name = name_of(text)
    assert 0 < len(name) <= 80 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


def test_a_section_knows_what_nobody_asked_for() -> None:
    """It is what makes silence impossible."""
    notes = Notes("f")
    section = SourceSection({"one": 1, "two": "x", "tree": 3}, notes)
    assert section.count("one") == 1 and section.count("three", default=7) == 7
    section.ignore("two")
    section.finish()
    assert [(note.path, note.fix) for note in notes.found] == [("tree", "did you mean 'three'?")]
