"""One cut after the other under load, and what each of them did to the clients of each node.

The judge knows what clients know: what was confirmed, what was delivered and how it was flagged, and when.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.integration.storm_clients import Account, Clients
from tests.partitions.cuts import Cut, joined
from tests.partitions.network import SIDES, Link, Network
from tests.partitions.nodes import HOME, KINDS, Broker, running

SERVE_S: Final = 2.0
"""A node should serve again within this time of the heal."""
PATIENCE_S: Final = 6.0
"""Time after which clients that reach a majority should be served during a cut, or have lost their connections."""
CROSSING_S: Final = 0.1
"""So much later than the flagged copy, a copy without the flag may reach a client: when a link breaks, the node behind
the cut may be about to deliver what has just come over the link (docs/internals/node.md)."""
_HEAL_S: Final = 120.0
_DELIVERY_S: Final = 60.0
_POLL_S: Final = 0.02
_REST_S: Final = 1.0
_BACKLOG_S: Final = 1.5


@dataclass(slots=True)
class OfQueue:
    """What a cut did to a queue of one kind. ``crossed``: copies without the flag that came a moment later.
    ``serves_s``: how long after the heal each node's clients had a confirm and a delivery; infinite: not within the
    limit. ``stalled``: nobody of the majority had a confirm. ``hung``: nodes
    that reach a majority, and whose publishers had neither a confirm nor the end of their connection."""

    confirmed: int = 0
    lost: int = 0
    unflagged: list[str] = field(default_factory=list)
    crossed: int = 0
    wrong: list[str] = field(default_factory=list)
    serves_s: dict[str, float] = field(default_factory=dict)
    stalled: bool = False
    hung: list[str] = field(default_factory=list)

    @property
    def slowest_s(self) -> float:
        """The time until all nodes served."""
        return max(self.serves_s.values(), default=0.0)


@dataclass(slots=True)
class Outcome:
    """A cut, the node that it hit, and what it did to each kind of queue."""

    cut: Cut
    victim: str
    queues: dict[str, OfQueue]

    def failures(self, serve_s: float) -> list[str]:
        """What must not be, in words. Slow heals are judged over all cuts, unless they are slower than ``serve_s``."""
        return [
            f"{kind}: {words}"
            for kind, of in self.queues.items()
            for words, is_so in (
                (f"{of.lost} lost", of.lost),
                (f"{len(of.unflagged)} delivered again without the flag: {of.unflagged[:1]}", of.unflagged),
                (f"{len(of.wrong)} wrong deliveries, the first {of.wrong[:2]}", of.wrong),
                ("no confirm on the side of the majority", of.stalled),
                (f"publishers hung on {', '.join(of.hung)}", of.hung),
                (f"served {_times(of)} after the heal", of.slowest_s > serve_s),
            )
            if is_so
        ]


def _times(of: OfQueue) -> str:
    return ", ".join(f"{side} {seconds:.1f} s" for side, seconds in of.serves_s.items())


@dataclass(slots=True)
class Campaign:
    """A broker under load. ``counted`` are the lengths of each account's lists that are already told."""

    network: Network
    broker: Broker
    clients: dict[str, Clients]
    counted: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    idle: threading.Event = field(default_factory=threading.Event)

    def play(self, cut: Cut) -> Outcome:
        """Cut, heal, wait until every node serves, and look at the books."""
        victim = self.broker.victim(cut.role)
        if cut.has_backlog:
            self._hold_back()
        began = time.monotonic()
        self._cut(cut, cut.links(victim))
        healed = time.monotonic()
        queues = {kind: OfQueue() for kind in self.clients}
        self._await_service(queues, healed)
        for kind, of in queues.items():
            account = self.clients[kind].account
            if not cut.is_flapping and healed - began > PATIENCE_S + 1:
                judge_meanwhile(of, account, cut, victim, (began + PATIENCE_S, healed), kind)
            self._look_at_books(of, account, kind, healed)
        self.idle.wait(_REST_S)
        return Outcome(cut, victim, queues)

    def _hold_back(self) -> None:
        """Let messages gather in the queues."""
        for clients in self.clients.values():
            clients.stop_consuming()
        self.idle.wait(_BACKLOG_S)

    def _cut(self, cut: Cut, links: Sequence[Link]) -> None:
        for number, seconds in enumerate(cut.beats):
            self.network.cut(links if number % 2 == 0 else (), cut.how)
            for clients in self.clients.values():
                clients.start_consuming()
            self.idle.wait(seconds)
        self.network.heal()

    def _await_service(self, queues: dict[str, OfQueue], healed: float) -> None:
        def missing() -> bool:
            for kind, of in queues.items():
                account = self.clients[kind].account
                for number, side in enumerate(SIDES):
                    times = [_first(each[number], healed) for each in (account.confirms_of, account.deliveries_of)]
                    of.serves_s[side] = max(times) - healed
            return any(of.slowest_s == float("inf") for of in queues.values())

        self._until(lambda: not missing(), _HEAL_S)

    def _look_at_books(self, of: OfQueue, account: Account, kind: str, healed: float) -> None:
        """Everything that was confirmed before the heal has come out by now, or comes out soon. A copy without the flag
        behind one that has it is wrong for a quorum queue only: a mirrored queue has two masters until the former one
        notices, and what a broken link had carried before may reach a client late."""
        due = set(account.confirmed)
        self._until(lambda: due <= account.delivered.keys(), _DELIVERY_S)
        confirms, late, wrong = self.counted.get(kind, (0, 0, 0))
        unmarked = [text for text in account.wrong[wrong:] if "not marked redelivered" in text]
        of.lost = len(due - account.delivered.keys())
        of.confirmed = len(account.confirmed) - confirms
        of_quorum = account.late[late:] if kind == "quorum" else []
        of.crossed = sum(late_s <= CROSSING_S for late_s, _ in of_quorum)
        of.unflagged = [*unmarked, *(text for late_s, text in of_quorum if late_s > CROSSING_S)]
        of.wrong = [text for text in account.wrong[wrong:] if text not in unmarked]
        account.delivered |= dict.fromkeys(due, healed)  # told once
        self.counted[kind] = (len(account.confirmed), len(account.late), len(account.wrong))

    def _until(self, done: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline:
                return False
            self.idle.wait(_POLL_S)
        return True

    def settle(self) -> None:
        """Wait until every client is served."""
        self._await_service({kind: OfQueue() for kind in self.clients}, time.monotonic())


def _first(times: list[float], after: float) -> float:
    at = bisect_right(times, after)
    return times[at] if at < len(times) else float("inf")


def judge_meanwhile(of: OfQueue, account: Account, cut: Cut, victim: str, span: tuple[float, float], kind: str) -> None:
    """Whether clients were served that reach a majority, and the home where a queue has one."""
    links = cut.links(victim)
    majority = joined(links)
    if kind != "quorum" and HOME not in majority:
        return  # a master that is cut off may be replaced; a classic queue waits for its home
    asked = [side for side in SIDES if side in majority and (kind != "classic" or side == HOME)]
    served = {side: _first(account.confirms_of[SIDES.index(side)], span[0]) < span[1] for side in asked}
    told = {side: _first(account.ends_of[SIDES.index(side)], span[0] - PATIENCE_S) < span[1] for side in asked}
    of.stalled = not any(served.values())
    of.hung = [side for side in asked if not served[side] and not told[side] and not of.stalled]


@contextmanager
def campaign(network: Network, directory: Path, seed: int) -> Iterator[Campaign]:
    """A broker with load on a queue of each kind, from clients on each node."""
    with running(network, directory) as broker, ExitStack() as stack:
        clients = {kind: broker.clients(kind, seed) for kind in KINDS}
        for each in clients.values():
            stack.enter_context(each)
        made = Campaign(network, broker, clients)
        made.settle()
        yield made
