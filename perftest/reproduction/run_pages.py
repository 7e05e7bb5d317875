"""A page for each run of a reproduction, all made in one go: an overview with links, and a script that they share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from perftest.exits import Exit
from perftest.reproduction.campaign import Campaign
from perftest.reproduction.commands import in_process_of_its_own
from perftest.tell import tell

PAGES: Final = "pages"
_MADE: Final = (Exit.OK, Exit.SAFETY, Exit.MISSED, Exit.UNTRUSTED, Exit.DAMAGED)
"""The exit codes of a report that was made: all but the first tell what it says of the runs."""


def make_pages(campaign: Campaign) -> bool:
    """Make the pages of all runs. Returns whether they are there; what failed is said on stderr."""
    runs = [str(run) for experiment in campaign.experiments for run in campaign.runs_of(experiment.name)]
    if not runs:
        return False
    tell(f"making the pages of {len(runs)} runs …")
    place, store = campaign.place / PAGES, campaign.place / ".store"
    words = ["report", *runs, "--separate", "--out", str(place), "--store", str(store)]
    place.mkdir(exist_ok=True)
    code = in_process_of_its_own(words, place / "output.txt")
    if code not in _MADE:
        tell(f"the pages of the runs could not be made (exit code {code}): see {place / 'output.txt'}")
    return code in _MADE


def page_of(run: Path) -> str:
    """The page of a run, from where the page of findings lies."""
    return f"{PAGES}/run-{re.sub(r'[^A-Za-z0-9_-]+', '-', run.name)}.html"
