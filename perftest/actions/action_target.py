"""The port through which the actions of a timeline use a cluster, and the local cluster behind it.

A simulated cluster serves the same port (:mod:`perftest.simulation.simulated_target`), so one timeline does the same to
both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from infra import control, local_cluster
from infra.cluster import ClusterError
from perftest.errors import HelpfulError

if TYPE_CHECKING:
    from infra.fuse_drives import FuseDrives
    from infra.local_cluster import Cluster

_ENDS_ASKED: Final = 100
"""Number of times that a host is asked whether a node has ended. Each answer takes a tenth of a second or more."""
_T = TypeVar("_T")


class ActionTarget(Protocol):
    """A cluster that actions are carried out on. All methods but ``now_ns`` may raise ClusterError."""

    place: str
    """The place of the cluster, for error messages."""

    def now_ns(self) -> int:
        """Unix time, on the clock of the run."""

    def node(self, name: str) -> str:
        """The full name of a node."""

    async def leader(self, queue: str) -> str:
        """The name of the node that leads a queue now, or has it alone."""

    async def change_members(self, do: str, queue: str, node: str) -> None:
        """``transfer-leader``, ``add-member`` or ``remove-member``; returns when the change has come true."""

    async def kill(self, node: str) -> None:
        """End the process of a node without a word."""

    async def await_end(self, node: str) -> None:
        """Wait until a node has stopped by itself."""

    async def start(self, node: str) -> None:
        """Start a node that has ended; returns when clients can connect to the node and its queues have leaders."""

    async def pause(self, node: str) -> None:
        """Let a node do nothing; its connections stay open."""

    async def resume(self, node: str) -> None:
        """Let a paused node go on."""

    async def drive(self, node: str, drive: str, do: str, **details: Any) -> None:
        """Change a modelled drive of a node: ``slow`` (``factor``), ``profile`` (``profile``), ``fill``, ``free``,
        ``fail``, or ``restore``."""


class LocalTarget:
    """A local cluster. Its processes and control ports are asked in threads, so that the run goes on meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self.place = cluster.directory
        self._cluster = cluster

    def now_ns(self) -> int:
        """Of the machine."""
        return time.time_ns()

    def node(self, name: str) -> str:
        """As in the file of the cluster."""
        return self._cluster.node(name).name

    async def leader(self, queue: str) -> str:
        """As any node answers."""
        answer = await asyncio.to_thread(local_cluster.change, self._cluster, {"op": "leader", "queue": queue})
        return str(answer["leader"])

    async def change_members(self, do: str, queue: str, node: str) -> None:
        """By a request to any node."""
        await asyncio.to_thread(local_cluster.change, self._cluster, {"op": do, "queue": queue, "node": node})

    async def kill(self, node: str) -> None:
        """With SIGKILL."""
        await asyncio.to_thread(local_cluster.kill, self._cluster, node)

    async def await_end(self, node: str) -> None:
        """For as long as a node may take to stop."""
        await asyncio.to_thread(local_cluster.await_end, self._cluster, node)

    async def start(self, node: str) -> None:
        """With the data that the node has."""
        self._cluster = await asyncio.to_thread(local_cluster.start_node, self._cluster, node)

    async def pause(self, node: str) -> None:
        """With SIGSTOP."""
        await asyncio.to_thread(local_cluster.pause, self._cluster, node)

    async def resume(self, node: str) -> None:
        """With SIGCONT."""
        await asyncio.to_thread(local_cluster.resume, self._cluster, node)

    async def drive(self, node: str, drive: str, do: str, **details: Any) -> None:
        """By a request to the node, or to the program of the drive."""
        await asyncio.to_thread(control.act_on_drive, self._cluster, node, drive, do, **details)


class NodesElsewhere(Protocol):
    """Nodes that run on other hosts. The methods block, and may raise HelpfulError."""

    def act(self, node: str, action: str) -> dict[str, Any]:
        """``kill``, ``pause``, ``resume`` or ``status``, which has the ``state`` of the node."""

    def start(self, node: str) -> None:
        """Start a node that has ended; returns when it is ready."""


class HostsTarget(LocalTarget):
    """A cluster whose nodes run on other hosts. Its control ports are used like a local cluster's."""

    def __init__(self, cluster: Cluster, nodes: NodesElsewhere) -> None:
        super().__init__(cluster)
        self.place = "the broker hosts"
        self._nodes = nodes

    async def kill(self, node: str) -> None:
        """With SIGKILL."""
        await self._carried_out(lambda: self._nodes.act(node, "kill"))

    async def await_end(self, node: str) -> None:
        """Until its host says that it is down."""
        for _ in range(_ENDS_ASKED):
            if (await self._carried_out(lambda: self._nodes.act(node, "status")))["state"] == "down":
                return
        raise ClusterError(f"{node} goes on", self.place, "let the load write to the drive meanwhile")

    async def start(self, node: str) -> None:
        """With the data that the node has."""
        await self._carried_out(lambda: self._nodes.start(node))

    async def pause(self, node: str) -> None:
        """With SIGSTOP."""
        await self._carried_out(lambda: self._nodes.act(node, "pause"))

    async def resume(self, node: str) -> None:
        """With SIGCONT."""
        await self._carried_out(lambda: self._nodes.act(node, "resume"))

    async def _carried_out(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.to_thread(work)
        except ClusterError:
            raise
        except HelpfulError as error:
            raise ClusterError(error.what, error.where, error.fix) from error


class NoCluster:
    """A broker that a timeline cannot change; ``what`` is needed instead."""

    def __init__(self, place: str, what: str) -> None:
        self.place = place
        self._what = what

    def now_ns(self) -> int:
        """Of the machine."""
        return time.time_ns()

    def node(self, name: str) -> str:
        """As the timeline calls the node."""
        return name

    async def leader(self, queue: str) -> str:
        """Refused."""
        raise self._refused()

    async def change_members(self, do: str, queue: str, node: str) -> None:
        """Refused."""
        raise self._refused()

    async def kill(self, node: str) -> None:
        """Refused."""
        raise self._refused()

    async def await_end(self, node: str) -> None:
        """Refused."""
        raise self._refused()

    async def start(self, node: str) -> None:
        """Refused."""
        raise self._refused()

    async def pause(self, node: str) -> None:
        """Refused."""
        raise self._refused()

    async def resume(self, node: str) -> None:
        """Refused."""
        raise self._refused()

    async def drive(self, node: str, drive: str, do: str, **details: Any) -> None:
        """Refused."""
        raise self._refused()

    def _refused(self) -> ClusterError:
        return ClusterError(f"{self.place} takes {self._what} only", self.place, "leave out the action")


class DrivesTarget(NoCluster):
    """The FUSE drives of a RabbitMQ: a timeline acts on nothing else of it."""

    def __init__(self, drives: FuseDrives) -> None:
        super().__init__("RabbitMQ", "actions on drives")
        self._drives = drives

    async def drive(self, node: str, drive: str, do: str, **details: Any) -> None:
        """By a request to the program of the drive."""
        await asyncio.to_thread(partial(self._drives.act, node, drive, do, **details))
