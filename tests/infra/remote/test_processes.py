"""Processes on a host outlive their connection, are found again, and are ended: those of one directory only."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import psutil
import pytest

from infra.node_process import wait
from infra.remote import collection, processes, transfer
from infra.remote.host import RemoteError
from infra.remote.shipping import InstalledProject
from infra.remote.ssh import SshConnection, connect
from tests.infra.remote.conftest import Sshd

SLEEPER = """
import signal, sys
if sys.argv[1:] == ["stubborn"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(1000):
    print("line", number, flush=True)
signal.pause()
"""


@pytest.fixture
def connection(sshd: Sshd, tmp_path: Path) -> Iterator[SshConnection]:
    with connect(replace(sshd.host, directory=str(tmp_path / "host"), python=sys.executable)) as connection:
        yield connection
    with connect(connection.host) as another:
        processes.end(another, 0.1)


@pytest.fixture
def installed(connection: SshConnection) -> InstalledProject:
    """A project of one module."""
    directory = Path(connection.host.directory)
    (directory / "sites" / "one").mkdir(parents=True)
    (directory / "sites" / "one" / "sleeper.py").write_text(SLEEPER)
    return InstalledProject(sys.executable, PurePosixPath(directory), "one")


def wait_for_lines(installed: InstalledProject, name: str) -> None:
    log = Path(installed.directory) / "logs" / f"{name}.log"
    assert wait(lambda: log.exists() and b"line 999\n" in log.read_bytes(), 30.0)


@pytest.mark.remote
def test_a_started_process_outlives_its_connection_and_is_found_again(
    sshd: Sshd, connection: SshConnection, installed: InstalledProject
) -> None:
    """A coordinator that died leaves nothing that nobody can find."""
    started = processes.start(connection, installed, "node1", "sleeper")
    wait_for_lines(installed, "node1")
    connection.close()
    with connect(connection.host) as another:
        (found,) = processes.running(another)
        assert (found.pid, found.start_time, found.name) == (started.pid, started.start_time, "node1")
        assert found.command[-2:] == ("-m", "sleeper")
        assert processes.logs(another, 100)["node1.log"][-2:] == ["line 998", "line 999"]
        assert [each.pid for each in processes.end(another)] == [started.pid]
        assert not psutil.pid_exists(started.pid) or psutil.Process(started.pid).status() == psutil.STATUS_ZOMBIE
        assert processes.running(another) == [] and processes.end(another) == []


@pytest.mark.remote
def test_stubborn_and_paused_processes_end_too(connection: SshConnection, installed: InstalledProject) -> None:
    """Nothing of ours is left on a host, whatever state it is in."""
    stubborn = processes.start(connection, installed, "stubborn", "sleeper", "stubborn")
    paused = processes.start(connection, installed, "paused", "sleeper")
    for name in ("stubborn", "paused"):
        wait_for_lines(installed, name)
    os.kill(paused.pid, signal.SIGSTOP)
    assert {each.pid for each in processes.end(connection, 0.2)} == {stubborn.pid, paused.pid}
    assert processes.running(connection) == []


@pytest.mark.remote
def test_processes_of_other_directories_go_on(
    sshd: Sshd, connection: SshConnection, installed: InstalledProject
) -> None:
    """Two inventories on one host: each ends its own, also where one directory's name begins with the other's."""
    mine = processes.start(connection, installed, "mine", "sleeper")
    wait_for_lines(installed, "mine")
    with connect(replace(connection.host, directory=connection.host.directory[:-1])) as other:
        assert processes.end(other) == []
    with connect(replace(connection.host, directory=connection.host.directory + "2")) as other:
        assert processes.end(other) == []
    assert [each.pid for each in processes.running(connection)] == [mine.pid]


@pytest.mark.remote
def test_a_process_that_lives_with_its_connection_is_ended_as_well(
    connection: SshConnection, installed: InstalledProject
) -> None:
    """A worker whose connection hangs is a process of ours, too."""
    worker = connection.start(installed.command("sleeper"))
    assert worker.read()
    assert [each.name for each in processes.end(connection)] == [""]
    worker.close()


@pytest.mark.remote
def test_names_that_would_leave_the_directory_are_refused(
    connection: SshConnection, installed: InstalledProject
) -> None:
    for name in ("../x", "", "a/b", "-x", "a b"):
        with pytest.raises(ValueError, match="is no name"):
            processes.start(connection, installed, name, "sleeper")


@pytest.mark.remote
def test_what_lies_on_a_host_is_fetched_once(connection: SshConnection, tmp_path: Path) -> None:
    """A file that is here already is not fetched again, one that was cut goes on, and one that changed comes again."""
    directory = Path(connection.host.directory)
    (directory / "runs" / "one" / "deep").mkdir(parents=True)
    (directory / "logs").mkdir()
    big = os.urandom(100_000)
    (directory / "runs" / "one" / "deep" / "latency.hlog").write_bytes(big)
    (directory / "logs" / "node1.log").write_text("said\n")
    (directory / "secret").write_text("not ours to fetch")
    (directory / "runs" / "link").symlink_to("/etc/passwd")
    target = tmp_path / "here"
    (target / "runs" / "one" / "deep").mkdir(parents=True)
    (target / "runs" / "one" / "deep" / "latency.hlog.part").write_bytes(big[:60_000])
    found = collection.collect(connection, target)
    assert (found.files, found.octets) == (2, 40_000 + 5)
    assert (target / "runs" / "one" / "deep" / "latency.hlog").read_bytes() == big
    assert collection.collect(connection, target).octets == 0
    (directory / "logs" / "node1.log").write_text("more\n")
    assert collection.collect(connection, target).octets == 5
    assert (target / "logs" / "node1.log").read_text() == "more\n"


@pytest.mark.remote
def test_a_host_that_has_nothing_gives_nothing(connection: SshConnection, tmp_path: Path) -> None:
    assert collection.collect(connection, tmp_path / "here").files == 0
    assert processes.logs(connection, 100) == {} and not Path(connection.host.directory).exists()


@pytest.mark.remote
def test_a_host_that_names_files_elsewhere_is_refused(
    connection: SshConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that somebody else owns must not write where it likes on this machine."""
    Path(connection.host.directory, "runs").mkdir(parents=True)
    monkeypatch.setattr(transfer, "files_below", lambda *_: [PurePosixPath("../../evil")])
    with pytest.raises(RemoteError, match="outside its folder"):
        collection.collect(connection, tmp_path / "here")
