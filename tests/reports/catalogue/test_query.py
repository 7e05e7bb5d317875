"""A query sees the tables of the store, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as datasets
import pyarrow.parquet as parquet
import pytest

from reports.catalogue import query
from reports.errors import QueryError
from reports.store.schema import LATENCY
from reports.store.stored import DATE, STORED

VALUES = {"run_id": ["a", "b"], "length_s": [1.5, 2.5], "delivered_per_s": [10.0, 30.0], "payload": ["p", "q"]}


class Source:
    """Remembers which tables were asked for; each table has two rows."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, name: str) -> datasets.Dataset:
        self.asked.append(name)
        return datasets.dataset(rows_of(name))


def rows_of(name: str) -> pa.Table:
    fields = [field.with_nullable(True) for field in STORED[name].arrow]
    columns = {field.name: VALUES.get(field.name, pa.nulls(2, field.type)) for field in fields}
    return pa.table(columns, pa.schema(fields))


def test_a_query_reads_only_the_tables_that_it_names() -> None:
    source = Source()
    answer = query.run("SELECT max(length_s) AS longest FROM Runs -- not steps_", source)
    assert answer.to_pylist() == [{"longest": 2.5}] and source.asked == ["runs"]


def test_a_query_reads_only_the_columns_that_it_needs(tmp_path: Path) -> None:
    """Payloads of thousands of runs are not read for a count of rows; a spoiled one shows whether they are."""
    file = tmp_path / "latency.parquet"
    parquet.write_table(rows_of("latency"), file, compression="none")
    chunk = parquet.read_metadata(file).row_group(0).column(STORED["latency"].names.index("payload"))
    octets = bytearray(file.read_bytes())
    begin = chunk.dictionary_page_offset
    octets[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    file.write_bytes(octets)

    def source(_name: str) -> datasets.Dataset:
        return datasets.dataset(file)

    for sql in ("SELECT count(*) AS n FROM latency", "SELECT count(run_id) AS n FROM latency WHERE run_id < 'x'"):
        assert query.run(sql, source).to_pylist() == [{"n": 2}]
    for sql in ("SELECT max(payload) FROM latency", "FROM latency"):
        with pytest.raises(QueryError):
            query.run(sql, source)


def test_a_table_has_its_columns_and_the_date() -> None:
    assert query.run("FROM latency", Source()).column_names == [*LATENCY.names, DATE.name]


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
    assert sorted(source.asked) == ["runs", "steps"]


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
