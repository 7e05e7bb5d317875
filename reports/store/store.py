"""A store of report tables in a folder: a local directory or an object storage.

::

    store/
      manifests/00000042.json                                               what the store holds (:mod:`.manifest`)
      tables/<table>/date=<UTC date>/experiment=<plan>/<batch>.parquet      rows of the runs of one batch

The files of a publication are written in full before a manifest names them (:mod:`.commit`). So a reader sees the store
before a publication or after it, and nothing in between; a writer that dies leaves files that nothing names, which a
later publication sweeps away.

Reading and writing need no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from perftest.results.folder import Folder
from reports.errors import StoreError
from reports.store.batches import batch_rows, conformed
from reports.store.commit import Surroundings, latest, unreadable
from reports.store.manifest import StoreManifest
from reports.store.places import place_of
from reports.store.schema import QUARANTINE, TABLES, damages_of
from reports.store.tables import Tables
from reports.store.writer import TableWriter

if TYPE_CHECKING:
    import pandas as pd

READINGS: Final = 3
"""Number of times that a reader begins again because files that it needs were removed meanwhile."""

Place = Path | str | Folder
"""A path, a URI (file:, s3a:, s3:, hdfs:), or a folder."""

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A store as it was when it was opened; ``manifest`` is empty if nothing has been published there."""

    folder: Folder
    manifest: StoreManifest
    surroundings: Surroundings = field(default_factory=Surroundings)

    @classmethod
    def open(cls, place: Place) -> Store:
        """The store at a place, which may be empty.

        :raises StoreError: the place cannot be read, or the store is damaged or of another version
        """
        folder = place_of(place)
        return cls(folder=folder, manifest=latest(folder) or StoreManifest())

    def known(self) -> Mapping[str, str]:
        """The signature of each source that the store holds, reported or left out."""
        return self.manifest.known

    @contextmanager
    def writer(self) -> Iterator[TableWriter]:
        """Takes in runs and publishes them at once. What was not published is removed at the end.

        :raises StoreError: the place cannot be written; told at once, before anything is computed
        """
        writer = TableWriter(self.folder, self.surroundings)
        try:
            writer.probe()
            yield writer
        finally:
            writer.close()


def read_tables(
    place: Place, runs: Sequence[str] | None = None, columns: Mapping[str, Sequence[str]] | None = None
) -> Tables:
    """All tables of a store, or of some of its runs.

    :param runs: run ids; None for all
    :param columns: the columns that are wanted, by table, among them those by which a table is ordered; a table that is
        not named has no rows. None for everything
    :raises StoreError: no store, one of an unknown version, or one without one of these runs
    """

    def read(folder: Folder, manifest: StoreManifest) -> Tables:
        frames = {}
        for table in TABLES:
            is_wanted = columns is None or table.name in columns
            only = columns[table.name] if columns is not None and is_wanted else None
            frames[table.name] = _table(folder, manifest, table.name, runs if is_wanted else (), only)
        return Tables(**{table.name: _frame(frames[table.name], table.order) for table in TABLES})

    return _reading(place, read)


def arrow_table(
    place: Place, name: str, runs: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """One table of a store in the order of its files: all runs or some, all columns or some.

    :raises StoreError: as :func:`read_tables`
    """
    return _reading(place, lambda folder, manifest: _table(folder, manifest, name, runs, columns))


def damaged_runs(place: Place, runs: Sequence[str] | None = None) -> dict[str, list[str]]:
    """The damage of all runs or some, as clauses, by run directory; a run without damage is not named.

    :raises StoreError: as :func:`read_tables`
    """

    def read(folder: Folder, manifest: StoreManifest) -> dict[str, list[str]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for row in _table(folder, manifest, QUARANTINE.name, runs, None).to_pylist():
            found.setdefault(row["run_id"], []).append(row)
        return {manifest.runs[run_id].source: damages_of(rows).lines() for run_id, rows in found.items()}

    return _reading(place, read)


def read_manifest(place: Place) -> StoreManifest:
    """The newest manifest of a store.

    :raises StoreError: no store, or one of an unknown version
    """
    folder = place_of(place)
    manifest = latest(folder)
    if manifest is None:
        raise StoreError(
            "no report store: nothing was published there", folder.where, "put runs into it: perftest runs read"
        )
    return manifest


def _reading(place: Place, read: Callable[[Folder, StoreManifest], _Read]) -> _Read:
    """Read by one manifest; begin again with the newest if files of that manifest were removed meanwhile."""
    folder = place_of(place)
    for _ in range(READINGS):
        manifest = read_manifest(folder)
        try:
            return read(folder, manifest)
        except FileNotFoundError as error:
            missing = error
        except OSError as error:
            raise unreadable(folder, error) from error
        except pa.ArrowException as error:
            raise StoreError(f"a file of the store is damaged: {error}", folder.where, DAMAGED) from error
    raise StoreError(f"a file of the store is missing: {missing}", folder.where, DAMAGED)


DAMAGED: Final = "remove the store and make the report again"


def _table(
    folder: Folder, manifest: StoreManifest, name: str, runs: Sequence[str] | None, columns: Sequence[str] | None
) -> pa.Table:
    wanted = list(manifest.runs) if runs is None else list(dict.fromkeys(runs))
    for run_id in wanted:
        if run_id not in manifest.runs:
            raise StoreError(
                f"the store has no run {run_id}",
                folder.where,
                f"it has {_some(list(manifest.runs))}; add the run with: perftest report RUN",
            )
    parts = [
        batch_rows(folder, manifest.batches[batch], name, chosen, columns)
        for batch, chosen in manifest.runs_of(wanted).items()
    ]
    return pa.concat_tables([conformed(None, name, columns), *parts])


def _some(runs: list[str]) -> str:
    """The runs, or how many there are when they are many."""
    return ", ".join(runs) if 0 < len(runs) <= 10 else f"{len(runs) or 'none'}{' runs' if runs else ''}"


def _frame(table: pa.Table, order: Sequence[str]) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    return frame.sort_values(list(order), kind="stable", ignore_index=True)
