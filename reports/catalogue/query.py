"""SQL over the tables of a store, by DuckDB within this process.

A query sees the tables of :mod:`reports.store.schema` and nothing else: no file, no network, no variable of this
program. DuckDB reads only the tables that a query names, of them only the columns that it needs, and only the files and
row groups that its conditions leave: ``date`` names the files, and ``run_id`` the row groups. Times and units are in
the columns' descriptions (``perftest query --tables``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyarrow.dataset import Dataset

from reports.errors import QueryError
from reports.store.schema import TABLES
from reports.store.stored import DATE

Source = Callable[[str], Dataset]
"""Gives the table with this name, as it is stored."""

_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
}
"""Settings that keep a query, which may come from a chat or a dashboard, from reading the files of the person who runs
it."""

_STORED: Final = "_as_stored"
_COLUMNS: Final = {table.name: ", ".join(f'"{name}"' for name in (*table.names, DATE.name)) for table in TABLES}
"""The columns that a query sees of each table."""
_READS: Final = (duckdb.StatementType.SELECT,)


def run(sql: str, source: Source) -> pa.Table:
    """The answer to one SELECT.

    :raises QueryError: more or less than one SELECT, or a query that DuckDB refuses
    """
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        try:
            _check(connection.extract_statements(sql))
            for name in named(sql):
                connection.register(f"{name}{_STORED}", source(name))
                connection.execute(f"CREATE VIEW {name} AS SELECT {_COLUMNS[name]} FROM {name}{_STORED}")
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
