"""Findings of a start in words and as JSON."""

from __future__ import annotations

from reference_broker.storage.findings import ROWS_MAX, StartFinding, rows


def finding(number: int) -> StartFinding:
    return StartFinding(what=f"file {number} is gone", where=f"/{number}", fix="mend the drive", messages=number)


def test_a_few_findings_come_whole_and_in_order() -> None:
    """Whoever reads a status sees each loss with its file, its number and what to do."""
    assert rows([finding(3), finding(5)]) == [
        {"what": f"file {n} is gone", "where": f"/{n}", "queue": "", "messages": n, "fix": "mend the drive"}
        for n in (3, 5)
    ]


def test_many_findings_do_not_blow_up_a_status() -> None:
    """A status is asked for every few milliseconds during a start: it names the largest losses and counts the rest."""
    shown = rows([finding(number) for number in range(ROWS_MAX + 5)])
    assert len(shown) == ROWS_MAX and shown[0]["messages"] == ROWS_MAX + 4
    assert shown[-1]["what"] == "6 more findings" and sum(int(row["messages"]) for row in shown) == sum(
        range(ROWS_MAX + 5)
    )
