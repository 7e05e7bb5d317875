"""Carries out the timeline of a plan on a cluster, and undoes its effects on nodes, drives, hosts and links at the end.

The cluster is behind a port (:mod:`perftest.actions.action_target`): a local cluster, or one at virtual time. The hosts
of a run over several are behind another one (:class:`perftest.actions.link_actions.HostFaults`).

Each action is a task of its own, so the intervals of the run go on while a node starts. Actions begin one after the
other. The next action begins while a node still starts; only an action on that same node waits. An action that fails is
an event, and the run goes on: the later figures are of an unchanged cluster.

An action is followed by an event that tells how the measured load recovered (:mod:`perftest.metrics.recovery`), as soon
as this is known: at the end of the step, or after five minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra import control, local_cluster
from infra.local_cluster import ClusterError
from perftest.actions.action_target import ActionTarget
from perftest.actions.drive_actions import DriveActions
from perftest.actions.drive_actions import in_words as drive_in_words
from perftest.actions.link_actions import HostFaults, LinkActions
from perftest.engine.coordination.timeline import Action, Moment
from perftest.metrics.interval import Phase
from perftest.metrics.recovery import Recoveries, Recovery
from perftest.spec.actions import ActionFault, Places, faults
from perftest.spec.cluster import Product
from perftest.spec.link_actions import in_words as link_in_words
from perftest.spec.plan import Plan, at_run_time
from perftest.spec.problem import Problem, SpecError
from perftest.spec.timed_action import KILLED, LEADER, ON_DRIVES, ON_HOSTS, ON_LINKS, PAUSED, Do, TimedAction

if TYPE_CHECKING:
    from infra.layout import PlacedLayout

MEMBERS: Final = frozenset({Do.TRANSFER_LEADER, Do.ADD_MEMBER, Do.REMOVE_MEMBER})
ON_RABBITMQ: Final = frozenset({Do.SLOW, Do.PROFILE, Do.FILL, Do.FREE})
"""A node of a RabbitMQ whose drive has failed would have to be started again."""
LONG: Final = frozenset({Do.RESTART, Do.HEAL, Do.FAIL})
"""Actions that take seconds: the actions after them do not wait."""


@dataclass(frozen=True, slots=True)
class OnCluster(Action):
    """An action of the plan's timeline."""

    timed: TimedAction


def refuse_actions(
    plan: Plan, kept: Path | None, layout: PlacedLayout | None, typed: Sequence[str] = (), hosts: Collection[str] = ()
) -> None:
    """Raises SpecError with all problems of a timeline, before anything is started. ``kept`` is the directory of the
    cluster to be measured; left out: a cluster with this layout is started. The last actions of the timeline are the
    ``typed`` ones of ``--at``. ``hosts`` are the hosts of a run over several."""
    if not plan.timeline:
        return
    if plan.uris and hosts:
        _refuse_on_nodes(plan, typed)
        refuse_actions_at(plan, Places((), hosts=hosts), typed)
        return
    if plan.uris:
        rule = "actions are for a local cluster, and this run measures a broker at a URI"
        fix = "leave out -h and -H, name a local cluster with --cluster, or leave out the timeline"
        raise SpecError([Problem(path="timeline", value=None, rule=rule, fix=fix, file=plan.name)])
    if kept is None and plan.cluster.broker is Product.RABBITMQ:
        _refuse_beside_rabbitmq(plan, typed)
    places = _places(kept, layout, plan.cluster.nodes)._replace(hosts=hosts)
    refuse_actions_at(plan, places, typed)


def _refuse_on_nodes(plan: Plan, typed: Sequence[str]) -> None:
    """A broker at a URI takes actions on hosts and links only."""
    rule = "{} is for a cluster of the bundled broker, and this run measures a broker at a URI"
    fix = "leave out -h and -H, or act on hosts and links: kill-host, partition, latency, ..."
    found = [
        _placed(ActionFault(index, "do", rule.format(action.do), fix), plan.name, _typed(plan, typed))
        for index, action in enumerate(plan.timeline)
        if action.do not in ON_HOSTS | ON_LINKS
    ]
    if found:
        raise SpecError(found)


def _refuse_beside_rabbitmq(plan: Plan, typed: Sequence[str]) -> None:
    """A RabbitMQ that this run starts takes actions on its FUSE drives, of nodes by name."""
    found = []
    for index, action in enumerate(plan.timeline):
        if action.do not in ON_RABBITMQ:
            rule = f"{action.do} is for a cluster of the bundled broker, and this run starts RabbitMQ"
            fix = f"use {', '.join(sorted(ON_RABBITMQ))} on a FUSE drive, or leave out --broker, or the action"
            found.append(ActionFault(index, "do", rule, fix))
        elif action.node in (LEADER, KILLED, PAUSED):
            rule = f"which node of a RabbitMQ is {action.node} is not known here"
            found.append(ActionFault(index, "node", rule, "name the node, such as node1"))
    if found:
        raise SpecError([_placed(fault, plan.name, _typed(plan, typed)) for fault in found])


def refuse_actions_at(plan: Plan, places: Places, typed: Sequence[str] = ()) -> None:
    """Raises SpecError with all problems of a timeline on these nodes and drives; ``typed`` as for
    :func:`refuse_actions`."""
    if not plan.timeline:
        return
    by_number = {step.number: step.duration_s for step in plan.steps}
    durations = [by_number.get(number, 0.0) for number in range(1, max(by_number) + 1)]  # some may be done already
    problems = [_placed(fault, plan.name, _typed(plan, typed)) for fault in faults(plan.timeline, durations, places)]
    if problems:
        raise SpecError(problems)


def _typed(plan: Plan, typed: Sequence[str]) -> tuple[str, ...]:
    """The option of each action of the timeline; empty for an action of the file."""
    return ("",) * (len(plan.timeline) - len(typed)) + tuple(typed)


def _places(kept: Path | None, layout: PlacedLayout | None, count: int) -> Places:
    """The nodes, drives and hosts to act on."""
    from reference_broker.storage.drives.profiles import PROFILES

    if kept is not None:
        cluster = local_cluster.load(kept)
        nodes, drives = [node.name for node in cluster.nodes], control.modelled_drives(cluster)
    else:
        nodes = [f"node{number}" for number in range(1, count + 1)]
        drives = [drive.name for drive in layout.drives if not drive.path] if layout is not None else []
    return Places(nodes, drives, tuple(PROFILES))


def _placed(fault: ActionFault, file: str, typed: Sequence[str]) -> Problem:
    """A broken rule with its place: in the file, or the option as it was typed."""
    if option := typed[fault.place]:
        return Problem(path="", value=None, rule=fault.rule, fix=fault.fix, file=f"--at {shlex.quote(option)}")
    path = f"timeline[{fault.place}].{fault.key}"
    return Problem(path=path, value=None, rule=fault.rule, fix=fault.fix, file=file)


class ClusterActions:
    """The actions of a plan. ``tell`` takes their events."""

    def __init__(
        self,
        plan: Plan,
        target: ActionTarget | None,
        tell: Callable[[dict[str, object]], None],
        hosts: HostFaults | None = None,
    ) -> None:
        """``target`` may be left out for a plan without a timeline. ``hosts`` are the hosts of a run over several."""
        self.handlers: Mapping[type[Action], Any] = {OnCluster: self._begin}
        self._does: Mapping[Do, Callable[[TimedAction, str], Awaitable[None]]] = {
            Do.KILL: self._kill,
            Do.RESTART: self._restart,
            Do.PAUSE: self._pause,
            Do.RESUME: self._resume,
            **dict.fromkeys(MEMBERS, self._change_members),
            **dict.fromkeys(ON_DRIVES, self._change_drive),
            Do.FAIL: self._fail_drive,
            Do.HEAL: self._restart,
            Do.KILL_HOST: self._kill_host,
            Do.PAUSE_HOST: self._pause_host,
            Do.RESUME_HOST: self._resume_host,
            **dict.fromkeys(ON_LINKS, self._change_links),
        }
        self._drives = DriveActions()
        self._links = LinkActions()
        self._hosts = hosts
        self._plan = plan
        self._on = target
        self._tell = tell
        self._turn = asyncio.Lock()
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._one_start = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._killed: list[str] = []
        self._paused: list[str] = []
        self._paused_hosts: list[str] = []
        self._recoveries = Recoveries()

    def moments(self) -> list[Moment]:
        """The moments of the actions. A time of a step counts in the order in which the steps run; an action of a step
        that this run leaves out, as a continued sweep does, is left out with it."""
        index_of = {step.number: index for index, step in enumerate(self._plan.steps)}
        found = []
        for timed in self._plan.timeline:
            if timed.step and timed.step not in index_of:
                continue
            of_run = at_run_time(self._plan.steps, timed.at_s)
            index, at_s = (index_of[timed.step], timed.at_s) if timed.step else of_run
            found.append(Moment(index, at_s, OnCluster(timed)))
        return found

    def progress(self, step: int, phase: Phase, notes: Sequence[Sequence[int]]) -> None:
        """Take the progress of the measured load, and tell of recoveries that are known now."""
        self._tell_recoveries(self._recoveries.add(step, phase, notes))

    async def _begin(self, action: OnCluster) -> None:
        task = asyncio.create_task(self._act(action.timed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def restore(self) -> None:
        """Wait for actions that still run. Then restore the links, resume paused nodes, restart killed nodes, and
        restore the drives."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tell_recoveries(self._recoveries.end())
        if self._hosts is not None:
            await self._restore_links(self._hosts)
        undone = ((Do.RESUME_HOST, self._paused_hosts), (Do.RESUME, self._paused), (Do.RESTART, self._killed))
        for do, nodes in undone:
            for node in tuple(reversed(nodes)):
                await self._act(TimedAction(at_s=0.0, do=do, node=node))
        if self._on is not None:
            await self._restore_drives(self._on)

    async def _restore_links(self, hosts: HostFaults) -> None:
        try:
            if await self._links.restore(hosts):
                text = "reconnect: all links are as they were"
                self._tell({"t_ns": self._target.now_ns(), "kind": "action", "text": text, "action": "restore"})
        except ClusterError as error:
            text = f"restore links: {error.what} ({error.where})"
            self._tell({"t_ns": self._target.now_ns(), "kind": "action_failed", "text": text})

    async def _restore_drives(self, on: ActionTarget) -> None:
        try:
            texts = await self._drives.restore(on)
        except ClusterError as error:
            self._tell({"t_ns": on.now_ns(), "kind": "action_failed", "text": f"restore a drive: {error.what}"})
            return
        for text in texts:
            self._tell({"t_ns": on.now_ns(), "kind": "action", "text": text, "action": "restore"})

    async def _act(self, timed: TimedAction) -> None:
        """Carry out an action, in its turn."""
        try:
            async with self._turn:
                node, words = await self._resolve(timed)
                before = self._starting.get(node)
                if before is None and timed.do not in LONG:
                    await self._carry_out(timed, node, words)
                    return
                work = asyncio.create_task(self._carry_out_after(before, timed, node, words))
                self._starting[node] = work
            await work
        except ClusterError as error:
            self._event("action_failed", f"{timed.do} {timed.node}: {error.what}", timed, timed.node)

    async def _carry_out_after(
        self, before: asyncio.Task[None] | None, timed: TimedAction, node: str, words: str
    ) -> None:
        """Carry out a long action, or one on a node on which another action still runs."""
        try:
            if before is not None:
                await asyncio.wait({before})
            async with self._one_start:  # each start writes the file of the cluster
                await self._carry_out(timed, node, words)
        finally:
            if self._starting.get(node) is asyncio.current_task():
                del self._starting[node]

    async def _carry_out(self, timed: TimedAction, node: str, words: str) -> None:
        what = f"{timed.do} {node}{_in_words(timed)}".rstrip()
        began_ns = self._event("action", f"{what}{words}", timed, node)
        facts = {
            "text": f"after {what}",
            "action": str(timed.do),
            "node": node,
            "acted_ns": began_ns,
        }
        self._recoveries.acted(began_ns, facts)  # now: the step may be over before a long action is
        try:
            await self._does[timed.do](timed, node)
        except ClusterError:
            self._recoveries.withdraw(facts)
            raise

    def _event(self, kind: str, text: str, timed: TimedAction, node: str) -> int:
        now_ns = self._target.now_ns()
        self._tell({"t_ns": now_ns, "kind": kind, "text": text, "action": str(timed.do), "node": node})
        return now_ns

    def _tell_recoveries(self, found: Iterable[tuple[dict[str, Any], Recovery]]) -> None:
        for facts, recovery in found:
            text = f"{facts['text']}: {recovery.in_words()}"
            self._tell({"t_ns": self._target.now_ns(), "kind": "recovery", **facts, **asdict(recovery), "text": text})

    @property
    def _over_hosts(self) -> HostFaults:
        assert self._hosts is not None
        return self._hosts

    @property
    def _target(self) -> ActionTarget:
        assert self._on is not None
        return self._on

    async def _resolve(self, timed: TimedAction) -> tuple[str, str]:
        """The name of the node that an action means at this moment, and a note on its role (may be empty)."""
        queue = self._plan.queues[0].name
        if timed.do is Do.RECONNECT and timed.node == LEADER:
            return "", ""
        if timed.node == LEADER:
            return await self._target.leader(queue), f", the leader of {queue}"
        if timed.do in ON_HOSTS | ON_LINKS and timed.node != PAUSED:
            return timed.node, ""
        paused = self._paused_hosts if timed.do in ON_HOSTS else self._paused
        for word, nodes in ((KILLED, self._killed), (PAUSED, paused)):
            if timed.node == word:
                if not nodes:
                    raise ClusterError(f"no node is {word}", self._target.place, f"see why the node was not {word}")
                return next((each for each in reversed(nodes) if each not in self._starting), nodes[-1]), ""
        return self._target.node(timed.node), ""

    # The effect of each kind of action on a node. All may raise ClusterError.

    async def _change_members(self, timed: TimedAction, node: str) -> None:
        await self._target.change_members(str(timed.do), self._plan.queues[0].name, node)

    async def _change_drive(self, timed: TimedAction, node: str) -> None:
        await self._drives.act(self._target, timed, node)

    async def _fail_drive(self, timed: TimedAction, node: str) -> None:
        await self._change_drive(timed, node)
        await self._target.await_end(node)
        self._drives.forget(node)
        self._killed.append(node)

    async def _change_links(self, timed: TimedAction, node: str) -> None:
        await self._links.act(self._over_hosts, timed, node)

    async def _kill_host(self, _timed: TimedAction, host: str) -> None:
        await self._over_hosts.kill(host)
        with contextlib.suppress(ClusterError):  # a host without a broker node
            node = self._target.node(host)
            self._drives.forget(node)
            self._killed.append(node)

    async def _pause_host(self, _timed: TimedAction, host: str) -> None:
        await self._over_hosts.pause(host)
        self._paused_hosts.append(host)

    async def _resume_host(self, _timed: TimedAction, host: str) -> None:
        await self._over_hosts.resume(host)
        self._paused_hosts.remove(host)

    async def _kill(self, _timed: TimedAction, node: str) -> None:
        await self._target.kill(node)
        self._drives.forget(node)
        self._killed.append(node)

    async def _pause(self, _timed: TimedAction, node: str) -> None:
        await self._target.pause(node)
        self._paused.append(node)

    async def _resume(self, _timed: TimedAction, node: str) -> None:
        await self._target.resume(node)
        self._paused.remove(node)

    async def _restart(self, _timed: TimedAction, node: str) -> None:
        await self._target.start(node)
        self._killed.remove(node)


def _in_words(timed: TimedAction) -> str:
    """The target of an action besides the node, and the value."""
    if timed.do is Do.RECONNECT:
        return f" {timed.peer}" if timed.peer else ""
    return link_in_words(timed) if timed.do in ON_LINKS else drive_in_words(timed)
