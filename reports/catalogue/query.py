"""SQL over the tables of a store, by DuckDB within this process.

A query sees the tables of :mod:`reports.store.schema` and nothing else: no file, no network, no variable of this
program. A table is read only if the query names it. Times and units are those of the columns' descriptions
(``perftest query --tables``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import duckdb
import pyarrow as pa

from reports.errors import QueryError
from reports.store.schema import TABLES

Source = Callable[[str], Any]
"""Gives the Arrow table or dataset of the table with this name."""

_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
}
"""A query that comes from a chat or a dashboard must not read the files of the person who runs it."""

_READS: Final = (duckdb.StatementType.SELECT,)


def run(sql: str, source: Source) -> pa.Table:
    """The answer to one SELECT.

    :raises QueryError: more or less than one SELECT, or a query that DuckDB refuses
    """
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        try:
            _check(connection.extract_statements(sql))
            for name in named(sql):
                connection.register(name, source(name))
            answer: pa.Table = connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(_first_line(error), "the query", "see the tables: `perftest query --tables`") from error
    return answer


def named(sql: str) -> list[str]:
    """The tables whose names stand in the query, in quotes or not."""
    words = set(re.findall(r"[a-z_]+", sql.lower()))
    return [table.name for table in TABLES if table.name in words]


def _check(statements: Iterable[Any]) -> None:
    found = list(statements)
    if len(found) != 1 or found[0].type not in _READS:
        what = "there is no query" if not found else "this is not one SELECT"
        raise QueryError(what, "the query", 'write one, such as "SELECT run_id, name FROM runs"')


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
