"""Lines of ``intervals.csv``: one interval of one worker, with PerfTest's columns first.

PerfTest's columns are rates and latencies that follow from the other columns and from the histograms. Nobody reads them
back: the run's reader and the report's pipeline parse our own columns only.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from perftest.metrics.histogram import Histogram, SparseCounts
from perftest.metrics.interval import Interval, Series
from perftest.results import schema
from perftest.results.errors import LineError
from perftest.results.hlog import phase_of, step_number, whole_number

HEADER: Final = ",".join(schema.PERFTEST_COLUMNS + schema.OWN_COLUMNS) + "\n"
COUNT_COLUMNS: Final = tuple(name for name in schema.OWN_COLUMNS if name not in schema.TEXT_COLUMNS)


Latencies = Mapping[Series, Histogram] | Mapping[Series, SparseCounts]


def csv_line(record: Interval, latencies: Latencies, run: str, started_ns: int, unit_ns: int = 1000) -> str:
    """A line of ``intervals.csv``: PerfTest's columns, with the latencies in units of ``unit_ns``, then ours."""
    end_s = (record.start_ns + record.length_ns - started_ns) / 1e9
    rates = (record.published, record.returned, record.confirmed, record.nacked, record.handled)
    values: list[object] = [run, f"{end_s:.3f}"]
    values += [f"{count * 1e9 / record.length_ns:.1f}" if record.length_ns else "0.0" for count in rates]
    values += [*_latency(latencies.get(Series.E2E), unit_ns), *_latency(latencies.get(Series.CONFIRM), unit_ns)]
    values += [getattr(record, name) for name in schema.OWN_COLUMNS]
    return ",".join(str(value) for value in values) + "\n"


def cells_of(text: str) -> list[str]:
    """The cells of a line. Raises LineError."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise LineError(f"not CSV: {error}") from error


def missing_columns(header: Sequence[str]) -> list[str]:
    """Our own columns that a file with this header lacks, except columns that runs of earlier versions do not have."""
    return [name for name in schema.OWN_COLUMNS if name not in (*header, *schema.LATER_COLUMNS)]


def parser(header: Sequence[str]) -> Callable[[str], dict[str, Any] | None]:
    """A function that parses the lines of a file with these columns: our own columns of a line, by name.

    The function gives None for a repeated header, and raises LineError. A column that runs of earlier versions do not
    have is 0 or empty.
    """
    missing = missing_columns(header)
    index = {name: header.index(name) for name in schema.OWN_COLUMNS if name in header}

    def parse(text: str) -> dict[str, Any] | None:
        cells = cells_of(text)
        if cells == header:
            return None
        if missing:
            raise LineError(f"columns are missing: {', '.join(missing)}")
        if len(cells) != len(header):
            raise LineError(f"{len(cells)} cells under {len(header)} columns")
        found: dict[str, Any] = {name: cells[index[name]] if name in index else "" for name in schema.TEXT_COLUMNS}
        found |= {name: whole_number(name, cells[index[name]]) if name in index else 0 for name in COUNT_COLUMNS}
        phase_of(found["phase"])
        step_number(str(found["step"]))
        if found["length_ns"] <= 0:
            raise LineError(f"length_ns is {found['length_ns']}")
        negative = [name for name in COUNT_COLUMNS if found[name] < 0]
        if negative:
            raise LineError(f"{negative[0]} is negative: {found[negative[0]]}")
        return found

    return parse


def write_parquet(path: Path) -> bool:
    """``intervals.parquet`` from ``intervals.csv``, typed; False, and nothing is written, where pyarrow is not
    installed."""
    if find_spec("pyarrow") is None:
        return False
    # pyarrow takes 0.2 s to import: only here, after the measurement.
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    text = {"id", *schema.TEXT_COLUMNS}
    types = {name: pa.string() if name in text else pa.int64() for name in schema.OWN_COLUMNS}
    types |= {name: pa.string() if name in text else pa.float64() for name in schema.PERFTEST_COLUMNS}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    table = pyarrow.csv.read_csv(path / schema.INTERVALS_CSV, convert_options=options)
    beside = path / f".{schema.INTERVALS_PARQUET}.new"
    pyarrow.parquet.write_table(table, beside, compression="zstd")
    beside.replace(path / schema.INTERVALS_PARQUET)
    return True


def _latency(histogram: Histogram | SparseCounts | None, unit_ns: int) -> list[str]:
    """min, median, 75th, 95th and 99th percentile in whole units; empty when nothing was measured."""
    if histogram is None or not histogram.total:
        return [""] * 5
    values = (histogram.min_ns, *histogram.percentiles_ns((50.0, 75.0, 95.0, 99.0)))
    return [str(value // unit_ns) for value in values]
