"""Labs: hosts that are reached over real SSH, fail as hosts do, and leave nothing on the machine, whatever happens."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra import cleaning
from infra.cleaning import CleanupOutcome
from infra.lab.lab import Lab, clocks_impossible
from infra.lab.lab import lab as new_lab
from infra.lab.lab_host import PORT, LabHost
from infra.lab.namespaces import LabError
from infra.links.settings import LinkError, LinkSettings
from infra.node_process import wait
from infra.remote.ssh import connect
from tests.infra.conftest import on_lab

pytestmark = [pytest.mark.lab, pytest.mark.processes]


def said(host: LabHost, code: str) -> str:
    """What Python on a host prints."""
    with connect(host.remote()) as connection:
        return connection.run([host.python, "-c", code]).stdout.decode().strip()


def reaches(source: LabHost, target: LabHost) -> bool:
    """Whether a host gets a connection to the sshd of another one within a second."""
    code = f"import socket\ntry: socket.create_connection(({target.address!r}, {PORT}), 1); print('yes')\n"
    return said(source, code + "except OSError: print('no')") == "yes"


def is_there(place: str) -> list[str]:
    """What of the lab in this directory is on the machine: its directory, and processes that name it."""
    left = [place] if Path(place).exists() else []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(place in word for word in process.info["cmdline"] or []):
            left.append(str(process))
    return left


def found(host: LabHost, what: str) -> list[str]:
    """A property of each process of a host. A session of sshd may end meanwhile."""
    values = []
    for pid in host.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            values.append(str(getattr(psutil.Process(pid), what)()))
    return values


def namespaces_now() -> set[str]:
    return {each.name for each in Path("/run/netns").glob("pt*-*")}


def test_hosts_have_names_and_addresses_and_reach_each_other(lab: Lab) -> None:
    assert [said(host, "import socket; print(socket.gethostname())") for host in lab.hosts] == [
        "host1", "host2", "host3",
    ]  # fmt: skip
    assert reaches(lab["host1"], lab["host3"])
    assert lab.directory.stat().st_mode & 0o777 == 0o700
    command = ["ssh", "-F", str(lab.directory / "ssh_config"), "host2", "hostname"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout == "host2\n"


def test_a_link_is_cut_one_way_and_healed(lab: Lab) -> None:
    one, two, three = lab.hosts
    lab.links.set("host2", "host1", cut=True)  # the answers do not come back
    assert not reaches(one, two) and reaches(one, three) and reaches(three, two)
    lab.links.heal()
    assert reaches(one, two)
    lab.links.partition(["host1"], ["host2", "host3"])
    assert not reaches(one, two) and not reaches(three, one) and reaches(three, two)
    lost = {(each.source, each.target): each.lost for each in lab.links.show()}
    assert lost["host2", "host1"] > 0 and lost["host3", "host2"] == 0


def test_links_delay_what_passes(lab: Lab) -> None:
    lab.links.change([("local", "host1"), ("host1", "local")], {"delay_ms": 40})
    began = time.monotonic()
    socket.create_connection((lab["host1"].address, PORT), 10).close()
    assert time.monotonic() - began >= 0.08, "there and back"
    with pytest.raises(LinkError, match="host9"):
        lab.links.set("host1", "host9", cut=True)
    with pytest.raises(LinkError, match="loss"):
        lab.links.change([("host1", "host2"), ("host2", "host1")], {"loss": 3})
    assert all(not each.settings.loss for each in lab.links.show()), "all of a request or nothing"


def test_a_killed_host_ends_with_all_its_processes_and_starts_again(lab: Lab) -> None:
    host = lab["host2"]
    sleeper = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=-3, stderr=-3)"
    said(host, sleeper)
    assert "sleep" in found(host, "name"), "detached, and still of the host"
    pids = host.processes()
    host.kill()
    assert not any(psutil.pid_exists(pid) for pid in pids) and not host.is_running
    assert reaches(lab["host1"], lab["host3"])
    lab.start(host)
    assert reaches(lab["host1"], host)


def test_a_paused_host_is_silent_until_it_is_resumed(lab: Lab) -> None:
    host = lab["host3"]
    host.pause()
    states = set(found(host, "status"))
    assert psutil.STATUS_STOPPED in states
    assert states <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}, "a stopped process reaps no ended session"
    with socket.create_connection((host.address, PORT), 10) as to:  # its kernel still answers
        to.settimeout(0.2)
        with pytest.raises(TimeoutError):
            to.recv(4)
        host.resume()
        to.settimeout(30)
        assert to.recv(4) == b"SSH-"
    host.pause()
    host.kill()  # paused hosts can be killed
    assert not host.is_running


@on_lab
def test_clocks_of_hosts_are_off_as_asked(tmp_path: Path) -> None:
    if reason := clocks_impossible():
        pytest.skip(f"no time namespaces here: {reason}")
    with new_lab(tmp_path, hosts=2, clock_offsets_s={"host1": 1000}) as made:
        before = time.monotonic()
        ahead, same = (float(said(host, "import time; print(time.monotonic())")) for host in made.hosts)
        after = time.monotonic()
    assert before + 1000 <= ahead <= after + 1000 and before <= same <= after


@on_lab
def test_nothing_is_left_of_a_lab_that_ended_or_failed(tmp_path: Path) -> None:
    before = namespaces_now()
    with pytest.raises(RuntimeError), new_lab(tmp_path, hosts=2) as made:
        place = str(made.directory)
        made.hosts[0].pause()
        raise RuntimeError("a test that fails")
    assert not is_there(place) and not list(tmp_path.iterdir()) and namespaces_now() <= before


CRASHED = """
import os, signal, sys
from pathlib import Path
from infra.lab.lab import lab
with lab(Path(sys.argv[1]), hosts=2) as made:
    print(made.directory, *(host.namespace for host in made.hosts), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@on_lab
def test_a_lab_whose_maker_was_killed_is_cleaned_up(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHED, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    place, *names = done.stdout.split()
    assert is_there(place) and set(names) <= namespaces_now(), "the lab outlives its maker"
    lines = cleaning.clean(tmp_path)
    assert {line.outcome for line in lines} == {CleanupOutcome.UNDONE}, lines
    assert wait(lambda: not is_there(place), 10), is_there(place)
    assert not namespaces_now() & set(names) and not list(tmp_path.iterdir())
    device = f"{names[0].partition('-')[0]}n0"
    assert device not in psutil.net_if_addrs()


@on_lab
@pytest.mark.parametrize(("hosts", "offsets"), [(0, {}), (1000, {}), (2, {"host3": 1}), (2, {"host1": 10**9})])
def test_labs_that_there_cannot_be_are_refused(tmp_path: Path, hosts: int, offsets: dict[str, int]) -> None:
    with pytest.raises(LabError), new_lab(tmp_path, hosts=hosts, clock_offsets_s=offsets):
        raise AssertionError("no lab may be made")
    assert not list(tmp_path.iterdir())


@on_lab
def test_defaults_hold_for_every_link_and_after_healing(tmp_path: Path) -> None:
    with new_lab(tmp_path, hosts=2, defaults=LinkSettings(delay_ms=2, mbit=100)) as made:
        made.links.set("host1", "host2", loss=0.5)
        made.links.heal()
        assert {each.settings for each in made.links.show()} == {LinkSettings(delay_ms=2, mbit=100)}
        assert len(made.links.show()) == 6
