"""A store of report tables in a folder: a local directory or an object storage. Each table is a table of Delta Lake.

::

    store/<table>/_delta_log/00000000000000000042.json            the transactions of the table
    store/<table>/date=<UTC date>/<publication>-<random>.parquet  rows of the runs of one task

A run is visible when its row in ``runs`` is, and counts with the rows of the publication that this row names
(:mod:`.publication`). So a reader sees the store before a publication or after it, and nothing in between.

Reading and writing need no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as compute
from pyarrow.dataset import Dataset

from reports.errors import StoreError
from reports.store.locations import Place, StoreLocation, location_of
from reports.store.place_errors import plain_error
from reports.store.publication import Publication
from reports.store.run_tables import LeftOut
from reports.store.schema import QUARANTINE, RUNS, TABLES, damages_of
from reports.store.stored import DATE, LEFT_OUT, PUBLICATION, REPLACED, SIGNATURE, conformed, part_of
from reports.store.tables import Tables
from reports.store.transactions import REMAKE, dataset_of, find_table, has_tables, probe, rows_of

if TYPE_CHECKING:
    import pandas as pd
    from deltalake import DeltaTable

READINGS: Final = 5
"""Number of times that a reader begins again because runs that it reads were reported again meanwhile."""

_Read = TypeVar("_Read")


class StoredRun(NamedTuple):
    """A run in a store. ``publication`` wrote its rows; rows of the publications in ``replaced`` count no longer."""

    run_id: str
    source: str
    signature: str
    publication: str
    replaced: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A store as it was when it was opened; without runs if nothing has been published there."""

    location: StoreLocation
    runs: Mapping[str, StoredRun] = field(default_factory=dict)
    """By their ids."""
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """Run directories that could not be reported, by source. A run that was reported before its directory was damaged
    stays in ``runs``, too."""

    @classmethod
    def open(cls, place: Place) -> Store:
        """The store at a place, which may be empty.

        :raises StoreError: the place cannot be read, or the store is damaged or of another version
        """
        location = location_of(place)
        if not has_tables(location):
            return cls(location=location)
        table = find_table(location, LEFT_OUT.name)
        told = _rows(location, table, LEFT_OUT.names).to_pylist() if table is not None else []
        left_out = {row["source"]: LeftOut(**row) for row in told}
        return cls(location=location, runs=_stored_runs(location, _runs_table(location)), left_out=left_out)

    def known(self) -> Mapping[str, str]:
        """The signature of each source that the store holds, reported or left out."""
        reported = {run.source: run.signature for run in self.runs.values()}
        return reported | {source: each.signature for source, each in self.left_out.items()}

    @contextmanager
    def publication(self) -> Iterator[Publication]:
        """Takes in runs, to be landed at once. What did not land is removed at the end.

        :raises StoreError: the place cannot be written; told at once, before anything is computed
        """
        probe(self.location)
        publication = Publication(self.location)
        try:
            yield publication
        finally:
            publication.discard()


def read_tables(
    place: Place, runs: Sequence[str] | None = None, columns: Mapping[str, Sequence[str]] | None = None
) -> Tables:
    """All tables of a store, or of some of its runs.

    :param runs: run ids; None for all
    :param columns: the columns that are wanted, by table, among them those by which a table is ordered; a table that is
        not named has no rows. None for everything
    :raises StoreError: no store, one of an unknown version, or one without one of these runs
    """

    def read(chosen: Sequence[StoredRun], location: StoreLocation) -> Tables:
        frames = {}
        for table in TABLES:
            is_wanted = columns is None or table.name in columns
            only = columns[table.name] if columns is not None and is_wanted else None
            rows = _of_runs(location, table.name, chosen if is_wanted else (), only, every=runs is None)
            frames[table.name] = _frame(rows, table.order)
        return Tables(**frames)

    return _reading(place, runs, read)


def arrow_table(
    place: Place, name: str, runs: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """One table of a store in the order of its files: all runs or some, all columns or some.

    :raises StoreError: as :func:`read_tables`
    """
    return _reading(place, runs, lambda chosen, location: _of_runs(location, name, chosen, columns, every=runs is None))


def asked(place: Place, ask: Callable[[Callable[[str], Dataset]], _Read]) -> _Read:
    """The answer of a query to the tables of a store.

    :param ask: asks the table with a name, as often as the tables change meanwhile; nothing of a table is in memory
    :raises StoreError: as :func:`read_tables`
    """

    def read(chosen: Sequence[StoredRun], location: StoreLocation) -> _Read:
        return ask(lambda name: _counting(location, name, chosen))

    return _reading(place, None, read)


def damaged_runs(place: Place, runs: Sequence[str] | None = None) -> dict[str, list[str]]:
    """The damage of all runs or some, as clauses, by run directory; a run without damage is not named.

    :raises StoreError: as :func:`read_tables`
    """

    def read(chosen: Sequence[StoredRun], location: StoreLocation) -> dict[str, list[str]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for row in _of_runs(location, QUARANTINE.name, chosen, None, every=runs is None).to_pylist():
            found.setdefault(row["run_id"], []).append(row)
        return {run.source: damages_of(found[run.run_id]).lines() for run in chosen if run.run_id in found}

    return _reading(place, runs, read)


def existing(place: Place) -> StoreLocation:
    """The location of a store that is there.

    :raises StoreError: no store, or one of an unknown version
    """
    location = location_of(place)
    if not has_tables(location):
        fix = "put runs into it: perftest runs read"
        raise StoreError("no report store: nothing was published there", location.where, fix)
    return location


def _reading(
    place: Place, runs: Sequence[str] | None, read: Callable[[Sequence[StoredRun], StoreLocation], _Read]
) -> _Read:
    """Read, and begin again if one of the runs was reported again meanwhile: its former rows may be gone."""
    location = existing(place)
    table = _runs_table(location)
    missing: OSError | None = None
    for _ in range(READINGS):
        chosen = _chosen(location, _stored_runs(location, table), runs)
        try:
            found = read(chosen, location)
        except FileNotFoundError as error:
            table, missing = _runs_table(location), error
            continue
        except OSError as error:
            raise location.unreadable(plain_error(error, is_local=location.is_local)) from error
        except pa.ArrowException as error:
            raise StoreError(f"a file of the store is damaged: {error}", location.where, REMAKE) from error
        before, table = table, _runs_table(location)
        if table.version() == before.version() or _are_as_before(location, table, chosen):
            return found
    if missing is not None:
        raise StoreError(f"a file of the store is missing: {missing}", location.where, REMAKE) from missing
    raise StoreError("runs are reported again all the time", location.where, "try again")


def _chosen(location: StoreLocation, known: Mapping[str, StoredRun], runs: Sequence[str] | None) -> list[StoredRun]:
    for run_id in runs or ():
        if run_id not in known:
            raise StoreError(
                f"the store has no run {run_id}",
                location.where,
                f"it has {_some(list(known))}; add the run with: perftest report RUN",
            )
    return list(known.values()) if runs is None else [known[run_id] for run_id in dict.fromkeys(runs)]


def _some(runs: list[str]) -> str:
    """The runs, or how many there are when they are many."""
    return ", ".join(runs) if 0 < len(runs) <= 10 else f"{len(runs) or 'none'}{' runs' if runs else ''}"


def _runs_table(location: StoreLocation) -> DeltaTable:
    table = find_table(location, RUNS.name)
    if table is None:
        raise StoreError("the table runs is gone", location.where, REMAKE)
    return table


def _are_as_before(location: StoreLocation, table: DeltaTable, chosen: Sequence[StoredRun]) -> bool:
    known = _stored_runs(location, table)
    return all(known.get(run.run_id) == run for run in chosen)


def _stored_runs(location: StoreLocation, table: DeltaTable) -> dict[str, StoredRun]:
    columns = ("run_id", "path", SIGNATURE.name, PUBLICATION.name, REPLACED.name, DATE.name)
    rows = _rows(location, table, columns)
    return {row[0]: StoredRun(*row) for row in zip(*(rows[name].to_pylist() for name in columns), strict=True)}


def _rows(location: StoreLocation, table: DeltaTable, columns: Sequence[str]) -> pa.Table:
    """All rows of a table. Raises StoreError."""
    try:
        return rows_of(location, table, None, columns)
    except FileNotFoundError as error:
        raise StoreError(f"a file of the store is missing: {error}", location.where, REMAKE) from error
    except OSError as error:
        raise location.unreadable(plain_error(error, is_local=location.is_local)) from error
    except pa.ArrowException as error:
        raise StoreError(f"a file of the store is damaged: {error}", location.where, REMAKE) from error


def _of_runs(
    location: StoreLocation, name: str, runs: Sequence[StoredRun], columns: Sequence[str] | None, *, every: bool
) -> pa.Table:
    """The rows of one table that count for these runs, in the order of the files.

    :param every: these are all runs of the store, so that no file needs to be sought by a run's id
    :raises OSError: a file cannot be read; FileNotFoundError if it is gone
    """
    schema = part_of(name, columns)
    table = find_table(location, name) if runs else None
    if table is None:
        return schema.empty_table()
    condition = _condition(runs)
    if not every:
        condition = _one_of(DATE.name, {run.date for run in runs}) & condition
        condition = _one_of("run_id", {run.run_id for run in runs}) & condition
    return conformed(rows_of(location, table, condition, schema.names), schema)


def _counting(location: StoreLocation, name: str, runs: Sequence[StoredRun]) -> Dataset:
    """The rows of a table that count, if these are all runs of the store; nothing is read yet."""
    table = find_table(location, name)
    if table is None:
        raise StoreError(f"the table {name} is gone", location.where, REMAKE)
    return dataset_of(location, table).filter(_condition(runs))


def _condition(runs: Sequence[StoredRun]) -> Any:
    """The rows of the publications of these runs, without those of runs that a later publication replaced."""
    condition = _one_of(PUBLICATION.name, {run.publication for run in runs})
    replaced: dict[str, set[str]] = {}
    for run in runs:
        for publication in filter(None, run.replaced.split(",")):
            replaced.setdefault(publication, set()).add(run.run_id)
    for publication in replaced.keys() & {run.publication for run in runs}:
        dead = (compute.field(PUBLICATION.name) == publication) & _one_of("run_id", replaced[publication])
        condition &= ~dead
    return condition


def _one_of(column: str, values: set[str]) -> Any:
    return compute.field(column).isin(pa.array(sorted(values), pa.string()))


def _frame(table: pa.Table, order: Sequence[str]) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    return frame.sort_values(list(order), kind="stable", ignore_index=True)
