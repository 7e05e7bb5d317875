"""Loss of power at every instruction: nothing that was noticed is ever lost, no log ever has a gap."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from reference_broker.log.notices import Failed
from reference_broker.log.system import LogSystem
from reference_broker.storage.executor import OwnersThread
from reference_broker.types import LogIndex

Script = Callable[[Any], None]


def append_and_roll(world: Any) -> None:
    """Three groups write until the WAL has rolled over several times."""
    groups = [world.create(number) for number in (1, 2, 3)]
    for turn in range(10):
        for group in groups:
            world.append(group, 2 * turn + 1, 2, size=700)
        world.step()


def elect(world: Any) -> None:
    """Terms and votes between appends, two of them in one batch."""
    group, other = world.create(1), world.create(2)
    for term in range(1, 6):
        world.hard_state(group, term, term % 3 + 1)
        world.hard_state(other, 2 * term, 0)
        world.append(group, term, term=term)
        world.step()


def overwrite(world: Any) -> None:
    """New leaders overwrite and truncate, across a roll-over."""
    group, other = world.create(1), world.create(2)
    world.append(group, 1, 8, size=1000)
    world.append(other, 1, 2, size=3000)
    world.step()
    world.append(group, 5, 3, term=2, size=1000)
    world.append(group, 6, 4, term=3, size=1000)
    world.step()
    world.truncate(group, 8)
    world.step()
    world.truncate(group, 3)
    world.append(group, 3, 6, term=4, size=1500)
    world.append(other, 3, 2, size=3000)
    world.step()


def take_snapshots(world: Any) -> None:
    """Snapshots with and without live entries; WAL files go and come back recycled."""
    group, other = world.create(1), world.create(2)
    world.append(other, 1, size=100)
    for turn in range(6):
        first = 6 * turn + 1
        world.append(group, first, 6, size=1200)
        world.step()
        world.snapshot(group, first + 4, 1, [(2, 3), (first + 1, first + 2)] if turn else [(2, 4)])
        world.step()
    world.snapshot(group, 36, 1)
    world.snapshot(other, 1, 1)
    world.step()
    world.append(group, 37, 6, size=1200)
    world.step()


def delete(world: Any) -> None:
    """A group with a snapshot goes, another takes its place, entries of both share files."""
    group, other = world.create(1), world.create(2)
    world.append(group, 1, 5, size=900)
    world.append(other, 1, 5, size=900)
    world.step()
    world.snapshot(group, 3, 1, [(2, 2)])
    world.step()
    world.append(group, 6)
    world.delete(group)
    third = world.create(3)
    world.append(third, 1, 5, size=900)
    world.step()


def chunks_of(make_world: Callable[..., Any]) -> tuple[list[tuple[int, int, bytes, bool]], dict[int, Any]]:
    """A snapshot at index 20, term 3, with live entries, as another member would send it."""
    donor = make_world().open()
    group = donor.create(1)
    donor.append(group, 1, 20, term=3, size=500)
    donor.step()
    donor.snapshot(group, 20, 3, [(4, 5), (9, 9), (20, 20)])
    donor.step()
    live = {index: donor.log.entries(group, LogIndex(index), LogIndex(index), 1)[0] for index in (4, 5, 9, 20)}
    return [donor.log.snapshot_chunk(group, 1)], live


def install(world: Any) -> None:
    """A snapshot arrives at a member whose log is shorter, then the log goes on and a second snapshot is taken."""
    chunks, kept = chunks_of(type(world))
    group, other = world.create(1), world.create(2)
    world.append(other, 1, size=100)
    world.append(group, 1, 12, term=1, size=600)
    world.step()
    world.install(group, chunks, kept)
    world.step()
    world.reset(group, 20, 3)
    world.append(group, 21, 12, term=3, size=900)
    world.step()
    world.snapshot(group, 30, 3, [(5, 5), (9, 9), (22, 23)])
    world.step()
    world.append(group, 33, 12, term=3, size=900)
    world.step()
    world.snapshot(group, 44, 3, [(22, 22), (40, 40)])
    world.step()


def outlive_install(world: Any) -> None:
    """Of what came with a snapshot little is left: later snapshots bring that along and let go of the file, twice."""
    chunks, kept = chunks_of(type(world))
    group = world.create(1)
    world.install(group, chunks, kept)
    world.step()
    world.reset(group, 20, 3)
    world.append(group, 21, 8, term=3, size=100)
    world.step()
    world.snapshot(group, 25, 3, [(4, 4), (9, 9), (23, 24)])
    world.step()
    world.append(group, 29, 4, term=3, size=900)
    world.step()
    world.snapshot(group, 30, 3, [(9, 9), (24, 24)])
    world.step()
    world.append(group, 33, 12, term=3, size=900)
    world.step()
    world.snapshot(group, 44, 3, [(24, 24), (40, 40)])
    world.step()
    world.append(group, 45, term=3)
    world.snapshot(group, 45, 3)
    world.step()


def install_over_branch(world: Any) -> None:
    """A snapshot arrives at a member whose log is longer and of another term: a dead branch in files that stay."""
    chunks, kept = chunks_of(type(world))
    group, other = world.create(1), world.create(2)
    world.append(other, 1, size=100)
    for turn in range(15):
        world.append(group, 4 * turn + 1, 4, term=2, size=1200)
        world.append(other, turn + 2)
        world.step()
    world.install(group, chunks, kept)
    world.step()
    world.append(group, 61, 2, term=2, size=1200)  # still the old log: the owner has not heard yet
    world.reset(group, 20, 3)
    world.append(group, 21, 2, term=3, size=900)
    world.step()
    world.snapshot(group, 22, 3)
    world.step()
    world.append(group, 23, 12, term=3, size=900)
    world.step()
    world.snapshot(other, 4, 1)
    world.step()


def supersede(world: Any) -> None:
    """The file with the overwrite is dead first; the one with what was overwritten is held by another group."""
    group, other = world.create(1), world.create(2)
    world.append(other, 1, size=100)
    world.append(group, 1, 12, term=1, size=1100)
    world.step()
    world.append(other, 2, 4, size=3900)
    world.step()
    world.append(group, 5, 2, term=2, size=100)
    world.step()
    world.append(other, 6, 4, size=3900)
    world.step()
    world.snapshot(other, 9, 1, [(1, 1)])
    world.snapshot(group, 6, 2)
    world.step()
    world.append(other, 10, 4, size=3900)
    world.step()


def flush(world: Any) -> None:
    """Closed files are copied: a backlog, an old message, an overwrite and a truncation go into segments."""
    backlog, old, other = world.create(1), world.create(2), world.create(3)
    world.append(old, 1, 3, size=300)
    world.append(other, 1, 6, size=700)
    for turn in range(9):
        world.append(backlog, 3 * turn + 1, 3, size=1500)
        world.step()
        if turn == 2:
            world.snapshot(old, 3, 1, [(2, 2)])
            world.append(other, 3, 2, term=2, size=900)
        if turn == 5:
            world.truncate(other, 4)
    world.roll(4)
    world.truncate(other, 3)
    world.roll(4)
    world.check_readable()


def compact(world: Any) -> None:
    """Segments become poor and are rewritten, then die; numbers stand between, older ones hide nothing."""
    group, other = world.create(1), world.create(2)
    for turn in range(6):
        world.append(group, 4 * turn + 1, 4, size=1500)
        world.append(other, 2 * turn + 1, 2, term=turn + 1, size=200)
        world.step()
    world.roll(3)
    world.append(other, 4, 2, term=9, size=200)
    world.snapshot(group, 20, 1, [(2, 2), (9, 11), (18, 18)])
    world.step()
    world.roll(3)
    world.snapshot(group, 22, 1, [(9, 9)])
    world.snapshot(other, 4, 9, [(1, 1)])
    world.step()
    world.roll(3)
    world.append(group, 25, 3, size=1500)
    world.snapshot(group, 26, 1)
    world.step()


def install_over_segments(world: Any) -> None:
    """A snapshot arrives at a member whose log, a dead branch, is in segments."""
    chunks, kept = chunks_of(type(world))
    group, other = world.create(1), world.create(2)
    for turn in range(8):
        world.append(group, 4 * turn + 1, 4, term=2, size=1200)
        world.step()
    world.append(other, 1, 2, size=500)
    world.roll(3)
    world.install(group, chunks, kept)
    world.step()
    world.reset(group, 20, 3)
    world.step()
    world.roll(3)
    world.append(group, 21, 2, term=3, size=900)
    world.roll(3)
    world.delete(other)
    world.step()


def create_again(world: Any) -> None:
    """A group with WAL entries, segments, a snapshot and a vote goes, and another one gets its id: once in the same
    turn, once later, and once while a snapshot arrives for it."""
    chunks, kept = chunks_of(type(world))
    group, other = world.create(1), world.create(2)
    world.append(other, 1, 2, size=500)
    world.append(group, 1, 8, size=1200)
    world.hard_state(group, 4, 2)
    world.step()
    world.roll(3)
    world.snapshot(group, 5, 1, [(2, 3)])
    world.step()
    world.delete(group)
    world.create(1)
    world.append(group, 1, 3, term=2, size=900)
    world.step()
    world.snapshot(group, 2, 2)
    world.delete(group)
    world.step()
    world.create(1)
    world.install(group, chunks, kept)
    world.step()
    world.reset(group, 20, 3)
    world.append(group, 21, 2, term=3, size=900)
    world.step()
    world.roll(3)


SCRIPTS = (
    append_and_roll, supersede, elect, overwrite, take_snapshots, delete, create_again, install, install_over_branch,
    flush, compact, install_over_segments,
    outlive_install,
)  # fmt: skip
"""What is enumerated. Each script runs until its n-th changing call (write, sync, create, rename, remove, make or
remove a directory, sync a directory), for every n: there the power fails, the process dies, or the call fails with
EIO or ENOSPC.

=====================  ========================================================
append                 append_and_roll, overwrite, elect
roll-over              append_and_roll, supersede, take_snapshots (recycled files)
segment flush          flush, compact, install_over_segments, create_again
segment compaction     compact
snapshot write         take_snapshots, compact, delete, outlive_install
snapshot install       install, install_over_branch, install_over_segments, create_again
truncation             overwrite, flush
vote write             elect, create_again
queue delete           delete, install_over_segments, create_again
create after delete    create_again
recovery itself        all, in test_crash_during_recovery
=====================  ========================================================
"""


def go_on(world: Any) -> None:
    """Use what came back: overwrite a little, fill files, take snapshots, so that old octets get their chance.

    Group 2 takes none: it holds old files while newer ones are recycled around them.
    """
    for group, found in list(world.recovered.items()):
        last = found.last_index
        world.append(group, last + 1, 3, term=9, size=1100)
        world.step()
        world.append(group, last + 2, 12, term=10, size=1100)
        world.step()
        world.check_readable()
        if group != 2:
            world.snapshot(group, last + 12, 10)
    world.step()
    for group, found in list(world.recovered.items()):
        world.append(group, found.last_index + 14, 12, term=11, size=1400)
        world.step()
        if group != 2:
            world.snapshot(group, found.last_index + 25, 11)
        world.step()
    world.check_readable()


def run_until_fault(make_world: Callable[..., Any], script: Script, call: int, error: int = 0) -> Any:
    """Run a script on a node whose ``call``-th changing call fails with ``error``, or, without one, stops the node.

    None if it came to its end.
    """
    world = make_world()
    if error:
        world.faulty = True
        world.files.fail_at(call, error)
    else:
        world.stop_at(call)
    try:
        world.open()
        script(world)
    except OSError:  # the very first start: there is nothing to promise yet
        return world
    except (ValueError, KeyError, IndexError):  # the script met a log that has stopped
        assert any(type(notice).__name__ == "Failed" for notice in world.notices)
    return world if world.files.calls >= call else None


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_crash_at_each_call(
    script: Script, make_world: Callable[..., Any], stride: int
) -> None:
    """A node that lost power at the wrong moment would lose confirmed messages, or not start again."""
    call = 0
    while True:
        call += stride
        world = run_until_fault(make_world, script, call)
        if world is None:
            break
        for chance in (None, Random(call)):
            survivor = world if chance is None else run_until_fault(make_world, script, call)
            survivor.crash(chance)
            survivor.step()
            go_on(survivor)
            survivor.crash(Random(call))
            survivor.restart()
    assert call > 20, "the script makes too few calls to be a test"


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_crash_during_recovery(script: Script, make_world: Callable[..., Any], stride: int) -> None:
    """A node that loses power again while it starts must still start the third time."""
    call = 0
    while True:
        call += stride
        world = make_world().open()
        script(world)
        world.files.crash(Random(call))
        world.files.fail_at(call, sticky=True)
        try:
            world.open()
        except OSError:
            world.crash(Random(call))
            continue
        break
    assert call > 5


@pytest.mark.sampled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_killed_and_then_without_power(script: Script, make_world: Callable[..., Any], stride: int) -> None:
    """What a restarted node reports as its log counts as synced: it must not live in the kernel's memory only."""
    call = 0
    while (world := run_until_fault(make_world, script, call := call + stride)) is not None:
        world.kill()
        for group, model in world.models.items():
            model.confirmed = len(model.states) - 1
            model.snapshot_confirmed = max((index for index, _term in model.snapshots), default=0)
            assert group in world.recovered
        world.crash()
    assert call > 20


@pytest.mark.sampled
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_failure_of_each_call(
    script: Script, error: int, make_world: Callable[..., Any], stride: int
) -> None:
    """One call fails and the next ones would not: the log has stopped all the same, says which file, and is whole."""
    call = 0
    while (world := run_until_fault(make_world, script, call := call + stride, error)) is not None:
        failures = [notice.error for notice in world.notices if isinstance(notice, Failed)]
        if hasattr(world, "log"):
            [failure] = failures
            assert world.files.trace[call - 1][1].split(" ")[0] in failure, "the file is named"
            calls = world.files.calls
            world.step()
            assert world.files.calls == calls, "something was written after the failure"
        world.crash(Random(call))
        world.check_readable()
    assert call > 20


@pytest.mark.sampled
@pytest.mark.parametrize("script", [append_and_roll, flush, take_snapshots], ids=lambda script: script.__name__)
def test_a_full_drive_costs_nothing_but_the_time_until_there_is_room(
    script: Script, make_world: Callable[..., Any], stride: int
) -> None:
    """The drive is full at the roll-over, at a segment, at a snapshot, wherever it comes to that under load: the log
    stops and names the file, a start on the full drive is refused with the file or serves what is there, and once
    there is room the node is back with everything it promised."""
    clean = make_world().open()
    clean.files.fill_up(1 << 30)
    script(clean)
    used = (1 << 30) - clean.files._room
    named: set[str] = set()
    for room in range(0, used, stride * max(1, used // 60)):
        world = make_world().open()
        world.faulty = True
        world.files.fill_up(room)
        with suppress(ValueError, KeyError, IndexError):  # the script met a log that has stopped
            script(world)
        [failure] = [notice.error for notice in world.notices if isinstance(notice, Failed)]
        assert "No space left" in failure
        named.update(re.findall(r"/disk/([a-z]+)/", failure)[:1])
        world.files.fill_up(0)
        try:
            LogSystem.open(world.config, world.files, lambda _notices: None, policy=OwnersThread)[0].close()
        except OSError as refused:
            assert refused.errno == errno.ENOSPC and str(refused.filename).startswith("/disk/")
        world.kill()
        go_on(world)
    assert named >= ({"wal", "data"} if script is not append_and_roll else {"wal"})


def test_a_dropped_branch_stays_dropped(make_world: Callable[..., Any]) -> None:
    """Power fails between a snapshot's install and the reset: the dead branch is dropped at the start. Its files stay,
    held by another group, while those written since are recycled: it must not return at the start after that."""
    chunks, kept = chunks_of(make_world)
    world = make_world().open()
    group, other = world.create(1), world.create(2)
    for turn in range(15):
        world.append(group, 4 * turn + 1, 4, term=2, size=1200)
        world.append(other, turn + 1)
        world.step()
    world.install(group, chunks, kept)
    world.step()
    world.crash()
    assert (world.recovered[group].first_index, world.recovered[group].last_index) == (21, 20)
    world.append(group, 21, 2, term=3)
    world.step()
    for turn in range(6):
        world.append(other, turn + 16, size=9000)
        world.step()
    world.snapshot(group, 22, 3)
    world.snapshot(other, 21, 1, [(1, 15)])
    world.step()
    world.crash()
    assert (world.recovered[group].first_index, world.recovered[group].last_index) == (23, 22)


FIGURES = (
    "wal_rolls", "wal_files_recycled", "snapshots", "segments_written", "segment_compactions", "segment_reads",
    "disk_reads", "meta_writes",
)  # fmt: skip


@pytest.mark.parametrize("first", range(0, 240, 60))
def test_random_histories(first: int, make_world: Callable[..., Any]) -> None:
    """Any mix of operations, the log's threads one ahead of the other, with crashes in between, keeps every promise.

    A mix in which something hardly ever happens would prove nothing of it: so it is counted.
    """
    events: Counter[str] = Counter()
    for seed in range(first, first + 60):
        try:
            _live_at_random(make_world(memtable_bytes=(0, 5000, 1 << 20)[seed % 3]), Random(seed), events)
        except BaseException as error:
            error.add_note(f"seed {seed}; so far {dict(events)}")
            raise
    rare = {event: events[event] for event in (*OPERATIONS, *FIGURES, "crash", "stop") if events[event] < 15}
    assert not rare, f"{rare} of {dict(events)}"


def _live_at_random(world: Any, chance: Random, events: Counter[str]) -> None:
    world.open()
    for _life in range(4):
        for _turn in range(chance.randint(5, 40)):
            events[_random_operation(world, chance)] += 1
            if chance.random() < 0.3:
                world.check_readable()
            if chance.random() < 0.4:
                world.step()
            elif chance.random() < 0.5:
                chance.choice(world.log.executors).run_pending()
        if chance.random() < 0.5:
            world.roll(chance.randint(1, 4))
        events += {name: world.log.counters()[name] for name in FIGURES}
        if chance.random() < 0.5:
            events["stop"] += 1
            world.stop_at(chance.randint(1, 30))
            for group in [group for group, model in world.models.items() if not model.deleting]:
                _append_next(world, chance, group)
                world.step()
            world.roll(1)
        events["crash"] += 1
        world.crash(chance if chance.random() < 0.8 else None)


def _append_next(world: Any, chance: Random, group: Any) -> None:
    state = world.models[group].states[-1]
    last = max(state.log, default=state.base)
    world.append(group, last + 1, chance.randint(1, 5), term=_term(state) + chance.randint(0, 1), size=_size(chance))


def _term(state: Any) -> int:
    return max((entry.term for entry in state.log.values()), default=1)


def _size(chance: Random) -> int:
    return chance.choice((1, 40, 470, 480, 2000, 9000, 20000))


OPERATIONS = {
    "append": 8, "overwrite": 2, "vote": 2, "snapshot": 4, "truncate": 3, "create": 5, "delete": 1, "again": 1,
    "roll": 1,
}  # fmt: skip
"""What may happen, and how often beside the others."""


def _random_operation(world: Any, chance: Random) -> str:
    """Do one thing at random, or nothing if it is impossible now. Returns what it was."""
    [operation] = chance.choices(list(OPERATIONS), list(OPERATIONS.values()))
    if operation == "create":
        free = [number for number in range(1, 5) if number not in world.models]
        return operation if free and world.create(free[0]) else ""
    if operation == "roll":
        world.roll(2)
        return operation
    groups = [group for group, model in world.models.items() if not model.deleting and group != 99]
    if not groups:
        return ""
    group = chance.choice(groups)
    model = world.models[group]
    state = model.states[-1]
    floor = max((index for index, _term in model.snapshots), default=0)
    above_floor = sorted(index for index in state.log if index > floor)
    match operation:
        case "append":
            _append_next(world, chance, group)
        case "vote":
            model.hard.append((model.hard[-1][0] + 1, chance.randint(0, 3)))
            world.hard_state(group, *model.hard.pop())
        case "delete" | "again":
            world.delete(group)
            if operation == "again":
                world.create(group)
        case _ if not above_floor:
            return ""
        case "overwrite":
            first = chance.choice(above_floor)
            world.append(group, first, chance.randint(1, 3), term=_term(state) + 1, size=_size(chance))
        case "snapshot":
            index = chance.choice(above_floor)
            live = [(index, index)] if chance.random() < 0.5 else []
            world.snapshot(group, index, state.log[index].term, live)
        case "truncate":
            world.truncate(group, chance.choice(above_floor))
    return operation
