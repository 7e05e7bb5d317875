"""Parquet files of a publication, as executors write them: rows of many runs in one file per table and date.

All rows of a run lie together. A row group ends between two runs, at most a few runs after it has GROUP_ROWS rows or
GROUP_BYTES octets in memory. So the statistics of ``run_id`` say which groups a reader of one run needs, and a file of
thousands of small runs does not consist of thousands of groups. No file counts before the driver names it in a
transaction: a task that is tried again leaves files that nobody sees.

delta-rs is not imported here: executors need only Arrow.
"""

from __future__ import annotations

import secrets
import time
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.fs as arrow_fs
import pyarrow.parquet as parquet

from reports.store.locations import StoreLocation
from reports.store.run_tables import RunTables
from reports.store.schema import RUNS
from reports.store.stored import DATE, PUBLICATION, REPLACED, SIGNATURE, STORED, conformed, date_of

FILE_BYTES: Final = 128 * 1024 * 1024
"""Octets at which a file takes no more runs."""
GROUP_ROWS: Final = 8192
GROUP_BYTES: Final = 1024 * 1024
GROUP_ROWS_MAX: Final = 256 * 1024
"""Most rows of a row group: a larger run has several groups."""


class PartFile(NamedTuple):
    """A file that was written. ``path`` is relative to the folder of its table; ``runs``: least and greatest id."""

    table: str
    path: str
    octets: int
    rows: int
    date: str
    runs: tuple[str, str]
    modified_ms: int


class PartFiles:
    """Writes rows of runs to files of their own. Not for several threads; all calls but ``close`` may raise OSError."""

    def __init__(self, location: StoreLocation, publication: str) -> None:
        self._location = location
        self._publication = publication
        self._open: dict[tuple[str, str], _Part] = {}
        self._done: list[PartFile] = []

    def add(self, run: RunTables) -> dict[str, int]:
        """Write the rows of a run; their number in each table that has any."""
        date, counts = date_of(run.started_ns), {}
        for name, rows in run.tables.items():
            if not len(rows):
                continue
            if name == RUNS.name:
                rows = _with(_with(rows, SIGNATURE.name, run.signature), REPLACED.name, "")
            part = self._open.get((name, date))
            if part is None:
                part = self._open[name, date] = _Part(self._location, name, date, self._publication)
            part.add(rows)
            counts[name] = len(rows)
            if part.octets >= FILE_BYTES:
                self._done.append(self._open.pop((name, date)).finish())
        return counts

    def finish(self) -> list[PartFile]:
        """Close all files; what was written."""
        while self._open:
            self._done.append(self._open.popitem()[1].finish())
        return self._done

    def discard(self) -> None:
        """Remove all files, as far as that is possible: vacuum takes the rest."""
        for part in self._open.values():
            part.close()
        remove(self._location, [*self._done, *(part.unfinished() for part in self._open.values())])


class _Part:
    """A file that is being written."""

    def __init__(self, location: StoreLocation, table: str, date: str, publication: str) -> None:
        self._table, self._date, self._publication = table, date, publication
        self._schema = STORED[table].without(DATE.name)
        self._own = STORED[table].without(DATE.name, PUBLICATION.name)
        folder = f"{DATE.name}={date}/" if date else ""
        self._path = f"{folder}{publication}-{secrets.token_hex(4)}.parquet"
        system = location.system_of(table)
        if folder and not isinstance(location.files[0], arrow_fs.S3FileSystem):
            system.create_dir(folder, recursive=True)
        self._sink = system.open_output_stream(self._path)
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="zstd", write_page_index=False)
        self._held: list[pa.Table] = []
        self._held_rows = self._held_bytes = self._rows = 0
        self._least = self._greatest = ""

    @property
    def octets(self) -> int:
        """Octets that were written so far, without the rows that are held."""
        return int(self._sink.tell())

    def add(self, rows: pa.Table) -> None:
        """Add the rows of one run."""
        self._held.append(conformed(rows, self._own))
        self._held_rows += len(rows)
        # As large as what the rows refer to; the exact size of a table with a hundred columns takes a third of a ms.
        self._held_bytes += rows.get_total_buffer_size()
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._flush()

    def add_stored(self, rows: pa.Table) -> None:
        """Write rows that have all columns of the file already."""
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema), GROUP_ROWS_MAX)
        self._rows += len(rows)
        if "run_id" in rows.column_names:
            bounds = compute.min_max(rows["run_id"]).as_py()
            self._least = min(self._least or bounds["min"], bounds["min"])
            self._greatest = max(self._greatest, bounds["max"])

    def _flush(self) -> None:
        if self._held:
            self.add_stored(_with(pa.concat_tables(self._held), PUBLICATION.name, self._publication))
            self._held, self._held_rows, self._held_bytes = [], 0, 0

    def finish(self) -> PartFile:
        """Write the rest and close the file."""
        self._flush()
        self._writer.close()
        octets = self.octets
        self._sink.close()
        return self.unfinished()._replace(octets=octets)

    def close(self) -> None:
        """Close the file as it is."""
        self._writer.close()
        self._sink.close()

    def unfinished(self) -> PartFile:
        """The file without its size."""
        runs = self._least, self._greatest
        return PartFile(self._table, self._path, 0, self._rows, self._date, runs, time.time_ns() // 10**6)


def remove(location: StoreLocation, files: list[PartFile]) -> None:
    """Remove files that no transaction names, as far as that is possible: vacuum takes the rest."""
    for file in files:
        try:
            location.system_of(file.table).delete_file(file.path)
        except OSError:
            continue


def _with(rows: pa.Table, name: str, value: str) -> pa.Table:
    """The rows with one more column, of one value."""
    return rows.append_column(pa.field(name, pa.string(), nullable=False), pa.repeat(value, len(rows)))


def write_rows(location: StoreLocation, table: str, rows: pa.Table, publication: str) -> list[PartFile]:
    """Write stored rows, with all columns of their table, to new files: one for each date.

    :raises OSError: a file cannot be written
    """
    if DATE.name not in rows.column_names:
        return [_whole(location, table, rows, publication, "")] if len(rows) else []
    found = []
    for date in compute.unique(rows[DATE.name]).to_pylist():
        own = rows.filter(compute.equal(rows[DATE.name], date)).drop_columns([DATE.name])
        found.append(_whole(location, table, own, publication, date))
    return found


def _whole(location: StoreLocation, table: str, rows: pa.Table, publication: str, date: str) -> PartFile:
    part = _Part(location, table, date, publication)
    part.add_stored(rows)
    return part.finish()
