"""What fills and drains queues in a topology of RabbitTestTool, and what becomes of it in a workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perftest.cli.main import call
from perftest.importers.notes import Converted
from perftest.importers.rabbittesttool import import_playlist, import_topology
from perftest.importers.rabbittesttool.actions import STEPS_MAX
from perftest.importers.write import problems_of, to_yaml
from perftest.spec.problem import SpecError

FILL: dict[str, Any] = {"type": "fill", "messageSize": "99", "messageCount": "1000", "publishRate": "100"}
FREE: dict[str, Any] = {"type": "fill", "messageSize": 99, "messageCount": 40_000}
DRAIN: dict[str, Any] = {"type": "drain", "thresholdSeconds": 3}
PURGE: dict[str, Any] = {"type": "purge"}
MEASURED: dict[str, Any] = {
    "publishers": [{"prefix": "p", "scale": 1, "messageSize": 99,
                    "sendToQueuePrefix": {"queuePrefix": "m", "mode": "counterpart"}}],
    "consumers": [{"prefix": "c", "scale": 1, "queuePrefix": "m"}],
}  # fmt: skip


def later(action: dict[str, Any], delay: object) -> dict[str, Any]:
    """The action after a delay."""
    return {**action, "startDelaySeconds": delay}


def topology(*actions: dict[str, Any], clients: dict[str, Any], scale: int = 1, **told: Any) -> dict[str, Any]:
    """A topology of 60 s whose queues ``q`` have these actions, beside the queue ``m``."""
    listed = {"executeCount": "execute-once", "executeMode": "synchronized", **told, "orderedActions": [*actions]}
    queues = [{"prefix": "q", "scale": scale, "actions": listed}, {"prefix": "m", "scale": 1}]
    return {
        "topologyType": "fixed",
        "topologyGroups": [{"name": "g", "queues": queues, **clients}],
        "dimensions": {"fixedDimensions": {"durationSeconds": 60, "rampUpSeconds": 0}},
    }


def converted(data: dict[str, Any]) -> Converted:
    """The only workload of a topology, which the generator accepts."""
    (found,) = import_topology(json.dumps(data), "t.json").workloads
    assert problems_of(found.content, "f") == []
    return found


def measured(*actions: dict[str, Any], **told: Any) -> dict[str, Any]:
    """What is told of publishers and consumers where the actions are the measured load."""
    content = converted(topology(*actions, clients={}, **told)).content
    return {key: content[key] for key in ("load", "publishing", "consuming") if key in content}


def beside(*actions: dict[str, Any], **told: Any) -> dict[str, Any]:
    """The load that the actions become beside a measured load, without its queues."""
    (load,) = converted(topology(*actions, clients=MEASURED, **told)).content["background"]
    return {key: value for key, value in load.items() if key not in ("name", "queues")}


LOAD = {"in_flight": 1000, "prefetch": 1000, "ack_interval": 1, "size": 99}
IDLE = {"exit_when": "idle"}
ONCE = [
    ((FILL,), {}, {"load": {**LOAD, "prefetch": 0, "rate": 100, "publishers": 1, "consumers": 0},
                   "publishing": {"messages": 1000}}),
    ((PURGE, FILL, DRAIN), {},
     {"load": {**LOAD, "rate": 100, "publishers": 1, "consumers": 1}, "publishing": {"messages": 1000},
      "consuming": {"start_delay": "10s", **IDLE}}),
    ((FREE, later(DRAIN, "5")), {"scale": 2},
     {"load": {**LOAD, "publishers": 2, "consumers": 2}, "publishing": {"messages": 40_000},
      "consuming": {"start_delay": "13s", **IDLE}}),
    ((FILL, DRAIN), {"executeCount": "repeat-forever"},
     {"load": {**LOAD, "rate": 100, "publishers": 1, "consumers": 1}, "publishing": {"messages": 1000},
      "consuming": {"start_delay": "10s", **IDLE}}),
]  # fmt: skip


@pytest.mark.parametrize(("actions", "told", "found"), ONCE)
def test_a_measured_load_fills_once_with_the_exact_number_and_drains_after_that(
    actions: tuple[dict[str, Any], ...], told: dict[str, Any], found: dict[str, Any]
) -> None:
    assert measured(*actions, **told) == found


def test_beside_a_load_a_list_that_runs_once_begins_after_its_delays() -> None:
    found = beside(later(FILL, "2-4"), DRAIN, startDelaySeconds="7")
    assert (found["start"], found["publishing"], "steps" in found) == ("10s", {"messages": 1000}, False)


def test_beside_a_load_a_list_goes_round_in_steps_to_the_end_of_the_run() -> None:
    """100 messages a second make 1000 in 10 s; a drain takes 3 s, and 0.5 s for 5000."""
    found = beside(later(FILL, "5"), DRAIN, executeCount="repeat-forever", startDelaySeconds="2", scale=5)
    pause, fill, drain = {"consumers": 0, "rate": 0}, {"consumers": 0, "rate": 100}, {"consumers": 5, "rate": 0}
    assert found["load"] == {"in_flight": 1000, "size": 99, "rate": 100, "prefetch": 1000, "publishers": 5,
                             "consumers": 0}  # fmt: skip
    assert [(step["set"], step["duration"]) for step in found["steps"]] == [
        (pause, "7s"), (fill, "10s"), (drain, "4s"), (pause, "5s"), (fill, "10s"), (drain, "4s"), (pause, "5s"),
        (fill, "10s"), (drain, "4s"), (pause, "5s"),
    ]  # fmt: skip


STEPS = [
    ((FILL,), {"executeCount": "repeat-forever"}, [({"consumers": 0, "rate": 100}, "1m")]),
    ((FREE,), {"executeCount": "repeat-forever"}, [({"consumers": 0, "rate": 10_000}, "1m")]),
    ((FILL, {**FILL, "messageSize": 50}), {},
     [({"consumers": 0, "rate": 100, "size": 99}, "10s"), ({"consumers": 0, "rate": 100, "size": 50}, "10s"),
      ({"consumers": 0, "rate": 0}, "1s")]),
    ((FILL, FILL, PURGE), {"executeCount": "repeat-forever"},
     [({"consumers": 0, "rate": 100}, "20s"), ({"consumers": 0, "rate": 0}, "1s")]),
]  # fmt: skip


@pytest.mark.parametrize(("actions", "told", "steps"), STEPS)
def test_steps_have_the_rate_at_which_a_fill_ends_with_its_number(
    actions: tuple[dict[str, Any], ...], told: dict[str, Any], steps: list[tuple[dict[str, Any], str]]
) -> None:
    found = [(step["set"], step["duration"]) for step in beside(*actions, **told)["steps"]]
    assert found[:-1] == steps[:-1] and found[-1][0] == steps[-1][0]


def test_the_number_of_steps_is_bounded() -> None:
    data = topology({**FILL, "messageCount": 1}, DRAIN, clients=MEASURED, executeCount="repeat-forever")
    data["dimensions"]["fixedDimensions"]["durationSeconds"] = 100_000
    found = converted(data)
    assert len(found.content["background"][0]["steps"]) == STEPS_MAX
    assert any(note.what.startswith(f"the load stays as it is after {STEPS_MAX}") for note in found.notes)


def test_consumers_of_queues_that_nobody_else_fills_get_publishers() -> None:
    clients = {"consumers": [{"prefix": "c", "scale": 1, "queuePrefix": "q", "ackMode": {"manualAcks": True,
                              "consumerPrefetch": 7, "ackInterval": 1}}]}  # fmt: skip
    content = converted(topology(FILL, clients=clients)).content
    assert (content["load"]["publishers"], content["load"]["prefetch"]) == (1, 7)
    assert content["publishing"] == {"messages": 1000} and "consuming" not in content


def test_a_load_of_its_own_is_measured_before_actions() -> None:
    """Also if the group with the actions comes first."""
    data = topology(FILL, clients={})
    data["topologyGroups"].append({"name": "h", "queues": [{"prefix": "m", "scale": 1}], **MEASURED})
    content = converted(data).content
    assert "messages" not in content.get("publishing", {})
    assert content["background"][0]["publishing"] == {"messages": 1000}


def test_a_sweep_fills_the_queues_of_every_step_anew() -> None:
    data = topology(FILL, DRAIN, clients={})
    data["topologyType"] = "SingleDimension"
    data["dimensions"] = {
        "singleDimension": {"dimension": "Prefetch", "values": [1, 10], "stepDurationSeconds": 30, "rampUpSeconds": 0}
    }
    assert converted(data).content["sweep"]["mode"] == "isolated"


PLACE = "topologyGroups[0].queues[0].actions"
NOTES = [
    (MEASURED, (FILL, PURGE), {}, "orderedActions[1].type", "nothing purges queues during a run"),
    (MEASURED, (DRAIN,), {}, "orderedActions[0].type", "nothing was filled before"),
    (MEASURED, (FREE, DRAIN, FREE), {}, "orderedActions[0].type", "a fill takes 4 s"),
    (MEASURED, (FREE, DRAIN, FREE), {}, "orderedActions[1].type", "a drain takes 7 s"),
    (MEASURED, (FILL,), {"startDelaySeconds": "70"}, "startDelaySeconds", "begin after the end of the run"),
    (MEASURED, (later(FILL, "2-4"),), {}, "orderedActions[0].startDelaySeconds", "the delay is 3 s"),
    ({}, (FILL, DRAIN), {}, "orderedActions[1].thresholdSeconds", "consumers leave after a second"),
    ({}, (FREE, DRAIN), {}, "orderedActions[1].type", "consumers begin after 4 s"),
    ({}, (FILL, DRAIN, FILL), {}, "orderedActions[2].type", "fills its queues once and drains them once"),
    ({}, (FILL,), {"executeCount": "repeat-forever"}, "executeCount", "the measured load runs the list once"),
    ({}, (FILL,), {"startDelaySeconds": 3}, "orderedActions[0].startDelaySeconds", "the measured load begins at once"),
    ({}, (FILL,), {"executeMode": "staggered", "startDelaySeconds": 3, "scale": 2}, "executeMode",
     "all 2 queues begin together, not 3 s one after the other"),
    *(
        ({"publishers": [{"prefix": "p", "scale": 1, "messageSize": 99,
                          "sendToQueuePrefix": {"queuePrefix": "q", "mode": "counterpart"}}]},
         (FILL, DRAIN, PURGE), {}, f"orderedActions[{at}].type", f"no {kind} beside the publishers and consumers")
        for at, kind in enumerate(("fill", "drain", "purge"))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("clients", "actions", "told", "place", "what"), NOTES)
def test_what_cannot_be_done_is_named_with_what_to_do(
    clients: dict[str, Any], actions: tuple[dict[str, Any], ...], told: dict[str, Any], place: str, what: str
) -> None:
    notes = converted(topology(*actions, clients=clients, **told)).notes
    assert [note for note in notes if note.path == f"{PLACE}.{place}" and what in note.what]


WRONG = [
    ({"type": "fil"}, {}, "orderedActions[0].type", "'fil' is no action of fill, drain, purge"),
    ({"type": "fill", "messageSize": 9}, {}, "orderedActions[0].messageCount", "the action has no messageCount"),
    ({**FILL, "messageCount": -1}, {}, "orderedActions[0].messageCount", "-1 is not a number of 0 or more"),
    ({"type": "drain"}, {}, "orderedActions[0].thresholdSeconds", "the action has no thresholdSeconds"),
    (later(FILL, "soon"), {}, "orderedActions[0].startDelaySeconds", "'soon' is no time in seconds"),
    (later(FILL, "1-2-3"), {}, "orderedActions[0].startDelaySeconds", "'1-2-3' is no time in seconds"),
    (FILL, {"executeCount": "twice"}, "executeCount", "'twice' is not one of execute-once, repeat-forever"),
    (FILL, {"executeMode": 7}, "executeMode", "'7' is not one of synchronized, all-at-once, staggered"),
]


@pytest.mark.parametrize(("action", "told", "place", "rule"), WRONG)
def test_an_action_that_cannot_be_read_is_an_error_with_its_place(
    action: dict[str, Any], told: dict[str, Any], place: str, rule: str
) -> None:
    with pytest.raises(SpecError) as caught:
        import_topology(json.dumps(topology(action, clients=MEASURED, **told)), "t.json")
    assert (f"{PLACE}.{place}", rule) in {(each.path, each.rule) for each in caught.value.problems}


@pytest.mark.parametrize(("delay", "times"), [("-30", {"ahead": "20s"}), ("5", {"start": "15s"}), ("-10", {})])
def test_the_delay_of_a_background_adds_to_that_of_its_actions(delay: str, times: dict[str, str]) -> None:
    files = {"t.json": topology(clients=MEASURED), "bg.json": topology(later(FILL, 10), clients={})}
    benchmark = {"topology": "t.json", "bgTopology": "bg.json", "bgDelaySeconds": delay}
    find = lambda _, name: (name, json.dumps(files[name]))  # noqa: E731
    (found,) = import_playlist(json.dumps({"benchmarks": [benchmark]}), "p.json", find).workloads
    assert problems_of(found.content, "f") == []
    (load,) = found.content["background"]
    assert {key: load[key] for key in ("ahead", "start") if key in load} == times


@pytest.mark.parametrize("clients", [{}, MEASURED], ids=["measured", "background"])
@pytest.mark.parametrize("count", ["execute-once", "repeat-forever"])
def test_a_sweep_can_be_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clients: dict[str, Any], count: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(to_yaml(converted(topology(FREE, DRAIN, clients=clients, executeCount=count)).content))
    assert call(["sweep", str(file), "--dry-run"]) == 0
    assert ("beside them: load_2" in capsys.readouterr().out) is bool(clients)
