"""A host of a lab: a network namespace with a process tree, a name and a clock of its own, whose first process is sshd.

All processes of a host live in one PID namespace. So they end together with its first process, however they were
started, and a process in there cannot escape. All hosts of a lab share the files of the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from infra.lab.namespaces import LabError
from infra.node_process import MARK, start_time, wait
from infra.remote.host import RemoteHost

PORT: Final = 22
_START_S: Final = 30.0
_END_S: Final = 10.0
_NAMED: Final = 'hostname "$1" && shift && exec "$@"'
"""Commands of the shell before sshd takes its place. Words come as arguments, never as text of the shell."""


@dataclass(slots=True, kw_only=True)
class LabHost:
    """A host. ``directory`` holds its keys, its log and, in ``home``, what users of the lab put there.
    ``clock_offset_s`` is the lead of its monotonic clock over the machine's, in whole seconds."""

    name: str
    address: str
    namespace: str
    directory: Path
    user: str
    key: Path
    known_hosts: Path
    python: str
    mark: str
    clock_offset_s: int = 0
    pid: int = 0
    pid_start_time: int = 0
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """The log of its sshd."""
        return self.directory / "sshd.log"

    @property
    def is_running(self) -> bool:
        """Whether its first process runs or is paused."""
        return self.pid > 0 and start_time(self.pid) == self.pid_start_time

    def remote(self) -> RemoteHost:
        """How the host is reached over SSH."""
        return RemoteHost(
            name=self.name, address=self.address, port=PORT, user=self.user, key=self.key,
            known_hosts=self.known_hosts, python=self.python, directory=str(self.directory / "home"),
        )  # fmt: skip

    def start(self, sshd: str) -> None:
        """Start the host; :meth:`wait_until_ready` says when sshd answers. A host that runs is left as it is."""
        if self.is_running:
            return
        clock = ["--time", "--monotonic", str(self.clock_offset_s)] if self.clock_offset_s else []
        command = ["ip", "netns", "exec", self.namespace, "unshare", "--pid", "--fork", "--kill-child", "--uts",
                   "--mount-proc", *clock, "sh", "-c", _NAMED, "sh", self.name,
                   sshd, "-D", "-e", "-f", str(self.directory / "sshd_config")]  # fmt: skip
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {MARK: self.mark},
            )  # fmt: skip
        self.pid = self._child.pid
        self.pid_start_time = start_time(self.pid) or 0

    def wait_until_ready(self) -> None:
        """Wait until sshd answers. Raises :class:`LabError` with its last words if it ends or takes too long."""
        if not wait(lambda: self._answers() or not self.is_running, _START_S) or not self.is_running:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise LabError(f"sshd of host {self.name} did not start: {lines[-1]}", str(self.log), "read that log")

    def kill(self) -> None:
        """End all processes of the host at once, as a power cut does. Files stay. Raises :class:`LabError`."""
        for pid in self._first() if self.is_running else []:
            _send(pid, signal.SIGKILL)
        if self.is_running and not wait(lambda: not self.is_running, _END_S):
            _send(self.pid, signal.SIGKILL)
            if not wait(lambda: not self.is_running, _END_S):
                raise LabError(f"host {self.name} does not end", f"pid {self.pid}", "see what its processes wait for")
        if self._child is not None:
            self._child.wait()
        self._child, self.pid, self.pid_start_time = None, 0, 0

    def pause(self) -> None:
        """Stop all processes of the host by SIGSTOP. Its kernel still answers, as a host does whose processes hang."""
        while running := [pid for pid in self.processes() if not _is_stopped(pid)]:  # one may start another one
            for pid in running:
                _send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let all processes of the host go on."""
        for pid in self.processes():
            _send(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The pids of all processes of the host, as the machine counts them."""
        namespaces = {space for pid in self._first() if (space := _pid_namespace(pid))}
        return [pid for pid in psutil.pids() if _pid_namespace(pid) in namespaces] if self.is_running else []

    def _first(self) -> list[int]:
        """The first process of the host's PID namespace: the only child of the process that made the namespace."""
        try:
            return [child.pid for child in psutil.Process(self.pid).children()]
        except psutil.Error:
            return []

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, PORT), 1) as to:
            return to.recv(4) == b"SSH-"
        return False


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _pid_namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped, or has ended."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return True
