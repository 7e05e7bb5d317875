"""The switch between the hosts of a lab: one process, which holds a TUN device in the namespace of each host.

The process reads packets, asks :class:`~infra.lab.switch_model.SwitchModel` when they leave, and keeps them in a heap
until then. A user who may enter the directory of the lab controls the links over the unix socket there, with a line of
JSON for a request and one for the answer. The devices go when the process ends.

    python -m infra.lab.switch DIRECTORY
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.lab.switch_model import SwitchModel
from infra.links.settings import LinkError, LinkSettings, Pair
from perftest.errors import HelpfulError

PLAN: Final = "switch.json"
SOCKET: Final = "switch.sock"
MTU: Final = 9000
"""As between hosts of a rack. Every packet costs the switch the same, so larger ones are faster."""
_TUN: Final = Path("/dev/net/tun")
_SET_DEVICE: Final = 0x400454CA  # linux/if_tun.h, TUNSETIFF
_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000  # IFF_TUN | IFF_NO_PI
_SET_TIMER_SLACK: Final = 29  # linux/prctl.h, PR_SET_TIMERSLACK
_EARLY_NS: Final = 20_000
"""Time by which a wait ends early: waking up takes about as long."""
_BATCH: Final = 64
"""Packets that are read from one host before the others have their turn."""
_HELD_OCTETS_MAX: Final = 256 << 20
"""Packets are lost that would take more memory than this."""
_ANSWER_S: Final = 10.0
_REQUEST_OCTETS_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """The plug of a host. ``namespace`` is empty for the machine itself, from where the lab is used."""

    name: str
    device: str
    namespace: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """A link: its settings, and its traffic since the lab was made."""

    source: str
    target: str
    settings: LinkSettings
    packets: int
    octets: int
    lost: int


class LabLinks:
    """The links of a lab, as a user of the lab sees them. Every call raises :class:`LinkError` for a wrong link or
    setting, and for a switch that does not answer."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, source: str, target: str, **changes: float | bool) -> None:
        """Change one direction: ``delay_ms``, ``jitter_ms``, ``loss`` (0 to 1), ``mbit`` (0: no limit), ``cut``."""
        self.change([(source, target)], changes)

    def change(self, pairs: Sequence[Pair], changes: Mapping[str, float | bool]) -> None:
        """Change settings of several links, at one moment."""
        self._ask({"op": "set", "pairs": [list(pair) for pair in pairs], "changes": dict(changes)})

    def partition(self, side: Sequence[str], other: Sequence[str]) -> None:
        """Cut all links between two sides, at one moment."""
        self.change([pair for a in side for b in other for pair in ((a, b), (b, a))], {"cut": True})

    def heal(self) -> None:
        """Give all links the settings that they had when the lab was made."""
        self._ask({"op": "heal"})

    def show(self) -> list[LinkState]:
        """All links."""
        rows: list[dict[str, Any]] = self._ask({"op": "show"})["links"]
        return [LinkState(**{**row, "settings": LinkSettings(**row["settings"])}) for row in rows]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            with _socket_in(self._directory) as (asking, path):
                asking.settimeout(_ANSWER_S)
                asking.connect(path)
                asking.sendall(json.dumps(request).encode() + b"\n")
                answer: dict[str, Any] = json.loads(_line(asking))
        except (OSError, ValueError) as error:
            fix = "see whether the lab still runs"
            raise LinkError(f"the switch of the lab does not answer: {error}", str(self._directory), fix) from error
        if problem := answer.get("problem"):
            raise LinkError(*problem)
        return answer


class Switch:
    """The process. ``defaults`` are the first settings of all links."""

    def __init__(self, ports: Sequence[Port], defaults: LinkSettings, seed: int) -> None:
        self.model = SwitchModel(tuple(port.name for port in ports), seed)
        self._defaults = defaults
        self._by_file = {_plugged_in(port): port for port in ports}
        self._by_address = {socket.inet_aton(port.address): (file, port) for file, port in self._by_file.items()}
        self._held: list[tuple[int, int, int, bytes]] = []
        self._held_octets = 0
        self._count = 0
        self._heal()

    def serve(self, control: socket.socket) -> None:
        """Pass packets and answer requests, for ever."""
        files = [control.fileno(), *self._by_file]
        while True:
            ready, _, _ = select.select(files, [], [], self._deliver())
            for file in ready:
                if file == control.fileno():
                    self._answer(control)
                else:
                    self._take(file)

    def _take(self, file: int) -> None:
        """Read the packets of a host."""
        source = self._by_file[file].name
        for _ in range(_BATCH):
            try:
                packet = os.read(file, 1 << 16)
            except OSError:  # nothing more, or the device is down
                return
            target = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if target is None or target[0] == file:
                continue  # neighbour discovery of IPv6, multicast, an unknown address
            leaves_ns = self.model.take(source, target[1].name, len(packet), time.monotonic_ns())
            if leaves_ns is None:
                continue
            if self._held_octets > _HELD_OCTETS_MAX:
                self.model.links[source, target[1].name].lost += 1
                continue
            self._count += 1
            self._held_octets += len(packet)
            heapq.heappush(self._held, (leaves_ns, self._count, target[0], packet))

    def _deliver(self) -> float | None:
        """Hand over what is due; gives the seconds until the next packet is, or None if there is none."""
        held = self._held
        while held:
            early_ns = held[0][0] - time.monotonic_ns()
            if early_ns > _EARLY_NS:
                return (early_ns - _EARLY_NS) * 1e-9
            if early_ns > 0:
                continue  # nearly: a wait would take longer
            _, _, file, packet = heapq.heappop(held)
            self._held_octets -= len(packet)
            with contextlib.suppress(OSError):  # its queue is full, or its device is down
                os.write(file, packet)
        return None

    def _answer(self, control: socket.socket) -> None:
        """Answer one request. No user of the socket can stop the switch."""
        with contextlib.suppress(OSError):
            asking, _address = control.accept()
            with asking:
                asking.settimeout(1.0)
                asking.sendall(json.dumps(self._done(_line(asking))).encode() + b"\n")

    def _done(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if request["op"] == "set":
                self._set([(str(a), str(b)) for a, b in request["pairs"]], dict(request["changes"]))
            elif request["op"] == "heal":
                self._heal()
            return {"links": self._rows()} if request["op"] == "show" else {}
        except HelpfulError as error:
            return {"problem": [error.what, error.where, error.fix]}
        except (ValueError, KeyError, TypeError) as error:
            return {"problem": [f"the request cannot be read: {error}", "the switch of the lab", "use infra.lab"]}

    def _set(self, pairs: Sequence[tuple[str, str]], changes: Mapping[str, Any]) -> None:
        """All of the changes or none."""
        for pair in pairs:
            if pair not in self.model.links:
                self.model.set(*pair, {})  # says what is wrong
        LinkSettings().changed(changes)
        for pair in pairs:
            self.model.set(*pair, changes)

    def _heal(self) -> None:
        for link in self.model.links.values():
            link.settings = self._defaults

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"source": source, "target": target, "settings": link.settings.plain()}
            | {"packets": link.packets, "octets": link.octets, "lost": link.lost}
            for (source, target), link in self.model.links.items()
        ]


def impossible() -> str:
    """Why no TUN device can be made here; empty if one can."""
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return f"{_TUN} cannot be opened: {error.strerror}"
    return ""


def _plugged_in(port: Port) -> int:
    """A TUN device with the address of a port, in its namespace; gives its file. Raises OSError, CalledProcessError."""
    file = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(file, _SET_DEVICE, struct.pack("16sH22x", port.device.encode(), _TUN_WITHOUT_HEADER))
    there = ["-n", port.namespace] if port.namespace else []
    if port.namespace:
        _ip("link", "set", port.device, "netns", port.namespace)
        _ip(*there, "link", "set", "lo", "up")
    _ip(*there, "addr", "add", f"{port.address}/24", "dev", port.device)
    _ip(*there, "link", "set", port.device, "mtu", str(MTU), "txqueuelen", "5000", "up")
    return file


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def _socket_in(directory: Path) -> Iterator[tuple[socket.socket, str]]:
    """A unix socket, and the path of the switch's. The path of a socket is short, that of a directory may be long."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            yield made, f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


def _line(stream: socket.socket) -> bytes:
    """The octets up to the end of a line, or up to the end."""
    found = b""
    while not found.endswith(b"\n") and len(found) < _REQUEST_OCTETS_MAX and (more := stream.recv(1 << 16)):
        found += more
    return found


def main(directory: Path) -> None:
    """Run the switch of a lab. Its plan is in the directory; ``ready`` on stdout says that all hosts are plugged in."""
    ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
    plan = json.loads((directory / PLAN).read_text(encoding="utf-8"))
    try:
        switch = Switch([Port(**port) for port in plan["ports"]], LinkSettings(**plan["defaults"]), plan["seed"])
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}: {error.stderr.decode(errors='replace').strip()}")
    except OSError as error:
        sys.exit(str(error))
    with _socket_in(directory) as (control, path):
        control.bind(path)
        control.listen(16)
        control.setblocking(False)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        switch.serve(control)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
