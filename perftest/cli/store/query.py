"""``perftest query``: SQL over the tables of a store."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.extras import require
from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.cli.store.catalogue import store_option
from perftest.exits import CliError, Exit, explained

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED),
    examples=(
        'perftest query "SELECT run_id, name, length_s FROM runs ORDER BY started_ns DESC LIMIT 10"',
        'perftest query "SELECT run_id, e2e_p99_ns/1e6 AS p99_ms FROM steps WHERE in_flight = 200" --csv',
        "perftest query --tables steps    the columns of a table, with their units",
    ),
)
@click.argument("sql", required=False)
@store_option
@option("--tables", section="Output", is_flag=True, help="Describe the tables, or the columns of the table SQL names.")
@option("--csv", "as_csv", section="Output", is_flag=True, help="Print CSV instead of a table.")
@option(
    "--out", section="Output", type=click.Path(path_type=Path, dir_okay=False), help="Write the rows to a Parquet file."
)
@json_option
def query(sql: str | None, store: str, tables: bool, as_csv: bool, out: Path | None, as_json: bool) -> None:
    """Ask the report tables of many runs in SQL (DuckDB's), read-only.

    Columns that end in _ns are nanoseconds, in _s seconds, in _bytes octets, in _percent 0 to 100. Put runs into the
    store with `perftest runs read` or `perftest report`.
    """
    require("report", "a query")
    if tables:
        _describe(sql, as_json=as_json)
        return
    if not sql:
        raise CliError("no query was given", "SQL", 'write one: perftest query "SELECT name FROM runs"', Exit.USAGE)
    from reports.catalogue import query as catalogue
    from reports.store.store import asked

    answer = asked(store, lambda tables: catalogue.run(sql, tables))
    if out is not None:
        _write(answer, out)
    elif as_csv:
        _print_csv(answer)
    else:
        _print(answer, as_json=as_json)


def _describe(name: str | None, *, as_json: bool) -> None:
    """The tables with their grain; or the columns of one table."""
    from perftest.cli.ui.table import print_table
    from reports.store.schema import TABLES
    from reports.store.stored import DATE

    if name is None:
        print_table([{"table": each.name, "rows": each.grain} for each in TABLES], as_json=as_json)
        return
    found = next((each for each in TABLES if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in TABLES)
        raise CliError(f"there is no table {name!r}", "perftest query --tables", f"name one of {known}", Exit.USAGE)
    rows = [
        {
            "column": each.name,
            "type": str(each.type),
            "unit": each.unit,
            "null": "may be null" if each.nullable else "",
            "meaning": each.doc,
        }
        for each in (*found.columns, DATE)
    ]
    print_table(rows, as_json=as_json)


def _print(answer: pa.Table, *, as_json: bool) -> None:
    from perftest.cli.ui.table import print_table

    rows: list[dict[str, Any]] = answer.to_pylist()
    print_table(rows, as_json=as_json)


def _print_csv(answer: pa.Table) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(answer, sys.stdout.buffer)


def _write(answer: pa.Table, out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    with explained("the rows cannot be written", out, "name a file in a directory that can be written to"):
        try:
            pyarrow.parquet.write_table(answer, out, compression="zstd")
        except pa.ArrowException as error:
            raise CliError(f"the rows cannot be written: {error}", str(out), "name each column once") from error
    click.echo(json.dumps({"rows": answer.num_rows, "file": str(out)}), err=True)
