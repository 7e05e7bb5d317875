"""A query sees the tables of the store, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from reports.catalogue import query
from reports.errors import QueryError

RUNS = pa.table({"run_id": ["a", "b"], "length_s": [1.5, 2.5]})


class Source:
    """Remembers which tables were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, name: str) -> pa.Table:
        self.asked.append(name)
        return RUNS


def test_a_query_reads_only_the_tables_that_it_names() -> None:
    source = Source()
    answer = query.run("SELECT max(length_s) AS longest FROM Runs -- not steps_", source)
    assert answer.to_pylist() == [{"longest": 2.5}]
    assert source.asked == ["runs"]


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
