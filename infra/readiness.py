"""Waits until started nodes have become a cluster, for as long as they make progress.

A start may read gigabytes of log and elect thousands of leaders. So there is no deadline for the whole start, but a
limit for a time without progress. A node that does not answer yet makes progress by using its processor; a node that
answers makes progress by applying metadata and finding leaders. At the limit, the error says what each node waits for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from infra.cluster import Cluster, Node
from infra.control import summary_of

PATIENCE_S: Final = 20.0
"""Longest time without progress while a node is not ready."""
_ELECTIONS_PATIENCE_S: Final = 5.0
"""Longest time without progress while only queues without a leader are left: the nodes serve all other queues."""
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.25
_LONGER: Final = 1.3

FORGETFUL: Final = "may have forgotten synced entries, so it does not vote, and waits for a leader of the others"

Progress = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeLook:
    """The state of a node at one moment. ``progress`` rises as the node makes progress."""

    answers: bool
    is_ready: bool
    electing: int
    waits_for: str
    progress: Progress


def look(cluster: Cluster, node: Node) -> NodeLook:
    """The state of a node whose process runs."""
    said = summary_of(cluster, node)
    if said["state"] != "running":
        return NodeLook(False, False, 0, f"{node.name} is {said['state']}", (0, _cpu(node.pid)))
    electing = int(said.get("electing", 0))
    progress = (1, int(said.get("metadata_applied", 0)), -int(said.get("leaderless", 0)))
    if not said.get("ready", False):
        waits = f"{node.name} waits for a leader of the metadata, and for what was declared"
        if said.get("forgetful"):
            waits = f"{node.name} {FORGETFUL}"
        return NodeLook(True, False, electing, waits, progress)
    if not said.get("serves_http", True):  # loading a web server takes a node longer than all the rest
        return NodeLook(True, False, electing, f"{node.name} opens the port for metrics and management", progress)
    waits = f"{electing} of {said.get('queue_count', 0)} queues have no leader on {node.name}" if electing else ""
    return NodeLook(True, True, electing, waits, progress)


def _cpu(pid: int) -> int:
    """The CPU time of a process in tenths of seconds. Reading a log uses CPU time, however slow the drive is."""
    with contextlib.suppress(psutil.Error, ValueError):  # 0: on another host
        used = psutil.Process(pid).cpu_times()
        return int(10 * (used.user + used.system))
    return 0


def with_forgetful(waits: str, cluster: Cluster) -> str:
    """The nodes' reason to wait, and the other nodes that do not vote."""
    said = [summary_of(cluster, node) for node in cluster.nodes]
    more = [f"{each['name']} {FORGETFUL}" for each in said if each.get("forgetful")]
    return "; ".join([waits, *(each for each in more if each not in waits)])


def advice(waits: str, directory: str) -> str:
    """The fix when nodes wait for this and make no progress."""
    if FORGETFUL not in waits:
        return "read the node.log files there; the machine may be overloaded"
    return (
        "start the nodes that are down; if no sound majority is left, make one node's copy the truth: "
        f"`perftest broker recover --from NODE --dir {directory}`"
    )


class Wait:
    """Waits for several nodes. ``awaited`` names the nodes each time; ``clock`` and ``sleep`` are those of the
    machine."""

    def __init__(
        self,
        awaited: Callable[[], Sequence[Node]],
        *,
        look: Callable[[Node], NodeLook],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._awaited = awaited
        self._look = look
        self._clock = clock
        self._sleep = sleep
        self._best: dict[str, Progress] = {}
        self._done: set[str] = set()

    def until_ready(self, enough: Callable[[], bool] = lambda: False) -> str:
        """Wait until each node is ready and its queues have leaders, or until ``enough``.

        Returns what the nodes wait for if they make no progress. The text is empty if all is well, or if only queues
        lack a leader.
        """
        pause, last = _PAUSE_S, self._clock()
        while not enough():
            looks = self._looks()
            if not looks:
                return ""
            if self._made_progress(looks):
                last = self._clock()
            stood_still = self._clock() - last
            late = [found.waits_for for found in looks.values() if not found.is_ready]
            if stood_still > (PATIENCE_S if late else _ELECTIONS_PATIENCE_S):
                return "; ".join(late)
            self._sleep(pause)
            pause = min(pause * _LONGER, _PAUSE_MAX_S)
        return ""

    def _looks(self) -> dict[str, NodeLook]:
        """The states of the nodes that are not ready yet."""
        looks: dict[str, NodeLook] = {}
        for node in self._awaited():
            if node.name not in self._done:
                found = self._look(node)
                if found.is_ready and not found.electing:
                    self._done.add(node.name)
                else:
                    looks[node.name] = found
        return looks

    def _made_progress(self, looks: dict[str, NodeLook]) -> bool:
        further = {name: found.progress for name, found in looks.items() if found.progress > self._best.get(name, ())}
        self._best |= further
        return bool(further)
