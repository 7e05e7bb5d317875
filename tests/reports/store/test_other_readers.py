"""Other engines read a store as this project does: each joins with ``runs``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from deltalake import DeltaTable

from reports.store import publication
from tests.reports.store.testing.small_runs import lost, publish, small_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

JARS = "SPARK_DELTA_JARS"
"""Names the folder with the jars of delta-spark for this Spark, and of what it needs."""
QUESTION = "SELECT run_id, lost FROM ledger JOIN runs USING (run_id, publication) ORDER BY run_id"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with replaced runs, whose former rows are still there."""
    monkeypatch.setattr(publication, "remove_replaced", lambda *_: None)
    publish(tmp_path, small_run("a", 1), small_run("b", 1))
    publish(tmp_path, small_run("b", 2), small_run("c", 2))
    publish(tmp_path, small_run("b", 3))
    return tmp_path


def test_duckdb(place: Path) -> None:
    with duckdb.connect(":memory:") as connection:
        for name in ("runs", "ledger"):
            connection.register(name, DeltaTable(str(place / name)).to_pyarrow_dataset())
        assert dict(connection.sql(QUESTION).fetchall()) == lost(place) == {"a": 1, "b": 3, "c": 2}


def test_polars(place: Path) -> None:
    polars = pytest.importorskip("polars")
    runs = polars.scan_delta(str(place / "runs")).select("run_id", "publication")
    ledger = polars.scan_delta(str(place / "ledger")).join(runs, on=["run_id", "publication"])
    assert dict(ledger.select("run_id", "lost").collect().rows()) == lost(place)


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """A session of Spark that knows Delta tables."""
    from reports.pipeline.session import spark_session

    jars = [str(path) for path in Path(os.environ[JARS]).glob("*.jar")]
    settings = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    with spark_session("local[2]", settings) as session:
        yield session


@pytest.mark.slow
@pytest.mark.skipif(JARS not in os.environ, reason=f"{JARS} names no folder with jars of delta-spark")
def test_spark_sql(place: Path, spark: SparkSession) -> None:
    for name in ("runs", "ledger"):
        spark.read.format("delta").load(str(place / name)).createOrReplaceTempView(name)
    assert {row.run_id: row.lost for row in spark.sql(QUESTION).collect()} == lost(place)
