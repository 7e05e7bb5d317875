"""The faults that a timeline brings to the hosts of a run and their links, and the processes that cause them there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from infra.cluster import ClusterError
from infra.lab.switch import LabLinks
from infra.links.faults import AgentProcesses, HostLinks, LinkFaults, SwitchLinks
from infra.links.settings import Pair
from infra.remote import processes
from infra.remote.shipping import InstalledProject
from infra.remote.ssh import SshConnection
from perftest.errors import HelpfulError
from perftest.remote.crew import Crew
from perftest.remote.inventory import all_done, on_all
from perftest.spec.hosts import HostSpec
from perftest.spec.plan import Plan
from perftest.spec.timed_action import ON_LINKS, Do

AGENT: Final = "infra.links.agent"


class Connected(Protocol):
    """The source of connections to hosts."""

    def connection(self, name: str) -> SshConnection:
        """The connection to a host."""


class RunFaults:
    """The hosts of a run (:class:`perftest.actions.link_actions.HostFaults`). ``links`` is None for a timeline that
    does nothing to links. SSH is spoken in threads, so that the run goes on meanwhile."""

    def __init__(self, names: Sequence[str], crew: Connected, links: LinkFaults | None) -> None:
        self.names = tuple(names)
        self._crew = crew
        self._links = links

    async def change_links(self, pairs: Sequence[Pair], changes: Mapping[str, float | bool]) -> None:
        """By the switch of a lab, or by agents on both hosts of a link."""
        await _carried_out(lambda: self._with_links().change(pairs, changes))

    async def restore_links(self, pairs: Sequence[Pair]) -> None:
        """By the same."""
        await _carried_out(lambda: self._with_links().restore(pairs))

    async def kill(self, host: str) -> None:
        """With SIGKILL, each process of ours."""
        await self._signal(host, "kill")

    async def pause(self, host: str) -> None:
        """With SIGSTOP."""
        await self._signal(host, "pause")

    async def resume(self, host: str) -> None:
        """With SIGCONT."""
        await self._signal(host, "resume")

    async def _signal(self, host: str, what: str) -> None:
        await _carried_out(lambda: processes.send(self._crew.connection(host), what))

    def _with_links(self) -> LinkFaults:
        assert self._links is not None
        return self._links


async def _carried_out(work: Callable[[], object]) -> None:
    try:
        await asyncio.to_thread(work)
    except HelpfulError as error:
        raise ClusterError(error.what, error.where, error.fix) from error


def agent_command(installed: InstalledProject) -> list[str]:
    """The command that changes the links of a host."""
    return installed.command(AGENT, name=processes.APART)


@contextlib.contextmanager
def faults(crew: Crew, specs: Sequence[HostSpec], plan: Plan) -> Iterator[RunFaults]:
    """The faults of a run while it lasts. The processes on the hosts for the plan's timeline are started and tried
    first; at the end all links are as before. Raises HostsError, LinkError."""
    names = [spec.name for spec in specs]
    wanted = {action.do for action in plan.timeline if action.do in ON_LINKS}
    if not wanted:
        yield RunFaults(names, crew, None)
    elif labs := {spec.lab for spec in specs if spec.lab is not None}:
        yield RunFaults(names, crew, SwitchLinks(LabLinks(Path(labs.pop()))))
    else:
        with _agents(crew, names) as agents:
            links = HostLinks(agents, crew.addresses())
            links.probe(delay=Do.LATENCY in wanted)
            yield RunFaults(names, crew, links)


@contextlib.contextmanager
def _agents(crew: Crew, names: Sequence[str]) -> Iterator[AgentProcesses]:
    members = {name: crew.member(name) for name in names}
    started = all_done(on_all(members, lambda member: member.connection.start(agent_command(member.installed))))
    agents = AgentProcesses(started)
    try:
        yield agents
    finally:
        agents.close()
