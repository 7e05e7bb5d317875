"""The broker nodes of a run on the hosts with the role ``broker``: started for the run, stopped and removed after it.

The cluster is described here (:mod:`infra.description`). Each host gets the description and the secret, and starts its
own node. Everything that the nodes write lies in directories that bear the name of this cluster alone, so they can be
removed without a look at what else lies there.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra import description
from infra.cluster import DESCRIPTION_FILE, SECRET_FILE, Cluster
from infra.description import Place
from infra.layout import Drive, Layout, directories_elsewhere
from infra.remote import transfer
from infra.remote.host import RemoteError
from infra.remote.shipping import Installed
from perftest.cli.remote.crew import Crew, Member
from perftest.cli.remote.inventory import all_done, on_all
from perftest.spec.hosts import HostSpec

NODE: Final = "infra.host_node"
FILES: Final = (DESCRIPTION_FILE, SECRET_FILE)
"""What a host gets to know of the cluster."""
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_ACT_S: Final = 60.0
_DIRECTORY_OF: Final = {
    "wal": "wal_dir", "segment": "segment_dir", "classic": "classic_dir", "data": "store_dir", "logs": "logs_dir",
}  # fmt: skip
_IS_MOUNT: Final = "import os, sys; sys.exit(not os.path.ismount(sys.argv[1]))"
_REMOVE: Final = "import shutil, sys; [shutil.rmtree(each, ignore_errors=True) for each in sys.argv[1:]]"


class BrokerNodes:
    """The nodes of a cluster over hosts (:class:`perftest.cli.action_target.NodesElsewhere`). ``directory`` is the one
    here that describes the cluster. A node has the name of its host."""

    def __init__(self, directory: Path, members: Mapping[str, Member], identity: str) -> None:
        self.directory = directory
        self._members = members
        self._identity = identity

    def act(self, node: str, action: str) -> dict[str, Any]:
        """``kill``, ``pause``, ``resume`` or ``status`` of a node (:mod:`infra.host_node`). Raises RemoteError."""
        return self._ask(node, action, timeout_s=_ACT_S)

    def start(self, node: str) -> None:
        """Start a node that has ended, with its data, and wait until it is ready. Raises RemoteError."""
        self._ask(node, "start", "--node", node, "--until-ready", timeout_s=_START_S)

    def _ask(self, node: str, action: str, *more: str, timeout_s: float) -> dict[str, Any]:
        member = self._members[node]
        words = [action, "--dir", str(member.installed.directory / self._identity), *more]
        found = member.connection.run(member.installed.command(NODE, *words), timeout_s=timeout_s, check=False)
        if found.status:
            raise _refused(f"{node}: {action}", member, found.stderr.decode(errors="replace"))
        told: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
        return told


@contextlib.contextmanager
def brokers(
    crew: Crew,
    specs: Sequence[HostSpec],
    out: Path,
    say: Callable[[str], None],
    layout: Layout | None = None,
    limits: Mapping[str, int] | None = None,
) -> Iterator[BrokerNodes]:
    """A cluster with a node on each of these hosts, with the drives of a layout and these limits of the nodes. Raises
    HostsError, ClusterError."""
    specs = [placed(spec, layout) for spec in specs] if layout is not None else specs
    mounts = mounts_of(layout) if layout is not None else {}
    began, identity = time.monotonic(), f"perftest-{secrets.token_hex(4)}"
    places = [_place(spec, identity) for spec in specs]
    directories = directories_elsewhere(layout) if layout is not None else None
    described = description.describe(identity, places, directories=directories, limits=limits)
    with _written(described, out) as cluster:
        members = {spec.name: replace(crew.member(spec.name), spec=spec) for spec in specs}
        try:
            all_done(on_all(members, lambda member: _look_at(member, mounts)))
            all_done(on_all(members, lambda member: _start(member, cluster, identity)))
            count = f"{len(specs)} broker node{'s' * (len(specs) > 1)}"
            say(f"{count} ready after {time.monotonic() - began:.1f} s; stopped and removed after the run")
            yield BrokerNodes(Path(cluster.directory), members, identity)
        finally:
            _done, errors = on_all(members, lambda member: _remove(member, identity))
            for error in errors:
                say(f"{error.where}: a node may be left: {error.what}; `perftest remote down` ends it")


@contextlib.contextmanager
def _written(described: Cluster, out: Path) -> Iterator[Cluster]:
    """The cluster, described in a directory of its own here while the run lasts."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hosts-", dir=out) as directory:
        yield description.write(described, Path(directory))


def placed(spec: HostSpec, layout: Layout) -> HostSpec:
    """The host with the directories of the layout's drives. What the inventory says of the host counts more."""
    paths = {drive.name: str(drive.of_node(spec.name)) for drive in layout.with_paths}
    storage = {role: paths[name] for role, name in layout.roles.items() if name in paths}
    return replace(spec, storage={**storage, **spec.storage})


def mounts_of(layout: Layout) -> dict[str, Drive]:
    """The drives of a layout, by name, that have to be mounted on each host."""
    return {drive.name: drive for drive in layout.with_paths if drive.is_mount}


def mount_command(python: str, path: Path) -> list[str]:
    """What fails where no drive is mounted."""
    return [python, "-c", _IS_MOUNT, str(path)]


def _look_at(member: Member, mounts: Mapping[str, Drive]) -> None:
    """See whether drives that have to be mounted are. Raises RemoteError."""
    for name, drive in mounts.items():
        path = drive.of_node(member.spec.name)
        found = member.connection.run(mount_command(member.connection.host.python, path), check=False)
        if found.status:
            fix = "mount the drive there, or write directory: in the layout for a plain directory"
            raise RemoteError(f"drive {name}: {path} is no mount point", f"host {member.spec.name}", fix)


def _place(spec: HostSpec, identity: str) -> Place:
    ports = spec.ports
    return Place(
        name=spec.name,
        address=spec.traffic_address,
        ports=(ports["amqp"], ports["peer"], ports["control"], 0),
        directories={
            _DIRECTORY_OF[role]: str(PurePosixPath(path) / identity / role) for role, path in spec.storage.items()
        },
    )


def start_command(installed: Installed, identity: str, node: str) -> list[str]:
    """What starts a node on its host, and waits until the cluster is ready."""
    words = ["start", "--dir", str(installed.directory / identity), "--node", node, "--until-ready"]
    return installed.command(NODE, *words)


def stop_command(installed: Installed, identity: str) -> list[str]:
    """What stops the node of a host."""
    return installed.command(NODE, "stop", "--dir", str(installed.directory / identity))


def remove_command(installed: Installed, identity: str, spec: HostSpec) -> list[str]:
    """What removes all that the node wrote."""
    storage = {str(PurePosixPath(path) / identity) for path in spec.storage.values()}
    return [installed.python, "-c", _REMOVE, str(installed.directory / identity), *sorted(storage)]


def _start(member: Member, cluster: Cluster, identity: str) -> None:
    """Start the node of a host, and wait until the cluster is ready. Raises RemoteError."""
    directory = member.installed.directory / identity
    transfer.make_directory(member.connection, directory)
    for name in FILES:
        transfer.put_octets(member.connection, (Path(cluster.directory) / name).read_bytes(), directory / name)
    words = start_command(member.installed, identity, member.spec.name)
    found = member.connection.run(words, timeout_s=_START_S, check=False)
    if found.status:
        raise _refused("the node cannot be started", member, found.stderr.decode(errors="replace"))


def _remove(member: Member, identity: str) -> None:
    """Stop the node of a host, and remove what it wrote. Raises RemoteError."""
    words = stop_command(member.installed, identity)
    member.connection.run(words, timeout_s=_STOP_S, check=False)  # it may not have been started
    member.connection.run(remove_command(member.installed, identity, member.spec))


def _refused(what_failed: str, member: Member, said: str) -> RemoteError:
    """The three lines of the host's error, as an error of this command."""
    lines = [line.strip() for line in said.strip().splitlines()]
    last = lines[-1] if lines else ""
    what = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), last)
    place = next((line.removeprefix("at").strip() for line in lines if line.startswith("at ")), "")
    fix = next((line.removeprefix("fix").strip() for line in lines if line.startswith("fix ")), "see its log there")
    where = f"host {member.spec.name}{': ' if place else ''}{place}"
    return RemoteError(f"{what_failed}: {what}", where, fix)
