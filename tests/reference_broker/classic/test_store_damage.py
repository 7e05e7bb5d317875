"""Damage to one file of the classic store: every message that can be read is delivered, and every other message that
was told to be stored stands in a finding. No file is lost that the start did not understand."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import pytest

from reference_broker.checksum import crc32
from reference_broker.classic.clean_stop import CLEAN, TAKEN
from reference_broker.classic.index_codec import PERSISTENT, RECORD_SIZE, STORED
from reference_broker.storage.findings import StartFinding
from reference_broker.storage.memory_files import MemoryFiles
from tests.reference_broker.classic.store_world import ROOT, StoreWorld
from tests.reference_broker.classic.test_store_crashes import SCRIPTS, Script, go_on

PAGE = 4096
Damage = Callable[[bytes, Random], bytes | None]
"""New octets of a file from its octets, or None to delete the file."""


def cut(octets: bytes, chance: Random) -> bytes:
    """The end is missing."""
    return octets[: chance.randrange(len(octets))]


def empty(_octets: bytes, _chance: Random) -> bytes:
    """The file is there, and nothing in it."""
    return b""


def zero(octets: bytes, chance: Random) -> bytes:
    """A page has been lost."""
    at = chance.randrange(len(octets)) // PAGE * PAGE
    return octets[:at] + bytes(len(octets[at : at + PAGE])) + octets[at + PAGE :]


def flip(octets: bytes, chance: Random) -> bytes:
    """A bit has turned."""
    at = chance.randrange(len(octets))
    return octets[:at] + bytes([octets[at] ^ 1 << chance.randrange(8)]) + octets[at + 1 :]


def delete(_octets: bytes, _chance: Random) -> None:
    """Somebody removed the wrong file."""
    return


DAMAGES: tuple[Damage, ...] = (cut, empty, zero, flip, delete)


def paths(files: MemoryFiles, directory: str = ROOT) -> Iterator[str]:
    """Every file below a directory."""
    for name in files.names(directory):
        try:
            files.open(f"{directory}/{name}")
        except FileNotFoundError:
            yield from paths(files, f"{directory}/{name}")
        else:
            yield f"{directory}/{name}"


def octets_of(files: MemoryFiles, path: str) -> bytes:
    file = files.open(path)
    return file.read(0, file.size())


def put(files: MemoryFiles, path: str, octets: bytes) -> None:
    """A file with these octets, on the platter."""
    file = files.create(path)
    file.write([octets], 0)
    file.datasync()
    files.sync_dir(path.rpartition("/")[0])


@dataclass
class Stopped:
    """A store that has stopped, to be damaged again and again."""

    files: MemoryFiles
    world: StoreWorld
    early: dict[str, bytes]
    """What the files were after the first batch."""

    def again(self) -> StoreWorld:
        """The same store once more, not yet started."""
        copied = MemoryFiles()
        for path in paths(self.files):
            copied.make_dir(path.rpartition("/")[0])
            put(copied, path, octets_of(self.files, path))
        world = copy.copy(self.world)
        world.files, world.models = copied, copy.deepcopy(self.world.models)
        return world


def stopped(script: Script, *, clean: bool) -> Stopped:
    """A store after a script, stopped in order or killed."""
    world = StoreWorld()
    early: dict[str, bytes] = {}
    step = world.step

    def first_step() -> None:
        step()
        if not early:
            early.update({path: octets_of(world.files, path) for path in paths(world.files)})

    world.step = first_step  # type: ignore[method-assign]
    script(world)
    world.step()
    del world.step
    if clean:
        world.store.close()
    return Stopped(world.files, world, early)


def judge(world: StoreWorld, where: str, *, is_foreign: bool = False) -> list[StartFinding]:
    """Start on a damaged store. What is missing must stand in the findings, with its queue; what is there is in order,
    and as it was published. The next start finds nothing more to tell, and the store goes on. A foreign index may name
    messages that the queue never had."""
    before = {group: set(model.ready) & model.stored for group, model in world.models.items()
              if model.name.is_durable and not model.is_given_up}  # fmt: skip
    _, findings = world.find_damage()
    told = Counter[int | None]()
    for finding in findings:
        told[finding.group] += finding.messages
    for group, needed in before.items():
        missing = needed - set(world.models[group].ready)
        assert len(missing) == told[group] or (is_foreign and len(missing) < told[group]), (
            f"{where}: {len(missing)} of queue {group} are lost, told are {told[group]}"
        )
    go_on(world)
    world.restart(lost_power=False)
    world.files.crash(Random(0))
    world.restart(lost_power=True)
    return findings


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_nothing_is_lost_silently_whatever_file_is_damaged(script: Script, clean: bool) -> None:
    """Every file of the store, damaged in every way, after a clean stop and after a kill."""
    store = stopped(script, clean=clean)
    for path in paths(store.files):
        octets = octets_of(store.files, path)
        for damage in DAMAGES if octets else (delete,):
            for seed in range(3 if damage in (cut, zero, flip) else 1):
                world, chance = store.again(), Random(f"{path} {seed}")
                damaged = damage(octets, chance)
                if damaged is None:
                    world.files.remove(path)
                else:
                    put(world.files, path, damaged)
                where = f"{script.__name__}, {path}, {damage.__name__}, seed {seed}"
                findings = judge(world, where)
                if damaged is not None and any(each.messages and each.where == path for each in findings):
                    kept = [each for each in paths(world.files) if each.startswith(f"{path}.damaged")]
                    assert [octets_of(world.files, each) for each in kept] == [damaged], where


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_nothing_is_lost_silently_with_old_or_foreign_copies(script: Script, clean: bool) -> None:
    """A file that an older copy or another file of its class replaces, and a copy under another name."""
    store = stopped(script, clean=clean)
    for path in paths(store.files):
        suffix = path[-4:]
        for other in paths(store.files):
            if other != path and other.endswith(suffix):
                world = store.again()
                put(world.files, path, octets_of(store.files, other))
                judge(world, f"{script.__name__}, {path} is {other}", is_foreign=True)
        if path in store.early:
            world = store.again()
            put(world.files, path, store.early[path])
            judge(world, f"{script.__name__}, {path} is old")
        for name in ("00000009" + suffix, "x" + suffix, path.rpartition("/")[2] + "~"):
            world = store.again()
            put(world.files, f"{path.rpartition('/')[0]}/{name}", octets_of(store.files, path))
            judge(world, f"{script.__name__}, {path} is there as {name}, too")


def stored(count: int = 6, size: int = 40) -> StoreWorld:
    """A store that has stopped in order, with messages of one queue."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [size] * count)
    world.step()
    world.queues[1].delivered(world.models[1].ready[2])
    world.store.close()
    return world


QUEUE = f"{ROOT}/durable/{1:016x}"


def test_an_index_that_is_deleted_after_a_clean_stop_costs_no_message() -> None:
    """It is no removal that a crash has undone: nothing was under way. The start once removed the messages then."""
    for size in (40, 5000):
        world = stored(size=size)
        world.files.remove(f"{QUEUE}/00000001.qi")
        there, (finding,) = world.find_damage()
        assert len(there) == 6 and finding.messages == 0 and finding.where.endswith("00000001.qi")
        assert "made again" in finding.what


def test_a_segment_of_which_nothing_is_left_is_told_after_a_clean_stop() -> None:
    """Only the file of the clean stop knows that there was something."""
    for names in (["00000001.qi", "00000001.qs"], None):
        world = stored()
        for name in world.files.names(QUEUE):
            world.files.remove(f"{QUEUE}/{name}")
        if names is None:
            world.files.remove_dir(QUEUE)
        there, (finding,) = world.find_damage()
        assert not there and (finding.group, finding.messages) == (1, 6)
        assert finding.what == "6 messages are missing that the queue had at the last clean stop"


def test_large_messages_outlive_the_files_of_their_queue() -> None:
    """Their octets lie in the shared files, with everything that an index says."""
    world = stored(size=5000)
    for name in world.files.names(QUEUE):
        world.files.remove(f"{QUEUE}/{name}")
    world.files.remove_dir(QUEUE)
    there, _ = world.find_damage()
    assert len(there) == 6


@pytest.mark.parametrize("suffix", [".rdq", ".qs"])
def test_a_file_that_is_missing_is_told_after_a_loss_of_power(suffix: str) -> None:
    """The index of large messages is synced with them: it tells what must be in the shared file."""
    world = StoreWorld()
    world.declare(1)
    world.publish(1, [40, 40, 5000, 5000, 5000])
    world.step()
    world.files.crash()
    [path] = [each for each in paths(world.files) if each.endswith(suffix)]
    world.files.remove(path)
    there, findings = world.find_damage()
    lost = 3 if suffix == ".rdq" else 2
    assert len(there) == 5 - lost and [(each.where, each.messages) for each in findings] == [(path, lost)]


def test_garbage_in_an_index_is_no_message() -> None:
    """Octets that no record can have must not be told as messages that are lost."""
    world = stored(count=6)
    path = f"{QUEUE}/00000001.qi"
    garbage = b"".join(bytes([STORED, PERSISTENT]) + Random(slot).randbytes(RECORD_SIZE - 2) for slot in range(9))
    put(world.files, path, octets_of(world.files, path) + garbage)
    there, findings = world.find_damage()
    assert len(there) == 6 and findings == []


def test_what_is_set_aside_is_never_replaced() -> None:
    """The octets of two damages to the same file are both there, until the queue goes."""
    world = stored()
    world.restart(lost_power=False)
    for _ in range(2):
        world.publish(1, [40])
        world.step()
    path, versions = f"{QUEUE}/00000002.qs", []
    for offset in (-1, 45):
        octets = bytearray(octets_of(world.files, path))
        octets[offset] ^= 1
        versions.append(bytes(octets))
        for name in ("00000002.qs", "x"):
            put(world.files, f"{QUEUE}/{name}", bytes(octets))
        _, findings = world.find_damage()
        assert [finding.messages for finding in findings] == [0, 1]
    for name in ("00000002.qs", "x"):
        kept = [each for each in world.files.names(QUEUE) if each.startswith(f"{name}.damaged")]
        assert [octets_of(world.files, f"{QUEUE}/{each}") for each in kept] == versions
    world.delete(1)
    world.step()
    assert world.files.names(f"{ROOT}/durable") == []


@pytest.mark.parametrize("damage", [cut, empty, flip, delete], ids=lambda damage: damage.__name__)
def test_a_damaged_file_of_a_clean_stop_costs_the_flags_and_is_told(damage: Damage) -> None:
    """Every message may have been delivered then. A file that is missing cannot be told from a kill."""
    world = stored()
    path = f"{ROOT}/{CLEAN}"
    damaged = damage(octets_of(world.files, path), Random(1))
    if damaged is None:
        world.files.remove(path)
    else:
        put(world.files, path, damaged)
    there, findings = world.find_damage()
    assert len(there) == 6 and world.queues[1].delivered_end == world.queues[1].next_seq
    assert [finding.where for finding in findings] == ([f"{path}.damaged"] if damaged is not None else [])


def test_an_old_file_of_a_clean_stop_does_not_count() -> None:
    """Messages that were delivered since would come without their flag, and messages that are gone would be missed."""
    world = stored()
    path = f"{ROOT}/{CLEAN}"
    old = octets_of(world.files, path)
    world.restart(lost_power=False)
    world.queues[1].delivered(world.models[1].ready[5])
    world.take_first(1, 1)
    world.step()
    world.store.close()
    put(world.files, path, old)
    _, findings = world.find_damage()
    assert ["old copy" in finding.what for finding in findings] == [True]
    assert world.queues[1].delivered_end == world.queues[1].next_seq
    world.publish(1, [40])
    world.step()
    world.store.close()
    world.restart(lost_power=False)
    assert world.queues[1].delivered_end < world.queues[1].next_seq, "the next clean stop counts again"


def test_the_file_of_an_earlier_version_is_no_damage() -> None:
    """An upgrade costs the flags once."""
    world = stored()
    body = bytes(16)
    put(world.files, f"{ROOT}/{CLEAN}", body + crc32(body).to_bytes(4, "big"))
    world.restart(lost_power=False)
    assert world.queues[1].delivered_end == world.queues[1].next_seq
    assert world.files.names(ROOT) == [TAKEN, "durable", "openings", "shared", "transient"]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_an_older_copy_of_the_directory_is_told_once(clean: bool) -> None:
    """Nothing in the directory tells that messages are missing, or were delivered since."""
    world = stored()
    old = {path: octets_of(world.files, path) for path in paths(world.files)}
    world.restart(lost_power=False)
    world.publish(1, [40])
    world.step()
    if clean:
        world.store.close()
    for path in list(paths(world.files)):
        world.files.remove(path)
    for path, octets in old.items():
        put(world.files, path, octets)
    _, findings = world.find_damage()
    told = [finding.what for finding in findings]
    assert told == ["the store of classic queues is an older copy: opened 1 times, not 2"]
    assert world.queues[1].delivered_end == world.queues[1].next_seq
    world.store.close()
    _, findings = world.find_damage()
    assert findings == []
