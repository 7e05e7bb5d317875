"""Converts policies. The tool turns policies of quorum queues into arguments of the queues, and so does this module."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perftest.importers.notes import Notes
from perftest.importers.patterns import matches, problem_with
from perftest.importers.rabbittesttool.template import filled, read_json
from perftest.importers.section import SourceSection

QUORUM: Final = ("x-queue-type", "x-quorum-initial-group-size", "x-max-in-memory-length", "x-max-in-memory-bytes")
_GUESSED: Final = {"groupSize": "x-quorum-initial-group-size", "maxInMemoryLength": "x-max-in-memory-length"}


@dataclass(frozen=True, slots=True)
class TopologyPolicy:
    """Arguments for queues whose prefix matches a pattern. An empty pattern matches all queues."""

    pattern: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def matches(self, prefix: str) -> bool:
        """Whether a queue with this prefix has the arguments."""
        return not self.pattern or matches(self.pattern, prefix)


def properties(source: SourceSection, key: str = "properties") -> dict[str, Any]:
    """The included entries of a list of key, value and type, as a mapping."""
    found = {}
    for each in source.sections(key):
        name, kind = each.text("key"), each.choice("type", default="string", known=_KINDS)
        value: Any = each.text("value")
        if kind == "int":
            value = each.count("value")
        elif kind == "boolean":
            value = each.flag("value")
        if each.flag("include", default=True):
            found[name] = value
        each.finish()
    return found


_KINDS: Final = {"string": "string", "int": "int", "boolean": "boolean"}


def read_policies(
    name: str,
    found: tuple[str, str] | None,
    given: Mapping[str, Any],
    notes: Notes,
    place: str,
    places: Callable[[str], str],
) -> list[TopologyPolicy]:
    """The policies of a file that become arguments. Each other policy gets a note with the command that sets it.

    ``place`` is where the file was named, and ``places`` tells where each variable was written.
    """
    if found is None:
        return _guessed(name, given, notes, place, places)
    file, text = found
    data = read_json(text, notes, file)
    if not isinstance(data, Mapping):
        return []
    source = filled(data, given, notes, file, places)
    policies = []
    for each in sorted(source.sections("policies"), key=lambda policy: -policy.count("priority")):
        policy = _policy(each)
        if policy is not None:
            policies.append(policy)
    source.drop("there is no federation", "federation", fix="`rabbitmqctl set_parameter federation-upstream …`")
    source.finish()
    return policies


def _policy(source: SourceSection) -> TopologyPolicy | None:
    found, pattern = properties(source), source.text("pattern")
    name = source.text("name", default="policy")
    kind, priority = source.text("applyTo", default="queues"), source.count("priority")
    source.drop("there is one broker", "federation", unless=("upstream",))
    source.finish()
    if problem := problem_with(pattern):
        source.wrong("pattern", f"no regular expression in the syntax of RE2: {problem}", "write it in another way")
        return None
    if any(key in QUORUM and value != "stream" for key, value in found.items()):
        return TopologyPolicy(pattern, found)
    if found.get("x-queue-type") == "stream":
        source.wrong("properties", "streams are not measured", "use another policy, or PerfTest for streams")
        return None
    text = json.dumps(found)
    fix = f"`perftest broker set-policy {name} '{pattern or '.*'}' '{text}' --priority {priority}`, or rabbitmqctl"
    source.notes.without(source.path, f"the policy {name!r} ({kind}) is not set: {text}", fix, source.file)
    return None


def _guessed(
    name: str, given: Mapping[str, Any], notes: Notes, place: str, places: Callable[[str], str]
) -> list[TopologyPolicy]:
    """A policy guessed from the name of a missing file. A note tells of the guess."""
    if not re.search(r"quorum|\bqq\b", name):
        fix = "give the directory above policies/ with --topologies, or set the policy by hand"
        notes.without(place, f"the policy file {name} is not there: queues are as the topology has them", fix)
        return []
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    for variable, value in given.items():
        if variable in _GUESSED:
            arguments[_GUESSED[variable]] = int(value) if str(value).isdecimal() else value
        else:
            what = f"the policy file {name} is not there: nothing is known of its variable {variable!r}"
            notes.without(places(variable), what)
    what = f"the policy file {name} is not there: by its name it makes quorum queues, with {arguments}"
    notes.different(place, what, "give the directory that has policies/ beside topologies/ with --topologies")
    return [TopologyPolicy("", arguments)]
