"""Patterns that would keep a backtracking matcher busy for years. Each path by which a user's pattern meets a name runs
in a process of its own, so a test of a node that freezes ends, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDLESS_S = 120.0
"""Far beyond what any of the paths needs: the answer must come at all."""
PREPARE = """
import asyncio
from reference_broker.access.records import Access, Permission, TopicPermission
from reference_broker.access.table import AccessTable
from reference_broker.machines.cluster.metadata import MetadataMachine, QueueRecord, SetPolicy, encode
from reference_broker.machines.cluster.policies import Policy, in_force
from reference_broker.management.listing import listed
from reference_broker.types import GroupId, NodeId

HOSTILE, NAME = "(a+)+$", "a" * 254 + "!"
ASKER = {"node": NodeId(1), "correlation": 7}
"""
PATHS = {
    "filter": "assert asyncio.run(listed([{'name': NAME}], {'name': HOSTILE, 'use_regex': 'true'})) == []",
    "filter of 10,000 names": """
rows = [{"name": f"{number:05}{NAME[5:]}"} for number in range(10_000)]
assert asyncio.run(listed(rows, {"name": HOSTILE, "use_regex": "true"})) == []
""",
    "policy": """
policy = Policy(name="p", pattern=HOSTILE, definition=(("max-length", 1),))
assert in_force([policy], NAME) is None
""",
    "operator policy": """
policy = Policy(name="p", pattern=HOSTILE, definition=(("max-length", 1),), operator=True)
assert in_force([policy], NAME, operator=True) is None
""",
    "stored policy": """
machine = MetadataMachine()
machine.apply(encode([SetPolicy(policy=Policy(name="p", pattern=HOSTILE, definition=()), **ASKER)]))
again = MetadataMachine.restore(machine.snapshot())
assert in_force(again.policies.values(), NAME) is None and len(again.policies) == 1
""",
    "permission": """
table = AccessTable.of_a_new_cluster()
table.put_permission(Permission(user="u", vhost="/", configure=HOSTILE, write=HOSTILE, read=HOSTILE))
assert not table.may("u", "/", Access.WRITE, NAME)
""",
    "topic permission": """
table = AccessTable.of_a_new_cluster()
table.put_topic_permission(TopicPermission(user="u", vhost="/", exchange="x", write=HOSTILE, read=HOSTILE))
assert not table.may_use_key("u", "/", Access.WRITE, "x", NAME)
""",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_hostile_pattern_is_answered(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + PATHS[path]], capture_output=True, text=True, timeout=ENDLESS_S
    )
    assert (done.returncode, done.stderr) == (0, "")
