"""A store of report tables on disk: attempts, and a manifest that names the live ones.

::

    store/
      manifest.json                              which attempt holds each run
      attempts/<attempt>/<table>/run_id=<run>/   Parquet files

An attempt is written in full before the manifest names it, and the manifest is renamed into place. So a reader sees
the old tables of a run or the new tables, and nothing in between. An attempt that died leaves a directory, which the
next publication removes. The attempts of the previous manifest are kept, because readers may still read them.

Reading needs no JVM.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from perftest.results.folder import Folder, LocalFolder, folder_of, read_text
from reports.errors import StoreError
from reports.store.columns import Table
from reports.store.schema import INTERVALS, STORE_VERSION, TABLES
from reports.store.tables import Tables

MANIFEST: Final = "manifest.json"
LATER_COLUMNS: Final = ("group",)
"""Columns that stores of earlier versions do not have: empty there. Columns that may be null are null there."""
ATTEMPTS: Final = "attempts"
LOCK: Final = ".lock"
WRITING: Final = ".writing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreManifest:
    """The live attempt of each run, the attempts that were live before the last publication, and the run directories
    that had to be left out of it, with the reasons."""

    runs: Mapping[str, str]
    previous: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def read_tables(place: Path | Folder, runs: Sequence[str] | None = None) -> Tables:
    """All tables of a store, or of some of its runs.

    :param runs: run ids; None for all
    :raises StoreError: no store, one of an unknown version, or one without one of these runs
    """
    store = folder_of(place)
    manifest = read_manifest(store)
    wanted = list(manifest.runs) if runs is None else list(runs)
    for run_id in wanted:
        if run_id not in manifest.runs:
            raise StoreError(
                f"the store has no run {run_id}",
                store.where,
                f"it has {', '.join(manifest.runs) or 'none'}; add the run with: perftest report RUN",
            )
    return Tables(**{table.name: _read(store, manifest, table, wanted) for table in TABLES})


def read_manifest(place: Path | Folder) -> StoreManifest:
    """The manifest of a store.

    :raises StoreError: no store, or one of an unknown version
    """
    store = folder_of(place)
    path = f"{store.where}/{MANIFEST}"
    try:
        content = json.loads(read_text(store, MANIFEST))
    except OSError as error:
        raise StoreError(f"no report store: {error.strerror or error}", path, "make the report again") from error
    except ValueError as error:
        raise StoreError(f"not JSON: {error}", path, "remove the store and make the report again") from error
    return _manifest_of(content, path)


@contextmanager
def new_attempt(store: Path) -> Iterator[Path]:
    """The directory of a new attempt, which exists; removed when the body fails.

    It holds a lock as long as it is being written, so that a publication beside it does not take it for dead.

    :raises StoreError: the store cannot be written
    """
    path = store / ATTEMPTS / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise StoreError(
            f"the store cannot be written: {error.strerror or error}", str(store), "choose another --store"
        ) from error
    with (path / WRITING).open("w") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        try:
            yield path
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise


def publish(
    store: Path, attempt: Path, runs: Sequence[str], left_out: Mapping[str, str] | None = None
) -> StoreManifest:
    """Make an attempt the live one of its runs, and remove attempts that nobody can be reading. ``left_out``: run
    directories that could not be taken in, and why."""
    with _locked(store):
        before = read_manifest(store) if (store / MANIFEST).exists() else StoreManifest(runs={})
        live = dict(before.runs) | dict.fromkeys(runs, attempt.name)
        previous = tuple(sorted(set(before.runs.values()) - set(live.values())))
        after = StoreManifest(runs=live, previous=previous, left_out=left_out or {})
        _write_manifest(store, after)
        _remove_dead(store, {*after.runs.values(), *before.runs.values()})
    return after


def write_rows(attempt: Path, table: Table, run_id: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows of one run that are known without Spark, as Spark would have written them."""
    if rows:
        content = pa.Table.from_pylist([dict(row) for row in rows], table.arrow).drop_columns(["run_id"])
        octets = pa.BufferOutputStream()
        parquet.write_table(content, octets, compression="zstd")
        name = f"{table.name}/run_id={run_id}/part-00000.parquet"
        LocalFolder(attempt).put_if_absent(name, octets.getvalue().to_pybytes())


def last_interval_ns(attempt: Path, run_id: str) -> int:
    """Unix time at which the last interval of a run in an attempt ended."""
    ends = [0]
    for file in _files(LocalFolder(attempt), INTERVALS, run_id):
        part = file.read(columns=["start_ns", "length_ns"])
        ends.append(compute.max(compute.add(part["start_ns"], part["length_ns"])).as_py() or 0)
    return max(ends)


def attempt_rows(attempt: Path, table: Table, run_id: str) -> int:
    """Rows of one run in one table of an attempt, from the files' footers."""
    return sum(file.metadata.num_rows for file in _files(LocalFolder(attempt), table, run_id))


def _manifest_of(content: Any, path: str) -> StoreManifest:
    version = content.get("version") if isinstance(content, dict) else None
    if version != STORE_VERSION:
        raise StoreError(
            f"version {version!r} of the store is not known here",
            f"{path}: version",
            f"this tool knows version {STORE_VERSION}: remove the store and make the report again",
        )
    previous, left_out = tuple(content.get("previous", ())), dict(content.get("left_out", {}))
    return StoreManifest(runs=dict(content["runs"]), previous=previous, left_out=left_out)


def _write_manifest(store: Path, manifest: StoreManifest) -> None:
    content = {
        "version": STORE_VERSION,
        "published_ns": time.time_ns(),
        "runs": dict(manifest.runs),
        "previous": list(manifest.previous),
        "left_out": dict(manifest.left_out),
    }
    beside = store / f"{MANIFEST}.{secrets.token_hex(4)}"
    with beside.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(store / MANIFEST)
    _sync_directory(store)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_dead(store: Path, readable: set[str]) -> None:
    """Remove attempts that neither manifest names and that no process is writing."""
    for path in (store / ATTEMPTS).iterdir():
        if path.name not in readable and not _being_written(path):
            shutil.rmtree(path, ignore_errors=True)


def _being_written(attempt: Path) -> bool:
    try:
        with (attempt / WRITING).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def _locked(store: Path) -> Iterator[None]:
    """Only one process at a time reads the manifest, changes it and renames it."""
    with (store / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _files(folder: Folder, table: Table, run_id: str, *, below: str = "") -> Iterator[parquet.ParquetFile]:
    """The files of one table and run in an attempt, which lies ``below`` the folder."""
    place = f"{below}{table.name}/run_id={run_id}"
    for name in folder.names(place):
        if name.startswith("part-"):
            with folder.open(f"{place}/{name}") as file:
                yield parquet.ParquetFile(file)


def _read(store: Folder, manifest: StoreManifest, table: Table, runs: Sequence[str]) -> pd.DataFrame:
    in_file = pa.schema([field for field in table.arrow if field.name != "run_id"])
    parts = []
    for run_id in runs:
        for file in _files(store, table, run_id, below=f"{ATTEMPTS}/{manifest.runs[run_id]}/"):
            part = file.read()
            for name in set(LATER_COLUMNS) & set(in_file.names) - set(part.column_names):
                part = part.append_column(name, pa.array([""] * len(part), pa.string()))
            for column in in_file:
                if column.nullable and column.name not in part.column_names:
                    part = part.append_column(column.name, pa.nulls(len(part), column.type))
            part = part.select(in_file.names).cast(in_file)
            parts.append(part.add_column(0, table.arrow.field("run_id"), pa.array([run_id] * len(part), pa.string())))
    whole = pa.concat_tables(parts) if parts else table.arrow.empty_table()
    frame: pd.DataFrame = whole.to_pandas()
    return frame.sort_values(list(table.order), kind="stable", ignore_index=True)
