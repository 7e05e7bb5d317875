"""The text of a workload file becomes the same values, lines and words, whichever of the two parsers reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import workloads
from perftest.spec import load
from perftest.spec.problem import SpecError

FILES = sorted(Path(workloads.__file__).parent.rglob("*.yaml"))
MERGED = "base: &base {a: 1, b: [x, y]}\nmore:\n  <<: *base\n  a: 2\n"
DEEPEST = 16_000


def read(text: str) -> load.Document:
    return load.read_yaml(text, "w.yaml", what="a file", begin="a: 1")


@pytest.mark.parametrize(
    "text", [MERGED, *(path.read_text() for path in FILES)], ids=["merged", *(path.name for path in FILES)]
)
def test_both_parsers_give_the_same_values_and_lines(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(text)
    monkeypatch.setattr(load, "_parser_for", lambda _text: yaml.SafeLoader)
    assert read(text) == found
    assert found.data == yaml.safe_load(text) and len(found.lines) > len(found.data)


@pytest.mark.parametrize("text", ["[" * DEEPEST, "{" * DEEPEST, "- " * (DEEPEST // 2), "a: \ud800"])
def test_a_text_that_no_parser_takes_is_a_problem(text: str) -> None:
    """The parser in C ends the process when its stack does."""
    with pytest.raises(SpecError, match="this is not YAML"):
        read(text)
