"""The results of a reproduction in files: verdicts for programs, Markdown, and what --assert misses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perftest.exits import CliError
from perftest.reproduction.writing import VERDICTS, held_in, no_longer_held, notes_of, put_markdown, put_verdicts
from tests.reports.published_workloads import tried, workload


def test_what_held_once_must_hold_again(tmp_path: Path) -> None:
    put_verdicts([workload(ours=tried((1, 4)), theirs=tried((4, 1)))], tmp_path)
    wanted = held_in(tmp_path / VERDICTS)
    assert wanted == {("one/rates", "It rises.", "ours")}
    assert no_longer_held(wanted, [workload(ours=tried((1, 5)))]) == []
    assert no_longer_held(wanted, [workload(ours=tried((4, 1)))]) == ["one/rates on ours: not reproduced: It rises."]
    assert no_longer_held(wanted, [workload(theirs=tried((1, 4)))]) == ["one/rates on ours: not run: It rises."]


def test_verdicts_are_counted_and_have_their_figures(tmp_path: Path) -> None:
    put_verdicts([workload(ours=tried((1, 4)))], tmp_path)
    found = json.loads((tmp_path / VERDICTS).read_text())
    assert found["score"]["ours"]["reproduced"] == 1
    first = found["findings"][0]["brokers"]["ours"]
    assert first["verdict"] == "reproduced" and "4 times" in first["figures"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"findings": [{"workload": "w"}]}'])
def test_a_file_of_other_content_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "verdicts.json"
    file.write_text(text)
    with pytest.raises(CliError, match="cannot be read"):
        held_in(file)


def test_markdown_has_a_row_for_each_finding(tmp_path: Path) -> None:
    file = tmp_path / "found.md"
    put_markdown([workload(ours=tried((1, 4)), theirs=tried((4, 1)))], ["Measured | here."], file)
    lines = file.read_text().splitlines()
    assert "| Rates | ours | 1 | 0 | 1 | 0 | 0 |" in lines
    (row,) = (line for line in lines if line.startswith("| It rises. |"))
    assert row.count("|") == 5 and "**reproduced**" in row and "**not reproduced**" in row


def test_markdown_is_as_wide_as_other_pages(tmp_path: Path) -> None:
    """Prose is broken between words; tables are as wide as they must be."""
    file = tmp_path / "findings.md"
    put_markdown([workload(ours=tried((1, 4)))], [" ".join(["word"] * 60)], file)
    prose = [line for line in file.read_text().splitlines() if not line.startswith("|")]
    assert max(map(len, prose)) <= 120 and any(line.startswith("  word word") for line in prose)


def test_markdown_shows_the_picture_of_the_page(tmp_path: Path) -> None:
    """A person makes the picture of the page."""
    file, said = tmp_path / "found.md", "![The page of these findings](images/found.png)"
    put_markdown([workload(ours=tried((1, 4)))], [], file)
    assert said not in file.read_text()
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "found.png").touch()
    put_markdown([workload(ours=tried((1, 4)))], [], file)
    assert said in file.read_text()


def test_it_is_said_where_when_and_with_what_was_measured() -> None:
    host = {"cpu": "AMD EPYC", "cores": 2, "kernel": "6.18"}
    tool = {"version": "1.0.0", "commit": "a23fd486d69c", "dirty": False}
    first = {"started_ns": 1_796_047_775 * 10**9, "hosts": [host], "tool": tool,
             "broker": {"product": "RabbitMQ", "version": "3.10.8", "platform": "Erlang/OTP 25"}}  # fmt: skip
    next_day = {"started_ns": 1_796_134_175 * 10**9, "hosts": [host], "tool": tool | {"dirty": True}, "broker": {}}
    assert notes_of([("theirs", first), ("ours", next_day)]) == [
        "Measured on one machine (AMD EPYC, 2 cores, 6.18), 2026-11-30 to 2026-12-01, by perftest 1.0.0 (a23fd486) and "
        "1.0.0 (a23fd486, changed).",
        "theirs is RabbitMQ 3.10.8 on Erlang/OTP 25; ours is unknown.",
    ]
    assert notes_of([]) == []
