"""From YAML text to a :class:`~perftest.spec.models.Workload`, or to every problem in it with file, line and fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from perftest.spec.cluster import ClusterSpec
from perftest.spec.keys import keys_of, line_for, sections_in
from perftest.spec.layout import Layout
from perftest.spec.models import Workload
from perftest.spec.problem import Location, Problem, SpecError

_SEGMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|(\d+)")


@dataclass(frozen=True, slots=True)
class Document:
    """A workload file: its plain values, and the line of each. ``place`` is the part of the file that is spoken of."""

    data: dict[str, Any]
    file: str
    lines: dict[Location, int] = field(default_factory=dict)
    overrides: dict[Location, str] = field(default_factory=dict)
    place: Location = ()

    def part(self, place: Location) -> Document:
        """The same document, for problems whose locations begin at a place."""
        return replace(self, place=place)

    def problem(self, location: Location, rule: str, fix: str, value: object = None) -> Problem:
        """A problem at a place of this document. A value from ``--set`` blames this flag."""
        location = (*self.place, *location)
        for prefix in (location[:length] for length in range(len(location), 0, -1)):
            if prefix in self.overrides:
                flag = f"--set {self.overrides[prefix]}"
                return Problem(path=dotted(location), value=value, rule=rule, fix=fix, file=flag)
        known = (self.lines.get(location[:length]) for length in range(len(location), -1, -1))
        line = next((line for line in known if line is not None), None)
        return Problem(path=dotted(location), value=value, rule=rule, fix=fix, file=self.file, line=line)


def load_workload(path: Path, overrides: Sequence[str] = ()) -> tuple[Workload, Document]:
    """Read and validate a workload file, with ``--set`` overrides applied to its text.

    Raises :class:`~perftest.spec.problem.SpecError` with all problems of keys and values (relations between them are
    checked afterwards by :func:`perftest.spec.check.check`).
    """
    fix = "give the path of a workload file, or a name that `perftest workload list` shows"
    return parse_workload(text_of(path, "workload file", fix), str(path), overrides)


def text_of(path: Path, what: str, fix: str) -> str:
    """The text of a file. Raises SpecError, which says ``what`` the file is."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        rule = f"the {what} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SpecError([Problem(path="", value=None, rule=rule, fix=fix, file=str(path))]) from error


def parse_workload(text: str, file: str, overrides: Sequence[str] = ()) -> tuple[Workload, Document]:
    """:func:`load_workload` for text that was read already."""
    document = _override(
        read_yaml(text, file, what="a workload file", begin="schema: 1` and `name: my_load"), overrides
    )
    try:
        return Workload.model_validate(document.data), document
    except ValidationError as error:
        raise SpecError([problem_of(document, detail, Workload) for detail in error.errors()]) from error


def dotted(location: Location) -> str:
    """``("sweep", "values", 2)`` as ``sweep.values[2]``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(text: str, file: str, *, what: str, begin: str) -> Document:
    """The values and lines of a YAML file: ``what`` it is and how to ``begin`` it, in words. Raises SpecError."""
    document = Document(data={}, file=file)
    try:
        repeated, data = _parsed(text, _parser_for(text), document.lines)
    except (yaml.YAMLError, UnicodeError, RecursionError):
        repeated, data = _parsed_slowly(text, document)
    if not isinstance(data, dict):
        rule, fix = f"{what} is a mapping of keys to values", f"begin with `{begin}`"
        raise SpecError([Problem(path="", value=None, rule=rule, fix=fix, file=file, line=1)])
    document.data.update(data)
    if repeated:
        fix = "keep one of them"
        raise SpecError([document.problem(place, f"the key {place[-1]!r} is given twice", fix) for place in repeated])
    return document


def _parser_for(text: str) -> Any:
    """The parser in C where PyYAML was built with it: some ten times as fast. Its stack ends the process when a text is
    nested some ten thousand times, so it gets only what cannot be."""
    is_flat = len(text) <= 16_384 and text.count("[") + text.count("{") <= 2_000
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_flat else yaml.SafeLoader


def _parsed_slowly(text: str, document: Document) -> tuple[list[Location], object]:
    """The same by the parser in Python, which has the better words for what is wrong."""
    document.lines.clear()
    try:
        return _parsed(text, yaml.SafeLoader, document.lines)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        rule = f"this is not YAML: {getattr(error, 'problem', None) or 'it cannot be parsed'}"
        fix = "check indentation, quotes and colons around this line"
        problem = Problem(path="", value=None, rule=rule, fix=fix, file=document.file, line=line)
        raise SpecError([problem]) from error


def _parsed(text: str, kind: Any, lines: dict[Location, int]) -> tuple[list[Location], object]:
    """The repeated keys and the value of a YAML text. Notes the line of every value."""
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return [], None
        repeated = list(_index(node, (), lines))  # before the value is made, which writes merged keys into the nodes
        return repeated, loader.construct_document(node)
    finally:
        loader.dispose()


def _index(node: yaml.Node, place: Location, lines: dict[Location, int]) -> Iterable[Location]:
    """Note the line of every value. Yields the keys that a mapping repeats: YAML would silently keep the last."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _index(item, (*place, number), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*place, str(key.value))
            if child in lines:
                yield child
            lines[child] = key.start_mark.line + 1
            yield from _index(value, child, lines)


def _override(document: Document, overrides: Sequence[str]) -> Document:
    problems: list[Problem] = []
    for override in overrides:
        path, equals, text = override.partition("=")
        location = _location(path.strip())
        if not equals or location is None:
            rule, fix = f"{override!r} is not PATH=VALUE", "write --set load.prefetch=100"
            problems.append(Problem(path=path, value=override, rule=rule, fix=fix, file="--set"))
        elif (stuck := _put(document.data, location, _scalar(text))) is not None:
            rule, fix = f"there is no {dotted(stuck)!r} to set", "set a key that the workload file format knows"
            problems.append(Problem(path=path, value=text, rule=rule, fix=fix, file=f"--set {override}"))
        else:
            document.overrides[location] = override
    if problems:
        raise SpecError(problems)
    return document


def _location(path: str) -> Location | None:
    parts: list[str | int] = []
    for segment in path.replace("[", ".[").split("."):
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            return None
        name, bracketed, number = match.groups()
        parts.append(name if name else int(bracketed or number))
    return tuple(parts)


def _scalar(text: str) -> object:
    try:
        return cast(object, yaml.safe_load(text))
    except yaml.YAMLError:
        return text


def _put(data: Any, location: Location, value: object) -> Location | None:
    """Set a value deep in plain data. Returns the place where the way ends, or None if the value was set."""
    holder = data
    for depth, part in enumerate(location, start=1):
        if not _holds(holder, part):
            return location[:depth]
        if depth == len(location):
            holder[part] = value
        elif isinstance(holder, dict):
            holder = holder.setdefault(part, {})
        else:
            holder = holder[part]
    return None


def _holds(holder: Any, part: str | int) -> bool:
    """Whether a mapping may take this key, or a list has this index."""
    if isinstance(part, str):
        return isinstance(holder, dict)
    return isinstance(holder, list) and part < len(holder)


def problem_of(document: Document, detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    """The fault that pydantic found in a document of a ``model``, in people's words."""
    location = _shown(detail["loc"])
    rule, fix = _rule_and_fix(location, detail, model)
    return document.problem(location, rule, fix, detail.get("input"))


def _shown(location: Location) -> Location:
    """The place in the file, without the names that pydantic adds for the members of a union."""
    if location[:2] == ("sweep", "values") and len(location) > 3:
        return location[:3]
    if len(location) > 4 and location[0] == "queues" and location[2] == "arguments":
        return location[:4]
    if location[:2] == ("cluster", "layout"):
        location = (*location[:2], *location[3:])
    return location[:-1] if location[-1:] == ("[key]",) else location


def _rule_and_fix(location: Location, detail: ErrorDetails, root: type[BaseModel]) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    name = dotted(location)
    value = detail.get("input")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_key(location, root)
    if kind == "missing":
        return f"{name!r} is missing", f"add {line_for(location)}"
    if kind == "quantity":
        return f"{name}: {context['rule']}", str(context["fix"])
    if kind in ("enum", "literal_error"):
        near = _nearest(str(value), re.findall(r"'([^']+)'", str(context["expected"])))
        return f"{name}: {value!r} is not one of {context['expected']}", f"did you mean {near!r}?" if near else (
            f"write {context['expected']}"
        )
    if kind in ("model_type", "dataclass_type", "dict_type"):
        known = ", ".join(_known_at(location, root))
        return f"{name}: {value!r} is no section", f"write keys below it, each with a value{known and f': {known}'}"
    if kind in ("list_type", "tuple_type"):
        return f"{name}: {value!r} is no list", "write one entry a line, each behind a dash"
    if kind == "string_pattern_mismatch":
        return f"{name}: {value!r} is not a workload name", "use a-z, 0-9 and _, with / between folders"
    return f"{name}: {detail['msg'][0].lower()}{detail['msg'][1:]} (it is {value!r})", f"correct {name}"


def _unknown_key(location: Location, root: type[BaseModel]) -> tuple[str, str]:
    known = _known_at(location[:-1], root)
    name, near = str(location[-1]), _nearest(str(location[-1]), known)
    fix = f"did you mean {near!r}?" if near else f"remove it; known here: {', '.join(known)}"
    return f"unknown key {name!r}", fix


def _known_at(holder: Location, root: type[BaseModel]) -> list[str]:
    """The keys that stand below a place. Indexes are left out of the place. A mapping from names to sections has a name
    of the user's own in the place."""
    section: Any = root
    names = (part for part in holder if isinstance(part, str))
    for name in names:
        kind = keys_of(section).get(name)
        within = Layout if (section, name) == (ClusterSpec, "layout") else next(sections_in(kind), None)
        if within is None:
            return []
        section = within
        if get_origin(kind) is dict:
            next(names, None)
    return [*keys_of(section)]


def _nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that the user probably means, if a letter or a separator is wrong."""
    plain = {key.replace("_", "").lower(): key for key in known}
    matches = difflib.get_close_matches(word.replace("-", "").replace("_", "").lower(), plain, n=1, cutoff=0.6)
    return plain[matches[0]] if matches else None
