"""Connections to hosts over SSH: commands, processes that are spoken to, and files (paramiko).

Host keys are checked against the known hosts of the user or of the inventory. An unknown or changed key ends the
connection, with its fingerprint in the error; nothing is ever added to a list of known hosts.

All calls block and may be made from any thread; several threads may use one connection at the same time.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import getpass
import hashlib
import logging
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import paramiko

from infra.remote import known_hosts, ssh_config
from infra.remote.host import Completed, RemoteError, RemoteHost, command_line
from infra.remote.known_hosts import KnownHost

CONNECT_S: Final = 15.0
"""Time within which a host must answer, or it counts as absent."""
KEEPALIVE_S: Final = 5
"""Interval at which an idle connection is asked whether it still stands."""
DEAD_S: Final = 30.0
"""Time without an acknowledgement of the host after which a connection is lost. Without this the kernel waits for 15
minutes."""
_LOOK_S: Final = 2.0
"""Interval at which the thread of a connection looks whether a keepalive is due. With paramiko's 0.1 s the threads of
twenty idle connections take 5 % of a core."""
_CHUNK: Final = 1 << 16
_JUMP_OF: Final = "(ProxyJump of "
_JUMPS_MAX: Final = 8
_SHOWN: Final = 80
"""Number of letters of a command that are shown in errors."""

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # we tell its errors, once


class SshConnection:
    """An open connection to a host; a context manager."""

    def __init__(self, host: RemoteHost, client: paramiko.SSHClient, way: SshConnection | None = None) -> None:
        self.host = host
        self._client = client
        self._way = way

    def __enter__(self) -> SshConnection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the connection still stands, as far as this end knows."""
        transport = self._client.get_transport()
        return transport is not None and transport.is_active()

    def close(self) -> None:
        """Close the connection, and that to the host on the way."""
        transport = self._client.get_transport()
        with contextlib.suppress(OSError, EOFError):
            if transport is not None and transport.is_active():
                transport.sock.shutdown(socket.SHUT_RDWR)  # wakes its thread, which the client waits for
        self._client.close()
        if self._way is not None:
            self._way.close()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0, check: bool = True) -> Completed:
        """Run a command to its end. Raises RemoteError if that takes longer than ``timeout_s``, if the connection is
        lost, or, with ``check``, if the command fails."""
        process = self.start(argv)
        try:
            found = process.complete(stdin, timeout_s)
        finally:
            process.close()
        if found is None:
            raise self._error(f"`{argv[0]}` did not end within {timeout_s:g} s", "see what keeps the host busy")
        if found.status == -1:
            raise self._error(f"the connection was lost while `{argv[0]}` ran", "see why, and try again")
        if check and found.status != 0:
            said = f": {found.last_words}" if found.last_words else ""
            raise self._error(f"`{_shortened(argv)}` ended with status {found.status}{said}", "mend what it says")
        return found

    def stream(self, argv: Sequence[str], tell: Callable[[bytes], None], *, timeout_s: float) -> int:
        """Run a command without input to its end; ``tell`` gets each line of its output as it comes, without its line
        feed. Returns its exit status. Raises RemoteError if that takes longer than ``timeout_s``, or if the connection
        is lost."""
        process = self.start(argv)
        try:
            process.end_input()
            outputs = (process.read, process.read_stderr)
            threads = [threading.Thread(target=_tell_lines, args=(read, tell), daemon=True) for read in outputs]
            for thread in threads:
                thread.start()
            status = process.status(timeout_s)
            if status is None:
                fix = "see what keeps it busy; the command may go on there"
                raise self._error(f"`{argv[0]}` did not end within {timeout_s:g} s", fix)
            if status == -1:
                raise self._error(f"the connection was lost while `{argv[0]}` ran", "see why, and try again")
            for thread in threads:
                thread.join(CONNECT_S)
            return status
        finally:
            process.close()

    def octets(self, argv: Sequence[str]) -> Iterator[bytes]:
        """The stdout of a command without input, as it comes. Raises RemoteError if the connection is lost, or if the
        command fails."""
        process = self.start(argv)
        try:
            process.end_input()
            while chunk := process.read():
                yield chunk
            status = process.status(CONNECT_S)
            if status in (-1, None):
                raise self._lost()
            if status != 0:
                said = process.read_stderr().decode(errors="replace").strip()
                raise self._error(f"`{_shortened(argv)}` ended with status {status}: {said}", "mend what it says")
        finally:
            process.close()

    def start(self, argv: Sequence[str]) -> RemoteProcess:
        """Start a command that is spoken to. Raises RemoteError."""
        with self._explained("the command cannot be started"):
            transport = self._client.get_transport()
            if transport is None:
                raise paramiko.SSHException("the connection is closed")
            channel = transport.open_session(timeout=CONNECT_S)
            channel.exec_command(command_line(argv))
            return RemoteProcess(channel)

    def forward(self, address: str, port: int) -> paramiko.Channel:
        """A channel to a port that this host reaches. Raises RemoteError."""
        with self._explained(f"{address}:{port} cannot be reached from there"):
            transport = self._client.get_transport()
            if transport is None:
                raise paramiko.SSHException("the connection is closed")
            return transport.open_channel("direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=CONNECT_S)

    @contextlib.contextmanager
    def files(self) -> Iterator[paramiko.SFTPClient]:
        """The files of the host. Raises RemoteError for whatever goes wrong within."""
        with self._explained("a file could not be transferred"):
            sftp = self._client.open_sftp()
            sftp.get_channel().settimeout(DEAD_S)  # type: ignore[union-attr] # one that is open has a channel
            try:
                yield sftp
            except (paramiko.SSHException, OSError, EOFError) as error:
                if self.is_open and not isinstance(error, TimeoutError):
                    raise
                raise self._lost() from error
            finally:
                sftp.close()

    def _lost(self) -> RemoteError:
        fix = "do the same again: what has arrived is not sent again"
        return self._error("the connection was lost while a file was transferred", fix)

    def _explained(self, what: str) -> contextlib.AbstractContextManager[None]:
        return _explained(self.host, what)

    def _error(self, what: str, fix: str) -> RemoteError:
        return RemoteError(what, f"host {self.host.name}", fix)


def _shortened(argv: Sequence[str]) -> str:
    """A command for a person, who need not see a hundred file names."""
    line = command_line(argv)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"


class RemoteProcess:
    """A process on a host. Its stdin ends, and its output is lost, when the connection ends."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def write(self, data: bytes) -> None:
        """Write to its stdin; waits while the host takes nothing. A process that has ended gets nothing."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.sendall(data)

    def end_input(self) -> None:
        """End its stdin."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def read(self) -> bytes:
        """The process's stdout; waits for the first octet. Empty at the end."""
        with contextlib.suppress(OSError, EOFError):
            return self._channel.recv(_CHUNK)
        return b""

    def read_stderr(self) -> bytes:
        """The same of stderr."""
        with contextlib.suppress(OSError, EOFError):
            return self._channel.recv_stderr(_CHUNK)
        return b""

    def status(self, timeout_s: float) -> int | None:
        """The exit status once the process has ended: -1 if the connection was lost, None if it takes longer."""
        return self._channel.exit_status if self._channel.status_event.wait(timeout_s) else None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, or its connection was lost."""
        return self._channel.status_event.is_set() or self._channel.closed

    def complete(self, stdin: bytes, timeout_s: float) -> Completed | None:
        """Write ``stdin``, read all output, and wait for the end; None if that takes longer."""
        deadline = time.monotonic() + timeout_s
        said, complained = bytearray(), bytearray()
        works: tuple[Callable[[], None], ...] = (
            lambda: self._feed(stdin),
            lambda: _drain(self.read, said),
            lambda: _drain(self.read_stderr, complained),
        )
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        status = self.status(timeout_s)
        if status is None:
            return None
        for thread in threads[1:]:
            thread.join(max(deadline - time.monotonic(), 1.0))
        return Completed(status, bytes(said), bytes(complained))

    def close(self) -> None:
        """Let go of the process. One that reads its stdin ends by itself."""
        self._channel.close()

    def _feed(self, stdin: bytes) -> None:
        if stdin:
            self.write(stdin)
        self.end_input()


def _drain(read: Callable[[], bytes], into: bytearray) -> None:
    while chunk := read():
        into += chunk


def _tell_lines(read: Callable[[], bytes], tell: Callable[[bytes], None]) -> None:
    rest = b""
    while chunk := read():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            tell(line)
    if rest:
        tell(rest)


# Connecting


def connect(host: RemoteHost) -> SshConnection:
    """Open a connection, through the host's jump if it has one. Raises RemoteError."""
    try:
        said = ssh_config.said_of(host.address)
        port = host.port or int(said.get("port", 22))
        way = connect(host.jump) if host.jump is not None else _configured_jump(said, host)
    except (paramiko.ConfigParseError, ValueError, RecursionError) as error:
        fix = "correct it there, or say in the inventory what it would say (address, port, user, key, jump)"
        raise RemoteError(f"~/.ssh/config cannot be used: {error}", f"host {host.name}", fix) from error
    address = str(said.get("hostname", host.address))
    client = paramiko.SSHClient()
    try:
        known = _known(host, said, address, port)
        for key in known.keys:
            client.get_host_keys().add(_paramikos_name(address, port), key.get_name(), key)
        client.set_missing_host_key_policy(_Unknown(host, known, address, port))
        with _explained(host, f"cannot connect to {address} port {port}"):
            channel = way.forward(address, port) if way is not None else None
            _login(client, host, said, address, port, channel)
    except BaseException:
        client.close()
        if way is not None:
            way.close()
        raise
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(KEEPALIVE_S)
    transport.sock.settimeout(_LOOK_S)
    if isinstance(transport.sock, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(DEAD_S * 1000))
    return SshConnection(host, client, way)


def _paramikos_name(address: str, port: int) -> str:
    return address if port == paramiko.config.SSH_PORT else f"[{address}]:{port}"


def _login(
    client: paramiko.SSHClient, host: RemoteHost, said: dict[str, Any], address: str, port: int, channel: Any
) -> None:
    keys = (
        [str(host.key)]
        if host.key is not None
        else [str(Path(each).expanduser()) for each in said.get("identityfile", ())]
    )
    asked: dict[str, Any] = {
        "port": port,
        "username": host.user or said.get("user") or getpass.getuser(),
        "key_filename": [each for each in keys if host.key is not None or Path(each).exists()] or None,
        "look_for_keys": not keys,
        "timeout": CONNECT_S,
        "banner_timeout": CONNECT_S,
        "auth_timeout": CONNECT_S,
        "sock": channel,
    }
    _refuse_open(host)
    try:
        client.connect(address, **asked)
    except paramiko.PasswordRequiredException:
        if not sys.stdin.isatty():
            raise
        client.connect(address, **asked, passphrase=_PASSPHRASES.of(tuple(asked["key_filename"] or ())))


def _refuse_open(host: RemoteHost) -> None:
    """Raise RemoteError for a private key that others can read, as ``ssh`` does."""
    with contextlib.suppress(FileNotFoundError):  # the login says so
        if host.key is not None and host.key.stat().st_mode & 0o077:
            what = f"other users of this machine can read the private key {host.key}"
            raise RemoteError(what, f"host {host.name}", f"chmod 600 {shlex.quote(str(host.key))}")


class _Passphrases:
    """Passphrases of keys, in the memory of this process. Many hosts are connected to at the same time, and have one
    key: the user is asked for it once, one question at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._told: dict[tuple[str, ...], str] = {}

    def of(self, keys: tuple[str, ...]) -> str:
        """The passphrase of one of these keys."""
        with self._turn:
            if keys not in self._told:
                self._told[keys] = getpass.getpass(f"passphrase of {' or '.join(keys) or 'the private key'}: ")
            return self._told[keys]


_PASSPHRASES: Final = _Passphrases()


def _configured_jump(said: dict[str, Any], host: RemoteHost) -> SshConnection | None:
    """The connection to the last host of ``ProxyJump`` in the user's configuration."""
    words = str(said.get("proxyjump", "none"))
    if words == "none":
        return None
    if host.name.count(_JUMP_OF) >= _JUMPS_MAX:
        what = f"ProxyJump goes round in a circle at {host.address}"
        raise RemoteError(what, "~/.ssh/config", "leave the jump host itself out of the rule (Host * !bastion)")
    jump = None
    for word in words.split(","):
        user, _, place = word.strip().rpartition("@")
        address, _, port = place.partition(":")
        jump = RemoteHost(
            name=f"{place} {_JUMP_OF}{host.name})", address=address, port=int(port) if port else None,
            user=user or None, known_hosts=host.known_hosts, jump=jump,
        )  # fmt: skip
    assert jump is not None
    return connect(jump)


# Host keys


def _known(host: RemoteHost, said: dict[str, Any], address: str, port: int) -> KnownHost:
    """The host's entries in the lists of known hosts. Raises RemoteError if the inventory's list cannot be read."""
    paths = [host.known_hosts] if host.known_hosts is not None else [each for each in _lists(said) if each.is_file()]
    try:
        lines = known_hosts.read(paths)
    except OSError as error:
        what = f"the list of known hosts cannot be read: {error.strerror or error}"
        raise RemoteError(what, str(error.filename), "name a file that you can read (known_hosts: …)") from error
    return KnownHost(lines, known_hosts.name_of(address, port, str(said.get("hostkeyalias", ""))))


def _lists(said: dict[str, Any]) -> list[Path]:
    users = str(said.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")).split()
    everybodys = str(said.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")).split()
    return [Path(each).expanduser() for each in (*users, *everybodys)]


class _Unknown(paramiko.MissingHostKeyPolicy):
    """Refuses hosts whose key is not known."""

    def __init__(self, host: RemoteHost, known: KnownHost, address: str, port: int) -> None:
        self._host = host
        self._known = known
        through = f"ssh {host.jump.address} " if host.jump is not None else ""
        self._scan = f"{through}ssh-keyscan -p {port} {address}"

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Raise RemoteError with the fingerprint."""
        if self._known.has_revoked(key):
            what = f"the key of {hostname} is revoked: {key.get_name()} {fingerprint(key)}"
            raise RemoteError(what, f"host {self._host.name}", _REVOKED)
        listed = self._host.known_hosts or Path("~/.ssh/known_hosts")
        fix = (
            f"compare this fingerprint with the one that the host itself shows (ssh-keygen -lf "
            f"/etc/ssh/ssh_host_*_key.pub); if they are the same, add its key to {listed}: {self._scan} >> {listed}"
        )
        certified = "; certificates of hosts (@cert-authority) are not read here" if self._known.has_authority else ""
        what = f"the key of {hostname} is not known: {key.get_name()} {fingerprint(key)}{certified}"
        raise RemoteError(what, f"host {self._host.name}", fix)


_REVOKED: Final = "the list of known hosts says that nobody may trust this key: ask who revoked it (@revoked)"


def fingerprint(key: paramiko.PKey) -> str:
    """The fingerprint of a key, as OpenSSH shows it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


# Errors


@contextlib.contextmanager
def _explained(host: RemoteHost, what: str) -> Iterator[None]:
    try:
        yield
    except RemoteError:
        raise
    except (paramiko.SSHException, OSError, EOFError) as error:
        why, fix = _reason(error)
        raise RemoteError(f"{what}: {why}", f"host {host.name}", fix) from error


def _reason(error: Exception) -> tuple[str, str]:
    """Why, and what to do."""
    match error:
        case paramiko.BadHostKeyException():
            told = f"the host shows another key than the one that is known: {fingerprint(error.key)}"
            return told, "find out why before you go on: the host was set up again, or this is another machine"
        case paramiko.PasswordRequiredException():
            return "the private key has a passphrase", "add the key to the agent (ssh-add), or run this in a terminal"
        case paramiko.AuthenticationException():
            fix = "check user and key: `ssh` with the same ones must log in without a password"
            return "the host refuses the login", fix
        case TimeoutError():
            return f"no answer within {CONNECT_S:g} s", "check address and port, and that a firewall lets you through"
        case paramiko.ssh_exception.NoValidConnectionsError():
            first = next(iter(error.errors.values()))
            return str(getattr(first, "strerror", None) or first), "check address and port, and that sshd runs there"
        case socket.gaierror():
            return "the address is not known", "check the name, or give an IP address (address: …)"
        case FileNotFoundError():
            return f"{error.filename or error}: no such file", "check the path of the key (key: …)"
        case paramiko.ChannelException():
            return error.text, "check that it listens, and that the host may reach it"
        case PermissionError():
            return "permission denied", "give the user permission, or choose another directory"
        case OSError(errno=errno.ENOSPC):
            return "no space left there", "make room, or choose another directory"
    return str(error) or type(error).__name__, "check the connection, and see the log of sshd on the host"
