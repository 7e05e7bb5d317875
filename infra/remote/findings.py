"""The objections to a host, from the facts of its probe. Pure: facts in, findings out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from infra.remote.shipping import OLDEST_PYTHON

ROOM: Final = 300_000_000
"""Octets that the project takes on a host, with room to spare."""
ROOM_OF_A_NODE: Final = 2_000_000_000
"""Octets of a write-ahead log and segments before anything is removed."""
FILES: Final = 4096
STEAL: Final = 0.02
CLOCK_S: Final = 60.0

Facts = Mapping[str, Any]


class Severity(StrEnum):
    """``ERROR``: the host cannot take part. ``WARNING``: its figures may suffer. ``NOTE``: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFinding:
    """Something about one host, and what to do."""

    host: str
    check: str
    severity: Severity
    what: str
    fix: str


def findings(facts: Mapping[str, Facts], version: str) -> list[HostFinding]:
    """The objections to hosts, by name in their order, and then to all of them together. ``version`` is the version of
    the project here."""
    found = [each for host, of in facts.items() for each in _of_host(host, of, version)]
    return [*found, *_reach(facts), *_alike(facts)]


def _of_host(host: str, facts: Facts, version: str) -> Iterator[HostFinding]:
    def finding(check: str, severity: Severity, what: str, fix: str) -> HostFinding:
        return HostFinding(host=host, check=check, severity=severity, what=what, fix=fix)

    if tuple(facts["python"]) < OLDEST_PYTHON:
        version, oldest = (".".join(map(str, each)) for each in (facts["python"], OLDEST_PYTHON))
        what = f"its Python is {version}, and {oldest} or newer is needed"
        yield finding("python", Severity.ERROR, what, "install a newer one, and name it (python: /usr/bin/python3.12)")
    yield from _places(facts, finding)
    if not facts["has_address"]:
        fix = f"name one of its own (traffic_address: …): {', '.join(facts['addresses']) or 'see `ip address`'}"
        what = f"its node cannot listen at {facts['address']}, which is no address of this host"
        yield finding("address", Severity.ERROR, what, fix)
    for port, why in facts["taken"].items() if facts["has_address"] else ():
        if why:
            fix = "end what listens there, or give the node another port (ports: …)"
            yield finding("ports", Severity.ERROR, f"its {port} port cannot be used: {why}", fix)
    for place, why in facts["cut_off"].items():
        if why:
            fix = "check addresses, the network and firewalls between them: load and nodes talk there"
            yield finding("links", Severity.ERROR, f"it does not reach {place}: {why}", fix)
    if facts["cut_off_here"]:
        what = f"this machine does not reach its control port: {facts['cut_off_here']}"
        fix = "let this machine through: the figures of nodes come from there"
        yield finding("links", Severity.ERROR, what, fix)
    yield from _ours(facts, version, finding)
    if 0 <= facts["files"] < FILES:
        what = f"a process may have {facts['files']} open files"
        yield finding("files", Severity.WARNING, what, "raise the hard limit (limits.conf, LimitNOFILE of sshd)")
    if facts["stolen"] > STEAL:
        what = f"its hypervisor has taken {facts['stolen']:.1%} of its CPU time since it started"
        yield finding("steal", Severity.WARNING, what, "use a host that shares its cores with nobody")
    if facts["load1"] > facts["cores"]:
        what = f"its load average is {facts['load1']:.1f} on {facts['cores']} cores"
        yield finding("load", Severity.WARNING, what, "wait until it is idle, or see what runs there")
    if abs(facts["clock_off_s"]) - facts["clock_bound_s"] > CLOCK_S:
        what = f"its clock is {facts['clock_off_s']:+,.0f} s off: latencies are corrected, its logs are not"
        yield finding("clock", Severity.WARNING, what, "start a time service (chrony, systemd-timesyncd)")


def _ours(facts: Facts, version: str, finding: Any) -> Iterator[HostFinding]:
    """The findings about the project there."""
    if facts["projects"] and version not in facts["projects"]:
        what = f"it has version {', '.join(facts['projects'])} of the project, and this machine has {version}"
        fix = "`perftest remote run` and `up` send this one"
        yield finding("project", Severity.NOTE, what, fix)
    if facts["running"]:
        what = f"{len(facts['running'])} processes of ours run there: {_some(facts['running'])}"
        fix = "wait for the end of that run, or end what was left: perftest remote down"
        yield finding("running", Severity.WARNING, what, fix)


def _places(facts: Facts, finding: Any) -> Iterator[HostFinding]:
    """Directories that cannot be used."""
    place = facts["place"]
    if not place["writable"]:
        fix = "give the user permission, or name another directory (directory: …)"
        yield finding("directory", Severity.ERROR, f"{place['path']} cannot be written", fix)
    if place["free"] < ROOM:
        what = f"{place['free'] / 1e6:,.0f} MB are free in {place['path']}, and {ROOM / 1e6:,.0f} MB are needed"
        yield finding("room", Severity.ERROR, what, "make room, or name another directory (directory: …)")
    for role, each in facts["storage"].items():
        if not each["writable"]:
            fix = "give the user permission, or name another directory (storage: …)"
            yield finding("drives", Severity.ERROR, f"{each['path']} ({role}) cannot be written", fix)
        elif each["free"] < ROOM_OF_A_NODE:
            what = f"{each['free'] / 1e6:,.0f} MB are free for {role} in {each['path']}"
            yield finding("drives", Severity.WARNING, what, "make room, or name another directory (storage: …)")
    devices = {role: each["device"] for role, each in facts["storage"].items()}
    shared = [device for device, count in Counter(devices.values()).items() if count > 1]
    for device in shared:
        roles = " and ".join(role for role, of in devices.items() if of == device)
        what = f"{roles} lie on one drive, so they wait for each other"
        yield finding("drives", Severity.NOTE, what, "name directories on drives of their own (storage: …)")


def _reach(facts: Mapping[str, Facts]) -> Iterator[HostFinding]:
    """Brokers that a host does not reach, with the hosts that do."""
    for host, of in facts.items():
        for broker, why in of["refused"].items():
            if not why:
                continue
            others = [name for name, other in facts.items() if other["refused"].get(broker, why) == ""]
            known = f"; {_some(others)} can" if others else ", as no host can"
            fix = "check the address, the network and firewalls between them" if others else "start the broker"
            what = f"it cannot reach the broker at {broker}: {why}{known}"
            yield HostFinding(host=host, check="broker", severity=Severity.ERROR, what=what, fix=fix)


def _alike(facts: Mapping[str, Facts]) -> Iterator[HostFinding]:
    """Hosts that differ from the others: their share of the load may fare differently."""
    for check, key in (("cores", "cores"), ("processor", "cpu"), ("kernel", "kernel")):
        kinds = Counter(of[key] for of in facts.values())
        (usual, most), *_rest = kinds.most_common(1)
        if len(kinds) == 1 or most <= len(facts) / 2:
            continue
        for host, of in facts.items():
            if of[key] != usual:
                what = f"its {check} differ{'s' * (check != 'cores')}: {of[key]}, and {usual} on most hosts"
                fix = "compare its figures with those of the others (page of the run)"
                yield HostFinding(host=host, check=check, severity=Severity.NOTE, what=what, fix=fix)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= len(names[:3]) else f"{shown} and {len(names) - 3} more"
