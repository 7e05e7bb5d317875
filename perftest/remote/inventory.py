"""From the inventory to hosts that can be reached, and work that is done on all of them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from infra.remote.host import RemoteError, RemoteHost
from perftest.errors import HelpfulError
from perftest.exits import CliError, Exit
from perftest.spec.hosts import HostSpec, Jump

if TYPE_CHECKING:
    from infra.remote.ssh import SshConnection

AT_ONCE: Final = 32
"""Number of hosts that are worked on at the same time."""

_P = TypeVar("_P")
_R = TypeVar("_R")


class HostsError(HelpfulError):
    """Some hosts could not do what was asked for. The error tells all of them."""

    code = Exit.RUN_ERROR

    def __init__(self, errors: Sequence[RemoteError]) -> None:
        super().__init__(errors[0].what, errors[0].where, errors[0].fix)
        self.errors = errors

    def lines(self) -> str:
        """The three lines of each error."""
        return "\n".join(error.lines() for error in self.errors)


def reached(host: HostSpec) -> RemoteHost:
    """How a host of the inventory is reached."""
    return RemoteHost(
        name=host.name,
        address=host.address,
        port=host.port,
        user=host.user,
        key=_path(host.key),
        known_hosts=_path(host.known_hosts),
        jump=_jump(host.name, host.jump) if host.jump is not None else None,
        python=host.python,
        directory=host.directory,
    )


def _jump(name: str, jump: Jump) -> RemoteHost:
    return RemoteHost(
        name=f"{jump.address} (jump of {name})", address=jump.address, port=jump.port, user=jump.user,
        key=_path(jump.key), known_hosts=_path(jump.known_hosts),
    )  # fmt: skip


def _path(text: str | None) -> Path | None:
    return Path(text) if text is not None else None


def chosen(hosts: Sequence[HostSpec], only: Sequence[str]) -> tuple[HostSpec, ...]:
    """The hosts with these names; all of them if no name is given. Raises CliError."""
    for name in only:
        if name not in {host.name for host in hosts}:
            known = ", ".join(host.name for host in hosts)
            raise CliError(f"there is no host {name!r}", "--host", f"use one of {known}", Exit.USAGE)
    return tuple(host for host in hosts if not only or host.name in only)


def connect_all(hosts: Sequence[HostSpec]) -> dict[str, SshConnection]:
    """A connection to each host, by name. Raises HostsError with all hosts that cannot be reached."""
    done, errors = on_all({host.name: host for host in hosts}, _connected)
    if errors:
        close_all(done)
        raise HostsError(errors)
    return done


def on_reachable(
    hosts: Sequence[HostSpec], work: Callable[[SshConnection], _R]
) -> tuple[dict[str, _R], list[RemoteError]]:
    """Do work on every host that can be reached, at the same time: a host that is gone does not stop the others. The
    results by name, and the errors of the other hosts."""

    def connected(host: HostSpec) -> _R:
        with _connected(host) as connection:
            return work(connection)

    return on_all({host.name: host for host in hosts}, connected)


def _connected(host: HostSpec) -> SshConnection:
    # paramiko is an extra, and takes a while to import: help needs no connection.
    from infra.remote.ssh import connect

    return connect(reached(host))


def close_all(connections: Mapping[str, SshConnection]) -> None:
    """Close connections."""
    for connection in connections.values():
        connection.close()


def printable(line: str) -> str:
    """A line of another machine, without what would steer the terminal."""
    return "".join(each if each.isprintable() or each == "\t" else "\ufffd" for each in line)


def on_all(places: Mapping[str, _P], work: Callable[[_P], _R]) -> tuple[dict[str, _R], list[RemoteError]]:
    """Do work on all hosts at the same time: the results by name, and the errors of the other hosts."""
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(places) or 1)) as pool:
        tasks = {name: pool.submit(work, place) for name, place in places.items()}
    errors: list[RemoteError] = []
    done: dict[str, _R] = {}
    for name, task in tasks.items():
        try:
            done[name] = task.result()
        except RemoteError as error:
            errors.append(error)
    return done, errors


def all_done(found: tuple[dict[str, _R], list[RemoteError]]) -> dict[str, _R]:
    """The results, where all hosts have one. Raises HostsError."""
    done, errors = found
    if errors:
        raise HostsError(errors)
    return done
