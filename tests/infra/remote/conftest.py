"""A real sshd on loopback, with host keys and a user key of its own."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.ports import free_ports
from infra.remote.host import RemoteHost

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin") or ""


@dataclass
class Sshd:
    """``host`` reaches the server. :meth:`stop` ends it, with all its sessions if asked for."""

    directory: Path
    port: int
    host: RemoteHost = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        keys = self.directory / "keys"
        keys.mkdir(mode=0o700)
        for name in ("host", "user", "other"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
            subprocess.run(command, check=True)
        public = (keys / "host.pub").read_text().split()
        (self.directory / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")
        (self.directory / "authorized_keys").write_text((keys / "user.pub").read_text())
        (self.directory / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {keys / 'host'}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.directory / 'authorized_keys'}\nStrictModes no\nPasswordAuthentication no\n"
            "Subsystem sftp internal-sftp\nMaxStartups 100\nMaxSessions 100\nPermitRootLogin yes\n"
        )
        self.host = RemoteHost(
            name="lab1", address="127.0.0.1", port=self.port, user=getpass.getuser(), key=keys / "user",
            known_hosts=self.directory / "known_hosts", directory=str(self.directory / "remote"),
        )  # fmt: skip

    def start(self) -> None:
        if Path("/run").exists():
            Path("/run/sshd").mkdir(exist_ok=True)
        command = [SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")]
        log = (self.directory / "sshd.log").open("wb")
        self.process = subprocess.Popen(command, stderr=log, start_new_session=True)
        log.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(("127.0.0.1", self.port), 30) as to,
            ):
                assert to.recv(4) == b"SSH-"
                return
        raise AssertionError((self.directory / "sshd.log").read_text())

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)
            self.process = None


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A running server. Tests that stop it make their own."""
    if not SSHD:
        pytest.skip("there is no sshd here (Debian: openssh-server)")
    server = Sshd(tmp_path_factory.mktemp("sshd"), free_ports(1)[0])
    server.start()
    yield server
    server.stop()
