"""Problems of a start, in words for the person who starts the node: why the node cannot start (no port, unusable
files), and losses and damage that the node found and went on without."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from reference_broker.access.names import listed
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import store_of
from reference_broker.node.config import ConfigError, Member, NodeConfig
from reference_broker.storage.errors import MORE_FILES, START_BLANK, lacks_files
from reference_broker.storage.findings import StartFinding
from reference_broker.types import GroupId

log = logging.getLogger(__name__)


class StartError(Exception):
    """The configuration is sound, but this machine does not let the node do as it says. ``str()`` is three lines: what,
    where, what to do."""

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(str(ConfigError(what, where, fix)))


@contextmanager
def listening(member: Member, key: str, other: tuple[str, int] | None = None) -> Iterator[tuple[str, int]]:
    """Around what opens the port that the member's ``key`` names, or an ``other`` port (its key and number) at the same
    address; gives the address and the port to listen on. Raises StartError instead of OSError."""
    named, host = member.bound(key)
    key, port = other or (key, getattr(member, key))
    try:
        yield host, port
    except OSError as error:
        what, fix = _cannot_listen(error, named, host, port)
        raise StartError(what, f"{member.name}: {named} {host}, {key} {port}", fix) from error


def _cannot_listen(error: OSError, named: str, host: str, port: int) -> tuple[str, str]:
    """The fault, and the fix; ``named`` is the key that has the host."""
    if isinstance(error, socket.gaierror):
        what = f"the host name {host!r} cannot be resolved: {error.strerror}"
        return what, f"set {named} to an address of this machine, or to a name that it can resolve"
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is taken", "free the port or choose another"
        case errno.EADDRNOTAVAIL | None:  # some event loops try all addresses of a host and tell no number
            behind = ", or bind if others reach the machine at another address" if named.endswith("host") else ""
            fix = f"set {named} to an address of this machine{behind}"
            return f"{host} is no address of this machine", fix
        case errno.EACCES | errno.EPERM:
            what = f"this user may not listen on port {port}"
            return what, "choose a port above 1023, or give the program the right to use this one"
    if lacks_files(error):
        return f"cannot listen on {host}, port {port}: {_reason(error)}", MORE_FILES
    return f"cannot listen on {host}, port {port}: {_reason(error)}", "choose another host or port"


def files_problem(error: OSError, config: NodeConfig) -> StartError:
    """The error for a file or a directory that the node could not use when it opened its log."""
    where = str(error.filename or config.data_dir)
    what = f"the node cannot use its files: {_reason(error)}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StartError(what, where, "make room on the drive")
    if error.errno == errno.EROFS:
        fix = "check its drive (dmesg), unmount the file system, mount it again, and start the node again"
        return StartError(f"{what}, as the kernel mounts it after an error of its drive", where, fix)
    if error.errno == errno.EIO:
        return StartError(what, where, f"mend the drive; if it is lost: {START_BLANK}")
    if lacks_files(error):
        return StartError(what, where, MORE_FILES)
    return StartError(what, where, "make it a directory of this node's own that this user may write to")


def _reason(error: OSError) -> str:
    """The error's text without its number and path: the path stands elsewhere, and the number is no help."""
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))


class StartFindings:
    """Losses and damage that the stores of a node found at its start: one list per store, by the store's name.

    Stores know queues by numbers only. The names come once the node knows the metadata.
    """

    def __init__(self, by_store: Mapping[str, list[StartFinding]]) -> None:
        self.by_store = by_store

    def all(self) -> list[StartFinding]:
        """The findings of all stores."""
        return [finding for findings in self.by_store.values() for finding in findings]

    def tell(self) -> None:
        """Log every finding. The node may wait long until it knows the names of queues, so the numbers must do."""
        for finding in self.all():
            log.error("this start found damage: %s", finding)

    def name_queues(self, records: Iterable[QueueRecord]) -> None:
        """Put the names of queues into the findings, and log each finding that gets a name."""
        if not any(finding.group is not None and not finding.queue for finding in self.all()):
            return
        names: dict[int, str] = {store: listed(record.name) for record in records for store in _stores_of(record)}
        for findings in self.by_store.values():
            for at, finding in enumerate(findings):
                if finding.group is not None and not finding.queue and (name := names.get(finding.group)):
                    findings[at] = named = replace(finding, queue=name)
                    log.error("this start found damage in %s", named)


def _stores_of(record: QueueRecord) -> Iterator[GroupId]:
    """All names that stores have for a queue and its copies."""
    yield record.group
    for since in (record.owner_since, *(mirror.since for mirror in record.mirrors)):
        yield store_of(record.group, since)
