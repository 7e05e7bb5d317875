"""The trust list: whether the numbers may be believed, worst first."""

from __future__ import annotations

from typing import Final

from reports.pages.findings import ledger_sentence
from reports.pages.model import Check, Status
from reports.pipeline.schema import Tables

_ORDER: Final = (Status.FAIL, Status.WARN, Status.PASS, Status.NOTE)


def checks(tables: Tables) -> list[Check]:
    """The checks of one run: failures first, then warnings."""
    ledger = tables.ledger.iloc[0] if len(tables.ledger) else None
    verdict = "" if ledger is None else str(ledger["verdict"])
    status = {"ok": Status.PASS, "violated": Status.FAIL}.get(verdict, Status.WARN)
    found = [Check(name="ledger", status=status, text=ledger_sentence(ledger))]
    return sorted(found, key=lambda check: _ORDER.index(check.status))
