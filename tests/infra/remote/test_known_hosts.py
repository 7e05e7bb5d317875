"""Lists of known hosts and configurations as people have them: with markers, patterns, hashes and included files."""

from __future__ import annotations

import base64
import hashlib
import hmac
import subprocess
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from infra.remote import ssh_config
from infra.remote.host import RemoteError
from infra.remote.known_hosts import KnownHost, lines_of, name_of
from infra.remote.ssh import connect
from tests.infra.remote.conftest import Sshd

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()


def line(hosts: str, key: paramiko.PKey = KEY, mark: str = "") -> str:
    return f"{mark} {hosts} {key.get_name()} {key.get_base64()} a comment".strip()


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, name.encode(), hashlib.sha1)
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("hosts", "known"),
    [
        ("load1", True),
        ("LOAD1", True),
        ("load2", False),
        ("load2,load1", True),
        ("load?", True),
        ("*", True),
        ("load*,!load1", False),
        ("load*,!load2", True),
        ("load", False),
        ("l.ad1", False),
        ("[load1]:22", False),
        (hashed("load1"), True),
        (hashed("load2"), False),
        ("|1|no-base64|x", False),
    ],
)
def test_hosts_are_named_by_patterns_and_hashes(hosts: str, known: bool) -> None:
    found = KnownHost(lines_of(line(hosts)), name_of("load1", 22))
    assert [key.asbytes() for key in found.keys] == [KEY.asbytes()] * known


@pytest.mark.parametrize("hosts", ["[10.0.0.1]:2222", "[10.0.0.*]:2222", "[10.0.0.1]:*", hashed("[10.0.0.1]:2222")])
def test_another_port_is_a_part_of_the_name(hosts: str) -> None:
    lines = lines_of(line(hosts))
    assert KnownHost(lines, name_of("10.0.0.1", 2222)).keys
    assert not KnownHost(lines, name_of("10.0.0.1", 22)).keys
    assert KnownHost(lines_of(line("cluster-key")), name_of("10.0.0.1", 2222, "cluster-key")).keys


def test_revoked_keys_and_authorities_are_no_keys_of_hosts() -> None:
    text = "\n".join(
        [
            line("load1", OTHER),
            line("*", OTHER, "@revoked"),
            line("*", KEY, "@cert-authority"),
            line("load1", KEY, "@unknown"),
            "# a comment",
            "",
            "load1 ssh-ed25519 no-base64",
            "load1 ssh-rsa",
            f"load1 ssh-of-tomorrow {base64.b64encode(b'key').decode()}",
        ]
    )
    found = KnownHost(lines_of(text), name_of("load1", 22))
    assert found.keys == [] and found.has_authority
    assert found.has_revoked(OTHER) and not found.has_revoked(KEY)


def host_key(sshd: Sshd) -> str:
    return " ".join((sshd.directory / "keys" / "host.pub").read_text().split()[:2])


@pytest.mark.remote
@pytest.mark.parametrize("first", ["@cert-authority *.example.com", "@revoked old.example.com", "# nothing,"])
@pytest.mark.parametrize("hosts", ["[127.0.0.1]:{port}", "[127.0.0.?]:*", "*"])
def test_a_host_is_found_among_other_lines(sshd: Sshd, tmp_path: Path, first: str, hosts: str) -> None:
    listed = tmp_path / "known_hosts"
    other = " ".join((sshd.directory / "keys" / "other.pub").read_text().split()[:2])
    listed.write_text(f"{first} {other}\n{hosts.format(port=sshd.port)} {host_key(sshd)}\n")
    openssh_finds = ["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", str(listed)]
    subprocess.run(openssh_finds, check=True)
    with connect(replace(sshd.host, known_hosts=listed)) as connection:
        assert connection.run(["echo", "here"]).stdout == b"here\n"


@pytest.mark.remote
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("* {key}\n@revoked * {key}\n", "is revoked"),
        ("@cert-authority * {key}\n", "certificates of hosts (@cert-authority) are not read"),
    ],
)
def test_keys_that_are_not_to_be_trusted_are_refused(sshd: Sshd, tmp_path: Path, text: str, said: str) -> None:
    listed = tmp_path / "known_hosts"
    listed.write_text(text.format(key=host_key(sshd)))
    with pytest.raises(RemoteError) as refused:
        connect(replace(sshd.host, known_hosts=listed))
    assert said in refused.value.what


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "config.d").mkdir(parents=True)
    return tmp_path / ".ssh"


@pytest.mark.remote
def test_the_configuration_includes_others_and_names_the_key(sshd: Sshd, home: Path) -> None:
    """As people split their configuration, and as clouds name hosts that change their addresses."""
    (home / "config").write_text("Include config.d/*.conf\nHost lab\n  Port 1\n")
    (home / "config.d" / "lab.conf").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {sshd.port}\n  HostKeyAlias the-lab\n"
        f"  IdentityFile {sshd.host.key}\n  UserKnownHostsFile {home / 'listed'}\n"
    )
    (home / "listed").write_text(f"the-lab {host_key(sshd)}\n")
    host = replace(sshd.host, address="lab", port=None, key=None, known_hosts=None)
    with connect(host) as connection:
        assert connection.run(["echo", "here"]).stdout == b"here\n"


def test_what_stands_behind_an_include_belongs_to_its_block(home: Path) -> None:
    (home / "config").write_text(
        "User everybody\nHost a\n  Include config.d/in-a none/*\n  User ann\nHost *\n  Port 7\n"
    )
    (home / "config.d" / "in-a").write_text("Port 5\nHost c\n  Port 9\n")
    assert {name: ssh_config.said_of(name).get("port") for name in "abc"} == {"a": "5", "b": "7", "c": "7"}
    assert ssh_config.said_of("a")["user"] == "everybody"


@pytest.mark.remote
def test_files_that_include_each_other_are_refused(sshd: Sshd, home: Path) -> None:
    (home / "config").write_text("Include config\n")
    with pytest.raises(RemoteError, match="do they include each other"):
        connect(replace(sshd.host, port=None))
