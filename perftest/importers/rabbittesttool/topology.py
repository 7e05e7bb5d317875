"""Converts a topology into a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from perftest.importers.notes import Converted, Imported, Notes
from perftest.importers.rabbittesttool.dimensions import Scope, add_dimensions
from perftest.importers.rabbittesttool.groups import Unit, read_group, units_of
from perftest.importers.rabbittesttool.policy import Policy
from perftest.importers.rabbittesttool.template import filled, read_json
from perftest.importers.section import Section
from perftest.importers.write import BACKGROUNDS_MAX, name_of


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
    policies: list[Policy],
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
    workload.update(load_of(first))
    connecting = _frame_max(units)
    if connecting:
        workload["connecting"] = connecting
    add_dimensions(source, workload, _scope(first))
    source.finish()
    backgrounds = [
        {"name": f"load_{number}", **load_of(unit)} for number, unit in enumerate(others[:BACKGROUNDS_MAX], start=2)
    ]
    if backgrounds:
        workload["background"] = backgrounds
        _say_what_is_beside(others)
    return workload


def backgrounds_of(
    data: Mapping[str, Any],
    given: Mapping[str, Any],
    policies: list[Policy],
    notes: Notes,
    file: str,
    places: Callable[[str], str],
) -> list[dict[str, Any]]:
    """A topology as background loads of another topology."""
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
    return [
        {"name": f"background_{number}", **load_of(unit)}
        for number, unit in enumerate(units[:BACKGROUNDS_MAX], start=1)
    ]


def _units(source: Section, policies: list[Policy]) -> list[Unit]:
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
