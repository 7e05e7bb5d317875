"""Tags and notes of runs, from the store in which ``perftest runs tag`` keeps them. Changes only come to those that are
there, so a run is read again only when it has more of them."""

from __future__ import annotations

from collections.abc import Mapping

from perftest.results.folder import Folder
from reports.catalogue.annotations import PLACE, Annotation, annotated, read_annotation
from reports.errors import StoreError


class RunTags:
    """The annotations of all runs in a store; a store need not be there."""

    def __init__(self, store: Folder) -> None:
        self._store = store
        self._known: dict[str, tuple[tuple[str, ...], Annotation]] = {}
        """By run id: the names of the changes that were read, and what follows from them."""
        self.problem = ""
        """The reason why the annotations are not up to date; empty if they are."""

    def all(self) -> Mapping[str, Annotation]:
        """The annotations as of the last look, by run id."""
        return {run_id: annotation for run_id, (_, annotation) in list(self._known.items())}

    def look(self) -> None:
        """Read what is new. A store that cannot be read leaves what is known, and is the ``problem``."""
        try:
            for run_id in annotated(self._store):
                names = tuple(self._store.names(f"{PLACE}/{run_id}"))
                if self._known.get(run_id, ((), None))[0] != names:
                    self._known[run_id] = (names, read_annotation(self._store, run_id))
            self.problem = ""
        except (OSError, StoreError) as error:
            what = error.what if isinstance(error, StoreError) else str(error)
            self.problem = f"The tags may be out of date: {what} ({self._store.where})."
