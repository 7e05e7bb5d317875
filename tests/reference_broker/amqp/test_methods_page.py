"""The page of methods names every method of the protocol, and tests that exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pamqp import base, commands

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "internals" / "amqp-methods.md"
CLASSES = (
    commands.Connection, commands.Channel, commands.Exchange, commands.Queue, commands.Basic, commands.Confirm,
    commands.Tx,
)  # fmt: skip
_WORD = re.compile(r"`((?:[a-z]+\.)?[a-z]+(?:-[a-z]+)*)`")
_TEST = re.compile(r"`(tests/[\w/]+\.py):(\w+)`")


def told(text: str) -> set[str]:
    """The methods of the first column; a word without a class belongs to the class before it."""
    found: set[str] = set()
    for row in text.splitlines():
        of_class = ""
        for word in _WORD.findall(row.split("|")[1]) if row.startswith("| `") and row.count("|") == 5 else ():
            of_class = word.partition(".")[0] if "." in word else of_class
            found.add(word if "." in word else f"{of_class}.{word}")
    return found


def specified() -> set[str]:
    """All methods, in the words of the specification."""
    found = set()
    for each in CLASSES:
        for name, method in vars(each).items():
            if inspect.isclass(method) and issubclass(method, base.Frame):
                found.add(f"{each.__name__.lower()}.{re.sub('(?<!^)(?=[A-Z])', '-', name).lower()}")
    return found


def test_every_method_has_its_place() -> None:
    assert told(PAGE.read_text(encoding="utf-8")) == specified()


def test_every_row_names_a_test_that_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for row in (row for row in text.splitlines() if row.startswith("| `") and row.count("|") == 5):
        assert _TEST.search(row.split("|")[4]), row
    gone = [
        f"{path}:{name}"
        for path, name in _TEST.findall(text)
        if not re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not gone
