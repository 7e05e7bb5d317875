"""Files go to a host and come back over a link that is cut in the middle: nothing half is used, nothing comes twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.lab.lab import HERE, Lab
from infra.node_process import wait
from infra.remote import bundle as bundles
from infra.remote import ssh
from infra.remote.bundle import Bundle, Wheel
from perftest.cli.main import call
from tests.infra.conftest import lab, on_lab

__all__ = ["lab"]
pytestmark = [pytest.mark.lab, pytest.mark.processes, on_lab]

SIZE = 16_000_000
ENOUGH = 2_000_000
"""A transfer is cut once so much of it has arrived."""
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def hosts(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory of the lab. The hosts are reached at 3 MB/s, and get one big wheel."""
    wheel = tmp_path / "big-1-py3-none-any.whl"
    files = {"big/octets": random.Random(4).randbytes(SIZE), "big-1.dist-info/WHEEL": b""}
    bundles._write_wheel(wheel, "big-1.dist-info", {}, files)
    monkeypatch.setattr(bundles, "bundle_for", lambda kind: Bundle(kind, (Wheel(wheel),)))
    monkeypatch.setattr(ssh, "DEAD_S", 2.0)
    for host in ("host1", "host2"):
        lab.links.change([(HERE, host), (host, HERE)], {"mbit": 24.0})
    rows = {
        each.name: {
            "address": each.address, "port": each.port, "user": each.user, "key": str(each.key),
            "known_hosts": str(each.known_hosts), "python": each.python, "directory": each.directory,
        }
        for each in (lab[name].remote() for name in ("host1", "host2"))
    }  # fmt: skip
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(json.dumps({"hosts": rows}))
    return inventory


def cut(lab: Lab) -> None:
    """Nothing passes any more, and nobody says so."""
    lab.links.partition([HERE], ["host1"])


def reset(lab: Lab) -> None:
    """The host ends the connection: its sshd processes but the first are killed."""
    for pid in lab["host1"].processes():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name() == "sshd" and process.parent().name() == "sshd":
                process.kill()


BLOWS = pytest.mark.parametrize("blow", [cut, reset])


@contextlib.contextmanager
def beside(*words: str) -> Iterator[list[int]]:
    """A command in a thread; the list gets its exit code."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(call(["remote", *words])))
    thread.start()
    try:
        yield codes
    finally:
        thread.join(60)
    assert not thread.is_alive(), "a command that waits for a connection that is dead"


def size_of(found: Callable[[], Iterator[Path]]) -> int:
    return sum(each.stat().st_size for each in found())


def octets_over(lab: Lab, source: str, target: str) -> int:
    return next(each.octets for each in lab.links.show() if (each.source, each.target) == (source, target))


@BLOWS
def test_what_a_host_gets_goes_on_where_it_was_cut(
    lab: Lab, hosts: Path, capsys: Captured, blow: Callable[[Lab], None]
) -> None:
    home = Path(lab["host1"].remote().directory)

    def part() -> Iterator[Path]:
        return home.glob("incoming/*.part")

    with beside("up", str(hosts)) as codes:
        assert wait(lambda: size_of(part) > ENOUGH, 60)
        blow(lab)
    said = capsys.readouterr()
    assert codes == [1] and "host1" in said.err and "Traceback" not in said.err, said.err
    assert "host2  ready" in said.out and "1 of 2 hosts ready" in said.err
    assert not list(home.glob("sites/*")) and not list(home.glob("wheels/*")), "nothing half is used"
    there = size_of(part)
    assert ENOUGH < there < SIZE

    lab.links.heal()
    before = octets_over(lab, HERE, "host1")
    assert call(["remote", "up", str(hosts), "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    sent = {row["host"]: row["sent_octets"] for row in rows}
    assert SIZE - there < sent["host1"] < SIZE + 100_000 - there and sent["host2"] == 0
    assert octets_over(lab, HERE, "host1") - before < 1.1 * sent["host1"] + 200_000
    (octets,) = home.glob("sites/*/big/octets")
    assert octets.stat().st_size == SIZE and not list(part())
    leave_nothing(lab)


@BLOWS
def test_what_is_fetched_goes_on_where_it_was_cut(
    lab: Lab, hosts: Path, tmp_path: Path, capsys: Captured, blow: Callable[[Lab], None]
) -> None:
    octets = random.Random(5).randbytes(SIZE)
    for host in ("host1", "host2"):
        run = Path(lab[host].remote().directory) / "runs" / "one"
        run.mkdir(parents=True)
        (run / "latency.hlog").write_bytes(octets if host == "host1" else octets[:1000])
    out = tmp_path / "evidence"
    whole = out / "host1" / "runs" / "one" / "latency.hlog"
    part = whole.with_name("latency.hlog.part")
    with beside("collect", str(hosts), "--out", str(out)) as codes:
        assert wait(lambda: part.exists() and part.stat().st_size > ENOUGH, 60)
        blow(lab)
    said = capsys.readouterr()
    assert codes == [1] and "host1" in said.err and "Traceback" not in said.err, said.err
    assert "host2  1 files" in said.out and not whole.exists()
    here = part.stat().st_size
    assert ENOUGH < here < SIZE

    lab.links.heal()
    before = octets_over(lab, "host1", HERE)
    assert call(["remote", "collect", str(hosts), "--out", str(out), "--json"]) == 0
    fetched = {row["host"]: row["fetched_octets"] for row in json.loads(capsys.readouterr().out)}
    assert fetched == {"host1": SIZE - here, "host2": 0}
    assert octets_over(lab, "host1", HERE) - before < 1.1 * (SIZE - here) + 200_000, "nothing comes twice"
    assert hashlib.sha256(whole.read_bytes()).digest() == hashlib.sha256(octets).digest() and not part.exists()
    leave_nothing(lab)


def leave_nothing(lab: Lab) -> None:
    """On every host runs nothing but its sshd, and what waits for the next login."""
    for host in ("host1", "host2"):

        def names(host: str = host) -> set[str]:
            found = set()
            for pid in lab[host].processes():
                with contextlib.suppress(psutil.Error):
                    found.add(psutil.Process(pid).name())
            return found

        assert wait(lambda names=names: names() <= {"sshd"}, 30), names()  # type: ignore[misc]
