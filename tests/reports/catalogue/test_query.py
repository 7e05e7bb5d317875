"""A query sees the tables of the store, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from reports.catalogue import query
from reports.errors import QueryError
from reports.store.schema import LATENCY, TABLES

VALUES = {"run_id": ["a", "b"], "length_s": [1.5, 2.5], "delivered_per_s": [10.0, 30.0], "payload": ["p", "q"]}


class Source:
    """Remembers which columns of which tables were asked for; each table has two rows."""

    def __init__(self) -> None:
        self.asked: dict[str, list[str]] = {}

    def __call__(self, name: str, columns: Sequence[str]) -> pa.Table:
        self.asked[name] = list(columns)
        schema = {table.name: table.arrow for table in TABLES}[name]
        rows = {column: VALUES.get(column, pa.nulls(2, schema.field(column).type)) for column in columns}
        return pa.table(rows, pa.schema([schema.field(column).with_nullable(True) for column in columns]))


def test_a_query_reads_only_the_tables_that_it_names() -> None:
    source = Source()
    answer = query.run("SELECT max(length_s) AS longest FROM Runs -- not steps_", source)
    assert answer.to_pylist() == [{"longest": 2.5}]
    assert source.asked == {"runs": ["length_s"]}


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT count(*) FROM latency", ["run_id"]),
        ("SELECT max(payload) FROM latency WHERE run_id > 'a'", ["run_id", "payload"]),
        ("SELECT * FROM latency", list(LATENCY.names)),
        ("FROM latency", list(LATENCY.names)),
        ("SELECT l FROM latency AS l", list(LATENCY.names)),
        ("SELECT COLUMNS('p9.*_ns') FROM latency", ["p90_ns", "p95_ns", "p99_ns", "p999_ns", "p9999_ns"]),
        ("SELECT payload FROM latency WHERE false", ["run_id"]),
    ],
)
def test_a_query_reads_only_the_columns_that_it_needs(sql: str, columns: list[str]) -> None:
    """Payloads of thousands of runs are not read for a count of rows."""
    source = Source()
    query.run(sql, source)
    assert source.asked == {"latency": columns}


def test_columns_that_are_not_read_change_no_answer() -> None:
    """A filter, a join and an order need columns that are not in the answer."""
    sql = (
        "SELECT s.run_id FROM steps AS s JOIN runs AS r USING (run_id) WHERE s.delivered_per_s > 5 AND r.length_s < 3 "
        "ORDER BY s.delivered_per_s DESC"
    )
    assert query.run(sql, Source())["run_id"].to_pylist() == ["b", "a"]
    assert query.run("SELECT max(payload) AS m FROM latency", Source()).to_pylist() == [{"m": "q"}]


def test_tables_can_be_joined() -> None:
    source = Source()
    sql = 'WITH old AS (SELECT * FROM "runs") SELECT count(*) AS n FROM old JOIN steps USING (run_id)'
    assert query.run(sql, source).to_pylist() == [{"n": 2}]
    assert source.asked == {"runs": ["run_id"], "steps": ["run_id"]}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("", "there is no query"),
        ("-- nothing", "there is no query"),
        ("SELECT 1; SELECT 2", "not one SELECT"),
        ("COPY runs TO '{file}'", "not one SELECT"),
        ("SET enable_external_access = true", "not one SELECT"),
        ("INSTALL httpfs", "not one SELECT"),
        ("ATTACH '{file}'", "not one SELECT"),
        ("SELECT * FROM read_csv('{file}')", "disabled"),
        ("SELECT * FROM '{file}'", "does not exist"),
        ("SELECT * FROM read_text('{file}')", "disabled"),
        ("SELECT * FROM pa", "does not exist"),
        ("SELEC", "syntax error"),
        ("SELECT nothing FROM runs", "nothing"),
        ("SELECT 'x'::INT FROM runs", "Conversion Error"),
    ],
)
def test_what_is_refused_is_refused_in_a_sentence(tmp_path: Path, sql: str, reason: str) -> None:
    file = tmp_path / "secret"
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(QueryError, match=reason):
        query.run(sql.format(file=file), Source())
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
