"""Two runs that were picked for a comparison, as the address of the comparison has them. Pure.

::

    /compare?run=20261121-101502-in_flight-3fa1&run=20261122-101502-in_flight-77aa&allow=plan
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from perftest.errors import HelpfulError
from reports.server.listed_run import ListedRun


class PickError(HelpfulError):
    """Runs that cannot be compared, whatever is in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """The names of the two runs, and the facets in which they may differ."""

    base: str
    candidate: str
    allow: frozenset[str] = frozenset()

    def allowing(self, facets: Iterable[str]) -> Picks:
        """The same runs, which may also differ in these facets."""
        return replace(self, allow=self.allow | set(facets))

    @property
    def address(self) -> str:
        """The address of the comparison."""
        runs = [("run", self.base), ("run", self.candidate)]
        return f"/compare?{urlencode([*runs, *(('allow', facet) for facet in sorted(self.allow))])}"


def picks_of(query: Iterable[tuple[str, str]], run_of: Callable[[str], ListedRun]) -> Picks:
    """The picks of an address. The older run is the baseline. ``run_of`` finds a run by its name, and raises OSError if
    there is none.

    :raises PickError: not two runs, or a run that has no figures to compare yet, or has none any more
    """
    pairs = list(query)
    names = [value for name, value in pairs if name == "run"]
    if len(names) != 2:
        what = f"A comparison takes two runs, and {len(names) or 'none'} {'was' if len(names) == 1 else 'were'} picked"
        raise PickError(what, ", ".join(names), "Pick two runs in the list.")
    if names[0] == names[1]:
        raise PickError("Nothing can differ from itself", names[0], "Pick another run beside this one.")
    base, candidate = sorted(map(run_of, names), key=lambda run: (run.started_ns, run.name))
    for run in (base, candidate):
        if run.running:
            raise PickError("This run is still in progress", run.name, "Compare it after its end.")
        if not run.readable:
            raise PickError("This run cannot be read", f"{run.name}: {run.reason}", "Pick another run.")
    allow = frozenset(value for name, value in pairs if name == "allow")
    return Picks(base=base.name, candidate=candidate.name, allow=allow)
