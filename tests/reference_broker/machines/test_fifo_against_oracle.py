"""The machine over ranges against the oracle over messages, on any log of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.machines import dead_letters
from reference_broker.machines.batch import decode_batch
from reference_broker.machines.commands import ChannelDown, Command, Enqueue, NodeUp
from reference_broker.machines.config import FifoConfig
from reference_broker.machines.effects import Confirm, Deliver, Effect, MonitorNode, Reply
from reference_broker.machines.fifo import FifoMachine, Meta
from reference_broker.machines.messages.records import Records
from reference_broker.sim.checks.fifo_checks import look_through
from reference_broker.types import ChannelId, ConsumerId, LogIndex, NodeId

from . import oracle
from .keyed_oracle import KeyedOracle
from .logs import TERM, RandomLog, any_config, batch, decoded, drained, held, machine, told
from .oracle import Oracle, Place

LIMITS = st.sampled_from((-1, -1, 0, 1, 3))
RANDOMS = st.builds(Random, st.integers(0, 2**32))  # a draw per command would cost more than the test


class Pair:
    """One log, applied by both, compared after each entry."""

    def __init__(self, config: FifoConfig) -> None:
        self.queue = FifoMachine(config)
        self.queue.state.departures.collect()
        self.oracle = Oracle(config) if config.keyed is None else KeyedOracle(config)

    def apply(self, payload: bytes, gap: int = 1) -> None:
        index = LogIndex(self.queue.applied + gap)
        effects = self.queue.apply(Meta(index, TERM), payload)
        batch = decode_batch(payload)
        live = Counter(self.oracle.live_places())
        expected = self.oracle.apply(index, *batch)
        assert told(effects) == expected
        live.update((index, *place) for place in _places(batch[1]))
        gone = Counter(place for departure in self.queue.take_departures() for place in _departed(*departure))
        assert live == gone + Counter(self.oracle.live_places())
        self.compare_state()

    def restart(self) -> None:
        snapshot = self.queue.snapshot()
        self.queue = FifoMachine.restore(snapshot)
        self.queue.state.departures.collect()
        assert self.queue.snapshot() == snapshot

    def compare_state(self) -> None:
        assert self.queue.service_order() == self.oracle.service_order()
        assert held(self.queue) == self.oracle.held()
        counts = self.queue.counts()
        model = self.oracle
        assert counts.ready == len(model.ready())
        assert counts.ready_bytes == sum(message.size for message in model.ready())
        assert counts.unacked == sum(len(one.held) for one in model.subscribers.values())
        assert counts.consumers == sum(one.status in ("up", "suspected") for one in model.subscribers.values())
        assert counts.enqueuers == len(model.next_seqs)
        assert counts.dead_letters == len(model.letters)
        assert set(self.queue.channels()) == model.known()
        assert {name: getattr(counts, name) for name in model.totals()} == model.totals()
        assert self.queue.config == model.config

    def compare_ready(self) -> None:
        model = self.oracle
        if isinstance(model, KeyedOracle):
            assert drained(self.queue) == model.drained()
        else:
            assert drained(self.queue) == [(message.place, message.delivery_count) for message in model.ready()]

    def compare_live_entries(self) -> None:
        ranges = self.queue.live_entries()
        assert {index for first, last in ranges for index in range(first, last + 1)} == self.oracle.live_entries()
        assert self.queue.lowest_live_entry() == min(self.oracle.live_entries(), default=None)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))


class StorePair(Pair):
    """A machine beside a store and its oracle."""

    def __init__(self, config: FifoConfig, *, has_priorities: bool) -> None:
        self.queue = FifoMachine.beside_a_store(config, has_priorities=has_priorities)
        kind = Oracle if config.keyed is None else KeyedOracle
        self.oracle = kind(config, is_classic=True, has_priorities=has_priorities)
        self.next_seq = 4096
        self.has_priorities = has_priorities

    def apply_commands(self, time_ms: int, commands: list[Command], random: Random) -> None:
        placed: list[tuple[int, int, Command]] = []
        live = Counter(self.oracle.live_places())
        for command in commands:
            place = 0, 0
            if isinstance(command, Enqueue):
                place = self.next_seq, random.choice((0, 0, 1, 3, 9)) if self.has_priorities else 0
                self.next_seq += command.run.count
                live.update((*place, position) for position in range(command.run.count))
            placed.append((*place, command))
        assert told(self.queue.apply_at_once(time_ms, iter(placed))) == self.oracle.apply_placed(time_ms, placed)
        gone = Counter(each for departure in self.queue.take_departures() for each in _departed(*departure))
        assert live == gone + Counter(self.oracle.live_places())
        self.compare_state()


def _places(commands: list[tuple[int, Command]]) -> Iterator[tuple[int, int]]:
    """Offset and position of each message in a batch."""
    for offset, command in commands:
        if isinstance(command, Enqueue):
            yield from ((offset, position) for position in range(command.run.count))


def _departed(entry: int, offset: int, start: int, count: int, step: int) -> Iterator[tuple[int, int, int]]:
    for position in range(start, start + count * step, step):
        yield entry, offset, position


@given(RANDOMS, LIMITS)
def test_any_log_gives_what_one_message_at_a_time_gives(random: Random, limit: int) -> None:
    """Ranges are an optimisation: nobody may get other messages, ids or confirms because of them."""
    pair = Pair(FifoConfig(name="q", delivery_limit=limit))
    for payload in RandomLog(random).entries(random.randint(1, 40)):
        pair.apply(payload, gap=random.choice((1, 1, 1, 2, 5)))
        pair.compare_live_entries()
    pair.compare_ready()


@given(RANDOMS)
def test_any_settings_give_what_one_message_at_a_time_gives(random: Random) -> None:
    """Limits, times to live, one active consumer, gets and dead letters too: who gets, loses or is refused what."""
    pair = Pair(any_config(random))
    for payload in RandomLog(random, features=True).entries(random.randint(1, 40)):
        pair.apply(payload, gap=random.choice((1, 1, 1, 2, 5)))
        pair.compare_live_entries()
        pair.compare_ready()


@given(RANDOMS)
def test_a_machine_beside_a_store_gives_what_one_message_at_a_time_gives(random: Random) -> None:
    """A classic queue, with priorities or without: places of its own, each message leaves once, gets beside a single
    active consumer, and in masses, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Records, "block_records", random.choice((1, 2, 5, 1024)))
        config, has_priorities = any_config(random, is_classic=True), random.random() < 0.7
        log = RandomLog(random, features=True, is_classic=True)
        pair = StorePair(config, has_priorities=has_priorities)
        for _ in range(random.randint(1, 40)):
            log.now_ms += random.choice((0, 0, 1, 5, 5, 20, 50, -15))
            pair.apply_commands(log.now_ms, log.commands(random.randint(1, 4)), random)


@given(RANDOMS)
def test_keys_give_what_one_message_at_a_time_gives(random: Random) -> None:
    """One message of a key at a time, delays, retries, and consumers that hold a message for too long."""
    pair = Pair(any_config(random, has_keys=True))
    for payload in RandomLog(random, features=True, has_keys=True).entries(random.randint(1, 40)):
        pair.apply(payload, gap=random.choice((1, 1, 1, 2, 5)))
        pair.compare_live_entries()
        pair.compare_ready()
        look_through(NodeId(1), pair.queue)
        if random.random() < 0.2:
            pair.restart()


@given(RANDOMS)
def test_keys_beside_a_store_give_what_one_message_at_a_time_gives(random: Random) -> None:
    """The same machine without a log."""
    pair = StorePair(any_config(random, is_classic=True, has_keys=True), has_priorities=False)
    log = RandomLog(random, features=True, is_classic=True, has_keys=True)
    for _ in range(random.randint(1, 40)):
        log.now_ms += random.choice((0, 0, 1, 5, 20, 50))
        pair.apply_commands(log.now_ms, log.commands(random.randint(1, 4)), random)
        look_through(NodeId(1), pair.queue)


@given(RANDOMS)
def test_masses_give_what_one_message_at_a_time_gives(random: Random) -> None:
    """What expires, is dropped or dead-lettered in masses leaves packed, and not all of it is told at once. Here a few
    are a mass already; and a member restarts now and then, which must not be seen."""
    with pytest.MonkeyPatch.context() as patch:
        window = random.choice((1, 4, 20))
        patch.setattr(Records, "block_records", random.choice((1, 2, 5)))
        patch.setattr(dead_letters, "WINDOW", window)
        patch.setattr(oracle, "LETTERS_ON_THEIR_WAY", window)
        octets = random.choice((1, 10, 60, 1 << 20))
        patch.setattr(dead_letters, "WINDOW_OCTETS", octets)
        patch.setattr(oracle, "OCTETS_ON_THEIR_WAY", octets)
        pair = Pair(any_config(random))
        for payload in RandomLog(random, features=True).entries(random.randint(1, 40)):
            pair.apply(payload, gap=random.choice((1, 1, 1, 2, 5)))
            pair.compare_live_entries()
            pair.compare_ready()
            if random.random() < 0.2:
                pair.restart()


@pytest.mark.parametrize("seed", range(6))
def test_long_logs_give_what_one_message_at_a_time_gives(seed: int) -> None:
    """Backlogs, splits and interleaved returns pile up over a long life; so would a small error."""
    pair = Pair(FifoConfig(name="q", delivery_limit=-1 if seed % 2 else 3))
    for payload in RandomLog(Random(seed)).entries(300, commands_max=8):
        pair.apply(payload)
    pair.compare_ready()
    pair.compare_live_entries()


@pytest.mark.parametrize("seed", range(6))
def test_long_logs_with_any_settings_give_what_one_message_at_a_time_gives(seed: int) -> None:
    """Policies come and go over a long life, and find what earlier ones left."""
    random = Random(seed)
    pair = Pair(any_config(random))
    for payload in RandomLog(random, features=True).entries(250, commands_max=8):
        pair.apply(payload)
    pair.compare_ready()
    pair.compare_live_entries()


@given(RANDOMS)
def test_snapshot_and_tail_equal_a_full_replay_at_every_position(random: Random) -> None:
    """I13. A member that restarts from a snapshot, or is sent one, must not differ from the others ever after."""
    config = any_config(random)
    payloads = RandomLog(random, features=True).entries(15)
    whole = FifoMachine(config)
    history: list[tuple[bytes, list[Effect]]] = []
    snapshots = [whole.snapshot()]
    for index, payload in enumerate(payloads, 1):
        effects = whole.apply(Meta(LogIndex(index), TERM), payload)
        snapshots.append(whole.snapshot())
        history.append((snapshots[-1], effects))
    for position, snapshot in enumerate(snapshots):
        restored = FifoMachine.restore(snapshot)
        assert restored.snapshot() == snapshot
        for index in range(position, len(payloads)):
            effects = restored.apply(Meta(LogIndex(index + 1), TERM), payloads[index])
            assert (restored.snapshot(), effects) == history[index]


@given(RANDOMS)
def test_three_members_agree_at_each_index(random: Random) -> None:
    """I13. One member restarts from its snapshot after each entry, one never does, one gets its octets anew."""
    config = any_config(random)
    members = [FifoMachine(config) for _ in range(3)]
    for index, payload in enumerate(RandomLog(random, features=True).entries(20), 1):
        copies = (payload, bytes(bytearray(payload)), payload)
        effects = [one.apply(Meta(LogIndex(index), TERM), copy) for one, copy in zip(members, copies, strict=True)]
        snapshots = {one.snapshot() for one in members}
        assert len(snapshots) == 1
        assert effects[0] == effects[1] == effects[2]
        assert len({tuple(one.become_leader(0)) for one in members}) == 1
        members[2] = FifoMachine.restore(snapshots.pop())


@given(RANDOMS, LIMITS)
def test_how_commands_are_cut_into_entries_changes_nothing(random: Random, limit: int) -> None:
    """Under load more commands share an entry. That must change latency, never who gets what."""
    commands = RandomLog(random).commands(60)
    one_by_one, at_once = machine(limit), machine(limit)
    single_effects: list[Effect] = []
    turns: dict[tuple[int, int], int] = {}  # place of a run -> which command it came with
    for index, command in enumerate(commands, 1):
        payload = batch(command)
        turns[index, decoded(payload)[0][0]] = index
        single_effects += one_by_one.apply(Meta(LogIndex(index), TERM), payload)
    whole = batch(*commands)
    turns |= {(1000, offset): turn for turn, (offset, _command) in enumerate(decoded(whole), 1) if offset}
    batch_effects = at_once.apply(Meta(LogIndex(1000), TERM), whole)

    def named(effects: list[Effect]) -> dict[ConsumerId, list[tuple[int, int, int, int]]]:
        return {
            key: [(number, turns[place[0], place[1]], place[2], count) for number, place, count in deliveries]
            for key, deliveries in told(effects).delivered.items()
        }

    assert named(single_effects) == named(batch_effects)
    assert told(single_effects).confirmed == told(batch_effects).confirmed
    assert told(single_effects).replies == told(batch_effects).replies
    assert one_by_one.counts() == at_once.counts()
    assert one_by_one.service_order() == at_once.service_order()


@given(RANDOMS, LIMITS)
def test_invariants_hold_after_each_entry(random: Random, limit: int) -> None:
    """I14 (nothing is lost or made up), I16 (a message is in one place), I18 (no ready message waits for an idle
    consumer), I24 (delivery counts)."""
    queue = machine(limit)
    counts_seen: Counter[Place] = Counter()
    for index, payload in enumerate(RandomLog(random).entries(25), 1):
        effects = queue.apply(Meta(LogIndex(index), TERM), payload)
        counts = queue.counts()
        gone = counts.settled + counts.discarded + counts.delivery_limited + counts.purged
        assert counts.enqueued == counts.ready + counts.unacked + gone
        in_hand = [place for deliveries in held(queue).values() for _id, place, _count in deliveries]
        ready = [place for place, _count in drained(queue)]
        assert len(in_hand) == counts.unacked
        assert len(ready) == counts.ready
        assert len({*in_hand, *ready}) == counts.unacked + counts.ready
        order = queue.service_order()
        assert not (order and counts.ready)
        assert len(set(order)) == len(order)
        for deliveries in told(effects).delivered.values():
            for _id, place, delivery_count in deliveries:
                assert limit < 0 or delivery_count <= limit
                counts_seen[place] = max(counts_seen[place], delivery_count)
        for place, delivery_count in drained(queue):
            assert delivery_count >= counts_seen[place]


@given(RANDOMS)
def test_a_consumer_sees_increasing_ids_and_messages(random: Random) -> None:
    """I20: ids go up by one from the id in the checkout's reply. I21: first deliveries to one consumer are in queue
    order. A client relies on both: the one to notice losses, the other as AMQP's ordering guarantee."""
    queue = machine()
    next_ids: dict[ConsumerId, int] = {}
    latest: dict[ConsumerId, Place] = {}
    ended: set[ChannelId] = set()
    for index, payload in enumerate(RandomLog(random).entries(40), 1):
        effects = queue.apply(Meta(LogIndex(index), TERM), payload)
        checkouts = {
            command.correlation: command.consumer
            for _, command in decoded(payload)
            if type(command).__name__ == "Checkout"
        }
        ended |= {command.channel for _, command in decoded(payload) if isinstance(command, ChannelDown)}
        ended |= {key.channel for key in next_ids if any(isinstance(c, NodeUp) for _, c in decoded(payload))}
        for effect in effects:
            if isinstance(effect, Reply) and effect.correlation in checkouts:
                key = checkouts[effect.correlation]
                before = next_ids.get(key, 0)
                assert effect.value >= before or key.channel in ended, "ids start again only with a new channel"
                if effect.value != before or not effect.value:
                    latest.pop(key, None)
                next_ids[key] = effect.value
            if isinstance(effect, Deliver):
                for number, place, delivery_count in told([effect]).delivered[effect.consumer]:
                    if number < next_ids[effect.consumer]:
                        continue  # its node asked for it once more
                    assert number == next_ids[effect.consumer]
                    next_ids[effect.consumer] += 1
                    if delivery_count == 0:
                        assert latest.get(effect.consumer, (0, 0, 0)) < place
                        latest[effect.consumer] = place


@given(RANDOMS)
def test_effects_are_few_and_ordered(random: Random) -> None:
    """An entry costs one confirm and one delivery per channel: that is where the throughput comes from."""
    queue = machine()
    for index, payload in enumerate(RandomLog(random).entries(30, commands_max=8), 1):
        effects = queue.apply(Meta(LogIndex(index), TERM), payload)
        ranks = [
            (MonitorNode, Confirm).index(type(effect)) if type(effect) in (MonitorNode, Confirm) else 2
            for effect in effects
        ]
        assert ranks == sorted(ranks)
        confirms = [effect for effect in effects if isinstance(effect, Confirm)]
        for before, after in pairwise(confirms):
            assert before.channel != after.channel or before.last + 1 != after.first
        for position, effect in enumerate(effects):
            if isinstance(effect, Deliver):
                assert not _could_continue(effect, effects[position + 1 :])


def _could_continue(effect: Deliver, later: list[Effect]) -> bool:
    """Whether the next thing this consumer's channel is told is the continuation of this delivery."""
    following = next(
        (
            other
            for other in later
            if (isinstance(other, Deliver) and other.consumer == effect.consumer)
            or (isinstance(other, Reply) and other.channel == effect.consumer.channel)
        ),
        None,
    )
    return (
        isinstance(following, Deliver)
        and following.delivery_count == effect.delivery_count
        and following.first_message_id == effect.first_message_id + sum(span.count for span in effect.spans)
    )
