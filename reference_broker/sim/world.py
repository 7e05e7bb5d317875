"""One world: nodes, clients, network, trouble and checkers, made from one seed and run to a good end or a violation.

A world has two times. In the first time everything happens. In the second time all faults are healed, clients only
finish what they began, and the promises about the end are checked: leaders are found, publishers get their confirms,
queues drain, members agree, policies hold, no confirmed message is lost, disks are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from reference_broker.checksum import crc32
from reference_broker.machines.cluster.metadata import QueueRecord, with_policy
from reference_broker.machines.cluster.mirror_records import mirror_on
from reference_broker.machines.consumers import Status
from reference_broker.machines.fifo import FifoMachine
from reference_broker.mirroring.placement import next_step
from reference_broker.node.config import Limits
from reference_broker.node.hosting.promotion import promoted
from reference_broker.queues.classic_member import ClassicMember
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.queues.settings import classic_config_of, config_of
from reference_broker.sim.checks.invariants import check
from reference_broker.sim.clients import Crowd, SimClient
from reference_broker.sim.environment import Checkers, Environment
from reference_broker.sim.nemesis import Moments, Nemesis
from reference_broker.sim.network import WINDOWS, Weather
from reference_broker.sim.node import SimNode, SimShard
from reference_broker.sim.operator import Operator
from reference_broker.sim.owned import store_config
from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.trace import KEPT
from reference_broker.storage.executor import OwnersPool, OwnersThread
from reference_broker.types import METADATA_GROUP, ChannelId, NodeId

_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.05
_TIDY_S: Final = 0.5
_WAL_FILES_MAX: Final = 12
_SMALL_FILE: Final = 16_384


class World:
    """Everything that one seed makes."""

    def __init__(self, seed: int, kept: int | None = KEPT, recorder: WorldRecorder | None = None) -> None:
        """``kept``: how many lines of the trace are kept, None for all of them. ``recorder`` takes down what happens,
        if there is one."""
        self.seed = seed
        self.env = env = Environment(seed, kept, recorder)
        self.checkers = checkers = Checkers(env.scheduler, recorder)
        self.trace, self.scheduler, self.queues = env.trace, env.scheduler, env.queues
        self.nodes: dict[NodeId, SimNode] = {}
        chance, moments = env.chance, Moments(env, self.nodes)
        self._wal_file_bytes = chance.choice((_SMALL_FILE, 65_536))
        self.large_bytes = chance.choice((0, 5000, 20_000)) if self._wal_file_bytes > _SMALL_FILE else 0
        """Octets of the large messages, which take many frames between nodes; 0: no message is large."""
        inline_share = chance.choice((0.0, 0.5, 1.0))
        classic = store_config(chance)
        env.network.window = chance.choice(WINDOWS)
        limits = self._limits()
        count = chance.choice((1, 3, 3, 3, 3, 3, 5))
        for node in map(NodeId, range(1, count + 1)):
            self.nodes[node] = SimNode(
                env, checkers, moments.come, node=node, nodes=count, limits=limits, store_config=classic,
                store_policy=OwnersPool if seed % 2 else OwnersThread, inline_share=inline_share,
            )  # fmt: skip
        for each in self.nodes.values():
            each.start()
        crowd = Crowd(env, checkers.ledger, checkers.story, node_ids=list(self.nodes), large_bytes=self.large_bytes)
        self.clients = [SimClient(crowd, number) for number in range(1, chance.randint(2, 6) + 1)]
        crowd.clients = self.clients
        self.operator = Operator(env, self.nodes)
        self.nemesis = moments.nemesis = Nemesis(env, self.nodes, self.operator, self.is_whole)

    def _limits(self) -> Limits:
        chance = self.env.chance  # limits are so small that everything happens often
        fast = chance.random() < 0.8
        return Limits(
            tick_ms=10 if fast else 50,
            heartbeat_ms=50 if fast else 250,
            suspect_after_ms=200 if fast else 2000,
            handshake_ms=chance.choice((100, 500, 5000)),
            strangers_max=chance.choice((1, 4, 64)),
            batch_bytes_max=chance.choice((1024, 8192, 65_536)),
            batch_commands_max=chance.choice((2, 64, 4096)),
            entries_uncommitted_max=chance.choice((1, 4, 8)),
            peer_frame_bytes_max=chance.choice((4096, 4096, 16_384, 1 << 21)),
            follower_bytes_max=chance.choice((1, 16_384, 1 << 25)),
            publish_bytes_max=chance.choice((4096, 1 << 20)),
            wal_file_bytes=self._wal_file_bytes,
            wal_files_waiting=chance.choice((2, 3)),
            memtable_bytes=chance.choice((4096, 65_536)),
            unread_bytes_max=(200, 4096, 1 << 23)[self.seed % 3],
        )

    @property
    def living(self) -> list[SimNode]:
        """The nodes that run or will run again."""
        return [node for node in self.nodes.values() if not node.is_lost]

    # Running

    def run(self, events: int) -> None:
        """Let ``events`` events happen, then come to a good end. Raises ViolationError."""
        scheduler = self.scheduler
        while self.trace.count < events:
            scheduler.step()
        self.heal()
        self.wait(self._consumers_wait)
        self.wait(self._requests_wait)
        for client in self.clients:
            client.restart()
        self.wait(self.waits_for)
        self.tidy_up()
        self.check_end()

    def heal(self) -> None:
        """End all trouble and repair everything."""
        self.env.draining = True
        self.env.note("", "heal")
        network = self.env.network
        network.weather = Weather()
        network.crossed.clear()
        for source, target in sorted(network.blocked):
            network.unblock(source, target)
        for lost in self._lost_for_good():
            self.checkers.ledger.drive_lost(lost)
        self._give_up_queues()
        for node in self.nodes.values():
            if node.is_lost:
                network.host_up(node.host)  # its clients notice at last, as heartbeats would have told them
            node.files.repair()
            node.files.is_full = False
            node.sync_s = 0.0003
            if node.loop is not None:
                node.loop.paused_until = 0.0

    def _give_up_queues(self) -> None:
        """The classic queues of a node that is lost for good are lost, too, unless a mirror becomes the master: clients
        no longer ask for them. A node that was away may learn late who the master is."""
        lost = self._lost_for_good()
        left = dict.fromkeys(self.nodes.keys() - lost, 0)
        gone = {
            record.name
            for shard in [node.shard for node in self.nodes.values() if node.shard is not None]
            for record in shard.metadata.machine.queues.values()
            if record.kind == "classic" and record.leader in lost
            and promoted(shard.ha_policy(record), record, left, was_stopped=False) is None
        }  # fmt: skip
        self.queues[:] = [plan for plan in self.queues if plan.name not in gone]

    def _lost_for_good(self) -> set[NodeId]:
        return {node.node for node in self.nodes.values() if node.is_lost and not node.is_awaited}

    def wait(self, waits_for: Callable[[], str | None]) -> None:
        """Run until ``waits_for`` returns None. Raises ViolationError if that takes too long."""
        end = self.scheduler.now + _PATIENCE_S
        while (waits := waits_for()) is not None:
            self._give_up_queues()
            look = self.scheduler.now + _LOOK_S
            while self.scheduler.now < look:
                self.scheduler.step()
            check(self.scheduler.now < end, "L1", f"{_PATIENCE_S:.0f} s after the last fault: {waits}")

    def tidy_up(self) -> None:
        """Have every member take a snapshot of its empty queue, so that its log can go."""
        for node in self.living:
            assert node.shard is not None and node.loop is not None
            for runner in node.shard.runners.values():
                node.loop.run(runner.take_snapshot)
        end = self.scheduler.now + _TIDY_S
        while self.scheduler.now < end:
            self.scheduler.step()

    def waits_for(self) -> str | None:
        """What the world still waits for before its end; None if it waits for nothing."""
        for node in self.nodes.values():
            if node.is_awaited:
                return f"node {node.node} is not replaced"
        for node in self.living:
            if node.shard is None or not node.is_ready():
                return f"node {node.node} is not ready"
        for client in self.clients:
            if not client.is_quiet:
                return f"{client.host} waits"
        return (
            self._queues_wait()
            or self._members_wait()
            or self._changes_wait()
            or self._policies_wait()
            or self._mirrors_wait()
            or self._channels_wait()
        )

    def _hosted(self) -> Iterator[tuple[SimNode, str, FifoMachine]]:
        """Node, name and machine of each member or owner of a queue on a node that is not lost."""
        for node in self.living:
            for name, queue in node.shard.queues.items() if node.shard is not None else ():
                if isinstance(queue.member, QuorumMember | ClassicMember):
                    yield node, name, queue.member.machine

    def _shard_of(self, channel: ChannelId) -> SimShard | None:
        """The shard that a channel was opened on, if that process still runs."""
        shard = self.nodes[channel.node].shard
        return shard if shard is not None and shard.boot_id == channel.boot_id else None

    def _consumers_wait(self) -> str | None:
        """A consumer that is still suspended although its node runs. It would never get a message again."""
        for node, name, machine in self._hosted():
            for consumer in machine.state.all_consumers():
                if consumer.status is Status.SUSPECTED and self._shard_of(consumer.id.channel) is not None:
                    return f"queue {name} on node {node.node}: {consumer.id} is up, and suspended"
        return None

    def _requests_wait(self) -> str | None:
        """A request without an answer. It must be answered as long as its connection stands."""
        for client in self.clients:
            waits_for = client.session.waits_for() if client.session is not None else None
            if waits_for is not None:
                return f"{client.host} waits for the answer to {waits_for}"
        return None

    def _channels_wait(self) -> str | None:
        """A channel that is gone and is still known to a queue. It would hold its messages, or its place, for ever."""
        for node, name, machine in self._hosted():
            for channel in machine.channels():
                shard, is_lost = self._shard_of(channel), self.nodes[channel.node].is_lost
                if (
                    channel.connection
                    and not is_lost
                    and (shard is None or channel.connection not in shard.clients.channels)
                ):
                    return f"queue {name} on node {node.node}: {channel} is gone, but not its place"
        return None

    def _queues_wait(self) -> str | None:
        for node, name, machine in self._hosted():
            counts = machine.counts()
            if counts.ready or counts.unacked or counts.dead_letters:
                here = f"{counts.ready} ready, {counts.unacked} unacked, {counts.dead_letters} dead letters"
                return f"queue {name} on node {node.node}: {here}"
        return None

    def _policies_wait(self) -> str | None:
        """A queue whose settings do not follow from its arguments and the policies."""
        for node, name, machine in self._hosted():
            assert node.shard is not None
            known = node.shard.metadata.machine
            if name not in known.queues:
                continue
            record = with_policy(known.queues[name], known.policies.values())
            wanted = classic_config_of(record) if record.kind == "classic" else config_of(record)
            if machine.config != wanted:
                return f"queue {name} on node {node.node}: it has {machine.config}, against the policies"
        return None

    def _mirrors_wait(self) -> str | None:
        """A queue whose copies are not those that the policy wants, or are not synchronised."""
        for node in self.living:
            assert node.shard is not None
            for record in node.shard.metadata.machine.queues.values():
                if record.leader in self.nodes and self.nodes[record.leader].is_lost:
                    continue  # nobody may be promoted, so the queue waits for a node that does not come back
                policy = node.shard.ha_policy(record) if record.kind == "classic" else None
                up = node.shard.nodes.up_names
                if next_step(policy, record, up, node.shard.hosting.census.members) is not None:
                    return f"queue {record.name} on node {node.node}: its copies are {record.mirrors}"
                if not all(mirror.is_synchronised for mirror in record.mirrors):
                    return f"queue {record.name} on node {node.node}: not synchronised: {record.mirrors}"
        return None

    def _members_wait(self) -> str | None:
        standings: dict[int, tuple[int, int]] = {}
        for node in self.living:
            assert node.shard is not None
            for group, runner in node.shard.runners.items():
                core = runner.core
                known = standings.setdefault(group, (core.leader, runner.applied))
                if core.leader == 0 or known != (core.leader, runner.applied):
                    return f"group {group:x} on node {node.node}: leader {core.leader}, applied {runner.applied}"
        return None

    def is_whole(self) -> bool:
        """Whether every node runs, and votes in every group of which it is to be a member."""
        nodes = list(self.nodes.values())
        if not all(node.shard is not None for node in nodes) or self._changes_wait() is not None:
            return False
        if any(node.counts_not_yet() for node in nodes):
            return False
        metadata = [node.shard.runners[METADATA_GROUP] for node in nodes if node.shard is not None]
        return all(runner.core.configuration.voters == tuple(self.nodes) for runner in metadata)

    def _changes_wait(self) -> str | None:
        """A member that was asked for and is not there yet, or is to go and not gone yet."""
        for node in self.living:
            assert node.shard is not None
            for name, record in node.shard.metadata.machine.queues.items():
                if record.kind == "classic":
                    continue
                if record.leaving:
                    return f"queue {name} on node {node.node}: {record.leaving} are leaving"
                runner = node.shard.runners.get(record.group)
                if (runner is not None) != (node.node in record.members):
                    return f"queue {name} on node {node.node}: members are {record.members}"
                if runner is not None and runner.core.configuration.voters != record.members:
                    return f"queue {name} on node {node.node}: voters are {runner.core.configuration.voters}"
        return None

    def check_end(self) -> None:
        """Check what must be true when all is quiet."""
        self.checkers.ledger.check_nothing_lost()
        states: dict[
            tuple[int, int], int
        ] = {}  # by group and index, for some members may not have applied the last tick yet
        for node in self.living:
            assert node.shard is not None
            for group, runner in node.shard.runners.items():
                found = crc32(runner.host.snapshot())
                known = states.setdefault((group, runner.applied), found)
                check(known == found, "I13", f"group {group:x} differs on node {node.node}")
            for copy in node.shard.hosting.mirrors.runners.values():
                is_empty = not copy.store.parts()
                check(is_empty, "I32", f"queue {copy.record.name} is empty, and its copy on node {node.node} is not")
            if (store := node.shard.owned.store) is not None:
                records = [each for each in node.shard.metadata.machine.queues.values() if each.kind == "classic"]
                copies = [(each, _copy_on(each, node.node)) for each in records]
                living = [(each, since) for each, since in copies if since is not None]
                self.checkers.classic.ended(node.node, node.files, store, living)
            used = node.files.octets("wal")
            bound = _WAL_FILES_MAX * self._wal_file_bytes
            check(used <= bound, "L2", f"node {node.node} keeps {used} octets of WAL for empty queues")
        self.env.note("", "end")

    def summary(self) -> str:
        """The whole run in one line."""
        ledger, counts = self.checkers.ledger, self.trace.counts
        starts = counts.get("start", 0) - len(self.nodes)
        return (
            f"{self.trace.count} events in {self.scheduler.now:.1f} virtual s, {len(self.nodes)} nodes,"
            f" {starts} restarts, {ledger.published} published, {ledger.confirmed} confirmed,"
            f" {ledger.refused} refused, {ledger.delivered} delivered, {ledger.redelivered} again,"
            f" {ledger.buried} dead letters, hash {self.trace.hash:08x}"
        )

    def close(self) -> None:
        """Release everything."""
        self.nemesis.strangers.close()
        for loop in [node.loop for node in self.nodes.values()] + [client.loop for client in self.clients]:
            if loop is not None:
                loop.kill()


def _copy_on(record: QueueRecord, node: NodeId) -> int | None:
    """The number of the copy of a queue that a node has: the master's or a mirror's; None if it has none."""
    if record.leader == node:
        return record.owner_since
    mirror = mirror_on(record, node)
    return mirror.since if mirror is not None else None
