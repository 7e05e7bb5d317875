"""Converts a playlist into workloads, one for each benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final

from perftest.importers.notes import Converted, Imported, Notes
from perftest.importers.rabbittesttool.policy import TopologyPolicy, read_policies
from perftest.importers.rabbittesttool.template import read_json
from perftest.importers.rabbittesttool.topology import backgrounds_of, convert, run_s
from perftest.importers.section import SourceSection
from perftest.importers.write import name_of
from perftest.spec.condense import duration
from perftest.spec.units import parse_duration_s

Find = Callable[[str, str], tuple[str, str] | None]
"""Finds the path and the text of a file by its kind (``topologies``, ``policies``) and name; None if it is missing."""

_MAPPINGS: Final = ("topologyVariables", "policyVariables", "bgTopologyVariables", "bgPolicyVariables",
                    "brokerConfiguration")  # fmt: skip
_TC: Final = (
    "tcBrokers",
    "tcDelayMs",
    "tcDelayJitterMs",
    "tcDelayDist",
    "tcBandwidth",
    "tcPacketLossMode",
    "tcPacketLoss",
    *(f"tcPacketLossArg{number}" for number in range(1, 5)),
)
_ACTIONS: Final = {
    "restart-cluster": "`perftest broker stop` and `perftest broker start`, or `rabbitmqctl stop_app` on each node",
    "restart-broker": "`perftest broker kill node1` and then `perftest broker start --node node1`",
    "stop-broker": "`perftest broker kill node1`, or `rabbitmqctl stop` on one node",
    "traffic-control": "`tc qdisc add dev DEVICE root netem …` on the hosts of the brokers",
}


def is_playlist(data: object) -> bool:
    """Whether the data looks like a playlist."""
    return isinstance(data, Mapping) and "benchmarks" in data


def import_playlist(text: str, file: str, find: Find) -> Imported:
    """A workload for each benchmark. Raises SpecError with all missing files and unreadable values."""
    notes = Notes(file)
    data = read_json(text, notes)
    notes.stop_at_problems()
    playlist = SourceSection(data, notes)
    common = playlist.raw("commonAttributes", default={})
    entries = playlist.sections("benchmarks")
    stem = PurePath(file).stem
    playlist.finish()
    if not entries:
        playlist.wrong("benchmarks", "there are no benchmarks", "add at least one")
    if not isinstance(common, Mapping):
        playlist.wrong("commonAttributes", "these are no attributes", "write {…}")
        common = {}
    found = []
    for entry in entries:
        own = Notes(file)
        found.append(_benchmark(SourceSection(entry.data, own, entry.path), common, find, stem, len(entries)))
        notes.problems += own.problems
    notes.stop_at_problems()
    return Imported(found, notes.found)


class PlaylistEntry(SourceSection):
    """A benchmark, merged with the common attributes of the playlist. The benchmark's own keys and variables win.

    A note names the place where a key was written, so each common attribute gets one note.
    """

    def __init__(self, own: SourceSection, common: Mapping[str, Any]) -> None:
        merged = {**common, **own.data}
        for key in _MAPPINGS:
            parts = [each[key] for each in (common, own.data) if isinstance(each.get(key), Mapping)]
            if parts:
                merged[key] = {name: value for part in parts for name, value in part.items()}
        super().__init__(merged, own.notes, own.path, own.file)
        self.own = own.data

    def at(self, key: str) -> str:
        """The key path, in the benchmark or in commonAttributes."""
        return super().at(key) if key in self.own else f"commonAttributes.{key}"

    def places(self, key: str) -> Callable[[str], str]:
        """The place of each name of a mapping."""
        own = self.own.get(key)
        return lambda name: (
            f"{self.path if isinstance(own, Mapping) and name in own else 'commonAttributes'}.{key}.{name}"
        )


def _benchmark(own: SourceSection, common: Mapping[str, Any], find: Find, stem: str, entries: int) -> Converted:
    entry, notes = PlaylistEntry(own, common), own.notes
    number = int(own.path.rpartition("[")[2].rstrip("]")) + 1
    name = name_of(stem, 70) + (f"/{number:0{len(str(entries))}}" if entries > 1 else "")
    given = entry.section("topologyVariables").data
    title = f"{stem}" + (f" {number}: {_differences(own)}" if entries > 1 else "")
    policies = _policies(entry, "policy", "policyVariables", find, notes)
    data = _topology(entry, "topology", find, notes)
    workload: dict[str, Any] = {}
    if data is not None:
        places = entry.places("topologyVariables")
        workload = convert(data[1], given, policies, notes, data[0], name=name, title=title.rstrip(": "), places=places)
    _background(entry, workload, find, notes)
    _cluster(entry)
    entry.ignore("description")
    entry.drop("there is no grace period: the drain waits for all confirmed messages", "gracePeriodSec", unless=(0,))
    entry.drop("the dimensions of the topology say it", "stepSeconds", "stepRepeat", "stepMsgLimit", unless=(0,))
    _misplaced(entry, data)
    return Converted(workload, notes.found)


def _differences(own: SourceSection) -> str:
    """The variables of a benchmark, in few words, as a part of its title."""
    variables = own.raw("topologyVariables", default={})
    words = [f"{key} {value}" for key, value in variables.items()] if isinstance(variables, Mapping) else []
    return ", ".join(words)[:150]


def _topology(entry: PlaylistEntry, key: str, find: Find, notes: Notes) -> tuple[str, Mapping[str, Any]] | None:
    name = entry.text(key)
    if not name:
        entry.wrong(key, "a benchmark needs a topology", f"add {key}, here or in commonAttributes")
        return None
    found = find("topologies", name)
    if found is None:
        rule = f"the topology file {name} that {entry.file} names is not there"
        entry.wrong(key, rule, "give the directory that holds it with --topologies, or correct the name")
        return None
    data = read_json(found[1], notes, found[0])
    return (found[0], data) if isinstance(data, Mapping) else None


def _policies(entry: PlaylistEntry, key: str, variables: str, find: Find, notes: Notes) -> list[TopologyPolicy]:
    name, given = entry.text(key), entry.section(variables).data
    if not name or name == "none":
        for variable in given:
            entry.notes.unknown(entry.places(variables)(variable), "there is no policy, so the variable has no effect",
                                f"add {key}")  # fmt: skip
        return []
    return read_policies(name, find("policies", name), given, notes, entry.at(key), entry.places(variables))


def _background(entry: PlaylistEntry, workload: dict[str, Any], find: Find, notes: Notes) -> None:
    name = entry.text("bgTopology")
    given = entry.section("bgTopologyVariables").data
    if not name or name == "none":
        entry.drop("there is no bgTopology", "bgPolicy", "bgDelaySeconds", "bgStepSeconds", "bgStepRepeat",
                   unless=("", "none", 0))  # fmt: skip
        return
    policies = _policies(entry, "bgPolicy", "bgPolicyVariables", find, notes)
    data = _topology(entry, "bgTopology", find, notes)
    delay_s = _delay_s(entry)
    if data is not None and workload:
        loads = backgrounds_of(data[1], given, policies, notes, data[0], entry.places("bgTopologyVariables"),
                               end_s=run_s(workload) - delay_s)  # fmt: skip
        if loads:
            workload["background"] = [*workload.get("background", []), *loads]
        taken = {queue["name"] for queue in workload.get("queues", [])}
        for load in loads:
            load["queues"] = [{**queue, "name": f"bg-{queue['name']}"} if queue["name"] in taken else queue
                              for queue in load["queues"]]  # fmt: skip
        for load in loads:
            _begin(load, delay_s)
    for key in ("bgStepSeconds", "bgStepRepeat"):
        if str(entry.raw(key, default=0)) != "0":
            entry.different(key, "a background load ends with the run")


def _delay_s(entry: PlaylistEntry) -> float:
    """When background loads begin: a negative delay is a time ahead of the measured load."""
    written = entry.text("bgDelaySeconds", default="0")
    try:
        seconds = float(written)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        entry.wrong("bgDelaySeconds", f"{written!r} is not a number of seconds", "write one, such as -30")
        return 0.0
    return seconds


def _begin(load: dict[str, Any], delay_s: float) -> None:
    """Let a background load begin later by ``delay_s``, or ahead of the measured load."""
    start_s = delay_s + parse_duration_s(load.pop("start", 0))
    if start_s:
        load["ahead" if start_s < 0 else "start"] = duration(abs(start_s))


def _cluster(entry: PlaylistEntry) -> None:
    """Note everything that the playlist does to the brokers, because a workload does nothing to brokers."""
    configuration = entry.section("brokerConfiguration")
    for name, value in configuration.data.items():
        fix = f"set it before the run: rabbit.{name} = {value} in RabbitMQ's advanced.config"
        entry.notes.without(entry.places("brokerConfiguration")(name), "a workload does not configure brokers", fix)
    action = entry.text("brokerAction")
    active = entry.flag("hasBrokerActions", default=bool(action))
    trigger, when = entry.text("triggerType", default="seconds"), entry.text("triggerAt", default="0")
    if action and active:
        fix = _ACTIONS.get(action, "do it by hand")
        entry.without(
            "brokerAction", f"{action} at {when} {trigger}: a run does nothing to brokers", f"at that time, {fix}"
        )
    elif action:
        entry.without("brokerAction", "hasBrokerActions is false, so the action has no effect")
    shaped = {key: entry.raw(key) for key in _TC if entry.has(key)}
    if shaped:
        words = ", ".join(f"{key} {value}" for key, value in shaped.items())
        entry.without(
            next(iter(shaped)), f"the run does not change the network: {words}", f"{_netem(shaped)} on each host"
        )


def _netem(shaped: Mapping[str, Any]) -> str:
    """The ``tc`` command that shapes the network like this."""
    delay, jitter = shaped.get("tcDelayMs"), shaped.get("tcDelayJitterMs")
    words = ["tc qdisc add dev DEVICE root netem"]
    if delay is not None:
        words.append(f"delay {delay}ms" + (f" {jitter}ms" if jitter else ""))
        distribution = shaped.get("tcDelayDist")
        words += [f"distribution {distribution}"] if distribution and distribution != "uniform" else []
    if shaped.get("tcPacketLoss"):
        words.append(f"loss {shaped['tcPacketLoss']}%")
    if shaped.get("tcBandwidth"):
        words.append(f"rate {shaped['tcBandwidth']}mbit")
    return f"`{' '.join(words)}`"


def _misplaced(entry: PlaylistEntry, topology: tuple[str, Mapping[str, Any]] | None) -> None:
    """Note unknown keys. A key with the name of a topology's variable was probably meant as that variable."""
    variables = topology[1].get("variables") if topology else None
    names = {each.get("name") for each in variables or [] if isinstance(each, Mapping)}
    for key in list(entry.unasked()):
        if key in names:
            entry.ignore(key)
            what = f"{key!r} is a variable of {topology[0] if topology else ''}: here it has no effect"
            entry.notes.unknown(entry.at(key), what, "move it into topologyVariables")
    entry.finish()
