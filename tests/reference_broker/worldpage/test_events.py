"""The format of recorded events: what is written can be read again, and what is not of the format is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_broker.worldpage.events import KINDS, EventFormatError, WorldEvent, lines, problem, read

_SAMPLES = {"int": 7, "float": 1.25, "bool": True, "str": "a <queue> of µ", "ints": [1, 2], "runs": [[1, 1], [4, 2]]}


@pytest.mark.parametrize("what", KINDS)
def test_each_kind_survives_a_file(what: str) -> None:
    """Also with nothing known of its fields."""
    full = WorldEvent(1.5, "n1", what, {name: _SAMPLES[of] for name, of in KINDS[what].fields.items()})
    empty = WorldEvent(2.0, "", what, dict.fromkeys(KINDS[what].fields))
    assert problem(full) is None and problem(empty) is None
    assert [*read(lines([full, empty]))] == [full, empty]


def test_a_field_may_be_left_out() -> None:
    """Who writes events of a running cluster does not know everything."""
    (event,) = read('{"t": 1, "at": "n1", "what": "commit", "group": "orders"}\n')
    assert event == WorldEvent(1.0, "n1", "commit", {"group": "orders", "index": None})


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "line 1: no event"),
        ('{"t": 1, "at": "n1"}', "line 1: no event"),
        ("[]", "line 1: no event"),
        ('{"t": 1, "at": "n1", "what": "dance"}', "no kind of event 'dance'"),
        ('{"t": 1, "at": "n1", "what": "kill", "by": "x"}', "kill has the fields"),
        ('{"t": 1, "at": "n1", "what": "start", "boot": "x"}', "start.boot is to be int"),
        ('{"t": 1, "at": "n1", "what": "start", "boot": true}', "start.boot is to be int"),
        ('{"t": 2, "at": "n1", "what": "kill"}\n\n{"t": 1, "at": "n1", "what": "kill"}', "line 3: an event of 1.0 s"),
    ],
)
def test_anything_else_is_refused_by_its_line(text: str, wrong: str) -> None:
    with pytest.raises(EventFormatError, match=wrong):
        list(read(text))


def test_the_documentation_has_the_whole_format() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "internals", "simulation.md").read_text(encoding="utf-8")
    rows = [
        f"| `{what}` | {', '.join(f'`{name}` {of}' for name, of in kind.fields.items())} | {kind.meaning} |"
        for what, kind in KINDS.items()
    ]
    assert "\n".join(rows) in page, "\n".join(rows)
