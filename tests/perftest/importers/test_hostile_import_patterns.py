"""Expressions of a file that would keep a backtracking matcher busy for years, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from perftest.importers.rabbittesttool import import_playlist
from perftest.spec.problem import SpecError
from tests.perftest.importers.test_importers_properties import TOPOLOGY

ENDLESS_S = 120.0
"""Far beyond what an import needs: it must end at all."""
QUORUM = [{"key": "x-queue-type", "value": "quorum"}]
CODE = """
import json, sys
from perftest.importers.rabbittesttool import import_playlist
files = json.load(sys.stdin)
find = lambda kind, name: (name, json.dumps(files[name])) if name in files else None
imported = import_playlist(json.dumps(files["p.json"]), "p.json", find)
print(json.dumps([each.content for each in imported.workloads], default=str))
"""


def files(pattern: str, *, prefix: str = "a", key: str = "", bound: str = "") -> dict[str, Any]:
    """A playlist with a policy, and a topic exchange to which the queue is bound beside the messages' key."""
    topology = json.loads(json.dumps(TOPOLOGY))
    (group,) = topology["topologyGroups"]
    group["queues"][0]["prefix"] = group["consumers"][0]["queuePrefix"] = prefix
    if bound:
        group["exchanges"][0]["type"] = "topic"
        group["queues"][0]["bindings"][0]["bindingKeys"] = [key, bound]
        group["publishers"][0]["sendToExchange"] = {
            "exchange": "e", "routingKeyMode": "FixedValue", "routingKey": key,
        }  # fmt: skip
    playlist = {"commonAttributes": {"topology": "t.json", "policy": "h.json"}, "benchmarks": [{}]}
    policy = {"policies": [{"name": "h", "pattern": pattern, "applyTo": "queues", "priority": 1, "properties": QUORUM}]}
    return {"p.json": playlist, "t.json": topology, "h.json": policy}


@pytest.mark.parametrize(
    "given",
    [files("(a+)+$", prefix="a" * 254 + "!"), files("a", key="a." * 120, bound="#." * 60 + "b")],
    ids=["policy", "binding key"],
)
def test_a_hostile_file_is_imported(given: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=json.dumps(given), capture_output=True, text=True, timeout=ENDLESS_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)) == 1


@pytest.mark.parametrize(("pattern", "fits"), [("a+", True), ("", True), ("b|a", True), ("a$|b", True), ("b", False)])
def test_a_policy_holds_for_queues_whose_whole_prefix_matches(pattern: str, fits: bool) -> None:
    imported = import_playlist(json.dumps(files(pattern)["p.json"]), "p.json", finder(files(pattern, prefix="a")))
    assert ("quorum" in str(imported.workloads[0].content)) is fits


def test_an_expression_that_cannot_be_used_is_a_problem() -> None:
    with pytest.raises(SpecError) as refused:
        import_playlist(json.dumps(files("(?=a)")["p.json"]), "p.json", finder(files("(?=a)")))
    assert "h.json" in str(refused.value) and "RE2: invalid perl operator: (?=" in str(refused.value)


def finder(found: dict[str, Any]) -> Any:
    return lambda _kind, name: (name, json.dumps(found[name])) if name in found else None
