"""Jobs of Spark: lots of things in, rows of an Arrow schema out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from reports.pipeline.lots import worked
from reports.store.columns import Batches

SPARK_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.binary(): BinaryType(),
}

T = TypeVar("T")


def struct_of(arrow: pa.Schema) -> StructType:
    """Spark's form of an Arrow schema of the types in SPARK_TYPES."""
    return StructType([StructField(field.name, SPARK_TYPES[field.type], field.nullable) for field in arrow])


def spread(
    spark: SparkSession, lots: Sequence[Sequence[T]], work: Callable[[Iterable[T]], Batches], rows: pa.Schema
) -> DataFrame:
    """The rows of ``work`` for each lot, which is one task."""
    shared = spark.sparkContext.broadcast(lots)
    numbers = spark.range(0, len(lots), 1, numPartitions=len(lots))
    return numbers.mapInArrow(partial(worked, lots=shared, work=work), struct_of(rows))
