"""Recorded events as one HTML file that makes no request and needs no second file.

The page holds the events as a compact table: each string once, times as whole microseconds since the event before. The
script of the page unpacks the table, folds it into the logs of members at any moment, and draws what is in view. The
content security policy allows exactly this script, by its digest, and no connection to anywhere. The colours are those
of the reports.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any, Final

from reference_broker.worldpage.events import KINDS, WorldEvent

COLOURS: Final[Mapping[str, Mapping[str, str]]] = {
    "light": {
        "page": "#FFFFFF", "surface": "#F6F7F9", "ink": "#1B2128", "soft": "#57616D", "rule": "#D9DEE4",
        "grid": "#E9ECF0", "accent": "#004A9E", "warn": "#9A5200", "bad": "#B3201C", "good-wash": "#E8F0FA",
        "warn-wash": "#FDF1E1", "bad-wash": "#FCEBEA", "quorum": "#004A9E", "classic": "#834F00", "lazy": "#58A471",
        "mirrored": "#C264EA", "strict-ordered": "#3B282D",
    },
    "dark": {
        "page": "#14181D", "surface": "#1C2229", "ink": "#E6EAEF", "soft": "#9DA8B5", "rule": "#343D47",
        "grid": "#29313A", "accent": "#6FA8FF", "warn": "#F0A94B", "bad": "#FF8B82", "good-wash": "#1A2A40",
        "warn-wash": "#33281A", "bad-wash": "#3B2022", "quorum": "#3886FF", "classic": "#DD8E0C", "lazy": "#66FA91",
        "mirrored": "#DAB5FD", "strict-ordered": "#86706E",
    },
}  # fmt: skip
"""Colours by theme and token, as in the reports. Terms take the colours of queue types in turn."""

_PARTS: Final = ("events", "logs", "names", "words", "rows", "picture", "panel", "controls")
"""Files of the script, in the order in which the page runs them."""
_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_TIME_DIGITS: Final = 6


def head_of(events: Sequence[WorldEvent], *, title: str, text: str, command: str) -> WorldEvent:
    """The first event of a page: its title, an introduction, and the command that makes the events again."""
    fields = {"title": title, "text": text, "command": command, "total": len(events)}
    return WorldEvent(events[0].t if events else 0.0, "", "world", fields)


def page(events: Sequence[WorldEvent]) -> str:
    """The whole file as text. ``events`` are those that the page shows (:mod:`~reference_broker.worldpage.window`)."""
    head = next((each.fields for each in events if each.what == "world"), {})
    script = _script()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'"
    return Template(_own("page.html")).substitute(
        policy=f"{policy}; form-action 'none'",
        title=html.escape(head.get("title") or "A cluster"),
        text=_paragraphs(head.get("text") or ""),
        command=html.escape(head.get("command") or ""),
        style=style_sheet(),
        script=script,
        island=json.dumps(packed(events), ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES),
    )


def packed(events: Sequence[WorldEvent]) -> dict[str, Any]:
    """The events as a table: ``[microseconds since the event before, host, kind, *fields]``. Texts are their numbers
    among ``texts``; ``kinds`` name the fields, those that hold texts with a ``$`` before the name."""
    texts: dict[str, int] = {}
    kinds = {what: at for at, what in enumerate(KINDS)}
    rows, before = [], 0
    for event in events:
        now = round(event.t * 10**_TIME_DIGITS)
        rows.append([now - before, texts.setdefault(event.at, len(texts)), kinds[event.what], *_values(event, texts)])
        before = now
    named = [[what, *(_field(*each) for each in kind.fields.items())] for what, kind in KINDS.items()]
    return {"kinds": named, "texts": [*texts], "events": rows}


def _field(name: str, type_name: str) -> str:
    return {"str": "$", "float": "@"}.get(type_name, "") + name


def _values(event: WorldEvent, texts: dict[str, int]) -> list[Any]:
    types = KINDS[event.what].fields
    return [_value(event.fields[name], type_name, texts) for name, type_name in types.items()]


def _value(value: Any, type_name: str, texts: dict[str, int]) -> Any:
    if value is None:
        return None
    if type_name == "str":
        return texts.setdefault(value, len(texts))
    if type_name == "float":
        return round(value * 10**_TIME_DIGITS)
    return int(value) if type_name == "bool" else value


def style_sheet() -> str:
    """The style sheet, with the colours as custom properties. The reader's theme overrides the system's."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in COLOURS[theme].items()) for theme in COLOURS)
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=light]{{color-scheme:light;{light}}}:root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"{_own('page.css')}"
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{html.escape(each)}</p>" for each in text.split("\n\n") if each)


@cache
def _script() -> str:
    """The files of the script as one function, so that nothing of them is global."""
    return "(() => {\n" + "\n".join(_own(f"script/{part}.js") for part in _PARTS) + "})();"


@cache
def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
