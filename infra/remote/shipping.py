"""The files put on a host, and the way to run the project there.

Everything lies below the host's directory, which only the user can enter::

    incoming/DIGEST.tar        the wheels that the host does not have, while they are being sent
    wheels/DIGEST-NAME.whl/    a wheel, unpacked, by its content
    sites/DIGEST/              a bundle: what ``PYTHONPATH`` names, with hard links to the files of its wheels
    sites/DIGEST/.complete     its wheels and the octets of its files

Wheels and sites are made beside their places and moved there, so a second start finds all of them or nothing. A site
whose files have other octets than it says (the host lost its power) is made again. Nothing is put into the host's
Python, and no package index is asked: Python itself is enough. Sites that were unused for a day, and that no process
runs from, are removed, and so are wheels that are in no site.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra.node_process import MARK
from infra.remote import transfer
from infra.remote.bundle import Bundle, HostKind
from infra.remote.host import RemoteError, command_line
from infra.remote.ssh import SshConnection

OLDEST_PYTHON: Final = (3, 11)
_ROOM_FACTOR: Final = 5
"""Room that a bundle takes, as a multiple of its own octets: the wheels, and the files in them."""
_UNPACK_S: Final = 600.0

_COMMON: Final = """
import fcntl, hashlib, json, os, platform, shutil, sys, tarfile, time, zipfile

DAY_S = 24 * 3600

def octets_below(top):
    # Compiled files come later, and are no part of a site.
    return sum(
        os.stat(os.path.join(folder, name)).st_size
        for folder, folders, names in os.walk(top)
        for name in (names if not folder.endswith("__pycache__") else ())
        if name != ".complete"
    )

def content_of(site):
    try:
        with open(os.path.join(site, ".complete")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None

def is_whole(site):
    content = content_of(site)
    return content is not None and octets_below(site) == content["octets"]
"""

_LOOK: Final = (
    _COMMON
    + """
if sys.version_info < (3, 11):  # what follows is for those that can take part
    print(json.dumps({"python": list(sys.version_info[:3])}))
    sys.exit()
directory = os.path.join(os.path.expanduser("~"), sys.argv[1])
os.makedirs(directory, 0o700, exist_ok=True)
os.chmod(directory, 0o700)
for name in ("incoming", "wheels", "sites"):
    os.makedirs(os.path.join(directory, name), exist_ok=True)
def names(of):
    return sorted(name for name in os.listdir(os.path.join(directory, of)) if not name.startswith("."))
libc, libc_version = platform.libc_ver()
print(json.dumps({
    "directory": directory, "python": list(sys.version_info[:3]), "machine": platform.machine(),
    "libc": "glibc" if libc == "glibc" else "musl",
    "libc_version": [int(part) for part in libc_version.split(".") if part.isdigit()],
    "free": shutil.disk_usage(directory).free, "wheels": names("wheels"),
    "sites": [name for name in names("sites") if is_whole(os.path.join(directory, "sites", name))],
}))
"""
)
"""Run on the host by any Python, 2 included: makes its directory, and tells the host's facts and content."""

_UNPACK: Final = (
    _COMMON
    + """
directory, site, pack, *wheels = sys.argv[1:]
place = lambda *names: os.path.join(directory, *names)
lock = open(place(".lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)  # of two who come at the same time, the second finds what the first has made

def beside(*names):
    # A place to make a thing in; what somebody left there who was killed goes.
    path = place(*names[:-1], ".new-" + names[-1])
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path

def unpack(name, file):
    octets = file.read()
    if hashlib.sha256(octets).hexdigest() != name.partition("-")[0]:
        os.remove(place("incoming", pack))
        sys.exit("%s was damaged on its way, and was removed" % name)
    if not os.path.isdir(place("wheels", name)):
        new = beside("wheels", name)
        file.seek(0)
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(new)
        os.rename(new, place("wheels", name))

def link(name, new):
    top = place("wheels", name)
    for folder, folders, names in os.walk(top):
        to = os.path.join(new, os.path.relpath(folder, top))
        os.makedirs(to, exist_ok=True)
        for each in names:
            try:
                os.link(os.path.join(folder, each), os.path.join(to, each))
            except FileExistsError:
                sys.exit("two wheels have a file %s" % each)
            except OSError:  # a file system without hard links
                shutil.copyfile(os.path.join(folder, each), os.path.join(to, each))

def make_site():
    new = beside("sites", site)
    for name in wheels:
        link(name, new)
    with open(os.path.join(new, ".complete"), "w") as file:
        json.dump({"wheels": wheels, "octets": octets_below(new)}, file)
    shutil.rmtree(place("sites", site), ignore_errors=True)
    os.rename(new, place("sites", site))

def is_used(path):
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if os.fsencode(path) in file.read():
                    return True
        except OSError:
            pass
    return False

def is_old(path):
    return os.stat(path).st_mtime < time.time() - DAY_S

def tidy():
    kept = set(wheels)
    for name in os.listdir(place("sites")):
        path = place("sites", name)
        content = content_of(path)
        if name != site and is_old(path) and not is_used(path):
            shutil.rmtree(path, ignore_errors=True)
        elif content is not None:
            kept.update(content["wheels"])
    for name in os.listdir(place("wheels")):
        if name not in kept and is_old(place("wheels", name)):
            shutil.rmtree(place("wheels", name), ignore_errors=True)
    for name in os.listdir(place("incoming")):
        if name == pack or is_old(place("incoming", name)):
            os.remove(place("incoming", name))

if pack:
    with tarfile.open(place("incoming", pack)) as sent:
        for member in sent:
            if member.name not in wheels or not member.isfile():
                sys.exit("%s does not belong here" % member.name)
            unpack(member.name, sent.extractfile(member))
missing = [name for name in wheels if not os.path.isdir(place("wheels", name))]
if missing:
    sys.exit("%s was removed meanwhile: start again" % missing[0])
if not is_whole(place("sites", site)):
    make_site()
os.utime(place("sites", site))
tidy()
"""
)
"""Run on the host: makes a site of the sent wheels and of the wheels that are there."""


@dataclass(frozen=True, slots=True)
class InstalledProject:
    """The project on a host. ``directory`` is absolute."""

    python: str
    directory: PurePosixPath
    site: str

    def command(self, module: str, *arguments: str, name: str = "") -> list[str]:
        """The command that runs a module of the project there, as a process of this ``name`` if it has one."""
        path = self.directory / "sites" / self.site
        marked = f"{MARK}={self.directory}" + (f":{name}" if name else "")  # by which processes are found and ended
        variables = [f"PYTHONPATH={path}", "PYTHONNOUSERSITE=1", "PYTHONSAFEPATH=1", marked]
        return ["env", *variables, self.python, "-m", module, *arguments]


@dataclass(frozen=True, slots=True)
class Shipped:
    """The result of :func:`ship`: the project there, the files sent, and the facts of the host."""

    installed: InstalledProject
    octets: int
    wheels: int
    facts: dict[str, Any]


def steps(python: str, directory: str) -> list[str]:
    """The steps of :func:`ship` on a host, for people; nothing is run."""
    shown, arrived = command_line([python, "-", directory]), f"{directory}/incoming/DIGEST.tar.part"
    return [
        f"{shown}   with a script on stdin: makes the directory, tells Python, processor, room, and what is there",
        f"put {directory}/incoming/DIGEST.tar   the wheels that are not there",
        f"{command_line([python, '-c', '…', arrived])}   tells what has arrived",
        f"{shown} DIGEST DIGEST.tar WHEEL...   with a script on stdin: unpacks them",
    ]


def look(connection: SshConnection) -> dict[str, Any]:
    """The facts and content of the host; its directory exists afterwards. Raises RemoteError."""
    host = connection.host
    found = connection.run([host.python, "-", host.directory], stdin=_LOOK.encode())
    try:
        facts: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        what = f"`{host.python}` does not answer as Python does: {found.last_words!r}"
        raise RemoteError(what, f"host {host.name}", "name its Python (python: /usr/bin/python3.11)") from None
    if tuple(facts["python"]) < OLDEST_PYTHON:
        version, oldest = (".".join(map(str, each)) for each in (facts["python"], OLDEST_PYTHON))
        what = f"`{host.python}` is Python {version}, and {oldest} or newer is needed"
        raise RemoteError(what, f"host {host.name}", "install a newer one, and name it (python: /usr/bin/python3.12)")
    return facts


def ship(connection: SshConnection, bundle_of: Callable[[HostKind], Bundle]) -> Shipped:
    """Put the project on a host, as far as it is not there. ``bundle_of`` gives the bundle of a kind of host. Raises
    RemoteError."""
    facts = look(connection)
    python = facts["python"]
    bundle = bundle_of(HostKind(f"{python[0]}.{python[1]}", facts["machine"], facts["libc"]))
    directory = PurePosixPath(facts["directory"])
    installed = InstalledProject(connection.host.python, directory, bundle.digest)
    if bundle.digest in facts["sites"]:
        return Shipped(installed, 0, 0, facts)
    _check_libc(connection, bundle, facts)
    _check_room(connection, bundle, facts)
    missing = [wheel for wheel in bundle.wheels if wheel.stored_as not in facts["wheels"]]
    sent = _send(connection, bundle.pack(missing), directory) if missing else ("", 0)
    names = [wheel.stored_as for wheel in bundle.wheels]
    words = [connection.host.python, "-", str(directory), bundle.digest, sent[0], *names]
    connection.run(words, stdin=_UNPACK.encode(), timeout_s=_UNPACK_S)
    return Shipped(installed, sent[1], len(missing), facts)


def _send(connection: SshConnection, pack: Path, directory: PurePosixPath) -> tuple[str, int]:
    """Send the wheels that a host does not have as one file: its name there, and the octets that were sent."""
    return pack.name, transfer.put(connection, pack, directory / "incoming" / pack.name)


def _check_libc(connection: SshConnection, bundle: Bundle, facts: dict[str, Any]) -> None:
    has, needed = tuple(facts["libc_version"]), bundle.oldest_libc
    if bundle.kind.libc == "glibc" and has and has < needed:
        has_text, needed_text = (".".join(map(str, each)) for each in (has, needed))
        what = f"the host has glibc {has_text}, and the libraries need {needed_text} or newer"
        fix = "use a newer system there, or install older libraries here: the host gets the versions of this machine"
        raise RemoteError(what, f"host {connection.host.name}", fix)


def _check_room(connection: SshConnection, bundle: Bundle, facts: dict[str, Any]) -> None:
    needed = _ROOM_FACTOR * bundle.octets
    if facts["free"] < needed:
        what = f"{needed / 1e6:,.0f} MB are needed in {facts['directory']}, and {facts['free'] / 1e6:,.0f} MB are free"
        raise RemoteError(what, f"host {connection.host.name}", "make room, or name another directory (directory: …)")
