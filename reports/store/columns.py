"""The parts of a table: columns of few types, each with its meaning in words, and the Arrow schema of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

import pyarrow as pa

Row = dict[str, Any]
Batches = Iterator[pa.RecordBatch]
"""Input and output of Spark's Python workers. A ``mapInArrow`` function must cope with an iterator without a batch."""


class Type(StrEnum):
    """The few column types that are used, so that each has one obvious Arrow and one obvious Spark form."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"


ARROW_TYPES: Final = {Type.TEXT: pa.string(), Type.INT: pa.int64(), Type.FLOAT: pa.float64(), Type.BOOL: pa.bool_()}


UNIX_TIMES: Final = ("start_ns", "started_ns", "ended_ns", "t_ns")
_UNITS: Final = {
    "bits_per_s": "bit/s",
    "bytes_per_s": "B/s",
    "bytes_per_message": "B/msg",
    "us_per_message": "µs/msg",
    "_per_s": "1/s",
    "_ns": "ns",
    "_s": "s",
    "bytes": "B",
    "percent": "%",
    "percentile": "%",
    "_ppm": "ppm",
    "_cpu_share": "cores",
}
"""The unit of a number by the end of its column's name; the first that fits."""


class ColumnSpec(NamedTuple):
    """One column; ``nullable`` columns may have no value, and ``doc`` says when."""

    name: str
    type: Type
    doc: str
    nullable: bool = False

    @property
    def unit(self) -> str:
        """The unit of the column's numbers; empty for numbers that count something, and for all else."""
        if self.type not in (Type.INT, Type.FLOAT):
            return ""
        if self.name in UNIX_TIMES:
            return "ns since 1970, UTC"
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), "")


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One table: its grain in words and its columns. ``order`` sorts the rows a reader gets."""

    name: str
    grain: str
    columns: tuple[ColumnSpec, ...]
    order: tuple[str, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, column by column."""
        return pa.schema([pa.field(c.name, ARROW_TYPES[c.type], c.nullable) for c in self.columns])

    @cached_property
    def empty(self) -> pa.Table:
        """No row. Arrow makes an array for each column, so an empty table costs as much as a small one."""
        return self.arrow.empty_table()

    def part(self, *names: str) -> pa.Schema:
        """The Arrow schema of some columns."""
        return pa.schema([self.arrow.field(name) for name in names])

    def without(self, *names: str) -> pa.Schema:
        """The Arrow schema of all other columns."""
        return self.part(*(name for name in self.names if name not in names))

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(column.name for column in self.columns)


def table_of_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table; missing values are null.

    ``pa.Table.from_pylist`` goes through the rows once for each column, in twice the time.
    """
    return pa.Table.from_struct_array(pa.array(rows, pa.struct(schema)))


def text(name: str, doc: str, nullable: bool = False) -> ColumnSpec:
    """A column of texts."""
    return ColumnSpec(name, Type.TEXT, doc, nullable)


def integer(name: str, doc: str, nullable: bool = False) -> ColumnSpec:
    """A column of whole numbers of 64 bits."""
    return ColumnSpec(name, Type.INT, doc, nullable)


def real(name: str, doc: str, nullable: bool = False) -> ColumnSpec:
    """A column of numbers of double precision."""
    return ColumnSpec(name, Type.FLOAT, doc, nullable)


def flag(name: str, doc: str, nullable: bool = False) -> ColumnSpec:
    """A column of yes or no."""
    return ColumnSpec(name, Type.BOOL, doc, nullable)
