"""Carries out the timeline of a plan on a local cluster, and undoes at the end what it did to the nodes.

Each action is a task of its own, one after the other, so the intervals of the run go on while a node starts. An action
that fails is an event, and the run goes on: the figures after it are those of a cluster to which nothing happened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra import local_cluster
from infra.local_cluster import ClusterError
from perftest.cli.measured_broker import LOCAL_NODES
from perftest.engine.coordination.timeline import Action, Moment
from perftest.spec.actions import KILLED, LEADER, PAUSED, Do, TimedAction, faults
from perftest.spec.plan import Plan, at_run_time
from perftest.spec.problem import Problem, SpecError

if TYPE_CHECKING:
    from infra.local_cluster import Cluster

MEMBERS: Final = frozenset({Do.TRANSFER_LEADER, Do.ADD_MEMBER, Do.REMOVE_MEMBER})


@dataclass(frozen=True, slots=True)
class OnCluster(Action):
    """An action of the plan's timeline."""

    timed: TimedAction


def refuse_actions(plan: Plan, kept: Path | None) -> None:
    """Raises SpecError with all problems of a timeline, before anything is started."""
    if not plan.timeline:
        return
    file = plan.name
    if plan.uris:
        rule = "actions are for a local cluster, and this run measures a broker at a URI"
        fix = "leave out -h and -H, name a local cluster with --cluster, or leave out the timeline"
        raise SpecError([Problem(path="timeline", value=None, rule=rule, fix=fix, file=file)])
    names = [f"node{number}" for number in range(1, LOCAL_NODES + 1)]
    if kept is not None:
        names = [node.name for node in local_cluster.load(kept).nodes]
    by_number = {step.number: step.duration_s for step in plan.steps}
    durations = [by_number.get(number, 0.0) for number in range(1, max(by_number) + 1)]  # some may be done already
    problems = [
        Problem(path=f"timeline[{index}].{key}", value=None, rule=rule, fix=fix, file=file)
        for index, key, rule, fix in faults(plan.timeline, durations, names)
    ]
    if problems:
        raise SpecError(problems)


class ClusterActions:
    """The actions of a plan. ``tell`` takes their events."""

    def __init__(self, plan: Plan, cluster: Cluster | None, tell: Callable[[dict[str, object]], None]) -> None:
        self.handlers: Mapping[type[Action], Any] = {OnCluster: self._begin}
        self._plan = plan
        self._cluster = cluster
        self._tell = tell
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._killed: list[str] = []
        self._paused: list[str] = []

    def moments(self) -> list[Moment]:
        """The moments of the actions. A time of a step counts in the order in which the steps run."""
        index_of = {step.number: index for index, step in enumerate(self._plan.steps)}
        found = []
        for timed in self._plan.timeline:
            of_run = at_run_time(self._plan.steps, timed.at_s)
            index, at_s = (index_of[timed.step], timed.at_s) if timed.step else of_run
            found.append(Moment(index, at_s, OnCluster(timed)))
        return found

    async def _begin(self, action: OnCluster) -> None:
        task = asyncio.create_task(self._act(action.timed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def restore(self) -> None:
        """Wait for actions that still run, then resume what is paused and restart what is killed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for do, nodes in ((Do.RESUME, self._paused), (Do.RESTART, self._killed)):
            for node in tuple(reversed(nodes)):
                await self._act(TimedAction(at_s=0.0, do=do, node=node))

    async def _act(self, timed: TimedAction) -> None:
        async with self._turn:
            try:
                node, words = await asyncio.to_thread(self._resolve, timed)
                self._event("action", f"{timed.do} {node}{words}", timed, node)
                await asyncio.to_thread(self._do, timed.do, node)
            except ClusterError as error:
                self._event("action_failed", f"{timed.do} {timed.node}: {error.what}", timed, timed.node)

    def _event(self, kind: str, text: str, timed: TimedAction, node: str) -> None:
        self._tell({"t_ns": time.time_ns(), "kind": kind, "text": text, "action": str(timed.do), "node": node})

    def _resolve(self, timed: TimedAction) -> tuple[str, str]:
        """The name of the node that an action means at this moment, and what it is."""
        assert self._cluster is not None
        queue = self._plan.queues[0].name
        if timed.node == LEADER:
            return self._leader(queue), f", the leader of {queue}"
        for word, nodes in ((KILLED, self._killed), (PAUSED, self._paused)):
            if timed.node == word:
                if not nodes:
                    fix = f"see why the node was not {word}"
                    raise ClusterError(f"no node is {word}", self._cluster.directory, fix)
                return nodes[-1], ""
        return self._cluster.node(timed.node).name, ""

    def _leader(self, queue: str) -> str:
        assert self._cluster is not None
        answer = local_cluster.change(self._cluster, {"op": "quorum-status", "queue": queue})
        found = [str(each["node_name"]) for each in answer["members"] if each.get("raft_state") == "leader"]
        if not found:
            fix = "leave more time between two actions"
            raise ClusterError(f"{queue} has no leader at this moment", self._cluster.directory, fix)
        return found[0]

    def _do(self, do: Do, node: str) -> None:
        """Carry out an action, in a thread. Raises ClusterError."""
        assert self._cluster is not None
        if do in MEMBERS:
            request = {"op": str(do), "queue": self._plan.queues[0].name, "node": node}
            local_cluster.change(self._cluster, request)
        elif do is Do.KILL:
            local_cluster.kill(self._cluster, node)
            self._killed.append(node)
        elif do is Do.PAUSE:
            local_cluster.pause(self._cluster, node)
            self._paused.append(node)
        elif do is Do.RESUME:
            local_cluster.resume(self._cluster, node)
            self._paused.remove(node)
        elif do is Do.RESTART:
            self._cluster = local_cluster.start_node(self._cluster, node)
            self._killed.remove(node)
