"""Tags and notes: nobody's change is lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.catalogue.annotations import (
    Annotation,
    AnnotationChange,
    annotate,
    applied,
    read_annotations,
)
from reports.errors import AnnotationError, StoreError
from reports.store.locations import location_of


def test_changes_follow_each_other(tmp_path: Path) -> None:
    store = location_of(tmp_path / "store")
    assert read_annotations(store) == {}
    annotate(store, "run", AnnotationChange(add=("b", "a"), note="first"), 1)
    annotate(store, "run", AnnotationChange(remove=("b",)), 2)
    after = annotate(store, "run", AnnotationChange(add=("c",), note="second"), 3)
    assert after == Annotation(tags=("a", "c"), note="second")
    beside = annotate(store, "beside", AnnotationChange(note="x"), 4)
    assert read_annotations(store, ["run", "other"]) == {"run": after}
    assert read_annotations(store) == {"run": after, "beside": beside}


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    """Nobody overwrites another's tag."""
    store = location_of(tmp_path)
    annotate(store, "run", AnnotationChange(add=("first",)), 0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: annotate(store, "run", AnnotationChange(add=(f"t{at}",)), at), range(1, 9)))
    assert read_annotations(store)["run"].tags == ("first", *(f"t{at}" for at in range(1, 9)))


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be"):
        annotate(location_of(tmp_path / "file"), "run", AnnotationChange(add=("mine",)), 1)


@pytest.mark.parametrize("tag", ["", "two words", "-x", "a\x1b[31m", "é", "x" * 65])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(AnnotationError, match="is no tag"):
        AnnotationChange(add=(tag,))


@pytest.mark.parametrize("note", ["\x1b]0;title\x07", "x" * 1_001, "nul\0"])
def test_a_note_must_not_control_the_terminal_that_shows_it(note: str) -> None:
    with pytest.raises(AnnotationError, match="cannot be kept"):
        AnnotationChange(note=note)


texts = st.text() | st.lists(st.text() | st.integers()).map(json.dumps)


@given(st.lists(st.fixed_dictionaries({"added": texts, "removed": texts, "note": st.none() | st.text()})))
def test_records_of_any_form_give_an_annotation_that_can_be_shown(changes: list[dict[str, str | None]]) -> None:
    found = applied(changes)
    assert all(character.isprintable() or character == "\n" for character in found.note)
    AnnotationChange(add=found.tags, note=found.note)
