"""Tags and notes of runs, from the store in which ``perftest runs tag`` keeps them: read again when the store has more
of them."""

from __future__ import annotations

from collections.abc import Mapping

from reports.catalogue.annotations import Annotation, read_annotations
from reports.errors import StoreError
from reports.store.locations import StoreLocation
from reports.store.stored import ANNOTATIONS
from reports.store.transactions import find_table


class RunTags:
    """The annotations of all runs in a store; a store need not be there."""

    def __init__(self, store: StoreLocation) -> None:
        self._store = store
        self._known: Mapping[str, Annotation] = {}
        self._version = -1
        """Of the table of annotations at the last look."""
        self.problem = ""
        """The reason why the annotations are not up to date; empty if they are."""

    def all(self) -> Mapping[str, Annotation]:
        """The annotations as of the last look, by run id."""
        return self._known

    def look(self) -> None:
        """Read what is new. A store that cannot be read leaves what is known, and is the ``problem``."""
        try:
            table = find_table(self._store, ANNOTATIONS.name)
            version = -1 if table is None else table.version()
            if version != self._version:
                self._known, self._version = read_annotations(self._store), version
            self.problem = ""
        except (OSError, StoreError) as error:
            what = error.what if isinstance(error, StoreError) else str(error)
            self.problem = f"The tags may be out of date: {what} ({self._store.where})."
