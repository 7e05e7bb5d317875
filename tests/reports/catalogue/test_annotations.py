"""Tags and notes: nobody's change is lost, and damage costs the damaged change only."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.results.folder import LocalFolder
from reports.catalogue.annotations import (
    NOTHING,
    Annotation,
    AnnotationChange,
    annotate,
    applied,
    read_annotation,
    read_annotations,
)
from reports.errors import AnnotationError, StoreError


class RacedFolder(LocalFolder):
    """A folder in which somebody else takes the next number first, so many times."""

    losses = 0

    def put_if_absent(self, name: str, content: bytes) -> bool:
        if self.losses:
            object.__setattr__(self, "losses", self.losses - 1)
            LocalFolder.put_if_absent(self, name, AnnotationChange(add=(f"other-{self.losses}",)).to_json(0))
        return LocalFolder.put_if_absent(self, name, content)


def raced(path: Path, losses: int) -> RacedFolder:
    folder = RacedFolder(path)
    object.__setattr__(folder, "losses", losses)
    return folder


def test_changes_follow_each_other(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    assert read_annotation(folder, "run") == NOTHING
    annotate(folder, "run", AnnotationChange(add=("b", "a"), note="first"), 1)
    annotate(folder, "run", AnnotationChange(remove=("b",)), 2)
    after = annotate(folder, "run", AnnotationChange(add=("c",), note="second"), 3)
    assert after == Annotation(tags=("a", "c"), note="second")
    assert read_annotations(folder, ["run", "other"]) == {"run": after}


def test_a_change_that_comes_second_is_kept_beside_the_first(tmp_path: Path) -> None:
    after = annotate(raced(tmp_path, 3), "run", AnnotationChange(add=("mine",)), 1)
    assert after.tags == ("mine", "other-0", "other-1", "other-2")


def test_a_change_that_never_comes_first_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="100 other changes"):
        annotate(raced(tmp_path, 1_000), "run", AnnotationChange(add=("mine",)), 1)


def test_a_damaged_change_costs_itself_only(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    annotate(folder, "run", AnnotationChange(add=("a",)), 1)
    folder.put_if_absent("annotations/run/00000002.json", b'{"add": ["')
    folder.put_if_absent("annotations/run/notes.txt", b"of somebody else")
    assert annotate(folder, "run", AnnotationChange(add=("b",)), 3).tags == ("a", "b")


@pytest.mark.parametrize("tag", ["", "two words", "-x", "a\x1b[31m", "é", "x" * 65])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(AnnotationError, match="is no tag"):
        AnnotationChange(add=(tag,))


@pytest.mark.parametrize("note", ["\x1b]0;title\x07", "x" * 1_001, "nul\0"])
def test_a_note_must_not_control_the_terminal_that_shows_it(note: str) -> None:
    with pytest.raises(AnnotationError, match="cannot be kept"):
        AnnotationChange(note=note)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(st.dictionaries(st.sampled_from(["add", "remove", "note", "t_ns"]), json_like)))
def test_records_of_any_form_give_an_annotation_that_can_be_shown(changes: list[dict[str, object]]) -> None:
    found = applied(changes)
    assert all(character.isprintable() or character == "\n" for character in found.note)
    AnnotationChange(add=found.tags, note=found.note)
