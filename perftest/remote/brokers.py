"""The broker nodes on the hosts with the role ``broker``: started for a run, and stopped and removed after it; or
started by ``perftest remote up``, and there for all runs until ``down``.

The cluster is described here (:mod:`infra.description`). Each host gets the description and the secret, and starts its
own node. Everything that the nodes write lies in directories that bear the name of this cluster alone, so they can be
removed without a look at what else lies there. Only a node's log is kept, in ``logs`` of the host's directory.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra import description
from infra.cluster import SECRET_FILE, Cluster, ClusterError
from infra.cluster_file import DESCRIPTION_FILE, STATE_FILE, load, parsed
from infra.description import NodePlace
from infra.layout import PlacedDrive, PlacedLayout, directories_elsewhere
from infra.remote import transfer
from infra.remote.host import RemoteError
from infra.remote.processes import LOGS
from infra.remote.shipping import InstalledProject
from infra.remote.ssh import SshConnection
from perftest.remote.crew import Crew, CrewHost
from perftest.remote.inventory import all_done, on_all
from perftest.spec.hosts import HostSpec

NODE: Final = "infra.host_node"
FILES: Final = (DESCRIPTION_FILE, SECRET_FILE)
"""Files of the cluster that a host gets."""
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_REMOVE_S: Final = 120.0
_ACT_S: Final = 60.0
_DIRECTORY_OF: Final = {
    "wal": "wal_dir", "segment": "segment_dir", "classic": "classic_dir", "data": "store_dir", "logs": "logs_dir",
}  # fmt: skip
_IS_MOUNT: Final = "import os, sys; sys.exit(not os.path.ismount(sys.argv[1]))"
_KEPT_LOGS: Final = 20
"""Number of former clusters whose logs stay on a host; with a new one, the oldest goes."""
_GONE_S: Final = 30.0
"""Time for which a process that was killed may go on writing: a write that hangs in a drive ends first."""
_REMOVE: Final = f"""
import os, shutil, sys, time
kept, log, *directories = map(os.path.realpath, sys.argv[1:])
of_cluster = os.path.dirname(kept)
if os.path.exists(log) and os.path.dirname(log) != kept:
    os.makedirs(kept, exist_ok=True)
    shutil.move(log, kept)
directories = [each for each in directories if each != of_cluster]
until = time.monotonic() + {_GONE_S}
while left := [each for each in directories if os.path.lexists(each)]:
    for each in left:
        shutil.rmtree(each, ignore_errors=time.monotonic() < until)
        time.sleep(0.05 * os.path.lexists(each))
above = os.path.dirname(of_cluster)
former = [each for each in os.scandir(above) if each.name.startswith("perftest-")] if os.path.isdir(above) else []
for entry in sorted(former, key=lambda entry: entry.stat().st_mtime)[:-{_KEPT_LOGS}]:
    shutil.rmtree(entry.path, ignore_errors=True)
"""


_CLUSTERS: Final = f"""
import json, os, sys
top = os.path.join(os.path.expanduser("~"), sys.argv[1])
for each in sorted(os.scandir(top) if os.path.isdir(top) else [], key=lambda entry: entry.name):
    kept = [os.path.join(each.path, name) for name in ("{STATE_FILE}", "{DESCRIPTION_FILE}")]
    for path in [path for path in kept if each.name.startswith("perftest-") and os.path.exists(path)][:1]:
        with open(path) as file:
            print(json.dumps(dict(directory=each.path, text=file.read())))
"""


class BrokerNodes:
    """The nodes of a cluster over hosts (:class:`perftest.actions.action_target.NodesElsewhere`). ``directory`` is the
    one here that describes the cluster. A node has the name of its host."""

    def __init__(self, directory: Path, members: Mapping[str, CrewHost], identity: str) -> None:
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
    layout: PlacedLayout | None = None,
    limits: Mapping[str, int] | None = None,
) -> Iterator[BrokerNodes]:
    """A cluster with a node on each of these hosts, with the drives of a layout and these limits of the nodes. Raises
    HostsError, ClusterError."""
    began = time.monotonic()
    members = {spec.name: replace(crew.member(spec.name), spec=_with(layout, spec)) for spec in specs}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hosts-", dir=out) as directory:
        cluster = described(members, Path(directory), layout, limits)
        try:
            start_all(members, cluster, layout)
            say(f"{_counted(members)} ready after {time.monotonic() - began:.1f} s; stopped and removed after the run")
            yield BrokerNodes(Path(cluster.directory), members, cluster.cluster)
        finally:
            _done, errors = on_all(members, lambda member: _remove(member, cluster.cluster))
            for error in errors:
                say(f"{error.where}: a node may be left: {error.what}; `perftest remote down` ends it")


def described(
    members: Mapping[str, CrewHost],
    directory: Path,
    layout: PlacedLayout | None,
    limits: Mapping[str, int] | None = None,
) -> Cluster:
    """A new cluster with a node on each of these hosts, described in a directory here. Raises ClusterError."""
    identity = f"perftest-{secrets.token_hex(4)}"
    places = [_place(member, identity) for member in members.values()]
    directories = directories_elsewhere(layout) if layout is not None else None
    return description.write(description.describe(identity, places, directories=directories, limits=limits), directory)


def start_all(members: Mapping[str, CrewHost], cluster: Cluster, layout: PlacedLayout | None) -> None:
    """Start the node of each host, and wait until all are ready. Raises HostsError."""
    mounts = mounts_of(layout) if layout is not None else {}
    all_done(on_all(members, lambda member: _look_at(member, mounts)))
    all_done(on_all(members, lambda member: _start(member, cluster, cluster.cluster)))


def _with(layout: PlacedLayout | None, spec: HostSpec) -> HostSpec:
    return placed(spec, layout) if layout is not None else spec


def _counted(members: Mapping[str, CrewHost]) -> str:
    return f"{len(members)} broker node{'s' * (len(members) > 1)}"


# Nodes that stay


def place_of(inventory: Path) -> Path:
    """The description of the nodes that ``perftest remote up`` started: beside the inventory."""
    return inventory.with_suffix(".cluster")


def standing(inventory: Path) -> Cluster | None:
    """The cluster that ``perftest remote up`` started for an inventory. Raises ClusterError."""
    place = place_of(inventory)
    return load(place) if (place / DESCRIPTION_FILE).exists() else None


def stay(inventory: Path, members: Mapping[str, CrewHost], layout: PlacedLayout | None) -> str:
    """Start nodes that stay until ``perftest remote down``; what was done, in words. A cluster that is there is started
    where its nodes have ended. Raises HostsError, ClusterError."""
    began, there = time.monotonic(), standing(inventory)
    if there is not None:
        if layout is not None:
            what = "these nodes have their layout already"
            fix = "end them first (perftest remote down), or leave out --layout"
            raise ClusterError(what, str(place_of(inventory)), fix)
        _check_same(there, list(members), inventory)
        start_all(members, there, None)
        return f"{_counted(members)} ready after {time.monotonic() - began:.1f} s"
    members = {name: replace(member, spec=_with(layout, member.spec)) for name, member in members.items()}
    directory = place_of(inventory)
    directory.mkdir(mode=transfer.PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    cluster = described(members, directory, layout)
    try:
        start_all(members, cluster, layout)
    except BaseException:
        on_all(members, lambda member: _remove(member, cluster.cluster))
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return f"{_counted(members)} ready after {time.monotonic() - began:.1f} s; they stay until `perftest remote down`"


def found(inventory: Path, crew: Crew, names: Sequence[str]) -> BrokerNodes | None:
    """The nodes that stay, for a run. Raises ClusterError if they are on other hosts."""
    cluster = standing(inventory)
    if cluster is None:
        return None
    _check_same(cluster, names, inventory)
    return BrokerNodes(Path(cluster.directory), {name: crew.member(name) for name in names}, cluster.cluster)


def remove_all_written(connection: SshConnection) -> None:
    """Remove the files of all nodes of a host except their logs, once the nodes have ended: nodes that ``up`` started,
    and nodes of a run whose command was killed. Raises RemoteError."""
    host = connection.host
    for directory, cluster in _clusters(connection):
        node = next((each for each in cluster.nodes if each.name == host.name), None)
        if node is not None:
            paths = [directory / path for path in node.paths().values()]
            named = {above for path in paths for above in path.parents if above.name == cluster.cluster}
            log = directory / node.log_file
            words = _remove_words(host.python, directory.parent, cluster.cluster, named, log)
            connection.run(words, timeout_s=_REMOVE_S)


def _clusters(connection: SshConnection) -> list[tuple[PurePosixPath, Cluster]]:
    """The clusters that a host knows, with their directories there; without one whose file cannot be read, which stays
    there. Raises RemoteError."""
    found = connection.run(clusters_command(connection.host.python, connection.host.directory))
    clusters = []
    for line in found.stdout.splitlines():
        with contextlib.suppress(ClusterError, ValueError, KeyError, TypeError):  # a login may greet
            told = json.loads(line)
            clusters.append(
                (PurePosixPath(told["directory"]), parsed(told["text"], told["directory"], "see that host"))
            )
    return clusters


def clusters_command(python: str, directory: str) -> list[str]:
    """The command that tells the clusters that a host knows."""
    return [python, "-c", _CLUSTERS, directory]


def forget(inventory: Path) -> None:
    """The nodes that stayed are gone from every host."""
    shutil.rmtree(place_of(inventory))


def _check_same(cluster: Cluster, names: Sequence[str], inventory: Path) -> None:
    known = [node.name for node in cluster.nodes]
    if sorted(known) != sorted(names):
        what = f"the nodes that `perftest remote up` started are on {', '.join(known)}, not on {', '.join(names)}"
        raise ClusterError(what, str(place_of(inventory)), "end them first: perftest remote down, with all hosts")


def placed(spec: HostSpec, layout: PlacedLayout) -> HostSpec:
    """The host with the directories of the layout's drives. The inventory takes precedence."""
    paths = {drive.name: str(drive.of_node(spec.name)) for drive in layout.with_paths}
    storage = {role: paths[name] for role, name in layout.roles.items() if name in paths}
    return replace(spec, storage={**storage, **spec.storage})


def mounts_of(layout: PlacedLayout) -> dict[str, PlacedDrive]:
    """The drives of a layout, by name, that have to be mounted on each host."""
    return {drive.name: drive for drive in layout.with_paths if drive.is_mount}


def mount_command(python: str, path: Path) -> list[str]:
    """The command that fails if no drive is mounted."""
    return [python, "-c", _IS_MOUNT, str(path)]


def _look_at(member: CrewHost, mounts: Mapping[str, PlacedDrive]) -> None:
    """See whether drives that have to be mounted are. Raises RemoteError."""
    for name, drive in mounts.items():
        path = drive.of_node(member.spec.name)
        found = member.connection.run(mount_command(member.connection.host.python, path), check=False)
        if found.status:
            fix = "mount the drive there, or write directory: in the layout for a plain directory"
            raise RemoteError(f"drive {name}: {path} is no mount point", f"host {member.spec.name}", fix)


def _place(member: CrewHost, identity: str) -> NodePlace:
    spec, ports = member.spec, member.spec.ports
    directories = {
        _DIRECTORY_OF[role]: str(PurePosixPath(path) / identity / role) for role, path in spec.storage.items()
    }
    logs = str(_logs_of(member.installed.directory, identity, spec.storage))
    return NodePlace(
        name=spec.name,
        address=spec.traffic_address,
        ports=(ports["amqp"], ports["peer"], ports["control"], 0),
        directories={**directories, "logs_dir": logs},
    )


def start_command(installed: InstalledProject, identity: str, node: str) -> list[str]:
    """The command that starts a node on its host, and waits until the cluster is ready."""
    words = ["start", "--dir", str(installed.directory / identity), "--node", node, "--until-ready"]
    return installed.command(NODE, *words)


def stop_command(installed: InstalledProject, identity: str) -> list[str]:
    """The command that stops the node of a host."""
    return installed.command(NODE, "stop", "--dir", str(installed.directory / identity))


def remove_command(installed: InstalledProject, identity: str, spec: HostSpec) -> list[str]:
    """The command that removes the node's files except its log."""
    named = {PurePosixPath(path) / identity for path in spec.storage.values()}
    of_cluster = _logs_of(installed.directory, identity, spec.storage)
    return _remove_words(installed.python, installed.directory, identity, named, of_cluster / spec.name / "node.log")


def _logs_of(directory: PurePosixPath, identity: str, storage: Mapping[str, str]) -> PurePosixPath:
    """The directory of the logs of a cluster's nodes on a host while they run."""
    return PurePosixPath(storage["logs"]) / identity / "logs" if "logs" in storage else directory / LOGS / identity


def _remove_words(
    python: str, directory: PurePosixPath, identity: str, named: Collection[PurePosixPath], log: PurePosixPath
) -> list[str]:
    """``named`` are the directories that bear the name of the cluster, ``log`` is the file of the node."""
    kept = directory / LOGS / identity / log.parent.name
    return [python, "-c", _REMOVE, str(kept), str(log), *sorted(map(str, {directory / identity, *named}))]


def _start(member: CrewHost, cluster: Cluster, identity: str) -> None:
    """Start the node of a host, and wait until the cluster is ready. Raises RemoteError."""
    directory = member.installed.directory / identity
    transfer.make_directory(member.connection, directory)
    for name in FILES:
        transfer.put_octets(member.connection, (Path(cluster.directory) / name).read_bytes(), directory / name)
    words = start_command(member.installed, identity, member.spec.name)
    found = member.connection.run(words, timeout_s=_START_S, check=False)
    if found.status:
        raise _refused("the node cannot be started", member, found.stderr.decode(errors="replace"))


def _remove(member: CrewHost, identity: str) -> None:
    """Stop the node of a host, and remove its files. Raises RemoteError."""
    words = stop_command(member.installed, identity)
    try:
        member.connection.run(words, timeout_s=_STOP_S, check=False)  # it may not have been started
    finally:
        member.connection.run(remove_command(member.installed, identity, member.spec), timeout_s=_REMOVE_S)


def _refused(what_failed: str, member: CrewHost, said: str) -> RemoteError:
    """The three lines of the host's error, as an error of this command."""
    lines = [line.strip() for line in said.strip().splitlines()]
    last = lines[-1] if lines else ""
    what = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), last)
    place = next((line.removeprefix("at").strip() for line in lines if line.startswith("at ")), "")
    fix = next((line.removeprefix("fix").strip() for line in lines if line.startswith("fix ")), "see its log there")
    where = f"host {member.spec.name}{': ' if place else ''}{place}"
    return RemoteError(f"{what_failed}: {what}", where, fix)
