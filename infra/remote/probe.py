"""The questions to a host before a run: one script, for any Python 3, that needs nothing else and changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.remote.bundle import PROJECT
from infra.remote.host import RemoteError
from infra.remote.shipping import OLDEST_PYTHON
from infra.remote.ssh import SshConnection

PROBE_S: Final = 60.0

_SCRIPT: Final = """
import json, os, platform, resource, shutil, socket, sys, time

if sys.version_info < (3, 6):
    print(json.dumps({"old": list(sys.version_info[:3])}))
    sys.exit()
asked = json.loads(sys.stdin.readline())
directory = os.path.join(os.path.expanduser("~"), asked["directory"])

def above(path):
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path

def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""

def mounted(path):
    best = ("/", "unknown", "")
    for line in read("/proc/mounts").splitlines():
        words = line.split()
        point = words[1].encode().decode("unicode_escape")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = (point, words[2], words[0])
    return best

def place(path):
    there = above(path)
    point, kind, device = mounted(os.path.realpath(there))
    return {
        "path": path, "exists": os.path.isdir(path), "writable": os.access(there, os.W_OK | os.X_OK),
        "free": shutil.disk_usage(there).free, "mount": point, "filesystem": kind, "device": os.stat(there).st_dev,
    }

def taken(address, port):
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""

def has(address):
    # Port 0 is any free port, so only the address can be wrong.
    try:
        family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True

def addresses():
    found, last = [], ""
    for line in read("/proc/net/fib_trie").splitlines():
        if "|-- " in line:
            last = line.rpartition(" ")[2]
        elif "host LOCAL" in line and last not in found and not last.startswith("127."):
            found.append(last)
    return found

def refused(address, port, listens=True):
    # A host without a listener that says so is reached.
    try:
        socket.create_connection((address, port), timeout=3).close()
    except ConnectionRefusedError as error:
        return error.strerror if listens else ""
    except OSError as error:
        return getattr(error, "strerror", None) or str(error) or "no answer"
    return ""

def stolen():
    numbers = [int(word) for word in read("/proc/stat").split("\\n")[0].split()[1:9]]
    return numbers[7] / sum(numbers) if len(numbers) > 7 and sum(numbers) else 0.0

def projects():
    # Each site names its wheels: DIGEST-NAME-VERSION-py3-none-any.whl.
    top, found = os.path.join(directory, "sites"), set()
    for site in os.listdir(top) if os.access(top, os.R_OK) else ():
        try:
            wheels = json.loads(read(os.path.join(top, site, ".complete")))["wheels"]
        except (ValueError, KeyError):
            continue
        found.update(name.split("-")[2] for name in wheels if name.split("-")[1] == asked["project"])
    return sorted(found)

def time_service():
    known = ("chronyd", "ntpd", "systemd-timesyn", "openntpd", "ptp4l")
    running = {read("/proc/%s/comm" % pid) for pid in os.listdir("/proc") if pid.isdigit()}
    return next((name for name in known if name in running), "")

cpu = [line.partition(":")[2].strip() for line in read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
memory = [int(line.split()[1]) * 1024 for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
netem = os.path.join("/lib/modules", platform.release(), "kernel", "net", "sched")
try:
    has_netem = any(name.startswith("sch_netem") for name in os.listdir(netem))
except OSError:
    has_netem = False
print()
print(json.dumps({
    "python": list(sys.version_info[:3]), "machine": platform.machine(), "kernel": platform.release(),
    "libc": "glibc" if platform.libc_ver()[0] == "glibc" else "musl", "hostname": socket.gethostname(),
    "cores": os.cpu_count() or 1, "cpu": cpu[0] if cpu else platform.machine(), "memory": memory[0] if memory else 0,
    "load1": os.getloadavg()[0], "stolen": stolen(), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    "clocksource": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    "place": place(directory), "storage": {role: place(path) for role, path in asked["storage"].items()},
    "has_address": not asked["ports"] or has(asked["address"]), "addresses": addresses(),
    "taken": {port: taken(asked["address"], number) for port, number in asked["ports"].items()},
    "refused": {":".join(map(str, each)): refused(*each) for each in asked["reach"]},
    "cut_off": {":".join(map(str, each)): refused(*each, listens=False) for each in asked["others"]},
    "tc": bool(shutil.which("tc", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")), "netem": has_netem,
    "projects": projects(), "time_service": time_service(), "time": time.time(),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """The objects of a host's probe: its directory, the directories of a broker node by role, the ports that the node
    needs at ``address``, and the brokers that the host must reach. ``others`` are ports of other hosts where nothing
    listens yet."""

    directory: str
    storage: Mapping[str, str]
    address: str
    ports: Mapping[str, int]
    reach: Sequence[tuple[str, int]]
    others: Sequence[tuple[str, int]] = ()


def command(python: str) -> list[str]:
    """The command line on the host; the questions come over stdin."""
    return [python, "-c", _SCRIPT]


def probe(connection: SshConnection, asked: ProbeRequest) -> dict[str, Any]:
    """The facts of a host; ``clock_off_s`` is how far its clock is ahead, known to ``clock_bound_s``. Raises
    RemoteError."""
    host = connection.host
    question = {
        "directory": asked.directory, "storage": dict(asked.storage), "address": asked.address,
        "ports": dict(asked.ports), "reach": [list(each) for each in asked.reach],
        "others": [list(each) for each in asked.others], "project": PROJECT.replace("-", "_"),
    }  # fmt: skip
    before = time.time()
    found = connection.run(command(host.python), stdin=json.dumps(question).encode() + b"\n", timeout_s=PROBE_S)
    after = time.time()
    try:
        facts: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        what = f"`{host.python}` does not answer as Python does: {found.last_words!r}"
        raise RemoteError(what, f"host {host.name}", "name its Python (python: /usr/bin/python3.11)") from None
    if "old" in facts:
        version, oldest = (".".join(map(str, each)) for each in (facts["old"], OLDEST_PYTHON))
        what = f"`{host.python}` is Python {version}, and {oldest} or newer is needed"
        raise RemoteError(what, f"host {host.name}", "install a newer one, and name it (python: /usr/bin/python3.12)")
    middle, bound = (before + after) / 2, (after - before) / 2
    return facts | {"clock_off_s": facts["time"] - middle, "clock_bound_s": bound}
