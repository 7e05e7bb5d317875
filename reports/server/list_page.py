"""The page with the list of runs as values: the rows of one page of the list, the choices of each filter, and the
charts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reports.pages import words
from reports.server.daily import DailyCharts, daily_charts
from reports.server.filters import Filters
from reports.server.listed_run import ListedRun, ListedVerdict

ROWS: Final = 100
"""Runs on a page of the list."""
READING_MS: Final = 2_000
"""Interval of the looks at a list that is being read."""
RUNNING_MS: Final = 15_000
"""Interval of the looks at a list with a run in progress. A look costs CPU time beside a run that may be measuring on
this machine, so looks are rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterChoices:
    """The values that a filter can have among all runs, sorted. ``brokers`` has products, with and without version."""

    names: tuple[str, ...]
    brokers: tuple[str, ...]
    queues: tuple[str, ...]
    layouts: tuple[str, ...]
    tags: tuple[str, ...]
    verdicts: tuple[ListedVerdict, ...] = tuple(ListedVerdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """``rows`` are the runs of this page of the list, of ``found`` runs among ``total``. ``unread`` is the number of
    runs that have not been read yet. ``problems`` are sentences about the filters or the store; ``empty`` says why
    there is no row."""

    filters: Filters
    rows: tuple[ListedRun, ...]
    found: int
    total: int
    unread: int
    pages: int
    choices: FilterChoices
    daily: DailyCharts
    problems: tuple[str, ...]
    empty: str

    @property
    def summary(self) -> str:
        """The number of runs in a sentence."""
        said = [f"{self.found:,} of {words.plural(self.total, 'run')}"]
        if self.pages > 1:
            first = (self.filters.page - 1) * ROWS + 1
            said.append(f"{first:,} to {first + len(self.rows) - 1:,} are shown, the newest first")
        if self.unread:
            said.append(f"{words.plural(self.unread, 'run')} still to be read")
        return "; ".join(said)

    @property
    def again_ms(self) -> int | None:
        """Time until a look at the list shows more; None if the list does not change by itself."""
        if self.unread:
            return READING_MS
        return RUNNING_MS if any(run.running for run in self.rows) else None


def list_page(
    runs: Sequence[ListedRun], filters: Filters, *, unread: int = 0, problems: Sequence[str] = ()
) -> ListPage:
    """The page of these runs, which are the newest first. A page after the last one is the last one."""
    found = [run for run in runs if filters.takes(run)]
    pages = max(1, -(-len(found) // ROWS))
    at = min(filters.page, pages)
    filters = replace(filters, page=at)
    return ListPage(
        filters=filters,
        rows=tuple(found[(at - 1) * ROWS : at * ROWS]),
        found=len(found),
        total=len(runs),
        unread=unread,
        pages=pages,
        choices=choices_of(runs),
        daily=daily_charts(found),
        problems=tuple(problems),
        empty="" if found else _why_empty(runs, filters, unread),
    )


def choices_of(runs: Iterable[ListedRun]) -> FilterChoices:
    """The choices of each filter."""
    found: dict[str, set[str]] = {name: set() for name in ("names", "brokers", "queues", "layouts", "tags")}
    for run in runs:
        found["names"].add(run.workload)
        found["brokers"] |= {run.broker, run.broker.rpartition(" ")[0]}
        found["queues"].update(run.queues)
        found["layouts"].add(run.layout)
        found["tags"].update(run.tags)
    names, brokers, queues, layouts, tags = (tuple(sorted(values - {""})) for values in found.values())
    return FilterChoices(names=names, brokers=brokers, queues=queues, layouts=layouts, tags=tags)


def _why_empty(runs: Sequence[ListedRun], filters: Filters, unread: int) -> str:
    if unread and not runs:
        return "The runs are being read."
    if not runs:
        return "No run has been recorded here yet."
    return f"No run has {', '.join(filters.in_words())}."
