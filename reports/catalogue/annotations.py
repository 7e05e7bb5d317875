"""Tags and notes that people give to runs, in the store beside the tables: ``annotations/<run>/<number>.json``.

Each change is a file of its own, put under the next free number. So no user overwrites another's change, on object
storage as on a local drive, and the history of a run's notes stays readable. The present annotations follow from the
changes in their order. A run directory is never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perftest.results.folder import Folder, read_object
from reports.errors import AnnotationError, StoreError

PLACE: Final = "annotations"
TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,63}")
NOTE_MAX: Final = 1_000
"""Characters of a note."""
TRIES: Final = 100
"""Changes of other people that one change gives way to."""


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

    def to_json(self, now_ns: int) -> bytes:
        """The file of this change."""
        record = {"t_ns": now_ns, "add": list(self.add), "remove": list(self.remove), "note": self.note}
        return json.dumps(record, ensure_ascii=False).encode()


def _is_plain(character: str) -> bool:
    return character.isprintable() or character == "\n"


def applied(changes: Iterable[Mapping[str, Any]]) -> Annotation:
    """The annotation after these records of changes. Parts of another form are ignored."""
    tags: set[str] = set()
    note = ""
    for change in changes:
        tags = (tags | _tags(change.get("add"))) - _tags(change.get("remove"))
        said = change.get("note")
        note = "".join(filter(_is_plain, said))[:NOTE_MAX] if isinstance(said, str) else note
    return Annotation(tags=tuple(sorted(tags)), note=note)


def _tags(value: object) -> set[str]:
    return (
        {each for each in value if isinstance(each, str) and TAG.fullmatch(each)} if isinstance(value, list) else set()
    )


def annotated(store: Folder) -> list[str]:
    """The runs that have an annotation."""
    return store.names(PLACE)


def read_annotation(store: Folder, run_id: str) -> Annotation:
    """The annotation of a run. A damaged change is left out. Raises StoreError if the store cannot be read."""
    changes = []
    for name in _numbered(store, run_id):
        try:
            changes.append(read_object(store, f"{PLACE}/{run_id}/{name}"))
        except ValueError:
            continue
        except OSError as error:
            raise StoreError(f"an annotation cannot be read: {error}", store.where, "try again") from error
    return applied(changes)


def read_annotations(store: Folder, run_ids: Iterable[str]) -> dict[str, Annotation]:
    """The annotations of these runs, if they have one."""
    wanted = set(run_ids)
    return {run_id: read_annotation(store, run_id) for run_id in annotated(store) if run_id in wanted}


def annotate(store: Folder, run_id: str, change: AnnotationChange, now_ns: int) -> Annotation:
    """Put a change after all others, and return what holds then. Raises StoreError."""
    content = change.to_json(now_ns)
    for _ in range(TRIES):
        last = max((int(name[:8]) for name in _numbered(store, run_id)), default=0)
        try:
            done = store.put_if_absent(f"{PLACE}/{run_id}/{last + 1:08}.json", content)
        except OSError as error:
            what = f"the annotation cannot be written: {error.strerror or error}"
            raise StoreError(what, store.where, "make room, or name a store that can be written to") from error
        if done:
            return read_annotation(store, run_id)
    what = f"{TRIES} other changes of this run came first, one after the other"
    raise StoreError(what, store.where, "try again")


def _numbered(store: Folder, run_id: str) -> Sequence[str]:
    return [name for name in store.names(f"{PLACE}/{run_id}") if re.fullmatch(r"[0-9]{8}\.json", name)]
