"""Differences between two runs themselves, by their meaning for a comparison.

A difference of the experiment (plan, load host, durability), or a side that cannot be trusted, makes a comparison of
the brokers impossible: the comparison is refused. A difference of the broker or of the tool is usually the reason for
the comparison: the difference is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from perftest.results.reader import Run, trust_of
from perftest.results.trust_list import failed


class Facet(StrEnum):
    """The aspects in which runs may differ. Differences in the first five are refused unless allowed."""

    PLAN = "plan"
    HOST = "host"
    DURABILITY = "durability"
    VALIDITY = "validity"
    SAFETY = "safety"
    BROKER = "broker"
    TOOL = "tool"


REFUSED: Final = (Facet.PLAN, Facet.HOST, Facet.DURABILITY, Facet.VALIDITY, Facet.SAFETY)
_HOST: Final = ("cpu", "cores", "memory_bytes", "kernel", "filesystem")
_BROKER: Final = ("product", "version", "platform", "cluster")
_TOOL: Final = ("version", "commit", "dirty", "python")
_NO_PART_OF_THE_PLAN: Final = ("uris", "digest", "name", "title", "source", "findings")
_OF_BROKER: Final = re.compile(r"plan\.(cluster|connecting)\.|plan\.(.*\.)?publishing\.start_delay_s$")
"""Keys of a plan that say how a broker is started and reached."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: ``where`` is a key of the manifest, and the sides are texts."""

    facet: Facet
    where: str
    base: str
    candidate: str


def differences(base: Run, candidate: Run) -> list[Difference]:
    """All differences; the differences that are refused come first."""
    found = [*_plan(base, candidate), *_facts(base, candidate), *_faults(base, candidate)]
    return sorted(found, key=lambda each: list(Facet).index(each.facet))


def across_brokers(found: Sequence[Difference]) -> list[Difference]:
    """The differences of two brokers: what belongs to each broker (its cluster, how clients connect and begin) is a
    difference of the broker, which is shown and not refused."""
    return [replace(each, facet=Facet.BROKER) if of_broker(each) else each for each in found]


def of_broker(each: Difference) -> bool:
    """Whether a difference comes with another broker."""
    return each.facet is Facet.BROKER or _OF_BROKER.match(each.where) is not None


def repeats_differ(first: Run, other: Run) -> list[Difference]:
    """Differences that keep two runs from being repetitions of one measurement: all but the state of the tool."""
    found = [*_plan(first, other), *_facts(first, other)]
    return [each for each in found if each.facet is not Facet.TOOL]


def _plan(base: Run, candidate: Run) -> Iterator[Difference]:
    ours, theirs = (dict(_flat(_experiment(run))) for run in (base, candidate))
    for where in sorted(ours.keys() | theirs.keys()):
        if ours.get(where) != theirs.get(where):
            yield Difference(Facet.PLAN, f"plan.{where}", _text(ours.get(where)), _text(theirs.get(where)))


def _experiment(run: Run) -> dict[str, Any]:
    """The plan without names and without the broker, which is usually the reason for a comparison; steps by their
    number, for the order in which they run may be drawn."""
    plan = {key: value for key, value in run.manifest["plan"].items() if key not in _NO_PART_OF_THE_PLAN}
    plan["cluster"] = {key: value for key, value in (plan.get("cluster") or {}).items() if key != "broker"}
    return {**plan, "steps": sorted(plan.get("steps") or (), key=lambda step: int(step.get("number") or 0))}


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested values by dotted name; what is empty is no difference from what is absent."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{place}[{number}]")
    elif value not in (None, ""):
        yield place, value


def _facts(base: Run, candidate: Run) -> Iterator[Difference]:
    for facet, section, names in ((Facet.BROKER, "broker", _BROKER), (Facet.TOOL, "tool", _TOOL)):
        ours, theirs = (run.manifest.get(section) or {} for run in (base, candidate))
        yield from _fields(facet, section, ours, theirs, names)
    ours, theirs = (run.manifest.get("broker") or {} for run in (base, candidate))
    if ours.get("product") == theirs.get("product"):
        yield from _fields(Facet.DURABILITY, "broker", ours, theirs, ("durability",))
    hosts = [run.manifest.get("hosts") or [] for run in (base, candidate)]
    if len(hosts[0]) != len(hosts[1]):
        yield Difference(Facet.HOST, "hosts", f"{len(hosts[0])} load hosts", f"{len(hosts[1])} load hosts")
    for number, (one, other) in enumerate(zip(*hosts, strict=False)):
        yield from _fields(Facet.HOST, f"hosts[{number}]", one, other, _HOST)


def _fields(
    facet: Facet, section: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[Difference]:
    for name in names:
        if ours.get(name) != theirs.get(name):
            yield Difference(facet, f"{section}.{name}", _text(ours.get(name)), _text(theirs.get(name)))


def _faults(base: Run, candidate: Run) -> Iterator[Difference]:
    """The faults of each side by itself."""
    words = [_fault(run) for run in (base, candidate)]
    if any(words):
        yield Difference(Facet.VALIDITY, "result.valid", *(word or "trustworthy" for word in words))
    verdicts = [str((run.ledger or {}).get("verdict", "unknown")) for run in (base, candidate)]
    if "violated" in verdicts:
        yield Difference(Facet.SAFETY, "ledger.verdict", *verdicts)


def _fault(run: Run) -> str:
    """The checks that failed, in the words of the trust list. Harm to messages has a facet of its own."""
    unsafe = (run.ledger or {}).get("verdict") == "violated"
    return "; ".join(check.text for check in failed(trust_of(run)) if check.check != "ledger" or not unsafe)


def _text(value: object) -> str:
    return "–" if value is None else str(value)
