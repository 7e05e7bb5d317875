"""SQL over the tables of a store, by DuckDB within this process.

A query sees the tables of :mod:`reports.store.schema` and nothing else: no file, no network, no variable of this
program. A table is read only if the query names it, and a column only if the query needs it: DuckDB says which columns
it would scan of the tables without rows, and again of the tables that are asked. Times and units are in the columns'
descriptions (``perftest query --tables``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from reports.errors import QueryError
from reports.store.columns import TableSpec
from reports.store.schema import TABLES

Source = Callable[[str, Sequence[str]], pa.Table]
"""Gives these columns of the table with this name."""

_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
}
"""Settings that keep a query, which may come from a chat or a dashboard, from reading the files of the person who runs
it."""

_READS: Final = (duckdb.StatementType.SELECT,)


def run(sql: str, source: Source) -> pa.Table:
    """The answer to one SELECT.

    :raises QueryError: more or less than one SELECT, or a query that DuckDB refuses
    """
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        try:
            _check(connection.extract_statements(sql))
            _register(connection, sql, source)
            answer: pa.Table = connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(_first_line(error), "the query", "see the tables: `perftest query --tables`") from error
    return answer


def named(sql: str) -> list[str]:
    """The tables whose names stand in the query, in quotes or not."""
    words = set(re.findall(r"[a-z_]+", sql.lower()))
    return [table.name for table in TABLES if table.name in words]


def _register(connection: duckdb.DuckDBPyConnection, sql: str, source: Source) -> None:
    """Make the tables that the query names known to the connection, with the columns that the query scans. A column
    that is not scanned is there, too, for look-ups of its name, but has no values."""
    wanted = [table for table in TABLES if table.name in named(sql)]
    for table in wanted:
        connection.register(table.name, table.arrow.empty_table())
    scanned = _scanned(connection, sql)
    for table in wanted:
        columns = [name for name in table.names if name in scanned] or [table.names[0]]
        connection.register(table.name, _whole(source(table.name, columns), table))
    if not _scanned(connection, sql) <= scanned:  # with rows, DuckDB has another plan
        for table in wanted:
            connection.register(table.name, source(table.name, table.names))


def _scanned(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The columns that the plan of a query reads, of all tables together."""
    plans = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
    return {name for _, plan in plans for node in json.loads(plan) for name in _scans(node)}


def _scans(node: dict[str, Any]) -> Iterator[str]:
    if "SCAN" in node["name"]:
        told = node["extra_info"].get("Projections", [])
        yield from [told] if isinstance(told, str) else told
    for child in node["children"]:
        yield from _scans(child)


def _whole(rows: pa.Table, table: TableSpec) -> pa.Table:
    """The rows with all columns of their table; columns that were not read are null."""
    read = {name: rows[name] for name in rows.column_names}
    return pa.table({field.name: read.get(field.name, pa.nulls(len(rows), field.type)) for field in table.arrow})


def _check(statements: Iterable[Any]) -> None:
    found = list(statements)
    if len(found) != 1 or found[0].type not in _READS:
        what = "there is no query" if not found else "this is not one SELECT"
        raise QueryError(what, "the query", 'write one, such as "SELECT run_id, name FROM runs"')


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
