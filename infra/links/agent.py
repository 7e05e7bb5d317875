"""Changes the links of this host for the process at its stdin: ``python -m infra.links.agent``.

A request is a line of JSON, and so is its answer, which has ``"problem": [what, where, fix]`` if something is wrong:

- ``{"op": "probe", "addresses": [...], "delay": true}``: whether the links to these addresses can be changed here, and
  be delayed, if that is asked. Nothing is changed.
- ``{"op": "set", "outgoing": {ADDRESS: SETTINGS}, "incoming": {ADDRESS: SETTINGS}}``: all links as they shall be from
  now on; a link that is not named is left alone.
- ``{"op": "stay"}``: the asker is there. This has no answer.

An answer has the ``n`` of its request.

Everything is undone when stdin ends, after SIGTERM, and when the asker is silent for :data:`LEASE_S` seconds. At its
start an agent removes the remains of one that was killed. A user other than root needs ``sudo`` without a password.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from infra.links.kernel import DEFAULT_QDISCS, HANDLE, Shaper, rules
from infra.links.settings import LinkError, LinkSettings
from perftest.errors import HelpfulError

LEASE_S: Final = 30.0
_COMMAND_S: Final = 10.0
_PATH: Final = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Agent:
    """The links of this host. Every method raises :class:`LinkError`."""

    def __init__(self) -> None:
        self._as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        self._shapers: dict[str, Shaper] = {}
        self._rules = ""

    def probe(self, addresses: Sequence[str], *, delay: bool) -> None:
        """See whether the links to these addresses can be changed, and be delayed."""
        for tool, package in (("tc", "iproute2"), ("ip", "iproute2"), ("nft", "nftables")):
            if shutil.which(tool, path=_PATH) is None:
                raise LinkError(f"there is no `{tool}` here", "PATH", f"install it (Debian: {package})")
        self._run(["nft", "list", "tables"], fix="log in as root, or let the user run `sudo -n tc` and `sudo -n nft`")
        for device in sorted({self._device(address) for address in addresses}):
            self._remove_remnant(device)
        self._run(["nft", "-f", "-"], stdin=rules({}))
        if delay:
            fix = "load sch_netem, use hosts whose kernel has it, or try the workload in a lab (perftest lab up)"
            self._run(["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], fix=fix)

    def set(self, outgoing: Mapping[str, LinkSettings], incoming: Mapping[str, LinkSettings]) -> None:
        """Make the links as wanted."""
        wanted = rules(incoming)
        if wanted != self._rules:
            self._run(["nft", "-f", "-"], stdin=wanted)
            self._rules = wanted
        by_device: dict[str, dict[str, LinkSettings]] = {device: {} for device in self._shapers}
        for address, settings in outgoing.items():
            by_device.setdefault(self._device(address), {})[address] = settings
        for device, links in by_device.items():
            for command in self._shapers.setdefault(device, Shaper(device)).commands(links):
                self._run(command)

    def undo(self) -> None:
        """Leave all links as they were found."""
        self.set({}, {})

    def _device(self, address: str) -> str:
        """The device through which this host reaches an address."""
        routes = json.loads(self._run(["ip", "-j", "route", "get", address]))
        if not routes or routes[0].get("type") == "local" or "dev" not in routes[0]:
            raise LinkError(f"no link leads to {address}", "routes", "give every host an address of its own")
        return str(routes[0]["dev"])

    def _remove_remnant(self, device: str) -> None:
        """Remove the remains of an agent that was killed. Other programs' queueing disciplines are not touched."""
        for each in json.loads(self._run(["tc", "-j", "qdisc", "show", "dev", device, "root"]) or "[]"):
            if each.get("handle") == HANDLE:
                self._run(Shaper(device).removal())
            elif each.get("kind") not in DEFAULT_QDISCS:
                what = f"{device} has a queueing discipline already ({each.get('kind')})"
                raise LinkError(what, f"tc qdisc show dev {device}", f"remove it: tc qdisc del dev {device} root")

    def _run(self, argv: Sequence[str], *, stdin: str = "", fix: str = "see what it says") -> str:
        try:
            done = subprocess.run(
                [*self._as_root, *argv], input=stdin, capture_output=True, text=True, check=False, timeout=_COMMAND_S,
                env=os.environ | {"PATH": _PATH},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LinkError(f"`{' '.join(argv)}` cannot be run: {error}", "the host", fix) from error
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it failed"])[0]
            raise LinkError(f"`{' '.join(argv)}`: {said}", "the host", fix)
        return done.stdout


def serve(agent: Agent, asked: IO[bytes], told: IO[str]) -> None:
    """Answer requests until there are no more, or the asker is silent for too long."""
    rest = b""
    while select.select([asked], [], [], LEASE_S)[0] and (more := os.read(asked.fileno(), 1 << 16)):
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            if (answer := _answer(agent, line)) is not None:
                told.write(json.dumps(answer) + "\n")
                told.flush()


def _answer(agent: Agent, line: bytes) -> dict[str, Any] | None:
    request: Any = None
    try:
        request = json.loads(line)
        match request["op"]:
            case "stay":
                return None
            case "probe":
                agent.probe(request["addresses"], delay=request["delay"])
            case "set":
                agent.set(_settings(request["outgoing"]), _settings(request["incoming"]))
    except HelpfulError as error:
        return {"n": request["n"], "problem": [error.what, error.where, error.fix]}
    except (ValueError, KeyError, TypeError) as error:
        return {"problem": [f"the request cannot be read: {error}", "the agent of links", "use infra.links"]}
    return {"n": request["n"]}


def _settings(plain: Mapping[str, Mapping[str, Any]]) -> dict[str, LinkSettings]:
    return {address: LinkSettings().changed(each) for address, each in plain.items()}


def main() -> int:
    """Serve stdin, and undo everything at the end, however it comes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))
    agent = Agent()
    try:
        with contextlib.suppress(BrokenPipeError):
            serve(agent, sys.stdin.buffer, sys.stdout)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            agent.undo()
        except LinkError as error:
            sys.stderr.write(error.lines() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
