"""The line that an error proposes for a missing key: whoever pastes it has a file that can be read further."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from perftest.spec.fields import key_of
from perftest.spec.hosts import Inventory
from perftest.spec.keys import keys_of, line_for, sections_in
from perftest.spec.layout import Layout
from perftest.spec.models import Workload


def _needed(section: Any) -> list[str]:
    """The keys without a default."""
    if issubclass(section, BaseModel):
        return [each.alias or name for name, each in section.model_fields.items() if each.is_required()]
    return [
        key_of(section, each.name)
        for each in fields(section)
        if each.default is MISSING and each.default_factory is MISSING
    ]


def _sections(section: Any, found: dict[Any, str], place: str) -> dict[Any, str]:
    """All sections of a file, and the first key on the way to each."""
    if section not in found:
        found[section] = place
        for key, kind in keys_of(section).items():
            for each in sections_in(kind):
                _sections(each, found, place or key)
    return found


def _cases() -> Iterator[tuple[Any, str, str]]:
    for root in (Workload, Inventory, Layout):
        for section, place in _sections(root, {}, "").items():
            yield from ((section, place, key) for key in _needed(section))


@pytest.mark.parametrize(("section", "place", "key"), [*_cases()])
def test_the_line_for_a_missing_key_is_accepted(section: Any, place: str, key: str) -> None:
    line = line_for((place, key) if place else (key,))
    pasted = yaml.safe_load(line)
    assert [*pasted] == [key] and "…" not in line
    wrong: set[object] = set()
    try:
        TypeAdapter(section).validate_python(pasted)
    except ValidationError as error:
        wrong = {each["loc"][0] for each in error.errors()}
    assert wrong == {*_needed(section)} - {key}
