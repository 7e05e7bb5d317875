"""Links that are made worse and mended: by a switch, and by agents on hosts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from infra.lab.lab import Lab
from infra.links.faults import AgentProcesses, HostLinks, SwitchLinks
from infra.links.kernel import REMNANTS, TABLE
from infra.links.settings import LinkError, LinkSettings

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


@dataclass
class Scripted:
    """Agents that answer as they are told."""

    asked: list[dict[str, Mapping[str, Any]]] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        self.asked.append(dict(requests))
        return {name: self.answers.get(name, {}) for name in requests if name not in self.lost}


def test_the_sender_and_the_receiver_of_a_link_are_told_of_all_their_links() -> None:
    agents = Scripted()
    links = HostLinks(agents, ADDRESSES)
    links.change([("a", "b"), ("b", "a")], {"cut": True})
    links.change([("a", "c")], {"mbit": 10.0})
    links.restore([("a", "b"), ("b", "a")])
    cut, narrow = replace(LinkSettings(), cut=True).plain(), replace(LinkSettings(), mbit=10.0).plain()
    assert agents.asked == [
        {
            "a": {"op": "set", "outgoing": {"10.0.0.2": cut}, "incoming": {"10.0.0.2": cut}},
            "b": {"op": "set", "outgoing": {"10.0.0.1": cut}, "incoming": {"10.0.0.1": cut}},
        },
        {
            "a": {"op": "set", "outgoing": {"10.0.0.2": cut, "10.0.0.3": narrow}, "incoming": {"10.0.0.2": cut}},
            "c": {"op": "set", "outgoing": {}, "incoming": {"10.0.0.1": narrow}},
        },
        {
            "a": {"op": "set", "outgoing": {"10.0.0.3": narrow}, "incoming": {}},
            "b": {"op": "set", "outgoing": {}, "incoming": {}},
        },
    ]


def test_a_host_that_is_lost_or_refuses_is_named() -> None:
    links = HostLinks(Scripted(lost=("b",)), ADDRESSES)
    with pytest.raises(LinkError, match="nobody answers") as lost:
        links.change([("a", "b")], {"cut": True})
    assert lost.value.where == "host b"
    links = HostLinks(Scripted(answers={"a": {"problem": ["no tc", "PATH", "install it"]}}), ADDRESSES)
    with pytest.raises(LinkError, match="no tc") as refused:
        links.probe(delay=False)
    assert refused.value.where == "host a: PATH"


def test_hosts_with_one_address_have_no_link() -> None:
    with pytest.raises(LinkError, match="a and b have the same address"):
        HostLinks(Scripted(), {"a": "127.0.0.1", "b": "127.0.0.1"}).probe(delay=False)


# On hosts of a lab


@dataclass
class LocalAgent:
    """An agent in the namespace of a host."""

    process: subprocess.Popen[bytes]

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        with suppress(BrokenPipeError, ValueError):
            self.process.stdin.write(data)

    def read(self) -> bytes:
        assert self.process.stdout
        return os.read(self.process.stdout.fileno(), 1 << 16)

    def end_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()


def start_agent(namespace: str) -> LocalAgent:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "infra.links.agent"]
    return LocalAgent(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0))


@pytest.fixture
def hosts(lab: Lab) -> Iterator[tuple[Lab, HostLinks, dict[str, LocalAgent]]]:
    if shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        pytest.skip("nft is not installed")
    with ExitStack() as stack:
        agents = {host.name: start_agent(host.namespace) for host in lab.hosts}
        for each in agents.values():
            stack.enter_context(each.process)
        told = AgentProcesses(agents)
        stack.callback(told.close)
        yield lab, HostLinks(told, {host.name: host.address for host in lab.hosts}), agents


def rules_of(lab: Lab, host: int) -> str:
    words = ["ip", "netns", "exec", lab.hosts[host].namespace, "nft", "list", "ruleset"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def shaping_of(lab: Lab, host: int) -> str:
    words = ["tc", "-n", lab.hosts[host].namespace, "qdisc", "show"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def arrive(lab: Lab, source: int, target: int, *, packets: int = 20) -> int:
    """How many packets of so many arrive at another host."""
    receive = (
        "import socket,sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 9999)); s.settimeout(10)\n"
        "print('ready', flush=True); n = 0\n"
        "while s.recv(99) != b'end': n += 1\n"
        "print(n)\n"
    )
    send = (
        "import socket,sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"for _ in range({packets}): s.sendto(b'x', (sys.argv[1], 9999))\n"
    )
    inside = [["ip", "netns", "exec", lab.hosts[at].namespace, sys.executable, "-c"] for at in (source, target)]
    with subprocess.Popen([*inside[1], receive], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout
        receiver.stdout.readline()
        subprocess.run([*inside[0], send, lab.hosts[target].address], check=True)
        end = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'end', ('127.0.0.1', 9999))"
        lab.links.show()  # the switch has taken all packets that came before this
        subprocess.run([*inside[1], end], check=True)
        return int(receiver.stdout.readline())


@pytest.mark.lab
def test_agents_cut_one_way_and_give_the_link_back(hosts: tuple[Lab, HostLinks, dict[str, LocalAgent]]) -> None:
    lab, links, _ = hosts
    links.probe(delay=False)
    assert (arrive(lab, 0, 1), arrive(lab, 1, 0)) == (20, 20)
    links.change([("host1", "host2")], {"cut": True})
    assert (arrive(lab, 0, 1), arrive(lab, 1, 0)) == (0, 20)
    links.change([("host1", "host2")], {"cut": False, "loss": 0.5})
    # Six standard deviations around the half. More packets at once would not fit into the queues of a busy machine.
    assert 57 < arrive(lab, 0, 1, packets=200) < 143
    links.restore([("host1", "host2")])
    assert arrive(lab, 0, 1) == 20
    assert TABLE not in rules_of(lab, 1)


@pytest.mark.lab
def test_agents_narrow_a_link(hosts: tuple[Lab, HostLinks, dict[str, LocalAgent]]) -> None:
    lab, links, _ = hosts
    links.probe(delay=False)
    links.change([("host1", "host2")], {"mbit": 8.0})
    assert "htb 7d0:" in shaping_of(lab, 0) and "htb" not in shaping_of(lab, 1)
    links.restore([("host1", "host2")])
    assert "htb" not in shaping_of(lab, 0)


@pytest.mark.lab
def test_a_kernel_without_delays_is_told_before_the_run(
    hosts: tuple[Lab, HostLinks, dict[str, LocalAgent]],
) -> None:
    _, links, _ = hosts
    tried = subprocess.run(
        ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True, check=False,
    )  # fmt: skip
    if tried.returncode == 0:
        links.probe(delay=True)
    else:
        with pytest.raises(LinkError, match="netem") as refused:
            links.probe(delay=True)
        assert "perftest lab" in refused.value.fix


@pytest.mark.lab
@pytest.mark.parametrize("end", ["stdin", signal.SIGTERM, signal.SIGKILL], ids=str)
def test_what_an_agent_did_is_undone_however_it_ends(
    hosts: tuple[Lab, HostLinks, dict[str, LocalAgent]], end: signal.Signals | str
) -> None:
    lab, links, agents = hosts
    links.probe(delay=False)
    links.change([("host2", "host1")], {"cut": True, "mbit": 8.0})
    assert TABLE in rules_of(lab, 0) and "htb" in shaping_of(lab, 1)
    for agent in agents.values():
        if isinstance(end, signal.Signals):
            agent.process.send_signal(end)
        else:
            agent.end_input()
        agent.process.wait(30)
    with pytest.raises(LinkError, match="nobody answers"):
        links.change([("host2", "host1")], {"cut": True})
    if end == signal.SIGKILL:  # nobody could undo it, so the next one does
        again = {host.name: start_agent(host.namespace) for host in lab.hosts}
        told = AgentProcesses(again)
        HostLinks(told, {host.name: host.address for host in lab.hosts}).probe(delay=False)
        told.close()
        for agent in again.values():
            with agent.process:
                agent.process.wait(30)
    assert TABLE not in rules_of(lab, 0) and "htb" not in shaping_of(lab, 1)


@pytest.mark.lab
def test_a_shell_undoes_what_killed_agents_left(hosts: tuple[Lab, HostLinks, dict[str, LocalAgent]]) -> None:
    lab, links, agents = hosts
    links.probe(delay=False)
    links.change([("host2", "host1")], {"cut": True, "mbit": 8.0})
    for agent in agents.values():
        agent.process.kill()
        agent.process.wait(30)
    for host in lab.hosts[:2]:
        for _ in range(2):  # the second time there is nothing to undo
            subprocess.run(["ip", "netns", "exec", host.namespace, "sh", "-c", REMNANTS], check=True)
    assert TABLE not in rules_of(lab, 0) and "htb" not in shaping_of(lab, 1)


@pytest.mark.lab
def test_the_links_of_a_lab_are_again_what_somebody_had_made_of_them(lab: Lab) -> None:
    lab.links.set("host1", "host2", delay_ms=1.0)
    links = SwitchLinks(lab.links)
    links.change([("host1", "host2"), ("host2", "host1")], {"cut": True})
    cut = {(each.source, each.target) for each in lab.links.show() if each.settings.cut}
    assert cut == {("host1", "host2"), ("host2", "host1")}
    links.restore([("host1", "host2"), ("host2", "host1")])
    found = {(each.source, each.target): each.settings for each in lab.links.show()}
    assert found["host1", "host2"] == LinkSettings(delay_ms=1.0) and found["host2", "host1"] == LinkSettings()
