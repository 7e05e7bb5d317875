"""The classes that files are read into: how strict they are, their keys, and lines to paste for needed keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict

from perftest.spec.fields import key_of, types_of
from perftest.spec.problem import Location

_EXAMPLES: Final[Mapping[str, str]] = {
    "schema": "1",
    "name": "my_load",
    "title": "What this measures",
    "queues": "[{name: q1}]",
    "step": "{duration: 30s, warmup: 5s}",
    "duration": "30s",
    "set": "{rate: 1k}",
    "at": "10s",
    "do": "kill",
    "trend": "rises",
    "metric": "rate",
    "figure": "rate==19k",
    "says": "The rate grows with the setting.",
    "setting": "in_flight",
    "values": "[1, 10, 100, 1000]",
    "hosts": "{load1: {address: 192.0.2.1}}",
    "groups.hosts": "[load1, load2]",
    "drives": "{disk: {directory: /mnt/disk}}",
    "roles": "{data: disk, logs: disk, segment: disk, wal: disk}",
    "profile": "nvme",
    "size": "4GiB",
    "latency": "100us",
    "octets_per_second": "500MB",
}
"""Values by key. A key of another meaning in one section has the section before it."""


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


def line_for(location: Location) -> str:
    """The line that gives a missing key a value."""
    key = str(location[-1])
    return f"{key}: {_EXAMPLES.get(f'{location[0]}.{key}') or _EXAMPLES[key]}"
