"""Makes and ends labs: hosts on one machine that are reached over real SSH, and the switch between them.

Everything of a lab lies in one directory of mode 700. What else there is (processes, namespaces) is written down
before it is made (:mod:`infra.register`), so that :func:`infra.cleaning.clean` ends a lab whose maker died.
"""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from infra.cleaning import Cleaned, clean, end_marked
from infra.lab import namespaces, switch
from infra.lab.lab_host import PORT, LabHost
from infra.lab.namespaces import LabError
from infra.lab.switch import LabLinks
from infra.links.settings import LinkSettings
from infra.node_process import MARK, wait
from infra.register import Register, UndoKind

HOSTS_MAX: Final = 100
HERE: Final = "local"
"""The name of the machine itself among the ends of links."""
_HERE_NUMBER: Final = 254
_SWITCH_LOG: Final = "switch.log"
_SWITCH_S: Final = 60.0
_CLOCK_OFFSET_MAX_S: Final = 1e6
_FIRST_NET: Final = 64
"""Labs use networks 10.64.0.0/24 to 10.127.255.0/24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Hosts, which all run, and the links between them. The machine itself is the end ``local`` of its links."""

    directory: Path
    hosts: tuple[LabHost, ...]
    links: LabLinks
    sshd: str

    def __getitem__(self, name: str) -> LabHost:
        """The host of a name. Raises KeyError."""
        return {host.name: host for host in self.hosts}[name]

    def start(self, host: LabHost) -> None:
        """Start a host that was killed, and wait until its sshd answers. Raises :class:`LabError`."""
        host.start(self.sshd)
        host.wait_until_ready()


def impossible() -> str:
    """Why no lab can be made here, in words; empty if one can."""
    if not _sshd():
        return "there is no sshd (Debian: openssh-server)"
    missing = [name for name in ("ip", "unshare", "ssh-keygen") if shutil.which(name) is None]
    if missing:
        return f"there is no `{missing[0]}`"
    return namespaces.impossible() or switch.impossible()


def clocks_impossible() -> str:
    """Why hosts cannot have clocks of their own here; empty if they can."""
    tried = subprocess.run(["unshare", "--time", "--monotonic", "1", "true"], capture_output=True, check=False)
    return tried.stderr.decode(errors="replace").strip()


@contextlib.contextmanager
def lab(
    root: Path,
    *,
    hosts: int = 3,
    defaults: LinkSettings | None = None,
    clock_offsets_s: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Iterator[Lab]:
    """Hosts ``host1`` to ``hostN`` in a new directory below ``root``; nothing is left of them afterwards.

    ``defaults`` are the settings of all links. ``clock_offsets_s`` says, by host, how many seconds its monotonic clock
    is ahead. Chance of the links comes from ``seed``. Raises :class:`LabError` if there can be no lab.
    """
    _check(hosts, clock_offsets_s or {})
    with _Making(Register(root)) as making:
        yield making.lab(hosts, defaults or LinkSettings(), clock_offsets_s or {}, seed)


def up(
    root: Path,
    *,
    hosts: int = 3,
    defaults: LinkSettings | None = None,
    clock_offsets_s: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Lab:
    """As :func:`lab`, but the lab stays until :func:`down`. Raises :class:`LabError`, also if ``root`` has a lab."""
    if found := places(root):
        raise LabError("there is a lab here already", str(found[0]), "use that one, or end it: perftest lab down")
    _check(hosts, clock_offsets_s or {})
    register = Register(root)
    with _Making(register) as making:
        made = making.lab(hosts, defaults or LinkSettings(), clock_offsets_s or {}, seed)
        for entry in register.entries()[0]:
            if entry.owner_pid == os.getpid():
                register.keep(entry)
        making.stays = True
    return made


def down(root: Path) -> list[Cleaned]:
    """End a lab that stays, whatever is left of it, as a power cut would; says what was undone."""
    for place in places(root):
        end_marked(str(place), grace_s=0)  # sshd as the first process of a namespace passes over SIGTERM
    return clean(root, kept=True)


def places(root: Path) -> list[Path]:
    """The directories of the labs below a directory."""
    return sorted(each.parent for each in root.glob(f"lab-*/{switch.PLAN}"))


def addresses(place: Path) -> dict[str, str]:
    """The addresses of a lab's hosts by their names; the machine itself is not one of them. Raises OSError."""
    ports = json.loads((place / switch.PLAN).read_text(encoding="utf-8"))["ports"]
    return {port["name"]: port["address"] for port in ports if port["name"] != HERE}


class _Making:
    """A lab that is ended with the context, or stays."""

    def __init__(self, register: Register) -> None:
        self.stays = False
        self._register = register
        self._place = register.root / f"lab-{secrets.token_hex(4)}"
        self._hosts: list[LabHost] = []
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Making:
        return self

    def lab(self, hosts: int, defaults: LinkSettings, offsets: Mapping[str, int], seed: int) -> Lab:
        """Make the lab, and start its hosts. Raises :class:`LabError`."""
        place = self._place
        self._register.note(UndoKind.DIRECTORY, str(place))
        self._register.note(UndoKind.PROCESSES, str(place))
        place.mkdir(mode=0o700, parents=True)
        self._hosts += _hosts(place, hosts, offsets)
        for host in self._hosts:
            self._register.note(UndoKind.NAMESPACE, host.namespace)
            namespaces.make(host.namespace)
        self._children.append(_switch(place, self._hosts, defaults, seed))
        _wait_for_switch(place, self._children[0])
        return _started(place, self._hosts)

    def __exit__(self, *_: object) -> None:
        if self.stays:
            return
        _end(self._register, self._place, self._hosts)
        for child in self._children:
            child.wait()


def _started(place: Path, hosts: list[LabHost]) -> Lab:
    sshd = _sshd()
    Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)  # sshd insists on an empty directory there
    for host in hosts:  # all at once, and then the wait
        host.start(sshd)
    for host in hosts:
        host.wait_until_ready()
    return Lab(directory=place, hosts=tuple(hosts), links=LabLinks(place), sshd=sshd)


def _end(register: Register, place: Path, hosts: list[LabHost]) -> None:
    """Undo every entry. An entry that cannot be undone stays for the next attempt."""
    for host in hosts:
        host.kill()
    end_marked(str(place))
    register.forget(UndoKind.PROCESSES, str(place))
    for host in hosts:
        namespaces.remove(host.namespace)
        register.forget(UndoKind.NAMESPACE, host.namespace)
    if place.exists():
        shutil.rmtree(place)
    register.forget(UndoKind.DIRECTORY, str(place))


def _check(hosts: int, offsets: Mapping[str, int]) -> None:
    """Raise :class:`LabError` for a lab that there cannot be."""
    if not 1 <= hosts <= HOSTS_MAX:
        raise LabError(f"a lab cannot have {hosts} hosts", "hosts", f"use 1 to {HOSTS_MAX}")
    names = [f"host{number}" for number in range(1, hosts + 1)]
    if unknown := [name for name in offsets if name not in names]:
        raise LabError(f"there is no host {unknown[0]!r}", "clock offsets", f"use one of {', '.join(names)}")
    if wrong := [each for each in offsets.values() if each != int(each) or abs(each) > _CLOCK_OFFSET_MAX_S]:
        raise LabError(f"a clock cannot be {wrong[0]} s off", "clock offsets", "use whole seconds, at most 1000000")
    if reason := impossible():
        raise LabError(f"there can be no lab here: {reason}", "this machine", "use Linux as root, with sshd installed")
    if any(offsets.values()) and (reason := clocks_impossible()):
        raise LabError(f"hosts cannot have clocks of their own: {reason}", "this kernel", "leave out clock offsets")


def _hosts(place: Path, count: int, offsets: Mapping[str, int]) -> list[LabHost]:
    """The hosts with their files. None of them runs yet."""
    network = _free_network()
    key = place / "user"
    _make_key(key)
    authorized = place / "authorized_keys"
    authorized.write_text((place / "user.pub").read_text())
    own = secrets.token_hex(3)
    hosts = []
    for number in range(1, count + 1):
        name = f"host{number}"
        hosts.append(LabHost(
            name=name, address=f"{network}.{number}", namespace=f"pt{own}-{name}", directory=place / name,
            user=getpass.getuser(), key=key, known_hosts=place / "known_hosts", python=sys.executable,
            mark=f"{place}:{name}", clock_offset_s=offsets.get(name, 0),
        ))  # fmt: skip
        _write_host(hosts[-1], authorized)
    keys = [f"{host.address} {' '.join((host.directory / 'key.pub').read_text().split()[:2])}\n" for host in hosts]
    (place / "known_hosts").write_text("".join(keys))
    (place / "ssh_config").write_text("".join(_ssh_config(host) for host in hosts))
    return hosts


def _write_host(host: LabHost, authorized: Path) -> None:
    host.directory.mkdir(mode=0o700)
    (host.directory / "home").mkdir(mode=0o700)
    _make_key(host.directory / "key")
    (host.directory / "sshd_config").write_text(
        f"Port {PORT}\nListenAddress {host.address}\nHostKey {host.directory / 'key'}\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {authorized}\nStrictModes no\nPasswordAuthentication no\nUseDNS no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        "MaxStartups 100\nMaxSessions 100\n"
    )


def _ssh_config(host: LabHost) -> str:
    """The file for ``ssh -F``, to look around on a host by hand."""
    return (
        f"Host {host.name}\n  HostName {host.address}\n  User {host.user}\n  IdentityFile {host.key}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {host.known_hosts}\n  StrictHostKeyChecking yes\n"
    )


def _switch(place: Path, hosts: list[LabHost], defaults: LinkSettings, seed: int) -> subprocess.Popen[bytes]:
    """Start the process that plugs all hosts in, and the machine itself."""
    own = hosts[0].namespace.partition("-")[0]
    network = hosts[0].address.rpartition(".")[0]
    ports: list[dict[str, Any]] = [
        asdict(switch.Port(name=host.name, device=f"{own}n{number}", namespace=host.namespace, address=host.address))
        for number, host in enumerate(hosts, start=1)
    ]
    here = switch.Port(name=HERE, device=f"{own}n0", namespace="", address=f"{network}.{_HERE_NUMBER}")
    plan = {"ports": [asdict(here), *ports], "defaults": defaults.plain(), "seed": seed}
    (place / switch.PLAN).write_text(json.dumps(plan))
    with (place / _SWITCH_LOG).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "infra.lab.switch", str(place)], stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True, env=os.environ | {MARK: f"{place}:switch"},
        )  # fmt: skip


def _wait_for_switch(place: Path, child: subprocess.Popen[bytes]) -> None:
    """Wait until all hosts are plugged in. Raises :class:`LabError` with the last words of the switch."""
    log = place / _SWITCH_LOG
    if not wait(lambda: b"ready" in log.read_bytes() or child.poll() is not None, _SWITCH_S) or child.returncode:
        said = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise LabError(f"the switch of the lab did not start: {said}", str(log), "see whether TUN devices work here")


def _free_network() -> str:
    """The first three numbers of a network that this machine does not use. Raises :class:`LabError`."""
    used = {
        ".".join(address.address.split(".")[:3])
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if _is_ipv4(address.address)
    }
    for _ in range(100):
        network = f"10.{_FIRST_NET + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        if network not in used:
            return network
    raise LabError("no network of 10.64.0.0/10 is free", "addresses of this machine", "end other labs")


def _is_ipv4(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).version == 4
    return False


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def _sshd() -> str:
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or ""
