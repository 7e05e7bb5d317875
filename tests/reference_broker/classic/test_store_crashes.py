"""Loss of power, kills and failing calls at every instruction of the classic store: nothing that was told to be stored
is lost, the order is kept, and nothing comes back that must not."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from reference_broker.classic.index_codec import RECORD, SEGMENT_MESSAGES
from reference_broker.storage.memory_files import MemoryFiles
from tests.reference_broker.classic.store_world import POLICIES, ROOT, StoreWorld

Script = Callable[[StoreWorld], None]


@pytest.fixture(autouse=True, params=POLICIES.values(), ids=POLICIES.keys())
def _policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with one writer for all queues, and with a writer for each queue."""
    monkeypatch.setattr(StoreWorld, "policy", request.param)


def publish_and_take(world: StoreWorld) -> None:
    """Two queues, small messages; some are gone before they are written, some later, out of order."""
    world.declare(1)
    world.declare(2)
    for turn in range(4):
        world.publish(1, [100] * 5)
        world.publish(2, [20, 30, 40])
        world.take_first(1, 2)
        world.step()
        world.take(1, world.models[1].ready[1:4:2])
        world.publish(1, [8])
        if turn % 2:
            world.take_first(2, 3)
    world.step()


def mix(world: StoreWorld) -> None:
    """Large and small, persistent and transient messages in one run."""
    world.declare(1)
    for _ in range(3):
        world.publish(1, [10, 5000, 6000, 20, 30, 4095, 4096], [True, True, False, False, True, True, True])
        world.step()
        world.take_first(1, 3)
    world.step()


def fill_shared_files(world: StoreWorld) -> None:
    """Large messages of two queues share files, which go one after the other."""
    world.declare(1)
    world.declare(2)
    for _ in range(5):
        world.publish(1, [7000] * 2)
        world.publish(2, [5000])
        world.step()
        world.take_first(1, 2)
        world.step()
    world.take_first(2, 4)
    world.step()


def cross_segments(world: StoreWorld) -> None:
    """Runs cross index segments, and segments go when they are empty."""
    world.declare(1)
    for _ in range(3):
        world.publish(1, [8] * (SEGMENT_MESSAGES - 1))
        world.publish(1, [8] * 3)
        world.step()
        model = world.models[1]
        for part in sorted({model.part_of[seq] for seq in model.ready[:-2]}):
            count = sum(model.part_of[seq] == part for seq in model.ready[:-2])
            world.queues[1].take(part, model.ready[0] - part, count)
            model.taken |= set(model.ready[:count])
            del model.ready[:count]
        world.step()


def be_lazy(world: StoreWorld) -> None:
    """A lazy queue writes all, a queue that is not durable leaves nothing."""
    world.declare(1, lazy=True)
    world.declare(2, durable=False, lazy=True)
    for _ in range(3):
        world.publish(1, [50] * 3)
        world.publish(1, [50, 60], persistent=False)
        world.publish(2, [70, 5000])
        world.step()
        world.check_reads()
        world.take_first(1, 2)
    world.step()


def be_lazy_and_keep_up(world: StoreWorld) -> None:
    """The consumer of a lazy queue is faster than the drive: what it took is written, and must not come back."""
    world.declare(1, lazy=True)
    for _ in range(3):
        world.publish(1, [50, 5000, 60])
        world.take_first(1, 2)
        world.publish(1, [70] * 2, persistent=False)
        world.step()
        world.take_first(1, 2)
    world.step()


def delete(world: StoreWorld) -> None:
    """Queues go with all that they wrote, before and after it was written."""
    for group in (1, 2, 3):
        world.declare(group)
        world.publish(group, [30, 5000, 40])
    world.step()
    world.delete(1)
    world.publish(2, [30] * 3)
    world.step()
    world.publish(3, [30, 6000])
    world.delete(3)
    world.step()
    world.take_first(2, 2)
    world.step()


SCRIPTS = (publish_and_take, mix, fill_shared_files, cross_segments, be_lazy, be_lazy_and_keep_up, delete)


def go_on(world: StoreWorld) -> None:
    """Use what came back: old octets get their chance to be taken for new ones."""
    for group in list(world.queues):
        world.take_first(group, 1)
        world.publish(group, [40] * 3)
        world.publish(group, [5500, 9])
        world.step()
        world.take_first(group, 3)
    world.step()
    world.check_reads()


def run_until_fault(script: Script, call: int, error: int = errno.EIO, *, sticky: bool = True) -> StoreWorld | None:
    """Run a script whose ``call``-th changing call fails. None if the script came to its end before."""
    world = StoreWorld()
    start = world.files.calls
    world.files.fail_at(call, error, sticky=sticky)
    script(world)
    return world if world.files.calls - start >= call else None


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_loss_of_power_at_each_call(script: Script, stride: int) -> None:
    """A node that lost power at the wrong moment would lose confirmed messages, or give wrong ones."""
    call = 0
    while run_until_fault(script, call := call + stride) is not None:
        for chance in (None, Random(call), Random(-call)):
            world = run_until_fault(script, call)
            assert world is not None
            world.files.crash(chance)
            world.restart(lost_power=True)
            go_on(world)
            world.files.crash(Random(call))
            world.restart(lost_power=True)
    assert call > 8, "the script makes too few calls to be a test"


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_kill_at_each_call(script: Script, stride: int) -> None:
    """After a kill nothing may come back that the drive was told to be gone, also if the power fails later."""
    call = 0
    while (world := run_until_fault(script, call := call + stride)) is not None:
        world.files.heal()
        world.restart(lost_power=False)
        go_on(world)
        world.files.crash(Random(call))
        world.restart(lost_power=True)


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_crash_during_recovery(script: Script, stride: int) -> None:
    """A node that loses power again while it starts must still start the third time."""
    for call in range(1, 200, stride):
        world = StoreWorld()
        script(world)
        world.files.crash(Random(call))
        world.files.fail_at(call, sticky=True)
        try:
            world.open()
        except OSError:
            world.files.crash(Random(call))
            world.restart(lost_power=True)
            continue
        return
    pytest.fail("recovery makes no end of calls")


@pytest.mark.sampled
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_failure_of_each_call(script: Script, error: int, stride: int) -> None:
    """One call fails and the next ones would not: the store has ended all the same, says which file, and is whole."""
    call = 0
    while (world := run_until_fault(script, call := call + stride, error, sticky=False)) is not None:
        [reason] = world.failed
        assert world.files.trace[-1][1].split(" ")[0] in reason, "the file is not named, or not the last call"
        world.files.crash(Random(call))
        world.restart(lost_power=True)


@pytest.mark.parametrize("seed", range(20))
def test_random_operations_agree_with_the_model(seed: int) -> None:
    """What no script thought of: random runs, sizes and crashes."""
    chance = Random(seed)
    world = StoreWorld(memory_bytes=chance.choice([0, 2000, 1 << 30]))
    world.declare(1)
    world.declare(2, lazy=True)
    world.declare(3, durable=False)
    for _ in range(60):
        group = chance.choice(sorted(world.queues))
        sizes = [chance.choice([8, 30, 4200])] * chance.randint(1, 4)
        match chance.randrange(6):
            case 0 | 1:
                world.publish(group, sizes, chance.random() < 0.7)
            case 2:
                world.publish(group, [*sizes, 12, 5000], [chance.random() < 0.6 for _ in range(len(sizes) + 2)])
            case 3:
                ready = world.models[group].ready
                world.take(group, chance.sample(ready, chance.randint(0, len(ready))))
            case 4:
                world.step()
                world.check_reads()
            case 5 if chance.random() < 0.3:
                lost_power = chance.random() < 0.5
                if lost_power:
                    world.files.crash(chance)
                world.restart(lost_power=lost_power)


@pytest.mark.parametrize(
    ("size", "suffix", "found", "dropped"),
    [(40, ".qs", 0, 3), (40, ".qi", 3, 0), (5000, ".qi", 3, 0)],
    ids=["record without part", "part without record", "large part without record"],
)
def test_the_drive_has_the_one_and_not_the_other(size: int, suffix: str, found: int, dropped: int) -> None:
    """A part has everything that its records say. A record is written only once its part is synced, so a record alone
    is damage."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [size] * 3)
    world.step()
    file = world.files.open(f"{ROOT}/durable/{1:016x}/{1:08x}{suffix}")
    file.write([bytes(file.size())], 0)
    there, findings = world.find_damage()
    assert len(there) == found and sum(finding.messages for finding in findings) == dropped
    assert world.store.counters.classic_recovery_dropped == dropped


def test_a_message_that_has_changed_is_dropped() -> None:
    """A client must never get octets that nobody published."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [40] * 3)
    world.step()
    path = f"{ROOT}/durable/{1:016x}/{1:08x}.qs"
    world.files.flip(path, world.files.open(path).size() - 1)
    there, findings = world.find_damage()
    assert not there and [(each.group, each.messages, each.where) for each in findings] == [(1, 3, path)]


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_each_octet_of_a_record_is_checked(is_large: bool) -> None:
    """A record with a wrong expiry or place would expire messages early or give other messages. A damaged record is
    made again from its part."""
    for octet in range(RECORD.itemsize):
        world = StoreWorld()
        world.declare(1)
        world.publish(1, [5000 if is_large else 40] * 3)
        world.step()
        world.restart(lost_power=False)  # syncs what it finds
        world.files.flip(f"{ROOT}/durable/{1:016x}/{1:08x}.qi", RECORD.itemsize + octet)
        world.restart(lost_power=False)
        assert len(world.models[1].ready) == 3, f"octet {octet}"


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_brings_nothing_back_that_was_acknowledged(is_large: bool, bit: int) -> None:
    """The part of an acknowledged message stays in its file as long as others are there. Its record alone says that the
    message is gone."""
    for octet in range(RECORD.itemsize):
        world = StoreWorld()
        world.declare(1)
        world.publish(1, [5000 if is_large else 40] * 3)
        world.step()
        world.take(1, [world.models[1].ready[1]])
        world.step()
        world.restart(lost_power=False)
        world.files.flip(f"{ROOT}/durable/{1:016x}/{1:08x}.qi", RECORD.itemsize + octet, 1 << bit)
        world.restart(lost_power=False)
        assert len(world.models[1].ready) == 2, f"octet {octet}"


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (40, ["write", "datasync", "write", "sync_dir"]),
        (5000, ["write", "datasync", "sync_dir", "write", "datasync", "sync_dir"]),
    ],
    ids=["small", "large"],
)
def test_confirms_wait_for_the_sync(size: int, wanted: list[str]) -> None:
    """A message that is told to be stored before its octets are synced is lost with the power. A small message takes
    one sync; a large one takes that of the shared file, and that of its record. A record comes after its part is
    synced: else a loss of power could leave a record that looks like damage."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [size] * 3)
    assert not world.models[1].stored
    files: MemoryFiles = world.files
    files.trace.clear()
    world.step()
    assert len(world.models[1].stored) == 3
    calls = [name for name, _path in files.trace]
    assert calls[-len(wanted) :] == wanted


def test_a_failed_store_writes_nothing_more() -> None:
    """A drive that failed once may have lost what it took before: a later sync would promise too much."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [40] * 3)
    world.files.fail_at(3)
    world.step()
    assert len(world.failed) == 1
    calls = world.files.calls
    world.publish(1, [40] * 3)
    world.step()
    assert world.files.calls == calls
    assert not world.models[1].stored
