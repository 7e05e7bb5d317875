"""A store of classic queues beside a slow model of it: each message on its own, in plain dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reference_broker.classic.parts import QueueName
from reference_broker.classic.store import ClassicStore, StoreConfig, StoredQueue
from reference_broker.classic.writer import Deleted, Notice, Stored, StoreFailed
from reference_broker.message_run import MessageRun
from reference_broker.storage.executor import IoPolicy, OwnersPool, OwnersThread
from reference_broker.storage.findings import StartFinding
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import GroupId

ROOT = "/classic"
SHARED_FILE_BYTES = 20_000
ROUTE = b"\x00\x01q"


POLICIES = {"one writer": OwnersThread, "a writer for each queue": OwnersPool}


@dataclass
class Model:
    """One queue, message by message. Keys are sequence numbers."""

    name: QueueName
    bodies: dict[int, bytes] = field(default_factory=dict)
    persistent: set[int] = field(default_factory=set)
    part_of: dict[int, int] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    """What the store has told to survive."""
    taken: set[int] = field(default_factory=set)
    taken_and_written: set[int] = field(default_factory=set)
    is_given_up: bool = False
    is_deleted: bool = False


class StoreWorld:
    """Drives a store and its model with the same operations. The store's own threads are :meth:`step`."""

    policy: IoPolicy = OwnersThread

    def __init__(
        self, files: MemoryFiles | None = None, memory_bytes: int = 1 << 30, policy: IoPolicy | None = None
    ) -> None:
        self.policy = policy or self.policy
        self.files = files or MemoryFiles()
        self.memory_bytes = memory_bytes
        self.models: dict[int, Model] = {}
        self.failed: list[str] = []
        self.number = 0
        self.open()

    def open(self) -> None:
        """Start a store on the files."""
        config = StoreConfig(directory=ROOT, memory_bytes=self.memory_bytes, shared_file_bytes=SHARED_FILE_BYTES)
        self.store = ClassicStore.open(config, self.files, self.notify, self.policy)
        self.queues: dict[int, StoredQueue] = {}

    def restart(self, *, lost_power: bool) -> None:
        """Start again after the process died, and compare. A crash alone is no damage."""
        self.open()
        assert not self.store.findings, f"false alarm: {self.store.findings[0]}"
        self.check_recovered(lost_power=lost_power)

    def find_damage(self) -> tuple[set[int], list[StartFinding]]:
        """Start again after a file was damaged: the numbers of the messages of all queues that are there, and the
        findings. Whatever is found reads as it was published, in its order."""
        self.open()
        findings = list(self.store.findings)
        for model in self.models.values():
            model.stored.clear()
        self.check_recovered(lost_power=True)
        return {seq for model in self.models.values() for seq in model.ready}, findings

    def shared_files(self) -> list[str]:
        """The shared files."""
        return [name for name in self.files.names(f"{ROOT}/shared") if name.endswith(".rdq")]

    def notify(self, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Stored):
                model = self.models[notice.group]
                model.stored |= {seq for seq in model.persistent if seq < notice.seq_end}
            elif isinstance(notice, Deleted):
                if notice.group in self.models:
                    self.models[notice.group].is_deleted = True
            else:
                assert isinstance(notice, StoreFailed)
                self.failed.append(notice.reason)

    def declare(self, group: int, *, durable: bool = True, lazy: bool = False) -> None:
        name = QueueName(GroupId(group), durable, lazy)
        self.models.setdefault(group, Model(name))
        self.queues[group] = self.store.queue(name)

    def publish(self, group: int, sizes: list[int], persistent: list[bool] | bool = True) -> None:
        """One run; equal sizes give a uniform run."""
        contents = []
        for size in sizes:
            self.number += 1
            contents.append((b"%08d" % self.number).ljust(max(size, 8), b"."))
        if len({len(content) for content in contents}) == 1:
            run = MessageRun(len(contents), ROUTE, b"".join(contents), len(contents[0]))
        else:
            run = MessageRun.of(ROUTE, contents)
        model = self.models[group]
        flags = persistent if isinstance(persistent, bool) else np.array(persistent)
        first = self.queues[group].next_seq
        for part in self.queues[group].add(run, flags):
            for seq in range(part.seq, part.seq + part.count):
                model.part_of[seq] = part.seq
                model.bodies[seq] = contents[seq - first]
                model.ready.append(seq)
                if part.is_persistent:
                    model.persistent.add(seq)

    def take(self, group: int, seqs: list[int]) -> None:
        model = self.models[group]
        for seq in seqs:
            model.ready.remove(seq)
            model.taken.add(seq)
            part = model.part_of[seq]
            self.queues[group].take(part, seq - part, 1)

    def take_first(self, group: int, count: int) -> None:
        self.take(group, self.models[group].ready[:count])

    def delete(self, group: int) -> None:
        self.queues.pop(group).delete()
        self.models[group].ready.clear()
        self.models[group].is_given_up = True

    def step(self) -> None:
        self.store.run_pending()
        if not self.failed:
            for model in self.models.values():
                model.taken_and_written |= model.taken

    def body(self, group: int, seq: int) -> bytes:
        part = self.models[group].part_of[seq]
        return self.queues[group].run(part).content(seq - part)

    def check_reads(self) -> None:
        """Every message reads as it was published."""
        for group, queue in self.queues.items():
            model = self.models[group]
            for seq in model.ready:
                assert self.body(group, seq) == model.bodies[seq], (queue.name, seq)

    def check_recovered(self, *, lost_power: bool) -> None:
        """After :meth:`open`: what was found is what the model allows. The model follows it."""
        assert not self.files.names(f"{ROOT}/transient"), "a queue that was not durable left files"
        self.failed.clear()
        for group, model in list(self.models.items()):
            if model.is_deleted:
                assert f"{group:016x}" not in self.files.names(f"{ROOT}/durable"), "a deleted queue left files"
            if model.is_given_up or not model.name.is_durable:
                del self.models[group]
                continue
            self.declare(group)
            self._follow(model, self.queues[group], lost_power=lost_power)
        self.store.keep_only(self.models.keys())

    def _follow(self, model: Model, queue: StoredQueue, *, lost_power: bool) -> None:
        found: list[int] = []
        part_of: dict[int, int] = {}
        for each in queue.found:
            seqs = (each.part.seq + each.positions).tolist()
            found += seqs
            part_of |= dict.fromkeys(seqs, each.part.seq)
        assert found == sorted(set(found)), "not in order"
        assert set(found) <= model.persistent, "a message that was transient, or never published"
        needed = set(model.ready) & model.stored
        assert needed <= set(found), f"stored and lost: {sorted(needed - set(found))[:5]}"
        if not lost_power:
            assert not model.taken_and_written & set(found), "gone, and there again after a kill"
        assert all(seq < queue.next_seq for seq in found)
        model.ready, model.part_of, model.persistent = found, part_of, set(found)
        model.stored &= set(found)
        model.taken, model.taken_and_written = set(), set()
        for seq in found:
            part = model.part_of[seq]
            assert queue.run(part).content(seq - part) == model.bodies[seq], f"message {seq} has changed"
