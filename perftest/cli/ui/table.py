"""Tables as plain text: aligned columns, never cut, the same in a terminal, a file and a mail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click


def print_table(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Rows to stdout, as a table whose header is the keys, or as a JSON array."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=1, ensure_ascii=False, default=str))
    else:
        click.echo(render(rows))


def render(rows: Sequence[dict[str, Any]]) -> str:
    """The table as text; numbers are aligned right, words left."""
    if not rows:
        return "(none)"
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    right = [all(_is_number(row.get(name)) for row in rows) for name in names]
    widths = [max(len(name), *(len(line[column]) for line in cells)) for column, name in enumerate(names)]
    lines = [_line(names, widths, right)]
    lines += [_line(line, widths, right) for line in cells]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


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
    return isinstance(value, str) and value.replace(",", "").replace(".", "", 1).replace("-", "").isdigit()
