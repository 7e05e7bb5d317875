"""Writes workloads as the text of a file, in the order in which a person would write the keys."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any, Final

import yaml

from perftest.importers.notes import ImportNote
from perftest.spec.check import check
from perftest.spec.condense import spelled
from perftest.spec.load import parse_workload
from perftest.spec.models import Workload
from perftest.spec.problem import Problem, SpecError

ORDER: Final = tuple(each.alias or name for name, each in Workload.model_fields.items())
NAME_MAX: Final = 80
BACKGROUNDS_MAX: Final = 8
"""Further background loads are left out: each is a process."""
QUEUES_MAX: Final = 10_000
"""Queues of a workload at most. A source with more is refused before a queue of it is written out."""
_APART: Final = ("queues", "load", "exchange", "publishing", "consuming", "connecting", "background", "sweep", "step")
"""Keys with an empty line before them."""
_FLOW_MAX: Final = 100
"""Longest value that is written on one line."""
_WIDTH: Final = 120


def name_of(text: str, room: int = NAME_MAX) -> str:
    """A workload name made of a title or a path: at most ``room`` small letters, digits and single underscores."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:room].strip("_")
    return plain or "imported"


def plain_number(number: float) -> int | float:
    """A whole number without a decimal point."""
    return int(number) if number == int(number) else number


def line_of(path: str, text: str) -> int | None:
    """The line of a key path (``benchmarks[1].topology``) in a text of YAML or JSON; None if it is not there."""
    line: int | None = None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode) and (found := [each for each in node.value if each[0].value == part]):
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        else:
            return None
    return line


def to_yaml(workload: dict[str, Any], origin: str = "", notes: Sequence[ImportNote] = ()) -> str:
    """The text of a workload file. The notes about its source are comments at the beginning."""
    parts, workload = [*_heading(origin, notes)], spelled(workload)
    for key in ORDER:
        if key in workload:
            parts.append(("\n" if key in _APART else "") + _entry(key, workload[key]))
    assert set(workload) <= set(ORDER), sorted(set(workload) - set(ORDER))
    return "\n".join(parts) + "\n"


def problems_of(workload: dict[str, Any], file: str) -> list[Problem]:
    """The problems for which the generator would refuse a workload."""
    try:
        return check(*parse_workload(to_yaml(workload), file))
    except SpecError as error:
        return error.problems


def _heading(origin: str, notes: Sequence[ImportNote]) -> list[str]:
    lines = [f"Imported from {origin}."] if origin else []
    lines += [": ".join(filter(None, (note.level.value, _place(note, origin), note.what))) for note in notes]
    return [
        textwrap.fill(" ".join(line.split()), _WIDTH, initial_indent="# ", subsequent_indent="#   ") for line in lines
    ]


def _place(note: ImportNote, origin: str) -> str:
    """The key path of a note, with its file if it differs from ``origin``."""
    name = note.file.replace("\\", "/").rpartition("/")[2]
    return note.path if note.file == origin or not note.path else f"{name}: {note.path}"


def _entry(key: str, value: Any, indent: str = "") -> str:
    """``key: value``, on one line if it is short."""
    short = f"{indent}{key}: {_flow(value)}"
    if not isinstance(value, dict | list) or (key in ("step", "quick") and len(short) <= _FLOW_MAX):
        return (
            short if "\n" not in str(value) else f"{indent}{key}: |\n{textwrap.indent(value, indent + '  ')}".rstrip()
        )
    if isinstance(value, dict):
        return f"{indent}{key}:\n" + "\n".join(_inner(name, each, indent + "  ") for name, each in value.items())
    if not all(isinstance(each, dict) for each in value):
        return short
    return f"{indent}{key}:\n" + "\n".join(_item(each, indent + "  ") for each in value)


def _inner(key: str, value: Any, indent: str) -> str:
    """An entry of a section, on one line unless it is long."""
    short = f"{indent}{key}: {_flow(value)}"
    return short if len(short) <= _FLOW_MAX else _entry(key, value, indent)


def _item(value: dict[str, Any], indent: str) -> str:
    short = f"{indent}- {_flow(value)}"
    if len(short) <= _FLOW_MAX:
        return short
    lines = "\n".join(_inner(name, each, indent + "  ") for name, each in value.items())
    return f"{indent}- {lines.lstrip()}"


def _flow(value: Any) -> str:
    """A value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")
