"""``perftest remote up``, ``down``, ``logs`` and ``collect``, as their user sees them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from infra.node_process import wait
from infra.remote import bundle as bundles
from infra.remote import processes
from infra.remote.bundle import Bundle, HostKind, Wheel
from infra.remote.host import command_line
from infra.remote.shipping import InstalledProject
from infra.remote.ssh import RemoteProcess, SshConnection, connect
from perftest.cli.main import call
from tests.infra.remote.conftest import Sshd

Captured = pytest.CaptureFixture[str]


class Recorder:
    """Keeps every command that a connection starts: the host, and the line of its shell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        original = SshConnection.start

        def start(connection: SshConnection, argv: Sequence[str]) -> RemoteProcess:
            words = ["…" if "\n" in word else word for word in argv]
            self.commands.append(f"{connection.host.name}  {command_line(words)}")
            return original(connection, argv)

        monkeypatch.setattr(SshConnection, "start", start)


def is_shown(command: str, shown: str) -> bool:
    """Whether a dry run has shown a command, up to what it could not know."""

    def plain(text: str) -> str:
        text = re.sub(r"[0-9a-f]{24,64}(\.tar)?", lambda found: "DIGEST" + (found[1] or ""), text)
        text = re.sub(r"perftest-[0-9a-f]{8}\b", "CLUSTER", text).replace("sites/DIGEST", "sites/SITE")
        text = re.sub(r" DIGEST DIGEST\.tar DIGEST-.*", " DIGEST DIGEST.tar WHEEL...", text)
        return re.sub(r"\S*/FILE", "FILE", text)

    return any(line == plain(command) or line.startswith(plain(command) + "   ") for line in plain(shown).splitlines())


@pytest.fixture
def hosts(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory of two hosts, and a third that does not answer. What is sent to them is small."""
    place = tmp_path / "wheels"
    place.mkdir()
    wheel = place / "pamqp-1-py3-none-any.whl"
    bundles._write_wheel(wheel, "pamqp-1.dist-info", {}, {"pamqp/__init__.py": b"", "pamqp-1.dist-info/WHEEL": b""})
    monkeypatch.setattr(bundles, "bundle_for", lambda kind: Bundle(kind, (Wheel(wheel),)))
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(
        f"defaults: {{address: 127.0.0.1, port: {sshd.port}, key: {sshd.host.key}, "
        f"known_hosts: {sshd.host.known_hosts}, python: {sys.executable}, user: {sshd.host.user}, "
        f'directory: "{tmp_path}/at-{{name}}"}}\n'
        "hosts: {load1: {}, load2: {}, gone: {port: 1}}\n"
    )
    return inventory


@pytest.mark.remote
def test_up_tells_each_host_and_sends_nothing_twice(hosts: Path, capsys: Captured) -> None:
    """A host that is gone is told, and the others are ready all the same."""
    assert call(["remote", "up", str(hosts)]) == 1
    said = capsys.readouterr()
    assert said.out.count("ready, Python 3.") == 2 and "MB sent" in said.out
    assert "host gone" in said.err and "2 of 3 hosts ready" in said.err and "Traceback" not in said.err
    assert call(["remote", "up", str(hosts), "--host", "load1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["host"], row["sent_octets"]) == ("load1", 0) and row["directory"].endswith("at-load1")


@pytest.mark.remote
@pytest.mark.parametrize("words", [("up",), ("check",), ("logs",), ("collect",), ("down",)])
def test_a_dry_run_shows_every_command_and_connects_to_nobody(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, words: tuple[str, ...]
) -> None:
    """Whoever owns the hosts reads what will be run there: whatever runs then was shown."""
    run = tmp_path / "at-load1" / "runs" / "one"
    run.mkdir(parents=True)
    (run / "FILE").write_text("figures")
    recorder = Recorder(monkeypatch)
    out = ("--out", str(tmp_path / "evidence")) if words == ("collect",) else ()
    assert call(["remote", *words, str(hosts), *out, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert not recorder.commands and shown.startswith("load1  ")
    assert call(["remote", *words, str(hosts), *out]) == 1, "the third host is gone"
    assert len(recorder.commands) >= 2
    assert [line for line in recorder.commands if not is_shown(line, shown)] == []


@pytest.mark.remote
def test_down_and_logs_reach_what_was_left(hosts: Path, sshd: Sshd, tmp_path: Path, capsys: Captured) -> None:
    """After a coordinator that died, one command shows what the processes said, and one ends them."""
    directory = tmp_path / "at-load2"
    (directory / "sites" / "one").mkdir(parents=True)
    (directory / "sites" / "one" / "sleeper.py").write_text(
        "import signal\nprint('first\\nlast \\x1b[31mred', flush=True)\nsignal.pause()\n"
    )
    with connect(replace(sshd.host, directory=str(directory), python=sys.executable)) as connection:
        installed = InstalledProject(sys.executable, PurePosixPath(directory), "one")
        started = processes.start(connection, installed, "node1", "sleeper")
        try:
            log = directory / "logs" / "node1.log"
            assert wait(lambda: log.exists() and b"red" in log.read_bytes(), 30.0)
            assert call(["remote", "logs", str(hosts), "--host", "load2", "--lines", "1"]) == 0
            assert capsys.readouterr().out == "load2 node1.log  last �[31mred\n"
            assert call(["remote", "collect", str(hosts), "--host", "load2", "--out", str(tmp_path / "here")]) == 0
            assert (tmp_path / "here" / "load2" / "logs" / "node1.log").exists()
            capsys.readouterr()
            assert call(["remote", "down", str(hosts)]) == 1, "one host is gone"
            said = capsys.readouterr()
            assert f"load2  ended pid {started.pid}\n" in said.out and "load1  nothing ran\n" in said.out
            assert "host gone" in said.err
        finally:
            processes.end(connection, 0.1)


def test_one_bundle_is_made_for_each_kind_of_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty hosts of one kind ask at the same moment, and the wheels are packed once."""
    asked: list[HostKind] = []

    def bundle_for(kind: HostKind) -> Bundle:
        asked.append(kind)
        return Bundle(kind, ())

    monkeypatch.setattr(bundles, "bundle_for", bundle_for)
    made = bundles.Bundles()
    kinds = [HostKind("3.11", "x86_64", "glibc"), HostKind("3.12", "x86_64", "glibc")]
    assert [made.of(kind).kind for kind in kinds * 2] == kinds * 2 and asked == kinds
