"""What is put on a host, and how the project is run there.

Everything lies below the host's directory, which only the user can enter::

    wheels/DIGEST-NAME.whl     every wheel that was ever sent, by its content
    sites/DIGEST/              a bundle, unpacked: what ``PYTHONPATH`` names
    sites/DIGEST/.complete     written last: a bundle without it is not used

A bundle is unpacked beside its place and moved there, so a second start finds all of it or nothing. Nothing is put into
the host's Python, and no package index is asked: Python itself is enough.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from infra.remote import transfer
from infra.remote.bundle import Bundle, Kind
from infra.remote.host import RemoteError
from infra.remote.ssh import Connection

OLDEST_PYTHON: Final = (3, 11)
_ROOM_FACTOR: Final = 5
"""A bundle takes so many times its own octets: the wheels, and the files in them."""

_LOOK: Final = """
import json, os, platform, shutil, sys
directory = os.path.join(os.path.expanduser("~"), sys.argv[1])
os.makedirs(directory, 0o700, exist_ok=True)
os.chmod(directory, 0o700)
for name in ("wheels", "sites"):
    os.makedirs(os.path.join(directory, name), exist_ok=True)
def names(of):
    return sorted(os.listdir(os.path.join(directory, of)))
print(json.dumps({
    "directory": directory, "python": list(sys.version_info[:3]), "machine": platform.machine(),
    "libc": "glibc" if platform.libc_ver()[0] == "glibc" else "musl", "free": shutil.disk_usage(directory).free,
    "wheels": [name for name in names("wheels") if name.endswith(".whl")],
    "sites": [name for name in names("sites") if os.path.exists(os.path.join(directory, "sites", name, ".complete"))],
}))
"""
"""Run on the host by any Python 3: makes its directory, and tells what it is and what it has."""

_UNPACK: Final = """
import hashlib, os, shutil, sys, zipfile
directory, site, *wheels = sys.argv[1:]
beside = os.path.join(directory, "sites", ".%s.%d" % (site, os.getpid()))
for name in wheels:
    path = os.path.join(directory, "wheels", name)
    with open(path, "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != name.partition("-")[0]:
            os.remove(path)
            sys.exit("%s is damaged, and was removed" % path)
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(beside)
open(os.path.join(beside, ".complete"), "w").close()
target = os.path.join(directory, "sites", site)
if os.path.isdir(target) and not os.path.exists(os.path.join(target, ".complete")):
    shutil.rmtree(target)
try:
    os.rename(beside, target)
except OSError:
    shutil.rmtree(beside)
    if not os.path.exists(os.path.join(target, ".complete")):
        raise
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """The project on a host. ``directory`` is absolute."""

    python: str
    directory: PurePosixPath
    site: str

    def command(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module of the project there."""
        path = self.directory / "sites" / self.site
        variables = [f"PYTHONPATH={path}", "PYTHONNOUSERSITE=1", "PYTHONSAFEPATH=1"]
        return ["env", *variables, self.python, "-m", module, *arguments]


@dataclass(frozen=True, slots=True)
class Shipped:
    """What :func:`ship` did: the project there, what was sent, and what the host is."""

    installed: Installed
    octets: int
    wheels: int
    facts: dict[str, Any]


def look(connection: Connection) -> dict[str, Any]:
    """What the host is and has; its directory exists afterwards. Raises RemoteError."""
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


def ship(connection: Connection, bundle_of: Callable[[Kind], Bundle]) -> Shipped:
    """Put the project on a host, as far as it is not there. ``bundle_of`` gives the bundle of a kind of host. Raises
    RemoteError."""
    facts = look(connection)
    python = facts["python"]
    bundle = bundle_of(Kind(f"{python[0]}.{python[1]}", facts["machine"], facts["libc"]))
    directory = PurePosixPath(facts["directory"])
    installed = Installed(connection.host.python, directory, bundle.digest)
    if bundle.digest in facts["sites"]:
        return Shipped(installed, 0, 0, facts)
    missing = [wheel for wheel in bundle.wheels if wheel.stored_as not in facts["wheels"]]
    _check_room(connection, bundle, facts)
    octets = sum(transfer.put(connection, wheel.path, directory / "wheels" / wheel.stored_as) for wheel in missing)
    names = [wheel.stored_as for wheel in bundle.wheels]
    words = [connection.host.python, "-", str(directory), bundle.digest, *names]
    connection.run(words, stdin=_UNPACK.encode(), timeout_s=600.0)
    return Shipped(installed, octets, len(missing), facts)


def _check_room(connection: Connection, bundle: Bundle, facts: dict[str, Any]) -> None:
    needed = _ROOM_FACTOR * bundle.octets
    if facts["free"] < needed:
        what = f"{needed / 1e6:,.0f} MB are needed in {facts['directory']}, and {facts['free'] / 1e6:,.0f} MB are free"
        raise RemoteError(what, f"host {connection.host.name}", "make room, or name another directory (directory: …)")
