"""Converts a topology into a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from perftest.importers.notes import Converted, Imported, Notes
from perftest.importers.rabbittesttool.actions import load_in_steps, say_once, steps_of
from perftest.importers.rabbittesttool.dimensions import Scope, add_dimensions
from perftest.importers.rabbittesttool.groups import Unit, act_once, read_group, units_of
from perftest.importers.rabbittesttool.policy import TopologyPolicy
from perftest.importers.rabbittesttool.template import filled, read_json
from perftest.importers.section import SourceSection
from perftest.importers.write import BACKGROUNDS_MAX, name_of
from perftest.spec.condense import duration
from perftest.spec.units import parse_duration_s


def is_topology(data: object) -> bool:
    """Whether the data looks like a topology."""
    return isinstance(data, Mapping) and ("topologyGroups" in data or "vhosts" in data)


def import_topology(text: str, file: str, given: Mapping[str, Any] | None = None) -> Imported:
    """The workload of a topology with its defaults, or with ``given`` values of its variables. Raises SpecError."""
    notes = Notes(file)
    data = read_json(text, notes)
    notes.stop_at_problems()
    stem = PurePath(file).stem
    workload = convert(data, given or {}, [], notes, file, name=name_of(stem), title=stem)
    notes.stop_at_problems()
    return Imported([Converted(workload, notes.found)])


def convert(
    data: Mapping[str, Any],
    given: Mapping[str, Any],
    policies: list[TopologyPolicy],
    notes: Notes,
    file: str,
    *,
    name: str,
    title: str,
    places: Callable[[str], str] = str,
) -> dict[str, Any]:
    """A topology as the content of a workload file.

    ``given`` are values of variables, and ``places`` tells where each variable was written.
    """
    source = filled(data, given, notes, file, places)
    units = _units(source, policies)
    source.ignore("topologyName")
    labels = [source.text("description"), source.text("benchmarkType")]
    workload: dict[str, Any] = {"schema": 1, "name": name, "title": title}
    if any(labels):
        workload["description"] = ", ".join(filter(None, labels))
    if not units:
        if not notes.problems:
            source.wrong("topologyGroups", "nobody publishes and nobody consumes", "raise scale: of one of them")
        source.finish()
        return workload
    first, *others = units
    if first.actions is not None:
        say_once(first.actions)
        act_once(first)
    workload.update(load_of(first))
    connecting = _frame_max(units)
    if connecting:
        workload["connecting"] = connecting
    add_dimensions(source, workload, _scope(first))
    _isolate(source, workload)
    source.finish()
    if others and not notes.problems:
        if backgrounds := _beside(others, "load", 2, run_s(workload)):
            workload["background"] = backgrounds
        _say_what_is_beside(others)
    return workload


def _isolate(source: SourceSection, workload: dict[str, Any]) -> None:
    """Let every step of a sweep fill its queues anew: clients that leave by themselves are missing in the next step."""
    limited = "messages" in workload.get("publishing", {}) or "exit_when" in workload.get("consuming", {})
    if limited and "sweep" in workload:
        workload["sweep"]["mode"] = "isolated"
        source.different("dimensions", "every step fills its queues anew: the sweep is isolated")


def run_s(workload: Mapping[str, Any]) -> float:
    """The length of all steps of a workload, in seconds."""
    sweep = workload.get("sweep", {})
    steps = len(sweep.get("steps") or sweep.get("values") or [0])
    return steps * parse_duration_s(workload.get("step", {}).get("duration", 0))


def _beside(units: list[Unit], stem: str, first: int, end_s: float) -> list[dict[str, Any]]:
    """The first of these loads as background loads of a run of this length."""
    found = (
        {"name": f"{stem}_{number}", **_background_of(unit, end_s)}
        for number, unit in enumerate(units[:BACKGROUNDS_MAX], start=first)
    )
    return [load for load in found if "queues" in load]


def _background_of(unit: Unit, end_s: float) -> dict[str, Any]:
    """A load beside the measured one; empty if it begins after the end of the run."""
    actions = unit.actions
    if actions is None:
        return load_of(unit)
    start_s = actions.delay_s + actions.listed[0].delay_s
    if start_s >= end_s:
        actions.source.without("startDelaySeconds", "the actions begin after the end of the run", "give it more time")
        return {}
    if actions.is_one_pass:
        act_once(unit)
        return {**load_of(unit), **({"start": duration(start_s)} if start_s else {})}
    return {"queues": load_of(unit)["queues"], "load": load_in_steps(actions), "steps": steps_of(actions, end_s)}


def backgrounds_of(
    data: Mapping[str, Any],
    given: Mapping[str, Any],
    policies: list[TopologyPolicy],
    notes: Notes,
    file: str,
    places: Callable[[str], str],
    *,
    end_s: float,
) -> list[dict[str, Any]]:
    """A topology as background loads of another topology, in a run of ``end_s`` seconds."""
    source = filled(data, given, notes, file, places)
    units = _units(source, policies)
    source.ignore("topologyName", "description", "benchmarkType", "topologyType")
    dimensions = source.section("dimensions")
    fixed = dimensions.section("fixedDimensions")
    fixed.ignore("durationSeconds", "rampUpSeconds")
    dimensions.drop("a background load does not change", "singleDimension", "multipleDimensions")
    fixed.finish()
    dimensions.finish()
    source.finish()
    return [] if notes.problems else _beside(units, "background", 1, end_s)


def _units(source: SourceSection, policies: list[TopologyPolicy]) -> list[Unit]:
    units: list[Unit] = []
    for group in source.sections("topologyGroups", "vhosts"):
        read = read_group(group, policies)
        taken = {name for unit in units for queues in unit.queues for name in queues.names}
        for queues in read.queues:
            if taken & {*queues.names}:
                queues.names = [f"{read.name}-{name}" for name in queues.names]
                group.different(
                    "name", "the queues of the group get its name, because all queues are in one virtual host"
                )
        units += units_of(read)
    units.sort(key=lambda unit: unit.actions is not None and unit.consumers is None)
    for unit in units[BACKGROUNDS_MAX + 1 :]:
        what = f"more than {BACKGROUNDS_MAX} loads beside the measured one: this one is left out"
        unit.queues[0].source.without("prefix", what, "run it from another process")
    return units


def load_of(unit: Unit) -> dict[str, Any]:
    """The sections of one load."""
    publishers, consumers = unit.publishers, unit.consumers
    load = {
        "in_flight": 0,
        "prefetch": 0,
        "ack_interval": 1,
        **(publishers.load if publishers else {}),
        **(consumers.load if consumers else {}),
        "publishers": unit.publisher_count,
        "consumers": unit.consumer_count,
    }
    order = ("in_flight", "prefetch", "ack_interval", "ack_after", "rate", "size", "consumer_latency", "publishers",
             "consumers", "persistent")  # fmt: skip
    found: dict[str, Any] = {
        "queues": [queue for queues in unit.queues for queue in queues.written()],
        "load": {key: load[key] for key in order if key in load and (key, load[key]) != ("persistent", True)},
        "exchange": unit.exchange,
        "publishing": dict(publishers.publishing) if publishers else {},
        "consuming": dict(consumers.consuming) if consumers else {},
    }
    return {key: value for key, value in found.items() if value}


def _scope(unit: Unit) -> Scope:
    return Scope(
        load=load_of(unit)["load"],
        publishers=unit.publishers.prefix if unit.publishers else "",
        consumers=unit.consumers.prefix if unit.consumers else "",
        copies=unit.copies,
        queues=unit.names,
    )


def _frame_max(units: list[Unit]) -> dict[str, Any]:
    """The frame size of all connections: the smallest frame size that a client asks for."""
    clients = [client for unit in units for client in (unit.publishers, unit.consumers) if client is not None]
    sizes = {client.frame_max for client in clients}
    if sizes <= {0}:
        return {}
    least = min(sizes - {0})
    if len(sizes) > 1:
        client = next(client for client in clients if client.frame_max == least)
        client.source.different("frameMax", f"all connections request {least}, not only these")
    return {"frame_max": least}


def _say_what_is_beside(units: list[Unit]) -> None:
    for unit in units[:BACKGROUNDS_MAX]:
        source = unit.publishers.source if unit.publishers else unit.queues[0].source
        source.different("prefix", "this load becomes a background load, which is in none of the figures")
