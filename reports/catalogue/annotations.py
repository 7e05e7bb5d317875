"""Tags and notes that people give to runs, in the store beside the tables: a table of their changes.

Each change is a row of its own, appended in a transaction of its own. So no user overwrites another's change, and the
history of a run's notes stays readable. The present annotations follow from the changes in their order. A run
directory is never changed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as compute

from reports.errors import AnnotationError, StoreError
from reports.store.columns import Row
from reports.store.locations import StoreLocation
from reports.store.part_files import write_rows
from reports.store.stored import ANNOTATIONS, STORED
from reports.store.transactions import append, find_table, probe, rows_of

TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,63}")
NOTE_MAX: Final = 1_000
"""Characters of a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """People's remarks on a run: its tags, sorted, and its note (empty: none)."""

    tags: tuple[str, ...] = ()
    note: str = ""


NOTHING: Final = Annotation()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationChange:
    """Tags to add, tags to remove, and a new note; a note of None leaves the note as it is.

    Raises AnnotationError if a tag or the note is none.
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    note: str | None = None

    def __post_init__(self) -> None:
        for tag in (*self.add, *self.remove):
            if not TAG.fullmatch(tag):
                fix = "use 1 to 64 letters, digits and . _ : / + -, beginning with a letter or a digit"
                raise AnnotationError(f"{tag!r} is no tag", "the tags", fix)
        if self.note is not None and (len(self.note) > NOTE_MAX or not all(map(_is_plain, self.note))):
            fix = f"write at most {NOTE_MAX} characters, without control characters"
            raise AnnotationError("the note cannot be kept", "the note", fix)

    def row(self, run_id: str, now_ns: int) -> Row:
        """The row of this change."""
        given = {"added": json.dumps(self.add), "removed": json.dumps(self.remove)}
        return {"run_id": run_id, "t_ns": now_ns, **given, "note": self.note}


def _is_plain(character: str) -> bool:
    return character.isprintable() or character == "\n"


def applied(changes: Iterable[Mapping[str, Any]]) -> Annotation:
    """The annotation after these rows of changes. Parts of another form are ignored."""
    tags: set[str] = set()
    note = ""
    for change in changes:
        tags = (tags | _tags(change["added"])) - _tags(change["removed"])
        said = change["note"]
        note = note if said is None else "".join(filter(_is_plain, said))[:NOTE_MAX]
    return Annotation(tags=tuple(sorted(tags)), note=note)


def _tags(text: str) -> set[str]:
    try:
        value = json.loads(text)
    except ValueError:
        return set()
    listed = value if isinstance(value, list) else ()
    return {each for each in listed if isinstance(each, str) and TAG.fullmatch(each)}


def read_annotations(store: StoreLocation, run_ids: Iterable[str] | None = None) -> dict[str, Annotation]:
    """The annotations of these runs, or of all, if they have one. Raises StoreError if the store cannot be read."""
    table = find_table(store, ANNOTATIONS.name)
    if table is None:
        return {}
    wanted = None if run_ids is None else compute.field("run_id").isin(pa.array(list(run_ids), pa.string()))
    try:
        rows = rows_of(store, table, wanted, ANNOTATIONS.names)
    except OSError as error:
        raise StoreError(f"an annotation cannot be read: {error}", store.where, "try again") from error
    changes: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows.sort_by("t_ns").to_pylist():
        changes[row["run_id"]].append(row)
    return {run_id: applied(of_run) for run_id, of_run in changes.items()}


def annotate(store: StoreLocation, run_id: str, change: AnnotationChange, now_ns: int) -> Annotation:
    """Add a change to all others, and return what holds then. Raises StoreError."""
    probe(store)
    rows = pa.Table.from_pylist([change.row(run_id, now_ns)], STORED[ANNOTATIONS.name].arrow)
    try:
        files = write_rows(store, ANNOTATIONS.name, rows, f"{now_ns}")
    except OSError as error:
        raise store.unwritable(error) from error
    append(store, ANNOTATIONS.name, files, {})
    return read_annotations(store, [run_id])[run_id]
