"""What a client may ask of every list: pages, names, order, columns (``?page=1&name=x&sort=name&columns=a,b``)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from reference_broker import patterns
from reference_broker.management.errors import BAD_REQUEST, ApiError
from reference_broker.management.shapes import Row

_PAGE_SIZE: Final = 100
_PAGE_SIZE_MAX: Final = 500
_ROWS_A_TURN: Final = 25
"""Rows whose names are compared between two turns of the event loop: a name may take a fifth of a millisecond."""


async def listed(rows: list[Row], query: Mapping[str, str]) -> Any:
    """The rows as asked for: a list, or with ``page`` an object with that page. Raises :class:`ApiError`."""
    total = len(rows)
    if name := query.get("name"):
        rows = await _named(rows, name, is_pattern=query.get("use_regex") == "true")
    if sort := query.get("sort"):
        rows = sorted(rows, key=lambda row: _key(_at(row, sort)), reverse=query.get("sort_reverse") == "true")
    if "page" in query:
        return _page(rows, total, query)
    return with_columns(rows, query)


def with_columns(rows: list[Row], query: Mapping[str, str]) -> list[Row]:
    """The rows with the ``columns`` that were asked for, or all."""
    names = [name for name in query.get("columns", "").split(",") if name]
    if not names:
        return rows
    return [{name: _at(row, name) for name in names if _at(row, name) is not None} for row in rows]


def _page(rows: list[Row], total: int, query: Mapping[str, str]) -> Row:
    page, size = _number(query, "page", 1), _number(query, "page_size", _PAGE_SIZE)
    if size > _PAGE_SIZE_MAX:
        raise ApiError(BAD_REQUEST, f"page_size {size}: at most {_PAGE_SIZE_MAX}")
    pages = max(1, -(-len(rows) // size))
    if page > pages:
        raise ApiError(BAD_REQUEST, f"page {page}: there are {pages}")
    items = with_columns(rows[(page - 1) * size : page * size], query)
    return {
        "total_count": total, "filtered_count": len(rows), "item_count": len(items), "page": page, "page_count": pages,
        "page_size": size, "items": items,
    }  # fmt: skip


def _number(query: Mapping[str, str], key: str, default: int) -> int:
    text = query.get(key, str(default))
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise ApiError(BAD_REQUEST, f"{key} {text!r} is no number from 1")
    return int(text)


async def _named(rows: list[Row], name: str, *, is_pattern: bool) -> list[Row]:
    fits, found = _fitting(name) if is_pattern else _containing(name), []
    for number, row in enumerate(rows, start=1):
        if fits(str(row.get("name", ""))):
            found.append(row)
        if number % _ROWS_A_TURN == 0:
            await asyncio.sleep(0)  # messages have their turn
    return found


def _fitting(pattern: str) -> Callable[[str], bool]:
    if problem := patterns.problem_with(pattern, ignores_case=True):
        raise ApiError(BAD_REQUEST, f"name {pattern!r} is no regular expression: {problem}")
    return partial(patterns.finds, pattern, ignores_case=True)


def _containing(part: str) -> Callable[[str], bool]:
    sought = part.lower()
    return lambda name: sought in name.lower()


def _at(row: Row, path: str) -> Any:
    """The value at a path such as ``queue.name``."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _key(value: Any) -> tuple[bool, float, str]:
    """An order for values of any kind: numbers, then texts."""
    if isinstance(value, bool | int | float):
        return False, float(value), ""
    return True, 0.0, "" if value is None else str(value)
