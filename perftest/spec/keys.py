"""The classes that files are read into: how strict they are, and their keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from perftest.spec.fields import key_of, types_of


class Model(BaseModel):
    """The strictness that all sections share: parts of a plan within a model have it, too."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def keys_of(section: Any) -> dict[str, Any]:
    """The keys of a section, a model or a part of a plan, with their types."""
    if issubclass(section, BaseModel):
        return {each.alias or name: each.annotation for name, each in section.model_fields.items()}
    return {key_of(section, each.name): types_of(section)[each.name] for each in fields(section)}


def sections_in(kind: Any) -> Iterator[type]:
    """The sections within the type of a key."""
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel)):
        yield kind
    for each in get_args(kind):
        yield from sections_in(each)
