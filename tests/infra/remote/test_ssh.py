"""Connections over SSH against a real sshd: commands, processes, keys that are not right, files that are cut."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from infra.ports import free_ports
from infra.remote import ssh, transfer
from infra.remote.host import RemoteError, RemoteHost, command_line
from infra.remote.ssh import SshConnection, connect
from tests.infra.remote.conftest import Sshd


@pytest.fixture
def connection(sshd: Sshd) -> Iterator[SshConnection]:
    with connect(sshd.host) as connection:
        yield connection


HOSTILE = [
    *(
        "a b",
        "",
        "'",
        '"',
        "$(touch /tmp/hostile)",
        "`id`",
        ";id",
        "a\nb",
        "--",
        "-rf",
        "*",
        "~",
        "\\",
        "ü",
        "&",
        "|",
        "#x",
    ),
]


@pytest.mark.remote
def test_every_word_reaches_the_program_as_it_is(connection: SshConnection) -> None:
    program = "import sys; sys.stdout.buffer.write(b'\\0'.join(map(__import__('os').fsencode, sys.argv[1:])))"
    found = connection.run(["python3", "-c", program, *HOSTILE])
    assert found.stdout.split(b"\0") == [os.fsencode(word) for word in HOSTILE]
    with pytest.raises(ValueError, match="NUL"):
        command_line(["a\0b"])


@pytest.mark.remote
def test_a_command_gets_its_stdin_and_all_output_comes_back(connection: SshConnection) -> None:
    program = (
        "import sys; data = sys.stdin.buffer.read(); sys.stderr.buffer.write(data[::-1]); "
        "sys.stdout.buffer.write(data); sys.exit(7)"
    )
    data = os.urandom(3_000_000)
    found = connection.run(["python3", "-c", program], stdin=data, check=False)
    assert (found.status, found.stdout == data, found.stderr == data[::-1]) == (7, True, True)
    with pytest.raises(RemoteError, match="ended with status 3: no such thing"):
        connection.run(["sh", "-c", "echo no such thing >&2; exit 3"])


@pytest.mark.remote
def test_a_command_that_takes_too_long_is_given_up(connection: SshConnection) -> None:
    with pytest.raises(RemoteError, match=r"did not end within 0\.2 s"):
        connection.run(["sleep", "60"], timeout_s=0.2)
    assert connection.run(["echo", "still here"]).stdout == b"still here\n"


@pytest.mark.remote
def test_a_process_is_spoken_to(connection: SshConnection) -> None:
    process = connection.start(["cat"])
    process.write(b"one\n")
    assert process.read() == b"one\n"
    assert process.status(0) is None
    process.end_input()
    assert process.read() == b"" and process.status(30) == 0
    process.write(b"nobody hears this")
    process.close()


@pytest.mark.remote
def test_a_lost_connection_ends_what_waits_for_it(sshd: Sshd) -> None:
    with connect(sshd.host) as connection:
        server = int(connection.run(["sh", "-c", "echo $PPID"]).stdout)
        process = connection.start(["cat"])
        heard: list[bytes] = []
        reader = threading.Thread(target=lambda: heard.append(process.read()))
        reader.start()
        os.kill(server, signal.SIGKILL)  # the session of this connection
        reader.join(30)
        assert heard == [b""] and process.status(30) == -1
        assert not connection.is_open
        with pytest.raises(RemoteError) as raised:
            connection.run(["true"])
        assert raised.value.where == "host lab1"


def problem(host: RemoteHost) -> RemoteError:
    with pytest.raises(RemoteError) as raised:
        connect(host).close()
    assert raised.value.where == f"host {host.name}"
    return raised.value


@pytest.mark.remote
def test_hosts_that_cannot_be_reached(sshd: Sshd) -> None:
    (unused,) = free_ports(1)
    refused = problem(replace(sshd.host, port=unused))
    assert "refused" in refused.what and "sshd runs there" in refused.fix
    nowhere = problem(replace(sshd.host, address="nowhere.invalid"))
    assert "the address is not known" in nowhere.what or "not known" in nowhere.what


@pytest.mark.remote
def test_logins_that_are_refused(sshd: Sshd) -> None:
    other = problem(replace(sshd.host, key=sshd.directory / "keys" / "other"))
    assert "refuses the login" in other.what
    assert "refuses the login" in problem(replace(sshd.host, user="nobody-of-this-name")).what
    missing = problem(replace(sshd.host, key=sshd.directory / "keys" / "none"))
    assert "no such file" in missing.what


@pytest.mark.remote
def test_a_host_key_that_is_not_known_is_refused_with_its_fingerprint(sshd: Sshd, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(sshd.directory / "keys" / "host.pub")], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    unknown = problem(replace(sshd.host, known_hosts=empty))
    assert shown in unknown.what and "ssh-keyscan" in unknown.fix
    assert empty.read_text() == "", "nothing is added"
    other = (sshd.directory / "keys" / "other.pub").read_text().split()
    empty.write_text(f"[127.0.0.1]:{sshd.port} {other[0]} {other[1]}\n")
    changed = problem(replace(sshd.host, known_hosts=empty))
    assert "another key" in changed.what and shown in changed.what
    unread = problem_of_list(replace(sshd.host, known_hosts=tmp_path / "none"))
    assert "cannot be read" in unread.what


def problem_of_list(host: RemoteHost) -> RemoteError:
    with pytest.raises(RemoteError) as raised:
        connect(host).close()
    assert raised.value.where == str(host.known_hosts)
    return raised.value


@pytest.mark.remote
def test_a_host_is_reached_through_another(sshd: Sshd) -> None:
    behind = replace(sshd.host, name="behind", jump=sshd.host)
    with connect(behind) as connection:
        assert connection.run(["echo", "here"]).stdout == b"here\n"
    with pytest.raises(RemoteError, match="cannot be reached from there: Connect") as raised:
        connect(replace(behind, port=free_ports(1)[0]))
    assert raised.value.where == "host lab1", "the host that cannot reach it"


@pytest.mark.remote
def test_files_go_there_and_come_back(connection: SshConnection, tmp_path: Path) -> None:
    directory = PurePosixPath(str(tmp_path / "there" / "deep"))
    transfer.make_directory(connection, directory)
    transfer.make_directory(connection, directory)
    assert Path(directory).stat().st_mode & 0o777 == Path(directory).parent.stat().st_mode & 0o777 == 0o700
    source = tmp_path / "source"
    source.write_bytes(os.urandom(1_500_000))
    target = directory / "a b'c"
    assert transfer.put(connection, source, target) == 1_500_000
    assert transfer.put(connection, source, target) == 0, "the same octets are not sent again"
    assert Path(target).read_bytes() == source.read_bytes() and Path(target).stat().st_mode & 0o777 == 0o600
    transfer.put_octets(connection, b"small", directory / "small")
    assert transfer.files_below(connection, directory.parent) == [
        PurePosixPath("deep/a b'c"),
        PurePosixPath("deep/small"),
    ]
    back = tmp_path / "back"
    assert transfer.get(connection, target, back) == 1_500_000
    assert transfer.get(connection, target, back) == 0
    assert back.read_bytes() == source.read_bytes()


@pytest.mark.remote
def test_a_transfer_that_was_cut_goes_on(connection: SshConnection, tmp_path: Path) -> None:
    source, target = tmp_path / "source", PurePosixPath(str(tmp_path / "target"))
    octets = os.urandom(1_000_000)
    source.write_bytes(octets)
    Path(f"{target}.part").write_bytes(octets[:400_000])
    assert transfer.put(connection, source, target) == 600_000
    assert Path(target).read_bytes() == octets
    back = tmp_path / "back"
    (tmp_path / "back.part").write_bytes(octets[:300_000])
    assert transfer.get(connection, target, back) == 700_000
    assert back.read_bytes() == octets


@pytest.mark.remote
def test_a_beginning_of_something_else_is_not_kept(connection: SshConnection, tmp_path: Path) -> None:
    source, target = tmp_path / "source", PurePosixPath(str(tmp_path / "target"))
    source.write_bytes(b"right" * 1000)
    Path(f"{target}.part").write_bytes(b"wrong" * 400)
    assert transfer.put(connection, source, target) == 3_000 + 5_000
    assert Path(target).read_bytes() == source.read_bytes()
    back = tmp_path / "back"
    (tmp_path / "back.part").write_bytes(b"wrong" * 2000)  # longer than the file
    assert transfer.get(connection, target, back) == 5_000
    assert back.read_bytes() == source.read_bytes()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.remote
def test_files_that_cannot_be_transferred(connection: SshConnection, tmp_path: Path) -> None:
    with pytest.raises(RemoteError) as raised:
        transfer.put_octets(connection, b"x", PurePosixPath("/proc/nothing/here"))
    assert raised.value.where == "host lab1"


@pytest.mark.remote
@pytest.mark.parametrize("text", ["Port abc\n", "no sense at all = = =\nHost\n"])
def test_a_configuration_that_cannot_be_used_is_told(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "~/.ssh/config cannot be used" in problem(replace(sshd.host, port=None)).what


@pytest.mark.remote
def test_jumps_that_go_round_in_a_circle_are_told(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  ProxyJump bastion\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RemoteError, match="round in a circle"):
        connect(replace(sshd.host, port=None))


@pytest.mark.remote
def test_a_passphrase_is_asked_for_once_for_many_hosts(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    assert sshd.host.key is not None
    locked.write_bytes(sshd.host.key.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(locked)], check=True)
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "open sesame"

    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(ssh, "_PASSPHRASES", ssh._Passphrases())
    hosts = [replace(sshd.host, name=f"host{number}", key=locked) for number in range(5)]
    said: list[bytes] = []

    def work(host: RemoteHost) -> None:
        with connect(host) as made:
            said.append(made.run(["echo", host.name]).stdout)

    threads = [threading.Thread(target=work, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"host{number}\n".encode() for number in range(5)]
    assert asked == [f"passphrase of {locked}: "]


@pytest.mark.remote
def test_a_private_key_that_others_can_read_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    assert sshd.host.key is not None
    lax = tmp_path / "lax"
    lax.write_bytes(sshd.host.key.read_bytes())
    lax.chmod(0o640)
    with pytest.raises(RemoteError, match="other users of this machine can read the private key") as refused:
        connect(replace(sshd.host, key=lax))
    assert refused.value.fix == f"chmod 600 {lax}"


@pytest.mark.remote
def test_a_host_that_goes_silent_in_a_transfer_is_given_up(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stands and its program there is stopped: nobody would ever answer."""
    monkeypatch.setattr(ssh, "DEAD_S", 0.05)
    with connect(sshd.host) as connection:
        server = int(connection.run(["sh", "-c", "echo $PPID"]).stdout)
        with pytest.raises(RemoteError) as raised, connection.files() as sftp:
            os.kill(server, signal.SIGSTOP)
            try:
                sftp.stat(str(tmp_path))
            finally:
                os.kill(server, signal.SIGCONT)
        assert "the connection was lost" in raised.value.what
