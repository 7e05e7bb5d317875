"""The operator of a world: adds and removes members, sets and clears policies, evens leaders out, replaces nodes.

Every request goes through the production code that answers ``perftest broker``
(:mod:`reference_broker.node.operations.cluster_requests`), on a node that chance chooses. So requests travel through
the metadata group as in a real cluster. The checkers of Raft and of the queues watch the results; this module only
checks that each request is answered once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from reference_broker.sim.checks.invariants import check
from reference_broker.sim.environment import Environment
from reference_broker.sim.node import SimNode, host_of
from reference_broker.sim.queues import FREE, GRAVEYARD, MIRRORED
from reference_broker.types import NodeId

_POLICY: Final = "freedom"
_ADDS: Final = 0.6
_FROM_S: Final = 0.3
_DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    {"max-length": 3},
    {"max-length": 10, "overflow": "reject-publish"},
    {"max-length-bytes": 500},
    {"message-ttl": 20},
    {"delivery-limit": 1},
    {"delivery-limit": 0, "message-ttl": 300},
)
_REPLACE_AGAIN_S: Final = 6.0
Answered = Callable[[dict[str, Any]], None]
_LETTERS: Final = {"dead-letter-exchange": "", "dead-letter-routing-key": GRAVEYARD}


class Operator:
    """Asks one thing at a time, of any node, at random times. ``keeps_members``: every queue keeps three members where
    there are three nodes, so that one node may be lost for good."""

    def __init__(self, env: Environment, nodes: Mapping[NodeId, SimNode]) -> None:
        self._env = env
        self._nodes = nodes
        self._attempt = 0
        chance = env.chance
        self._every_s = chance.choice((0.03, 0.2, 1.0))
        kinds = (self.members, self.rebalance, self.policy)
        self._kinds = [kind for kind in kinds if chance.random() < 0.5]
        self.changes_members = self.members in self._kinds
        self.changes_policies = self.policy in self._kinds
        self.keeps_members = not self.changes_members and not any(plan.is_small for plan in env.queues)
        self._mirrors = Random(chance.getstate()[1][0])
        if self._kinds:
            env.scheduler.after(_FROM_S, self._begin)
        if any(plan.is_mirrored for plan in env.queues):
            env.scheduler.after(_FROM_S / 3, self._mirror)

    def _begin(self) -> None:
        self._env.scheduler.after(self._env.chance.expovariate(1 / self._every_s), self._act)

    def _act(self) -> None:
        if not self._env.draining:
            chance = self._env.chance
            kind = chance.choice(self._kinds)
            chance.choice(list(self._nodes.values())).suffer(kind)
            self._begin()

    def members(self, node: SimNode) -> None:
        """Add a member to a queue, or remove a member."""
        assert node.shard is not None
        queues = node.shard.metadata.machine.queues
        if not queues:
            return
        chance = self._env.chance
        name = chance.choice(sorted(queues))
        members = queues[name].members
        others = [each for each in self._nodes if each not in members]
        adds = bool(others) and chance.random() < _ADDS
        member = chance.choice(others if adds else members)
        operation = "add-member" if adds else "remove-member"
        self._ask(node, {"op": operation, "queue": name, "node": host_of(member)})

    def rebalance(self, node: SimNode) -> None:
        """Even out the leaders."""
        self._ask(node, {"op": "rebalance"})

    def policy(self, node: SimNode) -> None:
        """Set the policy, replace it, or clear it."""
        chance = self._env.chance
        if chance.random() < 0.3:
            self._ask(node, {"op": "clear-policy", "name": _POLICY})
            return
        has_graveyard = any(plan.name == GRAVEYARD for plan in self._env.queues)
        definition = chance.choice((*_DEFINITIONS, _LETTERS) if has_graveyard else _DEFINITIONS)
        pattern = f"^({'|'.join(FREE)})$"
        request = {"op": "set-policy", "name": _POLICY, "pattern": pattern, "definition": definition}
        self._ask(node, request | {"priority": chance.randint(0, 3)})

    def _mirror(self) -> None:
        """Set the policy of the queue with copies, again and again."""
        chance = self._mirrors
        if not self._env.draining:
            chance.choice(list(self._nodes.values())).suffer(self._set_mirrors)
            self._env.scheduler.after(chance.choice((0.2, 1.0, 5.0)), self._mirror)

    def _set_mirrors(self, node: SimNode) -> None:
        chance = self._mirrors
        if chance.random() < 0.2:
            self._ask(node, {"op": chance.choice(("sync-queue", "cancel-sync-queue")), "queue": MIRRORED})
            return
        hosts = [host_of(each) for each in self._nodes]
        modes: tuple[dict[str, Any], ...] = (
            {"ha-mode": "all"}, {"ha-mode": "all"}, {"ha-mode": "exactly", "ha-params": 2},
            {"ha-mode": "nodes", "ha-params": chance.sample(hosts, chance.randint(1, len(hosts)))},
        )  # fmt: skip
        definition = chance.choice(modes) | {
            "ha-sync-mode": chance.choice(("manual", "automatic")), "ha-sync-batch-size": chance.choice((1, 3, 4096)),
            "ha-promote-on-failure": chance.choice(("always", "always", "when-synced")),
        }  # fmt: skip
        self._ask(node, {"op": "set-policy", "name": "mirrors", "pattern": f"^{MIRRORED}$", "definition": definition})

    def replace(self, lost: SimNode) -> None:
        """Have the cluster give up the replicas that a node had on its drive, then start the node on a blank drive. Try
        again until it works.

        A node that dies never answers. Whatever that node began does no harm.
        """
        if not lost.is_lost:
            return
        self._attempt += 1
        attempt = self._attempt
        awake = [node for node in self._nodes.values() if node.alive and node is not lost]

        def answered(answer: dict[str, Any]) -> None:
            if attempt == self._attempt and "error" not in answer:
                lost.begin_blank(int(answer["life"]))

        if awake:
            asked = self._env.chance.choice(awake)
            self._ask(asked, {"op": "replace-node", "node": lost.host}, answered)
        self._env.scheduler.after(_REPLACE_AGAIN_S, self.replace, lost)

    def _ask(self, node: SimNode, request: dict[str, Any], then: Answered | None = None) -> None:
        if node.shard is not None and node.loop is not None:
            node.loop.run(node.shard.operations.answer, request, self._once(str(request), then))

    def _once(self, what: str, then: Answered | None) -> Answered:
        answers: list[dict[str, Any]] = []

        def answered(answer: dict[str, Any]) -> None:
            answers.append(answer)
            check(len(answers) == 1, "X2", f"{what} is answered {len(answers)} times: {answers}")
            self._env.note("op", "answer", str(answer.get("error", "ok")))
            if then is not None:
                self._env.scheduler.after(0.0, then, answer)

        return answered
