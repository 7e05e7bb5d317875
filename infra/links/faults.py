"""The links between the hosts of a run, to be made worse and to be mended: links of a lab, and links of real hosts."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from infra.lab.switch import LabLinks
from infra.links.settings import LinkError, LinkSettings, Pair

_STAY_S: Final = 5.0
_ANSWER_S: Final = 15.0
_ENDED: Final[dict[str, Any]] = {}
_LOST: Final = "the host may be down; its links are as they were once its agent knows that nobody asks any more"


class LinkFaults(Protocol):
    """Links between hosts, by the names of both. The methods block, and raise :class:`LinkError`."""

    def change(self, pairs: Sequence[Pair], changes: Mapping[str, float | bool]) -> None:
        """Change settings (of :class:`LinkSettings`) of these links, at one moment as far as possible."""

    def restore(self, pairs: Sequence[Pair]) -> None:
        """Undo the changes of these links."""


class SwitchLinks:
    """The links of a lab. Their former settings may come from ``perftest lab link``."""

    def __init__(self, links: LabLinks) -> None:
        self._links = links
        self._before = {(each.source, each.target): each.settings for each in links.show()}

    def change(self, pairs: Sequence[Pair], changes: Mapping[str, float | bool]) -> None:
        """By one request to the switch."""
        self._links.change(pairs, changes)

    def restore(self, pairs: Sequence[Pair]) -> None:
        """Those of equal settings together."""
        for settings in {self._before[pair] for pair in pairs}:
            self._links.change([pair for pair in pairs if self._before[pair] == settings], settings.plain())


class Agents(Protocol):
    """The agents of hosts (:mod:`infra.links.agent`): brings a request there, and the answer back."""

    def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        """Send each host its request, then wait for the answers. A host that does not answer is left out."""


class HostLinks:
    """The links of hosts, by an agent on each of them. ``addresses`` are those of their traffic."""

    def __init__(self, agents: Agents, addresses: Mapping[str, str]) -> None:
        self._agents = agents
        self._addresses = dict(addresses)
        self._now: dict[Pair, LinkSettings] = {}

    def probe(self, *, delay: bool) -> None:
        """See whether all of them can be changed. Raises :class:`LinkError` for the first one that cannot."""
        by_address: dict[str, list[str]] = {}
        for name, address in self._addresses.items():
            by_address.setdefault(address, []).append(name)
        for address, names in by_address.items():
            if len(names) > 1:
                what = f"{' and '.join(names)} have the same address {address}, so there is no link between them"
                raise LinkError(what, "the inventory", "give every host an address of its own (traffic_address)")
        others = {name: [each for each in self._addresses.values() if each != own]
                  for name, own in self._addresses.items()}  # fmt: skip
        self._ask({name: {"op": "probe", "addresses": each, "delay": delay} for name, each in others.items()})

    def change(self, pairs: Sequence[Pair], changes: Mapping[str, float | bool]) -> None:
        """By a request to each sender and each receiver, which are all sent before the first answer is awaited."""
        for pair in pairs:
            self._now[pair] = self._now.get(pair, LinkSettings()).changed(changes)
        self._send({name for pair in pairs for name in pair})

    def restore(self, pairs: Sequence[Pair]) -> None:
        """Nothing is done to these links any more."""
        for pair in pairs:
            self._now.pop(pair, None)
        self._send({name for pair in pairs for name in pair})

    def _send(self, names: set[str]) -> None:
        self._ask({name: self._request(name) for name in sorted(names)})

    def _request(self, name: str) -> dict[str, Any]:
        return {
            "op": "set",
            "outgoing": {self._addresses[to]: is_.plain() for (own, to), is_ in self._now.items() if own == name},
            "incoming": {self._addresses[of]: is_.plain() for (of, own), is_ in self._now.items() if own == name},
        }

    def _ask(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        answers = self._agents.ask(requests)
        for name in requests:
            problem = answers.get(name, {"problem": ["nobody answers for the links of this host", "", _LOST]})
            if found := problem.get("problem"):
                what, where, fix = found
                raise LinkError(what, f"host {name}{f': {where}' if where else ''}", fix)


class SpokenProcess(Protocol):
    """A process on a host that takes requests, such as :class:`infra.remote.ssh.RemoteProcess`."""

    def write(self, data: bytes) -> None:
        """Write to its stdin."""

    def read(self) -> bytes:
        """The process's output; empty at the end."""

    def end_input(self) -> None:
        """End its stdin."""


class AgentProcesses:
    """Agents behind processes, which get a sign of life every few seconds. Close it at the end."""

    def __init__(self, processes: Mapping[str, SpokenProcess]) -> None:
        self._processes = dict(processes)
        self._answers: dict[str, queue.Queue[dict[str, Any]]] = {name: queue.Queue() for name in processes}
        self._asked = 0
        self._turn, self._writes = threading.Lock(), threading.Lock()
        self._over = threading.Event()
        self._listeners = [threading.Thread(target=self._listen, args=(name,), daemon=True) for name in processes]
        for listener in self._listeners:
            listener.start()
        threading.Thread(target=self._stay, daemon=True).start()

    def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """As :class:`Agents` says."""
        with self._turn:
            self._asked += 1
            for name, request in requests.items():
                self._write(name, {**request, "n": self._asked})
            until = time.monotonic() + _ANSWER_S
            answers = {name: self._answer(name, until) for name in requests}
            return {name: answer for name, answer in answers.items() if answer is not None}

    def close(self) -> None:
        """End the agents, which undo their changes, and read their output to its end: a process may be closed after
        that."""
        self._over.set()
        for process in self._processes.values():
            process.end_input()
        until = time.monotonic() + _ANSWER_S
        for listener in self._listeners:
            listener.join(max(until - time.monotonic(), 0))

    def _stay(self) -> None:
        while not self._over.wait(_STAY_S):
            for name in self._processes:
                self._write(name, {"op": "stay"})

    def _write(self, name: str, request: Mapping[str, Any]) -> None:
        with self._writes:
            self._processes[name].write(json.dumps(request).encode() + b"\n")

    def _answer(self, name: str, until: float) -> Mapping[str, Any] | None:
        """The answer to the last request; None if there is none in time, or the process has ended."""
        with contextlib.suppress(queue.Empty):
            while True:
                answer = self._answers[name].get(timeout=max(until - time.monotonic(), 0.001))
                if answer is _ENDED:
                    self._answers[name].put(answer)  # for the next caller
                    return None
                if answer.get("n") == self._asked:  # not one that came too late
                    return answer
        return None

    def _listen(self, name: str) -> None:
        for line in _lines(self._processes[name].read):
            with contextlib.suppress(ValueError):  # a login may greet
                answer = json.loads(line)
                if isinstance(answer, dict):
                    self._answers[name].put(answer)
        self._answers[name].put(_ENDED)


def _lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    rest = b""
    while chunk := read():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
