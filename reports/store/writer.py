"""The writer of a store: takes in runs one by one, and publishes all of them at once.

Rows wait on the local disk until there are enough for files of FILE_BYTES: memory holds one run and one row group,
however many runs there are. A *spool* holds the rows of the runs of one date and experiment, as Arrow streams one after
the other. A full spool becomes a batch in the store; the rest become batches when they are published.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from perftest.errors import HelpfulError
from perftest.results.folder import Folder
from reports.errors import RunChoiceError, StoreError
from reports.store.batches import SCHEMAS, batch_rows, conformed, write_file
from reports.store.commit import MANIFESTS, Surroundings, commit, unreadable, unwritable
from reports.store.manifest import (
    FILE_BYTES,
    TABLES_FOLDER,
    StoreChange,
    StoredBatch,
    StoredRun,
    StoreManifest,
    compaction,
)
from reports.store.run_tables import LeftOut, RunTables

UNNAMED_NS: Final = 24 * 3600 * 10**9
"""Age at which a file that no manifest names is taken for the rest of a writer that died, in nanoseconds."""
WRITING_S_MAX: Final = 12 * 3600
"""Longest time from a writer's first file to its publication: half of UNNAMED_NS."""
COMPRESSED_BYTES_MIN: Final = 64 * 1024
"""Rows of fewer octets are spooled as they are: compressing each column would cost more than it saves."""
HELD_RUNS: Final = 16
"""Runs whose rows are spooled together: a stream of its own costs a run of seconds more than the rows in it."""
HELD_ROWS: Final = 1024
"""Rows of a table from which on a run is spooled at once."""
SWEEP_EVERY: Final = 32
"""Publications from one sweep to the next: a sweep lists the whole store, to remove files that nothing names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a publication: rows per table in the store, of its runs only. ``upkeep_problem``: why small files
    could not be brought together, if they could not; the publication stands."""

    number: int
    runs: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    rows: Mapping[str, int]
    upkeep_problem: str | None = None


class TableWriter:
    """Takes in runs and publishes them at once. Not for several threads."""

    def __init__(self, folder: Folder, surroundings: Surroundings) -> None:
        self._folder = folder
        self._around = surroundings
        self._local = tempfile.TemporaryDirectory(prefix="perftest-store-", ignore_cleanup_errors=True)
        self._spools: dict[tuple[str, str], _Spool] = {}
        self._uploads = _Uploads(folder, Path(self._local.name), surroundings)
        self._runs: dict[str, str] = {}
        self._left_out: dict[str, LeftOut] = {}
        self._rows: Counter[str] = Counter(dict.fromkeys(SCHEMAS, 0))

    def probe(self) -> None:
        """Write a file and remove it. Raises StoreError if that is impossible."""
        name = f"{MANIFESTS}/.writable-{secrets.token_hex(8)}"
        try:
            self._folder.put_if_absent(name, b"")
            self._folder.delete(name)
        except OSError as error:
            raise unwritable(self._folder, error) from error

    def add(self, run: RunTables | LeftOut) -> None:
        """Take in one run, or the reason why one cannot be reported.

        :raises RunChoiceError: two sources hold the same run
        :raises StoreError: the store cannot be written
        """
        if isinstance(run, LeftOut):
            self._left_out[run.source] = run
            return
        if run.run_id in self._runs:
            raise RunChoiceError(
                f"two directories hold the run {run.run_id}",
                f"{self._runs[run.run_id]} and {run.source}",
                "give one of them",
            )
        self._runs[run.run_id] = run.source
        key = (date_of(run.started_ns), run.experiment)
        spool = self._spools.setdefault(key, _Spool(Path(self._local.name) / secrets.token_hex(8)))
        self._rows.update(spool.add(run))
        if spool.largest >= FILE_BYTES:
            self._uploads.take(*key, self._spools.pop(key))

    def publish(self) -> Published:
        """Make all taken-in runs visible at once, and then merge small files where there are many.

        :raises StoreError: the store cannot be written, or the writer took more than WRITING_S_MAX
        """
        for key in list(self._spools):
            self._uploads.take(*key, self._spools.pop(key))
        left_out = tuple(self._left_out.values())
        manifest = self._uploads.publish(left_out)
        problem = None
        try:
            upkeep(self._folder, manifest, Path(self._local.name), self._around)
        except (HelpfulError, OSError) as error:
            problem = str(error)
        runs, rows = tuple(self._runs), dict(self._rows)
        return Published(number=manifest.number, runs=runs, left_out=left_out, rows=rows, upkeep_problem=problem)

    def close(self) -> None:
        """Remove what was not published."""
        self._uploads.discard()
        self._local.cleanup()


class _Spool:
    """Rows of runs on the local disk: the places of the Arrow streams of each table. A stream has a few whole runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self._sizes: Counter[str] = Counter()
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._held: dict[str, list[pa.Table]] = {}
        self._held_runs = 0
        self.runs: list[RunTables] = []
        """The runs, without their tables."""

    @property
    def largest(self) -> int:
        """Octets of the largest table, compressed: about the size that its Parquet file will have."""
        return max(self._sizes.values(), default=0)

    @property
    def tables(self) -> list[str]:
        """The tables that have rows."""
        return list(self._places)

    def add(self, run: RunTables) -> dict[str, int]:
        """Append the rows of a run; the number of rows of each table."""
        counts = {}
        for name, rows in run.tables.items():
            if len(rows):
                self._held.setdefault(name, []).append(conformed(rows, name))
                counts[name] = len(rows)
        self.runs.append(replace(run, tables={}))
        self._held_runs += 1
        if self._held_runs >= HELD_RUNS or max(counts.values(), default=0) >= HELD_ROWS:
            self.flush()
        return counts

    def flush(self) -> None:
        """Write the rows that are still in memory."""
        with self._path.open("ab") as file:
            for name, held in self._held.items():
                content = _stream(pa.concat_tables(held).combine_chunks())
                file.write(content)
                self._places.setdefault(name, []).append((self._end, content.size))
                self._end += content.size
                self._sizes[name] += content.size
        self._held.clear()
        self._held_runs = 0

    def rows(self, table: str) -> Iterator[pa.Table]:
        """The rows of one table, a few whole runs at a time."""
        with self._path.open("rb") as file:
            for offset, size in self._places[table]:
                file.seek(offset)
                yield pa.ipc.open_stream(file.read(size)).read_all()

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


def _stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if rows.nbytes >= COMPRESSED_BYTES_MIN else None)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return sink.getvalue()


class _Uploads:
    """The files of a writer that are in the store already, and the publication that will name them."""

    def __init__(self, folder: Folder, local: Path, surroundings: Surroundings) -> None:
        self._folder = folder
        self._local = local
        self._around = surroundings
        self._batches: list[StoredBatch] = []
        self._runs: list[StoredRun] = []
        self._files: list[str] = []
        self._began = time.monotonic()

    def take(self, date: str, experiment: str, spool: _Spool) -> None:
        """Make a batch of a spool, and remove the spool."""
        ident = new_batch_id()
        octets = {}
        spool.flush()
        for table in spool.tables:
            octets[table] = self._put(_named(ident, date, experiment, table), table, spool.rows(table))
        batch = StoredBatch(id=ident, date=date, experiment=experiment, runs=len(spool.runs), octets=octets)
        self._batches.append(batch)
        self._runs += [_stored(run, ident) for run in spool.runs]
        spool.remove()

    def publish(self, left_out: tuple[LeftOut, ...]) -> StoreManifest:
        """Name the files in a new manifest."""
        if time.monotonic() - self._began > WRITING_S_MAX:
            raise StoreError(
                f"the writer took more than {WRITING_S_MAX // 3600} h; its first files may be gone",
                self._folder.where,
                "report fewer runs at once",
            )
        change = StoreChange(batches=tuple(self._batches), runs=tuple(self._runs), left_out=left_out)
        manifest = commit(self._folder, change, self._around)
        self._files.clear()
        return manifest

    def discard(self) -> None:
        """Remove the files that no manifest names; the sweep removes files that cannot be removed now."""
        try:
            for name in self._files:
                self._folder.delete(name)
        except OSError:
            return

    def _put(self, name: str, table: str, rows: Iterator[pa.Table]) -> int:
        self._files.append(name)
        return put_table(self._folder, name, table, rows, self._local)


def _stored(run: RunTables, batch: str) -> StoredRun:
    return StoredRun(
        run_id=run.run_id, started_ns=run.started_ns, source=run.source, signature=run.signature, batch=batch
    )


def put_table(folder: Folder, name: str, table: str, rows: Iterator[pa.Table], local: Path) -> int:
    """Write the rows of a table, whole runs at a time, to a new file of a store; its octets. Raises StoreError."""
    path = local / "upload.parquet"
    try:
        octets = write_file(path, table, rows)
        fresh = folder.put_if_absent(name, path)
    except OSError as error:
        raise unwritable(folder, error) from error
    if not fresh:
        raise StoreError("a new file has the name of another", f"{folder.where}/{name}", "make the report again")
    return octets


def new_batch_id() -> str:
    """An id that no other batch has; batches sort by the time they were made."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(8)}"


def date_of(started_ns: int) -> str:
    """The UTC date of a moment (Unix time)."""
    return datetime.fromtimestamp(started_ns // 10**9, UTC).strftime("%Y-%m-%d")


def _named(ident: str, date: str, experiment: str, table: str) -> str:
    return StoredBatch(id=ident, date=date, experiment=experiment, runs=0, octets={}).file(table)


def upkeep(folder: Folder, manifest: StoreManifest, local: Path, surroundings: Surroundings) -> StoreManifest:
    """Bring small files together where there are many, and from time to time remove files that nothing names; the
    newest manifest.

    :raises StoreError: the store cannot be read or written
    """
    for group in compaction(manifest):
        manifest = compact(folder, manifest, group, local, surroundings)
    if manifest.number % SWEEP_EVERY == 0:
        sweep(folder, manifest)
    return manifest


def compact(
    folder: Folder, manifest: StoreManifest, group: tuple[StoredBatch, ...], local: Path, surroundings: Surroundings
) -> StoreManifest:
    """Write the rows of several batches as one batch and publish that. A run that is reported again meanwhile keeps its
    newer rows."""
    ident, first = new_batch_id(), group[0]
    names = {batch.id for batch in group}
    runs = [run for run in manifest.runs.values() if run.batch in names]
    octets = {}
    for table in SCHEMAS:
        if any(table in batch.octets for batch in group):
            name = _named(ident, first.date, first.experiment, table)
            octets[table] = put_table(folder, name, table, _live_rows(folder, manifest, group, table), local)
    batch = StoredBatch(id=ident, date=first.date, experiment=first.experiment, runs=len(runs), octets=octets)
    moved = tuple((replace(run, batch=ident), run.batch) for run in runs)
    return commit(folder, StoreChange(batches=(batch,), moved=moved), surroundings)


def _live_rows(
    folder: Folder, manifest: StoreManifest, group: tuple[StoredBatch, ...], table: str
) -> Iterator[pa.Table]:
    """The rows that count, batch by batch: rows of a run lie together in each."""
    for batch in group:
        runs = [run.run_id for run in manifest.runs.values() if run.batch == batch.id]
        try:
            yield batch_rows(folder, batch, table, runs)
        except OSError as error:
            raise unreadable(folder, error) from error


def sweep(folder: Folder, manifest: StoreManifest) -> None:
    """Remove files of UNNAMED_NS and older that no manifest names: rests of writers that died. Ages are by the clock of
    the place: the newest file there is now. Raises StoreError."""
    kept = (*manifest.batches.values(), *(each.batch for each in manifest.dead))
    named = {name for batch in kept for name in batch.files}
    try:
        found = folder.files(TABLES_FOLDER)
        manifests = folder.files(MANIFESTS)
        now_ns = max((entry.modified_ns for entry in (*found, *manifests)), default=0)
        strange = [entry for entry in manifests if not entry.name.endswith(".json")]
        for entry in (*found, *strange):
            if entry.name not in named and now_ns - entry.modified_ns >= UNNAMED_NS:
                folder.delete(entry.name)
    except OSError as error:
        raise unwritable(folder, error) from error
