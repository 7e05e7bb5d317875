"""The cluster that a workload asks for, to be started if no broker is named. Pure values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from perftest.spec.fields import Count, Key

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

NODES: Final = (1, 3, 5, 7, 9)
_RABBITMQ_NODES: Final = (1, 3, 5)
LayoutOf = str | dict[str, Any]
"""A layout of drives: the path of its file or the name of a bundled layout, or the content of such a file."""


class OfLayout:
    """A mark: a mapping is checked as a layout, and stays as it was written, so that readers of the plan can read it as
    a layout file."""

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from perftest.spec.layout import FILE_OR_LAYOUT

        return handler.generate_schema(FILE_OR_LAYOUT)


class Product(StrEnum):
    """The broker that is started."""

    REFERENCE = "reference"
    RABBITMQ = "rabbitmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The cluster that is started on this machine if no broker is named."""

    broker: Annotated[Product, Key("broker to start: the bundled one, or an installed RabbitMQ")] = Product.REFERENCE
    nodes: Annotated[Count, Key("number of nodes: 1, 3, 5, 7 or 9; 1, 3 or 5 of rabbitmq")] = 3
    layout: Annotated[
        LayoutOf, OfLayout(), Key("a layout file, named from the folder of this file, a bundled layout, or a layout")
    ] = ""
    settings: Annotated[
        dict[str, int], Key("limits of the nodes of the bundled broker, by their names in node.json")
    ] = field(default_factory=dict)
    policies: Annotated[
        dict[str, dict[str, str | int | list[str]]],
        Key('definitions of policies, by the pattern of the queues\' names: {"^orders": {ha-mode: all}}'),
    ] = field(default_factory=dict)


def requests_for(policies: Mapping[str, Mapping[str, object]]) -> Iterator[dict[str, object]]:
    """The policies of a section, as requests to a node or as words for another broker."""
    for number, (pattern, definition) in enumerate(policies.items(), start=1):
        yield {"op": "set-policy", "name": f"workload-{number}", "pattern": pattern, "definition": dict(definition)}


class ClusterFault(NamedTuple):
    """A key of the section that cannot be, and what to do."""

    key: str
    value: object
    rule: str
    fix: str


def faults(cluster: ClusterSpec) -> Iterator[ClusterFault]:
    """The faults of a section, as far as the section shows."""
    if cluster.nodes not in NODES:
        rule = f"a cluster of {cluster.nodes} nodes is not started"
        yield ClusterFault(
            "nodes", cluster.nodes, rule, "use 1, 3, 5, 7 or 9: an even number tolerates no more failures"
        )
    elif cluster.broker is Product.RABBITMQ and cluster.nodes not in _RABBITMQ_NODES:
        rule = f"a RabbitMQ of {cluster.nodes} nodes is not started on one machine"
        yield ClusterFault(
            "nodes", cluster.nodes, rule, "use 1, 3 or 5, or start RabbitMQ yourself and name it with -h"
        )
    if cluster.settings and cluster.broker is Product.RABBITMQ:
        rule = "limits are those of reference nodes, and RabbitMQ has others"
        yield ClusterFault("settings", None, rule, "leave out settings, or broker: rabbitmq")
