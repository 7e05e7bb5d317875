"""Fills the variables of topologies and policies: ``{{ var.name }}``, with values of a playlist or with defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from perftest.importers.notes import Notes
from perftest.importers.section import SourceSection, nearest

_VARIABLE: Final = re.compile(r"\{\{\s*var\.(\w+)\s*\}\}")


def read_json(text: str, notes: Notes, file: str = "") -> Any:
    """The content of a JSON text; None, and a problem with its line, if the text is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}"
        notes.problem(place, f"this is not JSON: {error.msg}", "correct it at this place", file=file)
        return None


def filled(
    data: Mapping[str, Any], given: Mapping[str, Any], notes: Notes, file: str, places: Callable[[str], str]
) -> SourceSection:
    """The topology with values for its variables: ``given`` values, or defaults.

    ``places`` tells where each given variable was written.
    """
    source = SourceSection({key: value for key, value in data.items() if key != "variables"}, notes, file=file)
    declared = SourceSection({"variables": data.get("variables") or []}, notes, file=file).sections("variables")
    defaults = {each.text("name"): each.raw("default") for each in declared}
    for each in declared:
        each.finish()
    used = set(_VARIABLE.findall(json.dumps(source.data)))
    for name in given:
        if name not in used:
            near = nearest(name, used)
            fix = f"did you mean {near!r}?" if near else "remove it"
            what = f"nothing in {file} uses the variable {name!r}: it has no effect"
            notes.unknown(places(name), what, fix)
    for name in sorted(used - given.keys() - defaults.keys()):
        near = nearest(name, [*given, *defaults])
        fix = f"did you mean {near!r}?" if near else "give it a default in variables"
        notes.problem(f"{{{{ var.{name} }}}}", f"the variable {name!r} has no value", fix, file=file)
    source.data = _filled(source.data, {**defaults, **given})
    return source


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _text(values.get(match[1], 0)), value)
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
