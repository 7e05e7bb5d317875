"""Actions of a timeline on hosts and on the links between them, and what undoes them at the end of the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from perftest.spec import link_actions
from perftest.spec.timed_action import Do, TimedAction

if TYPE_CHECKING:
    from infra.links.settings import Pair


class HostFaults(Protocol):
    """The hosts of a run, which actions are carried out on. The methods may raise ClusterError."""

    @property
    def names(self) -> Collection[str]:
        """Of all hosts that take part."""

    async def change_links(self, pairs: Sequence[Pair], changes: Mapping[str, float | bool]) -> None:
        """Change settings of links (:class:`infra.links.settings.LinkSettings`), at one moment as far as possible."""

    async def restore_links(self, pairs: Sequence[Pair]) -> None:
        """Undo the changes of links."""

    async def kill(self, host: str) -> None:
        """End everything of the run that is on a host, without a word."""

    async def pause(self, host: str) -> None:
        """Let everything of the run that is on a host do nothing; connections stay open."""

    async def resume(self, host: str) -> None:
        """Let a paused host go on."""


class LinkActions:
    """The links that the timeline has changed."""

    def __init__(self) -> None:
        self._changed: dict[Pair, None] = {}

    async def act(self, on: HostFaults, timed: TimedAction, node: str) -> None:
        """Change links, or give them back: with ``reconnect``, all links of ``node``; if it is empty, all. Raises
        ClusterError."""
        if timed.do is not Do.RECONNECT:
            pairs = link_actions.pairs(timed, node, on.names)
            self._changed |= dict.fromkeys(pairs)
            await on.change_links(pairs, link_actions.changes(timed))
            return
        meant = [pair for pair in self._changed if node in ("", *pair) and timed.peer in ("", *pair)]
        await on.restore_links(meant)
        self._changed = {pair: None for pair in self._changed if pair not in meant}

    async def restore(self, on: HostFaults) -> bool:
        """Give all links back; whether there were any. Raises ClusterError."""
        changed, self._changed = list(self._changed), {}
        if changed:
            await on.restore_links(changed)
        return bool(changed)
