"""A publication: the rows of some runs, written by executors, and made visible at once.

First every table but ``runs`` takes its files, then ``runs``: a publication that dies before that is seen by no reader.
A run that was reported before gets a row in ``runs`` that names the new publication, and the publications whose rows
count no longer, in the transaction that removes its former row. Its former rows in other tables are removed afterwards.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet
from deltalake import DeltaTable

from perftest.errors import HelpfulError
from reports.errors import RunChoiceError
from reports.store import upkeep
from reports.store.locations import StoreLocation
from reports.store.part_files import PartFile, PartFiles, remove, write_rows
from reports.store.run_tables import LeftOut, RunTables
from reports.store.schema import RUNS, TABLES
from reports.store.stored import DATE, LEFT_OUT, PUBLICATION, REPLACED, STORED
from reports.store.transactions import TableChange, append, commit, delete_rows, files_of, rows_of

ID: Final = "perftest.publication"
RUNS_ADDED: Final = "perftest.runs"
"""What a commit tells of its publication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a publication: rows per table in the store, of its runs only. ``version`` is that of ``runs``.
    ``upkeep_problem``: why the store could not be tidied, if it could not; the publication stands."""

    version: int
    runs: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    rows: Mapping[str, int]
    upkeep_problem: str | None = None


class Publication:
    """Collects files and landed runs of one report. Not for several threads."""

    def __init__(self, location: StoreLocation) -> None:
        self.location = location
        self.id: Final = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        self._files: list[PartFile] = []
        self._sources: dict[str, str] = {}
        self._left_out: dict[str, LeftOut] = {}
        self._rows: Counter[str] = Counter({table.name: 0 for table in TABLES})
        self._own: PartFiles | None = None

    def add(self, run: RunTables | LeftOut) -> None:
        """Take in one run, whose rows this process writes, or the reason why one cannot be reported.

        :raises RunChoiceError: two sources hold the same run
        :raises StoreError: the store cannot be written
        """
        if isinstance(run, LeftOut):
            self.leave_out(run)
            return
        self._own = self._own or PartFiles(self.location, self.id)
        try:
            rows = self._own.add(run)
        except OSError as error:
            raise self.location.unwritable(error) from error
        self.take(run.run_id, run.source, rows)

    def take(self, run_id: str, source: str, rows: Mapping[str, int]) -> None:
        """Take in a run whose rows are in files.

        :raises RunChoiceError: two sources hold the same run
        """
        if run_id in self._sources:
            what = f"two directories hold the run {run_id}"
            raise RunChoiceError(what, f"{self._sources[run_id]} and {source}", "give one of them")
        self._sources[run_id] = source
        self._rows.update(rows)

    def take_files(self, files: Iterable[PartFile]) -> None:
        """Take in files that an executor wrote."""
        self._files += files

    def leave_out(self, run: LeftOut) -> None:
        """Take in a run that cannot be reported."""
        self._left_out[run.source] = run

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that were taken in."""
        return tuple(self._sources)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The runs that cannot be reported."""
        return tuple(self._left_out.values())

    def land(self) -> Published:
        """Make all taken-in runs visible at once, and then tidy the store where it needs it.

        :raises StoreError: the store cannot be written
        """
        if self._own is not None:
            self._files += self._own.finish()
            self._own = None
        about = {ID: self.id, RUNS_ADDED: len(self._sources)}
        of_table: dict[str, list[PartFile]] = {}
        for file in self._files:
            of_table.setdefault(file.table, []).append(file)
        listing = of_table.pop(RUNS.name, [])
        self._files.clear()  # From here on, transactions may name them.
        for name, files in of_table.items():
            append(self.location, name, files, about)
        commit(self.location, LEFT_OUT.name, self._left_out_after, about)
        former: dict[str, str] = {}
        version = commit(self.location, RUNS.name, lambda table: self._runs_after(table, listing, former), about)
        published = Published(version=version, runs=self.runs, left_out=self.left_out, rows=dict(self._rows))
        return self._tidy(published, former)

    def discard(self) -> None:
        """Remove the files of a publication that did not land."""
        if self._own is not None:
            self._own.discard()
        remove(self.location, self._files)

    def _left_out_after(self, table: DeltaTable) -> TableChange | None:
        """``left_out`` without the runs that can be reported now, and with those that cannot."""
        rows = rows_of(self.location, table, None, STORED[LEFT_OUT.name].names)
        gone = pa.array([*self._sources.values(), *self._left_out], pa.string())
        kept = rows.filter(compute.invert(compute.is_in(rows["source"], gone)))
        if len(kept) == len(rows) and not self._left_out:
            return None
        told = [
            {"source": each.source, "signature": each.signature, "reason": each.reason}
            for each in self._left_out.values()
        ]
        after = pa.concat_tables([kept, pa.Table.from_pylist(told, STORED[LEFT_OUT.name].arrow)])
        added = write_rows(self.location, LEFT_OUT.name, after, self.id)
        return TableChange(added=added, removed=[file["path"] for file in files_of(table)])

    def _runs_after(self, table: DeltaTable, listing: list[PartFile], former: dict[str, str]) -> TableChange | None:
        """``runs`` with the runs of this publication in place of their former rows.

        :param former: gets the former publication of each run that is replaced
        """
        former.clear()
        ours = compute.field("run_id").isin(pa.array(list(self._sources), pa.string()))
        rows = rows_of(self.location, table, ours, ["run_id", PUBLICATION.name, REPLACED.name]).to_pylist()
        if not listing or any(row[PUBLICATION.name] == self.id for row in rows):
            return None  # Nothing to show, or an attempt landed although the service told that it did not.
        if not rows:
            return TableChange(added=listing)
        former |= {row["run_id"]: row[PUBLICATION.name] for row in rows}
        replaced = {row["run_id"]: f"{row[PUBLICATION.name]},{row[REPLACED.name]}".rstrip(",") for row in rows}
        removed, kept = self._without(table, former)
        fresh = _naming(self._listed(listing), replaced)
        added = write_rows(self.location, RUNS.name, pa.concat_tables([*kept, fresh]), self.id)
        return TableChange(added=added, removed=removed)

    def _without(self, table: DeltaTable, gone: Iterable[str]) -> tuple[list[str], list[pa.Table]]:
        """The files of ``runs`` with rows of these runs, and the other rows of these files."""
        wanted = sorted(gone)
        names = pa.array(wanted, pa.string())
        removed, kept = [], []
        for file in files_of(table):
            if not any(file["min.run_id"] <= run <= file["max.run_id"] for run in wanted):
                continue
            rows = self._read(file["path"], file[f"partition.{DATE.name}"])
            others = rows.filter(compute.invert(compute.is_in(rows["run_id"], names)))
            if len(others) < len(rows):
                removed.append(file["path"])
                kept.append(others)
        return removed, kept

    def _listed(self, listing: Iterable[PartFile]) -> pa.Table:
        return pa.concat_tables([self._read(file.path, file.date) for file in listing])

    def _read(self, path: str, date: str) -> pa.Table:
        with self.location.system_of(RUNS.name).open_input_file(path) as file:
            rows = parquet.read_table(file)
        dated = rows.append_column(pa.field(DATE.name, pa.string(), nullable=False), pa.repeat(date, len(rows)))
        return dated.select(STORED[RUNS.name].names).cast(STORED[RUNS.name].arrow)

    def _tidy(self, published: Published, former: Mapping[str, str]) -> Published:
        """Remove rows that were replaced, and bring small files together where there are many. A publication stands
        whether or not this works."""
        try:
            remove_replaced(self.location, former)
            if upkeep.has_many_small_files(self.location):
                upkeep.compact(self.location)
        except (HelpfulError, OSError) as error:
            return replace(published, upkeep_problem=str(error))
        return published


def remove_replaced(location: StoreLocation, former: Mapping[str, str]) -> None:
    """Remove the rows of runs in their former publications from all tables but ``runs``.

    :raises StoreError: a table cannot be written
    """
    of_publication: dict[str, list[str]] = {}
    for run_id, publication in former.items():
        of_publication.setdefault(publication, []).append(run_id)
    for publication, runs in of_publication.items():
        condition = (compute.field(PUBLICATION.name) == publication) & compute.field("run_id").isin(runs)
        for table in TABLES:
            if table.name != RUNS.name:
                delete_rows(location, table.name, condition)


def _naming(rows: pa.Table, replaced: Mapping[str, str]) -> pa.Table:
    """Rows of ``runs`` with the publications that they replace."""
    values = pa.array([replaced.get(run, "") for run in rows["run_id"].to_pylist()], pa.string())
    at = rows.column_names.index(REPLACED.name)
    return rows.set_column(at, rows.schema.field(at), values)
