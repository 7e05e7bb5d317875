"""A bit flips on a drive at rest: does the log notice?

The drive of a node that is down is copied, a bit of one file is flipped in the copy, and the production log opens the
copy. The log may refuse; then it must say where the damage is. It may fail to read single entries. It may find that
entries are missing at its end; then all its members must be forgetful. After a loss of power it may take a batch at the
very end of the WAL for torn, since nobody can tell the two apart then. It must never hand out octets that nobody wrote,
and never forget a term, a vote or a group.

The store of classic queues has no other copy of a message, so it drops a damaged message (docs/internals/
classic-store.md). It must find nothing that it does not find on the sound drive.

The world goes on with the sound drive. In other cases (:func:`lose_end`) a node goes on with a drive that lost the end
of its WAL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from reference_broker.checksum import crc32
from reference_broker.classic.store import ClassicStore
from reference_broker.log.config import LogConfig
from reference_broker.log.errors import LogError
from reference_broker.log.opening import RecoveredGroup
from reference_broker.log.system import LogSystem
from reference_broker.log.wal import SUFFIX
from reference_broker.log.wal_codec import SECTOR
from reference_broker.sim.checks.classic_checks import contents_of
from reference_broker.sim.checks.invariants import ViolationError, check
from reference_broker.sim.disk import CLASSIC
from reference_broker.sim.node import SimNode
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import GroupId, LogIndex

Found = dict[GroupId, list[bytes]]


def lose_end(node: SimNode, config: LogConfig) -> None:
    """Damage the newest WAL file of ``node``, which is down: remove it, cut it, or zero its end."""
    chance, directory = node.env.chance, os.fspath(config.wal_dir)
    path = f"{directory}/{max(name for name in node.files.names(directory) if name.endswith(SUFFIX))}"
    size = node.files.open(path).size()
    kept = chance.choice((None, chance.randint(SECTOR, size), chance.randint(SECTOR, size)))
    node.files.lose(path, kept, zeros=chance.random() < 0.5)
    node.env.note(node.host, "lost", f"{path} {kept}")


def flip_and_open(node: SimNode, config: LogConfig, *, power: bool) -> None:
    """Flip a bit in a copy of the drive of ``node``, which is down, and judge what the log makes of the copy.
    ``power``: the node lost its power."""
    chance = node.env.chance
    files = MemoryFiles()
    sizes = dict(_copied(node.files, files, ("data", "wal", "segments")))
    candidates = [path for path, size in sizes.items() if size and not path.endswith((".tmp", ".spare"))]
    if not candidates:
        return
    path = chance.choice(candidates)
    offset, mask = chance.randrange(sizes[path]), 1 << chance.randrange(8)
    files.flip(path, offset, mask)
    where = f"node {node.node}, {path}, offset {offset}, mask {mask:#x}"
    node.env.note(node.host, "flip", f"{path} {offset} {mask:#x}")
    if path.startswith(CLASSIC):
        sound = MemoryFiles()
        dict(_copied(node.files, sound, (CLASSIC,)))
        _compare_stores(where, _found(sound, node), _found(files, node))
        return
    try:
        log, recovered = LogSystem.open(
            config, files, lambda _notices: None, policy=OwnersThread, new_store=lambda: bytes(16)
        )
    except LogError as error:
        check("offset" in str(error) or "entries" in str(error) or path.rpartition("/")[0] in str(error), "X3",
              f"{where}: refused without saying where: {error}")  # fmt: skip
        return
    except Exception as error:
        raise ViolationError("X3", f"{where}: the log fails instead of refusing: {error!r}") from error
    for group, state in recovered.items():
        _compare(where, log, node, group, state, is_torn=power and path.startswith("wal/"))
    log.close()


def _found(files: MemoryFiles, node: SimNode) -> Found:
    """The messages that the store of classic queues finds on a drive, by queue, in order."""
    store = ClassicStore.open(node.store_config, files, lambda _notices: None, node.store_policy)
    return contents_of(store, store._found)


def _compare_stores(where: str, sound: Found, damaged: Found) -> None:
    """Check that the damaged store has messages of the sound store only, in their order."""
    for group, contents in damaged.items():
        rest = iter(sound.get(group, []))
        check(all(content in rest for content in contents), "X3",
              f"{where}: the store finds messages of queue {group:x} that are not there")  # fmt: skip


def _copied(source: MemoryFiles, target: MemoryFiles, directories: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Copy directories and everything below them. Yields each file and its size."""
    for directory in directories:
        target.make_dir(directory)
        for name in source.names(directory):
            path = f"{directory}/{name}"
            try:
                file = source.open(path)
            except FileNotFoundError:
                yield from _copied(source, target, (path,))
                continue
            copy = target.create(path)
            copy.write([file.read(0, file.size())], 0)
            copy.datasync()
            target.sync_dir(directory)
            yield path, file.size()


def _compare(
    where: str, log: LogSystem, node: SimNode, group: GroupId, state: RecoveredGroup, *, is_torn: bool
) -> None:
    """Check that the recovered log is the written log, or that the member is forgetful. ``is_torn``: the last batch may
    pass for torn."""
    truth = node.checkers.raft.group(group)
    if truth.deleted:
        return
    member = truth.member(node.node)
    forgets_entries = state.last_index < member.durable and member.installing[0] <= member.durable
    check(not forgets_entries or state.forgetful or is_torn, "X3",
          f"{where}: entries of group {group:x} above {state.last_index} are forgotten without a word")  # fmt: skip
    back = (state.term, state.voted_for) != member.hard_state and state.term <= member.hard_state[0]
    check(not back or not member.hard_state[0], "X3",
          f"{where}: term and vote of group {group:x} are {state.term}/{state.voted_for}")  # fmt: skip
    terms = dict(state.terms)
    term = 0
    for index in range(state.first_index, state.last_index + 1):
        term = terms.get(LogIndex(index), term)
        known = truth.entries.get((index, term))
        try:
            octets = log.payload(group, LogIndex(index))
        except LogError:
            continue
        check(known is None or known[0] == crc32(octets), "X3", f"{where}: entry {index} of group {group:x} is another")
