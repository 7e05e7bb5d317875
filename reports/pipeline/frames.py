"""Arrow schemas and paths as Spark takes them."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

SPARK_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.binary(): BinaryType(),
}


def struct_of(arrow: pa.Schema) -> StructType:
    """Spark's form of an Arrow schema of the types in SPARK_TYPES."""
    return StructType([StructField(field.name, SPARK_TYPES[field.type], field.nullable) for field in arrow])


def escaped(path: str) -> str:
    """A path that Spark takes as it is: its readers take ``*?[]{}`` for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
