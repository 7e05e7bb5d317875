"""Processes on a host: start processes that outlive a connection, list the running ones, and end all of them.

Every process that is started there carries :data:`MARK` with the host's directory in its environment, and so do its
children. They are found again by this mark, also after the death of their starter. A process is signalled only while
its pid has the start time that it was found with.

What runs on the host is a script that needs Python and nothing else, so processes can be ended where the project is
damaged or was removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.node_process import MARK
from infra.remote.host import RemoteError
from infra.remote.shipping import InstalledProject
from infra.remote.ssh import SshConnection

GRACE_S: Final = 5.0
"""Time in which a process may end by itself after SIGTERM."""
LOGS: Final = "logs"
APART: Final = "links"
"""The name of a process that :func:`send` leaves alone, because it has to undo faults."""
_END_S: Final = 60.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")

_FIND: Final = """
import json, os, signal, subprocess, sys, time
action, directory, *words = sys.argv[1:]
directory = os.path.join(os.path.expanduser("~"), directory)
MARK = b"PERFTEST_BELONGS_TO=" + os.fsencode(directory)
APART = "links"

def start_time(pid):
    # Field 22, counted behind the name, which may have blanks; a process that only waits for its parent has ended.
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])

def of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            carried = file.read().split(bytes(1))
        # A node carries the mark of its cluster, whose directory lies in that of the host.
        marks = [each for each in carried if each == MARK or each.startswith((MARK + b":", MARK + b"/"))]
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            command = file.read().rstrip(bytes(1)).split(bytes(1))
    except OSError:
        return None
    begun = start_time(pid)
    if not marks or begun is None or pid == os.getpid():
        return None
    name = os.fsdecode(marks[0][len(MARK) + 1:]).rpartition(":")[2]
    return {"pid": pid, "start_time": begun, "name": name, "command": [os.fsdecode(each) for each in command]}

def running():
    return list(filter(None, map(of, sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))))

def send(process, *signals):
    for number in signals:
        try:
            if start_time(process["pid"]) == process["start_time"]:
                os.kill(process["pid"], number)
        except ProcessLookupError:
            pass

def left(processes, seconds):
    until = time.monotonic() + seconds
    while True:
        processes = [each for each in processes if start_time(each["pid"]) == each["start_time"]]
        if not processes or time.monotonic() > until:
            return processes
        time.sleep(0.02)

def end(grace_s):
    found = running()
    for each in found:
        send(each, signal.SIGTERM, signal.SIGCONT)
    for each in left(found, grace_s):
        send(each, signal.SIGKILL)
    return {"ended": found, "left": left(found, grace_s)}

def signalled(number):
    # Until no new process turns up: one that runs may start another one meanwhile.
    told = {}
    while fresh := [each for each in running() if (each["pid"], each["start_time"]) not in told]:
        for each in fresh:
            if each["name"] != APART:
                send(each, number)
            told[each["pid"], each["start_time"]] = each
    return list(told.values())

def start(name, command):
    logs = os.path.join(directory, "logs")
    os.makedirs(logs, exist_ok=True)
    with open(os.path.join(logs, name + ".log"), "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=directory
        )
    return {"pid": process.pid, "start_time": start_time(process.pid) or 0, "name": name, "command": command}

def tails(octets):
    found = {}
    logs = os.path.join(directory, "logs")
    for path in sorted(os.path.join(above, name) for above, _, names in os.walk(logs) for name in names):
        with open(path, "rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - octets, 0))
            found[os.path.relpath(path, logs)] = log.read().decode(errors="replace")
    return found

print()
if action == "running":
    print(json.dumps(running()))
elif action == "end":
    print(json.dumps(end(float(words[0]))))
elif action == "signal":
    print(json.dumps(signalled(getattr(signal, words[0]))))
elif action == "start":
    print(json.dumps(start(words[0], words[1:])))
elif action == "logs":
    print(json.dumps(tails(int(words[0]))))
"""
assert MARK in _FIND and f'"{APART}"' in _FIND


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcess:
    """A process on a host. ``name`` is its name at the start; empty for a process that lives as long as its
    connection."""

    pid: int
    start_time: int
    name: str
    command: tuple[str, ...]


def start(
    connection: SshConnection, installed: InstalledProject, name: str, module: str, *arguments: str
) -> HostProcess:
    """Start a module of the project so that it outlives the connection, with its output in ``logs/NAME.log``. Raises
    RemoteError; ValueError for a name that could not be part of a path."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a process")
    words = installed.command(module, *arguments, name=name)
    return _process(_ask(connection, "start", str(installed.directory), name, *words))


def running(connection: SshConnection) -> list[HostProcess]:
    """All processes of ours on a host. Raises RemoteError."""
    return [_process(each) for each in _ask(connection, "running", connection.host.directory)]


def end(connection: SshConnection, grace_s: float = GRACE_S) -> list[HostProcess]:
    """End all processes of ours on a host, paused or not: with SIGTERM, and after ``grace_s`` with SIGKILL. Returns the
    processes that ran. Raises RemoteError, also if one does not end."""
    answer = _ask(connection, "end", connection.host.directory, str(grace_s), timeout_s=_END_S + 2 * grace_s)
    if answer["left"]:
        what = f"a process does not end: {' '.join(answer['left'][0]['command'])[:200]}"
        where = f"host {connection.host.name}, pid {answer['left'][0]['pid']}"
        raise RemoteError(what, where, "its drive may hang, or it is another user's: see there")
    return [_process(each) for each in answer["ended"]]


def send(connection: SshConnection, what: str) -> list[HostProcess]:
    """``kill``, ``pause`` or ``resume`` all processes of ours on a host, without a word to them. Returns these
    processes; one with the name :data:`APART` is left alone. Raises RemoteError."""
    signal = {"kill": "SIGKILL", "pause": "SIGSTOP", "resume": "SIGCONT"}[what]
    return [_process(each) for each in _ask(connection, "signal", connection.host.directory, signal)]


def logs(connection: SshConnection, octets: int) -> dict[str, list[str]]:
    """The last whole lines of each log on a host, by the name of the log, from its last ``octets`` octets. Raises
    RemoteError."""
    found: dict[str, str] = _ask(connection, "logs", connection.host.directory, str(octets))
    return {name: _whole_lines(text, octets) for name, text in found.items()}


def _whole_lines(text: str, octets: int) -> list[str]:
    lines = text.splitlines()
    return lines[1:] if len(text.encode()) >= octets and len(lines) > 1 else lines


def command(python: str, action: str, directory: str, *words: str) -> list[str]:
    """The command line on the host; the script comes over stdin."""
    return [python, "-", action, directory, *words]


def _ask(connection: SshConnection, action: str, directory: str, *words: str, timeout_s: float = 60.0) -> Any:
    host = connection.host
    asked: Sequence[str] = command(host.python, action, directory, *words)
    found = connection.run(asked, stdin=_FIND.encode(), timeout_s=timeout_s)
    try:
        return json.loads(found.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        what = f"`{host.python}` does not answer as Python does: {found.last_words!r}"
        raise RemoteError(what, f"host {host.name}", "name its Python (python: /usr/bin/python3.11)") from None


def _process(plain: dict[str, Any]) -> HostProcess:
    return HostProcess(
        pid=plain["pid"], start_time=plain["start_time"], name=plain["name"], command=tuple(plain["command"])
    )
