"""The command with real nodes: a trial, the page of what holds, and what a CI job asks of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perftest.cli.main import call

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_a_reproduction_ends_with_a_page_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = ("--step", "3s", "--rounds", "1", "--rounds-max", "1", "--hours", "0.1", "--no-pages")
    assert call(["reproduce", "locality/quorum_leader", *times, "--out", str(tmp_path), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    (place,) = tmp_path.iterdir()
    assert sum(verdicts["score"]["reference"].values()) == len(verdicts["findings"]) > 0
    assert "Published findings, tried again" in (place / "published-findings.html").read_text()
    (finding, *_) = verdicts["findings"]
    wanted = {**finding, "brokers": {"reference": {"verdict": "reproduced"}}, "says": "It was never measured."}
    file = tmp_path / "wanted.json"
    file.write_text(json.dumps({"findings": [wanted]}))
    assert call(["reproduce", "--resume", str(place), *times[-3:], "--assert", str(file)]) == 4
    assert "missed  locality/quorum_leader on reference: not run: It was never measured." in capsys.readouterr().out
