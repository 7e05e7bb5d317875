"""Where each member of each group stands at a moment, folded from the events before that moment; pure.

A log is kept as runs of equal terms, like ``raft/log_view.py`` keeps it: first index and term of each run, and the last
index. The script of the page (``script/logs.js``) folds the same way, and a test compares the two with a world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from reference_broker.worldpage.events import WorldEvent

Members = dict[tuple[str, str], "MemberView"]
"""Members by host and group."""


@dataclass(slots=True)
class MemberView:
    """One member. ``runs`` are pairs of first index and term, ascending, above the snapshot. Entries above ``disk`` are
    in memory only, so a loss of power takes them."""

    role: str = "follower"
    leader: str = ""
    term: int = 0
    members: str = ""
    snapshot: int = 0
    runs: list[list[int]] = field(default_factory=list)
    last: int = 0
    disk: int = 0
    commit: int = 0
    applied: int = 0
    is_up: bool = True

    def term_at(self, index: int) -> int:
        """The term of an entry; 0 if the log does not hold the entry."""
        if not self.snapshot < index <= self.last:
            return 0
        return max((run for run in self.runs if run[0] <= index), default=[0, 0])[1]

    def append(self, index: int, term: int) -> None:
        """An entry is added. An entry that stands at its place goes, with all that follow."""
        if index <= self.last:
            self.drop(index)
        if not self.runs or self.runs[-1][1] != term:
            self.runs.append([index, term])
        self.last = index

    def drop(self, index: int) -> None:
        """The log ends before an entry."""
        self.last, self.disk = min(self.last, index - 1), min(self.disk, index - 1)
        self.runs = [run for run in self.runs if run[0] < index]

    def compact(self, index: int) -> None:
        """A snapshot takes the place of all entries up to one of them."""
        if index <= self.snapshot:
            return
        self.snapshot, self.disk, self.last = index, max(self.disk, index), max(self.last, index)
        ends = [*(run[0] - 1 for run in self.runs[1:]), self.last]
        kept = zip(self.runs, ends, strict=False)
        self.runs = [[max(run[0], index + 1), run[1]] for run, end in kept if end > index]

    def replace(self, index: int) -> None:
        """A snapshot of another member replaces the log."""
        self.runs, self.snapshot, self.disk, self.last = [], index, index, index


def take(members: Members, event: WorldEvent) -> None:
    """Let one event happen to the members. Late news of a member that is gone changes nothing."""
    if event.what in _PROCESS:
        _PROCESS[event.what](members, event.at)
    elif event.what == "member":
        members[event.at, event.fields["group"]] = _standing(event.fields)
    elif event.what == "leave":
        members.pop((event.at, event.fields["group"]), None)
    elif event.what in _CHANGES and (member := members.get((event.at, event.fields["group"]))) is not None:
        _CHANGES[event.what](member, event.fields)


def standing(t: float, at: str, group: str, member: MemberView) -> WorldEvent:
    """The event that says where a member stands."""
    fields = {
        "group": group, "begins": False, "role": member.role, "leader": member.leader, "term": member.term,
        "members": member.members, "snapshot": member.snapshot, "log": [[*run] for run in member.runs],
        "last": member.last, "disk": member.disk, "commit": member.commit, "applied": member.applied,
    }  # fmt: skip
    return WorldEvent(t, at, "member", fields)


def _standing(fields: dict[str, Any]) -> MemberView:
    known = {name: value for name, value in fields.items() if value is not None}
    rest = {name: value for name, value in known.items() if name not in ("group", "begins", "log")}
    return MemberView(**rest, runs=[[*run] for run in known.get("log", ())])


def _started(members: Members, at: str) -> None:
    """The members of the former process are gone. Each that is on the disk begins anew."""
    for key in [key for key in members if key[0] == at]:
        del members[key]


def _ended(members: Members, at: str) -> None:
    for (host, _group), member in members.items():
        if host == at:
            member.is_up = False


_PROCESS: Final[dict[str, Callable[[Members, str], None]]] = {"start": _started, "kill": _ended, "power": _ended}


def _role(member: MemberView, fields: dict[str, Any]) -> None:
    member.role, member.leader, member.term = fields["role"], fields["leader"], fields["term"]
    member.members = fields["members"] or member.members


def _on_disk(member: MemberView, fields: dict[str, Any]) -> None:
    """A late notice about an entry that was overwritten does not count."""
    if member.term_at(fields["index"]) == fields["term"]:
        member.disk = max(member.disk, fields["index"])


def _installed(member: MemberView, fields: dict[str, Any]) -> None:
    """A log that has the last entry of the snapshot goes on behind that entry; any other log waits for its reset."""
    if member.term_at(fields["index"]) == fields["term"]:
        member.compact(fields["index"])


def _committed(member: MemberView, fields: dict[str, Any]) -> None:
    member.commit = max(member.commit, fields["index"])


def _applied(member: MemberView, fields: dict[str, Any]) -> None:
    member.applied = max(member.applied, fields["index"])


_CHANGES: Final[dict[str, Callable[[MemberView, dict[str, Any]], None]]] = {
    "role": _role,
    "append": lambda member, fields: member.append(fields["index"], fields["term"]),
    "drop": lambda member, fields: member.drop(fields["index"]),
    "disk": _on_disk,
    "reset": lambda member, fields: member.replace(fields["index"]),
    "snapshot": lambda member, fields: member.compact(fields["index"]),
    "install": _installed,
    "commit": _committed,
    "apply": _applied,
    "take": _applied,
}
