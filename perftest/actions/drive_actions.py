"""Actions of a timeline on the modelled drives of a cluster, and what undoes them at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perftest.spec.timed_action import ON_DRIVES, Do, TimedAction

if TYPE_CHECKING:
    from perftest.actions.action_target import ActionTarget


class DriveActions:
    """The drives that the timeline has changed."""

    def __init__(self) -> None:
        self._changed: dict[tuple[str, str], None] = {}
        """Node and drive, in the order of the changes."""

    async def act(self, on: ActionTarget, timed: TimedAction, node: str) -> None:
        """Change a drive. Raises ClusterError."""
        await on.drive(node, timed.drive, str(timed.do), **_details(timed))
        self._changed[node, timed.drive] = None

    def forget(self, node: str) -> None:
        """The process of the node has ended, and with it every change of its drives. FUSE drives outlast the process,
        and are as before at its next start."""
        self._changed = {place: None for place in self._changed if place[0] != node}

    async def restore(self, on: ActionTarget) -> list[str]:
        """Undo the changes of all drives, the last change first. Returns the steps, in words. Raises ClusterError."""
        done = []
        while self._changed:
            (node, drive), _ = self._changed.popitem()
            await on.drive(node, drive, "restore")
            done.append(f"restore {node} {drive}")
        return done


def in_words(timed: TimedAction) -> str:
    """The drive of an action and what becomes of the drive, to be read behind the name of the node."""
    if timed.do not in ON_DRIVES:
        return ""
    value = f" {timed.factor:g}" if timed.do is Do.SLOW else f" {timed.profile}" if timed.do is Do.PROFILE else ""
    return f" {timed.drive}{value}"


def _details(timed: TimedAction) -> dict[str, Any]:
    if timed.do is Do.SLOW:
        return {"factor": timed.factor}
    return {"profile": timed.profile} if timed.do is Do.PROFILE else {}
