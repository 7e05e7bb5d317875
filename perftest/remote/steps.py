"""The output of ``--dry-run``: every command on every host, made by the functions that make the real ones. Pure.

Values that are known only during a run have names in capitals: ``SITE`` and ``DIGEST`` follow from the content that is
sent, ``CLUSTER`` is new for each run, and ``FILE`` is each file there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from infra.layout import PlacedLayout
from infra.links.kernel import REMNANTS
from infra.remote import collection, processes, round_trips, shipping, transfer
from infra.remote.host import command_line
from infra.remote.probe import command as probe_command
from infra.remote.shipping import InstalledProject
from perftest.remote import brokers, faults
from perftest.remote.crew import observer_command
from perftest.remote.pipe import worker_command
from perftest.spec.hosts import HostSpec
from perftest.spec.plan import Plan
from perftest.spec.timed_action import ON_HOSTS, ON_LINKS

SCRIPT: Final = "   with a script on stdin"


def of_up(spec: HostSpec) -> list[str]:
    """The steps of ``perftest remote up``."""
    return shipping.steps(spec.python, spec.directory)


def of_down(spec: HostSpec) -> list[str]:
    """The steps of ``perftest remote down``."""
    ending = processes.command(spec.python, "end", spec.directory, str(processes.GRACE_S))
    clusters = brokers.clusters_command(spec.python, spec.directory)
    removing = brokers.remove_command(InstalledProject(spec.python, PurePosixPath(spec.directory), ""), "CLUSTER", spec)
    return [
        _line(ending) + SCRIPT,
        _line(("sh", "-c", REMNANTS)),
        _line(clusters) + "   tells which nodes have left files",
        _line(removing) + "   for each of these",
    ]


def of_check(spec: HostSpec) -> list[str]:
    """The steps of ``perftest remote check``."""
    running = processes.command(spec.python, "running", spec.directory)
    return [_line(probe_command(spec.python)), _line(running) + SCRIPT]


def of_logs(spec: HostSpec, octets: int) -> list[str]:
    """The steps of ``perftest remote logs``."""
    return [_line(processes.command(spec.python, "logs", spec.directory, str(octets))) + SCRIPT]


def of_collect(spec: HostSpec) -> list[str]:
    """The steps of ``perftest remote collect``."""
    folders = " and ".join(f"{spec.directory}/{folder}" for folder in collection.FOLDERS)
    file = PurePosixPath("FILE")
    fetching = (transfer.digest_command(spec.python, file), transfer.tail_command(file, 0))
    return [f"list the files in {folders} over SFTP", *map(_line, fetching)]


def of_node(spec: HostSpec) -> list[str]:
    """The steps that start a broker node."""
    installed = InstalledProject(spec.python, PurePosixPath(spec.directory), "SITE")
    files = [f"put {installed.directory}/CLUSTER/{name}" for name in brokers.FILES]
    return [*files, _line(brokers.start_command(installed, "CLUSTER", spec.name))]


def of_run(spec: HostSpec, plan: Plan, layout: PlacedLayout | None, *, is_node: bool) -> Iterator[str]:
    """The steps of ``perftest remote run``, those at the end of the run last. ``layout`` is the nodes' layout."""
    spec = brokers.placed(spec, layout) if layout is not None and is_node else spec
    yield from of_up(spec)
    installed = InstalledProject(spec.python, PurePosixPath(spec.directory), "SITE")
    yield _line(observer_command(installed, spec.name))
    done = {action.do for action in plan.timeline}
    if done & ON_LINKS and spec.lab is None:
        yield _line(faults.agent_command(installed))
    if is_node:
        mounts = brokers.mounts_of(layout).values() if layout is not None else ()
        yield from (_line(brokers.mount_command(spec.python, drive.of_node(spec.name))) for drive in mounts)
        yield from of_node(spec)
    if spec.is_load:
        yield _line(round_trips.command(installed))
        count = f"for each of {spec.workers} workers" if spec.workers else "for each worker"
        yield f"{_line(worker_command(installed))}   {count} of a group of load"
    if done & ON_HOSTS:
        yield _line(processes.command(spec.python, "signal", spec.directory, "SIGNAL")) + SCRIPT
    if is_node:
        yield _line(brokers.stop_command(installed, "CLUSTER"))
        yield _line(brokers.remove_command(installed, "CLUSTER", spec))


def _line(words: Sequence[str]) -> str:
    """A command as a line; a script among its words is left out."""
    return command_line(["…" if "\n" in word else word for word in words])
