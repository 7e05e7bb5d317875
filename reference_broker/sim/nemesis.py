"""All trouble of a world, at times that chance chooses.

Each world draws its kinds of trouble and how often they come (swarm testing). A world in which everything happens at
once would hide the failures that need two rare things and quiet in between.

:class:`Moments` adds trouble at bad moments. Chance alone seldom hits a node between two steps of one thing: a letter
that is sent and not yet confirmed, a change of members that only one member has, a leader that is elected and has not
told anybody. So in some worlds the steps of the nodes themselves call for trouble, soon after the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from reference_broker.raft.roles import Role
from reference_broker.sim.damage import flip_and_open, lose_end
from reference_broker.sim.environment import Environment
from reference_broker.sim.node import SimNode, host_of
from reference_broker.sim.operator import Operator
from reference_broker.sim.queues import MIRRORED
from reference_broker.sim.strangers import LyingStrangers
from reference_broker.types import NodeId

_FAVOURITE: Final = 0.4
"""The share of worlds in which one kind of trouble comes more often than all others together."""
_SPARE_NODES: Final = 3
"""Number of nodes that a cluster needs before one of them may be gone for good."""

MOMENTS: Final = ("start", "link", "election", "change", "join", "install", "snapshot", "letters",
                  "stored")  # fmt: skip
"""The moments: a node starts; a link breaks; a node is elected; a change of members is in a log; a replica begins;
another member's snapshot, or an own snapshot, is on disk; dead letters are about to be routed; the store of classic
queues has written a batch."""
_BLOWS: Final = ("kill", "power", "power_at_operation", "pause", "slow_disk", "part_one_way", "part_both_ways",
                 "isolate", "snapshot", "campaign", "transfer")  # fmt: skip
_FROM_S: Final = 0.3


class Nemesis:
    """Trouble for one world."""

    def __init__(
        self, env: Environment, nodes: Mapping[NodeId, SimNode], operator: Operator, is_whole: Callable[[], bool]
    ) -> None:
        """``is_whole`` tells whether every node runs and counts, so that a node may be lost."""
        self._env = env
        self._nodes = nodes
        self._node_ids = list(nodes)
        self._operator = operator
        self._is_whole = is_whole
        self.strangers = LyingStrangers(env, self._node_ids)
        chance = env.chance
        self._every_s = chance.choice((0.02, 0.1, 0.4))
        self._outage_s = chance.choice((0.1, 0.5, 2.0))
        kinds: list[Callable[[SimNode], None]] = [
            self.kill,
            self.power,
            self.power_at_operation,
            self.disk_error,
            self.pause,
            self.jump_clock,
            self.part_one_way,
            self.part_both_ways,
            self.isolate,
            self.break_connection,
            self.cross_wires,
            self.forge,
            self.slow_disk,
            self.weather,
            self.snapshot,
            self.campaign,
            self.transfer,
            self.flip_bit,
            self.fill_disk,
        ]
        if any(plan.is_classic for plan in env.queues):
            kinds += [self.power_in_store, self.error_in_store]
        if operator.keeps_members and len(nodes) >= _SPARE_NODES:
            losses: list[Callable[[SimNode], None]] = [self.lose_for_good, self.lose_directories, self.lose_end]
            if chance.random() < 0.6:
                kinds.append(chance.choice(losses))
        self._kinds = [kind for kind in kinds if chance.random() < 0.6] or kinds
        self._weights = [chance.choice((1, 3, 10)) for _ in self._kinds]
        if chance.random() < _FAVOURITE:
            self._weights[chance.randrange(len(self._kinds))] = 10 * len(self._kinds)
        env.scheduler.after(0.3, self._begin)
        self._unseating = Random(chance.getstate()[1][0])
        if any(plan.is_mirrored for plan in env.queues):
            self._unseat_every_s = self._unseating.choice((0.2, 0.6, 2.0))
            self._unseat_later()

    def _begin(self) -> None:
        self._env.scheduler.after(self._env.chance.expovariate(1 / self._every_s), self._strike)

    def _strike(self) -> None:
        if self._env.draining:
            return
        (kind,) = self._env.chance.choices(self._kinds, self._weights)
        self._env.chance.choice(list(self._nodes.values())).suffer(kind)
        self._begin()

    def _unseat_later(self) -> None:
        self._env.scheduler.after(self._unseating.expovariate(1 / self._unseat_every_s), self._unseat)

    def _unseat(self) -> None:
        """Trouble for the node that has the mirrored queue: chance alone seldom hits a master while its mirrors are
        synchronised."""
        if self._env.draining:
            return
        blows = (self.kill, self.kill, self.power, self.isolate, self.part_both_ways, self.pause)
        if (master := self._master()) is not None:
            master.suffer(self._unseating.choice(blows))
        self._unseat_later()

    def _master(self) -> SimNode | None:
        """The node that has the mirrored queue, as the node that knows most says."""
        shards = [node.shard for node in self._nodes.values() if node.alive and node.shard is not None]
        records = [record for shard in shards if (record := shard.metadata.machine.queues.get(MIRRORED)) is not None]
        newest = max(records, key=lambda record: record.changes, default=None)
        return self._nodes[newest.leader] if newest is not None else None

    def _outage(self) -> float:
        return self._outage_s * self._env.chance.random()

    def _spare(self) -> bool:
        """Whether a majority would still run without one more node. One time in ten, that does not matter."""
        up = sum(node.alive for node in self._nodes.values())
        return 2 * (up - 1) > len(self._nodes) or self._env.chance.random() < 0.1

    # The process and its machine

    def kill(self, node: SimNode) -> None:
        """Kill the process. The kernel keeps all octets that were written."""
        if self._spare():
            node.crash(power=False)

    def power(self, node: SimNode) -> None:
        """Take power away from the machine. Octets that were not synced may be lost."""
        if self._spare():
            node.crash(power=True, silent=self._env.chance.random() < 0.5)

    def power_at_operation(self, node: SimNode) -> None:
        """Take power away in the middle of an operation of the drive."""
        if self._spare():
            node.files.lose_power_after(self._env.chance.randint(1, 40))

    def pause(self, node: SimNode) -> None:
        """Stop the process for a while. Its sockets stay open."""
        if node.loop is not None:
            node.pause(self._outage())

    def jump_clock(self, node: SimNode) -> None:
        """Set the wall clock of the machine."""
        node.clock_offset_ms += self._env.chance.choice((-3_600_000, -1000, -1, 1, 1000, 3_600_000))

    # The drive

    def disk_error(self, node: SimNode) -> None:
        """Let an operation of the drive fail soon. The node has to stop."""
        if self._spare():
            node.files.fail_after(self._env.chance.randint(1, 40))

    def power_in_store(self, node: SimNode) -> None:
        """Take power away in the middle of a batch of the store of classic queues."""
        if self._spare():
            node.files.fail_in_store(self._env.chance.randint(1, 12), power=True)

    def error_in_store(self, node: SimNode) -> None:
        """Let an operation of the store of classic queues fail soon. The node has to stop."""
        if self._spare():
            node.files.fail_in_store(self._env.chance.randint(1, 12), power=False)

    def flip_bit(self, node: SimNode) -> None:
        """Stop the node, flip a bit in a copy of its drive, and see what the log makes of the copy."""
        if self._spare() and node.shard is not None:
            config, power = node.shard.log._config, self._env.chance.random() < 0.5
            node.crash(power=power)
            flip_and_open(node, config, power=power)

    def lose_end(self, node: SimNode) -> None:
        """Stop the node, and damage the end of its WAL. The next drive may be damaged once this node is a full member
        of all groups again."""
        if self._is_whole() and node.shard is not None:
            config = node.shard.log._config
            node.is_damaged, node.refused = True, self._operator.replace
            node.crash(power=self._env.chance.random() < 0.5)
            lose_end(node, config)

    def fill_disk(self, node: SimNode) -> None:
        """Fill the drive for a while. The node has to stop, and cannot start."""
        if self._spare():
            node.files.is_full = True
            self._env.scheduler.after(self._outage(), self._make_room, node)

    def _make_room(self, node: SimNode) -> None:
        node.files.is_full = False

    def lose_for_good(self, node: SimNode) -> None:
        """Lose the node and its drive. At most one node of a world may be lost, for Raft cannot bear more."""
        if not any(each.is_lost for each in self._nodes.values()):
            node.is_lost = True
            node.crash(power=True, silent=True)

    def lose_directories(self, node: SimNode) -> None:
        """Lose the drive; an operator gives the node a blank drive. The next drive may be lost once this node counts
        again. The classic queues of the node go with the drive."""
        if self._is_whole():
            node.is_lost = node.is_awaited = True
            node.checkers.ledger.has_lost_classic_queues = True
            node.crash(power=True, silent=self._env.chance.random() < 0.5)
            self._env.scheduler.after(self._outage(), self._operator.replace, node)

    def slow_disk(self, node: SimNode) -> None:
        """Let syncs take another time, until the next change."""
        node.sync_s = self._env.chance.choice((0.0001, 0.0003, 0.002, 0.02))

    # The network

    def part_one_way(self, node: SimNode) -> None:
        """Have another node no longer hear this node."""
        self._part([(node.host, self._other(node))])

    def part_both_ways(self, node: SimNode) -> None:
        """Have this node and another node no longer hear each other."""
        other = self._other(node)
        self._part([(node.host, other), (other, node.host)])

    def isolate(self, node: SimNode) -> None:
        """Have no other node hear this node. The clients still hear it."""
        others = [host_of(other) for other in self._node_ids if other != node.node]
        self._part([pair for other in others for pair in ((node.host, other), (other, node.host))])

    def _other(self, node: SimNode) -> str:
        others = [each for each in self._node_ids if each != node.node]
        return host_of(self._env.chance.choice(others or [node.node]))

    def _part(self, pairs: list[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._env.network.block(source, target)
        self._env.scheduler.after(self._outage(), self._mend, pairs)

    def _mend(self, pairs: list[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._env.network.unblock(source, target)

    def break_connection(self, _node: SimNode) -> None:
        """Break any connection of the world."""
        if wires := list(self._env.network.wires):
            self._env.network.break_connection(self._env.chance.choice(wires))

    def cross_wires(self, node: SimNode) -> None:
        """Mix up addresses: for a while, this node reaches another node than the node it dials."""
        pair = (node.host, self._other(node))
        self._env.network.crossed[pair] = host_of(self._env.chance.choice(self._node_ids))
        self._env.scheduler.after(self._outage(), self._uncross, pair)

    def _uncross(self, pair: tuple[str, str]) -> None:
        self._env.network.crossed.pop(pair, None)

    def forge(self, node: SimNode) -> None:
        """Let a stranger without the secret claim to be another node with a later boot id."""
        self.strangers.lie_to(node)

    def weather(self, _node: SimNode) -> None:
        """Make the network faster or slower."""
        weather, chance = self._env.network.weather, self._env.chance
        weather.latency_s = chance.choice((0.00005, 0.0005, 0.01))
        weather.jitter_s = chance.choice((0.0, 0.001, 0.02))
        weather.bandwidth = chance.choice((1e6, 1e8))

    # What an operator or a timer may do

    def snapshot(self, node: SimNode) -> None:
        """Have a member take a snapshot now."""
        if node.shard is not None and node.loop is not None:
            node.loop.run(self._env.chance.choice(list(node.shard.runners.values())).take_snapshot)

    def campaign(self, node: SimNode) -> None:
        """Have a member ask for votes although it suspects no leader."""
        if node.shard is not None and node.loop is not None:
            runner = self._env.chance.choice(list(node.shard.runners.values()))
            node.loop.run(runner.core.campaign)
            node.loop.run(node.shard.wake, runner)

    def transfer(self, node: SimNode) -> None:
        """Have a leader hand over to another member."""
        if node.shard is not None and node.loop is not None:
            leads = [runner for runner in node.shard.runners.values() if runner.core.role is Role.LEADER]
            if leads:
                runner = self._env.chance.choice(leads)
                to = self._env.chance.choice(runner.core.configuration.voters)
                if to != node.node and runner.core.accepting:
                    node.loop.run(runner.core.transfer, to)
                    node.loop.run(node.shard.wake, runner)


class Moments:
    """The moments of a world that call for trouble, how often they do, and how soon the trouble comes."""

    def __init__(self, env: Environment, nodes: Mapping[NodeId, SimNode]) -> None:
        """``nodes`` may be filled later."""
        self._env = env
        self._nodes = nodes
        self.nemesis: Nemesis | None = None
        """Does the trouble. Nothing happens before it is set."""
        chance = env.chance
        letters = any(plan.keeps_letters for plan in env.queues)  # such queues are rare, so the moment must not be
        drawn = [name for name in MOMENTS if chance.random() < (0.8 if name == "letters" and letters else 0.35)]
        self._likely = {name: chance.choice((0.2, 1.0)) for name in drawn} if chance.random() < 0.7 else {}
        self._blows = chance.sample(_BLOWS, chance.choice((1, 1, 2, 4)))
        self._soon_s = chance.choice((0.0, 0.0005, 0.003, 0.03))
        self._apart_s = chance.choice((0.02, 0.2))
        self._next_s = _FROM_S

    def come(self, name: str, node: SimNode) -> None:
        """One of ``MOMENTS`` has come on a node."""
        likely = self._likely.get(name)
        if likely is None:
            return
        env = self._env
        chance, now = env.chance, env.scheduler.now
        if env.draining or now < self._next_s or chance.random() > likely:
            return
        self._next_s = now + self._apart_s
        env.note(node.host, "moment", name)
        soon_s = 0.0
        for _ in range(chance.choice((1, 1, 2))):
            others = [other for other in self._nodes.values() if other is not node]
            struck = chance.choice(others) if others and chance.random() < 0.5 else node
            soon_s += chance.random() * self._soon_s
            env.scheduler.after(soon_s, self._strike, chance.choice(self._blows), struck)

    def _strike(self, blow: str, node: SimNode) -> None:
        if not self._env.draining:
            node.suffer(getattr(self.nemesis, blow))
