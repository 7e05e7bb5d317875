"""What speaks against a host: one rule after the other, from facts alone."""

from __future__ import annotations

from typing import Any

import pytest

from infra.remote.findings import HostFinding, Severity
from infra.remote.findings import findings as of_version

GB = 10**9
HERE = "0.1.0+0123"


def place(path: str = "/home/bench/.perftest", **more: Any) -> dict[str, Any]:
    usual = {"path": path, "exists": True, "writable": True, "free": 50 * GB, "mount": "/", "filesystem": "ext4"}
    return usual | {"device": 1} | more


def host(**more: Any) -> dict[str, Any]:
    """The facts of a host against which nothing speaks."""
    good = {
        "python": [3, 12, 1], "machine": "x86_64", "kernel": "6.1", "libc": "glibc", "hostname": "a", "cores": 8,
        "cpu": "EPYC", "memory": 32 * GB, "load1": 0.1, "stolen": 0.0, "files": 1_048_576, "clocksource": "tsc",
        "place": place(), "storage": {}, "taken": {}, "refused": {}, "cut_off": {}, "cut_off_here": "",
        "tc": True, "netem": True,
        "address": "10.1.1.1", "has_address": True, "addresses": ["10.1.1.1"], "projects": [], "running": [],
        "clock_off_s": 0.001, "clock_bound_s": 0.01,
    }  # fmt: skip
    return good | more


def findings(facts: dict[str, dict[str, Any]]) -> list[HostFinding]:
    return of_version(facts, HERE)


def told(found: list[HostFinding]) -> list[tuple[str, str, str]]:
    return [(each.host, each.check, each.severity) for each in found]


def test_nothing_speaks_against_a_good_host() -> None:
    assert findings({"a": host(), "b": host(projects=[HERE, "0.1.0+beef"])}) == []


@pytest.mark.parametrize(
    ("facts", "check", "severity", "words"),
    [
        ({"python": [3, 8, 10]}, "python", "error", "its Python is 3.8.10, and 3.11 or newer"),
        ({"place": place(writable=False)}, "directory", "error", "/home/bench/.perftest cannot be written"),
        ({"place": place(free=10_000_000)}, "room", "error", "10 MB are free in /home/bench/.perftest, and 300 MB"),
        ({"taken": {"amqp": "Address already in use", "peer": ""}}, "ports", "error", "its amqp port cannot be used"),
        ({"storage": {"wal": place("/w", writable=False)}}, "drives", "error", "/w (wal) cannot be written"),
        ({"storage": {"wal": place("/w", free=GB)}}, "drives", "warning", "1,000 MB are free for wal in /w"),
        (
            {"has_address": False, "taken": {"amqp": "Cannot assign requested address"}},
            "address",
            "error",
            "cannot listen at 10.1.1.1",
        ),
        ({"cut_off": {"b:5772": "no route", "c:5772": ""}}, "links", "error", "does not reach b:5772: no route"),
        ({"cut_off_here": "timed out"}, "links", "error", "this machine does not reach its control port: timed out"),
        ({"projects": ["0.1.0+beef"]}, "project", "note", f"0.1.0+beef of the project, and this machine has {HERE}"),
        ({"running": ["node-a", "worker"]}, "running", "warning", "2 processes of ours run there: node-a, worker"),
        ({"files": 1024}, "files", "warning", "may have 1024 open files"),
        ({"stolen": 0.031}, "steal", "warning", "has taken 3.1% of its CPU time"),
        ({"load1": 9.0}, "load", "warning", "its load average is 9.0 on 8 cores"),
        ({"clock_off_s": -3600.0}, "clock", "warning", "its clock is -3,600 s off"),
        (
            {"storage": {"wal": place("/w"), "segment": place("/s")}},
            "drives",
            "note",
            "wal and segment lie on one drive",
        ),
    ],
)
def test_each_rule(facts: dict[str, Any], check: str, severity: str, words: str) -> None:
    (found,) = findings({"a": host(**facts)})
    assert (found.host, found.check, found.severity) == ("a", check, severity)
    assert words in found.what and found.fix


def test_an_unlimited_number_of_files_and_an_uncertain_clock_are_fine() -> None:
    assert findings({"a": host(files=-1, clock_off_s=65.0, clock_bound_s=10.0)}) == []


def test_a_broker_that_only_some_hosts_reach() -> None:
    at = "rabbit1:5672"
    facts = {name: host(refused={at: ""}) for name in ("a", "b", "c", "d", "e")}
    facts["b"] = host(refused={at: "Connection refused"})
    (found,) = findings(facts)
    assert told([found]) == [("b", "broker", "error")]
    assert found.what.endswith("Connection refused; a, c, d and 1 more can") and "firewalls" in found.fix


def test_a_broker_that_no_host_reaches() -> None:
    found = findings({name: host(refused={"x:1": "no answer"}) for name in ("a", "b")})
    assert told(found) == [("a", "broker", "error"), ("b", "broker", "error")]
    assert found[0].what.endswith("no answer, as no host can") and found[0].fix == "start the broker"


def test_a_host_that_differs_from_most_others_is_named() -> None:
    facts = {name: host() for name in ("a", "b", "c")} | {"d": host(cores=4, kernel="5.10")}
    assert told(findings(facts)) == [("d", "cores", Severity.NOTE), ("d", "kernel", Severity.NOTE)]
    assert findings({"a": host(), "b": host(cores=4)}) == [], "of two hosts neither is the usual one"
