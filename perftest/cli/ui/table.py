"""Tables as plain text: aligned columns, never cut, the same in a terminal, a file and a mail."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final

import click

DOUBTFUL: Final = "~"
"""In front of a percentile that has too few samples above it."""
AT_MOST: Final = "≤"
"""Mark before a percentile that the clocks of several hosts leave uncertain: the figure is the most that it can be."""
_GAP: Final = "  "


def print_table(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Rows to stdout, as a table whose header is the keys, or as a JSON array."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=1, ensure_ascii=False, default=str))
    else:
        click.echo(render(rows))


def render(rows: Sequence[dict[str, Any]]) -> str:
    """The table as text; numbers are aligned right, words left. ``group|name`` puts ``group`` over its columns."""
    if not rows:
        return "(none)"
    keys = list(rows[0])
    names = [key.rpartition("|")[2] for key in keys]
    cells = [[_cell(row.get(key)) for key in keys] for row in rows]
    right = [all(_is_number(row.get(key)) for row in rows) for key in keys]
    widths = [max(len(name), *(len(line[column]) for line in cells)) for column, name in enumerate(names)]
    groups = _groups([key.rpartition("|")[0] for key in keys], widths)
    lines = [groups] if groups else []
    lines += [_line(names, widths, right)]
    lines += [_line(line, widths, right) for line in cells]
    return "\n".join(lines)


def _groups(names: Sequence[str], widths: Sequence[int]) -> str:
    """The line above the header, each group in the middle of its columns, which are one behind the other."""
    parts = []
    for name, columns in itertools.groupby(zip(names, widths, strict=True), key=lambda column: column[0]):
        spans = [width for _, width in columns]
        parts.append(name.center(sum(spans) + len(_GAP) * (len(spans) - 1)))
    return _GAP.join(parts).rstrip()


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value)


def _is_number(value: object) -> bool:
    """Whether a cell is a number, also one that was formatted for reading (``12,345`` or ``0.25``)."""
    if value is None or isinstance(value, int | float):
        return not isinstance(value, bool)
    return (
        isinstance(value, str)
        and value.removeprefix(DOUBTFUL)
        .removeprefix(AT_MOST)
        .replace(",", "")
        .replace(".", "", 1)
        .replace("-", "")
        .isdigit()
    )
