"""The link between the coordinator and a load host is cut without a word, as a network does it, and comes back."""

from __future__ import annotations

import csv
import itertools

import pytest

from tests.infra.conftest import NO_LAB
from tests.integration.test_runs_in_a_lab import Runs, lab

__all__ = ["lab"]
pytestmark = [
    pytest.mark.lab,
    pytest.mark.processes,
    pytest.mark.skipif(bool(NO_LAB), reason=f"no lab of hosts here: {NO_LAB}"),
]

AWAY = 6
"""So many intervals of a second pass while the host is away."""


def test_a_link_that_is_cut_for_some_seconds_costs_nothing(lab: Runs) -> None:
    process = lab.begin(seconds=20)
    code, said = lab.call("lab", "link", "local", "host4", "--cut")
    assert code == 0, said
    assert process.stdout is not None
    lines = (line for line in process.stdout if "phase=steady" in line)
    assert len(list(itertools.islice(lines, AWAY))) == AWAY, "the run goes on meanwhile"
    code, said = lab.call("lab", "link", "local", "host4", "--no-cut")
    assert code == 0, said
    code, said = lab.end(process)
    assert code in (0, 5), said
    assert lab.told("manifest")["state"] == "finished"
    kinds = [event["kind"] for event in lab.events()]
    assert "host_lost" not in kinds and "worker_lost" not in kinds, said
    late = [event for event in lab.events() if event["kind"] == "cut_late"]
    assert "host4" in {event.get("host") for event in late}, late
    ledger = lab.told("ledger")
    assert ledger["lost"] == 0 and ledger["published"] == ledger["delivered"] > 0
    with (lab.run / "intervals.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["published"]) for row in rows) == ledger["published"]
    others = [int(row["length_ns"]) for row in rows if row["host"] == "host5" and row["phase"] == "steady"]
    assert len(others) > AWAY, "the other host told its intervals all the while"
    lab.wait_for_no_process()
