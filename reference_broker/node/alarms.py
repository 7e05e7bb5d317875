"""Alarms: too little disk or too much memory, on this node or on another node. While an alarm is on, the broker does
not read connections that publish.

As in RabbitMQ, an alarm of one node stops publishers on all nodes: a message published anywhere may end on every node.
A connection is stopped at its first publish after the alarm began. A client that understands connection.blocked gets
it. The connection is read again when the last alarm has cleared. Connections that only consume go on, so that the
backlog that fills the node can shrink. Nodes tell each other their alarms with their heartbeats. A node that is down
has no alarms.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import shutil
from collections.abc import Callable, Sequence
from enum import IntFlag
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from reference_broker.node.config import Limits
from reference_broker.types import NodeId

log = logging.getLogger(__name__)


class Alarm(IntFlag):
    """The shortages of a node, as the octet of a heartbeat."""

    MEMORY = 1
    DISK = 2


NO_ALARM: Final = Alarm(0)
_CRITICAL: Final = 1.1
_LOOKS_BETWEEN: Final = 8
"""Checks between two attempts to give memory back while a node is low on memory: one attempt takes tens of
milliseconds."""
_WORDS: Final = {Alarm.DISK: "disk", Alarm.MEMORY: "memory"}


def reason_of(alarms: Alarm) -> str:
    """The reason that clients read, in RabbitMQ's words; empty for no alarm."""
    words = " & ".join(word for alarm, word in _WORDS.items() if alarm in alarms)
    return f"low on {words}" if words else ""


_HERE: Final = psutil.Process()


def resident_bytes() -> int:
    """Octets of memory that this process holds."""
    return int(_HERE.memory_info().rss)


def give_back() -> None:
    """Give unused memory back to the system; else the alarm would never end. The collector comes seldom, and never
    while publishers are stopped; glibc keeps freed memory."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)


def free_bytes(directory: Path) -> int:
    """Octets that are free on the drive of a directory for users other than root. Raises OSError."""
    return shutil.disk_usage(directory).free


class Room(NamedTuple):
    """The memory of this process, and the free space on the drive of a directory, in octets. Both may raise OSError.
    ``give_back`` lets go of memory that is free."""

    memory: Callable[[], int] = resident_bytes
    disk: Callable[[Path], int] = free_bytes
    give_back: Callable[[], None] = give_back


REAL_ROOM: Final = Room()


class Alarms:
    """The alarms of all nodes. Its owner calls ``check`` every ``alarm_check_ms``, and whenever its clients have sent
    a good part of the memory since the last call."""

    def __init__(self, limits: Limits, directories: Sequence[Path], room: Room = REAL_ROOM) -> None:
        self._limits = limits
        self._directories = tuple(directories)
        self._room = room
        self.own = NO_ALARM
        """The shortages of this node."""
        self._looks_until_given_back = 0
        self._held = 0
        self.is_critical = False
        """Whether this node holds a tenth more memory than it should: then it takes no new connections and channels."""
        self._others: dict[NodeId, Alarm] = {}
        self.reason = ""
        """Why publishers are stopped; empty when they are not."""

    def check(self) -> bool:
        """Look at this node again. Returns whether its alarms have changed."""
        found = self._found()
        if found == self.own:
            return False
        self.own = found
        self._conclude("this node", found)
        return True

    def told(self, node: NodeId, alarms: Alarm) -> bool:
        """Another node says which alarms it has, or is down and has none. Returns whether these have changed."""
        if alarms == self._others.get(node, NO_ALARM):
            return False
        self._others[node] = alarms
        self._conclude(f"node {node}", alarms)
        return True

    def memory_held(self) -> int:
        """Octets of memory that this node holds now; the last known number if the system does not say."""
        try:
            self._held = self._room.memory()
        except OSError as error:
            log.warning("cannot ask for the memory of this node: %s", error)
        return self._held

    def _conclude(self, who: str, alarms: Alarm) -> None:
        everywhere = self.own
        for other in self._others.values():
            everywhere |= other
        self.reason = reason_of(everywhere)
        if alarms:
            log.warning("publishing connections are stopped: %s is %s", who, reason_of(alarms))
        elif everywhere:
            log.info("%s has no alarm any more, another node is still %s", who, self.reason)
        else:
            log.info("publishing connections go on: %s has no alarm any more", who)

    def _found(self) -> Alarm:
        found = NO_ALARM
        if any(self._free(directory) < self._limits.disk_free_bytes_min for directory in self._directories):
            found |= Alarm.DISK
        if self._holds_too_much():
            found |= Alarm.MEMORY
        return found

    def _holds_too_much(self) -> bool:
        limit, held = self._limits.memory_bytes_max, self.memory_held()
        if held <= limit:
            self._looks_until_given_back = 0
        elif self._looks_until_given_back:
            self._looks_until_given_back -= 1
        else:
            self._looks_until_given_back = _LOOKS_BETWEEN
            self._room.give_back()
            held = self.memory_held()
        self.is_critical = held > limit * _CRITICAL
        return held > limit

    def _free(self, directory: Path) -> int:
        try:
            return self._room.disk(directory)
        except OSError as error:
            log.warning("cannot ask for the free space of %s: %s", directory, error)
            return self._limits.disk_free_bytes_min
