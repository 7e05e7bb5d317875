"""The means by which Linux makes a host's links as wanted: commands of ``tc``, and rules of ``nft``. Pure.

=========  ==============================  ===========================================================================
fault      where, and by what              why there
=========  ==============================  ===========================================================================
cut, loss  the receiver, ``nft``           the sender sees silence, as of a real network, and no error of its own
bandwidth  the sender, ``tc`` with htb     what does not fit waits, and then the sender's own queue is full
delay      the sender, ``tc`` with netem   many kernels of virtual machines have no netem: there, no delay
=========  ==============================  ===========================================================================

Nothing is changed before the first fault. All changes are in one table of ``nft``, and below one root ``qdisc`` of a
device, both with names of their own; to remove these two undoes everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from infra.links.settings import LinkSettings

TABLE: Final = "perftest_links"
HANDLE: Final = "7d0:"
"""Of the root qdisc."""
DEFAULT_QDISCS: Final = frozenset({"noqueue", "mq", "fq", "fq_codel", "pfifo_fast", "pfifo", "none"})
"""Queueing disciplines that Linux gives a device by itself, and gives it again when another one is removed."""
_FULL_MBIT: Final = 100_000.0
_QUANTUM: Final = 60_000
"""Octets of a class before the next one has its turn. Without a number, htb complains of one that is too large."""
_PACKETS_HELD: Final = 1_000_000
_FIRST_CLASS: Final = 2
_MILLION: Final = 1_000_000

REMNANTS: Final = (
    'PATH=$PATH:/usr/sbin:/sbin; [ "$(id -u)" = 0 ] || become="sudo -n"; for device in /sys/class/net/*; do '
    f'$become tc qdisc del dev "${{device##*/}}" root handle {HANDLE}; done; '
    f"$become nft delete table inet {TABLE}; true"
)
"""Commands of a shell that undo all changes of any agent. There may be nothing to undo, and no `tc` or `nft`."""

Command = list[str]


def rules(incoming: Mapping[str, LinkSettings]) -> str:
    """The input of ``nft -f -`` that drops packets from these addresses as their links say, and no others any more. All
    rules take effect at one moment."""
    lines = [f"table inet {TABLE}", f"delete table inet {TABLE}"]
    drops = [line for address, wanted in sorted(incoming.items()) if (line := _drop(address, wanted))]
    if drops:
        lines += [f"table inet {TABLE} {{", " chain incoming {", "  type filter hook input priority -300",
                  *drops, " }", "}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _drop(address: str, wanted: LinkSettings) -> str:
    family = "ip6" if ip_address(address).version == 6 else "ip"
    if wanted.cut or wanted.loss >= 1:
        return f"  {family} saddr {address} drop"
    of_million = round(wanted.loss * _MILLION)
    return f"  {family} saddr {address} numgen random mod {_MILLION} < {of_million} drop" if of_million else ""


class Shaper:
    """The classes of one device; each takes the packets to one address. The caller runs the commands."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._numbers: dict[str, int] = {}
        self._is: dict[str, LinkSettings] = {}

    def commands(self, outgoing: Mapping[str, LinkSettings]) -> list[Command]:
        """The commands that make the links to these addresses as wanted, and give all others back to the device."""
        wanted = {address: each for address, each in outgoing.items() if each.delay_ms or each.mbit}
        if not wanted:
            found = [self.removal()] if self._numbers else []
            self._numbers, self._is = {}, {}
            return found
        found = [] if self._numbers else self._root()
        for address in sorted({*wanted, *self._is}):
            found += self._change(address, wanted.get(address, LinkSettings()))
        return found

    def removal(self) -> Command:
        """The command that undoes everything."""
        return ["tc", "qdisc", "del", "dev", self._device, "root", "handle", HANDLE]

    def _root(self) -> list[Command]:
        return [
            ["tc", "qdisc", "add", "dev", self._device, "root", "handle", HANDLE, "htb", "default", "1"],
            self._class("add", 1, _FULL_MBIT),
        ]

    def _change(self, address: str, wanted: LinkSettings) -> list[Command]:
        before, number = self._is.get(address), self._numbers.get(address)
        rate = wanted.mbit or _FULL_MBIT
        found = []
        if number is None:
            number = self._numbers[address] = _FIRST_CLASS + len(self._numbers)
            found = [self._class("add", number, rate), self._filter(address, number)]
        elif before is None or before.mbit != wanted.mbit:
            found = [self._class("change", number, rate)]
        if wanted.delay_ms != (before.delay_ms if before else 0.0):
            found.append(self._delay(number, wanted.delay_ms))
        self._is[address] = wanted
        return found

    def _class(self, verb: str, number: int, mbit: float) -> Command:
        return ["tc", "class", verb, "dev", self._device, "parent", HANDLE, "classid", f"{HANDLE}{number:x}", "htb",
                "rate", f"{round(mbit * 1000)}kbit", "quantum", str(_QUANTUM)]  # fmt: skip

    def _filter(self, address: str, number: int) -> Command:
        """Filters of IPv4 and of IPv6 cannot have the same priority."""
        version = ip_address(address).version
        match = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{address}/32"]
        if version == 6:
            match = ["protocol", "ipv6", "prio", "2", "u32", "match", "ip6", "dst", f"{address}/128"]
        return ["tc", "filter", "add", "dev", self._device, "parent", HANDLE, *match, "flowid", f"{HANDLE}{number:x}"]

    def _delay(self, number: int, delay_ms: float) -> Command:
        where = ["dev", self._device, "parent", f"{HANDLE}{number:x}"]
        if not delay_ms:
            return ["tc", "qdisc", "del", *where]
        delay = ["netem", "delay", f"{round(delay_ms * 1000)}us", "limit", str(_PACKETS_HELD)]
        return ["tc", "qdisc", "replace", *where, *delay]
