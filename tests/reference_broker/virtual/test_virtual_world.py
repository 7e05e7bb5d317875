"""Virtual time: cores, links, threads and drives take as long as they are said to take, in the order of time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import fields
from typing import Any

import pytest

from reference_broker.storage.drives.profiles import DriveProfile
from reference_broker.storage.files import Files
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.virtual.cluster import NodeSpec, VirtualCluster, start
from reference_broker.virtual.costs import Costs, messages
from reference_broker.virtual.files import VirtualDrive, VirtualFiles
from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.network import WINDOW_OCTETS, Link, VirtualNetwork
from reference_broker.virtual.threads import VirtualPolicy
from reference_broker.virtual.world import Machine, Process, World

FREE = Costs(**{each.name: 0 for each in fields(Costs)})
MS = 1_000_000
SLOW = DriveProfile(name="slow", latency_ns=10 * MS, octets_per_second=10**12)


def a_network(world: World, *, latency_ns: int = 0, octets_per_second: int = 10**15) -> VirtualNetwork:
    link = Link(latency_ns=latency_ns, octets_per_second=octets_per_second)
    return VirtualNetwork(world, link, link)


def a_loop(world: World, network: VirtualNetwork, name: str, machine: Machine | None = None) -> VirtualLoop:
    return VirtualLoop(world, Process(machine or Machine(name, 1), FREE), network)  # type: ignore[abstract]


@pytest.mark.parametrize(("cores", "ends_ms"), [(1, [3, 6, 9]), (2, [3, 3, 6]), (3, [3, 3, 3])])
def test_processes_compete_for_the_cores_of_their_machine(cores: int, ends_ms: list[int]) -> None:
    """Saturation is the point of a simulation: three processes of 3 ms each need as long as the cores allow."""
    world = World(1)
    network, machine, ends = a_network(world), Machine("one", cores), []
    loops = [a_loop(world, network, "", machine) for _ in range(3)]

    def work(loop: VirtualLoop) -> None:
        loop.spend(3 * MS)
        ends.append(world.clock() // MS)

    for loop in loops:
        loop.call_soon(work, loop)
    while len(ends) < 3:
        world.step()
    assert ends == ends_ms
    assert sum(loop.process.waited_ns for loop in loops) == (sum(ends_ms) - 9) * MS


def test_a_callback_waits_until_its_process_is_free() -> None:
    """What comes while an event loop is busy is late by the rest of the work: that is a queue."""
    world = World(1)
    loop, seen = a_loop(world, a_network(world), "a"), []
    loop.call_soon(loop.spend, 7 * MS)
    loop.call_later(0.002, lambda: seen.append(world.clock()))
    while not seen:
        world.step()
    assert seen == [7 * MS]


class Reader(asyncio.Protocol):
    """Keeps what comes, with the time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.data = b""
        self.last_ns = 0
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.last_ns = self.world.clock()


class Writer(asyncio.Protocol):
    """Notes whether it was told to pause."""

    def __init__(self) -> None:
        self.paused = 0
        self.resumed = 0

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1


def connected(world: World, network: VirtualNetwork) -> tuple[VirtualLoop, Any, Writer, Reader]:
    """A connection from one machine to another."""
    here, there, reader, writer = a_loop(world, network, "a"), a_loop(world, network, "b"), Reader(world), Writer()
    network.listen(there, 1, lambda: reader)
    transport, _ = here.run_until_done(here.create_connection(lambda: writer, "b", 1))
    return here, transport, writer, reader


def test_octets_take_the_latency_and_the_bandwidth_of_the_link() -> None:
    """A megabyte over 100 MB/s with 5 ms on the way arrives after 15 ms."""
    world = World(1)
    here, transport, _, reader = connected(world, a_network(world, latency_ns=5 * MS, octets_per_second=10**8))
    began_ns = world.now_ns
    here.call_soon(transport.write, bytes(10**6))
    while len(reader.data) < 10**6:
        world.step()
    assert reader.last_ns - began_ns == 15 * MS


def test_a_reader_that_pauses_stops_the_writer_and_loses_nothing() -> None:
    """Back-pressure must reach the publisher, or a slow broker would look like an endless buffer."""
    world = World(1)
    here, transport, writer, reader = connected(world, a_network(world))
    while reader.transport is None:
        world.step()
    reader.transport.pause_reading()
    sent = random.Random(3).randbytes(WINDOW_OCTETS + 200_000)
    here.call_soon(transport.write, sent)
    with pytest.raises(IndexError):  # nothing more can happen
        while True:
            world.step()
    assert reader.data == b"" and (writer.paused, writer.resumed) == (1, 0)
    assert transport.get_write_buffer_size() == 200_000
    here.call_soon(reader.transport.resume_reading)
    while not writer.resumed or len(reader.data) < len(sent):
        world.step()
    assert reader.data == sent


@pytest.mark.parametrize(
    ("pool", "expected"), [(0, {"a": 10, "b": 10}), (1, {"a": 10, "b": 20}), (2, {"a": 10, "b": 10})]
)
def test_a_pool_of_one_thread_serves_stores_one_after_the_other(pool: int, expected: dict[str, int]) -> None:
    """The pool is what makes one slow store hold up all others; two stores on two drives show it."""
    world = World(1)
    process, ends = Process(Machine("a", 2), FREE), {}
    drives = {f"/{name}": VirtualDrive(SLOW) for name in expected}
    files = VirtualFiles(world, FREE, drives)
    policy = VirtualPolicy(world, process, pool)

    def sync(operations: list[Any]) -> None:
        for file, name in operations:
            file.datasync()
            ends[name] = world.clock() // MS

    opened = {}
    for name in expected:
        files.make_dir(f"/{name}")
        opened[name] = files.create(f"/{name}/file")
    executors = {name: policy(name, sync) for name in expected}
    for name, executor in executors.items():
        opened[name].write([b"x" * 4096], 0)
        executor.submit((opened[name], name))
    while len(ends) < 2:
        world.step()
    policy.end()
    # The octets of a new file are written, then the blocks of the journal, then its record: three operations of 10 ms.
    assert ends == {name: 3 * value for name, value in expected.items()}


def names_and_content(files: Files, directories: list[str]) -> dict[str, Any]:
    return {
        directory: {name: files.open(f"{directory}/{name}").read(0, 1 << 20) for name in files.names(directory)}
        for directory in directories
    }


@pytest.mark.parametrize("seed", range(20))
def test_files_hold_what_the_file_system_in_memory_holds(seed: int) -> None:
    """Logs recover from these files: a file system with ideas of its own would be a different broker."""
    chance, world = random.Random(seed), World(seed)
    mine: Files = VirtualFiles(world, FREE, {"/d": VirtualDrive(SLOW)})
    other: Files = MemoryFiles()
    for files in (mine, other):
        files.make_dir("/d/e")
    for _ in range(200):
        path, target = (f"/d/e/{chance.randrange(5)}" for _ in range(2))
        act, at, octets = (
            chance.choice(("create", "write", "rename", "remove")),
            chance.randrange(99),
            chance.randbytes(9),
        )
        assert outcome(mine, act, path, target, at, octets) == outcome(other, act, path, target, at, octets), seed
    assert names_and_content(mine, ["/d/e"]) == names_and_content(other, ["/d/e"]), seed


def outcome(files: Files, act: str, path: str, target: str, at: int, octets: bytes) -> str:
    """Do one thing; the kind of error if it fails."""
    try:
        match act:
            case "create":
                files.create(path)
            case "write":
                files.open(path).write([octets], at)
            case "rename" if path.rpartition("/")[2] in files.names("/d/e") and path != target:
                files.rename(path, target)
            case "remove":
                files.remove(path)
    except OSError as error:
        return str(error.errno)
    return ""


def test_messages_are_counted_where_they_begin() -> None:
    """CPU time is paid for messages, so what looks like one must be one."""
    publish = b"\x01\x00\x01\x00\x00\x00\x09\x00\x3c\x00\x28\x00\x00\x01q\x00\xce"
    assert messages(publish * 3) == 3 and messages(b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50\xce") == 0


def test_a_cluster_starts_at_the_same_virtual_time_for_the_same_seed() -> None:
    """Production nodes, threads and all, are a function of the seed."""

    def started(seed: int) -> tuple[int, list[dict[str, Any]]]:
        world = World(seed)
        network = a_network(world, latency_ns=MS)
        drive = VirtualDrive(SLOW)
        specs = [
            NodeSpec(
                machine=Machine(f"h{number}", 1), costs=FREE, drives=dict.fromkeys(("data", "segment", "wal"), drive)
            )
            for number in range(3)
        ]
        cluster = VirtualCluster(world, network, specs)
        try:
            start(world, cluster)
            return world.now_ns, [node.sample() for node in cluster.nodes]
        finally:
            cluster.end()

    assert started(5) == started(5)
