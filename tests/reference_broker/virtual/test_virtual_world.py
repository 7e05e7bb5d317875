"""Virtual time: cores, links, threads and drives take as long as they are said to take, in the order of time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from reference_broker.storage.drives.profiles import DriveProfile
from reference_broker.storage.files import Files
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.storage.modelled_drive import RESERVE
from reference_broker.virtual.cluster import NodeSpec, ProcessState, VirtualCluster, start
from reference_broker.virtual.costs import Costs, messages
from reference_broker.virtual.files import VirtualDrive, VirtualFiles
from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.network import SEGMENT_OCTETS, WINDOW_OCTETS, OneWayLink, VirtualNetwork
from reference_broker.virtual.threads import VirtualPolicy
from reference_broker.virtual.world import Machine, Process, VirtualWorld

FREE = Costs(**{each.name: 0 for each in fields(Costs)})
MS = 1_000_000
SLOW = DriveProfile(name="slow", latency_ns=10 * MS, octets_per_second=10**12)


def a_network(world: VirtualWorld, *, latency_ns: int = 0, octets_per_second: int = 10**15) -> VirtualNetwork:
    link = OneWayLink(latency_ns=latency_ns, octets_per_second=octets_per_second)
    return VirtualNetwork(world, link, link)


def a_loop(world: VirtualWorld, network: VirtualNetwork, name: str, machine: Machine | None = None) -> VirtualLoop:
    return VirtualLoop(world, Process(machine or Machine(name, 1), FREE), network)  # type: ignore[abstract]


class Drawn(Random):
    """Chance that is written down: milliseconds between hiccups and of hiccups, in turn; then never again."""

    def __init__(self, *milliseconds: int) -> None:
        super().__init__(0)
        self._left = list(milliseconds)

    def expovariate(self, lambd: float = 1.0) -> float:
        """The next one."""
        return float(self._left.pop(0) * MS if self._left else 10**15)


@pytest.mark.parametrize(
    ("work", "ends_ms"),
    [
        ([(0, 5)], [5]),  # before the hiccup, which begins at 10 and lasts 4
        ([(8, 5)], [17]),  # begins before it: all of the hiccup comes on top
        ([(12, 5)], [19]),  # begins within: what is left of it
        ([(15, 5)], [20]),  # nobody was at work, so nobody was held up
        ([(8, 2), (14, 1), (20, 5)], [14, 15, 25]),
    ],
)
def test_hiccups_come_by_time_and_not_by_turns(work: list[tuple[int, int]], ends_ms: list[int]) -> None:
    """A busy process has not more of them than an idle one; its load decides how many messages notice."""
    process, chance = Process(Machine("a", 1), replace(FREE, hiccup_ns=MS)), Drawn(10, 4)
    ends = [process.stretched(begin * MS, cost * MS, chance) for begin, cost in work]
    assert [end // MS for end in ends] == ends_ms


@pytest.mark.parametrize(("cores", "ends_ms"), [(1, [3, 6, 9]), (2, [3, 3, 6]), (3, [3, 3, 3])])
def test_processes_compete_for_the_cores_of_their_machine(cores: int, ends_ms: list[int]) -> None:
    """Saturation is the point of a simulation: three processes of 3 ms each need as long as the cores allow."""
    world = VirtualWorld(1)
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
    world = VirtualWorld(1)
    loop, seen = a_loop(world, a_network(world), "a"), []
    loop.call_soon(loop.spend, 7 * MS)
    loop.call_later(0.002, lambda: seen.append(world.clock()))
    while not seen:
        world.step()
    assert seen == [7 * MS]


class Reader(asyncio.Protocol):
    """Keeps what comes, with the time."""

    def __init__(self, world: VirtualWorld) -> None:
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
    """Notes whether it was told to pause. It is never told so twice, nor told to go on without a pause."""

    def __init__(self) -> None:
        self.paused = 0
        self.resumed = 0

    def pause_writing(self) -> None:
        assert self.paused == self.resumed
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1
        assert self.paused == self.resumed


def connected(world: VirtualWorld, network: VirtualNetwork) -> tuple[VirtualLoop, Any, Writer, Reader]:
    """A connection from one machine to another."""
    here, there, reader, writer = a_loop(world, network, "a"), a_loop(world, network, "b"), Reader(world), Writer()
    network.listen(there, 1, lambda: reader)
    transport, _ = here.run_until_done(here.create_connection(lambda: writer, "b", 1))
    return here, transport, writer, reader


def test_octets_take_the_latency_and_the_bandwidth_of_the_link() -> None:
    """A megabyte over 100 MB/s with 5 ms on the way arrives after 15 ms."""
    world = VirtualWorld(1)
    here, transport, _, reader = connected(world, a_network(world, latency_ns=5 * MS, octets_per_second=10**8))
    began_ns = world.now
    here.call_soon(transport.write, bytes(10**6))
    while len(reader.data) < 10**6:
        world.step()
    assert reader.last_ns - began_ns == 15 * MS


def test_a_large_write_is_read_in_segments_while_the_rest_is_under_way() -> None:
    """A node that gets two hundred messages at once writes them in one batch, and on a real machine in several."""
    world = VirtualWorld(1)
    here, transport, _, reader = connected(world, a_network(world, latency_ns=5 * MS, octets_per_second=65_536_000))
    began_ns = world.now
    here.call_soon(transport.write, bytes(3 * SEGMENT_OCTETS))
    while not reader.data:
        world.step()
    assert (len(reader.data), reader.last_ns - began_ns) == (SEGMENT_OCTETS, 6 * MS)
    while len(reader.data) < 3 * SEGMENT_OCTETS:
        world.step()
    assert reader.last_ns - began_ns == 8 * MS


def test_a_reader_that_pauses_stops_the_writer_and_loses_nothing() -> None:
    """Back-pressure must reach the publisher, or a slow broker would look like an endless buffer."""
    world = VirtualWorld(1)
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


def test_a_writer_that_writes_before_it_hears_of_the_room_is_not_paused_twice() -> None:
    """A protocol that is told to go on while its transport counts it as paused would write without an end."""
    world = VirtualWorld(1)
    here, transport, writer, reader = connected(world, a_network(world, latency_ns=MS))
    here.call_soon(transport.write, bytes(WINDOW_OCTETS + 200_000))
    while reader.transport is None:
        world.step()
    reader.transport.pause_reading()
    while not writer.paused:
        world.step()
    here.call_soon(reader.transport.resume_reading)
    here.call_soon(here.spend, 10 * MS)  # so the news of the room waits behind the next write
    here.call_later(0.0005, transport.write, bytes(2 * WINDOW_OCTETS))
    assert ran_out(world)
    assert len(reader.data) == 3 * WINDOW_OCTETS + 200_000 and writer.resumed > 0


def ran_out(world: VirtualWorld) -> bool:
    """Let everything happen that will."""
    with pytest.raises(IndexError):
        while True:
            world.step()
    return True


def test_a_paused_process_does_later_what_came_due_and_an_ended_one_never() -> None:
    """SIGSTOP keeps everything, SIGKILL keeps nothing; others go on meanwhile."""
    world = VirtualWorld(1)
    network, seen = a_network(world), []
    loops = {name: a_loop(world, network, name) for name in ("paused", "ended", "other")}
    for name, loop in loops.items():
        for ms in (1, 2):
            loop.call_later(ms / 1000, lambda name=name, ms=ms: seen.append((name, ms, world.clock() // MS)))
    world.hold(loops["paused"])
    world.end(loops["ended"])
    world.at(5 * MS, world.release, loops["paused"])
    assert ran_out(world)
    assert seen == [("other", 1, 1), ("other", 2, 2), ("paused", 1, 5), ("paused", 2, 5)]


class Lost(Reader):
    """Keeps the reason of the end, too."""

    reason: Any = "still there"

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = exc


def test_a_process_that_ends_resets_its_connections_after_what_it_sent() -> None:
    """A confirm that left before the kill counts; and a client must hear of the end, or it would wait for ever."""
    world = VirtualWorld(1)
    network = a_network(world, latency_ns=5 * MS)
    node, client, lost = a_loop(world, network, "a"), a_loop(world, network, "b"), Lost(world)
    accepted = Reader(world)
    network.listen(node, 1, lambda: accepted)
    dialled, _ = client.run_until_done(client.create_connection(lambda: lost, "a", 1))
    while accepted.transport is None:
        world.step()
    node.call_soon(accepted.transport.write, b"confirmed")
    client.call_soon(dialled.write, bytes(WINDOW_OCTETS + 1))  # some of it waits for a reader that will never read
    while world.now < 11 * MS:
        world.step()
    world.end(node)
    network.end(node)
    assert ran_out(world)
    assert lost.data == b"confirmed" and isinstance(lost.reason, ConnectionResetError)
    assert dialled.is_closing() and accepted.data == b""
    with pytest.raises(ConnectionRefusedError):
        client.run_until_done(client.create_connection(lambda: lost, "a", 1))


def test_a_connection_that_was_about_to_be_accepted_is_reset() -> None:
    """A client that dials in the moment of a kill hears of it: the kernel had taken the connection for the process."""
    world = VirtualWorld(1)
    network = a_network(world, latency_ns=5 * MS)
    node, client = a_loop(world, network, "a"), a_loop(world, network, "b")
    network.listen(node, 1, lambda: Reader(world))

    def kill() -> None:
        world.end(node)
        network.end(node)

    world.at(6 * MS, kill)
    lost = Lost(world)
    client.run_until_done(client.create_connection(lambda: lost, "a", 1))
    assert ran_out(world)
    assert isinstance(lost.reason, ConnectionResetError)


def test_what_a_killed_process_wrote_is_there_for_the_next_one() -> None:
    """The page cache outlives a process, synced or not; and the dead write nothing any more."""
    world = VirtualWorld(1)
    drive = VirtualDrive(SLOW)
    files = VirtualFiles(world, FREE, {"/d": drive})
    files.make_dir("/d")
    file = files.create("/d/log")
    file.write([b"not synced"], 0)
    later = files.next_process()
    for late in (lambda: file.write([b"too late"], 0), file.datasync, lambda: files.remove("/d/log")):
        with pytest.raises(OSError, match=r"Bad file|Input/output"):
            late()
    assert later.names("/d") == ["log"] and later.open("/d/log").read(0, 99) == b"not synced"


def test_a_drive_is_full_fails_and_is_restored() -> None:
    """What is told of a full drive must hold for a simulated one: files that grow fail, others do not."""
    drive = VirtualDrive(SLOW)
    files = VirtualFiles(VirtualWorld(1), FREE, {"/d": drive})
    files.make_dir("/d")
    file = files.create("/d/log")
    file.write([bytes(8192)], 0)
    drive.fill()
    assert drive.is_full
    file.write([b"again"], 0)
    with pytest.raises(OSError, match="No space left"):
        file.write([b"x"], RESERVE + 8192)
    file.write([b"x"], RESERVE + 8191)
    with pytest.raises(OSError, match="No space left"):
        file.write([b"x"], RESERVE + 8192)
    drive.fail()
    for fails in (lambda: file.read(0, 1), lambda: file.write([b"x"], 0), lambda: files.create("/d/new")):
        with pytest.raises(OSError, match="Input/output"):
            fails()
    drive.restore()
    file.write([b"x"], RESERVE + 8192)
    assert not drive.is_full and file.read(RESERVE + 8192, 1) == b"x"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_event_loop_writes_by_itself_while_the_pool_has_a_thread_free(threads: int) -> None:
    """As with the pool of production: small batches are written by the loop, unless that would get past the line."""
    world = VirtualWorld(1)
    loop = a_loop(world, a_network(world), "a")
    drives = {f"/{name}": VirtualDrive(SLOW) for name in ("slow", "small")}
    files = VirtualFiles(world, FREE, drives)
    policy, done = VirtualPolicy(world, loop.process, threads), []

    def sync(operations: list[Any]) -> None:
        for file, name in operations:
            file.datasync()
            done.append((name, world.actor is loop))

    executors = {"slow": policy("slow", sync), "small": policy("small", sync, lambda: None)}
    opened = {}
    for name in executors:
        files.make_dir(f"/{name}")
        opened[name] = files.create(f"/{name}/file")
        opened[name].write([b"x"], 0)

    def small(*, here: bool = True) -> None:
        executors["small"].submit((opened["small"], "small"))
        executors["small"].go(here=here)

    loop.call_soon(small)
    loop.call_later(1, executors["slow"].submit, (opened["slow"], "slow"))
    loop.call_later(1.001, small)  # the other store has its thread by now
    assert ran_out(world)
    policy.end()
    assert sorted(done) == sorted([("small", True), ("slow", False), ("small", threads == 2)])


@pytest.mark.parametrize(
    ("pool", "expected"), [(0, {"a": 10, "b": 10}), (1, {"a": 10, "b": 20}), (2, {"a": 10, "b": 10})]
)
def test_a_pool_of_one_thread_serves_stores_one_after_the_other(pool: int, expected: dict[str, int]) -> None:
    """The pool is what makes one slow store hold up all others; two stores on two drives show it."""
    world = VirtualWorld(1)
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
    chance, world = random.Random(seed), VirtualWorld(seed)
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
        world = VirtualWorld(seed)
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
            return world.now, [node.sample() for node in cluster.nodes]
        finally:
            cluster.end()

    assert started(5) == started(5)


def test_a_killed_node_starts_again_over_its_files_and_pays_for_it() -> None:
    """A restart that costs nothing would make every recovery look better than it is."""
    world = VirtualWorld(3)
    network = a_network(world, latency_ns=MS)
    specs = [
        NodeSpec(
            machine=Machine(f"h{number}", 1),
            costs=FREE,
            drives=dict.fromkeys(("data", "segment", "wal"), VirtualDrive(SLOW)),
        )
        for number in range(3)
    ]
    cluster = VirtualCluster(world, network, specs)
    try:
        start(world, cluster)
        node = cluster.nodes[1]
        node.kill()
        assert (node.state, node.is_listening) == (ProcessState.DOWN, False)
        began_ns, boot_id = world.now, node.boot_id
        world.at(world.now + 100 * MS, node.start)
        start(world, cluster)
        assert node.boot_id == boot_id + 1 and node.cpu_ns >= 500 * MS
        assert world.now - began_ns > 600 * MS, "a process needs its time until it serves"
    finally:
        cluster.end()
