"""The choice among listed runs as the address of a page has it, so that a link can be sent. Pure.

::

    /?q=nightly+quorum&name=flow_control/*&broker=RabbitMQ+4&queue=quorum&layout=fast&tag=a&tag=b
      &verdict=valid&since=2026-11-01&until=2026-11-30&page=2
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlencode

from reports.server.listed_run import ListedRun, ListedVerdict

VALUE_MAX: Final = 200
"""Characters of a value of the address that count."""
TAGS_MAX: Final = 20
"""Tags of an address that count."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The conditions on a listed run; an empty part is no condition.

    All words of ``q`` must stand in the row, in any case. ``name`` is a pattern with ``*`` and ``?``, or the whole name
    of a plan; ``broker`` a part of product and version, in any case. ``since`` and ``until`` are the first and the last
    day of the start, as 2026-11-21 (UTC). All ``tags`` must fit. ``page`` counts from 1.
    """

    q: str = ""
    name: str = ""
    broker: str = ""
    queue: str = ""
    layout: str = ""
    tags: tuple[str, ...] = ()
    verdict: str = ""
    since: str = ""
    until: str = ""
    page: int = 1

    @property
    def any(self) -> bool:
        """Whether there is a condition at all."""
        return replace(self, page=1) != Filters()

    def takes(self, run: ListedRun) -> bool:
        """Whether a run is wanted."""
        return (
            (not self.name or run.workload == self.name or fnmatchcase(run.workload, self.name))
            and self.broker.lower() in run.broker.lower()
            and (not self.queue or self.queue in run.queues)
            and (not self.layout or run.layout == self.layout)
            and (not self.verdict or run.verdict == self.verdict)
            and (not self.since or run.day >= self.since)
            and (not self.until or "" < run.day <= self.until)
            and set(self.tags) <= set(run.tags)
            and (not self.q or _has_words(run, self.q))
        )

    def address(self, **changes: Any) -> str:
        """The address of the list with these filters, and with ``changes`` of fields. The first page has no number;
        another filter begins at the first page."""
        changed = replace(self, **({"page": 1} | changes))
        pairs = [(name, getattr(changed, name)) for name in _TEXTS if getattr(changed, name)]
        pairs += [("tag", tag) for tag in changed.tags]
        pairs += [("page", str(changed.page))] if changed.page > 1 else []
        return f"/?{urlencode(pairs, safe='/*')}" if pairs else "/"

    def in_words(self) -> Iterator[str]:
        """Each condition in words."""
        if self.q:
            yield f"words “{self.q}”"
        yield from (
            f"{name} {getattr(self, name)}" for name in ("name", "broker", "queue", "layout") if getattr(self, name)
        )
        yield from (f"tag {tag}" for tag in self.tags)
        if self.verdict:
            yield f"verdict {ListedVerdict(self.verdict).words}"
        yield from (f"{word} {day}" for word, day in (("from", self.since), ("to", self.until)) if day)


_TEXTS: Final = ("q", "name", "broker", "queue", "layout", "verdict", "since", "until")


def filters_of(query: Iterable[tuple[str, str]]) -> tuple[Filters, list[str]]:
    """The filters of an address, from its pairs of name and value, and a sentence about each value that means nothing.
    Such a value is no condition. Of a name that may stand once, the last value counts; unknown names mean nothing."""
    texts: dict[str, str] = {}
    tags: list[str] = []
    page, problems = 1, []
    for name, whole in query:
        value = " ".join(whole.split())[:VALUE_MAX]
        problem = _PROBLEMS.get(name, _no_problem)(value) if value else ""
        if problem:
            problems.append(problem)
        elif name == "tag" and value:
            tags.append(value)
        elif name == "page" and value:
            page = int(value)
        elif name in _TEXTS:
            texts[name] = value
    since, until = texts.get("since", ""), texts.get("until", "")
    if since and until and since > until:
        problems.append(f"the first day, {since}, is after the last day, {until}: exchange the two")
    return Filters(**texts, tags=tuple(dict.fromkeys(tags))[:TAGS_MAX], page=page), problems


def _has_words(run: ListedRun, q: str) -> bool:
    text = run.text
    return all(word in text for word in q.lower().split())


def _no_problem(_value: str) -> str:
    return ""


def _day_problem(value: str) -> str:
    try:
        if not _DAY.fullmatch(value):
            raise ValueError
        date.fromisoformat(value)
    except ValueError:
        return f"“{value}” is no day: write it as 2026-11-21"
    return ""


def _page_problem(value: str) -> str:
    return "" if re.fullmatch("[1-9][0-9]{0,6}", value) else f"“{value}” is no number of a page: pages count from 1"


def _verdict_problem(value: str) -> str:
    known = ", ".join(ListedVerdict)
    return "" if value in list(ListedVerdict) else f"“{value}” is no verdict: choose one of {known}"


_PROBLEMS: Final[dict[str, Callable[[str], str]]] = {
    "since": _day_problem,
    "until": _day_problem,
    "page": _page_problem,
    "verdict": _verdict_problem,
}
