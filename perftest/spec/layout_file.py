"""From the YAML text of a layout file to a :class:`~perftest.spec.layout.Layout`, or to every problem in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perftest.spec.layout import Layout, broken_relations
from perftest.spec.load import Document, problem_of, read_yaml, text_of
from perftest.spec.problem import SpecError


def load_layout(path: Path) -> tuple[Layout, Document]:
    """Read a layout file. Raises :class:`~perftest.spec.problem.SpecError` with all problems of the file."""
    fix = "give the path of a layout file, or the name of a bundled layout, such as disks/three_hdd"
    return parse_layout(text_of(path, "layout file", fix), str(path))


def parse_layout(text: str, file: str) -> tuple[Layout, Document]:
    """:func:`load_layout` for text that was read already."""
    document = read_yaml(text, file, what="a layout file", begin="drives: {disk: {directory: /mnt/disk}}")
    return checked(document.data, document), document


def checked(content: dict[str, Any], document: Document) -> Layout:
    """The layout of a file, or of the part of another file that ``document`` describes. Raises SpecError."""
    try:
        layout = Layout.model_validate(content)
    except ValidationError as error:
        raise SpecError([problem_of(document, detail, Layout) for detail in error.errors()]) from error
    if problems := [document.problem(*each) for each in broken_relations(layout)]:
        raise SpecError(problems)
    return layout
