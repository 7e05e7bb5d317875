"""Data frames of the pipeline: their columns as Spark has them, rows the driver knows, and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StringType, StructField, StructType

from reports.store import schema
from reports.store.columns import Table

SPARK_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
}

NS: Final = 1e9

RUN_CONTEXT: Final = pa.schema(
    [("run_id", pa.string()), ("started_ns", pa.int64()), ("interval_ns", pa.int64()), ("background", pa.bool_())]
)
"""What the stages need of a run's manifest."""

HOST_CONTEXT: Final = pa.schema(
    [
        *(("run_id", pa.string()), ("host", pa.string())),
        *(("cores", pa.int64()), ("has_load", pa.bool_())),
    ]
)
"""The cores of each host, null where they are not known; whether it made load."""

PLANNED_STEPS: Final = schema.STEPS.part(
    *("run_id", "step", "group", "label", "settings", "duration_s", "warmup_s"),
    *(column.name for column in schema.SETTINGS),
).append(pa.field("open_loop", pa.bool_()))
"""The steps of the plans, of each group of load."""


def struct_of(arrow: pa.Schema) -> StructType:
    """Spark's form of an Arrow schema of the types in SPARK_TYPES."""
    return StructType([StructField(field.name, SPARK_TYPES[field.type], field.nullable) for field in arrow])


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Exactly the table's columns, in its order and types.

    Spark reconciles with the whole structure in one call; columns are nullable to it, because it cannot know that a
    sum over existing rows is never null. Tests check the columns that must not be null.
    """
    return frame.to(nullable(struct_of(table.arrow)))


def nullable(structure: StructType) -> StructType:
    """The same columns, all of which may be null."""
    return StructType([StructField(field.name, field.dataType, True) for field in structure])


def rows_frame(spark: SparkSession, rows: Sequence[dict[str, Any]], arrow: pa.Schema) -> DataFrame:
    """Rows that the driver knows, such as those of manifests."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), arrow))


def since_start(t_ns: str) -> Column:
    """Seconds since the run started."""
    return (F.col(t_ns) - F.col("started_ns")) / F.lit(NS)
