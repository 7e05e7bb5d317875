"""The origin of a result: the tool, the host, the command. Passwords are replaced before they are recorded."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

import perftest
from perftest.metrics.interval import LOCAL_HOST

_INTERFACES: Final = Path("/sys/class/net")
_PASSWORD: Final = re.compile(r"(?P<before>(?:amqp|http)s?://[^:/@\s,]*:)[^\s,]*(?P<after>@)")


def redact(text: str) -> str:
    """The text with the password of every AMQP or HTTP address in it replaced by ``***``.

    Greedy up to the last ``@``: a password may hold an unescaped one.
    """
    return _PASSWORD.sub(r"\g<before>***\g<after>", text)


def redact_command(command: Sequence[str]) -> list[str]:
    """A command line that may be shown."""
    return [redact(argument) for argument in command]


def tool_facts() -> dict[str, Any]:
    """Which code measured: version, commit (where it runs from a checkout), interpreter."""
    commit = _git("rev-parse", "HEAD")
    return {
        "name": "perftest",
        "version": perftest.__version__,
        "commit": commit,
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None,
        "python": platform.python_version(),
    }


def host_facts(directory: Path) -> dict[str, Any]:
    """This machine; ``filesystem`` is the one that holds ``directory``."""
    return {
        "name": LOCAL_HOST,
        "hostname": socket.gethostname(),
        "cores": os.cpu_count() or 1,
        "cpu": _cpu_model(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "filesystem": filesystem(directory),
        "clock": "CLOCK_MONOTONIC",
        "clock_offset_ns": 0,
        "clock_bound_ns": 0,
        **_network(),
    }


def _network() -> dict[str, int]:
    """The speed of the fastest network interface with a device behind it; nothing if the kernel does not tell. The
    kernel's speed of a tunnel, or of a pair of ends within the kernel, is made up."""
    speeds = [
        of.speed
        for name, of in psutil.net_if_stats().items()
        if of.isup and of.speed > 0 and (_INTERFACES / name / "device").exists()
    ]
    return {"link_bits_per_s": max(speeds) * 1_000_000} if speeds else {}


class HostSampler:
    """Samples this machine's load for ``host.jsonl``, under the ``name`` that the run gives it."""

    def __init__(self, name: str = LOCAL_HOST) -> None:
        self._name = name
        # psutil gives percentages since the call before: this one starts the first interval.
        psutil.cpu_percent(interval=None)
        self._times = psutil.cpu_times()

    def sample(self, t_ns: int) -> dict[str, Any]:
        """A record at Unix time ``t_ns``; percentages are over the time since the sample before, of all cores. Octets
        count from the start of the machine, of all network interfaces except the loopback, and of all drives."""
        before, self._times = self._times, psutil.cpu_times()
        passed = sum(self._times) - sum(before)
        steal = getattr(self._times, "steal", 0.0) - getattr(before, "steal", 0.0)
        return {
            "t_ns": t_ns,
            "host": self._name,
            "cpu_percent": psutil.cpu_percent(interval=None),
            "load1": round(os.getloadavg()[0], 2),
            "steal_percent": round(100 * steal / passed, 1) if passed > 0 else 0.0,
            "memory_available_bytes": psutil.virtual_memory().available,
            **_octets(),
        }


def _octets() -> dict[str, int]:
    """Octets over the network and to the drives of this machine since its start."""
    networks = [of for name, of in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    drives = psutil.disk_io_counters()
    return {
        "rx_bytes": sum(of.bytes_recv for of in networks),
        "tx_bytes": sum(of.bytes_sent for of in networks),
        "disk_read_bytes": drives.read_bytes if drives else 0,
        "disk_write_bytes": drives.write_bytes if drives else 0,
    }


def _git(*arguments: str) -> str | None:
    """The answer of git about the checkout that holds this package; None where there is no checkout."""
    root = Path(perftest.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        # Without optional locks: a git that is ended after its time limit would leave its lock in the checkout.
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def filesystem(directory: Path) -> str:
    """The type of the file system that holds a directory: of those mounted above it, that with the longest path."""
    path = directory.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"
