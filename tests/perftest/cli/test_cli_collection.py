"""``perftest compare --collect``: the repetitions of two sides, in turn, by a perftest that only pretends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perftest.series.collection import _next
from tests.reports.comparison.conftest import make as make

Call = Callable[..., tuple[int, str, str]]
Make = Callable[..., Path]

PRETENDER = """\
#!{python}
import json, pathlib, shutil, sys
words = sys.argv[1:]
here, side = pathlib.Path({here!r}), pathlib.Path(words[words.index("--out") + 1])
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([side.name, words[:words.index("--out")]]) + chr(10))
number = len((here / "calls").read_text().splitlines())
code = {codes}.get(number, 0)
if code in (0, 5):
    shutil.copytree(here / "runs" / "model", side / f"run-{{number:02}}")
else:
    print("error: the broker is gone")
sys.exit(code)
"""


@pytest.fixture
def pretender(tmp_path: Path, make: Make) -> Callable[..., str]:
    """Write a program that copies a finished run to where ``--out`` says, and ends its n-th call with a code."""

    def write(codes: dict[int, int] | None = None) -> str:
        if not (tmp_path / "runs").exists():
            make("model", seed=1).replace(tmp_path / "taken")
            (tmp_path / "runs").mkdir()
            (tmp_path / "taken").rename(tmp_path / "runs" / "model")
            model = next(path.parent for path in (tmp_path / "runs").rglob("manifest.json"))
            if model != tmp_path / "runs" / "model":
                model.rename(tmp_path / "runs" / "inner")
                (tmp_path / "runs" / "model").rmdir()
                (tmp_path / "runs" / "inner").rename(tmp_path / "runs" / "model")
        program = tmp_path / "perftest-old"
        program.write_text(PRETENDER.format(python=sys.executable, here=str(tmp_path), codes=codes or {}))
        program.chmod(0o755)
        return str(program)

    return write


def calls(tmp_path: Path) -> list[tuple[str, list[str]]]:
    return [(side, words) for side, words in map(json.loads, (tmp_path / "calls").read_text().splitlines())]


def test_the_sides_take_turns(call: Call, pretender: Callable[..., str], tmp_path: Path) -> None:
    """AB BA AB: drift meets both alike; each side has its own words, which no shell reads."""
    words = ("--base", "-h amqp://old", "--candidate", "-h 'amqp://new; $x'", "--out", str(tmp_path / "ab"))
    code, out, err = call("compare", "--collect", "3", *words, "--", pretender(), "run", "-z", "1")
    assert code == 0, err
    assert [side for side, _ in calls(tmp_path)] == ["base", "candidate", "candidate", "base", "base", "candidate"]
    assert calls(tmp_path)[0][1] == ["run", "-z", "1", "-h", "amqp://old"]
    assert calls(tmp_path)[1][1] == ["run", "-z", "1", "-h", "amqp://new; $x"]
    assert "no verdict: 3 runs against 3" in out
    assert "candidate: repetition 3 of 3" in err


def test_the_same_command_line_goes_on(call: Call, pretender: Callable[..., str], tmp_path: Path) -> None:
    """After an interruption nothing is measured twice, and what is kept is said."""
    words = ("compare", "--collect", "2", "--out", str(tmp_path / "ab"), "--", pretender({3: 130}), "run")
    code, _, err = call(*words)
    assert code == 130
    assert "1 repetition of the base and 1 of the candidate are kept" in err and "give the same command line" in err
    assert call(*words)[0] == 0
    assert [side for side, _ in calls(tmp_path)] == ["base", "candidate", "candidate", "candidate", "base"]
    code, _, err = call(*words, "-z", "9")
    assert code == 2 and "this directory has repetitions of other commands" in err


@pytest.mark.parametrize("codes, expected, made", [({2: 1}, 0, 5), ({2: 1, 3: 1, 4: 1}, 1, 4), ({1: 2}, 2, 1)])
def test_a_failure_is_told(
    call: Call, pretender: Callable[..., str], tmp_path: Path, codes: dict[int, int], expected: int, made: int
) -> None:
    """One is made again; three in a row, or a wrong option, end the collection with a sentence."""
    code, _, err = call("compare", "--collect", "2", "--out", str(tmp_path / "ab"), "--", pretender(codes), "run")
    assert (code, len(calls(tmp_path))) == (expected, made)
    assert "failed with exit code" in err and "error: the broker is gone" in err


def test_a_wrong_option_is_corrected_and_given_again(call: Call, pretender: Callable[..., str], tmp_path: Path) -> None:
    """The command ends as the option did, and a corrected command line needs no other directory."""
    words = ("compare", "--collect", "1", "--out", str(tmp_path / "ab"), "--", pretender({1: 2}), "run")
    code, _, err = call(*words, "--wrong")
    assert code == 2 and "the command of the base cannot be measured" in err
    assert "run --wrong" in err and "correct it as the lines above say" in err
    code, _, err = call(*words)
    assert code == 0 and "--collect 10 goes on with the repetitions in" in err


@pytest.mark.parametrize(
    "words, says",
    [
        (("--collect", "2"), "there is no command to measure"),
        (("--collect", "2", "--", "perftest", "doctor"), "does not measure one repetition"),
        (("--collect", "2", "--", "perftest", "run", "--out", "x"), "--out does not go with --collect"),
        (("--collect", "2", "--base", "-u 'q", "--", "perftest", "run"), "the words cannot be told apart"),
        (("--collect", "2", "--", "no-such-perftest", "run"), "there is no such program"),
        (("--base", "-h x", "a", "b"), "--base is of use only with --collect"),
        (("a",), "two directories are compared, these are 1"),
    ],
)
def test_what_cannot_be_collected(call: Call, words: tuple[str, ...], says: str) -> None:
    """Each is said before anything is measured."""
    code, _, err = call("compare", *words)
    assert code == 2 and says in err


def test_the_side_that_lags_is_next() -> None:
    """A repetition that failed is made up for at once."""
    assert _next({"base": 0, "candidate": 0}) == "base"
    assert _next({"base": 1, "candidate": 1}) == "candidate"
    assert _next({"base": 1, "candidate": 3}) == "base"
